"""Laws between figures, as tables: which are the sum of which, and which can never be larger than which."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from msgspec import Struct, structs

from vgpuscope.catalog.figure import Figure
from vgpuscope.catalog.figures import BY_CODE
from vgpuscope.model.consistency import FigureComparison, FigureReading, Surfaces

# The whole is the sum of the parts in a complete list; counts by class, verdict or code add up key by key.
SUMS: tuple[tuple[str, str], ...] = (
    ("fleet.gpus", "node.gpus"),
    ("fleet.gpus_unlisted", "node.gpus_unlisted"),
    ("fleet.mig_instances", "node.mig_instances"),
    ("fleet.gpus_or_instances", "node.gpus_or_instances"),
    ("fleet.by_class", "node.by_class"),
    ("fleet.tenants", "node.tenants"),
    ("fleet.tenants", "namespace.tenants"),
    ("fleet.tenants_by_class", "namespace.by_class"),
    ("fleet.tenants_by_verdict", "namespace.by_verdict"),
    ("fleet.tenants_idle", "namespace.tenants_idle"),
    ("fleet.tenants_low", "namespace.tenants_low"),
    ("fleet.tenants_unknown", "namespace.tenants_unknown"),
    ("fleet.memory_capacity", "node.memory_capacity"),
    ("fleet.memory_allocated", "node.memory_allocated"),
    ("fleet.memory_allocated", "namespace.memory_allocated"),
    ("fleet.power", "node.power"),
    ("fleet.pending_pods", "namespace.pending_pods"),
    ("fleet.idle_gpu_hours_day", "namespace.idle_gpu_hours_day"),
)
# The whole is the sum of its own parts: every one of what is counted is in one class, verdict, status or state.
DIVISIONS: tuple[tuple[str, str], ...] = (
    ("fleet.gpus_or_instances", "fleet.by_class"),
    ("fleet.gpus_or_instances", "fleet.by_use_class"),
    ("fleet.gpus_or_instances", "fleet.by_verdict"),
    ("fleet.gpus_or_instances", "fleet.by_status"),
    ("fleet.tenants", "fleet.tenants_by_class"),
    ("fleet.tenants", "fleet.tenants_by_verdict"),
    ("fleet.tenants", "fleet.tenants_by_status"),
    ("node.gpus_or_instances", "node.by_class"),
    ("namespace.tenants", "namespace.by_class"),
    ("namespace.tenants", "namespace.by_verdict"),
    ("workload.tenants", "workload.by_class"),
    ("fleet.pending_pods", "fleet.pending_by_reason"),
    ("fleet.cases", "fleet.cases_by_state"),
)
# The first is never larger than the second, of the same subject; a fleet is the whole of nodes and namespaces.
AT_MOST: tuple[tuple[str, str], ...] = (
    ("fleet.gpus_held", "fleet.gpus"),
    ("fleet.gpus_healthy", "fleet.gpus"),
    ("fleet.gpus_divided", "fleet.gpus"),
    ("fleet.gpus_measured", "fleet.gpus"),
    ("fleet.gpus_unlisted", "fleet.gpus"),
    ("fleet.idle_held", "fleet.gpus_or_instances"),
    ("fleet.unknown", "fleet.gpus_or_instances"),
    ("fleet.low", "fleet.gpus_or_instances"),
    ("fleet.scored", "fleet.gpus_or_instances"),
    ("fleet.mig_instances", "fleet.gpus_or_instances"),
    ("fleet.tenants_idle", "fleet.tenants"),
    ("fleet.tenants_low", "fleet.tenants"),
    ("fleet.tenants_unknown", "fleet.tenants"),
    ("namespace.gpus", "fleet.gpus_held"),
    ("namespace.gpus", "namespace.gpus_or_instances"),
    ("namespace.gpus_or_instances", "fleet.gpus_or_instances"),
    ("namespace.tenants", "fleet.tenants"),
    ("namespace.memory_allocated", "fleet.memory_allocated"),
    ("namespace.power", "fleet.power"),
    ("namespace.idle_gpu_hours_day", "namespace.held_gpu_hours_day"),
    ("node.gpus", "fleet.gpus"),
    ("node.gpus_unlisted", "node.gpus"),
    ("node.memory_used", "node.memory_total"),
    ("node.slots_allocated", "node.slots_capacity"),
    ("gpu.memory_used", "gpu.memory_total"),
    ("gpu.memory_max", "gpu.memory_total"),
    ("gpu.memory_used", "gpu.memory_max"),
    ("gpu.use", "gpu.use_max"),
    ("gpu.use_p95", "gpu.use_max"),
    ("gpu.utilization", "gpu.utilization_max"),
    ("tenant.use", "tenant.use_max"),
    ("tenant.memory_used", "tenant.memory_max"),
    ("workload.memory_used", "workload.memory_max"),
    ("gpu.memory_used_now", "gpu.memory_total_now"),
)
# Shares of a whole; a share above 1 counts something twice.
SHARES: tuple[str, ...] = (
    *("gpu.use", "gpu.use_max", "gpu.utilization", "gpu.sm_active", "gpu.confidence", "gpu.coverage"),
    *("gpu.memory_share", "gpu.memory_traffic", "tenant.use", "tenant.use_max", "tenant.confidence"),
    *("fleet.use", "fleet.use_held", "node.use", "namespace.use", "workload.use", "waste.idle_ratio"),
    *("namespace.idle_ratio_day", "capacity.fragmentation", "gpu.utilization_now", "node.cpu_used"),
)
# Mean, p95 and peak of one quantity: all but a twentieth of the time is at most p95, and the rest at most the peak.
TAILS: tuple[tuple[str, str, str], ...] = (
    ("gpu.use", "gpu.use_p95", "gpu.use_max"),
    ("gpu.utilization", "gpu.utilization_p95", "gpu.utilization_max"),
    ("gpu.sm_active", "gpu.sm_active_p95", "gpu.sm_active_max"),
    ("tenant.use", "tenant.use_p95", "tenant.use_max"),
    ("workload.use", "workload.use_p95", "workload.use_max"),
)
_TAIL = 0.05
_COMPLETE = frozenset({"rows", "by_namespace"})  # lists that have every node or namespace
_PLURAL = frozenset({"memory_capacity", "memory_allocated", "idle_gpu_hours", "held_gpu_hours", "gpu_hours"})


class _Group(Struct, frozen=True, kw_only=True):
    """Numbers of one figure in one complete list, of one analysis."""

    surface: str
    moment: str
    scope: tuple[str, ...]
    readings: tuple[FigureReading, ...]


def sums(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """A whole is the sum of its parts, wherever both are shown."""
    by_figure = _by_figure(surfaces.readings)
    for whole, part in SUMS:
        wholes = [reading for reading in by_figure.get(whole, ()) if not reading.counted]
        keyed = BY_CODE[whole].condition.startswith("by_")
        for group in _lists(by_figure.get(part, ())):
            for key in sorted({reading.subject[1:] for reading in group.readings}) if keyed else [()]:
                parts = [reading for reading in group.readings if not keyed or reading.subject[1:] == key]
                for one in _one_of_each_value(wholes, group.scope, subject=key):
                    if _together(one, parts[0]):
                        yield _sum("sums", one, parts, part)


def divisions(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """What is counted by class, verdict, status or state adds up to the total of the same answer."""
    by_figure = _by_figure(surfaces.readings)
    for whole, part in DIVISIONS:
        groups: dict[tuple[str, str, tuple[str, ...], tuple[str, ...]], list[FigureReading]] = {}
        for reading in by_figure.get(part, ()):
            if not reading.counted:
                place = reading.path.rpartition("[")[0] or reading.path.partition("{")[0]
                key = (reading.surface, place, reading.scope, reading.subject[:-1])
                groups.setdefault(key, []).append(reading)
        for (surface, _, scope, subject), parts in groups.items():
            wholes = [
                one
                for one in by_figure.get(whole, ())
                if not one.counted and one.surface == surface and one.scope == scope and one.subject == subject
            ]
            for one in wholes[:1]:
                if _together(one, parts[0]):
                    yield _sum("divisions", one, parts, part)


def parts_of_wholes(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """A part is never larger than its whole, a share never above 1, and a mean never above what p95 and peak allow."""
    by_figure = _by_figure([reading for reading in surfaces.readings if not reading.counted])
    for small, large in AT_MOST:
        fleet = large.startswith("fleet.")
        wholes: dict[tuple[tuple[str, ...], tuple[str, ...]], FigureReading] = {}
        for reading in by_figure.get(large, ()):
            wholes.setdefault((reading.scope, reading.subject), reading)
        for reading in by_figure.get(small, ()):
            whole = wholes.get((reading.scope, () if fleet else reading.subject))
            if whole is not None and _together(reading, whole):
                yield _at_most("parts", reading, whole)
    for code in SHARES:
        for reading in by_figure.get(code, ()):
            yield _at_most("parts", reading, structs.replace(reading, path="1", value=1.0, margin=0.0))
    for codes in TAILS:
        means, tails, peaks = (
            {(one.surface, one.moment, one.scope, one.subject): one for one in by_figure.get(code, ())}
            for code in codes
        )
        for place in means.keys() & tails.keys() & peaks.keys():
            tail, peak = tails[place], peaks[place]
            path = f"{1 - _TAIL:g} {tail.path} + {_TAIL:g} {peak.path}"
            most = (1 - _TAIL) * tail.value + _TAIL * peak.value
            yield _at_most("parts", means[place], structs.replace(tail, path=path, value=most))


def narrowed(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """What a view that is narrowed to a namespace counts is never more than the whole view counts."""
    for code, readings in _by_figure([one for one in surfaces.readings if not one.counted]).items():
        figure = BY_CODE[code]
        if figure.subject not in {"fleet", "node"} or not _adds_up(figure):
            continue
        wholes = {reading.subject: reading for reading in readings if not reading.scope}
        for reading in readings:
            whole = wholes.get(reading.subject)
            if reading.scope and whole is not None and _together(reading, whole):
                yield _at_most("narrowed", reading, whole)


def _adds_up(figure: Figure) -> bool:
    return figure.quantity == "count" or figure.quantity in _PLURAL


def _at_most(check: str, first: FigureReading, second: FigureReading) -> FigureComparison:
    return FigureComparison(
        check=check,
        subject="/".join(first.subject),
        first=first,
        second=second,
        rule="at_most",
        tolerance=first.margin + second.margin + 0.001 * abs(second.value),
    )


def _sum(check: str, whole: FigureReading, parts: list[FigureReading], figure: str) -> FigureComparison:
    first = parts[0]
    path = f"sum({first.path.rpartition('[')[0] or first.path}, {len(parts)})"
    if first.rows:
        field = first.path.rpartition(".")[2]
        path = f"sum({first.rows}[].{field})"
    total = structs.replace(
        first, path=path, figure=figure, subject=(), value=sum(one.value for one in parts), counted=True
    )
    margin = whole.margin + sum(one.margin for one in parts)
    return FigureComparison(
        check=check, subject="/".join(whole.subject), first=whole, second=total, rule="sum", tolerance=margin
    )


def _by_figure(readings: Iterable[FigureReading]) -> dict[str, list[FigureReading]]:
    found: dict[str, list[FigureReading]] = {}
    for reading in readings:
        found.setdefault(reading.figure, []).append(reading)
    return found


def _lists(readings: Iterable[FigureReading]) -> Iterator[_Group]:
    """Complete lists of one figure: no page of metrics, because those can be limited, and no list a second time."""
    listed = [one for one in readings if one.rows in _COMPLETE and not one.counted and "format=" not in one.surface]

    def place(one: FigureReading) -> tuple[str, str, tuple[str, ...]]:
        return one.surface, one.moment, one.scope

    for (surface, moment, scope), some in groupby(sorted(listed, key=place), key=place):
        yield _Group(surface=surface, moment=moment, scope=scope, readings=tuple(some))


def _one_of_each_value(
    readings: Iterable[FigureReading], scope: tuple[str, ...], *, subject: tuple[str, ...]
) -> list[FigureReading]:
    """Places that show the same number are compared with each other, so one of them is enough here."""
    found: dict[tuple[float, str], FigureReading] = {}
    for reading in readings:
        if reading.scope == scope and reading.subject == subject:
            found.setdefault((reading.value, reading.moment), reading)
    return list(found.values())


def _together(first: FigureReading, second: FigureReading) -> bool:
    """Whether two numbers can be of the same analysis or sample."""
    return not first.moment or not second.moment or first.moment == second.moment
