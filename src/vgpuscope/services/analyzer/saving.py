"""Saves analyses beside the next ones, and deletes what is too old. Analyses go on, however long the store takes."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

from vgpuscope.model.analysis import Analysis
from vgpuscope.model.errors import HistoryDown
from vgpuscope.model.quantity import UnixTime
from vgpuscope.runtime.heap import give_back
from vgpuscope.services.analyzer.followers import Follower
from vgpuscope.services.analyzer.replica import Replica
from vgpuscope.store.opening import AnalyzerStore
from vgpuscope.store.results.unsaved import Outbox

_PRUNE_EVERY = 600.0
_SAVE_LAST_WITHIN = 2.0
_SAVE_WITHIN = 600.0  # seconds; analyses that waited are saved too


class Saving:
    """The analyses that wait to be saved."""

    def __init__(
        self,
        store: AnalyzerStore,
        replica: Replica,
        *,
        run: Callable[[Follower[None], None], Awaitable[bool]],
        wall: Callable[[], UnixTime] = time.time,
    ) -> None:
        """`run` runs a follower, and counts and logs its failure."""
        self._store, self._replica, self._run, self._wall = store, replica, run, wall
        self.outbox = Outbox(store.results, leads=lambda: replica.leads)
        self._saves = False
        self._follower: Follower[None] = Follower(name="store", follow=self._save, deadline=_SAVE_WITHIN)

    @property
    def busy(self) -> bool:
        """Whether analyses are being saved, or are about to be."""
        return self._saves or self.outbox.busy

    async def put(self, analysis: Analysis) -> None:
        await self.outbox.put(analysis)

    def again(self) -> None:
        """Try again soon to save what waits."""
        if self.outbox.waiting:
            self.outbox.filled.set()

    async def forever(self) -> None:
        while True:
            self._saves = False
            await self.outbox.filled.wait()
            self._saves = True
            await self._run(self._follower, None)

    async def _save(self, _: None) -> None:
        before = self.outbox.saved
        try:
            await self.outbox.flush()
        finally:
            if self.outbox.saved > before:
                self._replica.store_works("read", "write")  # saving reads, too
                await asyncio.to_thread(give_back)

    async def prune_forever(self) -> None:
        while True:
            await asyncio.sleep(_PRUNE_EVERY)
            if self._replica.leads:
                try:
                    await self._store.prune(self._wall())
                except HistoryDown as e:
                    self._replica.store_failed(e, "write")

    async def close(self) -> None:
        """Save what was about to be saved, if the store answers quickly."""
        if self.outbox.waiting:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_SAVE_LAST_WITHIN):
                    await self.outbox.flush()
