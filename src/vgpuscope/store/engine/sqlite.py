"""A SQLite file: nothing to install, one process at a time.

Write-ahead log with synchronous=FULL: a commit returns when it is on the disk, so neither kill -9 nor a power cut loses
committed data. This costs one fsync for each transaction, which is negligible at one transaction every few minutes.
"""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Self

from vgpuscope.model.errors import HistoryDown, RowRefused
from vgpuscope.store.engine.database import Dialect, Mode, Upsert, Values, too_many_rows
from vgpuscope.store.engine.files import FileIdentity, file_identity
from vgpuscope.store.limits import LIMITS, Limits

_PRAGMAS = (
    "synchronous = FULL",
    "wal_autocheckpoint = 4000",  # pages, 16 MB; between two checkpoints a commit writes only its own pages
    "journal_size_limit = 67108864",
    "temp_store = MEMORY",
)
_CACHE, _SMALL_CACHE = 8000, 2000  # KiB; the small one is for connections that only read
_EVERY = 100_000  # instructions of SQLite's virtual machine between two looks at the clock: about a millisecond
_CONTENT = (sqlite3.DataError, sqlite3.IntegrityError)  # the values are at fault, not the database


class SqliteTransaction:
    """The statements between BEGIN and COMMIT."""

    def __init__(self, connection: sqlite3.Connection, *, rows_per_read: int) -> None:
        self._connection = connection
        self._rows_per_read = rows_per_read

    def all(self, statement: str, **values: object) -> list[Values]:
        cursor = self._connection.execute(statement, values)
        found = cursor.fetchmany(self._rows_per_read)
        if len(found) == self._rows_per_read and cursor.fetchone():
            raise too_many_rows(self._rows_per_read)
        return found

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Values]) -> None:
        self._connection.executemany(_insert(table, ", ".join(columns), len(columns)), rows)

    def upsert(self, upsert: Upsert, rows: Sequence[Values]) -> list[Values]:
        insert = _insert(upsert.table, upsert.names, len(upsert.columns))
        statement = f"{insert} ON CONFLICT {upsert.conflict} RETURNING {', '.join(upsert.returning)}"
        return [self._connection.execute(statement, row).fetchone() for row in rows]


def _insert(table: str, columns: str, count: int) -> str:
    return f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * count)})"


class SqliteDatabase:
    """One file; opened on first use, and again after an error."""

    dialect: Dialect = "sqlite"

    def __init__(self, path: str, *, limits: Limits = LIMITS, among: "SqliteDatabase | None" = None) -> None:
        """`among` is another connection of this process to the same file."""
        self.file = Path(path)
        self._limits = limits
        self._opening: Lock = among._opening if among else Lock()  # SQLite fails if two connections set up a new file
        self._cache = _SMALL_CACHE if among else _CACHE
        self._connection: sqlite3.Connection | None = None
        self._identity: FileIdentity | None = None  # of the file that the connection has opened
        self._opened = 0

    def another(self) -> Self:
        return type(self)(str(self.file), limits=self._limits, among=self)

    def open(self) -> int:
        """Connect, unless connected; HistoryDown if the path is no longer the open file, which is closed then."""
        if self._connection is None:
            try:
                with self._opening:
                    self._connection = self._connected()
            except sqlite3.Error as e:
                raise self._down(str(e)) from e
            self._identity = file_identity(self.file)
            self._opened += 1
        elif file_identity(self.file) != self._identity:
            self.close()
            raise self._down("the file was removed or replaced while it was open")
        return self._opened

    @contextmanager
    def transaction(self, mode: Mode) -> Iterator[SqliteTransaction]:
        self.open()
        assert self._connection is not None
        connection = self._connection
        self._limit(connection, mode)
        try:
            connection.execute("BEGIN" if mode == "read" else "BEGIN IMMEDIATE")
            yield SqliteTransaction(connection, rows_per_read=self._limits.rows_per_read)
            connection.execute("COMMIT")
        except sqlite3.Error as e:
            self.close()
            if isinstance(e, _CONTENT):
                raise RowRefused(f"the store {self.file} rejected a row: {e}") from e
            raise self._down(str(e)) from e
        except BaseException:
            self.close()
            raise

    def worth_another_try(self) -> bool:
        return False

    def close(self) -> None:
        """Close the connection; uncommitted changes are rolled back."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _connected(self) -> sqlite3.Connection:
        if reason := _unusable(self.file):
            raise self._down(reason)
        connection = sqlite3.connect(self.file, isolation_level=None, timeout=self._limits.lock_wait)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        for pragma in (*_PRAGMAS, f"cache_size = -{self._cache}"):
            connection.execute(f"PRAGMA {pragma}")
        if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise self._down("a write-ahead log is not possible there; is it a network file system?")

    def _limit(self, connection: sqlite3.Connection, mode: Mode) -> None:
        """End a read that takes too long: nobody waits for it any more, and the write-ahead log grows meanwhile."""
        end = monotonic() + self._limits.read
        connection.set_progress_handler((lambda: monotonic() > end) if mode == "read" else None, _EVERY)

    def _down(self, reason: str) -> HistoryDown:
        return HistoryDown(f"the store {self.file} cannot be used: {reason}")


def _unusable(path: Path) -> str:
    """Why the file cannot be used, more precisely than SQLite's own message; empty if it seems usable."""
    if path.is_dir():
        return "it is a directory; say the name of a file in it"
    if not path.parent.is_dir():
        return f"there is no directory {path.parent}"
    if not os.access(path.parent, os.W_OK):
        return f"the directory {path.parent} may not be written by this user, and SQLite keeps files beside its own"
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        return "the file may not be read and written by this user"
    return ""
