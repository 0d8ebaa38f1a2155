"""The columns of the results' tables, each described once. Schema, SQL and points follow from the descriptions.

Stored numbers are integers. Their sums are exact in any order, so a roll-up does not depend on when its parts arrive.
Scores are stored to 1/1000 of a point, ratios to 1/10000, times to a millisecond, power to a milliwatt.
"""

from collections.abc import Sequence
from functools import cache
from types import NoneType
from typing import Annotated, Literal, NamedTuple, TypeAlias, get_args, get_type_hints

from vgpuscope.store.encoding import CLASS_CODES, STATUS_CODES, TIME, VERDICT_CODES, Millis

SCORE, RATIO, POWER = 1000, 10_000, 1000  # divisors of stored integers; TIME is another
# Quantities that are added up over GPUs. An analysis records as a set of bits which of them it has of any GPU; so
# never reorder them, and add new ones at the end, with a migration.
SUMMED = ("memory_used", "memory_allocated", "power")


class ResultSubject(NamedTuple):
    """The subject of a row: a GPU or MIG instance, or, with namespace and pod, the pod's part of it."""

    gpu_id: str
    mig: str
    namespace: str = ""
    pod: str = ""


class SubjectDetails(NamedTuple):
    """Further properties of the GPU or pod; a later analysis may know more of them."""

    hostname: str
    model: str
    owner: str = ""
    gpu_instance: str = ""  # of a MIG instance; added by migration 6


class SqlType(NamedTuple):
    """The type of a column; a field that can be None can be NULL."""

    name: str
    since: int = 1  # the migration that adds the column


Code: TypeAlias = Annotated[int, SqlType("{small}")]  # of a word
Duration: TypeAlias = Annotated[Millis, SqlType("integer")]
Number: TypeAlias = Annotated[int | None, SqlType("integer")]
Large: TypeAlias = Annotated[int | None, SqlType("bigint")]
Number3: TypeAlias = Annotated[int | None, SqlType("integer", since=3)]
Large3: TypeAlias = Annotated[int | None, SqlType("bigint", since=3)]
Number7: TypeAlias = Annotated[int | None, SqlType("integer", since=7)]
Large8: TypeAlias = Annotated[int | None, SqlType("bigint", since=8)]


class StoredResult(NamedTuple):
    """The result of one analysis for one GPU or pod: the columns of history_results after the two keys."""

    score: Number
    status: Code
    verdict: Code
    use_class: Code
    util: Number
    util_max: Number
    memory_used: Large
    coverage: Number
    seconds: Duration
    held: Duration
    power: Number3 = None
    power_max: Number3 = None
    energy: Large3 = None  # millijoules
    memory_allocated: Large3 = None
    cores_allocated: Number3 = None  # percent of one GPU
    share: Number7 = None  # of the GPU, for a pod whose memory limit is known
    memory_max: Large8 = None  # the highest sample in the window; not known of older analyses


class ResultColumn(NamedTuple):
    """One column of history_results."""

    name: str
    type: str
    optional: bool  # NULL if it was not measured
    since: int


def _result_columns() -> tuple[ResultColumn, ...]:
    found = []
    for name, hint in get_type_hints(StoredResult, include_extras=True).items():
        value, sql = get_args(hint)
        found.append(ResultColumn(name, sql.name, NoneType in get_args(value), sql.since))
    return tuple(found)


RESULT: tuple[ResultColumn, ...] = _result_columns()


# An analysis is divided among the hours that it stands for. Of an analysis in an hour:
# rows, count: 1, if the analysis ends there; count: only with a value
# sum: the value, if the analysis ends there
# spent: the time; time: the time, if the row has this code; measured: the time, if there is a value
# integral: the value times the time
# part: the part of a number that stands for the whole analysis; total: the same, NULL if nothing was measured
# min, max: the value
Kind: TypeAlias = Literal[
    "rows", "count", "sum", "spent", "time", "measured", "integral", "part", "total", "min", "max"
]
Sums: TypeAlias = Sequence[int | None]  # a stored roll-up: one value for each column that was read


class Column(NamedTuple):
    """One column of the roll-ups (history_hours and history_days), and the field of HistoryPoint that shows it."""

    name: str
    kind: Kind
    of: str  # the column of StoredResult that it is computed from
    type: str = "integer"
    code: int = 0  # code of the word; for kind "time" only
    word: str = ""
    field: str = ""  # field of HistoryPoint; a field with words is a dictionary. Empty: no field shows the column
    scale: int = 1
    over: str = ""  # the column with the number of values or the time measured; if set, the field is the mean
    unless: str = ""  # the integral that the field is computed from; this column is for older rows without it
    less: int = 1  # divisor of an integral, so that it fits into 64 bits
    whole: bool = False  # whether the mean is rounded to a whole number
    since: int = 1  # the migration that adds the column

    @property
    def optional(self) -> bool:
        """Whether the column is NULL if nothing was measured; sums and counts are 0 then."""
        return self.kind in {"total", "min", "max"}


def _times(prefix: str, of: str, words: Sequence[str], *, added: dict[str, int] | None = None) -> tuple[Column, ...]:
    """One column for each word: the time spent in that state."""
    return tuple(
        Column(
            f"{prefix}_{word.replace('-', '_')}",
            "time",
            of,
            code=code,
            word=word,
            field=f"by_{prefix}",
            scale=TIME,
            since=(added or {}).get(word, 1),
        )
        for code, word in enumerate(words)
    )


def _weighted(name: str, of: str, *, less: int = 1) -> tuple[Column, Column]:
    """The integral of a value over time, and the time in which it was measured."""
    return (
        Column(f"{name}_integral", "integral", of, "bigint", over=f"{name}_seconds", less=less, since=5),
        Column(f"{name}_seconds", "measured", of, field=f"{name}_seconds", scale=TIME, since=5),
    )


ROLLUP: tuple[Column, ...] = (
    Column("samples", "rows", "", field="samples"),
    Column("scored", "count", "score", field="scored"),
    Column("score_sum", "sum", "score", "bigint", field="score", scale=SCORE, over="scored", unless="score_integral"),
    Column("score_min", "min", "score", field="score_min", scale=SCORE),
    Column("score_max", "max", "score", field="score_max", scale=SCORE),
    Column("util_samples", "count", "util", field="util_samples"),
    Column("util_sum", "sum", "util", "bigint", field="util", scale=RATIO, over="util_samples", unless="util_integral"),
    Column("util_max", "max", "util_max", field="util_max", scale=RATIO),
    Column("memory_samples", "count", "memory_used", field="memory_samples"),
    Column(
        "memory_sum",
        "sum",
        "memory_used",
        "bigint",
        field="memory_used",
        over="memory_samples",
        unless="memory_integral",
        whole=True,
    ),
    Column("memory_max", "max", "memory_max", "bigint", field="memory_max"),
    Column("coverage_samples", "count", "coverage", field="coverage_samples"),
    Column("coverage_sum", "sum", "coverage", "bigint", field="coverage", scale=RATIO, over="coverage_samples"),
    Column("seconds", "spent", "seconds", field="seconds", scale=TIME),
    Column("held", "part", "held", field="held_seconds", scale=TIME),
    *_times("status", "status", STATUS_CODES),
    *_times("verdict", "verdict", VERDICT_CODES),
    *_times("class", "use_class", CLASS_CODES, added={"stalled": 2, "not-started": 2, "idle-preparing": 4}),
    Column("power_samples", "count", "power", field="power_samples", since=3),
    Column(
        "power_sum",
        "sum",
        "power",
        "bigint",
        field="power",
        scale=POWER,
        over="power_samples",
        unless="power_integral",
        since=3,
    ),
    Column("power_max", "max", "power_max", field="power_max", scale=POWER, since=3),
    Column("energy", "total", "energy", "bigint", field="energy", scale=POWER, since=3),
    Column("allocated_samples", "count", "memory_allocated", field="allocated_samples", since=3),
    Column(
        "allocated_sum",
        "sum",
        "memory_allocated",
        "bigint",
        field="memory_allocated",
        over="allocated_samples",
        unless="allocated_integral",
        whole=True,
        since=3,
    ),
    Column("cores_samples", "count", "cores_allocated", field="cores_samples", since=3),
    Column(
        "cores_sum",
        "sum",
        "cores_allocated",
        "bigint",
        field="cores_allocated",
        over="cores_samples",
        unless="cores_integral",
        since=3,
    ),
    *_weighted("score", "score"),
    *_weighted("util", "util"),
    *_weighted("memory", "memory_used", less=1000),
    *_weighted("power", "power"),
    *_weighted("allocated", "memory_allocated", less=1000),
    *_weighted("cores", "cores_allocated"),
    Column("share_integral", "integral", "share", "bigint", field="share", scale=RATIO, over="share_seconds", since=7),
    Column("share_seconds", "measured", "share", since=7),
)


@cache
def showing(fields: frozenset[str]) -> tuple[Column, ...]:
    """The columns that some fields of HistoryPoint are read from; those of all fields if none is given.

    ValueError if no column shows a field.
    """
    if unknown := fields - {column.field for column in ROLLUP}:
        raise ValueError(f"no column of the roll-ups shows {', '.join(sorted(unknown))}")
    shown = [column for column in ROLLUP if column.field and (not fields or column.field in fields)]
    integrals = [column for column in ROLLUP if column.name in {one.unless for one in shown}]
    behind = {name for column in (*shown, *integrals) for name in (column.over, column.unless)}
    return tuple(column for column in ROLLUP if column in shown or column.name in behind)


def aggregate(column: Column) -> str:
    """The column as SQL, over pieces `r` of rows. PostgreSQL sums bigints to numeric, so all are cast back."""
    of = f"r.{column.of}"
    expressions: dict[Kind, str] = {
        "rows": "sum(r.ends)",
        "count": f"sum(CASE WHEN {of} IS NULL THEN 0 ELSE r.ends END)",
        "sum": f"coalesce(sum({of} * r.ends), 0)",
        "spent": "sum(r.spent)",
        "time": f"sum(CASE WHEN {of} = {column.code} THEN r.spent ELSE 0 END)",
        "measured": f"sum(CASE WHEN {of} IS NULL THEN 0 ELSE r.spent END)",
        "integral": f"coalesce(sum({_integral(of, less=column.less)}), 0)",
        "part": f"sum({_part(of)})",
        "total": f"sum({_part(of)})",
        "min": f"min({of})",
        "max": f"max({of})",
    }
    return f"CAST({expressions[column.kind]} AS bigint)"


def _integral(of: str, *, less: int) -> str:
    if less == 1:
        return f"{of} * r.spent"
    return f"CAST(round({of} * 1.0 * r.spent / {less}) AS bigint)"  # the product of integers can be too large


def _part(of: str) -> str:
    """The part of a number in a piece of an analysis; the parts of all pieces add up to the number exactly."""
    reached, passed = (f"CAST(round({of} * 1.0 * {time} / r.seconds) AS bigint)" for time in ("r.reached", "r.passed"))
    return f"CASE WHEN r.seconds = 0 THEN {of} * r.ends ELSE {reached} - {passed} END"


def joined_sql(column: Column, table: str) -> str:
    """SQL for ON CONFLICT DO UPDATE that merges a new part of a roll-up with the stored one."""
    old, new = f"{table}.{column.name}", f"excluded.{column.name}"
    if column.kind == "total":
        return f"CASE WHEN {old} IS NULL THEN {new} WHEN {new} IS NULL THEN {old} ELSE {old} + {new} END"
    if column.kind in {"min", "max"}:
        better = "<" if column.kind == "min" else ">"
        return f"CASE WHEN {old} IS NULL OR {new} {better} {old} THEN {new} ELSE {old} END"
    return f"{old} + {new}"


def joined(columns: Sequence[Column], one: Sums, other: Sums) -> Sums:
    """Merges two parts of a roll-up of which these columns were read."""
    return [_joined(column, a, b) for column, a, b in zip(columns, one, other, strict=True)]


def _joined(column: Column, a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b) if column.kind == "min" else max(a, b) if column.kind == "max" else a + b
