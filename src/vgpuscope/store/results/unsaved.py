"""Analyses that wait in memory while the store is down."""

import asyncio
from collections import deque

from vgpuscope.model.analysis import Analysis
from vgpuscope.model.errors import HistoryDown
from vgpuscope.store.limits import LIMITS, Limits
from vgpuscope.store.results.history import History
from vgpuscope.store.results.packed import pack, unpack


class Outbox:
    """Saves analyses in order, and keeps those that could not be saved for the next attempt.

    Only the newest are kept, as packed bytes, so that a long outage of the database costs little memory.
    """

    def __init__(self, history: History, *, limits: Limits = LIMITS) -> None:
        self._history = history
        self._most, self._most_bytes = limits.unsaved_analyses, limits.unsaved_bytes
        self._waiting: deque[bytes] = deque()
        self._turn = asyncio.Lock()
        self.dropped = 0  # number of analyses dropped in favour of newer ones

    @property
    def waiting(self) -> int:
        """The number of analyses that are not saved yet."""
        return len(self._waiting)

    async def save(self, analysis: Analysis) -> None:
        """Save the waiting analyses and then this one; HistoryDown if it must wait too."""
        async with self._turn:
            try:
                await self._flush()
                await self._history.save(analysis)
            except HistoryDown:
                self._keep(await asyncio.to_thread(pack, analysis))
                raise

    async def flush(self) -> None:
        """Save the waiting analyses; HistoryDown if some must still wait."""
        async with self._turn:
            await self._flush()

    async def _flush(self) -> None:
        while self._waiting:
            await self._history.save(await asyncio.to_thread(unpack, self._waiting[0]))
            self._waiting.popleft()

    def _keep(self, packed: bytes) -> None:
        self._waiting.append(packed)
        while len(self._waiting) > 1 and (
            len(self._waiting) > self._most or sum(map(len, self._waiting)) > self._most_bytes
        ):
            self._waiting.popleft()
            self.dropped += 1
