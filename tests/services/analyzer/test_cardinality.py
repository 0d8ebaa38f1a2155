"""A scrape target that names new GPUs in every analysis makes the analyzer's page no larger than its limit."""

import pytest

from tests.services.analyzer.analyzing import StubSource, reading, running, track
from tests.services.analyzer.test_own_scrapes import exporters, page, reading_when, source
from vgpuscope.catalog import analyzer as m
from vgpuscope.catalog.limits import TARGET_GPUS
from vgpuscope.model.errors import LimitReached

pytestmark = pytest.mark.attack

FORGED = TARGET_GPUS.most + 500


def forged(offset):
    """An honest GPU of one target, and more of another than a node can have; each time under other names."""
    more = [track(offset + number, target="forged:9400", tenant=None) for number in range(1, FORGED + 1)]
    return reading(*more, track(0, target="honest:9400"), own=True)


def gpus(text):
    """The GPUs that have series."""
    return {line.split('"')[1] for line in text.splitlines() if line.startswith(f"{m.COVERAGE.name}{{")}


async def test_the_page_shows_the_first_gpus_of_a_target_counts_the_rest_and_keeps_every_other_target():
    stub = StubSource(forged(0))
    async with running(stub, **{"scheduler.interval": 3600}) as analyzer:
        await analyzer.analysed()
        for times in (1, 2, 3):
            stub.answer = forged(times * 10_000)
            await analyzer.analyse()
            text = await analyzer.metrics()
            assert track(0).gpu_id in gpus(text)
            assert len(gpus(text)) <= 1 + TARGET_GPUS.most + 64  # 64: of GPUs that no longer report
            assert f'{m.WITHOUT_SERIES.name}{{reason="target-limit"}} 500' in text
        health = await analyzer.json("/health")
    assert LimitReached.code in str(health)


async def test_a_target_of_our_own_scrapes_is_known_for_certain():
    async with exporters(page()) as (one,), source(one.url) as made:
        found = await reading_when(made, lambda read: bool(read.tracks))
    assert found.own
    assert {track.target for track in found.tracks} == {one.url}
