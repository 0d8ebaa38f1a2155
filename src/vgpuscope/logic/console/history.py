"""Points of the history → columns of a chart, in as many steps as were asked for."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

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

    def __init__(self, grid: Grid, *, group: Callable[[HistoryPoint], str | None]) -> None:
        """`group` None: the point is left out."""
        self._grid, self._group = grid, group
        self._seconds: dict[tuple[str, GpuClass], list[Seconds]] = {}
        self._covered = [0.0] * len(grid.times)

    def add(self, points: Sequence[HistoryPoint]) -> None:
        """Add all points of some whole steps of the history; no point may be added twice."""
        pieces = self._grid.pieces(points)
        parts = _parts(pieces)
        for piece in pieces:
            if (name := self._group(piece.point)) is not None:
                self._count(piece, name, parts[piece.place, piece.point.gpu_id])

    def cover(self, gpus: Iterable[HistoryPoint]) -> None:
        """Note for how much of each step there are results, from the points of GPUs of the same time."""
        seconds: dict[tuple[int, str, str], Seconds] = {}
        for point, place, share in self._grid.pieces(gpus):
            key = (place, point.gpu_id, point.mig)
            seconds[key] = seconds.get(key, 0.0) + share
        covered: dict[int, Seconds] = {}
        for (place, *_), found in seconds.items():
            covered[place] = max(covered.get(place, 0.0), found)
        for place, found in covered.items():
            self._covered[place] += found  # can be more than the step: an hour has all of an analysis that ends in it

    def merge(self, at: UnixTime, hour: ClassHour) -> None:
        """Add what another fold found in one stored hour or day."""
        place = self._grid.place(at)
        if place is None:
            return
        for (name, use_class), seconds in hour.seconds.items():
            self._add(name, use_class, place, seconds)
        self._covered[place] = min(self._grid.step, self._covered[place] + hour.covered)

    def hour(self) -> ClassHour:
        """Everything that was added, as one hour."""
        return ClassHour({key: sum(found) for key, found in self._seconds.items()}, sum(self._covered))

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
            round(sum(column[place] for column in found) / covered, 3) if covered else None
            for place, covered in enumerate(self._covered)
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
    """Adds up points of GPUs or pods, first over time, then over GPUs, as _QUANTITIES says."""

    def __init__(self, grid: Grid, wanted: Sequence[str] = ()) -> None:
        """`wanted`: quantities; none for all."""
        self._grid = grid
        self._rules = [(name, rule) for name, rule in _QUANTITIES.items() if not wanted or name in wanted]
        self._cells: list[dict[tuple[str, ...], list[_Cell]]] = [{} for _ in grid.times]

    def add(self, points: Iterable[HistoryPoint]) -> None:
        for point, place, seconds in self._grid.pieces(points):
            of = (point.gpu_id, point.mig, point.namespace, point.pod)
            cells = self._cells[place].setdefault(of, [])
            if not cells:
                cells.extend(_Cell() for _ in self._rules)
            for cell, (_, rule) in zip(cells, self._rules, strict=True):
                value = rule.read(point)
                if value is not None:
                    rule.over_time(cell, value, seconds or _INSTANT, point)

    def columns(self) -> tuple[SeriesColumn, ...]:
        return tuple(
            SeriesColumn(quantity=name, unit=UNITS[name], values=tuple(self._values(at, rule)))
            for at, (name, rule) in enumerate(self._rules)
        )

    def _values(self, at: int, rule: "_Rule") -> Iterator[float | None]:
        for step in self._cells:
            known = [value for cells in step.values() if (value := cells[at].value) is not None]
            yield round(rule.over_gpus(known) / rule.scale, rule.digits) if known else None


class _Cell:
    """One quantity of one GPU, or of one pod on a GPU, in one step."""

    __slots__ = ("total", "weight")

    def __init__(self) -> None:
        self.total = self.weight = 0.0

    @property
    def value(self) -> float | None:
        return self.total / self.weight if self.weight else None


def _mean_over_time(cell: _Cell, value: float, seconds: Seconds, _: HistoryPoint) -> None:
    cell.total += value * seconds
    cell.weight += seconds


def _max_over_time(cell: _Cell, value: float, _seconds: Seconds, _: HistoryPoint) -> None:
    cell.total, cell.weight = max(cell.total, value) if cell.weight else value, 1.0


def _sum_over_time(cell: _Cell, value: float, seconds: Seconds, point: HistoryPoint) -> None:
    """The part of the value that belongs to this step."""
    cell.total += value * (min(1.0, seconds / point.seconds) if point.seconds else 1.0)
    cell.weight = 1.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


class _Rule(NamedTuple):
    """How a quantity is computed from points."""

    read: Callable[[HistoryPoint], float | None]
    over_time: Callable[[_Cell, float, Seconds, HistoryPoint], None]
    over_gpus: Callable[[Sequence[float]], float]
    digits: int
    scale: float = 1.0


_QUANTITIES: dict[Quantity, _Rule] = {
    "use": _Rule(lambda point: point.util, _mean_over_time, _mean, 4),
    "use_max": _Rule(lambda point: point.util_max, _max_over_time, max, 4),
    "cores_allocated": _Rule(lambda point: point.cores_allocated, _mean_over_time, _mean, 4, _PERCENT),
    "memory_used": _Rule(lambda point: point.memory_used, _mean_over_time, sum, 0),
    "memory_max": _Rule(lambda point: point.memory_max, _max_over_time, sum, 0),
    "memory_allocated": _Rule(lambda point: point.memory_allocated, _mean_over_time, sum, 0),
    "score": _Rule(lambda point: point.score, _mean_over_time, _mean, 1),
    "power": _Rule(lambda point: point.power, _mean_over_time, sum, 1),
    "power_max": _Rule(lambda point: point.power_max, _max_over_time, sum, 1),
    "energy": _Rule(lambda point: point.energy, _sum_over_time, sum, 1),
}


def _parts(pieces: Iterable[Piece]) -> dict[tuple[int, str], Ratio]:
    """The part of its GPU that an instance or a pod is: together they are at most the GPU."""
    spent: dict[tuple[int, str], Seconds] = {}
    each: dict[tuple[int, str, str, str, str], Seconds] = {}
    for point, place, seconds in pieces:
        spent[place, point.gpu_id] = spent.get((place, point.gpu_id), 0.0) + seconds
        who = (place, point.gpu_id, point.mig, point.namespace, point.pod)
        each[who] = each.get(who, 0.0) + seconds
    longest: dict[int, Seconds] = {}
    for (place, *_), seconds in each.items():
        longest[place] = max(longest.get(place, 0.0), seconds)
    return {of: longest[of[0]] / seconds if seconds > longest[of[0]] else 1.0 for of, seconds in spent.items()}
