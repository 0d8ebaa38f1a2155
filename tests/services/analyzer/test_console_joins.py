"""How often the console's rows are joined again: a new analysis at once, other news at most for a share of the time."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from vgpuscope.services.analyzer.console import console as module
from vgpuscope.services.analyzer.console.console import Console
from vgpuscope.sources.console.parts import PartReading


class Clock:
    """A second passes whenever it is looked at: so a join takes one."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


class Joining:
    """The join of one console, whose inputs are only numbers here."""

    def __init__(self) -> None:
        self.clock = Clock()
        backend = cast(Any, SimpleNamespace(stored=lambda: 0))
        self._console = Console(backend, clock=self.clock, wall=self.clock)

    async def joined(self, *, analysis: int = 1, revision: int = 1, facts: int = 1) -> float | None:
        """When the joined facts were read: at the number of their version."""
        board = SimpleNamespace(analysis=SimpleNamespace(number=analysis, started=0.0), stale=None)
        cluster = PartReading(name="cluster", state="ok", value=SimpleNamespace(revision=revision), version=revision)
        agents = PartReading(name="agents", state="ok", value=object(), version=facts, at=float(facts))
        found = await self._console._joined(cast(Any, board), cast(Any, cluster), cast(Any, agents))
        return found.facts_at


@pytest.fixture
def rows(monkeypatch):
    monkeypatch.setattr(module, "_join", lambda *_: (None, ()))
    return Joining()


async def test_newer_facts_wait_for_the_next_analysis_or_200_times_as_long_as_a_join(rows):
    assert await rows.joined(facts=1) == 1
    rows.clock.now += 150
    assert await rows.joined(facts=2) == 1
    assert await rows.joined(facts=2, analysis=2) == 2
    rows.clock.now += 210
    assert await rows.joined(facts=3, analysis=2) == 3


@pytest.mark.parametrize("news", [{"revision": 2, "facts": 2}, {"facts": 0}])
async def test_news_of_the_cluster_and_facts_that_are_lost_wait_60_times_as_long_as_a_join(rows, news):
    assert await rows.joined() == 1
    rows.clock.now += 30
    assert await rows.joined(**news) == 1
    rows.clock.now += 40
    assert await rows.joined(**news) == news["facts"]


async def test_the_first_facts_wait_60_times_as_long_as_a_join(rows):
    assert await rows.joined(facts=0) == 0
    rows.clock.now += 70
    assert await rows.joined(facts=1) == 1
