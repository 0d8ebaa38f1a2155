"""The store of results: its interface, and the choice of the store by its URL."""

from typing import Protocol

from vgpuscope.model.analysis import Analysis
from vgpuscope.model.history import HistoryPoint, Step
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.store.engine.engine import open_engine
from vgpuscope.store.lease import Lease, LocalLease, lease_in
from vgpuscope.store.limits import LIMITS, Limits


class History(Protocol):
    """A store of results. Every call may raise HistoryDown, and none blocks the event loop."""

    lease: Lease  # lease for the replica that analyses and saves

    async def save(self, analysis: Analysis) -> None:
        """Store the analysis, completely or not at all; a stored one (same start and number) is unchanged."""

    async def latest(self, *, after: UnixTime = 0.0) -> Analysis | None:
        """The last analysis as it was saved; None if none began after this time."""

    async def points(
        self,
        *,
        step: Step,
        begin: UnixTime,
        end: UnixTime,
        gpu_id: str | None = None,
        mig: str | None = None,
        namespace: str | None = None,
        pod: str | None = None,
        limit: int,
    ) -> list[HistoryPoint]:
        """The history of GPUs, or of pods if a namespace or pod is given ("": any), oldest first.

        Every saved analysis is included at every step, whether or not its hour is rolled up yet. Hours and days that
        begin before `begin` but overlap the period are included. At most `limit` points are returned.
        """

    async def prune(self, now: UnixTime) -> None:
        """Roll up the hours that are over, and delete data older than its retention time."""

    async def close(self) -> None:
        """Close the store."""


def open_history(
    url: str, *, keep_results: Seconds, keep_hours: Seconds, keep_days: Seconds, limits: Limits = LIMITS
) -> History:
    """The store for `none`, the name of a file, or a postgresql:// URL; opened on first use."""
    engine = open_engine(url, limits=limits)
    if engine is None:
        return Unstored()
    from vgpuscope.store.results.stored import StoredHistory

    return StoredHistory(
        engine,
        lease_in(engine),
        keep_results=keep_results,
        keep_hours=keep_hours,
        keep_days=keep_days,
        limits=limits,
    )


class Unstored:
    """Stores nothing: the board shows the last analysis, and a reference here would keep it alive for longer."""

    def __init__(self, lease: Lease | None = None) -> None:
        self.lease: Lease = lease or LocalLease()

    async def save(self, analysis: Analysis) -> None:
        pass

    async def latest(self, *, after: UnixTime = 0.0) -> Analysis | None:  # noqa: ARG002
        return None

    async def points(
        self,
        *,
        step: Step,  # noqa: ARG002  the face is the same for all
        begin: UnixTime,  # noqa: ARG002
        end: UnixTime,  # noqa: ARG002
        gpu_id: str | None = None,  # noqa: ARG002
        mig: str | None = None,  # noqa: ARG002
        namespace: str | None = None,  # noqa: ARG002
        pod: str | None = None,  # noqa: ARG002
        limit: int,  # noqa: ARG002
    ) -> list[HistoryPoint]:
        return []

    async def prune(self, now: UnixTime) -> None:
        pass

    async def close(self) -> None:
        pass
