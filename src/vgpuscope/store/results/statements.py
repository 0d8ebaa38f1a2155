"""The SQL statements for the results' tables; parameters are :named, results are integers."""

from collections.abc import Sequence

from vgpuscope.store.engine.database import Upsert
from vgpuscope.store.results.columns import (
    ROLLUP,
    Column,
    ResultSubject,
    StoredResult,
    SubjectDetails,
    aggregate,
    joined_sql,
)
from vgpuscope.store.results.schema import Rollup

_NAMES = ", ".join(f"s.{field}" for field in (*ResultSubject._fields, *SubjectDetails._fields))
_ROW = ", ".join(f"r.{field}" for field in StoredResult._fields)
_AGGREGATED = ", ".join(aggregate(column) for column in ROLLUP)


# ── one analysis ─────────────────────────────────────────────────────────────────────────────────────────────────

KNOWN_ANALYSIS = "SELECT id FROM history_analyses WHERE started = :started AND number = :number"
ENDS_BEFORE = "SELECT max(time) FROM history_analyses WHERE time < :time"
BEGINS_AFTER = "SELECT min(stands_from) FROM history_analyses WHERE time >= :time"
ADD_ANALYSIS = (
    "INSERT INTO history_analyses (started, number, time, stands_from, stored) "
    "VALUES (:started, :number, :time, :stands_from, 0) RETURNING id"
)
COUNT_RESULTS = "UPDATE history_analyses SET stored = :stored WHERE id = :id"
RESULT_COLUMNS = ("analysis", "series", *StoredResult._fields)
KEEP_LATEST = (
    "INSERT INTO history_latest (id, started, number, packed) VALUES (1, :started, :number, :packed) "
    "ON CONFLICT (id) DO UPDATE SET started = excluded.started, number = excluded.number, packed = excluded.packed"
)
KEEP_IF_LATER = (
    f"{KEEP_LATEST} WHERE (history_latest.started, history_latest.number) < (excluded.started, excluded.number)"
)
LATEST = "SELECT packed FROM history_latest"
LATEST_UNLIKE = f"{LATEST} WHERE NOT (started = :started AND number = :number)"

# ── series ───────────────────────────────────────────────────────────────────────────────────────────────────────

# A known series keeps its number. A later analysis replaces the properties that it knows, and keeps the others.
_RENAMED = ", ".join(
    f"{field} = CASE WHEN excluded.{field} = '' THEN history_series.{field} ELSE excluded.{field} END"
    for field in SubjectDetails._fields
)
ADD_SERIES = Upsert(
    table="history_series",
    columns=(
        *((field, "text") for field in (*ResultSubject._fields, *SubjectDetails._fields)),
        ("last_day", "integer"),
    ),
    conflict=f"({', '.join(ResultSubject._fields)}) DO UPDATE SET {_RENAMED}, last_day = "
    "CASE WHEN history_series.last_day < excluded.last_day THEN excluded.last_day ELSE history_series.last_day END",
    returning=(*ResultSubject._fields, "id"),
)

# ── roll-ups ─────────────────────────────────────────────────────────────────────────────────────────────────────

OLDEST_UNROLLED = "SELECT min(time) FROM history_analyses WHERE rolled = 0 AND time < :until"
UNROLLED = (
    "SELECT id, stored FROM history_analyses WHERE rolled = 0 AND time >= :begin AND time < :end ORDER BY time, id"
)


def add_to_rollup(table: Rollup, *, analyses: str) -> str:
    """Add the results of these analyses to the roll-up :bucket; the caller marks them in the same transaction."""
    columns = ", ".join(column.name for column in ROLLUP)
    joined = ", ".join(f"{column.name} = {joined_sql(column, table)}" for column in ROLLUP)
    return (
        f"INSERT INTO {table} (time, series, {columns}) "
        f"SELECT CAST(:bucket AS integer), r.series, {_AGGREGATED} FROM history_results r "
        f"WHERE r.analysis IN ({analyses}) GROUP BY r.series "
        f"ON CONFLICT (time, series) DO UPDATE SET {joined}"
    )


def mark_rolled(*, analyses: str) -> str:
    return f"UPDATE history_analyses SET rolled = 1 WHERE id IN ({analyses})"


# ── deleting ─────────────────────────────────────────────────────────────────────────────────────────────────────

EXPIRED_RESULTS = (
    "SELECT id, stored FROM history_analyses WHERE stored > 0 AND rolled = 1 AND time < :before ORDER BY time LIMIT 100"
)


def drop_results(*, analyses: str) -> tuple[str, str]:
    """Delete the rows of results; the analyses stay recorded, so that one that is sent again is not counted twice."""
    return (
        f"DELETE FROM history_results WHERE analysis IN ({analyses})",
        f"UPDATE history_analyses SET stored = 0 WHERE id IN ({analyses})",
    )


def reach_of(table: Rollup) -> str:
    """The oldest and the newest bucket, in two look-ups; one SELECT of min and max would read the whole table."""
    return f"SELECT (SELECT min(time) FROM {table}), (SELECT max(time) FROM {table})"


def drop_rollup(table: Rollup) -> str:
    return f"DELETE FROM {table} WHERE time = :bucket"


FORGET_ANALYSES = "DELETE FROM history_analyses WHERE stored = 0 AND rolled = 1 AND time < :before"
FORGET_SERIES = "DELETE FROM history_series WHERE last_day < :before"

# ── points ───────────────────────────────────────────────────────────────────────────────────────────────────────
# If few series are chosen, they come first in the join, and each is looked up at each time. Otherwise rows are read in
# the order of the table, so that the limit ends the read. SQLite keeps the order of a CROSS JOIN; PostgreSQL's planner
# finds it. Each order is a key, so that a page can begin after the last point of the page before.

AFTER_ANALYSES = "(a.time, a.id, r.series) > (:after_time, :after_analysis, :after_series)"
AFTER_ROLLUP = "(r.time, r.series) > (:after_time, :after_series)"


def after_unrolled(*, millis: int) -> str:
    return f"(a.time / {millis}, s.id) > (:after_time, :after_series)"


def points_of_analyses(chosen: str, *, few: bool) -> str:
    tables = (
        "history_series s CROSS JOIN history_analyses a CROSS JOIN history_results r"
        if few
        else "history_analyses a CROSS JOIN history_results r CROSS JOIN history_series s"
    )
    return (
        f"SELECT a.time, a.id, s.id, {_NAMES}, {_ROW} FROM {tables} WHERE r.analysis = a.id AND r.series = s.id "
        f"AND a.time >= :begin AND a.time < :end AND {chosen} ORDER BY a.time, a.id, r.series LIMIT :limit"
    )


def points_of_rollup(table: Rollup, chosen: str, columns: Sequence[Column], *, few: bool) -> str:
    buckets = (
        "WITH RECURSIVE bucket (time) AS (SELECT CAST(:first AS integer) UNION ALL "
        "SELECT time + 1 FROM bucket WHERE time < :last) "
    )
    tables, range_ = (
        (f"history_series s CROSS JOIN bucket b CROSS JOIN {table} r", "r.time = b.time")
        if few
        else (f"{table} r CROSS JOIN history_series s", "r.time >= :first AND r.time <= :last")
    )
    sums = ", ".join(f"r.{column.name}" for column in columns)
    return (
        f"{buckets if few else ''}SELECT r.time, s.id, {_NAMES}, {sums} FROM {tables} "
        f"WHERE r.series = s.id AND {range_} AND {chosen} ORDER BY r.time, r.series LIMIT :limit"
    )


def points_of_unrolled(chosen: str, columns: Sequence[Column], *, millis: int) -> str:
    """The points of analyses that are not rolled up yet, in the same form; `millis` is the length of a bucket."""
    return (
        f"SELECT CAST(a.time / {millis} AS integer), s.id, {_NAMES}, {', '.join(map(aggregate, columns))} "
        "FROM history_analyses a JOIN history_results r ON r.analysis = a.id JOIN history_series s ON s.id = r.series "
        f"WHERE a.rolled = 0 AND a.time >= :begin AND a.time < :end AND {chosen} "
        "GROUP BY 1, 2 ORDER BY 1, 2 LIMIT :limit"  # the names follow from the id, which is the primary key
    )
