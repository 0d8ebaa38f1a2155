"""The engine: one database, one thread, and the migrations of every table set that was registered.

A client registers its tables and gives the engine functions that read or write. The engine knows no table.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from vgpuscope.model.errors import ConfigInvalid, HistoryDown
from vgpuscope.model.quantity import Seconds
from vgpuscope.store.engine.database import Database, Mode, Transaction
from vgpuscope.store.engine.migrations import TableSet, migrate
from vgpuscope.store.limits import LIMITS, Limits
from vgpuscope.worker import Closed, Worker

T = TypeVar("T")


def open_engine(url: str, *, limits: Limits = LIMITS) -> "Engine | None":
    """The engine for a file name or a postgresql:// URL, connected on first use; None for `none`."""
    if url in {"", "none"}:
        return None
    scheme = url.partition("://")[0] if "://" in url else ""
    if scheme in {"postgresql", "postgres"}:
        from vgpuscope.store.engine.postgres import PostgresDatabase

        return Engine(PostgresDatabase(url, limits=limits), limits=limits)
    if scheme:
        raise ConfigInvalid(
            f"results cannot be kept in {scheme}://", hint="Say a file (SQLite), a postgresql:// URL, or none."
        )
    from vgpuscope.store.engine.sqlite import SqliteDatabase

    return Engine(SqliteDatabase(url, limits=limits), limits=limits)


class Engine:
    """A database behind one thread. Every call may raise HistoryDown, and none blocks the event loop."""

    def __init__(self, database: Database, *, limits: Limits = LIMITS) -> None:
        self._database = database
        self._limits = limits
        self._worker = Worker("store")
        self._tables: list[TableSet] = []
        self._migrated = (0, 0)  # number of the connection, and of table sets that were migrated on it

    @property
    def file(self) -> Path | None:
        """The database's file; None if the database is a server."""
        return self._database.file

    def register(self, tables: TableSet) -> None:
        """Create or migrate these tables before the next transaction."""
        if any(known.name == tables.name for known in self._tables):
            raise ValueError(f"two sets of tables are called {tables.name}")
        self._tables.append(tables)

    async def read(self, job: Callable[[Transaction], T], *, deadline: Seconds | None = None) -> T:
        """Run the function in a transaction that only reads."""
        return await self.do(lambda: self._run(job, "read"), deadline=deadline)

    async def write(self, job: Callable[[Transaction], T], *, deadline: Seconds | None = None) -> T:
        """Run the function in a transaction without other writers; it may run twice, but commits once."""
        return await self.do(lambda: self._run(job, "write"), deadline=deadline)

    async def write_row(self, job: Callable[[Transaction], T], *, deadline: Seconds | None = None) -> T:
        """Like write, for one row that must not wait until another process has written a lot."""
        return await self.do(lambda: self._run(job, "brief"), deadline=deadline)

    async def do(self, job: Callable[[], T], *, deadline: Seconds | None = None) -> T:
        """Run a function on the engine's thread, where it may open transactions of its own."""
        seconds = self._limits.deadline if deadline is None else min(deadline, self._limits.deadline)
        most = self._limits.calls_waiting
        if self._worker.waiting >= most:
            raise HistoryDown(f"{most} calls to the store are waiting; this one was rejected")
        try:
            return await self._worker.do(lambda: self._twice(job), deadline=seconds)
        except TimeoutError as e:
            raise HistoryDown(f"the store has not answered within {seconds:g} s") from e
        except Closed as e:
            raise HistoryDown("the store is closed") from e

    async def close(self) -> None:
        """Disconnect and end the thread."""
        try:
            await self.do(self._database.close)
        finally:
            self._worker.close()

    # ── on the thread ────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def transaction(self, mode: Mode) -> Iterator[Transaction]:
        """A transaction, with all registered tables migrated; only for functions passed to `do`."""
        self._migrate()
        with self._database.transaction(mode) as tx:
            yield tx

    def _run(self, job: Callable[[Transaction], T], mode: Mode) -> T:
        with self.transaction(mode) as tx:
            return job(tx)

    def _migrate(self) -> None:
        wanted = (self._database.open(), len(self._tables))
        if wanted != self._migrated:
            with self._database.transaction("migrate") as tx:
                for tables in self._tables[: wanted[1]]:
                    migrate(tx, tables, self._database.dialect)
            self._migrated = wanted

    def _twice(self, job: Callable[[], T]) -> T:
        """Run a job, and run it again if the connection was lost; every job may run twice."""
        try:
            return job()
        except HistoryDown:
            if not self._database.worth_another_try():
                raise
        return job()
