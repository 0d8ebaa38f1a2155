"""The columns of the results' tables, each described once. Schema, SQL and points follow from the descriptions.

Stored numbers are integers: sums of them are exact in every order, so a roll-up is the same however late its parts
come. Scores are kept to 1/1000 of a point, ratios to 1/10000, times to a millisecond.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from vgpuscope.model.analysis import Status, UseClass, Verdict

Millis: TypeAlias = int
SCORE, RATIO, TIME = 1000, 10_000, 1000  # what a stored integer is divided by

# A word is stored as its place in these. Never reorder them; new words go to the end, with a migration.
STATUS_CODES: tuple[Status, ...] = ("idle", "low", "normal", "high", "unknown")
VERDICT_CODES: tuple[Verdict, ...] = ("in_use", "idle", "unknown")
CLASS_CODES: tuple[UseClass, ...] = (
    "busy",
    "busy-unproductive",
    "low",
    "idle",
    "idle-held",
    "unknown",
    "stalled",
    "not-started",
)


class Name(NamedTuple):
    """What a row is about: a GPU or MIG instance, or with namespace and pod the part that this pod has of it."""

    gpu_id: str
    mig: str
    namespace: str = ""
    pod: str = ""


class About(NamedTuple):
    """What else is known of it; a later analysis may know more."""

    hostname: str
    model: str
    owner: str = ""


class Row(NamedTuple):
    """What one analysis says of one GPU or pod: the columns of history_results after the two keys."""

    score: int | None
    status: int
    verdict: int
    use_class: int
    util: int | None
    util_max: int | None
    memory_used: int | None
    coverage: int | None
    seconds: Millis
    held: Millis


# rows: how many rows; count: how many of them have a value; time: the seconds of the rows that have this code
Kind: TypeAlias = Literal["rows", "count", "sum", "min", "max", "time"]
Sums: TypeAlias = Sequence[int | None]  # a stored roll-up: one value for each column of ROLLUP


class Column(NamedTuple):
    """One column of the roll-ups (history_hours and history_days), and the field of HistoryPoint that shows it."""

    name: str
    kind: Kind
    of: str  # the column of Row that it is computed from
    type: str = "integer"
    code: int = 0  # of a word; kind "time" only
    word: str = ""
    field: str = ""  # of HistoryPoint; a field with words is a dictionary. Empty: the column is shown by no field
    scale: int = 1
    over: str = ""  # the column that holds the number of values; the field is the mean then
    whole: bool = False  # whether the mean is rounded to a whole number
    since: int = 1  # the migration that adds the column

    @property
    def optional(self) -> bool:
        """Whether it is NULL where nothing was measured; sums and counts are 0 then."""
        return self.kind in {"min", "max"}


def _times(prefix: str, of: str, words: Sequence[str], *, added: dict[str, int] | None = None) -> tuple[Column, ...]:
    """One column for each word: the time that was spent in it."""
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


ROLLUP: tuple[Column, ...] = (
    Column("samples", "rows", "", field="samples"),
    Column("scored", "count", "score", field="scored"),
    Column("score_sum", "sum", "score", "bigint", field="score", scale=SCORE, over="scored"),
    Column("score_min", "min", "score", field="score_min", scale=SCORE),
    Column("score_max", "max", "score", field="score_max", scale=SCORE),
    Column("util_samples", "count", "util", field="util_samples"),
    Column("util_sum", "sum", "util", "bigint", field="util", scale=RATIO, over="util_samples"),
    Column("util_max", "max", "util_max", field="util_max", scale=RATIO),
    Column("memory_samples", "count", "memory_used", field="memory_samples"),
    Column("memory_sum", "sum", "memory_used", "bigint", field="memory_used", over="memory_samples", whole=True),
    Column("memory_max", "max", "memory_used", "bigint", field="memory_max"),
    Column("coverage_samples", "count", "coverage", field="coverage_samples"),
    Column("coverage_sum", "sum", "coverage", "bigint", field="coverage", scale=RATIO, over="coverage_samples"),
    Column("seconds", "sum", "seconds", field="seconds", scale=TIME),
    Column("held", "sum", "held", field="held_seconds", scale=TIME),
    *_times("status", "status", STATUS_CODES),
    *_times("verdict", "verdict", VERDICT_CODES),
    *_times("class", "use_class", CLASS_CODES, added={"stalled": 2, "not-started": 2}),
)


def aggregate(column: Column) -> str:
    """The column as SQL, over rows `r` of history_results. PostgreSQL sums bigints to numeric, so all are cast back."""
    expressions: dict[Kind, str] = {
        "rows": "count(*)",
        "count": f"count(r.{column.of})",
        "sum": f"coalesce(sum(r.{column.of}), 0)",
        "min": f"min(r.{column.of})",
        "max": f"max(r.{column.of})",
        "time": f"sum(CASE WHEN r.{column.of} = {column.code} THEN r.seconds ELSE 0 END)",
    }
    return f"CAST({expressions[column.kind]} AS bigint)"


def joined_sql(column: Column, table: str) -> str:
    """A new part of a roll-up joined with the stored one, as SQL of ON CONFLICT DO UPDATE."""
    old, new = f"{table}.{column.name}", f"excluded.{column.name}"
    if column.kind in {"min", "max"}:
        better = "<" if column.kind == "min" else ">"
        return f"CASE WHEN {old} IS NULL OR {new} {better} {old} THEN {new} ELSE {old} END"
    return f"{old} + {new}"


def joined(one: Sums, other: Sums) -> Sums:
    """The same for two parts that were read."""
    return [_joined(column, a, b) for column, a, b in zip(ROLLUP, one, other, strict=True)]


def _joined(column: Column, a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b) if column.kind == "min" else max(a, b) if column.kind == "max" else a + b
