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
        """An analysis stands for the time before the end of its window; an hour or a day is in one step.

        When a pod held the GPU in that time is not stored, so the pod's seconds are spread over all of it.
        """
        if point.step != "analysis":
            place = self.place(point.time)
            if place is not None:
                yield place, point.seconds
            return
        spent = point.seconds if point.analysis_seconds is None else point.analysis_seconds
        begin, part = point.time - max(spent, _INSTANT), point.seconds / spent if spent else 0.0
        first, last = int(begin // self.step), int((point.time - _INSTANT) // self.step)
        for bucket in range(max(first, self._first), min(last, self._first + len(self.times) - 1) + 1):
            overlap = min(point.time, (bucket + 1) * self.step) - max(begin, bucket * self.step)
            yield bucket - self._first, max(overlap, 0.0) * part


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

    A mean over GPUs or pods counts each for as long as it was measured. A sum over them is the mean over time of what
    was measured: all charts of a step divide by the same time, that in which the quantity was measured of any GPU. So
    a part never exceeds its whole, and a long step is the mean of its short steps, weighted by their seconds.
    """

    def __init__(
        self, grid: Grid, wanted: Sequence[str] = (), *, measured: Mapping[str, Sequence[Seconds]] | None = None
    ) -> None:
        """`wanted`: quantities; none for all. `measured`: for how much of each step a quantity is known of any GPU."""
        self._grid, self._measured = grid, measured or {}
        self._rules = [(name, rule) for name, rule in _QUANTITIES.items() if not wanted or name in wanted]
        self._steps: list[dict[tuple[str, ...], _Presence]] = [{} for _ in grid.times]

    def add(self, points: Iterable[HistoryPoint]) -> None:
        """Add points of GPUs, or points of pods, never both; no point may be added twice."""
        for point, place, spent in self._grid.pieces(points):
            presence = self._steps[place].setdefault(
                (point.gpu_id, point.mig, point.namespace, point.pod),
                _Presence(len(self._rules), "" if point.pod else point.gpu_instance),
            )
            part = min(1.0, spent / point.seconds) if point.seconds else 1.0
            totals, known = presence.totals, presence.measured
            for at, (_, rule) in enumerate(self._rules):
                value = rule.read(point)
                if value is None:
                    continue
                seconds = (rule.measured(point) or point.seconds) * part or _INSTANT
                if rule.over_time == "max":
                    totals[at] = max(totals[at], value) if known[at] else value
                else:
                    totals[at] += value * (part if rule.over_time == "sum" else seconds)
                known[at] += seconds

    def columns(self) -> tuple[SeriesColumn, ...]:
        columns = []
        for at, (name, rule) in enumerate(self._rules):
            values: list[float | None] = []
            weights: list[Seconds] = []
            known_of_fleet = self._measured.get(name, [0.0] * len(self._steps))
            for place, step in enumerate(self._steps):
                shown = {} if rule.of_one and len(step) > 1 else step
                known = {key: presence for key, presence in shown.items() if presence.measured[at]}
                if name == "memory_used":
                    known = _one_per_gpu_instance(known, at)
                longest = max((presence.measured[at] for presence in known.values()), default=0.0)
                match rule.together:
                    case "max":
                        total, weight = max((one.totals[at] for one in known.values()), default=0.0), 1.0
                    case "sum":
                        total, weight = sum(one.totals[at] for one in known.values()), 1.0
                    case "sum_at_once":  # stored hours of older versions can hold more than an hour
                        total, weight = (
                            sum(one.totals[at] for one in known.values()),
                            max(longest, known_of_fleet[place]),
                        )
                    case "mean":
                        parts = _parts_of_gpus(known, at)
                        total = sum(one.totals[at] * parts.get(key, 1.0) for key, one in known.items())
                        weight = sum(one.measured[at] * parts.get(key, 1.0) for key, one in known.items())
                values.append(round(total / weight / rule.scale, rule.digits) if known else None)
                weights.append(round(weight, 3) if rule.together in {"mean", "sum_at_once"} else longest)
            columns.append(SeriesColumn(quantity=name, unit=UNITS[name], values=tuple(values), seconds=tuple(weights)))
        return tuple(columns)


class _Presence:
    """One GPU, or one pod on a GPU, in one step: for each quantity, a total and the time measured."""

    __slots__ = ("gpu_instance", "measured", "totals")

    def __init__(self, quantities: int, gpu_instance: str) -> None:
        self.gpu_instance = gpu_instance
        self.totals = [0.0] * quantities
        self.measured = [0.0] * quantities


def _parts_of_gpus(known: Mapping[tuple[str, ...], _Presence], at: int) -> dict[tuple[str, ...], Ratio]:
    """The part of its GPU that each MIG instance is in a mean over GPUs: all that were measured count as one GPU."""
    instances: dict[str, list[Seconds]] = {}
    for (gpu_id, mig, _, pod), presence in known.items():
        if mig and not pod:
            instances.setdefault(gpu_id, []).append(presence.measured[at])
    return {key: max(instances[key[0]]) / sum(instances[key[0]]) for key in known if key[1] and not key[3]}


def _one_per_gpu_instance(known: Mapping[tuple[str, ...], _Presence], at: int) -> dict[tuple[str, ...], _Presence]:
    """Without the compute instances that report the memory of a GPU instance again: NVML has it per GPU instance."""
    longest: dict[tuple[str, str], tuple[str, ...]] = {}
    for key, presence in known.items():
        shared = (key[0], presence.gpu_instance)
        if presence.gpu_instance and (
            shared not in longest or presence.measured[at] > known[longest[shared]].measured[at]
        ):
            longest[shared] = key
    return {
        key: presence
        for key, presence in known.items()
        if not presence.gpu_instance or longest[key[0], presence.gpu_instance] == key
    }


class _Rule(NamedTuple):
    """How a quantity is computed from points."""

    read: Callable[[HistoryPoint], float | None]
    measured: Callable[[HistoryPoint], Seconds]
    over_time: Literal["mean", "max", "sum"]
    together: Literal["mean", "max", "sum", "sum_at_once"]
    digits: int
    scale: float = 1.0
    of_one: bool = False  # only of a single GPU or pod: several may have had their peaks at different times


_QUANTITIES: dict[Quantity, _Rule] = {
    "use": _Rule(lambda point: point.util, lambda point: point.util_seconds, "mean", "mean", 4),
    "use_max": _Rule(lambda point: point.util_max, lambda point: point.util_seconds, "max", "max", 4),
    "cores_allocated": _Rule(
        lambda point: point.cores_allocated, lambda point: point.cores_seconds, "mean", "mean", 4, _PERCENT
    ),
    "memory_used": _Rule(lambda point: point.memory_used, lambda point: point.memory_seconds, "mean", "sum_at_once", 0),
    "memory_max": _Rule(
        lambda point: point.memory_max, lambda point: point.memory_seconds, "max", "max", 0, of_one=True
    ),
    "memory_allocated": _Rule(
        lambda point: point.memory_allocated, lambda point: point.allocated_seconds, "mean", "sum_at_once", 0
    ),
    "score": _Rule(lambda point: point.score, lambda point: point.score_seconds, "mean", "mean", 1),
    "power": _Rule(lambda point: point.power, lambda point: point.power_seconds, "mean", "sum_at_once", 1),
    "power_max": _Rule(lambda point: point.power_max, lambda point: point.power_seconds, "max", "max", 1, of_one=True),
    "energy": _Rule(lambda point: point.energy, lambda point: point.power_seconds, "sum", "sum", 1),
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
