"""Prometheus' HTTP API, as Prometheus, Thanos, Mimir and VictoriaMetrics serve it.

Each query reads one metric for the whole fleet, so the number of queries depends on the exported metrics, not on the
number of GPUs. The engine computes the window's statistics. If several statistics are wanted of a metric with few
samples in all, one query reads the samples instead. Otherwise samples are read only for unclear series (impossible
values, a handover, an end within the window), up to a limit.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Self, TypeVar

from vgpuscope.catalog import agent as m
from vgpuscope.formats.prom import promql
from vgpuscope.knowledge.exporters import GROUPS, Group
from vgpuscope.knowledge.series_labels import SeriesIdentity
from vgpuscope.logic.fleet.queries import (
    ALIVE,
    RECORDED_SECONDS,
    RecordingRule,
    StatisticsQuery,
    evaluation_time,
    for_all,
    is_recent,
    matchers_for,
    means,
    plan,
    recording_rules,
    rules_to_check,
    unrecorded_series,
)
from vgpuscope.logic.fleet.requests import FleetSize, requests
from vgpuscope.logic.fleet.series_table import LabelCache, SampleQuery, Scope, Table
from vgpuscope.logic.fleet.tracks import refused, tracks
from vgpuscope.model.analysis import Reading, Window
from vgpuscope.model.errors import (
    NoKnownMetrics,
    QueryFailed,
    QueryForbidden,
    SamplesRefused,
    ScopeError,
    SourceDown,
)
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.runtime.units import Units
from vgpuscope.services.analyzer.sources.prometheus.cycle import MANY, ONE_NUMBER, PrometheusCycle, terms_of
from vgpuscope.sources.fleet.promapi import ByteBudget, PromApi
from vgpuscope.worker import Worker

T = TypeVar("T")
V = TypeVar("V")
log = logging.getLogger(__name__)

_SOON: Seconds = 5.0  # a slower answer to ready() is treated as no answer
_REMEMBER = 10  # readings for which the names of existing metrics are cached
_FEW = 4  # concurrent answers, if they fill memory or may do so
_LARGEST = 256 * 1024 * 1024  # bytes of one answer
_BUDGET = 1024 * 1024 * 1024  # bytes of all answers of one analysis; 100,000 GPUs need less than half of it


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
            promql.decode_vector(await self._api.query(ALIVE, at=None, by=by, most=ONE_NUMBER))
        except QueryForbidden:
            raise
        except QueryFailed as e:
            usual = "Check prometheus.url: it is the address without /api/v1/query."
            hint = usual if e.advice == e.hint else e.advice
            raise SourceDown(f"{self.url} does not answer queries: {e}", hint=hint) from e

    async def read(self, *, end: UnixTime, seconds: Seconds) -> Reading:
        """The window that ends at `end`; SourceDown if not one query was answered."""
        large = sum(self._series.values()) > MANY
        at_once = min(self._concurrency, _FEW if large or not self._series else self._concurrency)
        budget = ByteBudget(self._budget)
        cycle = PrometheusCycle(
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
        targets = await cycle.targets(self._jobs, for_all(self._condition))
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

    @property
    def present(self) -> frozenset[str]:
        """The metrics that exist, as far as the last reading knows."""
        return self._present

    async def course(
        self, group: Group, name: str, gpu_ids: Collection[str], *, window: Window, step: Seconds, by: float
    ) -> list[tuple[SeriesIdentity, list[promql.Sample]]]:
        """The means of a metric of some GPUs, step by step. Raises QueryFailed and its subclasses."""
        query = means(group, name, gpu_ids, condition=self._condition, step=step)
        data = await self._api.query_range(query, begin=window.begin + step, end=window.end, step=step, by=by)
        places = self._places[GROUPS.index(group)]
        lines = promql.decode_matrix(data).rows
        found = [(places.place(promql.decode_labels(line.metric)), line) for line in lines]
        return [(where, line.samples()) for where, line in found if where is not None]

    async def _tables(self, cycle: PrometheusCycle, present: frozenset[str]) -> list[Table]:
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

    async def _names(self, cycle: PrometheusCycle) -> frozenset[str]:
        """The metrics that exist. If that is unknown, all known metrics: a query without a result costs little."""
        every = frozenset(name for group in GROUPS for name in group.names)
        if self._remembered <= 0:
            wanted = every | {rule.name for rule in recording_rules()} | {m.SAMPLE_TIME.name}
            try:
                told = await cycle.names(wanted, for_all(self._condition))
            except ScopeError as e:
                cycle.fault("names of metrics", e)
                return self._present | every
            found = wanted & frozenset(told.rows)
            if told.missing:  # an incomplete list is not cached
                return found | self._present or every
            self._present, self._remembered = found, _REMEMBER
        self._remembered -= 1
        return self._present

    async def _fill(self, cycle: PrometheusCycle, tables: Sequence[Table], present: frozenset[str]) -> None:
        """Send all queries; the API limits how many run at the same time."""
        plans = await self._plans(cycle, tables, present)
        if not any(plans):
            return
        if not self._series:  # the number of series decides how to query
            self._series = await cycle.sizes(present, for_all(self._condition))
        by_group = {id(table.group): table for table in tables}
        bundles = requests(
            plans, self._fleet_size(cycle, by_group), most_samples=self._samples, sparing=self._sparing > 0
        )
        work = [cycle.ask((one, tuple(by_group[id(ask.group)] for ask in one.asks))) for one in bundles]
        if facts := _FACTS & present:
            work.append(cycle.learn(facts, for_all(self._condition)))
        work += [cycle.learn_xids(table, self._matchers(table)) for table in tables if table.group.xids in present]
        if m.SAMPLE_TIME.name in present:
            work.append(cycle.find_frozen(tables, for_all(self._condition)))
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

    async def _plans(
        self, cycle: PrometheusCycle, tables: Sequence[Table], present: frozenset[str]
    ) -> list[list[StatisticsQuery]]:
        """The queries for each table."""
        recorded = cycle.seconds == RECORDED_SECONDS and await self._rules_are_current(cycle, present)
        expected = cycle.seconds / self._interval
        return [
            list(plan(table.group, present=present, condition=self._condition, expected=expected, recorded=recorded))
            for table in tables
        ]

    def _fleet_size(self, cycle: PrometheusCycle, tables: Mapping[int, Table]) -> FleetSize:
        """The size of answers, by the last reading or by this one so far."""

        def series(group: Group) -> int:
            return max(tables[id(group)].size, self._series.get((group.schema, group.kind), 0))

        return FleetSize(
            series=series,
            known=bool(self._series),
            seconds=cycle.seconds,
            interval=self._interval,
            pace=self._pace,
        )

    async def _rules_are_current(self, cycle: PrometheusCycle, present: frozenset[str]) -> bool:
        """Whether recording rules exist, were evaluated recently, and cover as many series as there are."""
        rules = rules_to_check(present)
        try:
            return bool(rules) and all([await self._rule_is_current(cycle, rule) for rule in rules])
        except ScopeError as e:
            cycle.fault("recording rules", e)
            return False

    async def _rule_is_current(self, cycle: PrometheusCycle, rule: RecordingRule) -> bool:
        if not is_recent(await cycle.number(evaluation_time(rule, self._condition)), end=cycle.end):
            return False
        missing = await cycle.number(unrecorded_series(rule, self._condition))
        return missing is not None and missing <= 0

    async def _look_closer(self, cycle: PrometheusCycle, tables: Sequence[Table]) -> None:
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
                cycle.fault(part, SamplesRefused(text), group=table.group, terms=terms_of(term))

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


_FACTS = frozenset[str]().union(*(group.facts for group in GROUPS))
_MEASURES = frozenset[str]().union(*(group.measures for group in GROUPS))


def _shortest(tables: Iterable[Table], otherwise: Seconds) -> Seconds:
    return min((interval for table in tables for interval in table.intervals.values()), default=otherwise)
