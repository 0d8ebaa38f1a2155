"""PostgreSQL, for several replicas."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, Self

import psycopg
from psycopg import conninfo

from vgpuscope.model.errors import HistoryDown, RowRefused
from vgpuscope.store.engine.database import Dialect, Mode, Upsert, Values, too_many_rows
from vgpuscope.store.limits import LIMITS, Limits

_WRITERS = 0x76677075  # the advisory lock of all writers; an arbitrary number, the same in every version
_LOCK = f"SELECT pg_advisory_xact_lock({_WRITERS})"
# The values are at fault, not the database: NUL in a text, a number out of range, a text too long for an index.
_CONTENT = (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.ProgramLimitExceeded)
_DEFAULTS = {
    "application_name": "vgpuscope",
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}


class PostgresTransaction:
    """The statements between BEGIN and COMMIT."""

    def __init__(self, connection: psycopg.Connection[Values], *, rows_per_read: int) -> None:
        self._connection = connection
        self._rows_per_read = rows_per_read

    def all(self, statement: str, **values: object) -> list[Values]:
        cursor = self._connection.execute(_with_places(statement), values)
        if cursor.description is None:
            return []
        if cursor.rowcount > self._rows_per_read:
            raise too_many_rows(self._rows_per_read)
        return cursor.fetchall()

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Values]) -> None:
        into = f"COPY {table} ({', '.join(columns)}) FROM STDIN"
        with self._connection.cursor() as cursor, cursor.copy(into) as copy:
            for row in rows:
                copy.write_row(row)

    def upsert(self, upsert: Upsert, rows: Sequence[Values]) -> list[Values]:
        """One array for each column: one statement for any number of rows."""
        arrays = ", ".join(f"CAST(:{name} AS {type_}[])" for name, type_ in upsert.columns)
        columns = zip(*rows, strict=True)
        values = {name: list(column) for (name, _), column in zip(upsert.columns, columns, strict=True)}
        return self.all(
            f"INSERT INTO {upsert.table} ({upsert.names}) SELECT * FROM unnest({arrays}) "
            f"ON CONFLICT {upsert.conflict} RETURNING {', '.join(upsert.returning)}",
            **values,
        )


class PostgresDatabase:
    """One connection; opened on first use, and again after it was lost."""

    dialect: Dialect = "postgres"
    file = None

    def __init__(self, url: str, *, limits: Limits = LIMITS) -> None:
        self._url = url
        self._settings = {"connect_timeout": round(limits.connect), **_settings(url)}
        self._secrets = _secrets(self._settings)
        self._limits = limits
        self._connection: psycopg.Connection[Values] | None = None
        self._connected = 0
        self._lost = False

    def another(self) -> Self:
        return type(self)(self._url, limits=self._limits)

    def open(self) -> int:
        if self._connection is None:
            self._lost = False
            try:
                self._connection = self._connect()
            except psycopg.Error as e:
                raise self._down(e) from None  # no cause: the driver's message may contain secrets that ours hides
            self._connected += 1
        return self._connected

    @contextmanager
    def transaction(self, mode: Mode) -> Iterator[PostgresTransaction]:
        self.open()
        assert self._connection is not None
        connection, self._lost = self._connection, False
        try:
            with connection.transaction():
                tx = PostgresTransaction(connection, rows_per_read=self._limits.rows_per_read)
                for statement in self._first(mode):
                    tx.all(statement)
                yield tx
        except psycopg.Error as e:
            self._lost = connection.broken
            if connection.closed:
                self.close()
            if isinstance(e, _CONTENT):
                raise RowRefused(f"the store in PostgreSQL rejected a row: {self._said(e)}") from None
            raise self._down(e) from None
        except BaseException:
            self.close()  # the body failed half-way; the server rolls back when the connection closes
            raise

    def worth_another_try(self) -> bool:
        return self._lost

    def close(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    def _first(self, mode: Mode) -> Iterator[str]:
        """The first statements of a transaction. Its limits end with it, so that a pooler can share connections."""
        if mode == "read":
            yield "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
        if mode != "migrate":
            statement = self._limits.read if mode == "read" else self._limits.statement
            lock = self._limits.lock_wait
            yield (
                f"SELECT set_config('statement_timeout', '{statement * 1000:.0f}ms', true), "
                f"set_config('lock_timeout', '{lock * 1000:.0f}ms', true)"
            )
        if mode in {"write", "migrate"}:
            yield _LOCK

    def _connect(self) -> psycopg.Connection[Values]:
        """A connection without prepared statements, because a pooler does not carry them over."""
        info = conninfo.make_conninfo(**self._settings, client_encoding="utf8")
        return psycopg.connect(info, autocommit=True, prepare_threshold=None)

    def _down(self, error: psycopg.Error) -> HistoryDown:
        where = f"{self._settings.get('host', 'localhost')}/{self._settings.get('dbname', '')}"
        return HistoryDown(f"the store in PostgreSQL at {where} cannot be used: {self._said(error)}")

    def _said(self, error: psycopg.Error) -> str:
        said = " ".join(str(error).split()) or type(error).__name__
        for secret in self._secrets:
            said = said.replace(secret, "…")
        return said


def _settings(url: str) -> dict[str, Any]:
    wrong = HistoryDown(
        "the postgresql:// URL of the store cannot be understood",
        hint="It is postgresql://USER:PASSWORD@HOST:PORT/DATABASE; in names and passwords write @ : / # ? % as "
        "%40 %3A %2F %23 %3F %25. Or leave the password to PGPASSWORD or PGPASSFILE.",
    )
    try:
        given = conninfo.conninfo_to_dict(url)
    except psycopg.Error:  # its message quotes the invalid part, which may be a password
        raise wrong from None
    if _torn(given):
        raise wrong
    return {**_DEFAULTS, **given}


def _torn(given: Mapping[str, Any]) -> bool:
    """Whether a / or @ in a password has moved parts of it into the host, port or database."""
    ports = str(given.get("port") or "").split(",")
    names = f"{given.get('host') or ''}{given.get('dbname') or ''}"
    return "@" in names or not all(port.isdecimal() for port in ports if port)


def _secrets(settings: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(value) for key in ("password", "sslpassword") if (value := settings.get(key)))


@lru_cache(maxsize=256)  # statements that contain lists of numbers are used only once
def _with_places(statement: str) -> str:
    """:name → %(name)s, psycopg's parameter syntax; :: stays a cast."""
    return re.sub(r"(?<!:):([a-z_]\w*)", r"%(\1)s", statement.replace("%", "%%"))
