"""All checks of the auditor, and what they make of what was read."""

import contextlib
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from vgpuscope.logic.audit import engine, history, laws, same, scope, statements, stored, tenants, waste
from vgpuscope.model.consistency import FigureComparison, Surfaces, Uncompared


class AuditCheck(Struct, frozen=True):
    """One rule. The text of its code is in `views/audit/words.py`."""

    code: str
    compare: Callable[[Surfaces], Iterable[FigureComparison]]


CHECKS: tuple[AuditCheck, ...] = (
    AuditCheck("same", same.same_figures),
    AuditCheck("rows", same.rows_counted),
    AuditCheck("sums", laws.sums),
    AuditCheck("divisions", laws.divisions),
    AuditCheck("parts", laws.parts_of_wholes),
    AuditCheck("parts", tenants.together),
    AuditCheck("narrowed", laws.narrowed),
    AuditCheck("scope", scope.only_own_names),
    AuditCheck("scope", scope.only_own_hours),
    AuditCheck("waste-hours", waste.hours),
    AuditCheck("waste-rows", waste.rows),
    AuditCheck("waste-groups", waste.groups),
    AuditCheck("waste-groups", waste.day_of_namespaces),
    AuditCheck("steps", history.steps),
    AuditCheck("steps", history.means_and_peaks),
    AuditCheck("steps", engine.steps_of_engine),
    AuditCheck("energies", history.energies),
    AuditCheck("energies", engine.energies_of_engine),
    AuditCheck("energies", history.energy_of_power),
    AuditCheck("classes", history.classes),
    AuditCheck("classes", history.classes_of_hours),
    AuditCheck("classes", history.groups_of_classes),
    AuditCheck("chart-parts", history.part_of_fleet),
    AuditCheck("chart-tile", history.chart_and_tile),
    AuditCheck("stored", stored.shown_and_stored),
    AuditCheck("stored", stored.hours_of_analyses),
    AuditCheck("stored", stored.peaks_of_charts),
    AuditCheck("seconds", history.stored_seconds),
    AuditCheck("fits", statements.fits),
    AuditCheck("ruled-out", statements.ruled_out),
    AuditCheck("doctors", statements.doctors),
    AuditCheck("attempts", statements.attempts),
    AuditCheck("cases", statements.cases),
    AuditCheck("low", statements.low_rows),
    AuditCheck("populations", statements.populations),
)
CODES: tuple[str, ...] = tuple(dict.fromkeys(check.code for check in CHECKS))


def comparisons(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """Every comparison that these answers allow. Of answers of another shape, such as of another version, fewer."""
    for check in CHECKS:
        with contextlib.suppress(KeyError, TypeError, IndexError):
            yield from check.compare(surfaces)


def uncompared(surfaces: Surfaces) -> Iterator[Uncompared]:
    """What the checks leave undecided."""
    for undecided in (engine.uncompared, statements.uncompared):
        with contextlib.suppress(KeyError, TypeError, IndexError):
            yield from undecided(surfaces)


def holds(comparison: FigureComparison) -> bool:
    """Whether two numbers obey the rule that joins them."""
    first, second = comparison.first.value, comparison.second.value
    slack = comparison.tolerance + 1e-9
    if comparison.rule == "at_most":
        return first <= second + slack
    return abs(first - second) <= slack
