"""Idle workloads from a real analyzer: known while it answers, none when it is old, down or absent."""

import asyncio
import time
from contextlib import asynccontextmanager

from tests.http.serving import until
from tests.ports import free_port
from tests.services.analyzer.analyzing import IDLE, StubSource, reading, running, track
from vgpuscope.services.extender.idle_workloads import IdleWorkloads


@asynccontextmanager
async def reads(url, **more):
    idle = IdleWorkloads(url, **more)
    task = asyncio.create_task(idle.run())
    try:
        yield idle
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_the_idle_workloads_of_the_analyzer_are_known_with_their_age():
    source = StubSource(reading(track(0), track(1, util=IDLE)))
    async with running(source) as analyzer:
        await analyzer.analysed()
        verdicts = (await analyzer.json("/api/v1/workloads"))["rows"]
        expected = {row["pod"] for row in verdicts if row["verdict"] == "idle"}
        assert expected == {"train-1"}
        async with reads(str(analyzer.client.base_url)) as idle:
            await until(lambda: idle.now().state == "ok")
            assert {(one.namespace, one.pod) for one in idle.now().workloads} == {("ml", "train-1")}
            assert idle.now().age < 600


async def test_verdicts_of_an_old_analysis_are_not_used():
    late: list[float] = []
    async with running(StubSource(reading(track(1, util=IDLE)))) as analyzer:
        await analyzer.analysed()
        async with reads(str(analyzer.client.base_url), wall=lambda: time.time() + sum(late)) as idle:
            await until(lambda: idle.now().state == "ok")
            late.append(3600)
            assert (idle.now().state, idle.now().workloads) == ("stale", ())
            assert "old" in idle.now().reason


async def test_an_analyzer_that_is_down_gives_none_and_the_reason():
    async with reads(f"http://127.0.0.1:{free_port()}") as idle:
        await until(lambda: idle.now().reason.startswith("no analyzer answers"))
        assert (idle.now().state, idle.now().workloads) == ("down", ())


async def test_after_a_failure_the_analyzer_is_asked_again_soon():
    """An analyzer that starts beside the extender is not missed for a minute."""
    pauses: list[float] = []
    source = StubSource()
    source.fail()
    async with running(source) as analyzer:

        async def pause(seconds):
            pauses.append(seconds)
            if len(pauses) > 1:
                await asyncio.Event().wait()
            source.answer = reading(track(1, util=IDLE))
            await analyzer.analyse()

        async with reads(str(analyzer.client.base_url), pause=pause) as idle:
            await until(lambda: len(pauses) == 2)
            assert idle.now().state == "ok"
    assert pauses[0] < pauses[1] / 5


async def test_an_analyzer_without_an_analysis_gives_none():
    source = StubSource()
    source.fail()
    async with running(source) as analyzer, reads(str(analyzer.client.base_url)) as idle:
        await until(lambda: idle._error is not None)
        assert (idle.now().state, idle.now().workloads) == ("down", ())


async def test_without_an_analyzer_there_are_none_and_nothing_is_asked():
    async with reads(None) as idle:
        assert (idle.now().state, idle.now().workloads) == ("absent", ())
