"""Answers and hours that the console keeps are those that it would make now, for the caller who asks."""

import random
from typing import Any

import pytest

from tests.http.serving import until
from tests.services.analyzer.analyzing import IDLE, StubSource, reading, running, track, uuid
from tests.services.analyzer.exporting import exporting
from tests.services.analyzer.test_api import HOURLY, shared
from tests.services.analyzer.test_console import ledger
from vgpuscope.http.answers import KeptAnswers
from vgpuscope.model.analysis import Reading
from vgpuscope.model.caller import Caller
from vgpuscope.model.pending import PendingPod
from vgpuscope.sources.console.parts import PartReader

PATHS = ("overview", "gpus", "gpus?fields=gpu_id,tenants.pod", "nodes", "workloads", "namespaces", "scheduling")
SCOPES: tuple[dict[str, str], ...] = ({}, {"namespace": "team-a"}, {"namespace": "team-b"})


def some_fleet(dice: random.Random) -> Reading:
    tracks = [track(0, util=dice.choice((IDLE, None))), *shared(2, "ab")]
    return reading(*tracks, *([track(1)] if dice.random() < 0.5 else []))


def without_ages(value: Any) -> Any:
    """An answer without what goes on by the clock; documented: times of parts can be older than the last check."""
    if isinstance(value, dict):
        return {name: without_ages(one) for name, one in value.items() if not name.endswith(("seconds", "number"))}
    return [without_ages(one) for one in value] if isinstance(value, list) else value


async def test_an_answer_that_was_kept_is_the_one_that_would_be_made():
    dice, same = random.Random(11), 0
    async with exporting() as exporter:
        flags = {**HOURLY, "analyzer.cluster_url": exporter.url, "analyzer.rate_limit": 100_000}
        async with running(StubSource(some_fleet(dice)), **flags) as analyzer:
            await analyzer.analysed()
            console = analyzer.analyzer.console
            for turn in range(6):
                exporter.nodes = (ledger(),) if dice.random() < 0.5 else ()
                exporter.pods = (PendingPod(namespace="team-a", pod=f"later-{turn}", pod_uid="u", created=900.0),)
                analyzer.source.answer = some_fleet(dice)
                await analyzer.analyse()
                for path, scope in ((path, scope) for path in PATHS for scope in SCOPES):
                    kept = await analyzer.get(f"/api/v1/{path}", params=scope)
                    again = await analyzer.get(f"/api/v1/{path}", params=scope)
                    console.kept = KeptAnswers()
                    made = await analyzer.get(f"/api/v1/{path}", params=scope)
                    tags = {one.headers["etag"]: one for one in (kept, again, made)}
                    same += len(tags) == 1  # otherwise a part was fetched again meanwhile
                    for one in (kept, again, made):
                        assert without_ages(one.json()) == without_ages(tags[one.headers["etag"]].json()), path
            assert same > len(PATHS)


@pytest.mark.attack
async def test_a_role_of_one_namespace_never_gets_what_was_kept_for_another(monkeypatch):
    async with running(StubSource(reading(track(0), *shared(2, "ab"))), **HOURLY) as analyzer:
        await analyzer.analysed()
        admission = type(analyzer.analyzer._access.admission)
        callers = (Caller(name="all"), *(Caller(name=team, namespaces=(f"team-{team}",)) for team in "ab"))
        for caller in callers * 2:
            monkeypatch.setattr(admission, "admit", lambda *_, caller=caller: caller)
            for path in PATHS:
                text = (await analyzer.get(f"/api/v1/{path}")).text
                if caller.namespaces:
                    assert f"web-{'b' if caller.name == 'a' else 'a'}" not in text


async def test_an_hour_of_a_chart_is_read_again_when_an_analysis_was_saved(tmp_path):
    flags = {**HOURLY, "analyzer.history": str(tmp_path / "results.db"), "prometheus.query_condition": "{}"}
    async with running(StubSource(reading(track(0))), **flags) as analyzer:
        await analyzer.analysed()
        service = analyzer.analyzer
        await until(lambda: service._saving.outbox.saved == 1)
        before = service.stored()
        assert service.stored() == before
        await analyzer.analyse()
        await until(lambda: service._saving.outbox.saved == 2)
        assert service.stored() != before


async def test_more_gpus_are_in_the_next_answer_after_an_analysis():
    async with running(StubSource(reading(track(0))), **HOURLY) as analyzer:
        await analyzer.analysed()
        first = await analyzer.get("/api/v1/gpus")
        analyzer.source.answer = reading(track(0), track(1))
        await analyzer.analyse()
        tag = {"if-none-match": first.headers["etag"]}
        second = await analyzer.get("/api/v1/gpus", headers=tag)
        assert (second.status_code, {row["gpu_id"] for row in second.json()["rows"]}) == (200, {uuid(0), uuid(1)})


async def test_facts_of_agents_are_asked_for_when_an_analysis_begins(monkeypatch):
    begun = []
    monkeypatch.setattr(PartReader, "begin", lambda part: begun.append(part.held().name))
    async with running(StubSource(reading(track(0))), **HOURLY) as analyzer:
        await analyzer.analysed()
        before = len(begun)
        await analyzer.analyse()
        assert (before, begun) == (1, ["agents", "agents"])
