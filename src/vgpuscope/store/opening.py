"""Opens the store of the analyzer: one engine, the lease, and every client that keeps something in it.

A client with a table of its own is one field here, and one line where it is made. No client knows another.
"""

from typing import NamedTuple

from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.store.engine.engine import Engine, Kept, open_engine
from vgpuscope.store.lease import Lease, LocalLease, lease_in
from vgpuscope.store.limits import LIMITS, Limits
from vgpuscope.store.opinions import OpinionStore
from vgpuscope.store.past import KEEP, PastStore
from vgpuscope.store.reclaim import ReclaimStore
from vgpuscope.store.results.history import History, Unstored
from vgpuscope.store.results.stored import StoredHistory
from vgpuscope.store.timeline import EventLog, LocalEvents, StoredEvents

RESULTS = Kept("results", "analyzer.history")


class AnalyzerStore(NamedTuple):
    """The clients of one store. Without one, results are not kept, and clients that keep nothing else are None."""

    lease: Lease  # for the replica that analyses and saves
    results: History
    events: EventLog
    reclaim: ReclaimStore | None = None
    opinions: OpinionStore | None = None
    past: PastStore | None = None  # what back-tests replay
    engine: Engine | None = None

    async def prune(self, now: UnixTime) -> None:
        """Delete what is too old in every table that grows with time."""
        for client in (self.results, self.past, self.events):
            if client is not None:
                await client.prune(now)

    async def close(self) -> None:
        """Close the lease and the engine."""
        try:
            await self.lease.close()
        finally:
            if self.engine is not None:
                await self.engine.close()


def open_store(
    url: str,
    *,
    keep_results: Seconds,
    keep_hours: Seconds,
    keep_days: Seconds,
    keep_past: Seconds = KEEP,
    limits: Limits = LIMITS,
) -> AnalyzerStore:
    """The store for `none`, the name of a file, or a postgresql:// URL; opened on first use."""
    engine = open_engine(url, kept=RESULTS, limits=limits)
    if engine is None:
        return AnalyzerStore(LocalLease(), Unstored(), LocalEvents())
    past = PastStore(engine, keep=keep_past)
    results = StoredHistory(
        engine,
        followers=[past],
        keep_results=keep_results,
        keep_hours=keep_hours,
        keep_days=keep_days,
        limits=limits,
    )
    return AnalyzerStore(
        lease=lease_in(engine),
        results=results,
        events=StoredEvents(engine, keep=keep_hours),
        reclaim=ReclaimStore(engine),
        opinions=OpinionStore(engine),
        past=past,
        engine=engine,
    )
