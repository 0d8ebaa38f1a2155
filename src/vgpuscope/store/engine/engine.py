"""The engine: one database, a few lanes to it, and the migrations of every table set that was registered.

A client registers its tables and gives the engine functions that read or write. The engine knows no table.

purposes: write (one writer at a time)   brief (one row, never behind a long writer)   read (for all who ask)
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import local
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from vgpuscope.model.errors import ConfigInvalid, HistoryDown
from vgpuscope.model.quantity import Seconds
from vgpuscope.store.engine.database import Database, Mode, Transaction
from vgpuscope.store.engine.lane import Lane
from vgpuscope.store.engine.migrations import TableSet
from vgpuscope.store.limits import LIMITS, Limits

T = TypeVar("T")
Purpose: TypeAlias = Literal["write", "brief", "read"]


class Kept(NamedTuple):
    """What a client keeps in the store, and the setting with the store's place: the words of its errors."""

    what: str  # in the plural: results
    setting: str  # analyzer.history

    @property
    def hint(self) -> str:
        """What to do while the store is down."""
        return (
            f"Check {self.setting}, the disk or the database. Unwritten {self.what} are written when the store is back."
        )


UNNAMED = Kept("data", "the place of the store")


def open_engine(url: str, *, kept: Kept = UNNAMED, limits: Limits = LIMITS) -> "Engine | None":
    """The engine for a file name or a postgresql:// URL, connected on first use; None for `none`."""
    if url in {"", "none"}:
        return None
    scheme = url.partition("://")[0] if "://" in url else ""
    if scheme in {"postgresql", "postgres"}:
        from vgpuscope.store.engine.postgres import PostgresDatabase

        try:
            database = PostgresDatabase(url, limits=limits)
        except HistoryDown as e:  # the URL is wrong
            raise HistoryDown(f"{kept.setting}: {e}", hint=e.advice) from None
        return Engine(database, kept=kept, limits=limits)
    if scheme:
        raise ConfigInvalid(
            f"{kept.setting}: {kept.what} cannot be kept in {scheme}://",
            hint="Say a file (SQLite), a postgresql:// URL, or none.",
        )
    from vgpuscope.store.engine.sqlite import SqliteDatabase

    return Engine(SqliteDatabase(url, limits=limits), kept=kept, limits=limits)


class Engine:
    """A database behind threads of its own. Every call may raise HistoryDown, and none blocks the event loop.

    Each purpose has its own connections. So reads, however many and slow, delay no write.
    """

    def __init__(self, database: Database, *, kept: Kept = UNNAMED, limits: Limits = LIMITS) -> None:
        self.file: Path | None = database.file  # None if the database is a server
        self._kept, self._limits = kept, limits
        self._tables: list[TableSet] = []
        others = [database.another() for _ in range(1 + limits.readers)]
        brief, *readers = (Lane("store", one, self._tables, limits=limits) for one in others)
        self._lanes: dict[Purpose, list[Lane]] = {
            "write": [Lane("store", database, self._tables, limits=limits)],
            "brief": [brief],
            "read": readers,
        }
        self._here = local()  # the lane of the current thread

    @property
    def writing(self) -> bool:
        """Whether a write of this process runs or waits; writes of one row are not counted."""
        return any(lane.load for lane in self._lanes["write"])

    def register(self, tables: TableSet) -> None:
        """Create or migrate these tables before the next transaction."""
        if any(known.name == tables.name for known in self._tables):
            raise ValueError(f"two sets of tables are called {tables.name}")
        self._tables.append(tables)

    async def read(self, job: Callable[[Transaction], T], *, deadline: Seconds | None = None) -> T:
        """Run the function in a transaction that only reads; it delays no write."""
        seconds = self._limits.read if deadline is None else min(deadline, self._limits.read)
        return await self.do(lambda: self._run(job, "read"), deadline=seconds, purpose="read")

    async def write(self, job: Callable[[Transaction], T], *, deadline: Seconds | None = None) -> T:
        """Run the function in a transaction without other writers; it may run twice, but commits once."""
        return await self.do(lambda: self._run(job, "write"), deadline=deadline)

    async def write_row(self, job: Callable[[Transaction], T], *, deadline: Seconds | None = None) -> T:
        """Like write, for one row: it waits for no other transaction of this or another process."""
        return await self.do(lambda: self._run(job, "brief"), deadline=deadline, purpose="brief")

    async def do(self, job: Callable[[], T], *, deadline: Seconds | None = None, purpose: Purpose = "write") -> T:
        """Run a function on the thread of a lane, where it may open transactions of its own."""
        seconds = self._limits.deadline if deadline is None else min(deadline, self._limits.deadline)
        lane = min(self._lanes[purpose], key=lambda one: one.load)
        with self._hinting():
            return await lane.do(lambda: self._on(lane, job), deadline=seconds)

    async def close(self) -> None:
        """Disconnect and end the threads; HistoryDown if a connection cannot be closed in time."""
        every = [lane for lanes in self._lanes.values() for lane in lanes]
        for ended in await asyncio.gather(*(lane.close() for lane in every), return_exceptions=True):
            if isinstance(ended, BaseException):
                with self._hinting():
                    raise ended

    @contextmanager
    def _hinting(self) -> Iterator[None]:
        """Give errors without a hint of their own the one that names the client's setting."""
        try:
            yield
        except HistoryDown as e:
            if e.advice == HistoryDown.hint:
                e.advice = self._kept.hint
            raise

    # ── on a lane's thread ───────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def transaction(self, mode: Mode) -> Iterator[Transaction]:
        """A transaction, with all registered tables migrated; only for functions passed to `do`."""
        lane: Lane = self._here.lane
        with lane.transaction(mode) as tx:
            yield tx

    @property
    def connection(self) -> int:
        """The number of the connection of the current transaction. With another one, the database may be another."""
        lane: Lane = self._here.lane
        return lane.connection

    def _on(self, lane: Lane, job: Callable[[], T]) -> T:
        self._here.lane = lane
        return job()

    def _run(self, job: Callable[[Transaction], T], mode: Mode) -> T:
        with self.transaction(mode) as tx:
            return job(tx)
