"""The analyzer's parts decide by the clocks that the analyzer got."""

import asyncio
from typing import Any

import pytest

from tests.loopclock import forward
from tests.services.analyzer.analyzing import SOON, SharedHistory, StubSources
from tests.services.analyzer.test_sources import SCRAPES, config
from vgpuscope.services.analyzer import saving
from vgpuscope.services.analyzer.process import Analyzer
from vgpuscope.services.analyzer.settings.settings import Settings
from vgpuscope.services.analyzer.sources.sources import Sources

NOW, WALL = 1000.0, 1_700_000_000.0


@pytest.fixture
def analyzer():
    settings = Settings(flags={"prometheus.url": "http://stub"}, environ={}, file=None)
    sources: Any = StubSources(None)
    return Analyzer(settings, store=SharedHistory().whole(), sources=sources, clock=lambda: NOW, wall=lambda: WALL)


async def test_all_parts_of_the_analyzer_have_its_clocks(analyzer):
    by_clock = (analyzer._replica.leadership, analyzer._schedule, analyzer.backtests, analyzer.console)
    assert {part._clock() for part in by_clock} == {NOW}
    assert {part._wall() for part in (analyzer._saving, analyzer.backtests, analyzer.console)} == {WALL}
    dated = (analyzer._cycle, analyzer.opinions, analyzer.opinions.asker, analyzer.notices, analyzer._kube)
    assert {part._clock() for part in dated} == {WALL}


async def test_what_is_too_old_is_deleted_by_the_wall_clock_that_the_analyzer_got(analyzer, monkeypatch):
    pruned: asyncio.Queue[float] = asyncio.Queue()
    monkeypatch.setattr(analyzer._store.results, "prune", pruned.put)
    monkeypatch.setattr(analyzer._store.events, "prune", pruned.put)
    await analyzer._replica.ask()
    assert analyzer._replica.leads
    forward(0.0)
    pruning = asyncio.create_task(analyzer._saving.prune_forever())
    await asyncio.sleep(0)
    forward(saving._PRUNE_EVERY)
    async with asyncio.timeout(SOON):
        assert [await pruned.get(), await pruned.get()] == [WALL, WALL]
    pruning.cancel()
    await asyncio.gather(pruning, return_exceptions=True)


async def test_the_first_analysis_waits_for_our_own_scrapes_no_longer_than_it_should():
    now = NOW
    sources = Sources(config(**SCRAPES), clock=lambda: now)
    waiting = asyncio.create_task(sources.begun(within=60.0))
    forward(0.0)
    for _ in range(3):
        forward(30.0)  # of the loop, so that nothing is waited for
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert not waiting.done()
    now += 60.0
    forward(30.0)
    async with asyncio.timeout(SOON):
        await waiting
    await sources.close()
