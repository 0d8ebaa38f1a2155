"""Results in a SQLite file: nothing to install, one process at a time.

Write-ahead log with synchronous=FULL: a commit returns when it is on the disk, so neither kill -9 nor a power cut loses
an analysis that was saved. It costs one fsync for each analysis, which is nothing at one in minutes.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from vgpuscope.model.errors import HistoryDown
from vgpuscope.model.quantity import Seconds
from vgpuscope.sinks.history_rows import Name
from vgpuscope.sinks.history_sql import OR_RENAME_SERIES, RESULT_COLUMNS, SERIES_COLUMNS
from vgpuscope.sinks.history_store import Values, migrate
from vgpuscope.sinks.lease import Lease
from vgpuscope.sinks.migrations import MIGRATIONS, Dialect, Migration

_PRAGMAS = (
    "busy_timeout = 10000",
    "synchronous = FULL",
    "wal_autocheckpoint = 4000",  # pages, 16 MB: in between a save writes its own pages only
    "journal_size_limit = 67108864",
    "cache_size = -8000",
    "temp_store = MEMORY",
)


def _places(count: int) -> str:
    return ", ".join("?" * count)


_ADD_SERIES = (
    f"INSERT INTO history_series ({', '.join(SERIES_COLUMNS)}) VALUES ({_places(len(SERIES_COLUMNS))}) "
    f"{OR_RENAME_SERIES} RETURNING id"
)
_ADD_RESULTS = f"INSERT INTO history_results ({', '.join(RESULT_COLUMNS)}) VALUES ({_places(len(RESULT_COLUMNS))})"


class SqliteTransaction:
    """What is said between BEGIN and COMMIT."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def all(self, statement: str, **values: object) -> list[Values]:
        return self._connection.execute(statement, values).fetchall()

    def add_series(self, series: Sequence[Values]) -> dict[Name, int]:
        say = self._connection.execute
        return {Name(*one[: len(Name._fields)]): say(_ADD_SERIES, one).fetchone()[0] for one in series}

    def add_results(self, results: Iterator[Values]) -> None:
        self._connection.executemany(_ADD_RESULTS, results)


class SqliteDatabase:
    """One file; opened when it is first needed, and anew after an error."""

    dialect: Dialect = "sqlite"

    def __init__(self, path: str, *, migrations: Sequence[Migration] = MIGRATIONS) -> None:
        self._path = Path(path)
        self._migrations = migrations
        self._connection: sqlite3.Connection | None = None
        self._lease = Lease()
        self._lock: int | None = None

    @contextmanager
    def reading(self) -> Iterator[SqliteTransaction]:
        with self._transaction("BEGIN") as tx:
            yield tx

    @contextmanager
    def writing(self) -> Iterator[SqliteTransaction]:
        with self._transaction("BEGIN IMMEDIATE") as tx:
            yield tx

    def worth_another_try(self) -> bool:
        return False

    def lead(self, holder: str, seconds: Seconds) -> bool:
        """The lock on a file beside is the kernel's: it goes with the process, however that ends."""
        return self._locked() and self._lease.take(holder, seconds)

    def resign(self, holder: str) -> None:
        if self._lease.free(holder) and self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def close(self) -> None:
        self._drop()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[SqliteTransaction]:
        try:
            connection = self._connection = self._connection or self._opened()
            connection.execute(begin)
            yield SqliteTransaction(connection)
            connection.execute("COMMIT")
        except sqlite3.Error as e:
            self._drop()
            raise self._down(str(e)) from e
        except BaseException:
            self._drop()
            raise

    def _opened(self) -> sqlite3.Connection:
        if reason := _unusable(self._path):
            raise self._down(reason)
        connection = sqlite3.connect(self._path, isolation_level=None)
        try:
            self._prepare(connection)
            connection.execute("BEGIN IMMEDIATE")
            migrate(SqliteTransaction(connection), self.dialect, self._migrations)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise self._down("a write-ahead log is not possible there; is it a network file system?")

    def _drop(self) -> None:
        """Let go of the connection; what it has not committed is undone."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _locked(self) -> bool:
        if self._lock is not None:
            return True
        try:
            lock = os.open(f"{self._path}.leader", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as e:
            raise self._down(e.strerror or str(e)) from e
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return False
        self._lock = lock
        return True

    def _down(self, reason: str) -> HistoryDown:
        return HistoryDown(f"the store of results {self._path} cannot be used: {reason}")


def _unusable(path: Path) -> str:
    """Why there can be no such file, in better words than SQLite's; empty when nothing speaks against it."""
    if path.is_dir():
        return "it is a directory; say the name of a file in it"
    if not path.parent.is_dir():
        return f"there is no directory {path.parent}"
    if not os.access(path.parent, os.W_OK):
        return f"the directory {path.parent} may not be written by this user, and SQLite keeps files beside its own"
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        return "the file may not be read and written by this user"
    return ""
