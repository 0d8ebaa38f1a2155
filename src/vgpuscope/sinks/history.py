"""The store of results: what every kind of it does, which one a URL means, and what waits while it is down."""

import asyncio
from collections import deque
from typing import Protocol

from vgpuscope.model.analysis import Analysis
from vgpuscope.model.errors import ConfigInvalid, HistoryDown
from vgpuscope.model.history import HistoryPoint, Step
from vgpuscope.model.quantity import Bytes, Seconds, UnixTime
from vgpuscope.sinks.lease import Lease
from vgpuscope.sinks.packed import pack, unpack


class History(Protocol):
    """A store of results. Every call may raise HistoryDown, and none blocks the event loop."""

    async def save(self, analysis: Analysis) -> None:
        """Keep it, whole or not at all; one that is kept already (by started and number) is left as it is."""

    async def latest(self, *, after: UnixTime = 0.0) -> Analysis | None:
        """The last analysis as it was saved; None when there is none that began after this."""

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
        """The course of cards, or of pods where a namespace or pod is given ("": any), oldest first.

        Every analysis that was saved is in it at every step, whether its hour is rolled up yet or not. Hours and days
        that begin before `begin` but reach into the time are part of it; at most `limit` points come.
        """

    async def lead(self, holder: str, seconds: Seconds) -> bool:
        """Take or renew the lease; True: until it runs out nobody else leads."""

    async def resign(self, holder: str) -> None:
        """Give the lease back, if it is the holder's."""

    async def prune(self, now: UnixTime) -> None:
        """Roll up the hours that are over, and forget what is older than it is to be kept."""

    async def close(self) -> None:
        """Let go of it."""


def open_history(url: str, *, keep_results: Seconds, keep_hours: Seconds, keep_days: Seconds) -> History:
    """The store that is meant by `none`, the name of a file, or a postgresql:// URL; opened when it is first used."""
    if url in {"", "none"}:
        return Unstored()
    scheme = url.partition("://")[0] if "://" in url else ""
    from vgpuscope.sinks.history_store import Database, StoredHistory

    database: Database
    if scheme in {"postgresql", "postgres"}:
        from vgpuscope.sinks.history_postgres import PostgresDatabase

        database = PostgresDatabase(url)
    elif scheme:
        raise ConfigInvalid(
            f"results cannot be kept in {scheme}://",
            hint="Allowed: a file name (SQLite), a postgresql:// URL, or none.",
        )
    else:
        from vgpuscope.sinks.history_sqlite import SqliteDatabase

        database = SqliteDatabase(url)
    return StoredHistory(database, keep_results=keep_results, keep_hours=keep_hours, keep_days=keep_days)


class Unstored:
    """Keeps nothing: the last analysis is on display, and to hold it here would keep it until the next is saved."""

    def __init__(self) -> None:
        self._lease = Lease()

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

    async def lead(self, holder: str, seconds: Seconds) -> bool:
        return self._lease.take(holder, seconds)

    async def resign(self, holder: str) -> None:
        self._lease.free(holder)

    async def prune(self, now: UnixTime) -> None:
        pass

    async def close(self) -> None:
        pass


class Outbox:
    """Saves analyses in their order, and keeps those that could not be saved for the next time.

    They wait as packed bytes, the newest of them, so that a database that is away for long costs little memory.
    """

    def __init__(self, history: History, *, most: int = 100, most_bytes: Bytes = 32 * 1024 * 1024) -> None:
        self._history = history
        self._most, self._most_bytes = most, most_bytes
        self._waiting: deque[bytes] = deque()
        self._turn = asyncio.Lock()
        self.dropped = 0  # given up for newer ones

    @property
    def waiting(self) -> int:
        """Analyses that are still to be saved."""
        return len(self._waiting)

    async def save(self, analysis: Analysis) -> None:
        """Save what waits and then this one; HistoryDown when it has to wait, too."""
        async with self._turn:
            try:
                await self._flush()
                await self._history.save(analysis)
            except HistoryDown:
                self._keep(await asyncio.to_thread(pack, analysis))
                raise

    async def flush(self) -> None:
        """Save what waits; HistoryDown when some has to go on waiting."""
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
