"""Staleness at once: an analysis that failed is told in every answer, and a source that died in /health."""

import asyncio
import time

import pytest

from tests.http.serving import until
from tests.loopclock import forward
from tests.services.analyzer.analyzing import (
    IDLE,
    Ahead,
    SharedHistory,
    StubSource,
    StubSources,
    reading,
    running,
    track,
    uuid,
)
from tests.services.analyzer.test_analyzer import HOURLY, QUICK
from vgpuscope.model.errors import SourceDown
from vgpuscope.services.analyzer.sources import watch as source_watch
from vgpuscope.views.fleet.results.results import iso

HEADER = "x-vgpuscope-stale-since"
DATA = (
    "/results",
    "/results?format=csv",
    "/results?fields=gpu_id,score",
    "/results/low",
    "/results/stats",
    "/api/v1/summary",
    "/api/v1/gpus",
    f"/api/v1/gpus/{uuid(0)}",
    "/api/v1/nodes",
    "/api/v1/namespaces",
    "/api/v1/workloads",
    "/api/v1/history",
)
CHECK_WORDS = ("/health", "/api/v1/summary", "/results/stats")


async def stale_words(analyzer):
    said = [await analyzer.json(path) for path in CHECK_WORDS]
    return {(one["stale_since"], one["stale_reason"]) for one in said}


# ── an analysis that fails ───────────────────────────────────────────────────────────────────────────────────────


async def test_from_the_first_failed_analysis_on_every_answer_says_so_and_since_when():
    async with running(**HOURLY) as analyzer:
        await analyzer.analysed()
        for path in DATA:
            assert HEADER not in (await analyzer.get(path)).headers, path
        assert await stale_words(analyzer) == {(None, None)}
        analyzer.source.fail("connection refused")
        await analyzer.analyse()
        since = iso(analyzer.analyzer.state().tally.last_start)
        await analyzer.analyse()  # the second failure changes nothing
        for path in DATA:
            assert (await analyzer.get(path)).headers[HEADER] == since, path
        assert await stale_words(analyzer) == {(since, "QUERY_FAILED: connection refused")}
        assert {row["verdict"] for row in await analyzer.json("/results")} == {"idle", "in_use"}  # not old yet
        for path in ("/", "/config", "/docs", "/openapi.json"):
            assert HEADER not in (await analyzer.get(path)).headers, path


async def test_after_a_good_analysis_nothing_is_stale():
    async with running(**HOURLY) as analyzer:
        await analyzer.analysed()
        analyzer.source.fail()
        await analyzer.analyse()
        analyzer.source.answer = reading(track(0), track(1, util=IDLE))
        await analyzer.analyse()
        for path in DATA:
            assert HEADER not in (await analyzer.get(path)).headers, path
        assert await stale_words(analyzer) == {(None, None)}


async def test_who_has_the_answer_already_is_told_that_it_is_stale():
    async with running(**HOURLY) as analyzer:
        await analyzer.analysed()
        tags = {path: (await analyzer.get(path)).headers["etag"] for path in ("/results", "/results/stats")}
        analyzer.source.fail()
        await analyzer.analyse()
        rows = await analyzer.get("/results", headers={"if-none-match": tags["/results"]})
        assert (rows.status_code, HEADER in rows.headers) == (304, True)  # no row has changed
        sums = await analyzer.get("/results/stats", headers={"if-none-match": tags["/results/stats"]})
        assert (sums.status_code, sums.json()["stale_reason"]) == (200, "QUERY_FAILED: refused")


async def test_a_source_that_was_never_read_is_told_too():
    async with running(StubSource(SourceDown("away")), **HOURLY) as analyzer:
        await analyzer.analysed()
        assert HEADER in (await analyzer.get("/results")).headers
        assert {why for _, why in await stale_words(analyzer)} == {"SOURCE_DOWN: away"}


async def test_what_became_old_without_a_failure_is_stale_since_it_became_so():
    wall = Ahead()
    async with running(wall=wall, **HOURLY) as analyzer:
        await analyzer.analysed()
        began = analyzer.analyzer.state().last.started
        wall.seconds = 4000
        assert (await analyzer.get("/results")).headers[HEADER] == iso(began + 3600 + 90)
        assert await stale_words(analyzer) == {(iso(began + 3690), "no analysis has succeeded for 3690 s")}


async def test_the_freshness_rule_follows_the_settings():
    wall = Ahead()
    async with running(wall=wall, **HOURLY, **{"verdict.max_age_intervals": 10}) as analyzer:
        await analyzer.analysed()
        wall.seconds = 3600 + 10 * 30 - 60
        assert not (await analyzer.json("/results"))[0]["stale"]
        wall.seconds = 3600 + 10 * 30 + 5
        assert (await analyzer.json("/results"))[0]["stale"]


async def test_a_follower_is_as_stale_as_what_it_has():
    wall = Ahead()
    store = SharedHistory()
    async with running(history=store, paces=QUICK, wall=wall, **HOURLY) as leader:
        await leader.analysed()
        async with running(history=store, paces=QUICK, wall=wall, **HOURLY) as follower:
            await until(lambda: follower.analyzer.state().last)
            assert await stale_words(follower) == {(None, None)}
            wall.seconds = 4000
            assert HEADER in (await follower.get("/results")).headers


# ── a look at the source ─────────────────────────────────────────────────────────────────────────────────────────


async def health_when(analyzer, **wanted):
    async def so():
        found = await analyzer.json("/health")
        return found if wanted.items() <= found.items() else None

    return await until(so)


async def test_a_source_that_died_is_told_within_seconds_and_without_an_analysis():
    source = StubSource()
    sources = StubSources(source)
    async with running(source, sources=sources, **HOURLY) as analyzer:
        await analyzer.analysed()
        await health_when(analyzer, status="healthy", prometheus_connected=True)
        sources.down = SourceDown("http://stub does not answer queries: connection refused")
        await asyncio.sleep(0)
        forward(source_watch._ASK_EVERY)
        health = await health_when(analyzer, status="degraded", prometheus_connected=False)
        assert health["error"]["code"] == "SOURCE_DOWN"
        assert (analyzer.source.reads, health["stale_since"]) == (1, None)
        sources.down = None
        forward(source_watch._ASK_EVERY)
        health = await health_when(analyzer, status="healthy", prometheus_connected=True)
        assert health["error"] is None
        assert source_watch._ASK_EVERY + source_watch._ASK_WITHIN < 10


async def test_a_source_that_is_dead_at_the_start_is_told_while_the_first_analysis_still_tries():
    source = StubSource()
    source.hang()
    sources = StubSources(source)
    sources.down = SourceDown("connection refused")
    async with running(source, sources=sources, **HOURLY) as analyzer:
        await source.asked.wait()
        health = await health_when(analyzer, status="degraded", prometheus_connected=False)
        assert health["error"]["message"] == "connection refused"
        assert analyzer.analyzer.state().tally.analyses == 0


async def test_a_source_that_hangs_is_told_and_nobody_waits_for_it():
    source = StubSource()
    source.hang()
    async with running(source, **HOURLY) as analyzer:
        await source.asked.wait()
        began = time.monotonic()
        assert (await analyzer.json("/health"))["prometheus_connected"] is False
        assert time.monotonic() - began < source_watch._ASK_WITHIN
        forward(source_watch._ASK_WITHIN)
        await until(lambda: analyzer.analyzer.state().error)
        health = await analyzer.json("/health")
        assert (health["status"], health["error"]["code"]) == ("degraded", "SOURCE_DOWN")
        assert "does not answer within" in health["error"]["message"]


async def test_health_is_never_what_asks_the_source():
    source = StubSource()
    sources = StubSources(source)
    async with running(source, sources=sources, **HOURLY, **{"analyzer.rate_limit": 1e6}) as analyzer:
        await analyzer.analysed()
        await until(lambda: sources.looks)
        before, began = sources.looks, time.monotonic()
        for _ in range(50):
            await analyzer.json("/health")
        assert sources.looks - before <= 1 + (time.monotonic() - began) / source_watch._ASK_EVERY


async def test_an_analysis_that_failed_after_the_last_look_counts_more_than_it():
    async with running(**HOURLY) as analyzer:
        await analyzer.analysed()
        await health_when(analyzer, prometheus_connected=True)
        analyzer.source.fail("503")
        await analyzer.analyse()
        health = await analyzer.json("/health")
        assert (health["status"], health["prometheus_connected"]) == ("degraded", False)


@pytest.mark.parametrize("field", ["status", "prometheus_connected", "last_analysis", "analysis_timeout", "interval"])
async def test_the_fields_of_gpu_oour_stay(field):
    async with running(**HOURLY) as analyzer:
        await analyzer.analysed()
        assert field in await analyzer.json("/health")
