"""All checks of the auditor, and what they make of what was read."""

import contextlib
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from vgpuscope.logic.audit import history, laws, same, statements, waste
from vgpuscope.model.consistency import Comparison, Surfaces


class Check(Struct, frozen=True):
    """One rule. The text of its code is in `views/audit/words.py`."""

    code: str
    compare: Callable[[Surfaces], Iterable[Comparison]]


CHECKS: tuple[Check, ...] = (
    Check("same", same.same_figures),
    Check("rows", same.rows_counted),
    Check("sums", laws.sums),
    Check("divisions", laws.divisions),
    Check("parts", laws.parts_of_wholes),
    Check("narrowed", laws.narrowed),
    Check("waste-hours", waste.hours),
    Check("waste-rows", waste.rows),
    Check("waste-groups", waste.groups),
    Check("waste-groups", waste.day_of_namespaces),
    Check("steps", history.steps),
    Check("energies", history.energies),
    Check("classes", history.classes),
    Check("chart-parts", history.part_of_fleet),
    Check("chart-tile", history.chart_and_tile),
    Check("seconds", history.stored_seconds),
    Check("fits", statements.fits),
    Check("ruled-out", statements.ruled_out),
    Check("doctors", statements.doctors),
    Check("cases", statements.cases),
    Check("populations", statements.populations),
)
CODES: tuple[str, ...] = tuple(dict.fromkeys(check.code for check in CHECKS))


def comparisons(surfaces: Surfaces) -> Iterator[Comparison]:
    """Every comparison that these answers allow. Of answers of another shape, such as of another version, fewer."""
    for check in CHECKS:
        with contextlib.suppress(KeyError, TypeError, IndexError):
            yield from check.compare(surfaces)


def holds(comparison: Comparison) -> bool:
    """Whether two numbers obey the rule that joins them."""
    first, second = comparison.first.value, comparison.second.value
    slack = comparison.tolerance + 1e-9
    if comparison.rule == "at_most":
        return first <= second + slack
    return abs(first - second) <= slack
