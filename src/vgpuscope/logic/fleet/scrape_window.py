"""Recent samples of one target's pages → tracks with the exact statistics of any window within them.

A row is one GPU, MIG instance or container: the times at which it was on the page, and for each metric a column of
values. In a column, NaN means "not on that page", and _DROPPED marks an impossible value.
"""

import math
from array import array
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias, cast
from weakref import WeakValueDictionary

from vgpuscope.catalog import agent as m
from vgpuscope.formats.prom.promql import Matcher, chosen_by
from vgpuscope.knowledge.exporters import GROUPS, STATISTICS, Group, Quantity
from vgpuscope.knowledge.series_labels import SeriesIdentity, place
from vgpuscope.logic.fleet.pace import holes
from vgpuscope.logic.fleet.queries import matchers_for
from vgpuscope.logic.fleet.series_table import quantile
from vgpuscope.logic.fleet.tracks import OFF_THE_BUS, add_total, completed
from vgpuscope.model.analysis import Hole, Stat, Term, Track
from vgpuscope.model.quantity import Seconds, UnixTime

_DROPPED = -1.0  # no quantity measured here can be negative
_FEW = 8  # so few samples are not worth moving all the others
MOST_ROWS = 10_000  # GPUs, MIG instances and containers of one target; an agent has some hundreds at most
_MOST_XIDS = 256  # XIDs of one GPU; NVIDIA's catalogue has fewer
_XID_DIGITS = 5


class Cell:
    """Holds the samples of one series."""

    __slots__ = ("high", "native", "row", "scale", "values")

    def __init__(self, row: "_Row", *, scale: float, high: float) -> None:
        self.row, self.scale, self.high = row, scale, high
        self.native = row.layout.group.schema == "vgpuscope"
        self.values = array("d", [math.nan]) * len(row.times)


class Flag:
    """A series that is 1 while its row is in the state that its label names."""

    __slots__ = ("row", "word")

    def __init__(self, row: "_Row", word: str) -> None:
        self.row, self.word = row, word


class XidSamples:
    """A series that shows XIDs: the count for the code in its label, or without a label the last code."""

    __slots__ = ("code", "row")

    def __init__(self, row: "_Row", code: str) -> None:
        self.row, self.code = row, code


class SampleTime:
    """Marks the series with the time, by the agent's own clock, of the sample that a page shows."""


Meaning: TypeAlias = Cell | Flag | XidSamples | SampleTime
_SAMPLE_TIME: Final = SampleTime()


class SeriesFilter:
    """Which series the configured condition selects. ConfigInvalid if only an engine could decide that."""

    def __init__(self, condition: Iterable[Matcher] = ()) -> None:
        given = tuple(condition)
        self._tests = {layout: chosen_by(matchers_for(layout.group, given)) for layout in set(_LAYOUTS.values())}

    def takes(self, layout: "_Layout", labels: Mapping[str, str]) -> bool:
        return self._tests[layout](labels)


class Pages:
    """Recent samples of one target's pages, of selected series only; `instance` is the target's label."""

    def __init__(self, choice: SeriesFilter | None = None, *, instance: str = "") -> None:
        self._choice, self._instance = choice, instance
        self._pages = 0  # pages taken
        self._rows: dict[tuple[_Layout, SeriesIdentity], _Row] = {}  # rows that have samples
        self._alive: WeakValueDictionary[tuple[_Layout, SeriesIdentity], _Row] = (
            WeakValueDictionary()
        )  # rows that have samples or a cell in use
        self._more: dict[tuple[str, str], dict[str, str]] = {}  # labels of info metrics, by GPU and instance
        self._sampled: float | None = None
        self._sampled_since: UnixTime = 0.0  # when a page first showed that sample
        self.left_out = 0  # series beyond the limit of rows

    def meaning(self, name: str, labels: Mapping[str, str]) -> Meaning | None:
        """Where samples of a series go; None if it names no GPU, is not selected, or lacks the tenant it should name.

        A lost GPU whose UUID is not remembered is named by its number, which is not unique among nodes: None as well.
        """
        if name == m.SAMPLE_TIME.name:
            return _SAMPLE_TIME
        layout = _LAYOUTS[name]
        if self._choice and not self._choice.takes(layout, {"instance": self._instance, **labels}):
            return None
        where = place(layout.group, labels, displaced=False)
        if where is None or where.gpu_id.startswith(_NAMELESS):
            return None
        if layout.group.kind == "container" and where.tenant is None:
            return None
        row = self._alive.get((layout, where))
        if row is None and len(self._alive) >= MOST_ROWS:
            self.left_out += 1
            return None
        if name == layout.group.info:
            self._more[where.gpu_id, where.mig] = {key: labels[key] for key in _TOLD if key in labels}
        if row is None:
            row = self._alive[layout, where] = _Row(layout, where)
        if name == layout.group.state:
            return Flag(row, labels.get(layout.group.state_label, ""))
        if name == layout.group.xids:
            return XidSamples(row, labels.get("xid", ""))
        return row.cell(name)

    def unchanged_for(self, at: UnixTime, samples: Iterable[tuple[Meaning, float]]) -> Seconds:
        """How long the target has shown the same sample; 0 if it does not report the sample's time."""
        sampled = next((value for what, value in samples if what is _SAMPLE_TIME), None)
        if sampled is None or sampled != self._sampled:
            self._sampled, self._sampled_since = sampled, at
        return 0.0 if sampled is None else at - self._sampled_since

    def take(self, at: UnixTime, samples: Iterable[tuple[Meaning, float]]) -> None:
        """Store one page's samples. Beside our own names, DCGM's are the agent's imitation of the same: ignored."""
        cells: list[tuple[Cell, float]] = []
        for what, value in samples:
            if isinstance(what, Cell):
                cells.append((what, value))
            elif isinstance(what, Flag):
                if value > 0:
                    what.row.state = what.word
            elif isinstance(what, XidSamples):
                what.row.note_xid(what.code, value, at=at if self._pages else -math.inf)
        self._pages += 1
        native = any(cell.native for cell, _ in cells)
        for cell, value in cells:
            if native and not cell.native:
                continue
            if cell.row.at != at:
                self._open(cell.row, at)
            ours = value / cell.scale
            here = ours if 0.0 <= ours <= cell.high else _DROPPED
            if not cell.values[-1] >= here:  # of two series the higher value is kept: work must not be hidden
                cell.values[-1] = here

    def forget(self, before: UnixTime) -> None:
        """Drop samples older than `before`; a row without samples is removed."""
        gone = [key for key, row in self._rows.items() if row.times[-1] <= before]
        for key in gone:
            self._rows.pop(key).cut(slice(None))
        for row in self._rows.values():
            old = bisect_right(row.times, before)
            if old >= max(_FEW, len(row.times) // 4):
                row.cut(slice(0, old))
        if gone:
            self.left_out = self.left_out if len(self._alive) >= MOST_ROWS else 0
            there = {(where.gpu_id, where.mig) for _, where in self._alive}
            self._more = {key: labels for key, labels in self._more.items() if key in there}

    def __bool__(self) -> bool:
        return bool(self._rows)

    def reports(self, gpu_ids: Container[str]) -> bool:
        """Whether there are samples of one of these GPUs."""
        return any(row.place.gpu_id in gpu_ids for row in self._rows.values())

    def tracks(self, *, begin: UnixTime, end: UnixTime, interval: Seconds) -> Iterator[Track]:
        """One track for each row seen in the window, which begins right after `begin`.

        `interval`: between two pages, if none is missed.
        """
        span = _Span(begin, end, interval)
        spans = [(row, bisect_right(row.times, begin), bisect_right(row.times, end)) for row in self._rows.values()]
        percents = _percents(spans)
        for row, low, high in spans:
            if low < high:
                yield self._track(row, low, high, span, percents)

    def _open(self, row: "_Row", at: UnixTime) -> None:
        """Make room for a page's samples. Samples in the future are removed: the clock was set back after them."""
        late = bisect_right(row.times, at - _SAME)
        if late < len(row.times):
            row.cut(slice(late, None))
        row.at = at
        row.times.append(at)
        for cell in row.cells.values():
            cell.values.append(math.nan)
        self._rows[row.layout, row.place] = row

    def _track(self, row: "_Row", low: int, high: int, span: "_Span", percents: frozenset[str]) -> Track:
        where = row.place
        more = self._more.get((where.gpu_id, where.mig)) or _NOTHING
        gpu = self._more.get((where.gpu_id, "")) or _NOTHING
        first, last = row.span(low, high)
        return Track(
            **completed(where, more, gpu)._asdict(),
            schema=row.layout.group.schema,
            own=row.layout.group.kind == "container",
            terms=row.terms(low, high, span, percents),
            first=first,
            last=last,
            gpu_instance=more.get("gpu_instance", ""),
            target=self._instance,
            health=row.health(span.begin),
            xids=row.xids_since(span.begin),
            state=row.state if row.layout.group.state_label == "state" else "",
        )


_SAME = 1e-3  # minimum seconds between two pages
_NAMELESS = "unknown-"
_TOLD = ("gpu_index", "model", "profile", "gpu_instance")
_NOTHING: Mapping[str, str] = {}


# ── one GPU, instance or container ──────────────────────────────────────────────────────────────────────────────


class _Span(NamedTuple):
    """The window, and the interval between its pages."""

    begin: UnixTime
    end: UnixTime
    interval: Seconds


class _Row:
    __slots__ = ("__weakref__", "_xids", "at", "cells", "layout", "place", "state", "times")

    def __init__(self, layout: "_Layout", where: SeriesIdentity) -> None:
        self.layout, self.place = layout, where
        self.at: UnixTime | None = None  # time of the page that is being taken
        self.times = array("d")
        self.cells: dict[str, Cell] = {}  # by metric
        self.state = ""  # as on the last page
        self._xids: dict[str, tuple[float, int, UnixTime]] = {}  # by label: last value, its code, when it changed

    def cell(self, name: str) -> Cell:
        if name not in self.cells:
            scale, high = self.layout.bounds[name]
            self.cells[name] = Cell(self, scale=scale, high=high)
        return self.cells[name]

    def cut(self, part: slice) -> None:
        del self.times[part]
        for cell in self.cells.values():
            del cell.values[part]

    def span(self, low: int, high: int) -> tuple[UnixTime, UnixTime]:
        """First and last time at which a metric of `clocks` was on the page; if none was, those of the row."""
        times = self.times
        firsts, lasts = [], []
        for name in self.layout.clocks:
            if name in self.cells:
                values = self.cells[name].values
                there = [at for at in range(low, high) if not math.isnan(values[at])]
                firsts += there[:1]
                lasts += there[-1:]
        return times[min(firsts, default=low)], times[max(lasts, default=high - 1)]

    def note_xid(self, label: str, value: float, *, at: UnixTime) -> None:
        """Note a count, or without a label a code. XIDs on the first page may be as old as the exporter."""
        before = self._xids.get(label)
        if before is None and len(self._xids) >= _MOST_XIDS:
            return
        numbered = label.isdecimal() and len(label) <= _XID_DIGITS
        code = int(label) if numbered else int(value) if 0 < value < _MOST_XID else 0
        if before is None or before[0] != value:
            self._xids[label] = (value, code, at if value > 0 else -math.inf)

    def xids_since(self, begin: UnixTime) -> tuple[int, ...]:
        return tuple(sorted({code for _, code, at in self._xids.values() if at > begin and code}))

    def health(self, begin: UnixTime) -> str:
        """As reported by the exporter; if it only shows XIDs, "lost" for a GPU that has fallen off the bus."""
        if self.layout.group.state_label == "health":
            return self.state
        return "lost" if OFF_THE_BUS in self.xids_since(begin) else ""

    def terms(self, low: int, high: int, span: _Span, percents: frozenset[str]) -> dict[Term, Stat]:
        """All quantities that had a sample, possible or not."""
        columns: dict[str, _Column] = {}
        for name, cell in self.cells.items():
            values = cell.values[low:high]
            good = [value for value in values if value >= 0.0]
            if name in percents:
                good = [value / 100 for value in good]
            columns[name] = _Column(good, values.count(_DROPPED))
        found: dict[str, Stat] = {}
        for plan in self.layout.plans:
            if plan.counter is not None:
                stat = self._rate(plan.mean, plan.counter, low, high)
            else:
                stat = _stat(plan, columns, lambda name: self._holes(name, low, high, span))
            if stat is not None and (plan.part not in found or not found[plan.part].samples):
                found[plan.part] = stat
        add_total(found)
        return cast("dict[Term, Stat]", found)

    def _rate(self, names: Iterable[str], most: float, low: int, high: int) -> Stat | None:
        """How fast a counter rose; a counter that is lower than before was reset to 0."""
        name = next((name for name in names if name in self.cells), None)
        if name is None:
            return None
        values, times = self.cells[name].values, self.times
        there = [(times[at], values[at]) for at in range(low, high) if values[at] >= 0.0]
        if len(there) < 2:
            return None
        rise = sum([now - before if now >= before else now for (_, before), (_, now) in pairwise(there)])
        rate = rise / (there[-1][0] - there[0][0])
        return Stat(mean=rate, samples=len(there)) if rate <= most else Stat(dropped=len(there))

    def _holes(self, name: str, low: int, high: int, span: _Span) -> tuple[Hole, ...]:
        """Where the window has no valid sample of the metric."""
        values, times = self.cells[name].values, self.times
        there = [times[at] for at in range(low, high) if values[at] >= 0.0]
        return holes(there, begin=span.begin, end=span.end, interval=span.interval)


_MOST_XID = 10_000


def _percents(spans: Iterable[tuple[_Row, int, int]]) -> frozenset[str]:
    """Metrics whose values show that they are 0-100 though their names say ratio."""
    found: set[str] = set()
    for row, low, high in spans:
        for name, quantity in row.layout.by_values.items():
            cell = row.cells.get(name)
            if cell and quantity.percent(max(cell.values[low:high], default=0.0, key=_order)):
                found.add(name)
    return frozenset(found)


def _order(value: float) -> float:
    return -math.inf if math.isnan(value) else value


class _Column(NamedTuple):
    good: list[float]
    dropped: int


def _stat(plan: "_Plan", columns: Mapping[str, _Column], missing: Callable[[str], tuple[Hole, ...]]) -> Stat | None:
    """A quantity's statistics; None if no page had it.

    If several metrics could give a statistic, the one with the most samples is used. Only the maximum is taken over all
    metrics: work that one of them has seen did happen.
    """
    there = [columns[name] for name in plan.every if name in columns]
    if not any(column.good or column.dropped for column in there):
        return None
    mean, tail, counted = (_fullest(names, columns) for names in (plan.mean, plan.p95, plan.samples))
    clock = max((name for name in plan.clock if name in columns), key=lambda name: len(columns[name].good), default="")
    return Stat(
        mean=math.fsum(mean) / len(mean) if mean else None,
        max=max((max(column.good) for column in there if column.good), default=None),
        p95=quantile(0.95, tail) if tail else None,
        samples=len(counted),
        dropped=max(column.dropped for column in there),
        holes=missing(clock) if clock else None,
    )


def _fullest(names: Iterable[str], columns: Mapping[str, _Column]) -> list[float]:
    """The values of the metric with the most samples; the first of several such metrics."""
    return max((columns[name].good for name in names if name in columns), key=len, default=[])


# ── how rows are read, from the tables of schemas ────────────────────────────────────────────────────────────────


class _Plan(NamedTuple):
    """Which metrics give a quantity's statistics."""

    part: str
    every: tuple[str, ...]
    mean: tuple[str, ...]
    p95: tuple[str, ...]
    samples: tuple[str, ...]
    counter: float | None  # the highest possible rate of a counter; None: not a counter
    clock: tuple[str, ...]  # metrics whose samples show what was seen; (): the quantity's samples prove nothing


class _Layout:
    """How rows hold a group; compared by identity, because hashing a group takes long."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.plans = tuple(_plan(quantity) for quantity in group.quantities if quantity.part != "presence")
        self.clocks = tuple(dict.fromkeys(name for quantity in group.quantities for name in quantity.last))
        self.bounds = {
            name: (quantity.scale, math.inf if quantity.counter else quantity.highest)
            for quantity in group.quantities
            for name in _names(quantity)
        }
        self.by_values = {
            name: quantity for quantity in group.quantities if quantity.by_values for name in _names(quantity)
        }
        for name in (*group.facts, *filter(None, (group.xids,))):
            self.bounds[name] = (1.0, math.inf)  # only its presence and its labels are used


def _plan(quantity: Quantity) -> _Plan:
    every = _names(quantity)
    mean = quantity.mean or every
    return _Plan(
        quantity.part,
        every,
        mean,
        quantity.p95 or mean,
        quantity.samples or mean,
        quantity.highest if quantity.counter else None,
        quantity.samples,
    )


def _names(quantity: Quantity) -> tuple[str, ...]:
    names = (name for statistic in STATISTICS for name in quantity.names(statistic, many=True))
    return tuple(dict.fromkeys(names))


_LAYOUTS: Final = {name: layout for layout in map(_Layout, GROUPS) for name in layout.bounds}
WANTED: Final = frozenset(_LAYOUTS) | {m.SAMPLE_TIME.name}
