"""Prometheus' HTTP API, as Prometheus, Thanos, Mimir and VictoriaMetrics serve it.

Each query asks something of one metric for the whole fleet, so their number depends on what is exported and not on how
many cards there are. The window's statistics are computed there; where several are wanted of a metric that has few
samples in all, the samples themselves are asked for, which is one query. Otherwise only series with a riddle (false
values, a handover, an end within the window) are asked for samples, and of these only so many.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self, TypeVar

from vgpuscope.formats import promql
from vgpuscope.formats.promtable import Places, Puzzle, Table
from vgpuscope.formats.promtracks import refused, tracks
from vgpuscope.formats.schemas import (
    GROUPS,
    RECORDED_EVERY,
    RECORDED_SECONDS,
    Ask,
    Rule,
    gathered,
    matchers_for,
    plan,
    recording_rules,
)
from vgpuscope.model.analysis import Fault, Reading, Window
from vgpuscope.model.errors import AnswerPartial, QueryFailed, QueryForbidden, SamplesRefused, ScopeError, SourceDown
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.sources.promapi import PromApi

T = TypeVar("T")

_SOON: Seconds = 5.0  # an answer to ready() that takes longer is none
_REMEMBER = 10  # readings for which the names of the metrics that exist are not asked for again
_RULES_LATE: Seconds = 3 * RECORDED_EVERY  # rules that were evaluated longer ago are not made use of
_MANY = 20_000  # series: answers of so many fill memory
_FEW = 4  # answers at once where they do, or may do
_SLICE = 500  # rows: a few milliseconds
_SHORT = 40  # samples of a series that take about as much room as its labels, which come with each statistic again
_SHORT_GAIN = 8  # so many times as many samples are asked for where series are so short
_LARGEST = 256 * 1024 * 1024  # bytes of one answer


class PrometheusSource:
    """A fleet as a PromQL engine knows it."""

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
        closer: int = 500,
        samples: int = 400_000,
        progress: Callable[[int, int], None] = lambda _, __: None,
    ) -> None:
        """ConfigInvalid if the URL, the condition or a certificate cannot be used.

        `interval`: between two samples of a series, at the most. `closer`: cards of which raw samples are asked for at
        the most. `samples`: where a metric has fewer in the whole window, they are asked for instead of their
        statistics, because that is as quick as one of these; more of them where each series has few. `progress` is told
        how many of how many queries are answered.
        """
        self._condition = promql.parse_condition(condition)
        self._interval, self._deadline, self._closer, self._concurrency = interval, deadline, closer, concurrency
        self._samples, self._progress = samples, progress
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
        self._thread = ThreadPoolExecutor(1, "prometheus answers")
        self._present: frozenset[str] = frozenset()
        self._remembered = 0
        self._series: dict[tuple[str, str], int] = {}  # in the last reading, by group
        self._pace: Seconds | None = None  # between two samples of these series, at the least; None: not known yet
        self._fleet = 0  # hash of what these series are
        self._places = [Places(group) for group in GROUPS]
        self._sparing = 0  # readings to come without questions for samples, because such were refused

    @property
    def url(self) -> str:
        """Without user and password."""
        return self._api.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Let go of connections."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        await self._api.aclose()

    async def ready(self) -> None:
        """SourceDown when it does not answer queries."""
        by = asyncio.get_running_loop().time() + min(_SOON, self._deadline)
        try:
            promql.decode_vector(await self._api.query("vector(1)", at=None, by=by))
        except QueryForbidden:
            raise
        except QueryFailed as e:
            usual = "Check prometheus.url: it is what stands before /api/v1/query."
            hint = usual if e.advice == e.hint else e.advice
            raise SourceDown(f"{self.url} does not answer queries: {e}", hint=hint) from e

    async def read(self, *, end: UnixTime, seconds: Seconds) -> Reading:
        """The window that ends at `end`; SourceDown when not one query was answered."""
        large = sum(self._series.values()) > _MANY
        at_once = min(self._concurrency, _FEW if large or not self._series else self._concurrency)
        cycle = _Cycle(self._api, self._thread, end=end, seconds=seconds, due=self._deadline, at_once=at_once)
        remembered, present = self._remembered > 0, await self._names(cycle)
        tables = await self._tables(cycle, present)
        fleet = hash(frozenset(seen.raw for table in tables for seen in table.seen))
        # who came may have brought metrics along that show work, and so may a store that is back
        if cycle.names_are_partial or (remembered and fleet != self._fleet):
            self._remembered, known = 0, len(cycle.faults)
            if not (now := await self._names(cycle)) <= present:
                del cycle.faults[:known]  # all of it is asked anew
                tables = await self._tables(cycle, now)
        self._fleet = fleet
        self._series = {(table.group.schema, table.group.kind): len(table.seen) for table in tables if table.seen}
        found = await cycle.off_loop(lambda: tuple(track for table in tables for track in tracks(table)))
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
        )

    async def _tables(self, cycle: "_Cycle", present: frozenset[str]) -> list[Table]:
        """What the metrics that exist say of the window."""
        begin = cycle.end - cycle.seconds
        tables = [
            Table(group, begin=begin, end=cycle.end, step=self._interval, places=places)
            for group, places in zip(GROUPS, self._places, strict=True)
        ]
        await self._fill(cycle, tables, present)
        await self._look_closer(cycle, tables)
        return tables

    async def _names(self, cycle: "_Cycle") -> frozenset[str]:
        """The metrics that exist. Where that cannot be told, all that we know: a query for nothing costs little."""
        every = frozenset(name for group in GROUPS for name in group.names)
        if self._remembered <= 0:
            wanted = every | {rule.name for rule in recording_rules()}
            try:
                told = await cycle.names(wanted, _for_all(self._condition))
            except ScopeError as e:
                cycle.fault("names of metrics", e)
                return self._present | every
            found = wanted & frozenset(told.rows)
            if told.missing:  # nothing to remember
                return found | self._present or every
            self._present, self._remembered = found, _REMEMBER
        self._remembered -= 1
        return self._present

    async def _fill(self, cycle: "_Cycle", tables: Sequence[Table], present: frozenset[str]) -> None:
        """Ask everything; the API lets through as many as may run together."""
        expected = cycle.seconds / self._interval
        recorded = cycle.seconds == RECORDED_SECONDS and await self._rules_are_current(cycle, present)
        plans = [
            (
                table,
                list(
                    plan(
                        table.group,
                        present=present,
                        condition=self._condition,
                        expected=expected,
                        recorded=recorded,
                    )
                ),
            )
            for table in tables
        ]
        if not any(asks for _, asks in plans):
            return
        alone = [(table, ask) for table, asks in plans for ask in _alone(asks)]
        work = [cycle.ask(table, ask) for table, ask in alone]
        work += [cycle.learn(table, self._matchers(table)) for table in tables if table.group.info in present]
        progress = _Progress(self._progress, len(work) + sum(len(asks) for _, asks in plans) - len(alone))
        first = [asyncio.create_task(progress.counted(one)) for one in work]
        if first and not self._series:  # the size of an answer tells how many there are, and so how to ask for the rest
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        rest = [
            (table, ask)
            for table, asks in plans
            for ask in (gathered if self._by_samples(table, cycle.seconds) else iter)(_together(asks))
        ]
        progress.total = len(first) + len(rest)
        await asyncio.gather(*first, *(progress.counted(cycle.ask(table, ask)) for table, ask in rest))
        if cycle.samples_failed:
            self._sparing = _REMEMBER
            # as with a VictoriaMetrics that lacks a store: it refuses samples, and has statistics nevertheless
            instead = cycle.instead_of_samples()
            progress.total += len(instead)
            await asyncio.gather(*(progress.counted(cycle.ask(table, ask)) for table, ask in instead))
        elif not cycle.faults:
            self._sparing = max(0, self._sparing - 1)
        states = {state for table in tables for state in table.states.values()}
        if not states:
            raise cycle.down(f"{self.url}: no query was answered")
        if "partial" in states and not any(table.size for table in tables):  # all stores of a Thanos are down: no fleet
            raise cycle.down(f"{self.url}: answers are partial, and nothing is in them")

    async def _rules_are_current(self, cycle: "_Cycle", present: frozenset[str]) -> bool:
        """Whether there are recording rules, evaluated lately and for as many series as there are."""
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
        """Whether to ask for samples where several statistics are wanted."""
        expected = seconds / (self._pace or self._interval)
        most = self._samples * (_SHORT_GAIN if self._pace and expected <= _SHORT else 1)
        return not self._sparing and 0 < self._size(table) * expected <= most

    def _size(self, table: Table) -> int:
        """How many series there seem to be: as in the last reading, or in this one as far as it has come."""
        return max(table.size, self._series.get((table.group.schema, table.group.kind), 0))

    async def _look_closer(self, cycle: "_Cycle", tables: Sequence[Table]) -> None:
        """Raw samples of the series that the columns do not explain."""

        def settled() -> list[tuple[Table, Puzzle]]:
            for table in tables:
                table.settle()
            return [(table, puzzle) for table in tables for puzzle in table.puzzles(self._closer)]

        puzzles = await cycle.off_loop(settled)
        await asyncio.gather(*(cycle.look(table, puzzle, self._matchers(table)) for table, puzzle in puzzles))
        for table in tables:
            for term, left in refused(table).items():
                text = f"{left} series hold values that cannot be true, and their samples could not be looked at"
                cycle.fault(f"{term} of {table.group.schema} {table.group.kind}s", SamplesRefused(text))

    def _matchers(self, table: Table) -> tuple[promql.Matcher, ...]:
        return matchers_for(table.group, self._condition)


class _Progress:
    """Counts queries that are done."""

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
        thread: ThreadPoolExecutor,
        *,
        end: UnixTime,
        seconds: Seconds,
        due: Seconds,
        at_once: int,
    ) -> None:
        self._api, self._thread = api, thread
        self.end, self.seconds = end, seconds
        self._window = promql.window(seconds)
        self._by = asyncio.get_running_loop().time() + due
        self._room = asyncio.Semaphore(at_once)  # for answers in memory
        self._taking = asyncio.Lock()
        self.requests = 0
        self.faults: list[Fault] = []
        self.samples_failed = self.names_are_partial = False
        self._refused: list[tuple[Table, Ask]] = []  # questions for samples that the engine did not want to answer
        self._advice: str | None = None  # on the last fault

    def fault(self, part: str, error: ScopeError) -> None:
        self._advice = error.advice
        self.faults.append(Fault(part=part, code=error.code, message=str(error)))

    def down(self, text: str) -> SourceDown:
        """There is nothing to show for all the queries; the last fault says why."""
        return SourceDown(f"{text}: {self.faults[-1].code}: {self.faults[-1].message}", hint=self._advice)

    async def off_loop(self, work: Callable[[], T]) -> T:
        """Work that takes longer than others who live in this event loop should wait."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def names(self, of: Iterable[str], matchers: Iterable[promql.Matcher]) -> promql.Answer[str]:
        """Which of these metrics exist."""
        match = promql.selector("", (promql.one_of("__name__", sorted(of)), *matchers))
        data = await self._api.label_values(
            "__name__", match=match, begin=self.end - self.seconds, end=self.end, by=self._by, sent=self._sent
        )
        answer = promql.decode_names(data)
        self._partial("names of metrics", answer.missing)
        self.names_are_partial = bool(answer.missing)
        return answer

    async def number(self, query: str) -> float | None:
        """The one number that a query gives; None where it gives none."""
        self.requests += 1
        answer = promql.decode_vector(await self._api.query(query, at=self.end, by=self._by))
        return answer.rows[0].value[1] if answer.rows else None

    async def ask(self, table: Table, ask: Ask) -> None:
        """One or several columns of a table."""

        async def take(data: bytes) -> None:
            if ask.raw:
                samples = promql.decode_matrix(data)
                async for lines in _slices(samples.rows):
                    table.take_samples(ask, lines, missing=samples.missing)
                self._partial(ask.part, samples.missing)
            else:
                answer = promql.decode_vector(data)
                async for rows in _slices(answer.rows):
                    table.take(ask, rows, missing=answer.missing)
                self._partial(ask.part, answer.missing)

        error = await self._part(ask.part, ask.query(self._window), take)
        if error is None:
            return
        table.forget(ask)
        if ask.raw:
            self.samples_failed = True
            if isinstance(error, QueryFailed) and error.answered:
                self._refused.append((table, ask))

    def instead_of_samples(self) -> list[tuple[Table, Ask]]:
        """The statistics to ask for where samples were refused; that these were is then no fault."""
        refused, self._refused = self._refused, []
        parts = {ask.part for _, ask in refused}
        self.faults[:] = [fault for fault in self.faults if fault.part not in parts]
        return [(table, ask._replace(statistics=(one,))) for table, ask in refused for one in ask.statistics]

    async def learn(self, table: Table, matchers: Iterable[promql.Matcher]) -> None:
        """The labels of a table's info metric."""

        async def take(data: bytes) -> None:
            async for rows in _slices(promql.decode_vector(data).rows):
                table.learn(rows)

        name = table.group.info
        await self._part(name, f"last_over_time({promql.selector(name, matchers)}[{self._window}])", take)

    async def look(self, table: Table, puzzle: Puzzle, matchers: Iterable[promql.Matcher]) -> None:
        """Raw samples for a table."""

        async def take(data: bytes) -> None:
            answer = promql.decode_matrix(data)
            self._partial("raw samples", answer.missing)
            await self.off_loop(lambda: table.look(puzzle, answer.rows))

        await self._part("raw samples", f"{puzzle.series(matchers)}[{self._window}]", take)

    async def _part(self, part: str, query: str, take: Callable[[bytes], Awaitable[None]]) -> ScopeError | None:
        """Why it was not answered, or not taken; None if it was."""
        try:
            async with self._room:
                data = await self._api.query(query, at=self.end, by=self._by, sent=self._sent)
                async with self._taking:
                    await take(data)
        except ScopeError as e:
            self.fault(part, e)
            return e
        return None

    def _partial(self, part: str, missing: str) -> None:
        if missing:
            self.fault(part, AnswerPartial(missing))

    def _sent(self) -> None:
        self.requests += 1


async def _slices(rows: list[T]) -> AsyncIterator[list[T]]:
    """Rows in small numbers, with room for others in between; at least once.

    A thread would not do: it and the loop, which reads further answers, would wait for each other at every chunk.
    """
    for at in range(0, max(1, len(rows)), _SLICE):
        yield rows[at : at + _SLICE]
        await asyncio.sleep(0)


def _for_all(condition: tuple[promql.Matcher, ...]) -> tuple[promql.Matcher, ...]:
    """The part of the condition that applies to every group."""
    return tuple(matcher for matcher in condition if all(matcher in matchers_for(one, condition) for one in GROUPS))


def _alone(asks: Iterable[Ask]) -> list[Ask]:
    """Those that are the only one about their quantity."""
    several = Counter(ask.quantity for ask in asks)
    return [ask for ask in asks if several[ask.quantity] == 1]


def _together(asks: Iterable[Ask]) -> list[Ask]:
    """The others, those about the same quantity side by side."""
    several = Counter(ask.quantity for ask in asks)
    return [ask for ask in asks if several[ask.quantity] > 1]


def _shortest(tables: Iterable[Table], otherwise: Seconds) -> Seconds:
    return min((interval for table in tables for interval in table.intervals.values()), default=otherwise)
