"""Points of single analyses → points of hours and of days: an analysis is divided among the hours that it stands for.

The store does the same inside the database; this is the definition it is held against.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from vgpuscope.model.history import STEP_SECONDS, HistoryPoint, Step
from vgpuscope.model.quantity import Seconds

Number = TypeVar("Number", int, float)
Word = TypeVar("Word", bound=str)
MEANS = {  # field → number of analyses with a value
    "score": "scored",
    "util": "util_samples",
    "memory_used": "memory_samples",
    "power": "power_samples",
    "memory_allocated": "allocated_samples",
    "cores_allocated": "cores_samples",
}
WHOLE = {"memory_used", "memory_allocated"}
MEASURED = {count: f"{count.removesuffix('_samples')}_seconds" for count in MEANS.values()} | {
    "scored": "score_seconds"
}


class Piece(NamedTuple):
    """What an analysis says of one hour or day."""

    point: HistoryPoint
    bucket: int
    seconds: Seconds
    ends: bool  # the analysis ends in it

    @property
    def part(self) -> float:
        return self.seconds / self.point.seconds if self.point.seconds else float(self.ends)


def rolled(points: Iterable[HistoryPoint], step: Step) -> list[HistoryPoint]:
    """Points of analyses as points of hours or days, by time and in the order in which their GPUs first came."""
    found: dict[tuple, list[Piece]] = {}
    for piece in (piece for point in points for piece in pieces(point, STEP_SECONDS[step])):
        of = piece.point
        found.setdefault((piece.bucket, of.gpu_id, of.mig, of.namespace, of.pod), []).append(piece)
    return [_together(group, step) for _, group in sorted(found.items(), key=lambda item: item[0][0])]


def pieces(point: HistoryPoint, long: int) -> Iterator[Piece]:
    """The time of a point is spread over what its analysis stands for, to the millisecond.

    One that ends at a full hour belongs to the hour before.
    """
    end, length = round(point.time * 1000), long * 1000
    of_point = of_analysis = round(1000 * point.seconds)
    if point.analysis_seconds is not None:
        of_analysis = round(1000 * point.analysis_seconds)
    begin = end - of_analysis

    def over(moment: int) -> int:
        if moment >= end:
            return of_point
        return 0 if moment <= begin else int(of_point * (moment - begin) / of_analysis + 0.5)

    last = -(-end // length) - 1
    for bucket in range(min(last, begin // length), last + 1):
        seconds = over((bucket + 1) * length) - over(bucket * length)
        if seconds > 0 or bucket == last:
            yield Piece(point, bucket, seconds / 1000, bucket == last)


def _together(found: Sequence[Piece], step: Step) -> HistoryPoint:
    points = [piece.point for piece in found]
    ending = [piece.point for piece in found if piece.ends]
    counts = {count: sum(getattr(p, count) for p in ending) for count in (*MEANS.values(), "coverage_samples")}
    return replace(
        points[0],
        step=step,
        analysis_seconds=None,
        time=float(found[0].bucket * STEP_SECONDS[step]),
        samples=sum(p.samples for p in ending),
        **counts,
        **{field: _mean(found, ending, field) for field in MEANS},
        **{MEASURED[count]: _measured(found, field) for field, count in MEANS.items()},
        coverage=_average([(p.coverage, 1.0) for p in ending]),
        score_min=_extreme(min, (p.score_min for p in points)),
        score_max=_extreme(max, (p.score_max for p in points)),
        util_max=_extreme(max, (p.util_max for p in points)),
        memory_max=_extreme(max, (p.memory_max for p in points)),
        power_max=_extreme(max, (p.power_max for p in points)),
        energy=_energy(found),
        seconds=sum(piece.seconds for piece in found),
        held_seconds=sum(piece.point.held_seconds * piece.part for piece in found),
        by_status=_added((piece.point.status, piece.seconds) for piece in found),
        by_verdict=_added((piece.point.verdict, piece.seconds) for piece in found),
        by_class=_added((piece.point.use_class, piece.seconds) for piece in found),
        status=None,
        verdict=None,
        use_class=None,
    )


def _mean(found: Sequence[Piece], ending: Sequence[HistoryPoint], field: str) -> float | None:
    """The mean over the time measured; of analyses that stand for no time, over these analyses."""
    over_time = _average([(getattr(piece.point, field), piece.seconds) for piece in found])
    mean = over_time if over_time is not None else _average([(getattr(p, field), 1.0) for p in ending])
    return round(mean) if mean is not None and field in WHOLE else mean


def _measured(found: Sequence[Piece], field: str) -> Seconds:
    return sum(piece.seconds for piece in found if getattr(piece.point, field) is not None)


def _average(values: Sequence[tuple[float | None, float]]) -> float | None:
    known = [(value, weight) for value, weight in values if value is not None and weight]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None


def _energy(found: Sequence[Piece]) -> float | None:
    known = [piece.point.energy * piece.part for piece in found if piece.point.energy is not None]
    return sum(known) if known else None


def _extreme(choose: Callable[[Iterable[Number]], Number], values: Iterable[Number | None]) -> Number | None:
    known = [value for value in values if value is not None]
    return choose(known) if known else None


def _added(parts: Iterable[tuple[Word | None, Seconds]]) -> dict[Word, Seconds]:
    total: dict[Word, Seconds] = {}
    for word, seconds in parts:
        if word is not None and seconds:
            total[word] = total.get(word, 0.0) + seconds
    return total
