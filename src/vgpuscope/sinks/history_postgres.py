"""Results in PostgreSQL, for several replicas: one of them leads, by a lease that the database's clock measures."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import psycopg
from psycopg import conninfo

from vgpuscope.model.errors import HistoryDown
from vgpuscope.model.quantity import Seconds
from vgpuscope.sinks.history_rows import Name
from vgpuscope.sinks.history_sql import OR_RENAME_SERIES, RESULT_COLUMNS, SERIES_COLUMNS
from vgpuscope.sinks.history_store import Values, migrate
from vgpuscope.sinks.migrations import MIGRATIONS, Dialect, Migration

_WRITERS = 0x76677075  # the advisory lock of all who write; any number, the same in every version
_DEFAULTS = {
    "connect_timeout": 5,
    "application_name": "vgpuscope",
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
# for the transaction only, so that a pooler between us and the database may share its connections
_LIMITS = "SELECT set_config('statement_timeout', '30s', true), set_config('lock_timeout', '10s', true)"
_ARRAYS = (*(f"CAST(:{column} AS text[])" for column in SERIES_COLUMNS[:-1]), "CAST(:last_day AS integer[])")
_ADD_SERIES = (
    f"INSERT INTO history_series ({', '.join(SERIES_COLUMNS)}) SELECT * FROM unnest("
    f"{', '.join(_ARRAYS)}) {OR_RENAME_SERIES} RETURNING {', '.join(Name._fields)}, id"
)
_ADD_RESULTS = f"COPY history_results ({', '.join(RESULT_COLUMNS)}) FROM STDIN"
_LEAD = (
    "INSERT INTO history_lease AS l (id, holder, until) "
    "VALUES (1, :holder, clock_timestamp() + make_interval(secs => :seconds)) "
    "ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, "
    "until = clock_timestamp() + make_interval(secs => :seconds) "
    "WHERE l.holder = excluded.holder OR l.until <= clock_timestamp() RETURNING holder"
)
_RESIGN = "DELETE FROM history_lease WHERE holder = :holder"


class PostgresTransaction:
    """What is said between BEGIN and COMMIT."""

    def __init__(self, connection: psycopg.Connection[Values]) -> None:
        self._connection = connection

    def all(self, statement: str, **values: object) -> list[Values]:
        cursor = self._connection.execute(_with_places(statement), values)
        return cursor.fetchall() if cursor.description else []

    def add_series(self, series: Sequence[Values]) -> dict[Name, int]:
        columns = dict(zip(SERIES_COLUMNS, (list(column) for column in zip(*series, strict=True)), strict=True))
        return {Name(*name): number for *name, number in self.all(_ADD_SERIES, **columns)}

    def add_results(self, results: Iterator[Values]) -> None:
        with self._connection.cursor() as cursor, cursor.copy(_ADD_RESULTS) as copy:
            lines = "\n".join(["\t".join(map(str, row)) for row in results])
            copy.write(lines.replace("None", "\\N"))  # all else is integers


class PostgresDatabase:
    """One connection; made when it is first needed, and anew after it was lost."""

    dialect: Dialect = "postgres"

    def __init__(self, url: str, *, migrations: Sequence[Migration] = MIGRATIONS) -> None:
        self._settings = _settings(url)
        self._secrets = _secrets(self._settings)
        self._migrations = migrations
        self._connection: psycopg.Connection[Values] | None = None
        self._stale = False

    @contextmanager
    def reading(self) -> Iterator[PostgresTransaction]:
        with self._transaction("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY") as tx:
            yield tx

    @contextmanager
    def writing(self) -> Iterator[PostgresTransaction]:
        with self._transaction() as tx:
            tx.all("SELECT pg_advisory_xact_lock(:lock)", lock=_WRITERS)
            yield tx

    def worth_another_try(self) -> bool:
        return self._stale

    def lead(self, holder: str, seconds: Seconds) -> bool:
        with self._transaction() as tx:
            return bool(tx.all(_LEAD, holder=holder, seconds=float(seconds)))

    def resign(self, holder: str) -> None:
        with self._transaction() as tx:
            tx.all(_RESIGN, holder=holder)

    def close(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    @contextmanager
    def _transaction(self, *first: str) -> Iterator[PostgresTransaction]:
        known, self._stale = self._connection is not None, False
        try:
            connection = self._connection = self._connection or self._connected()
            with connection.transaction():
                tx = PostgresTransaction(connection)
                for statement in (*first, _LIMITS):
                    tx.all(statement)
                yield tx
        except psycopg.Error as e:
            self._stale = known and self._connection is not None and self._connection.broken
            if self._connection is None or self._connection.closed:
                self.close()
            raise self._down(e) from None  # the driver's own words may hold what ours leave out
        except BaseException:
            self.close()  # the body failed half-way: what the server has of it goes with the connection
            raise

    def _connected(self) -> psycopg.Connection[Values]:
        """A connection without prepared statements, which poolers do not carry over; tables are made if need be."""
        info = conninfo.make_conninfo(**self._settings, client_encoding="utf8")
        connection = psycopg.connect(info, autocommit=True, prepare_threshold=None)
        try:
            with connection.transaction():
                tx = PostgresTransaction(connection)
                tx.all("SELECT pg_advisory_xact_lock(:lock)", lock=_WRITERS)
                migrate(tx, self.dialect, self._migrations)
        except BaseException:
            connection.close()
            raise
        return connection

    def _down(self, error: psycopg.Error) -> HistoryDown:
        said = " ".join(str(error).split()) or type(error).__name__
        for secret in self._secrets:
            said = said.replace(secret, "…")
        where = f"{self._settings.get('host', 'localhost')}/{self._settings.get('dbname', '')}"
        return HistoryDown(f"the store of results in PostgreSQL at {where} cannot be used: {said}")


def _settings(url: str) -> dict[str, Any]:
    wrong = HistoryDown(
        "the postgresql:// URL of the store of results cannot be understood",
        hint="It is postgresql://USER:PASSWORD@HOST:PORT/DATABASE; in names and passwords write @ : / # ? % as "
        "%40 %3A %2F %23 %3F %25. Or leave the password to PGPASSWORD or PGPASSFILE.",
    )
    try:
        given = conninfo.conninfo_to_dict(url)
    except psycopg.Error:  # its words quote the piece that it stumbled over, and that may be a password
        raise wrong from None
    if _torn(given):
        raise wrong
    return {**_DEFAULTS, **given}


def _torn(given: Mapping[str, Any]) -> bool:
    """Whether a / or @ in a password has moved parts of it to where host, port and database are told."""
    ports = str(given.get("port") or "").split(",")
    names = f"{given.get('host') or ''}{given.get('dbname') or ''}"
    return "@" in names or not all(port.isdecimal() for port in ports if port)


def _secrets(settings: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(value) for key in ("password", "sslpassword") if (value := settings.get(key)))


@cache
def _with_places(statement: str) -> str:
    """psycopg's way to write parameters."""
    return re.sub(r":(\w+)", r"%(\1)s", statement)
