"""Every two places of one figure and one subject show the same number."""

from collections import Counter
from collections.abc import Iterator

from msgspec import structs

from vgpuscope.catalog.figures import BY_CODE
from vgpuscope.logic.audit.counting import counted
from vgpuscope.model.consistency import STORED, FigureComparison, FigureReading, Surfaces

_NARROWED = frozenset({"fleet", "node", "waste", "capacity"})  # subjects that another scope changes
_OTHERS = "gpu.others"  # tenants of other namespaces than those of the caller or of the view
_AGES = frozenset(  # they grow while answers are read
    {
        *("waited", "longest_wait", "age", "sample_age", "decision_age", "watch_age", "lease_age", "idle_seconds"),
        *("last_kernel_age", "read_duration", "sample_duration", "checks_duration", "duration"),
    }
)


_UNLISTED = {"fleet.gpus": "fleet.gpus_unlisted", "node.gpus": "node.gpus_unlisted"}  # counted, but without a row


def same_figures(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """Places that show one figure are compared with the number that most of them show."""
    yield from _compared(surfaces.readings, check="same")


def rows_counted(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """A count that is shown is the number of rows that are listed."""
    groups: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[FigureReading]] = {}
    for reading in surfaces.readings:
        groups.setdefault(_key(reading), []).append(reading)
    for reading in counted(surfaces.answers):
        without = groups.get((_UNLISTED.get(reading.figure, ""), reading.subject, reading.scope), [])
        more = next((one.value for one in without if _together(one, reading)), 0.0)
        path = f"{reading.path} + gpus_unlisted" if more else reading.path
        number = structs.replace(reading, path=path, value=reading.value + more)
        for shown in _one_of_each_value(groups.get(_key(number), [])):
            if _together(shown, number):
                yield _equal("rows", shown, number)


def _compared(readings: tuple[FigureReading, ...], *, check: str) -> Iterator[FigureComparison]:
    groups: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[FigureReading]] = {}
    for reading in readings:
        groups.setdefault(_key(reading), []).append(reading)
    for (figure, _, _), found in groups.items():
        if len(found) < 2 or BY_CODE[figure].quantity in _AGES:
            continue
        usual = Counter(round(one.value, 6) for one in found).most_common(1)[0][0]
        first = next(one for one in found if round(one.value, 6) == usual)
        for other in found:
            if other is not first and _together(first, other):
                yield _equal(check, first, other)


def _equal(check: str, first: FigureReading, second: FigureReading) -> FigureComparison:
    return FigureComparison(
        check=check,
        subject="/".join(part for part in first.subject if part),
        first=first,
        second=second,
        rule="equal",
        tolerance=first.margin + second.margin + _growth(first, second),
    )


def _growth(first: FigureReading, second: FigureReading) -> float:
    """How far hours can grow between two answers: by analyses that were saved meanwhile."""
    hours = BY_CODE[first.figure].unit == "gpu_hours" and first.moment == STORED and first.surface != second.surface
    return _MINUTE * max(first.value, second.value) + _LEAST if hours else 0.0


_MINUTE = 0.002  # of the hours of a day
_LEAST = 0.05  # GPU-hours


def _key(reading: FigureReading) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    narrowed = BY_CODE[reading.figure].subject in _NARROWED or reading.figure.startswith(_OTHERS)
    scope = reading.scope if narrowed else ()
    return reading.figure, reading.subject, scope


def _one_of_each_value(readings: list[FigureReading]) -> list[FigureReading]:
    """Places that show the same number are compared with each other, so one of them is enough here."""
    found: dict[tuple[float, str], FigureReading] = {}
    for reading in readings:
        found.setdefault((reading.value, reading.moment), reading)
    return list(found.values())


def _together(first: FigureReading, second: FigureReading) -> bool:
    return not first.moment or not second.moment or first.moment == second.moment
