"""One reading of Prometheus: its queries, and what failed in it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar, cast, get_args

from vgpuscope.formats.prom import promql
from vgpuscope.knowledge.exporters import Group
from vgpuscope.logic.fleet import answers, queries
from vgpuscope.logic.fleet.queries import StatisticsQuery
from vgpuscope.logic.fleet.requests import QueryBatch, lines_by_name, rows_by_ask
from vgpuscope.logic.fleet.series_table import SampleQuery, Table
from vgpuscope.model.analysis import Fault, Target, Term
from vgpuscope.model.errors import (
    AnswerPartial,
    QueryFailed,
    QueryTimeout,
    ScopeError,
    SourceDown,
)
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.runtime.units import Units
from vgpuscope.sources.fleet.promapi import ByteBudget, PromApi
from vgpuscope.worker import Worker

T = TypeVar("T")
V = TypeVar("V")

MANY = 20_000  # series: answers with so many fill memory
ONE_NUMBER = 64 * 1024  # bytes of an answer that is one number
_SLICE = 500  # rows: take a few milliseconds
_SLICE_BYTES = 256 * 1024  # of the samples of these rows
_SIZES_ANSWER = 1024 * 1024  # bytes of an answer with one row for each metric
_SIZES = 0.2  # of the deadline: without the number of series little is lost


class PrometheusCycle:
    """One reading: its window, its deadline, and what failed in it."""

    def __init__(
        self,
        api: PromApi,
        worker: Worker,
        units: Units,
        budget: ByteBudget,
        *,
        end: UnixTime,
        seconds: Seconds,
        due: Seconds,
        at_once: int,
    ) -> None:
        self._api, self._worker, self._units, self._budget = api, worker, units, budget
        self.end, self.seconds = end, seconds
        self._due, self._by = due, asyncio.get_running_loop().time() + due
        self._room = asyncio.Semaphore(at_once)  # limits the answers in memory
        self._taking = asyncio.Lock()
        self.requests = 0
        self.faults: list[Fault] = []
        self.samples_failed = self.names_are_partial = self.sparing = False
        self.facts: list[tuple[str, dict[str, str]]] = []  # names and labels of metrics that are 1 if these are true
        self._again: list[tuple[QueryBatch, tuple[Table, ...]]] = []
        self._refused: list[tuple[StatisticsQuery, Table]] = []  # queries for samples that the engine rejected
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

    async def names(self, of: Iterable[str], matchers: Iterable[promql.Matcher]) -> promql.PromAnswer[str]:
        """Which of these metrics exist."""
        data = await self._api.label_values(
            "__name__",
            match=queries.named(of, matchers),
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
        data = await self._api.query(query, at=self.end, by=self._by, most=ONE_NUMBER, budget=self._budget)
        answer = promql.decode_vector(data)
        return answer.rows[0].value[1] if answer.rows else None

    async def sizes(self, of: frozenset[str], matchers: Iterable[promql.Matcher]) -> dict[tuple[str, str], int]:
        """The current number of series of each group; empty if the engine does not answer that."""
        clocks = answers.clocks(of)
        soon = min(self._by, asyncio.get_running_loop().time() + self._due * _SIZES)
        try:
            data = await self._api.query(
                queries.series_counts(clocks, matchers),
                at=self.end,
                by=soon,
                sent=self._sent,
                most=_SIZES_ANSWER,
                budget=self._budget,
            )
            rows = promql.decode_vector(data).rows
        except ScopeError:
            return {}
        return answers.group_sizes(rows, clocks)

    async def ask(self, asked: tuple[QueryBatch, tuple[Table, ...]]) -> None:
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

        error = await self._part(bundle.part, bundle.query(self.seconds), take, fault=False)
        if error is None:
            return
        for ask, table in pairs:
            table.forget(ask)
        if len(pairs) > 1 and not isinstance(error, QueryTimeout):
            self._again += [(QueryBatch((ask,)), (table,)) for ask, table in pairs]
            return
        for ask, _ in pairs:
            self.fault(ask.part, error, group=ask.group, terms=terms_of(ask.group.quantities[ask.quantity].term))
        if bundle.raw:
            self.samples_failed = True
            if isinstance(error, QueryFailed) and error.answered:
                self._refused += pairs

    def to_ask_again(self) -> list[tuple[QueryBatch, tuple[Table, ...]]]:
        """The queries of failed bundles, one by one: a single query may have failed the bundle."""
        again, self._again = self._again, []
        return again

    def instead_of_samples(self) -> list[tuple[QueryBatch, tuple[Table, ...]]]:
        """The statistics to query where samples were rejected; the rejection is then not a fault."""
        refused, self._refused = self._refused, []
        parts = {ask.part for ask, _ in refused}
        self.faults[:] = [fault for fault in self.faults if fault.part not in parts]
        return [
            (QueryBatch((ask._replace(statistics=(one,)),)), (table,))
            for ask, table in refused
            for one in ask.statistics
        ]

    async def learn(self, names: frozenset[str], matchers: Iterable[promql.Matcher]) -> None:
        """Read the labels of metrics that are 1 if their labels are true."""

        async def take(data: bytes) -> None:
            async for rows in _rows(data):
                self.facts += [promql.decode_named(row.metric) for row in rows]

        await self._part("labels", queries.true_labels(names, matchers, seconds=self.seconds), take)

    async def learn_xids(self, table: Table, matchers: Iterable[promql.Matcher]) -> None:
        """Read the XIDs of the window."""

        async def take(data: bytes) -> None:
            async for rows in _rows(data):
                table.learn_xids(rows)

        await self._part("XIDs", queries.xids(table.group, matchers, seconds=self.seconds), take)

    async def find_frozen(self, tables: Iterable[Table], matchers: Iterable[promql.Matcher]) -> None:
        """Find agents that answer but no longer take samples: their pages always show the last sample."""

        frozen: set[str] = set()

        async def take(data: bytes) -> None:
            async for rows in _rows(data):
                frozen.update(answers.targets_of(rows))
            for name in sorted(frozen):
                self.fault(name, SourceDown("the agent answers, but has stopped taking samples"))
            for table in tables:
                table.freeze(frozen)

        await self._part("times of samples", queries.frozen_agents(matchers, seconds=self.seconds), take)

    async def targets(self, jobs: Iterable[str], matchers: Iterable[promql.Matcher]) -> tuple[Target, ...]:
        """The targets of these jobs by the engine's own `up` metric; empty if it has none."""
        found: dict[str, Target] = {}

        async def take(data: bytes) -> None:
            nonlocal found
            async for rows in _rows(data):
                found = answers.fold_targets(found, rows)

        if wanted := sorted(filter(None, jobs)):
            await self._part("targets", queries.targets(wanted, matchers), take, fault=False)
        return tuple(found.values())

    async def probe(self, table: Table, probe: SampleQuery, matchers: Iterable[promql.Matcher]) -> None:
        """Query raw samples of some series, for the pace of their jobs."""

        async def take(data: bytes) -> None:
            lines = await _unhurried(promql.matrix_steps(data))
            await self.off_loop(lambda: table.probe(lines.rows))

        await self._part("raw samples", probe.query(matchers, seconds=self.seconds), take, fault=not self.faults)

    async def look(self, table: Table, sample_query: SampleQuery, matchers: Iterable[promql.Matcher]) -> None:
        """Query raw samples for a table."""

        async def take(data: bytes) -> None:
            answer = await _unhurried(promql.matrix_steps(data))
            self._partial("raw samples", answer.missing)
            await self.off_loop(lambda: table.look(sample_query, answer.rows))

        await self._part("raw samples", sample_query.query(matchers, seconds=self.seconds), take)

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
        return work(rows) if len(rows) <= MANY else await self.off_loop(lambda: work(rows))

    def _partial(self, part: str, missing: str, *, ask: StatisticsQuery | None = None) -> None:
        if missing:
            group, terms = (ask.group, terms_of(ask.group.quantities[ask.quantity].term)) if ask else (None, ())
            self.fault(part, AnswerPartial(missing), group=group, terms=terms)

    def _sent(self) -> None:
        self.requests += 1


async def _unhurried(steps: promql.Steps[T]) -> T:
    """The result of some steps, with time for other tasks in between."""
    decoding = promql.Decoding(steps)
    for _ in decoding:
        await asyncio.sleep(0)
    return decoding.result


async def _rows(data: bytes) -> AsyncIterator[list[promql.VectorRow]]:
    """The rows of an answer in small slices."""
    answer = await _unhurried(promql.vector_steps(data))
    async for rows in _slices(answer.rows):
        yield rows


async def _line_slices(lines: list[promql.MatrixRow]) -> AsyncIterator[list[promql.MatrixRow]]:
    """Lines in slices with few samples, with time for other tasks in between; at least one slice."""
    some: list[promql.MatrixRow] = []
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


def terms_of(term: str) -> tuple[Term, ...]:
    """The term of a quantity as a fault names it; empty for internal terms, which affect no verdict."""
    return (cast("Term", term),) if term in get_args(Term) else ()
