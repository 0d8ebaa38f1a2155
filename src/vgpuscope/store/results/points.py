"""Stored numbers → points of the history, according to the descriptions of their columns."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from vgpuscope.model.history import STEP_SECONDS, HistoryPoint, Step
from vgpuscope.model.quantity import UnixTime
from vgpuscope.store.encoding import CLASS_CODES, STATUS_CODES, TIME, VERDICT_CODES, Millis
from vgpuscope.store.engine.database import Values
from vgpuscope.store.results.columns import (
    ROLLUP,
    Column,
    ResultSubject,
    StoredResult,
    SubjectDetails,
    Sums,
    joined,
)

NAMES = (*ResultSubject._fields, *SubjectDetails._fields)
_Reader: TypeAlias = Callable[[Sequence[Any]], Any]
_ROLLUP = {column.name: column for column in ROLLUP}


def _mean(at: int, count_at: int, column: Column) -> _Reader:
    def mean(sums: Sequence[Any]) -> float | None:
        count = sums[count_at]
        return sums[at] / count / column.scale if count else None

    def whole(sums: Sequence[Any]) -> int | None:
        count = sums[count_at]
        return round(sums[at] / count) if count else None

    return whole if column.whole else mean


def _number(at: int, scale: int) -> _Reader:
    if scale == 1:
        return lambda values: values[at]
    return lambda values: None if values[at] is None else values[at] / scale


def _of_sums(column: Column, places: Mapping[str, int]) -> _Reader:
    """Reads the field of a column; a mean is that over time, or in older rows that over analyses."""
    at = places[column.name]
    if not column.over:
        return _number(at, column.scale)
    over_analyses = _mean(at, places[column.over], column)
    if not column.unless:
        return over_analyses
    integral, scale, whole = _ROLLUP[column.unless], column.scale, column.whole
    integral_at, seconds_at, less = places[integral.name], places[integral.over], integral.less

    def over_time(sums: Sequence[Any]) -> Any:
        if not sums[seconds_at]:
            return over_analyses(sums)
        value = sums[integral_at] * less / sums[seconds_at] / scale
        return round(value) if whole else value

    return over_time


_NUMBERS = [column for column in ROLLUP if column.field and not column.word]
# A single analysis is its own mean, minimum and maximum. No function calls per field: one read may return 100,000 rows.
_ROW_VALUES = [
    (column.field, StoredResult._fields.index(column.of), column.scale)
    for column in _NUMBERS
    if column.kind in {"sum", "integral", "spent", "part", "total", "min", "max"}
]
_ROW_COUNTS = [(column.field, StoredResult._fields.index(column.of)) for column in _NUMBERS if column.kind == "count"]
_ROW_ITSELF = {column.field: 1 for column in _NUMBERS if column.kind == "rows"}
_ROW_MEASURED = [(one.field, StoredResult._fields.index(one.of)) for one in _NUMBERS if one.kind == "measured"]


def point_of_row(time: Millis, stands_from: Millis, names: Sequence[str], row: StoredResult) -> HistoryPoint:
    """The point of one analysis, which stands for the time between; `names` are the values of NAMES."""
    found: dict[str, Any] = dict(zip(NAMES, names, strict=True)) | _ROW_ITSELF
    for field, at, scale in _ROW_VALUES:
        value = row[at]
        found[field] = value if value is None or scale == 1 else value / scale
    for field, at in _ROW_COUNTS:
        found[field] = 0 if row[at] is None else 1
    status, verdict, use_class = STATUS_CODES[row.status], VERDICT_CODES[row.verdict], CLASS_CODES[row.use_class]
    seconds = row.seconds / TIME
    for field, at in _ROW_MEASURED:
        found[field] = 0.0 if row[at] is None else seconds
    return HistoryPoint(
        step="analysis",
        time=time / TIME,
        analysis_seconds=(time - stands_from) / TIME,
        by_status={status: seconds},
        by_verdict={verdict: seconds},
        by_class={use_class: seconds},
        status=status,
        verdict=verdict,
        use_class=use_class,
        **found,
    )


def points_of_rows(found: Iterable[Values]) -> list[HistoryPoint]:
    """The points for the rows of statements.points_of_analyses."""
    count = len(NAMES)
    return [
        point_of_row(time, stands_from, rest[:count], StoredResult(*rest[count:]))
        for time, _, _, stands_from, *rest in found
    ]


Part: TypeAlias = tuple[int, int, Sequence[str], Sums]  # bucket, series, names and sums


def joined_parts(found: Iterable[Values], columns: Sequence[Column] = ROLLUP) -> list[Part]:
    """The rows of points_of_rollup and points_of_unrolled of statements in their order; parts of one bucket as one."""
    parts: dict[tuple[int, int], tuple[Sequence[str], Sums]] = {}
    count = len(NAMES)
    for time, series, *rest in found:
        sums, known = rest[count:], parts.get((time, series))
        parts[time, series] = rest[:count], joined(columns, known[1], sums) if known else sums
    return [(*key, *parts[key]) for key in sorted(parts)]


def points_of_parts(step: Step, parts: Iterable[Part], columns: Sequence[Column] = ROLLUP) -> list[HistoryPoint]:
    """The points of hours or days, with the fields that these columns show."""
    long, point = STEP_SECONDS[step], SumsReader(columns).point
    return [point(step, float(time * long), names, sums) for time, _, names, sums in parts]


class SumsReader:
    """Makes points of the sums of some columns."""

    def __init__(self, columns: Sequence[Column]) -> None:
        places = {column.name: place for place, column in enumerate(columns)}
        self._numbers = [(one.field, _of_sums(one, places)) for one in columns if one.field and not one.word]
        self._words: dict[str, list[tuple[str, int]]] = {}
        for column in columns:
            if column.word:
                self._words.setdefault(column.field, []).append((column.word, places[column.name]))

    def point(self, step: Step, time: UnixTime, names: Sequence[str], sums: Sums) -> HistoryPoint:
        """The point of all analyses in an hour or day."""
        found: dict[str, Any] = dict(zip(NAMES, names, strict=True))
        for field, read in self._numbers:
            found[field] = read(sums)
        for field, words in self._words.items():
            found[field] = {word: part / TIME for word, at in words if (part := sums[at])}
        return HistoryPoint(step=step, time=time, **found)
