"""Points of single analyses → points of hours → points of days: sums, means and extremes, exact however they are cut.

The store does the same inside the database; this is the definition it is held against.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import attrgetter
from typing import Literal, TypeAlias, TypeVar

from msgspec.structs import replace

from vgpuscope.model.history import STEP_SECONDS, HistoryPoint
from vgpuscope.model.quantity import Seconds

Number = TypeVar("Number", int, float)
Word = TypeVar("Word", bound=str)
_Coarse: TypeAlias = Literal["hour", "day"]


def hourly(points: Iterable[HistoryPoint]) -> list[HistoryPoint]:
    """Points of analyses as points of hours, by time and in the order in which their GPUs first came."""
    return _by_step(points, "hour")


def daily(points: Iterable[HistoryPoint]) -> list[HistoryPoint]:
    """Points of hours (or analyses) as points of days."""
    return _by_step(points, "day")


def together(points: Iterable[HistoryPoint], *, by: Callable[[HistoryPoint], Hashable]) -> list[HistoryPoint]:
    """One point for each time and key, of all GPUs that have it; names are those of the key's first point."""
    groups: dict[tuple[float, Hashable], list[HistoryPoint]] = {}
    for point in points:
        groups.setdefault((point.time, by(point)), []).append(point)
    return [merged(group) for (_, _), group in sorted(groups.items(), key=lambda item: item[0][0])]


def merged(points: Sequence[HistoryPoint]) -> HistoryPoint:
    """One point that says of all what each said of its part; at least one is needed."""
    if len(points) == 1:
        return points[0]
    scored, score = _mean(points, "scored", "score")
    util_samples, util = _mean(points, "util_samples", "util")
    memory_samples, memory = _mean(points, "memory_samples", "memory_used")
    power_samples, power = _mean(points, "power_samples", "power")
    allocated_samples, allocated = _mean(points, "allocated_samples", "memory_allocated")
    cores_samples, cores = _mean(points, "cores_samples", "cores_allocated")
    covered, coverage = _mean(points, "coverage_samples", "coverage")
    return replace(
        points[0],
        samples=sum(p.samples for p in points),
        scored=scored,
        score=score,
        score_min=_extreme(min, (p.score_min for p in points)),
        score_max=_extreme(max, (p.score_max for p in points)),
        util_samples=util_samples,
        util=util,
        util_max=_extreme(max, (p.util_max for p in points)),
        memory_samples=memory_samples,
        memory_used=None if memory is None else round(memory),
        memory_max=_extreme(max, (p.memory_max for p in points)),
        power_samples=power_samples,
        power=power,
        power_max=_extreme(max, (p.power_max for p in points)),
        energy=_total(p.energy for p in points),
        allocated_samples=allocated_samples,
        memory_allocated=None if allocated is None else round(allocated),
        cores_samples=cores_samples,
        cores_allocated=cores,
        coverage_samples=covered,
        coverage=coverage,
        seconds=sum(p.seconds for p in points),
        held_seconds=sum(p.held_seconds for p in points),
        by_status=_added(p.by_status for p in points),
        by_verdict=_added(p.by_verdict for p in points),
        by_class=_added(p.by_class for p in points),
        status=None,
        verdict=None,
        use_class=None,
    )


def _by_step(points: Iterable[HistoryPoint], step: _Coarse) -> list[HistoryPoint]:
    long = STEP_SECONDS[step]
    coarse = (
        replace(p, step=step, time=p.time // long * long, status=None, verdict=None, use_class=None) for p in points
    )
    return together(coarse, by=lambda p: (p.gpu_id, p.mig, p.namespace, p.pod))


def _mean(points: Sequence[HistoryPoint], count: str, value: str) -> tuple[int, float | None]:
    """How many there are, and their mean; those that were not measured have no part in it."""
    number, of = attrgetter(count), attrgetter(value)
    total = sum(number(p) for p in points)
    return total, sum(of(p) * number(p) for p in points if number(p)) / total if total else None


def _extreme(choose: Callable[[Iterable[Number]], Number], values: Iterable[Number | None]) -> Number | None:
    known = [value for value in values if value is not None]
    return choose(known) if known else None


def _total(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _added(parts: Iterable[dict[Word, Seconds]]) -> dict[Word, Seconds]:
    total: dict[Word, Seconds] = {}
    for part in parts:
        for word, seconds in part.items():
            total[word] = total.get(word, 0.0) + seconds
    return total
