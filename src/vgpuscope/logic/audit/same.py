"""Every two places of one figure and one subject show the same number."""

from collections import Counter
from collections.abc import Iterator

from vgpuscope.catalog.figures import BY_CODE
from vgpuscope.logic.audit.counting import counted
from vgpuscope.model.consistency import Comparison, Reading, Surfaces

_NARROWED = frozenset({"fleet", "node", "waste", "capacity"})  # subjects that another scope changes
_OTHERS = "gpu.others"  # tenants of other namespaces than those of the caller or of the view
_AGES = frozenset(  # they grow while answers are read
    {
        *("waited", "longest_wait", "age", "sample_age", "decision_age", "watch_age", "lease_age", "idle_seconds"),
        *("last_kernel_age", "read_duration", "sample_duration", "checks_duration", "duration"),
    }
)


def same_figures(surfaces: Surfaces) -> Iterator[Comparison]:
    """Places that show one figure are compared with the number that most of them show."""
    yield from _compared(surfaces.readings, check="same")


def rows_counted(surfaces: Surfaces) -> Iterator[Comparison]:
    """A count that is shown is the number of rows that are listed."""
    groups: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[Reading]] = {}
    for reading in surfaces.readings:
        groups.setdefault(_key(reading), []).append(reading)
    for reading in counted(surfaces.answers):
        for shown in _one_of_each_value(groups.get(_key(reading), [])):
            if _together(shown, reading):
                yield _equal("rows", shown, reading)


def _compared(readings: tuple[Reading, ...], *, check: str) -> Iterator[Comparison]:
    groups: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[Reading]] = {}
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


def _equal(check: str, first: Reading, second: Reading) -> Comparison:
    return Comparison(
        check=check,
        subject="/".join(part for part in first.subject if part),
        first=first,
        second=second,
        rule="equal",
        tolerance=first.margin + second.margin,
    )


def _key(reading: Reading) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    narrowed = BY_CODE[reading.figure].subject in _NARROWED or reading.figure.startswith(_OTHERS)
    scope = reading.scope if narrowed else ()
    return reading.figure, reading.subject, scope


def _one_of_each_value(readings: list[Reading]) -> list[Reading]:
    """Places that show the same number are compared with each other, so one of them is enough here."""
    found: dict[tuple[float, str], Reading] = {}
    for reading in readings:
        found.setdefault((reading.value, reading.moment), reading)
    return list(found.values())


def _together(first: Reading, second: Reading) -> bool:
    return not first.moment or not second.moment or first.moment == second.moment
