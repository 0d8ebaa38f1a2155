"""The store of results: its interface, and the one that stores nothing."""

from typing import Protocol

from vgpuscope.model.analysis import Analysis
from vgpuscope.model.history import HistoryPage
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.store.results.wanted import AnalysisKey, Covered, HistorySelection


class History(Protocol):
    """A store of results. Every call may raise HistoryDown, and none blocks the event loop."""

    keeps: bool  # False: what is saved is not kept

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

    async def covered(self, begin: UnixTime, end: UnixTime, *, step: Seconds, kept: bool = False) -> Covered:
        """The time that analyses stand for, by step; `kept`: only of those whose single results are still stored."""

    async def prune(self, now: UnixTime) -> None:
        """Roll up the hours that are over, and delete data older than its retention time."""


class Unstored:
    """Stores nothing: the board shows the last analysis, and a reference here would keep it alive for longer."""

    keeps = False

    async def save(self, analysis: Analysis, *, current: bool = False) -> None:
        pass

    async def latest(self, *, unlike: AnalysisKey | None = None) -> Analysis | None:  # noqa: ARG002
        return None

    async def page(self, wanted: HistorySelection) -> HistoryPage:  # noqa: ARG002  the face is the same for all
        return HistoryPage()

    async def covered(self, begin: UnixTime, end: UnixTime, *, step: Seconds, kept: bool = False) -> Covered:  # noqa: ARG002
        return Covered({}, begin, {})

    async def prune(self, now: UnixTime) -> None:
        pass
