"""Points of the history → columns of a chart, in as many steps as were asked for."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from vgpuscope.model.console.history import UNITS, ClassColumn, ClassGroup, Quantity, SeriesColumn
from vgpuscope.model.console.overview import GPU_CLASSES, GpuClass
from vgpuscope.model.history import HistoryPoint
from vgpuscope.model.quantity import Ratio, Seconds, UnixTime

MOST_GROUPS = 12  # that are shown separately; the others are added up
OTHERS = "others"
_INSTANT = 0.001  # seconds
_PERCENT = 100.0


class Grid:
    """The steps of a chart: whole multiples of the step, from before the beginning to the end."""

    def __init__(self, begin: UnixTime, end: UnixTime, *, least: Seconds, points: int) -> None:
        """At most `points` steps, each at least `least` long."""
        span = max(end - begin, least)
        times = max(1, -(-span // (least * max(1, points - 1))))
        self.step: Seconds = least * times
        first = int(begin // self.step)
        self.times = tuple(
            int(bucket * self.step) for bucket in range(first, int(-(-end // self.step))) if bucket * self.step < end
        )
        self._first = first

    @property
    def begin(self) -> UnixTime:
        """The beginning of the first step."""
        return self._first * self.step

    @property
    def end(self) -> UnixTime:
        """The end of the last step, which can be in the future."""
        return (self._first + len(self.times)) * self.step

    def covered(self, seconds: Mapping[int, Seconds]) -> list[Seconds]:
        """Time by the number of the step, counted from the epoch → by the place in this chart."""
        return [seconds.get(self._first + place, 0.0) for place in range(len(self.times))]

    def place(self, at: UnixTime) -> int | None:
        """The step that a moment is in; None: it is outside."""
        place = int(at // self.step) - self._first
        return place if 0 <= place < len(self.times) else None

    def pieces(self, points: Iterable[HistoryPoint]) -> list["Piece"]:
        """The points, divided among the steps that they stand for."""
        return [Piece(point, place, seconds) for point in points for place, seconds in self._spread(point)]

    def _spread(self, point: HistoryPoint) -> Iterator[tuple[int, Seconds]]:
        """An analysis stands for the time before the end of its window; an hour or a day is in one step."""
        if point.step != "analysis":
            place = self.place(point.time)
            if place is not None:
                yield place, point.seconds
            return
        begin = point.time - max(point.seconds, _INSTANT)
        first, last = int(begin // self.step), int((point.time - _INSTANT) // self.step)
        for bucket in range(max(first, self._first), min(last, self._first + len(self.times) - 1) + 1):
            overlap = min(point.time, (bucket + 1) * self.step) - max(begin, bucket * self.step)
            yield bucket - self._first, max(overlap, 0.0)


class Piece(NamedTuple):
    """A point in one step: what it stands for there."""

    point: HistoryPoint
    place: int
    seconds: Seconds


class ClassHour(NamedTuple):
    """Seconds of GPUs by group and class in one stored hour or day, and for how much of it there are results."""

    seconds: dict[tuple[str, GpuClass], Seconds]
    covered: Seconds


# The fields of points that classes are added up from, besides their names.
CLASS_FIELDS = frozenset({"seconds", "held_seconds", "by_class"})


class ClassFold:
    """Adds up points: seconds of GPUs by step, group and class."""

    def __init__(
        self, grid: Grid, *, group: Callable[[HistoryPoint], str | None], covered: Sequence[Seconds] = ()
    ) -> None:
        """`group` None: the point is left out. `covered`: for how much of each step there are analyses, if known."""
        self._grid, self._group, self._analysed = grid, group, covered
        self._seconds: dict[tuple[str, GpuClass], list[Seconds]] = {}
        self._longest = [0.0] * len(grid.times)  # the time of the GPU that was analysed for longest

    def add(self, gpus: Sequence[HistoryPoint], pods: Sequence[HistoryPoint] | None = None) -> None:
        """Add all points of some whole steps of the history; no point may be added twice.

        With `pods`, the time in which GPUs are held is divided among their pods.
        """
        of_gpus = self._grid.pieces(gpus)
        parts = self._cover(of_gpus)
        pieces = of_gpus
        if pods is not None:
            pieces = self._grid.pieces(pods)
            parts = _parts_of_pods(pieces, of_gpus, parts)
        for piece in pieces:
            if (name := self._group(piece.point)) is not None:
                self._count(piece, name, parts.get(_device(piece), 1.0))

    def _cover(self, gpus: Sequence[Piece]) -> "_Parts":
        """Note for how much of each step there are results; the part of its GPU that each instance is.

        The instances of a GPU together are at most the GPU.
        """
        spent: dict[tuple[int, str, str], Seconds] = {}
        whole: dict[tuple[int, str], Seconds] = {}
        longest: dict[int, Seconds] = {}
        for piece in gpus:
            place, gpu_id, _ = device = _device(piece)
            spent[device] = spent.get(device, 0.0) + piece.seconds
            whole[place, gpu_id] = whole.get((place, gpu_id), 0.0) + piece.seconds
            longest[place] = max(longest.get(place, 0.0), spent[device])
        for place, seconds in longest.items():
            self._longest[place] += seconds
        return {
            (place, gpu_id, mig): min(1.0, longest[place] / whole[place, gpu_id]) if whole[place, gpu_id] else 1.0
            for place, gpu_id, mig in spent
        }

    def merge(self, at: UnixTime, hour: ClassHour) -> None:
        """Add what another fold found in one stored hour or day."""
        place = self._grid.place(at)
        if place is None:
            return
        for (name, use_class), seconds in hour.seconds.items():
            self._add(name, use_class, place, seconds)
        self._longest[place] += hour.covered

    def hour(self) -> ClassHour:
        """Everything that was added, as one hour."""
        return ClassHour({key: sum(found) for key, found in self._seconds.items()}, sum(self._longest))

    def _count(self, piece: Piece, name: str, part: Ratio) -> None:
        point, place = piece.point, piece.place
        part *= piece.seconds / point.seconds if point.seconds else 0.0
        free = max(0.0, point.seconds - point.held_seconds) if not point.pod else 0.0
        for use_class, seconds in point.by_class.items():
            unallocated = min(seconds, free) if use_class == "idle" else 0.0
            self._add(name, "unallocated", place, unallocated * part)
            self._add(name, use_class, place, (seconds - unallocated) * part)

    def _add(self, name: str, use_class: GpuClass, place: int, seconds: Seconds) -> None:
        if seconds:
            self._seconds.setdefault((name, use_class), [0.0] * len(self._grid.times))[place] += seconds

    def columns(self, by: ClassGroup) -> tuple[tuple[ClassColumn, ...], int]:
        """A column for each group and class, the largest groups first, and how many groups were added up."""
        totals: dict[str, Seconds] = {}
        for (name, _), found in self._seconds.items():
            totals[name] = totals.get(name, 0.0) + sum(found)
        names = sorted(totals, key=lambda name: (-totals[name], name))
        shown, rest = names[:MOST_GROUPS], names[MOST_GROUPS:]
        columns = [self._column(by, [name], name, use_class) for name in shown for use_class in GPU_CLASSES]
        columns += [self._column(by, rest, OTHERS, use_class) for use_class in GPU_CLASSES if rest]
        return tuple(one for one in columns if any(one.gpus)), len(rest)

    def _column(self, by: ClassGroup, names: Sequence[str], shown: str, use_class: GpuClass) -> ClassColumn:
        found = [self._seconds[name, use_class] for name in names if (name, use_class) in self._seconds]
        gpus = [
            round(sum(column[place] for column in found) / covered, 4) if covered else None
            for place, covered in enumerate(_at_least(self._longest, self._analysed))
        ]
        return ClassColumn(group=None if by == "none" else shown, use_class=use_class, gpus=tuple(gpus))


def grouped(by: ClassGroup) -> Callable[[HistoryPoint], str]:
    """What a point is counted under."""
    match by:
        case "none":
            return lambda _: ""
        case "namespace":
            return lambda point: point.namespace
        case "node":
            return lambda point: point.hostname
        case "model":
            return lambda point: point.model
        case "owner":
            return lambda point: f"{point.namespace}/{point.owner or f'Pod/{point.pod}'}"


class SeriesFold:
    """Adds up points of GPUs or pods: over the time of each, and then over the time of a step, as _QUANTITIES says.

    A mean over GPUs or pods counts each for as long as it was measured. A sum over them is a mean over the time for
    which there are analyses: what was measured for a sixth of that time counts a sixth. Time in which nothing was
    measured of any of them is left out, so it is not zero. So a long step is the mean of its short steps.
    """

    def __init__(self, grid: Grid, wanted: Sequence[str] = (), *, covered: Sequence[Seconds] = ()) -> None:
        """`wanted`: quantities; none for all. `covered`: for how much of each step there are analyses."""
        self._grid, self._covered = grid, covered
        self._rules = [(name, rule) for name, rule in _QUANTITIES.items() if not wanted or name in wanted]
        self._steps: list[dict[tuple[str, ...], _Presence]] = [{} for _ in grid.times]

    def add(self, points: Iterable[HistoryPoint]) -> None:
        """Add points of GPUs, or points of pods, never both; no point may be added twice."""
        for point, place, spent in self._grid.pieces(points):
            seconds = spent or _INSTANT
            found = self._steps[place].setdefault(
                (point.gpu_id, point.mig, point.namespace, point.pod), _Presence(len(self._rules))
            )
            found.seconds += seconds
            part = min(1.0, spent / point.seconds) if point.seconds else 1.0
            totals, weights = found.totals, found.weights
            for at, (_, rule) in enumerate(self._rules):
                value = rule.read(point)
                if value is None:
                    continue
                if rule.over_time == "max":
                    totals[at] = max(totals[at], value) if weights[at] else value
                else:
                    totals[at] += value * (part if rule.over_time == "sum" else seconds)
                weights[at] += seconds

    def columns(self) -> tuple[SeriesColumn, ...]:
        longest = [max((one.seconds for one in step.values()), default=0.0) for step in self._steps]
        covered = _at_least(longest, self._covered)
        weights = [_weights(step, seconds) for step, seconds in zip(self._steps, covered, strict=True)]
        columns = []
        for at, (name, rule) in enumerate(self._rules):
            values: list[float | None] = []
            for place, step in enumerate(self._steps):
                shown = {} if rule.of_one and len(step) > 1 else step
                known = [
                    _Known(one.totals[at], one.weights[at], one.seconds, weights[place][key])
                    for key, one in shown.items()
                    if one.weights[at]
                ]
                value = round(rule.together(known, covered[place]) / rule.scale, rule.digits) if known else None
                values.append(value)
            columns.append(SeriesColumn(quantity=name, unit=UNITS[name], values=tuple(values)))
        return tuple(columns)


class _Presence:
    """One GPU, or one pod on a GPU, in one step: its time, and for each quantity a total and the time measured."""

    __slots__ = ("seconds", "totals", "weights")

    def __init__(self, quantities: int) -> None:
        self.seconds: Seconds = 0.0
        self.totals = [0.0] * quantities
        self.weights = [0.0] * quantities


class _Known(NamedTuple):
    """One quantity of one GPU or pod in one step."""

    total: float
    measured: Seconds
    seconds: Seconds
    weight: Seconds  # in a mean over GPUs: the time of the GPU, divided among its instances


def _weights(step: Mapping[tuple[str, ...], _Presence], covered: Seconds) -> dict[tuple[str, ...], Seconds]:
    """How much each counts in a mean over GPUs or pods: instances together count as their GPU."""
    whole: dict[str, Seconds] = {}
    for (gpu_id, *_, pod), one in step.items():
        if not pod:
            whole[gpu_id] = whole.get(gpu_id, 0.0) + one.seconds
    return {key: one.seconds * (min(1.0, covered / whole[key[0]]) if not key[3] else 1.0) for key, one in step.items()}


def _mean(known: Sequence[_Known], _: Seconds) -> float:
    """A GPU or pod that was measured for a part of its time weighs as much as that part."""
    weights = [one.weight * one.measured / one.seconds for one in known]
    return sum(one.total / one.measured * weight for one, weight in zip(known, weights, strict=True)) / sum(weights)


def _at_once(known: Sequence[_Known], covered: Seconds) -> float:
    """The mean over time of the sum; how much of the time was measured is seen from what was measured best."""
    return sum(one.total for one in known) / (covered * max(one.measured / one.seconds for one in known))


def _sum(known: Sequence[_Known], _: Seconds) -> float:
    return sum(one.total for one in known)


def _highest(known: Sequence[_Known], _: Seconds) -> float:
    return max(one.total for one in known)


class _Rule(NamedTuple):
    """How a quantity is computed from points."""

    read: Callable[[HistoryPoint], float | None]
    over_time: Literal["mean", "max", "sum"]
    together: Callable[[Sequence[_Known], Seconds], float]
    digits: int
    scale: float = 1.0
    of_one: bool = False  # only of a single GPU or pod: several may have had their peaks at different times


_QUANTITIES: dict[Quantity, _Rule] = {
    "use": _Rule(lambda point: point.util, "mean", _mean, 4),
    "use_max": _Rule(lambda point: point.util_max, "max", _highest, 4),
    "cores_allocated": _Rule(lambda point: point.cores_allocated, "mean", _mean, 4, _PERCENT),
    "memory_used": _Rule(lambda point: point.memory_used, "mean", _at_once, 0),
    "memory_max": _Rule(lambda point: point.memory_max, "max", _highest, 0, of_one=True),
    "memory_allocated": _Rule(lambda point: point.memory_allocated, "mean", _at_once, 0),
    "score": _Rule(lambda point: point.score, "mean", _mean, 1),
    "power": _Rule(lambda point: point.power, "mean", _at_once, 1),
    "power_max": _Rule(lambda point: point.power_max, "max", _highest, 1, of_one=True),
    "energy": _Rule(lambda point: point.energy, "sum", _sum, 1),
}
_Parts: TypeAlias = dict[tuple[int, str, str], Ratio]  # by step, GPU and instance


def _device(piece: Piece) -> tuple[int, str, str]:
    return piece.place, piece.point.gpu_id, piece.point.mig


def _parts_of_pods(pods: Iterable[Piece], gpus: Iterable[Piece], parts: _Parts) -> _Parts:
    """The part of its GPU that a second of a pod is: all together they are the time in which the GPU was held."""
    held: dict[tuple[int, str, str], Seconds] = {}
    for piece in gpus:
        point = piece.point
        part = piece.seconds / point.seconds if point.seconds else 0.0
        held[_device(piece)] = held.get(_device(piece), 0.0) + point.held_seconds * part
    spent: dict[tuple[int, str, str], Seconds] = {}
    for piece in pods:
        spent[_device(piece)] = spent.get(_device(piece), 0.0) + piece.seconds
    return {
        device: parts.get(device, 1.0) * (min(1.0, held.get(device, seconds) / seconds) if seconds else 1.0)
        for device, seconds in spent.items()
    }


def _at_least(longest: Sequence[Seconds], covered: Sequence[Seconds]) -> list[Seconds]:
    """For how much of each step there are analyses; stored hours of older versions can hold more than an hour."""
    return [max(found, known) for found, known in zip(longest, covered, strict=True)] if covered else [*longest]
