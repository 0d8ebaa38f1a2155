"""The SQL statements for the results' tables; parameters are :named, results are integers."""

from collections.abc import Sequence

from vgpuscope.store.engine.database import Upsert
from vgpuscope.store.results.columns import (
    ROLLUP,
    SUMMED,
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
COUNT_RESULTS = "UPDATE history_analyses SET stored = :stored, measured = :measured WHERE id = :id"
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

# An analysis that ends at a full hour belongs to the hour before it.
OLDEST_UNROLLED = "SELECT min(time) FROM history_analyses WHERE rolled = 0 AND time <= :until"
UNROLLED = (
    "SELECT id, stored, stands_from FROM history_analyses "
    "WHERE rolled = 0 AND time > :begin AND time <= :end ORDER BY time, id"
)
# An analysis that stands for no time belongs to the hour in which it ends.
REACH_OF_UNROLLED = (
    "SELECT min(CASE WHEN stands_from < time THEN stands_from ELSE time - 1 END), max(time) "
    "FROM history_analyses WHERE rolled = 0"
)


def _over(moment: str, *, row: str, analysis: str) -> str:
    """The milliseconds of a row that are over at a moment.

    When in its analysis a pod held the GPU is not stored, so its time is spread over all that the analysis stands for.
    """
    begin, end = f"{analysis}.stands_from", f"{analysis}.time"
    share = f"{row}.seconds * 1.0 * ({moment} - {begin}) / ({end} - {begin})"
    return (
        f"CASE WHEN {moment} >= {end} THEN {row}.seconds WHEN {moment} <= {begin} THEN 0 "
        f"ELSE CAST(round({share}) AS bigint) END"
    )


def pieces(tables: str, chosen: str, *, bucket: str, millis: int) -> str:
    """The rows of analyses `a`, as far as they belong to a bucket.

    ends: 1 in the bucket in which the analysis ends, else 0; passed, reached: milliseconds of the row that are over
    when the piece begins and ends; spent: the milliseconds between.
    """
    begin, end = _bounds(bucket, millis)
    passed, reached = (_over(moment, row="r", analysis="a") for moment in (begin, end))
    inner = (
        f"SELECT {bucket} AS bucket, r.*, {passed} AS passed, {reached} AS reached, "
        f"CASE WHEN a.time <= {end} THEN 1 ELSE 0 END AS ends FROM {tables} "
        f"WHERE r.analysis = a.id AND a.time > {begin} AND (a.time <= {end} OR a.stands_from < {end}) AND {chosen}"
    )
    return f"(SELECT p.*, p.reached - p.passed AS spent FROM ({inner}) p WHERE p.ends = 1 OR p.reached > p.passed) r"


def _bounds(bucket: str, millis: int) -> tuple[str, str]:
    return f"CAST({bucket} AS bigint) * {millis}", f"(CAST({bucket} AS bigint) + 1) * {millis}"


def add_to_rollup(table: Rollup, *, analyses: str, millis: int) -> str:
    """Add what these analyses say of :bucket to the roll-up; the caller marks them in the same transaction.

    `millis` is the length of a bucket.
    """
    columns = ", ".join(column.name for column in ROLLUP)
    joined = ", ".join(f"{column.name} = {joined_sql(column, table)}" for column in ROLLUP)
    within = pieces(
        "history_analyses a CROSS JOIN history_results r",
        f"a.id IN ({analyses})",
        bucket="CAST(:bucket AS integer)",
        millis=millis,
    )
    return (
        f"INSERT INTO {table} (time, series, {columns}) "
        f"SELECT r.bucket, r.series, {_AGGREGATED} FROM {within} WHERE true GROUP BY r.bucket, r.series "
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


AFTER_UNROLLED = "(b.time, s.id) > (:after_time, :after_series)"


def points_of_analyses(chosen: str, *, few: bool) -> str:
    tables = (
        "history_series s CROSS JOIN history_analyses a CROSS JOIN history_results r"
        if few
        else "history_analyses a CROSS JOIN history_results r CROSS JOIN history_series s"
    )
    return (
        f"SELECT a.time, a.id, s.id, a.stands_from, {_NAMES}, {_ROW} FROM {tables} "
        f"WHERE r.analysis = a.id AND r.series = s.id "
        f"AND a.time >= :begin AND a.time < :end AND {chosen} ORDER BY a.time, a.id, r.series LIMIT :limit"
    )


def gpus_with_tenants(namespaces: Sequence[str]) -> str:
    """The GPUs on which these namespaces ever had a pod; the names are the parameters tenants_0 and so on."""
    return _shared(namespaces, "", "")


def tenants_in_analysis(namespaces: Sequence[str]) -> str:
    """Whether one of these namespaces had a pod on the GPU of `s` in the analysis `a`."""
    return _shared(namespaces, "CROSS JOIN history_results h", "AND h.series = o.id AND h.analysis = a.id")


def tenants_in_bucket(namespaces: Sequence[str], table: Rollup, *, bucket: str, millis: int) -> str:
    """Whether one of them had a pod on it in this hour or day, be it rolled up or not."""
    begin, end = _bounds(bucket, millis)
    passed, reached = (_over(moment, row="h", analysis="w") for moment in (begin, end))
    rolled = _shared(namespaces, f"CROSS JOIN {table} h", f"AND h.series = o.id AND h.time = {bucket}")
    unrolled = _shared(
        namespaces,
        "CROSS JOIN history_analyses w CROSS JOIN history_results h",
        "AND h.series = o.id AND h.analysis = w.id AND w.rolled = 0 "
        f"AND w.time > {begin} AND (w.time <= {end} OR w.stands_from < {end} AND {reached} > {passed})",
    )
    return f"({rolled} OR {unrolled})"


def _shared(namespaces: Sequence[str], tables: str, when: str) -> str:
    names = ", ".join(f":tenants_{number}" for number in range(len(namespaces)))
    return (
        f"EXISTS (SELECT 1 FROM history_series o {tables} WHERE o.gpu_id = s.gpu_id AND o.mig = s.mig "
        f"AND o.namespace <> '' AND o.namespace IN ({names}) {when})"
    )


_BUCKETS = (
    "WITH RECURSIVE bucket (time) AS (SELECT CAST(:first AS integer) UNION ALL "
    "SELECT time + 1 FROM bucket WHERE time < :last) "
)


def points_of_rollup(table: Rollup, chosen: str, columns: Sequence[Column], *, few: bool) -> str:
    tables, range_ = (
        (f"history_series s CROSS JOIN bucket b CROSS JOIN {table} r", "r.time = b.time")
        if few
        else (f"{table} r CROSS JOIN history_series s", "r.time >= :first AND r.time <= :last")
    )
    sums = ", ".join(f"r.{column.name}" for column in columns)
    return (
        f"{_BUCKETS if few else ''}SELECT r.time, s.id, {_NAMES}, {sums} FROM {tables} "
        f"WHERE r.series = s.id AND {range_} AND {chosen} ORDER BY r.time, r.series LIMIT :limit"
    )


def points_of_unrolled(chosen: str, columns: Sequence[Column], *, few: bool, millis: int) -> str:
    """The points of analyses that are not rolled up yet, in the same form; `millis` is the length of a bucket."""
    tables = (
        "history_series s CROSS JOIN bucket b CROSS JOIN history_analyses a CROSS JOIN history_results r"
        if few
        else "bucket b CROSS JOIN history_analyses a CROSS JOIN history_results r CROSS JOIN history_series s"
    )
    within = pieces(tables, f"a.rolled = 0 AND r.series = s.id AND {chosen}", bucket="b.time", millis=millis)
    sums = ", ".join(f"{aggregate(column)} AS {column.name}" for column in columns)
    return (
        f"{_BUCKETS}SELECT g.bucket, s.id, {_NAMES}, {', '.join(f'g.{column.name}' for column in columns)} FROM "
        f"(SELECT r.bucket, r.series, {sums} FROM {within} GROUP BY r.bucket, r.series) g "
        "JOIN history_series s ON s.id = g.series ORDER BY 1, 2 LIMIT :limit"
    )


# ── the time that analyses stand for ─────────────────────────────────────────────────────────────────────────────

FIRST_FROM = "SELECT time, stands_from FROM history_analyses WHERE time >= :end ORDER BY time LIMIT 1"
LAST_BEFORE = "SELECT max(time) FROM history_analyses WHERE time > :begin AND time < :end"


def covered(*, millis: int, kept: bool) -> tuple[str, str]:
    """The time by the bucket in which an analysis ends; and the analyses that begin in a bucket before it.

    The time is given once for all analyses, and then for the analyses that have each of SUMMED. `kept`: only of
    analyses whose results are still stored.
    """
    begin = f"(time - 1) / {millis} * {millis}"
    chosen = f"FROM history_analyses WHERE time > :begin AND time <= :until{' AND stored > 0' if kept else ''}"
    spent = f"CASE WHEN stands_from < {begin} THEN time - {begin} ELSE time - stands_from END"
    having = [f"CASE WHEN measured & {1 << bit} = 0 THEN 0 ELSE {spent} END" for bit in range(len(SUMMED))]
    sums = ", ".join(f"CAST(sum({one}) AS bigint)" for one in (spent, *having))
    return (
        f"SELECT (time - 1) / {millis}, {sums} {chosen} GROUP BY 1",
        f"SELECT stands_from, time, measured {chosen} AND stands_from < {begin}",
    )
