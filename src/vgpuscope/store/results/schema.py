"""The migrations of the results' tables. The roll-up tables follow from the descriptions of their columns."""

from typing import Literal, TypeAlias

from vgpuscope.store.engine.migrations import Migration, TableSet
from vgpuscope.store.results.columns import ROLLUP, Column

Rollup: TypeAlias = Literal["history_hours", "history_days"]
ROLLUPS: tuple[Rollup, ...] = ("history_hours", "history_days")


def _rollup_table(name: Rollup) -> str:
    """The table, with the bucket (time) before the series in its key.

    One bucket is then written to and dropped from one place, and the history of one GPU is a short look-up in each
    bucket. With the series first, each roll-up would touch a page for every GPU.
    """
    lines = ["time integer NOT NULL", "series integer NOT NULL", *(_line(c) for c in ROLLUP if c.since == 1)]
    columns = "".join(f"    {line},\n" for line in lines)
    return f"\nCREATE TABLE {name} (\n{columns}    PRIMARY KEY (time, series)\n){{table}}\n"


def _added_to_rollups(version: int) -> tuple[str, ...]:
    """The columns that this migration adds."""
    added = [column for column in ROLLUP if column.since == version]
    return tuple(
        f"ALTER TABLE {table} ADD COLUMN {_line(column)}{'' if column.optional else ' DEFAULT 0'}"
        for table in ROLLUPS
        for column in added
    )


def _line(column: Column) -> str:
    return f"{column.name} {column.type}{'' if column.optional else ' NOT NULL'}"


MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        1,
        (
            """
CREATE TABLE history_series (
    id {id},
    gpu_id text NOT NULL,
    mig text NOT NULL,
    namespace text NOT NULL,
    pod text NOT NULL,
    hostname text NOT NULL,
    model text NOT NULL,
    owner text NOT NULL,
    last_day integer NOT NULL,
    UNIQUE (gpu_id, mig, namespace, pod)
)
""",
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
            """
CREATE TABLE history_results (
    analysis integer NOT NULL,
    series integer NOT NULL,
    score integer,
    status {small} NOT NULL,
    verdict {small} NOT NULL,
    use_class {small} NOT NULL,
    util integer,
    util_max integer,
    memory_used bigint,
    coverage integer,
    seconds integer NOT NULL,
    held integer NOT NULL,
    PRIMARY KEY (analysis, series)
){table}
""",
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
    Migration(
        2,
        _added_to_rollups(2),
    ),
    Migration(
        3,
        (
            "ALTER TABLE history_results ADD COLUMN power integer",
            "ALTER TABLE history_results ADD COLUMN power_max integer",
            "ALTER TABLE history_results ADD COLUMN energy bigint",
            "ALTER TABLE history_results ADD COLUMN memory_allocated bigint",
            "ALTER TABLE history_results ADD COLUMN cores_allocated integer",
            *_added_to_rollups(3),
        ),
    ),
    Migration(
        4,
        _added_to_rollups(4),
    ),
)

TABLES = TableSet("history", MIGRATIONS)
