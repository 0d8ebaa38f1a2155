"""Low GPUs are reported to a control service: what is sent, how often, and what a service that fails or hangs costs.

Keys of the body, and when a GPU is reported, as gpu-oour's handbook has them.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import re
from contextlib import asynccontextmanager

import pytest
from msgspec import structs

from tests.http.serving import until
from tests.services.analyzer.analyzing import (
    BUSY,
    IDLE,
    Ahead,
    SharedHistory,
    StubSource,
    reading,
    running,
    stat,
    track,
)
from vgpuscope.config import load
from vgpuscope.config.reclaim import callback_when
from vgpuscope.model.analysis import Tenant
from vgpuscope.model.errors import ConfigInvalid
from vgpuscope.services.analyzer import callbacks

KEYS = ["gpu_id", "pod", "namespace", "hostname", "score", "status", "timestamp"]
KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()
WINDOW = 600.0


def tenant(pod: str) -> Tenant:
    return Tenant(namespace="ml", pod=pod, container="main")  # as a dcgm-exporter names it: without a UID


def fleet(*, idle=("nb",), busy=("train",)):
    pods = [(pod, IDLE) for pod in idle] + [(pod, BUSY) for pod in busy]
    return reading(*[track(n, util=util, tenant=tenant(pod)) for n, (pod, util) in enumerate(pods)])


@asynccontextmanager
async def reporting(control, source=None, **more):
    """An analyzer with the two settings of gpu-oour, and nothing else: no store, no UID, no grace, no dry run set."""
    source = source or StubSource(fleet())
    flags = {"scheduler.interval": 3600, "control.enabled": True, "control.api_url": control.url}
    given = {name: more.pop(name) for name in ("environ", "wall", "history", "paces") if name in more}
    async with running(source, **given, **(flags | more)) as one:
        await one.analysed()
        yield one


def bodies(control) -> list[dict]:
    return [json.loads(body) for _, body in control.received]


async def settled(one) -> None:
    await until(lambda: one.analyzer._replica.leads and not one.analyzer.callbacks.waiting)


async def test_an_idle_gpu_is_reported_with_the_seven_keys_and_the_values_of_results(control):
    async with reporting(control) as one:
        await until(lambda: control.received)
        [body] = bodies(control)
        assert list(body) == KEYS
        [row] = [row for row in await one.json("/results") if row["pod"] == "nb"]
        assert {key: body[key] for key in KEYS[:-1]} == {key: row[key] for key in KEYS[:-1]}
        assert body["score"] == 11.5  # 20 % of half the memory, 10 % of 60 W of 400 W
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", body["timestamp"])
        await settled(one)
        page = await one.metrics()
        assert 'vgpuscope_control_callbacks_total{outcome="success"} 1' in page
        assert "vgpuscope_control_callbacks_waiting 0" in page
        assert one.analyzer.reclaim.counts.actions == {}  # nothing was taken


async def test_it_is_reported_once_until_it_is_in_use_and_low_again(control):
    async with reporting(control) as one:
        await settled(one)
        await one.analyse()
        await settled(one)
        assert [body["pod"] for body in bodies(control)] == ["nb"]
        one.source.answer = fleet(idle=(), busy=("nb", "train"))
        await one.analyse()
        one.source.answer = fleet()
        await one.analyse()
        await until(lambda: len(control.received) == 2)
        first, second = (headers["webhook-id"] for headers, _ in control.received)
        assert first != second


async def test_it_is_repeated_after_the_pause_and_with_none_after_each_analysis(control):
    wall = Ahead()
    source = StubSource(fleet())
    async with reporting(control, source, wall=wall, **{"control.repeat": 60.0}) as one:
        await settled(one)
        wall.seconds = 61.0
        await one.analyse()
        await until(lambda: len(control.received) == 2)
    control.received.clear()
    async with reporting(control, **{"control.repeat": 0.0}) as one:
        await settled(one)
        await one.analyse()
        await until(lambda: len(control.received) == 2)


async def test_a_gpu_of_unknown_verdict_and_one_without_a_pod_are_not_reported(control):
    hot = track(0, util=IDLE, tenant=tenant("hot"))  # no work is measured, and it draws 90 % of its power
    hot = structs.replace(hot, terms=hot.terms | {"power": stat(360.0)})
    free, nb = track(1, util=IDLE, tenant=None), track(2, util=IDLE, tenant=tenant("nb"))
    async with reporting(control, StubSource(reading(hot, free, nb))) as one:
        await settled(one)
        listed = {row["pod"]: (row["verdict"], row["status"]) for row in await one.json("/results")}
        assert listed == {"hot": ("unknown", "unknown"), "": ("idle", "low"), "nb": ("idle", "low")}
        assert [body["pod"] for body in bodies(control)] == ["nb"]


async def test_with_when_idle_a_low_score_alone_is_not_reported(control):
    low = track(1, util=0.12, tenant=tenant("slow"))
    source = StubSource(reading(track(0, util=IDLE, tenant=tenant("nb")), low))
    async with reporting(control, source) as one:
        await until(lambda: {body["pod"] for body in bodies(control)} == {"nb", "slow"})
    control.received.clear()
    async with reporting(control, source, **{"control.when": "idle"}) as one:
        await settled(one)
        assert [body["pod"] for body in bodies(control)] == ["nb"]


async def test_names_of_labels_are_cut_and_have_no_control_characters(control):
    source = StubSource(reading(track(0, util=IDLE, tenant=tenant("a\r\nb\x1b[2J" + "x" * 5000))))
    async with reporting(control, source):
        await until(lambda: control.received)
    [body] = bodies(control)
    assert body["pod"].startswith("ab[2Jxxx")
    assert len(body["pod"]) == 253


async def test_a_refused_report_is_sent_again_with_its_key_and_a_new_signature(control):
    control.answer = "503 Service Unavailable"
    wall = Ahead()
    async with reporting(control, wall=wall, environ={"VGPUSCOPE_CONTROL_SECRET": SECRET}) as one:
        await until(lambda: control.received)
        await until(lambda: one.analyzer.callbacks.last_error)
        assert (await one.json("/health"))["control_error"] == "CALL_FAILED"
        report = await one.json("/api/v1/doctor")
        [check] = [check for check in report["findings"] if check["code"] == "CONTROL_FAILING"]
        assert check["status"] == "fail"
        control.answer = "202 Accepted"
        wall.seconds = 10.0  # the pause after a few failures is over
        await settled(one)
        assert (await one.json("/health"))["control_error"] is None
        (first, _), *_, (last, body) = control.received
        assert first["webhook-id"] == last["webhook-id"]
        assert first["webhook-timestamp"] < last["webhook-timestamp"]
        signed = f"{last['webhook-id']}.{last['webhook-timestamp']}.".encode() + body
        wanted = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
        assert last["webhook-signature"] == f"v1,{wanted}"
        failures = len(control.received) - 1
        page = await one.metrics()
        assert f'vgpuscope_control_callbacks_total{{outcome="failure"}} {failures}' in page
        assert f'vgpuscope_analyzer_errors_total{{code="CALL_FAILED"}} {failures}' in page


async def test_what_is_in_use_again_before_the_service_answers_is_not_reported(control):
    control.answer = "500 Internal Server Error"
    wall = Ahead()
    async with reporting(control, wall=wall) as one:
        await until(lambda: control.received)
        one.source.answer = fleet(idle=(), busy=("nb", "train"))
        await one.analyse()
        await until(lambda: one.analyzer.callbacks.waiting == 0)
        sent = len(control.received)
        control.answer = "200 OK"
        wall.seconds = 3600.0
        one.source.answer = fleet(idle=("other",), busy=("nb", "train"))
        await one.analyse()
        await settled(one)
        assert [body["pod"] for body in bodies(control)[sent:]] == ["other"]


async def test_a_redirect_is_not_followed(control):
    control.answer = f"307 Temporary Redirect\r\nlocation: {control.url}/elsewhere"
    async with reporting(control) as one:
        await until(lambda: one.analyzer.callbacks.last_error)
        assert one.analyzer.callbacks.waiting == 1


async def test_a_service_that_hangs_holds_neither_the_analyses_nor_the_api_and_gets_few_calls_at_once():
    inside, most, gate = 0, 0, asyncio.Event()

    async def hang(reader, writer):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await gate.wait()
        inside -= 1
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    hanging = type("Hanging", (), {"url": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"})
    source = StubSource(fleet(idle=[f"nb-{n}" for n in range(40)]))
    async with reporting(hanging, source, **{"control.timeout": 10.0}) as one:
        await until(lambda: inside == callbacks._AT_ONCE)
        await one.analyse()  # goes on
        assert (await one.json("/health"))["status"] == "healthy"
        assert one.analyzer.callbacks.waiting == 40  # one for each part, however many analyses follow
        assert most == callbacks._AT_ONCE
        gate.set()
    server.close()


async def test_of_two_replicas_only_the_leader_reports(control):
    store, source = SharedHistory(), StubSource(fleet())
    async with reporting(control, source, history=store) as leader:
        await settled(leader)
        wall, flags = Ahead(), {"control.enabled": True, "control.api_url": control.url}
        async with running(StubSource(fleet()), history=store, wall=wall, **flags) as follower:
            mine = follower.analyzer.callbacks
            await mine.follow(await leader.analyzer.board())  # as when the store was down, and both analysed
            await mine.round()
            assert not follower.analyzer._replica.leads
            assert (mine.waiting, len(control.received)) == (1, 1)
            wall.seconds = 60.0
            await mine.round()
            assert mine.waiting == 0  # what the leader has reported is not reported again, much later
        assert leader.analyzer.callbacks.counts["success"] == 1


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"control.dry_run": True}, "control.when: idle, but control.dry_run is true, so nothing is sent"),
        (
            {"control.dry_run": False},
            "control.when: idle, but reclaim.action control calls the same service to take GPUs, which would take "
            "each low GPU at once",
        ),
        ({"control.api_url": "", "reclaim.action": "scale"}, "control.when: idle, but control.api_url is missing"),
    ],
)
def test_settings_that_rule_reports_out_are_refused_with_a_sentence(more, reason):
    flags = {"control.enabled": True, "control.api_url": "http://c/", "control.when": "idle", **more}
    with pytest.raises(ConfigInvalid) as error:
        load(flags=flags, environ={})
    assert str(error.value) == reason


@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_service_that_reclaim_calls_gets_no_reports(control, tmp_path, dry_run):
    """It takes a GPU for each call: without confirmations, grace and budgets, that would be too early."""
    history = {"analyzer.history": str(tmp_path / "h.db")}
    async with reporting(control, **history, **{"control.dry_run": dry_run}) as one:
        await one.analyse()
        assert one.analyzer.callbacks.when is None
        await one.analyzer.callbacks.round()
        assert control.received == []
        assert "vgpuscope_control_callbacks" not in re.sub("#.*", "", await one.metrics())


@pytest.mark.parametrize(("when", "reports"), [(None, None), ("idle", "idle")])
def test_where_reclaim_acts_otherwise_reports_have_to_be_asked_for(when, reports):
    """The URL may be one that was left over, of a service that takes GPUs."""
    flags = {"control.enabled": True, "control.api_url": "http://c/", "control.dry_run": False, "control.when": when}
    config = load(flags=flags | {"reclaim.action": "scale"}, environ={}).config
    assert callback_when(config.control, config.reclaim) == reports
