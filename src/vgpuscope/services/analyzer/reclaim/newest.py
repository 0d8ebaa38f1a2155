"""Moves the cases beside the analyses: they go on, however long the store takes."""

import asyncio
from collections.abc import Awaitable, Callable

from vgpuscope.model.analysis import Analysis
from vgpuscope.services.analyzer.followers import Follower
from vgpuscope.services.analyzer.reclaim.ticks import Ticks

_TICK_WITHIN = 600.0  # seconds


class NewestAnalysis:
    """Holds one analysis: a newer one replaces one that still waits, because an old finding is not worth acting on."""

    def __init__(self, ticks: Ticks, *, run: Callable[[Follower[Analysis], Analysis], Awaitable[bool]]) -> None:
        """`run` runs a follower, and counts and logs its failure."""
        self._run = run
        self._follower: Follower[Analysis] = Follower(name="reclaim", follow=ticks.follow, deadline=_TICK_WITHIN)
        self._waiting: Analysis | None = None  # until its cases are settled
        self._filled = asyncio.Event()

    @property
    def settled(self) -> bool:
        """Whether the cases of the last analysis are settled."""
        return self._waiting is None

    def put(self, analysis: Analysis) -> None:
        self._waiting = analysis
        self._filled.set()

    async def forever(self) -> None:
        while True:
            await self._filled.wait()
            self._filled.clear()
            if (analysis := self._waiting) is not None:
                await self._run(self._follower, analysis)
                if self._waiting is analysis:
                    self._waiting = None
