"""A lane: one connection on a thread of its own. What waits in one lane delays no other lane."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from vgpuscope.model.errors import HistoryDown
from vgpuscope.model.quantity import Seconds
from vgpuscope.store.engine.database import Database, Mode, Transaction
from vgpuscope.store.engine.migrations import TableSet, migrate
from vgpuscope.store.limits import Limits
from vgpuscope.worker import Closed, Worker

T = TypeVar("T")


class Lane:
    """Runs jobs on one connection, one after the other."""

    def __init__(self, name: str, database: Database, tables: Sequence[TableSet], *, limits: Limits) -> None:
        self._database, self._tables, self._limits = database, tables, limits
        self._worker = Worker(name)
        self._migrated = (0, 0)  # number of the connection, and of table sets that were migrated on it
        self._unfinished: set[Future[Any]] = set()

    @property
    def load(self) -> int:
        """Jobs that run or wait; a job whose caller has given up counts until it ends."""
        return len(self._unfinished)

    @property
    def connection(self) -> int:
        """The number of the connection that the last transaction used; 0: none yet."""
        return self._migrated[0]

    async def do(self, job: Callable[[], T], *, deadline: Seconds) -> T:
        """Run a function on the lane's thread, where it may open transactions of this lane."""
        most = self._limits.calls_waiting
        if self._worker.waiting >= most:
            raise HistoryDown(f"{most} calls to the store are waiting; this one was rejected")
        try:
            async with asyncio.timeout(deadline):
                return await asyncio.wrap_future(self._submit(job))
        except TimeoutError as e:
            raise HistoryDown(f"the store has not answered within {deadline:g} s") from e
        except Closed as e:
            raise HistoryDown("the store is closed") from e

    async def close(self) -> None:
        """Disconnect and end the thread. A job that hangs is not waited for: its thread disconnects once it ends."""
        try:
            disconnected = asyncio.wrap_future(self._submit(self._database.close))
            async with asyncio.timeout(self._limits.close):
                await asyncio.shield(disconnected)
        except TimeoutError as e:
            raise HistoryDown(f"the store has not closed within {self._limits.close:g} s") from e
        except Closed as e:
            raise HistoryDown("the store is closed") from e
        finally:
            self._worker.close()

    def _submit(self, job: Callable[[], T]) -> "Future[T]":
        future = self._worker.submit(lambda: self._twice(job))
        self._unfinished.add(future)
        future.add_done_callback(self._unfinished.discard)
        return future

    # ── on the thread ────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def transaction(self, mode: Mode) -> Iterator[Transaction]:
        """A transaction, with all registered tables migrated."""
        self._migrate()
        with self._database.transaction(mode) as tx:
            yield tx

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
