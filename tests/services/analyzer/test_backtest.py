"""Back-tests through the API of a running analyzer. The past is labelled, so what must be found is known."""

import asyncio
import itertools
import time
from contextlib import asynccontextmanager

import pytest

from tests.services.analyzer.analyzing import TOKEN, StubSource, reading, running, track
from tests.services.analyzer.pasts import EVERY, past, store_past
from vgpuscope.model.analysis import Tenant
from vgpuscope.services.analyzer.backtest.backtests import Backtests

PATH = "/api/v1/reclaim/backtest"
BEARER = {"authorization": f"Bearer {TOKEN}"}
LENGTH = 96  # 8 hours
# idle all the time; idle, then busy again; busy; what nobody knows
PAST = {
    "ml/idle": "I" * LENGTH,
    "ml/again": "I" * 20 + "B" * (LENGTH - 20),
    "web/busy": "B" * LENGTH,
    "web/who": "U" * LENGTH,
}
POLICY = {"confirmations": 2, "grace": "10m", "min_pod_age": "0s", "max_fleet_share": 1}


@asynccontextmanager
async def analyzer(tmp_path, **more):
    path = str(tmp_path / "h.db")
    await store_past(path, past(PAST, end=time.time() - 60))
    flags = {"scheduler.interval": 3600, "analyzer.history": path, "control.enabled": False}
    async with running(StubSource(reading(track(0))), environ={"VGPUSCOPE_API_TOKEN": TOKEN}, **(flags | more)) as one:
        await one.analysed()
        yield one


async def asked(one, **body):
    return await one.client.post(PATH, json=body, headers=BEARER)


async def test_a_changed_policy_is_compared_with_the_current_one(tmp_path):
    async with analyzer(tmp_path) as one:
        answer = await asked(one, policy=POLICY, since="8h")
        assert answer.status_code == 200, answer.text
        found = answer.json()
        current, proposed = found["current"], found["proposed"]
        # By default: 3 windows, 30 minutes of grace, pods of 30 minutes. `again` has 20 analyses: 105 minutes.
        assert [(row["namespace"], row["pod"], row["end"]) for row in proposed["list"]] == [
            ("ml", "again", "busy_later"),
            ("ml", "idle", "still_idle"),
        ]
        # 2 windows of 10 minutes that do not overlap end with the third analysis, 10 minutes of grace with the fifth
        first = found["coverage"]["first"]
        assert [row["at"] for row in proposed["list"]] == pytest.approx([first + 4 * EVERY] * 2, abs=0.01)
        won = {row["pod"]: row["gpu_hours"] for row in proposed["list"]}
        assert won == {"again": pytest.approx(15 * EVERY / 3600), "idle": pytest.approx(91 * EVERY / 3600)}
        assert current["actions"] == 2
        assert current["gpu_hours"] < proposed["gpu_hours"]
        assert {row["key"]: (row["current"], row["proposed"]) for row in found["changed"]}.keys() == POLICY.keys()
        assert (found["step"], found["complete"], found["source"]) == (3600, True, "stored")
        assert sum(row["gpu_hours"] for row in proposed["series"]) == pytest.approx(proposed["gpu_hours"])
        assert found["coverage"]["ratio"] > 0.97
        assert "annotations" in found["not_applied_codes"]


async def test_busy_again_within_the_time_is_a_false_alarm(tmp_path):
    async with analyzer(tmp_path) as one:
        found = (await asked(one, policy=POLICY, since="8h", busy_within="2h")).json()
        assert (found["proposed"]["false_alarms"], found["proposed"]["busy_later"]) == (1, 0)


async def test_the_stop_switch_of_the_settings_is_part_of_a_policy(tmp_path):
    async with analyzer(tmp_path) as one:
        found = (await asked(one, policy=POLICY | {"stop": True}, since="8h")).json()
        assert (found["current"]["actions"], found["proposed"]["actions"]) == (2, 0)
        assert found["proposed"]["held_back"] == {"stop": 2, "gpu_unknown": 1}


async def test_without_a_policy_only_the_current_one_is_replayed(tmp_path):
    async with analyzer(tmp_path) as one:
        found = (await asked(one)).json()
        assert (found["proposed"], found["changed"], found["step"]) == (None, [], 86400)
        assert found["coverage"]["ratio"] == pytest.approx(8 / 168, abs=0.01)  # seven days were asked for
        assert max(gap["end"] - gap["begin"] for gap in found["coverage"]["gaps"]) > 6 * 86400


async def test_the_running_policy_stays(tmp_path):
    async with analyzer(tmp_path) as one:
        before = await one.json("/api/v1/reclaim/policy")
        await asked(one, policy=POLICY)
        assert await one.json("/api/v1/reclaim/policy") == before


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"policy": {"max_per_hours": 3}}, "reclaim.max_per_hours"),
        ({"policy": {"max_per_hour": -1}}, "reclaim.max_per_hour"),
        ({"policy": {"grace": "soon"}}, "reclaim.grace"),
        ({"policy": {"working_hours": [{"days": "monday"}]}}, "working_hours[0].days"),
        ({"policy": {"breaker": {"shares": 1}}}, "reclaim.breaker"),
        ({"policy": 3}, "policy"),
        ({"since": "yesterday"}, "since"),
        ({"since": 0}, "since"),
        ({"since": 1e99}, "since"),
        ({"busy_within": "1w1"}, "busy_within"),
        ({"polcy": {}}, "polcy"),
    ],
)
async def test_a_bad_request_is_refused_by_its_path(tmp_path, body, said):
    async with running(
        StubSource(reading(track(0))),
        environ={"VGPUSCOPE_API_TOKEN": TOKEN},
        **{"analyzer.history": str(tmp_path / "h")},
    ) as one:
        answer = await asked(one, **body)
        assert answer.status_code == 422, answer.text
        error = answer.json()["error"]
        assert said in error["message"]
        assert error["hint"]


async def test_it_needs_the_role_operate_and_a_store(tmp_path):
    async with running(StubSource(reading(track(0))), environ={"VGPUSCOPE_API_TOKEN": TOKEN}) as one:
        assert (await one.client.post(PATH, json={})).status_code == 401
        answer = await asked(one)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "HISTORY_ABSENT")


async def test_a_caller_of_one_namespace_sees_only_that(tmp_path):
    more = {"analyzer.protect_reads": True, "analyzer.api_token_namespaces": ("web",)}
    async with analyzer(tmp_path, **more) as one:
        found = await asked(one, policy=POLICY, since="8h")
        assert found.status_code == 200, found.text
        assert "ml" not in found.text
        assert found.json()["proposed"]["actions"] == 0


async def test_only_one_runs_at_a_time_and_its_progress_is_shown(tmp_path, monkeypatch):
    async with analyzer(tmp_path) as one:
        reached, go = asyncio.Event(), asyncio.Event()
        read = one.analyzer._store.past.read

        async def slow(**span):
            turn = 0
            async for analysis in read(**span):
                turn += 1
                if turn == LENGTH // 2:
                    reached.set()
                    await go.wait()
                yield analysis

        monkeypatch.setattr(one.analyzer._store.past, "read", slow)
        first = asyncio.create_task(asked(one, since="8h"))
        async with asyncio.timeout(30):
            await reached.wait()
        shown = await one.json(PATH)
        assert (shown["running"], shown["by"]) == (True, "token")
        assert shown["done"] == pytest.approx(0.5, abs=0.02)
        second = await asked(one)
        assert (second.status_code, second.json()["error"]["code"]) == (409, "BACKTEST_BUSY")
        go.set()
        assert (await first).status_code == 200
        assert (await one.json(PATH))["running"] is False


async def test_a_replay_that_takes_too_long_tells_how_far_it_came(tmp_path):
    async with analyzer(tmp_path) as one:
        minutes = itertools.count(0.0, 60.0).__next__  # between two looks at the clock
        one.analyzer.backtests = Backtests(one.analyzer._settings, one.analyzer._store.past, clock=minutes)
        found = (await asked(one, since="8h")).json()
        assert found["complete"] is False
        assert found["coverage"]["analyses"] == 1
        assert found["replayed_until"] == found["coverage"]["last"]


async def test_what_the_analyzer_stores_can_be_replayed(tmp_path):
    """The whole way: analyses of a source, the store, the replay."""
    idle = track(1, util=0.0, tenant=Tenant(namespace="ml", pod="nb", container="main", pod_uid="uid-1"))
    flags = {"scheduler.interval": 3600, "analyzer.history": str(tmp_path / "h.db")}
    async with running(StubSource(reading(track(0), idle)), environ={"VGPUSCOPE_API_TOKEN": TOKEN}, **flags) as one:
        await one.analysed()
        await one.analyse()
        await one.analyzer._saving.outbox.flush()
        eager = {"confirmations": 1, "grace": 0, "min_pod_age": 0, "max_fleet_share": 1, "include_held": True}
        found = (await asked(one, policy=eager, since="1h")).json()
        assert found["coverage"]["analyses"] >= 2
        assert [row["pod_uid"] for row in found["proposed"]["list"]] == ["uid-1"]
