"""Prometheus' HTTP API, as Prometheus, Thanos, Mimir and VictoriaMetrics serve it.

Each query reads one metric for the whole fleet, so the number of queries depends on the exported metrics, not on the
number of GPUs. The engine computes the window's statistics. If several statistics are wanted of a metric with few
samples in all, one query reads the samples instead. Otherwise samples are read only for unclear series (impossible
values, a handover, an end within the window), up to a limit.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Self, TypeVar, cast, get_args

from vgpuscope.catalog import node as m
from vgpuscope.formats.prom import promql
from vgpuscope.knowledge.exporters import GROUPS, Group
from vgpuscope.logic.fleet.queries import (
    RECORDED_EVERY,
    RECORDED_SECONDS,
    Ask,
    Rule,
    gathered,
    matchers_for,
    plan,
    recording_rules,
)
from vgpuscope.logic.fleet.requests import Bundle, bundled, lines_by_name, rows_by_ask
from vgpuscope.logic.fleet.series_table import LabelCache, SampleQuery, Scope, Table, target_of
from vgpuscope.logic.fleet.tracks import refused, tracks
from vgpuscope.model.analysis import Fault, Reading, Target, Term, Window
from vgpuscope.model.errors import (
    AnswerPartial,
    NoKnownMetrics,
    QueryFailed,
    QueryForbidden,
    QueryTimeout,
    SamplesRefused,
    ScopeError,
    SourceDown,
)
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.runtime.units import Units
from vgpuscope.sources.fleet.promapi import Budget, PromApi
from vgpuscope.worker import Worker

T = TypeVar("T")
V = TypeVar("V")
log = logging.getLogger(__name__)

_SOON: Seconds = 5.0  # a slower answer to ready() is treated as no answer
_REMEMBER = 10  # readings for which the names of existing metrics are cached
_RULES_LATE: Seconds = 3 * RECORDED_EVERY  # rules that were evaluated longer ago are not used
_MANY = 20_000  # series: answers with so many fill memory
_FEW = 4  # concurrent answers, if they fill memory or may do so
_SLICE = 500  # rows: take a few milliseconds
_SLICE_BYTES = 256 * 1024  # of the samples of these rows
_SHORT = 40  # samples of a series that take about as much space as its labels, which each statistic repeats
_SHORT_GAIN = 8  # factor for the limit on samples, if series are so short
_LARGEST = 256 * 1024 * 1024  # bytes of one answer
_BUDGET = 1024 * 1024 * 1024  # bytes of all answers of one analysis; 100,000 GPUs need less than half of it
_ONE_NUMBER = 64 * 1024  # bytes of an answer that is one number
_SIZES_ANSWER = 1024 * 1024  # bytes of an answer with one row for each metric
_FROZEN = (0.25, 0.5)  # of the window: the shorter part may hold a single sample
_XID_DIGITS = 5
_SIZES = 0.2  # of the deadline: without the number of series little is lost
_QUESTIONS = 8  # queries that are sent one by one; more are bundled
_ROWS = 50_000  # rows of an answer to bundled queries


class PrometheusSource:
    """The fleet as a PromQL engine reports it."""

    def __init__(
        self,
        *,
        url: str,
        condition: str = '{pod!=""}',
        interval: Seconds = 30.0,
        headers: Mapping[str, str] | None = None,
        basic: tuple[str, str] | None = None,
        token: str | None = None,
        token_file: str | None = None,
        ca_file: str | None = None,
        insecure: bool = False,
        deadline: Seconds = 60.0,
        retries: int = 3,
        concurrency: int = 4,
        largest_answer: int = _LARGEST,
        budget: int = _BUDGET,
        closer: int = 500,
        samples: int = 400_000,
        progress: Callable[[int, int], None] = lambda _, __: None,
    ) -> None:
        """ConfigInvalid if the URL, the condition or a certificate cannot be used.

        `interval`: the longest time between two samples of a series. `closer`: the highest number of GPUs whose raw
        samples are queried. `samples`: if a metric has fewer samples in the whole window, they are queried instead of
        their statistics, because that is as quick as one statistic. The limit is higher if each series has few samples.
        `budget`: the bytes that all answers of one analysis may have together.
        `progress` is called with the number of answered queries and the number of all queries.
        """
        self._condition = promql.parse_condition(condition)
        self._interval, self._deadline, self._closer, self._concurrency = interval, deadline, closer, concurrency
        self._samples, self._progress, self._budget = samples, progress, budget
        self.units = Units(log)
        self._api = PromApi(
            url=url,
            headers=headers or {},
            basic=basic,
            token=token,
            token_file=token_file,
            ca_file=ca_file,
            insecure=insecure,
            retries=retries,
            concurrency=concurrency,
            largest=largest_answer,
        )
        self._worker = Worker("prometheus answers")
        self._present: frozenset[str] = frozenset()
        self._remembered = 0
        self._series: dict[tuple[str, str], int] = {}  # number of series in the last reading, by group
        self._pace: Seconds | None = None  # shortest time between two samples of these series; None: not known yet
        self._fleet = 0  # hash of the identities of these series
        self._paces: list[dict[Scope, Seconds]] = [{} for _ in GROUPS]  # sample intervals of jobs, as last seen
        self._jobs: set[str] = set()  # jobs that ever scraped such series
        self._places = [LabelCache(group) for group in GROUPS]
        self._sparing = 0  # readings to come without queries for samples, because the engine rejected such queries

    @property
    def url(self) -> str:
        """The URL without user and password."""
        return self._api.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        self._worker.abandon()
        await self._api.aclose()

    async def ready(self) -> None:
        """SourceDown if the engine does not answer queries."""
        by = asyncio.get_running_loop().time() + min(_SOON, self._deadline)
        try:
            promql.decode_vector(await self._api.query("vector(1)", at=None, by=by, most=_ONE_NUMBER))
        except QueryForbidden:
            raise
        except QueryFailed as e:
            usual = "Check prometheus.url: it is the address without /api/v1/query."
            hint = usual if e.advice == e.hint else e.advice
            raise SourceDown(f"{self.url} does not answer queries: {e}", hint=hint) from e

    async def read(self, *, end: UnixTime, seconds: Seconds) -> Reading:
        """The window that ends at `end`; SourceDown if not one query was answered."""
        large = sum(self._series.values()) > _MANY
        at_once = min(self._concurrency, _FEW if large or not self._series else self._concurrency)
        budget = Budget(self._budget)
        cycle = _Cycle(
            self._api, self._worker, self.units, budget, end=end, seconds=seconds, due=self._deadline, at_once=at_once
        )
        remembered, present = self._remembered > 0, await self._names(cycle)
        tables = await self._tables(cycle, present)
        fleet = hash(frozenset(seen.raw for table in tables for seen in table.seen))
        # new series, or a store that is back, may bring metrics that show work
        if cycle.names_are_partial or (remembered and fleet != self._fleet):
            self._remembered, known = 0, len(cycle.faults)
            if not (now := await self._names(cycle)) <= present:
                del cycle.faults[:known]  # everything is queried again
                tables = await self._tables(cycle, now)
        self._fleet = fleet
        self._series = {(table.group.schema, table.group.kind): len(table.seen) for table in tables if table.seen}
        self._jobs |= {seen.scope[1] for table in tables for seen in table.seen}
        targets = await cycle.targets(self._jobs, _for_all(self._condition))
        found = await cycle.off_loop(lambda: tuple(track for table in tables for track in tracks(table)))
        if not (found or cycle.faults or present & _MEASURES):
            cycle.fault("metrics", NoKnownMetrics(f"{self.url} has no known GPU metric"))
        interval = _shortest(tables, self._interval)
        self._pace = interval if found else None
        if not found:
            self._remembered = 0
        return Reading(
            window=Window(begin=end - seconds, end=end, interval=interval),
            tracks=found,
            schemas=tuple(dict.fromkeys(track.schema for track in found)),
            source=self.url,
            requests=cycle.requests,
            faults=tuple(dict.fromkeys(cycle.faults)),
            targets=targets,
        )

    async def _tables(self, cycle: "_Cycle", present: frozenset[str]) -> list[Table]:
        """What the existing metrics show for the window."""
        begin = cycle.end - cycle.seconds
        tables = [
            Table(group, begin=begin, end=cycle.end, step=self._interval, places=places)
            for group, places in zip(GROUPS, self._places, strict=True)
        ]
        cycle.sparing = self._sparing > 0
        await self._fill(cycle, tables, present)
        await self._look_closer(cycle, tables)
        return tables

    async def _names(self, cycle: "_Cycle") -> frozenset[str]:
        """The metrics that exist. If that is unknown, all known metrics: a query without a result costs little."""
        every = frozenset(name for group in GROUPS for name in group.names)
        if self._remembered <= 0:
            wanted = every | {rule.name for rule in recording_rules()} | {m.SAMPLE_TIME.name}
            try:
                told = await cycle.names(wanted, _for_all(self._condition))
            except ScopeError as e:
                cycle.fault("names of metrics", e)
                return self._present | every
            found = wanted & frozenset(told.rows)
            if told.missing:  # an incomplete list is not cached
                return found | self._present or every
            self._present, self._remembered = found, _REMEMBER
        self._remembered -= 1
        return self._present

    async def _fill(self, cycle: "_Cycle", tables: Sequence[Table], present: frozenset[str]) -> None:
        """Send all queries; the API limits how many run at the same time."""
        plans = await self._plans(cycle, tables, present)
        if not any(plans):
            return
        if not self._series:  # the number of series decides how to query
            self._series = await cycle.sizes(present, _for_all(self._condition))
        work = [cycle.ask(bundle) for bundle in self._bundles(cycle, tables, plans)]
        if facts := _FACTS & present:
            work.append(cycle.learn(facts, _for_all(self._condition)))
        work += [cycle.learn_xids(table, self._matchers(table)) for table in tables if table.group.xids in present]
        if m.SAMPLE_TIME.name in present:
            work.append(cycle.find_frozen(tables, _for_all(self._condition)))
        progress = _Progress(self._progress, len(work))
        await asyncio.gather(*(progress.counted(one) for one in work))
        if again := cycle.to_ask_again():
            progress.total += len(again)
            await asyncio.gather(*(progress.counted(cycle.ask(bundle)) for bundle in again))
        if cycle.samples_failed:
            self._sparing = _REMEMBER
            # for example, VictoriaMetrics that lacks a store rejects queries for samples, but answers those for
            # statistics
            instead = cycle.instead_of_samples()
            progress.total += len(instead)
            await asyncio.gather(*(progress.counted(cycle.ask(bundle)) for bundle in instead))
        elif not cycle.faults:
            self._sparing = max(0, self._sparing - 1)
        states = {state for table in tables for state in table.states.values()}
        if not states:
            raise cycle.down(f"{self.url}: no query was answered")
        if "partial" in states and not any(table.size for table in tables):  # all stores of a Thanos are down
            raise cycle.down(f"{self.url}: the answers are partial and empty")

    async def _plans(self, cycle: "_Cycle", tables: Sequence[Table], present: frozenset[str]) -> list[list[Ask]]:
        """The queries for each table."""
        recorded = cycle.seconds == RECORDED_SECONDS and await self._rules_are_current(cycle, present)
        expected = cycle.seconds / self._interval
        return [
            list(plan(table.group, present=present, condition=self._condition, expected=expected, recorded=recorded))
            for table in tables
        ]

    def _bundles(
        self, cycle: "_Cycle", tables: Sequence[Table], plans: Sequence[list[Ask]]
    ) -> list[tuple[Bundle, tuple[Table, ...]]]:
        """The requests to send: one for each query, or fewer if there are many queries and answers are small."""
        asks: list[Ask] = []
        for table, wanted in zip(tables, plans, strict=True):
            asks += gathered(wanted) if self._by_samples(table, cycle.seconds) else wanted
        by_group = {id(table.group): table for table in tables}
        few = len(asks) <= _QUESTIONS or not self._series  # answers of unknown size are not bundled
        several = Counter((id(ask.group), ask.quantity) for ask in asks)
        asks.sort(key=lambda ask: several[id(ask.group), ask.quantity])  # a slow quantity holds up as few as possible
        bundles = [Bundle((ask,)) for ask in asks]
        if not few:
            bundles = bundled(
                asks,
                size=lambda ask: max(1, self._size(by_group[id(ask.group)])),
                most_rows=min(_ROWS, self._samples),
                most_samples=self._samples,
                expected=cycle.seconds / (self._pace or self._interval),
            )
        return [(bundle, tuple(by_group[id(ask.group)] for ask in bundle.asks)) for bundle in bundles]

    async def _rules_are_current(self, cycle: "_Cycle", present: frozenset[str]) -> bool:
        """Whether recording rules exist, were evaluated recently, and cover as many series as there are."""
        first = {id(rule.group): rule for rule in reversed(list(recording_rules())) if rule.name in present}
        try:
            return bool(first) and all([await self._rule_is_current(cycle, rule) for rule in first.values()])
        except ScopeError as e:
            cycle.fault("recording rules", e)
            return False

    async def _rule_is_current(self, cycle: "_Cycle", rule: Rule) -> bool:
        matchers = matchers_for(rule.group, self._condition)
        recorded, raw = promql.selector(rule.name, matchers), promql.selector(rule.metric, matchers)
        at = await cycle.number(f"max(timestamp({recorded}))")
        if at is None or at < cycle.end - _RULES_LATE:
            return False
        missing = await cycle.number(f"count({raw}) - count({recorded})")
        return missing is not None and missing <= 0

    def _by_samples(self, table: Table, seconds: Seconds) -> bool:
        """Whether to query samples if several statistics are wanted."""
        expected = seconds / (self._pace or self._interval)
        most = self._samples * (_SHORT_GAIN if self._pace and expected <= _SHORT else 1)
        return not self._sparing and 0 < self._size(table) * expected <= most

    def _size(self, table: Table) -> int:
        """The estimated number of series: that of the last reading, or of this one so far."""
        return max(table.size, self._series.get((table.group.schema, table.group.kind), 0))

    async def _look_closer(self, cycle: "_Cycle", tables: Sequence[Table]) -> None:
        """Query raw samples of some series of each job, for its pace, and of series that the columns do not explain."""

        def settled() -> list[tuple[Table, SampleQuery]]:
            for table in tables:
                table.settle()
            for name, labels in cycle.facts:
                for table in tables:
                    table.learn(name, labels)
            if cycle.sparing and any(self._paces):
                return []
            return [(table, probe) for table in tables for probe in table.probes()]

        def timed() -> list[tuple[Table, SampleQuery]]:
            for table, paces in zip(tables, self._paces, strict=True):
                table.time(known=paces)
                paces.update(table.intervals)
            return [(table, sample_query) for table in tables for sample_query in table.sample_queries(self._closer)]

        probes = await cycle.off_loop(settled)
        await asyncio.gather(*(cycle.probe(table, probe, self._matchers(table)) for table, probe in probes))
        sample_queries = await cycle.off_loop(timed)
        await asyncio.gather(
            *(cycle.look(table, sample_query, self._matchers(table)) for table, sample_query in sample_queries)
        )
        for table in tables:
            for term, left in refused(table).items():
                text = f"{left} series have impossible values, and their samples could not be read"
                part = f"{term} of {table.group.schema} {table.group.kind}s"
                cycle.fault(part, SamplesRefused(text), group=table.group, terms=_terms(term))

    def _matchers(self, table: Table) -> tuple[promql.Matcher, ...]:
        return matchers_for(table.group, self._condition)


class _Progress:
    """Counts finished queries."""

    def __init__(self, tell: Callable[[int, int], None], total: int) -> None:
        self._tell, self.total = tell, total
        self._done = 0

    async def counted(self, one: Awaitable[None]) -> None:
        await one
        self._done += 1
        self._tell(self._done, self.total)


class _Cycle:
    """One reading: its window, its deadline, and what failed in it."""

    def __init__(
        self,
        api: PromApi,
        worker: Worker,
        units: Units,
        budget: Budget,
        *,
        end: UnixTime,
        seconds: Seconds,
        due: Seconds,
        at_once: int,
    ) -> None:
        self._api, self._worker, self._units, self._budget = api, worker, units, budget
        self.end, self.seconds = end, seconds
        self._window = promql.window(seconds)
        self._due, self._by = due, asyncio.get_running_loop().time() + due
        self._room = asyncio.Semaphore(at_once)  # limits the answers in memory
        self._taking = asyncio.Lock()
        self.requests = 0
        self.faults: list[Fault] = []
        self.samples_failed = self.names_are_partial = self.sparing = False
        self.facts: list[tuple[str, dict[str, str]]] = []  # names and labels of metrics that are 1 if these are true
        self._again: list[tuple[Bundle, tuple[Table, ...]]] = []
        self._refused: list[tuple[Ask, Table]] = []  # queries for samples that the engine rejected
        self._advice: str | None = None  # hint of the last fault

    def fault(self, part: str, error: ScopeError, *, group: Group | None = None, terms: tuple[Term, ...] = ()) -> None:
        """Note a fault; `terms` of the group's tracks could not be read."""
        self._advice = error.advice
        schema, own = (group.schema, group.kind == "container") if group else (None, None)
        self.faults.append(Fault(part=part, code=error.code, message=str(error), terms=terms, schema=schema, own=own))

    def down(self, text: str) -> SourceDown:
        """The error if all queries together gave no result; the last fault is the reason."""
        return SourceDown(f"{text}: {self.faults[-1].code}: {self.faults[-1].message}", hint=self._advice)

    async def off_loop(self, work: Callable[[], T]) -> T:
        """Run work outside the event loop, which it would block for too long."""
        return await self._worker.do(work)

    async def names(self, of: Iterable[str], matchers: Iterable[promql.Matcher]) -> promql.Answer[str]:
        """Which of these metrics exist."""
        match = promql.selector("", (promql.one_of("__name__", sorted(of)), *matchers))
        data = await self._api.label_values(
            "__name__",
            match=match,
            begin=self.end - self.seconds,
            end=self.end,
            by=self._by,
            sent=self._sent,
            budget=self._budget,
        )
        answer = promql.decode_names(data)
        self._partial("names of metrics", answer.missing)
        self.names_are_partial = bool(answer.missing)
        return answer

    async def number(self, query: str) -> float | None:
        """The one number that a query returns; None if it returns none."""
        self.requests += 1
        data = await self._api.query(query, at=self.end, by=self._by, most=_ONE_NUMBER, budget=self._budget)
        answer = promql.decode_vector(data)
        return answer.rows[0].value[1] if answer.rows else None

    async def sizes(self, of: frozenset[str], matchers: Iterable[promql.Matcher]) -> dict[tuple[str, str], int]:
        """The current number of series of each group; empty if the engine does not answer that."""
        clocks = {name: group for group in GROUPS for name in group.clocks & of}
        series = promql.selector("", (promql.one_of("__name__", sorted(clocks)), *matchers))
        soon = min(self._by, asyncio.get_running_loop().time() + self._due * _SIZES)
        try:
            data = await self._api.query(
                f"count by (__name__) ({series})",
                at=self.end,
                by=soon,
                sent=self._sent,
                most=_SIZES_ANSWER,
                budget=self._budget,
            )
            rows = promql.decode_vector(data).rows
        except ScopeError:
            return {}
        found: dict[tuple[str, str], int] = {}
        for row in rows:
            group, count = clocks.get(promql.decode_named(row.metric)[0]), row.value[1]
            if group and 0 < count < inf:
                key = (group.schema, group.kind)
                found[key] = max(found.get(key, 0), int(count))
        return found

    async def ask(self, asked: tuple[Bundle, tuple[Table, ...]]) -> None:
        """Fill one or several columns of tables by one request."""
        bundle, tables = asked
        pairs = tuple(zip(bundle.asks, tables, strict=True))

        async def take(data: bytes) -> None:
            if bundle.raw:
                steps = promql.matrix_steps(data)
                del data
                lines = await _unhurried(steps)
                by_name = {pairs[0][0].name: lines.rows}
                if len(pairs) > 1:
                    by_name = await self._off_loop_if_many(lines.rows, lines_by_name)
                for ask, table in pairs:
                    async for some_lines in _line_slices(by_name.get(ask.name, [])):
                        table.take_samples(ask, some_lines, missing=lines.missing)
                missing = lines.missing
            else:
                answer = await _unhurried(promql.vector_steps(data))
                by_ask = {0: answer.rows}
                if len(pairs) > 1:
                    by_ask = await self._off_loop_if_many(answer.rows, lambda rows: rows_by_ask(bundle, rows))
                for at, (ask, table) in enumerate(pairs):
                    async for rows in _slices(by_ask[at]):
                        table.take(ask, rows, missing=answer.missing)
                missing = answer.missing
            for ask, _ in pairs:
                self._partial(ask.part, missing, ask=ask)

        error = await self._part(bundle.part, bundle.query(self._window), take, fault=False)
        if error is None:
            return
        for ask, table in pairs:
            table.forget(ask)
        if len(pairs) > 1 and not isinstance(error, QueryTimeout):
            self._again += [(Bundle((ask,)), (table,)) for ask, table in pairs]
            return
        for ask, _ in pairs:
            self.fault(ask.part, error, group=ask.group, terms=_terms(ask.group.quantities[ask.quantity].term))
        if bundle.raw:
            self.samples_failed = True
            if isinstance(error, QueryFailed) and error.answered:
                self._refused += pairs

    def to_ask_again(self) -> list[tuple[Bundle, tuple[Table, ...]]]:
        """The queries of failed bundles, one by one: a single query may have failed the bundle."""
        again, self._again = self._again, []
        return again

    def instead_of_samples(self) -> list[tuple[Bundle, tuple[Table, ...]]]:
        """The statistics to query where samples were rejected; the rejection is then not a fault."""
        refused, self._refused = self._refused, []
        parts = {ask.part for ask, _ in refused}
        self.faults[:] = [fault for fault in self.faults if fault.part not in parts]
        return [
            (Bundle((ask._replace(statistics=(one,)),)), (table,)) for ask, table in refused for one in ask.statistics
        ]

    async def learn(self, names: frozenset[str], matchers: Iterable[promql.Matcher]) -> None:
        """Read the labels of metrics that are 1 if their labels are true."""

        async def take(data: bytes) -> None:
            async for rows in _rows(data):
                self.facts += [promql.decode_named(row.metric) for row in rows]

        series = promql.selector("", (promql.one_of("__name__", sorted(names)), *matchers))
        await self._part("labels", f"last_over_time({series}[{self._window}]) > 0", take)

    async def learn_xids(self, table: Table, matchers: Iterable[promql.Matcher]) -> None:
        """Read the XIDs of the window: those counted in it, or the last one if it changed in the window."""

        async def take(data: bytes) -> None:
            async for rows in _rows(data):
                for row in rows:
                    labels = promql.decode_labels(row.metric)
                    code = labels.get("xid") or f"{row.value[1]:.0f}"
                    if code.isdecimal() and len(code) <= _XID_DIGITS and (card := labels.get(table.group.uuid)):
                        table.xids.setdefault(card, set()).add(int(code))

        series, window = promql.selector(table.group.xids, matchers), self._window
        new = f"({series} > 0 unless {series} offset {window})"
        await self._part("XIDs", f"({series} > 0 and changes({series}[{window}]) > 0) or {new}", take)

    async def find_frozen(self, tables: Iterable[Table], matchers: Iterable[promql.Matcher]) -> None:
        """Find agents that answer but no longer take samples: their pages always show the last sample."""

        frozen: set[str] = set()

        async def take(data: bytes) -> None:
            async for rows in _rows(data):
                frozen.update(target_of(promql.decode_labels(row.metric)) for row in rows)
            for name in sorted(frozen):
                self.fault(name, SourceDown("the agent answers, but has stopped taking samples"))
                for table in tables:
                    if table.group.schema == "vgpuscope":
                        table.frozen.add(name)

        series = promql.selector(m.SAMPLE_TIME.name, matchers)
        spans = [promql.window(self.seconds * part) for part in _FROZEN]
        same = (f"(changes({series}[{span}]) == 0 and count_over_time({series}[{span}]) > 1)" for span in spans)
        await self._part("times of samples", " or ".join(same), take)

    async def targets(self, jobs: Iterable[str], matchers: Iterable[promql.Matcher]) -> tuple[Target, ...]:
        """The targets of these jobs by the engine's own `up` metric; empty if it has none."""
        found: dict[str, Target] = {}

        async def take(data: bytes) -> None:
            async for rows in _rows(data):
                for row in rows:
                    name = target_of(promql.decode_labels(row.metric))
                    up = row.value[1] == 1 or (name in found and found[name].up)
                    found[name] = Target(name=name, up=up, reason="" if up else "its last scrape failed")

        if wanted := sorted(filter(None, jobs)):
            series = promql.selector("up", (promql.one_of("job", wanted), *matchers))
            await self._part("targets", series, take, fault=False)
        return tuple(found.values())

    async def probe(self, table: Table, probe: SampleQuery, matchers: Iterable[promql.Matcher]) -> None:
        """Query raw samples of some series, for the pace of their jobs."""

        async def take(data: bytes) -> None:
            lines = await _unhurried(promql.matrix_steps(data))
            await self.off_loop(lambda: table.probe(lines.rows))

        await self._part("raw samples", f"{probe.series(matchers)}[{self._window}]", take, fault=not self.faults)

    async def look(self, table: Table, sample_query: SampleQuery, matchers: Iterable[promql.Matcher]) -> None:
        """Query raw samples for a table."""

        async def take(data: bytes) -> None:
            answer = await _unhurried(promql.matrix_steps(data))
            self._partial("raw samples", answer.missing)
            await self.off_loop(lambda: table.look(sample_query, answer.rows))

        await self._part("raw samples", f"{sample_query.series(matchers)}[{self._window}]", take)

    async def _part(
        self, part: str, query: str, take: Callable[[bytes], Awaitable[None]], *, fault: bool = True
    ) -> ScopeError | None:
        """Send a query; returns the error if it was not answered or not usable, and notes it if `fault`."""
        try:
            async with self._room:
                data = await self._api.query(query, at=self.end, by=self._by, sent=self._sent, budget=self._budget)
                async with self._taking:
                    decoding = take(data)
                    del data  # once decoded, it need not stay in memory
                    await decoding
        except ScopeError as e:
            error = e
        except Exception as e:
            error = self._units.failed(part, e)
        else:
            return None
        if fault:
            self.fault(part, error)
        return error

    async def _off_loop_if_many(self, rows: list[T], work: Callable[[list[T]], V]) -> V:
        return work(rows) if len(rows) <= _MANY else await self.off_loop(lambda: work(rows))

    def _partial(self, part: str, missing: str, *, ask: Ask | None = None) -> None:
        if missing:
            group, terms = (ask.group, _terms(ask.group.quantities[ask.quantity].term)) if ask else (None, ())
            self.fault(part, AnswerPartial(missing), group=group, terms=terms)

    def _sent(self) -> None:
        self.requests += 1


async def _unhurried(steps: promql.Steps[T]) -> T:
    """The result of some steps, with time for other tasks in between."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)


async def _rows(data: bytes) -> AsyncIterator[list[promql.VectorRow]]:
    """The rows of an answer in small slices."""
    answer = await _unhurried(promql.vector_steps(data))
    async for rows in _slices(answer.rows):
        yield rows


async def _line_slices(lines: list[promql.Line]) -> AsyncIterator[list[promql.Line]]:
    """Lines in slices with few samples, with time for other tasks in between; at least one slice."""
    some: list[promql.Line] = []
    size = 0
    for line in lines:
        some.append(line)
        size += memoryview(line.values).nbytes
        if len(some) >= _SLICE or size >= _SLICE_BYTES:
            yield some
            await asyncio.sleep(0)
            some, size = [], 0
    if some or not lines:
        yield some


async def _slices(rows: list[T]) -> AsyncIterator[list[T]]:
    """Rows in small slices, with time for other tasks in between; at least one slice.

    A thread would not help: it and the event loop, which reads further answers, would wait for each other at every
    chunk.
    """
    for at in range(0, max(1, len(rows)), _SLICE):
        yield rows[at : at + _SLICE]
        await asyncio.sleep(0)


def _for_all(condition: tuple[promql.Matcher, ...]) -> tuple[promql.Matcher, ...]:
    """The part of the condition that applies to every group."""
    return tuple(matcher for matcher in condition if all(matcher in matchers_for(one, condition) for one in GROUPS))


_FACTS = frozenset[str]().union(*(group.facts for group in GROUPS))
_MEASURES = frozenset[str]().union(*(group.measures for group in GROUPS))


def _terms(term: str) -> tuple[Term, ...]:
    """The term of a quantity as a fault names it; empty for internal terms, which affect no verdict."""
    return (cast("Term", term),) if term in get_args(Term) else ()


def _shortest(tables: Iterable[Table], otherwise: Seconds) -> Seconds:
    return min((interval for table in tables for interval in table.intervals.values()), default=otherwise)
