"""The migrations of the results' tables. Their columns follow from the descriptions in columns.py."""

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from vgpuscope.store.engine.migrations import Migration, TableSet
from vgpuscope.store.results.columns import RESULT, ROLLUP, Column, ResultColumn, ResultSubject, SubjectDetails

Rollup: TypeAlias = Literal["history_hours", "history_days"]
ROLLUPS: tuple[Rollup, ...] = ("history_hours", "history_days")


def _series_table() -> str:
    details = [name for name in SubjectDetails._fields if name != "gpu_instance"]
    names = [f"{name} text NOT NULL" for name in (*ResultSubject._fields, *details)]
    unique = f"UNIQUE ({', '.join(ResultSubject._fields)})"
    return _table("history_series", ["id {id}", *names, "last_day integer NOT NULL", unique])


def _result_table() -> str:
    keys, columns = ("analysis", "series"), [_line(column) for column in RESULT if column.since == 1]
    return _table("history_results", [*_keys(keys), *columns, f"PRIMARY KEY ({', '.join(keys)})"], end="{table}")


def _rollup_table(name: Rollup) -> str:
    """The table, with the bucket (time) before the series in its key.

    One bucket is then written to and dropped from one place, and the history of one GPU is a short look-up in each
    bucket. With the series first, each roll-up would touch a page for every GPU.
    """
    keys, columns = ("time", "series"), [_line(column) for column in ROLLUP if column.since == 1]
    return _table(name, [*_keys(keys), *columns, f"PRIMARY KEY ({', '.join(keys)})"], end="{table}")


def _table(name: str, lines: Sequence[str], *, end: str = "") -> str:
    body = ",\n".join(f"    {line}" for line in lines)
    return f"\nCREATE TABLE {name} (\n{body}\n){end}\n"


def _keys(names: Iterable[str]) -> list[str]:
    return [f"{name} integer NOT NULL" for name in names]


def _added(version: int) -> tuple[str, ...]:
    """The columns that this migration adds."""
    tables: list[tuple[str, Sequence[Column | ResultColumn]]] = [
        ("history_results", RESULT),
        *((table, ROLLUP) for table in ROLLUPS),
    ]
    return tuple(
        f"ALTER TABLE {table} ADD COLUMN {_line(column)}{'' if column.optional else ' DEFAULT 0'}"
        for table, columns in tables
        for column in columns
        if column.since == version
    )


def _line(column: Column | ResultColumn) -> str:
    return f"{column.name} {column.type}{'' if column.optional else ' NOT NULL'}"


MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        1,
        (
            _series_table(),
            "CREATE INDEX history_series_pod ON history_series (namespace, pod)",
            """
CREATE TABLE history_analyses (
    id {id},
    started double precision NOT NULL,
    number bigint NOT NULL,
    time bigint NOT NULL,
    stands_from bigint NOT NULL,
    stored integer NOT NULL,
    rolled {small} NOT NULL DEFAULT 0,
    UNIQUE (started, number)
)
""",
            "CREATE INDEX history_analyses_time ON history_analyses (time)",
            "CREATE INDEX history_analyses_unrolled ON history_analyses (time) WHERE rolled = 0",
            "CREATE INDEX history_analyses_stored ON history_analyses (time) WHERE stored > 0",
            _result_table(),
            *(_rollup_table(name) for name in ROLLUPS),
            """
CREATE TABLE history_latest (
    id integer PRIMARY KEY CHECK (id = 1),
    started double precision NOT NULL,
    number bigint NOT NULL,
    packed {bytes} NOT NULL
)
""",
        ),
    ),
    *(Migration(version, _added(version)) for version in (2, 3, 4, 5)),
    Migration(
        6,
        (
            # of older analyses it is not known, and each is taken to have all of SUMMED
            "ALTER TABLE history_analyses ADD COLUMN measured {small} NOT NULL DEFAULT 7",
            "ALTER TABLE history_series ADD COLUMN gpu_instance text NOT NULL DEFAULT ''",
        ),
    ),
    Migration(7, _added(7)),
    Migration(8, _added(8)),
)

TABLES = TableSet("history", MIGRATIONS)
