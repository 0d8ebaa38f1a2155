"""Analyses that wait in memory until they are saved."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from vgpuscope.model.analysis import Analysis
from vgpuscope.model.errors import HistoryDown
from vgpuscope.model.quantity import Bytes
from vgpuscope.store.results.history import History
from vgpuscope.store.results.packed import pack, unpack

MOST = 100  # analyses kept in memory while the store is down
MOST_BYTES: Bytes = 32 * 1024 * 1024  # and their packed size


class _Unsaved:
    """One analysis, whole or as packed bytes."""

    def __init__(self, analysis: Analysis) -> None:
        self._whole: Analysis | None = analysis
        self._packed = b""

    @property
    def size(self) -> int:
        """The bytes that it takes; the newest analysis is whole, and its memory is in use anyway."""
        return len(self._packed)

    async def pack(self) -> None:
        """Pack it; one that cannot be packed cannot be saved either, so the next attempt to save it drops it."""
        if self._whole is not None:
            with suppress(Exception):
                self._packed = await asyncio.to_thread(pack, self._whole)
                self._whole = None

    async def whole(self) -> Analysis:
        return self._whole if self._whole is not None else await asyncio.to_thread(unpack, self._packed)


class Outbox:
    """Keeps analyses until they are saved, in order, so that nobody has to wait for the store.

    All but the newest are packed, and only so many are kept, so that a long outage of the database costs little memory.
    """

    def __init__(
        self,
        history: History,
        *,
        leads: Callable[[], bool] = lambda: True,
        most: int = MOST,
        most_bytes: Bytes = MOST_BYTES,
    ) -> None:
        """`leads`: whether this replica is the leader, so that its newest analysis is the one to show."""
        self._history, self._leads = history, leads
        self._most, self._most_bytes = most, most_bytes
        self._waiting: deque[_Unsaved] = deque()
        self._turn = asyncio.Lock()
        self.filled = asyncio.Event()  # set when there is something to save
        self.saved = 0  # number of analyses saved
        self.dropped = 0  # number of analyses dropped in favour of newer ones

    @property
    def waiting(self) -> int:
        """The number of analyses that are not saved yet."""
        return len(self._waiting)

    @property
    def busy(self) -> bool:
        """Whether analyses are being saved, or are about to be."""
        return self._turn.locked() or self.filled.is_set()

    async def put(self, analysis: Analysis) -> None:
        """Keep an analysis to be saved; this does not wait for the store."""
        for before in list(self._waiting):
            await before.pack()
        self._waiting.append(_Unsaved(analysis))
        self._drop()
        self.filled.set()

    async def save(self, analysis: Analysis) -> None:
        """Save the waiting analyses and then this one; HistoryDown if it must wait too."""
        await self.put(analysis)
        await self.flush()

    async def flush(self) -> None:
        """Save the waiting analyses; HistoryDown if some must still wait.

        Any other error is the fault of one analysis, which is dropped: those behind it are saved with the next call.
        """
        async with self._turn:
            self.filled.clear()
            while self._waiting:
                await self._save(self._waiting[0])

    async def _save(self, one: _Unsaved) -> None:
        try:
            await self._history.save(await one.whole(), current=self._leads() and one is self._waiting[-1])
        except HistoryDown:
            await one.pack()
            self._drop()
            raise
        except Exception:
            self._remove(one)
            if self._waiting:
                self.filled.set()
            raise
        self.saved += 1
        self._remove(one)

    def _remove(self, one: _Unsaved) -> None:
        """Remove it, unless it was dropped in the meantime."""
        if self._waiting and self._waiting[0] is one:
            self._waiting.popleft()

    def _drop(self) -> None:
        """Drop the oldest while there are too many."""
        while len(self._waiting) > 1 and (
            len(self._waiting) > self._most or sum(one.size for one in self._waiting) > self._most_bytes
        ):
            self._waiting.popleft()
            self.dropped += 1
