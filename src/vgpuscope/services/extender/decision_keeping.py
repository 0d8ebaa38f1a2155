"""The log of decisions and its copy in the store. Decisions go on, however long the store takes."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress

from vgpuscope.logic.scheduler.decision_log import DecisionLog
from vgpuscope.model.errors import HistoryDown, ScopeError
from vgpuscope.model.logged_decision import DecisionLogState, LoggedDecision
from vgpuscope.model.placement import Decision
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.runtime.log import SUMMARY, OnChange, error_fields
from vgpuscope.store.decisions import DecisionStore, Unsaved
from vgpuscope.store.engine.engine import Kept, open_engine

log = logging.getLogger(__name__)

_AGAIN: Seconds = 5.0  # until a store that is down is tried again
_GATHER: Seconds = 0.5  # decisions within this time are saved together
_FOLLOW: Seconds = 10.0  # a replica that does not lead reads what the leader decided
_PRUNE: Seconds = 600.0
_SAVE_LAST_WITHIN: Seconds = 2.0
_OVERLAP = 50  # rows that are read again: two replicas may commit in another order than they number their rows


class DecisionKeeper:
    """Records decisions at once, and saves them in the background."""

    def __init__(
        self,
        store: DecisionStore | None = None,
        *,
        decisions: DecisionLog | None = None,
        failed: Callable[[ScopeError], None] = lambda _: None,
        leads: Callable[[], bool] = lambda: True,
        wall: Callable[[], UnixTime] = time.time,
    ) -> None:
        """`failed` counts errors of the store. `leads`: whether this replica decides; another one reads along."""
        self.log = decisions or DecisionLog()
        self._store, self._failed, self._leads, self._wall = store, failed, leads, wall
        self._unsaved = Unsaved()
        self._filled = asyncio.Event()
        self._told = OnChange(log)
        self._read_to = 0  # number of the last row that was read
        self._loaded = self._led = False
        self._read_at = self._pruned_at = float("-inf")
        self._saved, self._stored, self._fault = 0, None, ""  # type: tuple[int, bool | None, str]

    def add(self, decision: Decision) -> LoggedDecision:
        """Record a decision; this waits for nothing."""
        entry = self.log.add(decision)
        if self._store is not None:
            self._unsaved.put(entry)
            self._filled.set()
        return entry

    def assigned(self, namespace: str, pod: str, uid: str) -> LoggedDecision | None:
        """The last time that this pod was assigned, by whichever replica; None: it is not known here."""
        return self.log.assigned(namespace, pod, uid)

    def state(self) -> DecisionLogState:
        return DecisionLogState(
            entries=len(self.log),
            bytes=self.log.bytes,
            dropped=self.log.dropped,
            stored=self._stored,
            unsaved=len(self._unsaved),
            lost=self._unsaved.dropped,
            saved=self._saved,
            fault=self._fault,
        )

    async def run(self) -> None:
        """Load the last day, then save and prune for ever."""
        while True:
            worked = await self._round()
            if not worked:
                await asyncio.sleep(_AGAIN)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(_FOLLOW):
                    await self._filled.wait()
                    await asyncio.sleep(_GATHER)

    async def close(self) -> None:
        """Save what waits, if the store answers quickly, and disconnect."""
        if self._store is None:
            return
        with suppress(HistoryDown, TimeoutError):
            async with asyncio.timeout(_SAVE_LAST_WITHIN):
                while await self._unsaved.flush(self._store):
                    pass
        with suppress(HistoryDown):
            await self._store.close()

    async def _round(self) -> bool:
        """One round with the store; whether it worked."""
        self._filled.clear()
        now = self._wall()
        self.log.forget(now)
        if self._store is None:
            return True
        try:
            await self._follow(self._store, now)
            while saved := await self._unsaved.flush(self._store):
                self._saved += saved
            if now - self._pruned_at >= _PRUNE:
                await self._store.prune(now)
                self._pruned_at = now
        except HistoryDown as e:
            self._down(e)
            return False
        self._stored, self._fault = True, ""
        self._told.tell("store", "up", level=SUMMARY, message="decisions are saved", entries=len(self.log))
        return True

    async def _follow(self, store: DecisionStore, now: UnixTime) -> None:
        """Read what others decided: at the start, while another replica leads, and once when this one begins to."""
        leads = self._leads()
        due = not self._loaded or (leads and not self._led) or (not leads and now - self._read_at >= _FOLLOW)
        self._led = leads
        if not due:
            return
        number, found = max(0, self._read_to - _OVERLAP), list[LoggedDecision]()
        while True:
            page = await store.after(number, now=now)
            found += page.entries
            number = page.number
            if page.whole:
                break
        self.log.merge(found)
        self._read_to, self._read_at, self._loaded = max(number, self._read_to), now, True

    def _down(self, error: HistoryDown) -> None:
        self._stored, self._fault = False, str(error)
        self._failed(error)
        self._told.tell(
            "store",
            str(error),
            level=logging.WARNING,
            message="decisions cannot be saved; they wait in memory",
            unsaved=len(self._unsaved),
            **error_fields(error),
        )


def open_store(url: str) -> DecisionStore | None:
    """The store of a file name or a postgresql:// URL; None for `none`."""
    engine = open_engine(url, kept=Kept("decisions", "extender.state"))
    return None if engine is None else DecisionStore(engine)
