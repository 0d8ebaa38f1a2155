"""The interface of a database for the engine. The engine knows statements and rows, but no tables."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, Self, TypeAlias

from vgpuscope.model.errors import HistoryDown

Dialect: TypeAlias = Literal["sqlite", "postgres"]
Values: TypeAlias = tuple[Any, ...]  # one row, as the database returns it

# read:    sees a snapshot of the database, and is ended after the time limit for reads
# write:   no other writer runs at the same time
# brief:   writes one row, and does not wait for a long writer in another process
# migrate: like write, without time limits for its statements
Mode: TypeAlias = Literal["read", "write", "brief", "migrate"]


class Upsert(NamedTuple):
    """INSERT … ON CONFLICT … RETURNING for many rows."""

    table: str
    columns: tuple[tuple[str, str], ...]  # name and SQL type
    conflict: str  # the text after ON CONFLICT
    returning: tuple[str, ...]

    @property
    def names(self) -> str:
        return ", ".join(name for name, _ in self.columns)


class Transaction(Protocol):
    """Statements that are committed together or not at all."""

    def all(self, statement: str, **values: object) -> list[Values]:
        """Run one statement with :named parameters; the rows that it returns."""

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Values]) -> None:
        """Insert many rows in the fastest way that this database has."""

    def upsert(self, upsert: Upsert, rows: Sequence[Values]) -> list[Values]:
        """Insert or update many rows; returns the RETURNING columns of each, in any order."""


class Database(Protocol):
    """One connection to a database. Its errors are HistoryDown, or RowRefused if the database rejects the values.

    Every method but `another` is called on the connection's own thread.
    """

    dialect: Dialect

    @property
    def file(self) -> Path | None:
        """The database's file; None if the database is a server."""

    def another(self) -> Self:
        """One more connection to the same database."""

    def open(self) -> int:
        """Connect, unless connected; returns the number of this connection, which increases with each new one."""

    def transaction(self, mode: Mode) -> AbstractContextManager[Transaction]:
        """BEGIN, and COMMIT at the end of the block; an exception rolls back."""

    def worth_another_try(self) -> bool:
        """Whether the last error was only a lost connection."""

    def close(self) -> None:
        """Disconnect; the next transaction connects again."""


def too_many_rows(most: int) -> HistoryDown:
    """The error for a read that would need more memory than the store may use."""
    return HistoryDown(
        f"a read of the store has more than {most} rows and was ended", hint="Ask for a shorter time or for fewer GPUs."
    )
