"""The store of results: its interface, and the choice of the store by its URL."""

from typing import Protocol

from vgpuscope.model.analysis import Analysis
from vgpuscope.model.history import HistoryPage
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.store.engine.engine import Kept, open_engine
from vgpuscope.store.lease import Lease, LocalLease, lease_in
from vgpuscope.store.limits import LIMITS, Limits
from vgpuscope.store.opinions import OpinionStore
from vgpuscope.store.past import KEEP, PastStore
from vgpuscope.store.reclaim import ReclaimStore
from vgpuscope.store.results.wanted import AnalysisKey, HistorySelection
from vgpuscope.store.timeline import EventLog, LocalEvents, StoredEvents

RESULTS = Kept("results", "analyzer.history")


class History(Protocol):
    """A store of results. Every call may raise HistoryDown, and none blocks the event loop."""

    keeps: bool  # False: what is saved is not kept
    lease: Lease  # lease for the replica that analyses and saves
    events: EventLog  # of the same store
    reclaim: ReclaimStore | None  # of the same store
    opinions: OpinionStore | None  # of the same store
    past: PastStore | None  # of the same store: what back-tests replay

    async def save(self, analysis: Analysis, *, current: bool = False) -> None:
        """Store the analysis, completely or not at all; a stored one (same start and number) is unchanged.

        If it is `current`, it is the last analysis from now on, whatever its time is. Otherwise it becomes the last
        one only if its time is later.
        """

    async def latest(self, *, unlike: AnalysisKey | None = None) -> Analysis | None:
        """The last analysis as it was saved; None if there is none, or if it is this one."""

    async def page(self, wanted: HistorySelection) -> HistoryPage:
        """The history of GPUs or pods, oldest first, from the cursor on.

        Every saved analysis is included at every step, whether or not its hour is rolled up yet. Hours and days that
        begin before `begin` but overlap the period are included. At most `limit` points are returned.
        """

    async def prune(self, now: UnixTime) -> None:
        """Roll up the hours that are over, and delete data older than its retention time."""

    async def close(self) -> None:
        """Close the store."""


def open_history(
    url: str,
    *,
    keep_results: Seconds,
    keep_hours: Seconds,
    keep_days: Seconds,
    keep_past: Seconds = KEEP,
    limits: Limits = LIMITS,
) -> History:
    """The store for `none`, the name of a file, or a postgresql:// URL; opened on first use."""
    engine = open_engine(url, kept=RESULTS, limits=limits)
    if engine is None:
        return Unstored()
    from vgpuscope.store.results.stored import StoredHistory

    return StoredHistory(
        engine,
        lease_in(engine),
        events=StoredEvents(engine, keep=keep_hours),
        reclaim=ReclaimStore(engine),
        opinions=OpinionStore(engine),
        past=PastStore(engine, keep=keep_past),
        keep_results=keep_results,
        keep_hours=keep_hours,
        keep_days=keep_days,
        limits=limits,
    )


class Unstored:
    """Stores nothing: the board shows the last analysis, and a reference here would keep it alive for longer."""

    keeps = False

    def __init__(self, lease: Lease | None = None) -> None:
        self.lease: Lease = lease or LocalLease()
        self.events: EventLog = LocalEvents()
        self.reclaim: ReclaimStore | None = None
        self.opinions: OpinionStore | None = None
        self.past: PastStore | None = None

    async def save(self, analysis: Analysis, *, current: bool = False) -> None:
        pass

    async def latest(self, *, unlike: AnalysisKey | None = None) -> Analysis | None:  # noqa: ARG002
        return None

    async def page(self, wanted: HistorySelection) -> HistoryPage:  # noqa: ARG002  the face is the same for all
        return HistoryPage()

    async def prune(self, now: UnixTime) -> None:
        pass

    async def close(self) -> None:
        pass
