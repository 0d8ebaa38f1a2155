"""Answers of PromQL queries as a table by series, column by column; raw samples explain what the columns cannot.

take     one answer becomes a column; impossible values mark their series
settle   all columns are in: which GPU, instance and tenant each series belongs to
probes   samples of some series of each job, to find its pace, if no samples were queried
time     how often each job's series have samples, which are missing, whether a series is still there
sample_queries  series that only raw samples can explain: impossible values, changing tenants, begin or end of a series
look     explains these series by their raw samples
"""

import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.formats.prom.promql import (
    Matcher,
    MatrixRow,
    Sample,
    VectorRow,
    decode_labels,
    decode_named,
    in_order,
    one_of,
    selector,
    window,
    without_name,
)
from vgpuscope.knowledge.exporters import SENTINELS, STATISTICS, Group
from vgpuscope.knowledge.series_labels import SeriesIdentity, displaced_jobs, place
from vgpuscope.logic.fleet import pace
from vgpuscope.logic.fleet.queries import StatisticsQuery
from vgpuscope.model.analysis import Hole, Stat, Tenant
from vgpuscope.model.quantity import Seconds, UnixTime

WIDTH: Final = len(STATISTICS)
MEAN, MAX, P95, SAMPLES, LAST = range(WIDTH)

_NEARLY = 0.9  # of the expected samples; with so many, no relevant sample is missing
_BATCH = 250  # UUIDs in one query: VictoriaMetrics accepts 16 KiB
_ENDLESS = 1e15  # more than any count or time, less than infinity
_RAW_AT_MOST = 1_000_000  # raw samples, of all examined series together
_LOOKED_AT = 200  # series of a job whose samples are used to find its pace
_XID_DIGITS = 5
_PROBES = 20  # GPUs of a job whose samples are queried, if only statistics are wanted

Cells: TypeAlias = list[float | None]
Times: TypeAlias = "array[float]"
_Statistics: TypeAlias = tuple[float | None, float | None, float | None, int, UnixTime]  # in the order of STATISTICS
_Weighed: TypeAlias = tuple[_Statistics, UnixTime, list[UnixTime]]  # with the first time, and times of valid samples
Scope: TypeAlias = tuple[str, str]  # cluster and job: series that are scraped at one pace
Identity: TypeAlias = frozenset[tuple[str, str]]  # labels of a series, without the metric's name


class SeriesLabels(NamedTuple):
    """What the labels of a series say."""

    place: SeriesIdentity | None  # None: it names no GPU
    scope: Scope
    target: str  # cluster and instance


class WindowSeries(Struct, gc=False, eq=False):
    """One series: what its labels say, its row of the table, and what was found out about it."""

    raw: bytes
    cells: Cells
    place: SeriesIdentity
    scope: Scope
    target: str
    count: int = 0  # samples in the window
    first: UnixTime | None = None  # None: not known
    last: UnixTime | None = None
    exact: bool = False  # first and last are known from the samples themselves
    gone: bool = False  # it ended before the window did
    fixed: dict[int, Stat] = {}  # quantities recomputed without impossible samples
    times: dict[int, Times] = {}  # of valid samples, by quantity, if samples were queried
    holes: dict[int, tuple[Hole, ...]] = {}  # missing stretches, found from the times


class SampleQuery(NamedTuple):
    """A query for raw samples."""

    group: Group
    names: tuple[str, ...]
    devices: tuple[str, ...]

    def query(self, matchers: Iterable[Matcher], *, seconds: Seconds) -> str:
        parts = (one_of("__name__", self.names), one_of(self.group.uuid, self.devices), *matchers)
        return f"{selector('', parts)}[{window(seconds)}]"


class LabelCache:
    """GPU, MIG instance and tenant of each series of one group, cached for later readings: most labels repeat."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._known: dict[bytes, SeriesLabels] = {}
        self._displaced: frozenset[str] = frozenset()

    def of(self, raws: Set[bytes]) -> Mapping[bytes, SeriesLabels]:
        """What the labels of these series say."""
        displaced = displaced_jobs(decode_labels(raw) for raw in raws if b'"exported_' in raw)
        if displaced != self._displaced:
            self._known, self._displaced = {}, displaced
        words: dict[str, str] = {}  # text that thousands of series share is stored once
        for raw in raws:
            if raw not in self._known:
                self._known[raw] = self._found(raw, displaced, words)
        for raw in self._known.keys() - raws if len(self._known) > len(raws) else ():
            del self._known[raw]
        return self._known

    def place(self, labels: Mapping[str, str]) -> SeriesIdentity | None:
        """GPU, MIG instance and tenant of a series that is not in the cache."""
        return place(self._group, labels, displaced=labels.get("job", "") in self._displaced)

    def _found(self, raw: bytes, displaced: frozenset[str], words: dict[str, str]) -> SeriesLabels:
        labels = decode_labels(raw)
        job, cluster = labels.get("job", ""), labels.get("cluster", "")
        where = place(self._group, labels, displaced=job in displaced, words=words)
        scope, target = (words.setdefault(cluster, cluster), words.setdefault(job, job)), target_of(labels)
        return SeriesLabels(where, scope, words.setdefault(target, target))


class Table:
    """All series of one group in one window, which begins right after `begin`."""

    def __init__(
        self, group: Group, *, begin: UnixTime, end: UnixTime, step: Seconds, places: LabelCache | None = None
    ) -> None:
        self.group, self.begin, self.end = group, begin, end
        self._places = places or LabelCache(group)
        self.seen: list[WindowSeries] = []
        self.states: dict[int, str] = {}  # whole or partial, by column; absent: failed, or never asked for
        self.marked: dict[bytes, set[int]] = {}  # quantities with an impossible value, by series
        self.marked_series: dict[bytes, WindowSeries] = {}  # the series in `marked`
        self.intervals: dict[Scope, Seconds] = {}  # between samples, as observed; absent if none were observed
        self.xids: dict[str, set[int]] = {}  # by GPU
        self.frozen: set[str] = set()  # targets that still serve pages, but always with the same sample
        self._percents: set[tuple[int, str]] = set()  # quantities of targets that are 0-100 though named ratio
        self._probed: dict[Scope, list[Seconds]] = defaultdict(list)  # distances between samples of some series, by job
        self._step = step
        self._rows: dict[bytes, Cells] = {}
        self._order: list[bytes] = []  # keys of the rows, in order of arrival
        self._cells: list[Cells] = []  # in the same order
        self._taken: dict[tuple[int, ...], int] = {}  # number of series of each answer, by its columns
        self._names: dict[int, str] = {}  # metric, by column
        self._more: dict[str, dict[str, str]] = {}
        self._states: dict[tuple[str, str, Tenant | None], str] = {}
        self._spans: dict[bytes, tuple[UnixTime, UnixTime]] = {}  # first and last sample time, if samples were queried
        self._times: dict[bytes, dict[int, Times]] = {}
        self._fixed: dict[bytes, dict[int, Stat]] = {}

    # ── columns ──────────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, ask: StatisticsQuery, rows: Sequence[VectorRow], *, missing: str = "") -> None:
        """The rows of an answer become a column."""
        [column], quantity = ask.columns, self.group.quantities[ask.quantity]
        self._note(ask, missing)
        plain = column % WIDTH in {SAMPLES, LAST}
        scale, high = (1.0, _ENDLESS) if plain else (quantity.scale, quantity.highest)
        for raw, cells, row in zip(*self._found(ask, rows), rows, strict=True):
            ours = row.value[1] / scale
            if 0.0 <= ours <= high:
                cells[column] = ours
            elif not plain:  # an impossible count or time is treated as missing
                cells[column] = ours
                self.marked.setdefault(raw, set()).add(ask.quantity)

    def take_samples(self, ask: StatisticsQuery, lines: Sequence[MatrixRow], *, missing: str = "") -> None:
        """Series with all their samples become several columns; AnswerUnreadable if a sample is not a number."""
        quantity, columns = self.group.quantities[ask.quantity], ask.columns
        at = ask.quantity * WIDTH
        timed, counted, full = at + LAST in columns, at + SAMPLES in columns, len(columns) == WIDTH
        self._note(ask, missing)
        most, scale = quantity.highest * quantity.scale, quantity.scale
        tail = at + P95 in columns
        weighed = [_weighed(line, most, scale, tail=tail) for line in lines]
        for raw, cells, found in zip(*self._found(ask, lines), weighed, strict=True):
            if found is None:
                continue
            statistics, first, times = found
            _, _, _, count, last = statistics
            dropped = count - len(times)
            if full:
                cells[at : at + WIDTH] = statistics
            else:
                for column in columns:
                    cells[column] = statistics[column - at]
            if timed:
                self._spans[raw] = (first, last)
            if counted:
                self._times.setdefault(raw, {})[ask.quantity] = array("d", times)
            if dropped:
                mean, top, high = cells[at : at + SAMPLES]
                stat = Stat(mean=mean, max=top, p95=high, samples=count - dropped, dropped=dropped)
                self.marked.setdefault(raw, set()).add(ask.quantity)
                self._fixed.setdefault(raw, {})[ask.quantity] = stat

    def forget(self, ask: StatisticsQuery) -> None:
        """Remove the columns of an answer that turned out to be unusable."""
        for column in ask.columns:
            if self.states.pop(column, None):
                for cells in self._rows.values():
                    cells[column] = None
        for times in self._times.values():
            times.pop(ask.quantity, None)

    def _note(self, ask: StatisticsQuery, missing: str) -> None:
        for column in ask.columns:
            self.states[column] = "partial" if missing else "whole"
            self._names[column] = ask.name

    def _found(
        self, ask: StatisticsQuery, series: Sequence[VectorRow] | Sequence[MatrixRow]
    ) -> tuple[list[bytes], list[Cells]]:
        """Labels and cells of the next series of an answer. Engines keep their order, so most need no lookup."""
        raws, begin = _keys(ask.name, series), self._taken.get(ask.columns, 0)
        end = self._taken[ask.columns] = begin + len(raws)
        known = self._order[begin:end]
        if raws == known:
            return known, self._cells[begin:end]
        return raws, [self._rows.get(raw) or self._new(raw) for raw in raws]

    def _new(self, raw: bytes) -> Cells:
        cells: Cells = [None] * (WIDTH * len(self.group.quantities))
        self._rows[raw] = cells
        self._order.append(raw)
        self._cells.append(cells)
        return cells

    @property
    def size(self) -> int:
        """Number of series so far."""
        return len(self._rows)

    def learn(self, name: str, labels: dict[str, str]) -> None:
        """Keep the labels of an info or state metric of this group; call it after `settle`."""
        if name == self.group.info:
            self._more[labels.get("mig_uuid") or labels.get(self.group.uuid, "")] = labels
        elif name == self.group.state and (where := self._places.place(labels)):
            self._states[where.gpu_id, where.mig, where.tenant] = labels.get(self.group.state_label, "")

    def learn_xids(self, rows: Iterable[VectorRow]) -> None:
        """The rows of an answer to queries.xids(): a counter of each XID, or the last XID as the value."""
        for row in rows:
            labels = decode_labels(row.metric)
            code = labels.get("xid") or f"{row.value[1]:.0f}"
            if code.isdecimal() and len(code) <= _XID_DIGITS and (gpu := labels.get(self.group.uuid)):
                self.xids.setdefault(gpu, set()).add(int(code))

    def freeze(self, targets: Iterable[str]) -> None:
        """Targets whose agent no longer takes samples; only pages of our agent have a time of the sample."""
        if self.group.schema == "vgpuscope":
            self.frozen.update(targets)

    def more(self, where: SeriesIdentity) -> Mapping[str, str]:
        """The labels of the info metric for a GPU or MIG instance."""
        return self._more.get(where.mig or where.gpu_id, {})

    def state(self, where: SeriesIdentity) -> str:
        """The state that the state metric shows for a GPU or container; "" if there is none."""
        return self._states.get((where.gpu_id, where.mig, where.tenant), "") if self._states else ""

    def settle(self) -> None:
        """Build the list of series, once all columns are in."""
        known = self._places.of(self._rows.keys())
        for raw, cells in self._rows.items():
            where, scope, target = known[raw]
            if where is None:
                continue
            seen = WindowSeries(raw, cells, where, scope, target)
            if raw in self._spans:
                seen.first, seen.last = self._spans[raw]
                seen.exact = True
            if raw in self._fixed:
                seen.fixed = self._fixed[raw]
            if raw in self._times:
                seen.times = self._times[raw]
            self.seen.append(seen)
        self._rows, self._order, self._cells, self._times = {}, [], [], {}
        self.marked_series = {s.raw: s for s in self.seen if s.raw in self.marked} if self.marked else {}
        self._scale()

    def _scale(self) -> None:
        """Convert to 0-1 what only its values show to be percent, for each exporter by its own values."""
        for index, quantity in enumerate(self.group.quantities):
            columns = [c for c in range(index * WIDTH, index * WIDTH + SAMPLES) if c in self.states]
            if not (quantity.by_values and columns):
                continue
            most: dict[str, float] = defaultdict(float)
            for seen in self.seen:
                values = [*(seen.cells[c] for c in columns), *_numbers(seen.fixed.get(index))]
                most[seen.target] = max([most[seen.target], *(v for v in values if v and v <= quantity.highest)])
            self._percents |= {(index, target) for target, value in most.items() if quantity.percent(value)}
            for seen in self.seen:
                if (index, seen.target) in self._percents:
                    _divide(seen, columns, index)

    def time(self, *, known: Mapping[Scope, Seconds] = {}) -> None:
        """How many samples each series has, which are missing, and whether it is still there.

        `known`: earlier sample intervals, for jobs whose samples were not seen in this reading.
        """
        counts, lasts = self._of(SAMPLES), [c for c in self._of(LAST) if self.states[c] == "whole"]
        for seen in self.seen:
            for column in counts:
                count = seen.cells[column]
                if count and count > seen.count:
                    seen.count = int(count)
        guessed = [seen for seen in self.seen if not seen.exact]
        for seen in guessed:
            cells = seen.cells
            times = [at for column in lasts if (at := cells[column]) is not None and at > self.begin]
            seen.last = max(times, default=None)
            seen.gone = not times and any(cells[c - LAST + SAMPLES] for c in lasts)
        there = {seen.scope for seen in self.seen}
        self.intervals = {scope: known[scope] for scope in there if scope in known} | self._paces()
        for seen in guessed:
            self._estimate(seen)
        for seen in self.seen:
            self._miss(seen)

    def _paces(self) -> dict[Scope, Seconds]:
        """The sample interval of each job, by the distances between the samples of some of its series."""
        found: dict[Scope, list[Seconds]] = defaultdict(list, {k: list(v) for k, v in self._probed.items()})
        for seen in self.seen:
            paces = found[seen.scope]
            if seen.times and len(paces) < _LOOKED_AT:
                paces += [own for times in seen.times.values() if (own := pace.pace(times))]
        return {scope: usual for scope, paces in found.items() if (usual := pace.usual(paces))}

    def _miss(self, seen: WindowSeries) -> None:
        """Note where samples are missing, of quantities whose samples were seen.

        If the sample interval is unknown, or the target always shows the same sample, the whole window may be missing.
        """
        interval = self.intervals.get(seen.scope)
        if interval is None or seen.target in self.frozen:
            seen.holes = {column // WIDTH: (Hole(self.begin, self.end),) for column in self._of(SAMPLES)}
        elif seen.times:
            seen.holes = {
                index: pace.holes(times, begin=self.begin, end=self.end, interval=interval)
                for index, times in seen.times.items()
            }
            seen.times = {}

    def _estimate(self, seen: WindowSeries) -> None:
        """Estimate the first and last sample from the count and the time of the last one."""
        interval = self.interval(seen)
        if self.steady(seen) and seen.last is not None:
            seen.first = max(self.begin, seen.last - (seen.count - 1) * interval)
        elif seen.gone:  # as if it began with the window: the series ended at this time or later
            seen.last = min(self.end, self.begin + seen.count * interval)

    def steady(self, seen: WindowSeries) -> bool:
        """Whether the series is there now and was there all the time."""
        return not seen.gone and seen.last is not None and seen.count >= _NEARLY * self.expected(seen)

    def expected(self, seen: WindowSeries) -> float:
        return (self.end - self.begin) / self.interval(seen)

    def interval(self, seen: WindowSeries) -> Seconds:
        """Between two samples of the series; the configured interval if samples do not show it."""
        return self.intervals.get(seen.scope, self._step)

    def _of(self, statistic: int) -> list[int]:
        return [column for column in self.states if column % WIDTH == statistic]

    # ── raw samples ──────────────────────────────────────────────────────────────────────────────────────────────

    def probes(self) -> tuple[SampleQuery, ...]:
        """A query for samples of some series of each job without queried samples, to find its pace."""
        paced = {seen.scope for seen in self.seen if seen.times}
        devices: dict[Scope, dict[str, None]] = defaultdict(dict)
        for seen in self.seen:
            if seen.scope not in paced and len(devices[seen.scope]) < _PROBES:
                devices[seen.scope][seen.place.gpu_id] = None
        names = tuple(sorted(self._clocks()))  # an exporter may have only some of them
        wanted = tuple(dict.fromkeys(device for some in devices.values() for device in some))[:_BATCH]
        return (SampleQuery(self.group, names, wanted),) if names and wanted else ()

    def probe(self, lines: Iterable[MatrixRow]) -> None:
        """Take the samples that `probes` queried."""
        scopes = {_identity(seen.raw): seen.scope for seen in self.seen}
        for line in lines:
            scope = scopes.get(frozenset(decode_labels(line.metric).items()))
            own = pace.pace([at for at, _ in _ended(line.samples())])
            if scope is not None and own is not None:
                self._probed[scope].append(own)

    def _clocks(self) -> set[str]:
        """The metrics whose samples show when the series were observed."""
        return {self._names[column] for statistic in (SAMPLES, LAST) for column in self._of(statistic)}

    def sample_queries(self, limit: int) -> tuple[SampleQuery, ...]:
        """The queries for raw samples of at most `limit` GPUs; series of the other GPUs stay unclear."""
        false = [seen for seen in self.marked_series.values() if self.mixed(seen)]
        unclear = self._unclear()
        clocks = self._clocks() if unclear else set()
        names = clocks | {self._names[c] for seen in false for i in self.marked[seen.raw] for c in self._columns(i)}
        if not names:
            return ()
        expected = (self.end - self.begin) / min(self.intervals.values(), default=self._step)
        limit = min(limit, max(1, int(_RAW_AT_MOST / (expected * len(names)))))
        devices = tuple(dict.fromkeys(seen.place.gpu_id for seen in (*false, *unclear)))[:limit]
        batches = [devices[at : at + _BATCH] for at in range(0, len(devices), _BATCH)]
        return tuple(SampleQuery(self.group, tuple(sorted(names)), batch) for batch in batches)

    def look(self, sample_query: SampleQuery, lines: Iterable[MatrixRow]) -> None:
        """Explain the unclear series by their raw samples."""
        devices = frozenset(sample_query.devices)
        wanted = {_identity(s.raw): s for s in self.seen if s.place.gpu_id in devices}
        found: dict[Identity, dict[str, MatrixRow]] = defaultdict(dict)
        for line in lines:
            name, labels = decode_named(line.metric)
            found[frozenset(labels.items())][name] = line
        for identity, seen in wanted.items():
            self._explain(seen, found.get(identity, {}))

    def _explain(self, seen: WindowSeries, lines: Mapping[str, MatrixRow]) -> None:
        clocks = [line for c in self._of(LAST) if (line := lines.get(self._names[c]))]
        times = [at for line in clocks for at, value in line.samples() if not math.isnan(value)]  # NaN: marks an end
        if times:
            seen.first, seen.last = min(times), max(times)
        for index in self.marked.get(seen.raw, ()):
            count = seen.cells[index * WIDTH + SAMPLES]
            seen.fixed[index] = self._exact(index, lines, most=math.inf if count is None else count)
            if (index, seen.target) in self._percents:
                _divide(seen, (), index)
        seen.times = self._true_times(lines)
        self._miss(seen)

    def _true_times(self, lines: Mapping[str, MatrixRow]) -> dict[int, Times]:
        """The times of valid samples, by quantity."""
        found: dict[int, Times] = {}
        for column in self._of(SAMPLES):
            index = column // WIDTH
            if line := lines.get(self._names[column]):
                plausible = self.group.quantities[index].plausible
                found[index] = array("d", [at for at, value in line.samples() if plausible(value)])
        return found

    def _exact(self, index: int, lines: Mapping[str, MatrixRow], *, most: float) -> Stat:
        """Statistics of a quantity without its impossible samples; `most`: the number of samples at most."""
        quantity = self.group.quantities[index]
        good: dict[int, list[float]] = {}
        dropped = 0
        for column in self._columns(index):
            line = lines.get(self._names[column])
            numbers = [value for _, value in line.samples()] if line else []
            good[column % WIDTH] = kept = [v / quantity.scale for v in numbers if quantity.plausible(v)]
            dropped = max(dropped, int(min(len(numbers), most)) - len(kept))
        mean, top, tail = good.get(MEAN), good.get(MAX), good.get(P95)
        return Stat(
            mean=math.fsum(mean) / len(mean) if mean else None,
            max=max(top) if top else None,
            p95=quantile(0.95, tail) if tail else None,
            samples=len(good.get(SAMPLES, mean or top or [])),
            dropped=dropped,
        )

    def _columns(self, index: int) -> list[int]:
        columns = range(index * WIDTH, index * WIDTH + LAST)
        return [column for column in columns if column in self._names]

    def mixed(self, seen: WindowSeries) -> bool:
        """Whether some samples of a series are impossible and others may be valid."""
        marked = self.marked.get(seen.raw, ())
        return any(index not in seen.fixed and not self._all_false(seen, index) for index in marked)

    def _all_false(self, seen: WindowSeries, index: int) -> bool:
        """Whether every sample was the same impossible value, so that raw samples would show nothing else."""
        quantity, at = self.group.quantities[index], index * WIDTH
        mean, top = seen.cells[at + MEAN], seen.cells[at + MAX]
        if mean is None or 0.0 <= mean <= quantity.highest:
            return False
        if top is not None:
            return (math.isnan(mean) and math.isnan(top)) or (math.isfinite(mean) and math.isclose(mean, top))
        return any(math.isclose(mean, value / quantity.scale, rel_tol=1e-12) for value in SENTINELS)

    def _odd(self, seen: WindowSeries) -> bool:
        return not seen.exact and bool(seen.count and (seen.gone or seen.last)) and not self.steady(seen)

    def _unclear(self) -> list[WindowSeries]:
        """Series whose first and last sample do not follow from count and time: handovers first, then ended series."""
        odd = [seen for seen in self.seen if self._odd(seen)]
        if not odd:
            return []
        tenants: dict[tuple[str, str], set[Tenant | None]] = defaultdict(set)
        for seen in self.seen:
            tenants[seen.place.gpu_id, seen.place.mig].add(seen.place.tenant)

        def urgency(seen: WindowSeries) -> int:
            return 0 if len(tenants[seen.place.gpu_id, seen.place.mig]) > 1 else 1 if seen.gone else 2

        return sorted(odd, key=urgency)


def target_of(labels: Mapping[str, str]) -> str:
    """The scrape target of a series: its instance, with the cluster where several are known."""
    instance, cluster = labels.get("instance", ""), labels.get("cluster", "")
    return f"{cluster}/{instance}" if cluster and instance else instance


def _identity(raw: bytes) -> Identity:
    return frozenset(decode_labels(raw).items())


def _numbers(stat: Stat | None) -> tuple[float | None, ...]:
    return (stat.mean, stat.max, stat.p95) if stat else ()


def _divide(seen: WindowSeries, columns: Iterable[int], index: int) -> None:
    """From percent to a ratio."""
    for column in columns:
        value = seen.cells[column]
        seen.cells[column] = None if value is None else value / 100
    if stat := seen.fixed.get(index):
        mean, top, tail = (None if value is None else value / 100 for value in _numbers(stat))
        seen.fixed[index] = replace(stat, mean=mean, max=top, p95=tail)


def _ended(samples: list[Sample]) -> list[Sample]:
    """Samples without VictoriaMetrics' end marker of a series, which is a NaN after a number."""
    marked = len(samples) > 1 and math.isnan(samples[-1][1]) and not math.isnan(samples[-2][1])
    return samples[:-1] if marked else samples


def _keys(name: str, series: Sequence[VectorRow] | Sequence[MatrixRow]) -> list[bytes]:
    """The labels of each series, written the same way for all metrics.

    Engines write labels in order, except VictoriaMetrics in answers with samples. VictoriaMetrics also keeps metric
    names in some answers.
    """
    raws = [bytes(one.metric) for one in series]
    if any(b'"__name__"' in raw for raw in raws[:3]):
        raws = without_name(raws, name)
    ordered = all(list(labels) == sorted(labels) for labels in map(decode_labels, raws[:3]))
    return raws if ordered else [in_order(raw) for raw in raws]


def _weighed(line: MatrixRow, most: float, scale: float, *, tail: bool) -> _Weighed | None:
    """A series' statistics; None if it has no samples. `tail`: p95 is wanted, which needs sorted samples.

    `most` is in the samples' own unit: there are many samples, so only the results are scaled.
    """
    samples = line.samples()
    if not samples:
        return None
    values = [value for _, value in samples]
    total, count = sum(values), len(values)
    ordered = sorted(values) if tail else (min(values), max(values))
    low, top = ordered[0], ordered[-1]
    if low < 0.0 or top > most or math.isnan(total):  # NaN has no order, but makes every sum NaN
        return _sifted(_ended(samples), most, scale)
    mean = total / count
    high = _quantile(0.95, ordered) / scale if tail else None
    times = [at for at, _ in samples]
    return ((mean if mean < top else top) / scale, top / scale, high, count, times[-1]), times[0], times


def _sifted(samples: list[Sample], most: float, scale: float) -> _Weighed:
    """The same, of the valid samples only."""
    true = [(at, value / scale) for at, value in samples if 0.0 <= value <= most]
    first, last, times = samples[0][0], samples[-1][0], [at for at, _ in true]
    if not true:
        return (None, None, None, len(samples), last), first, times
    good = sorted([value for _, value in true])
    return (math.fsum(good) / len(good), good[-1], _quantile(0.95, good), len(samples), last), first, times


def quantile(q: float, values: list[float]) -> float:
    """As in PromQL: interpolated between the two nearest ranks."""
    return _quantile(q, sorted(values))


def _quantile(q: float, ordered: Sequence[float]) -> float:
    rank = q * (len(ordered) - 1)
    low = int(rank)
    above = rank - low
    return ordered[low] * (1.0 - above) + ordered[low + 1] * above if above else ordered[low]
