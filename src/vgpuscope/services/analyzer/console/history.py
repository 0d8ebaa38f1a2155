"""Charts of the console: from the PromQL engine where it is fine-grained and recent, else from the store of results."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple

from vgpuscope.formats.prom import promql
from vgpuscope.http.answer_limits import LONGEST_PERIOD, MOST_ROWS
from vgpuscope.logic.console.history import CLASS_FIELDS, ClassFold, ClassHour, Grid, SeriesFold, grouped
from vgpuscope.logic.console.moments import iso
from vgpuscope.logic.console.scope import Namespaces
from vgpuscope.logic.console.series_queries import ChartSubject, series_queries
from vgpuscope.model.console.history import (
    QUANTITIES,
    UNITS,
    ChartSource,
    ClassColumn,
    ClassHistory,
    Quantity,
    SeriesColumn,
    SeriesHistory,
)
from vgpuscope.model.console.parts import Part
from vgpuscope.model.errors import QueryFailed, ScopeError
from vgpuscope.model.history import STEP_SECONDS, HistoryPoint, Step
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.runtime.duration import long_seconds
from vgpuscope.runtime.heap import without_collections
from vgpuscope.services.analyzer.console.console import Console, part_of
from vgpuscope.services.analyzer.console.parameters import ClassesQuery, SeriesQuery
from vgpuscope.sources.fleet.promapi import PromApi
from vgpuscope.store.results.wanted import HistorySelection

_BY_HOURS = 14 * 86400.0  # seconds; a longer range is read by days
_BY_ANALYSES = 2 * 86400.0  # a longer range is read by hours
_MOST_POINTS = 200_000  # of analyses; more are read as hours
_DAY, _MILLISECOND = 86400.0, 0.001
_AT_ONCE = 50_000  # points that are read from the store at once
_BY_ENGINE = 86400.0  # a longer range is read from the store
_ENGINE_WITHIN: Seconds = 10.0
_OF_WHOLE_GPUS = frozenset({"power", "power_max", "energy"})  # nobody measures them for one MIG instance
_SOURCES: dict[Step, ChartSource] = {"analysis": "analyses", "hour": "hours", "day": "days"}


class _Period(NamedTuple):
    begin: UnixTime
    end: UnixTime
    step: Step
    grid: Grid
    covered: Sequence[Seconds]  # for how much of each step of the chart there are analyses
    measured: dict[str, list[Seconds]]  # the same of analyses that have this quantity of any GPU
    until: UnixTime  # end of the last result that belongs to a step of the chart


class _Classes(NamedTuple):
    period: _Period
    columns: tuple[ClassColumn, ...]
    left_out: int


class _Series(NamedTuple):
    grid: Grid
    begin: UnixTime
    end: UnixTime
    source: ChartSource
    columns: tuple[SeriesColumn, ...]
    engine: ScopeError | None  # why the engine was not used


async def class_history(console: Console, asked: ClassesQuery, scope: Namespaces) -> ClassHistory:
    """GPUs by class; by namespace or owner, the GPUs are divided among their pods."""
    pods = scope is not None or asked.group_by in {"namespace", "owner"}

    async def fetch() -> _Classes:
        period = await _period(console, asked.range, asked.end, asked.points, pods=pods)
        name = grouped(asked.group_by)

        def group(point: HistoryPoint) -> str | None:
            return name(point) if _wanted(point, asked, scope) else None

        fold = ClassFold(period.grid, group=group, covered=period.covered)
        if period.step == "analysis":
            async for gpus, tenants in _pieces(console, period, gpus=True, pods=pods):
                await asyncio.to_thread(fold.add, gpus, tenants if pods else None)
        else:
            long = STEP_SECONDS[period.step]
            for at in range(int(period.grid.begin), math.ceil(period.until), int(long)):
                fold.merge(at, await _class_hour(console, asked, scope, _Stored(period.step, at, group, pods)))
        columns, left_out = await asyncio.to_thread(fold.columns, asked.group_by)
        return _Classes(period, columns, left_out)

    held = await console.chart(("classes", asked, scope), fetch)
    found, now = held.value, console.now()
    return ClassHistory(
        begin=iso(found.period.begin if found else now - _seconds(asked.range)),
        end=iso(found.period.end if found else now),
        step_seconds=found.period.grid.step if found else 0.0,
        source=_SOURCES[found.period.step] if found else "none",
        group_by=asked.group_by,
        times=found.period.grid.times if found else (),
        columns=found.columns if found else (),
        groups_left_out=found.left_out if found else 0,
        parts=(part_of(held, now),),
    )


class _Stored(NamedTuple):
    """One stored hour or day of a chart."""

    step: Step
    at: UnixTime
    group: Callable[[HistoryPoint], str | None]
    pods: bool


async def _class_hour(console: Console, asked: ClassesQuery, scope: Namespaces, of: _Stored) -> ClassHour:
    """The classes of one stored hour or day; one that is over is read once for all charts of the same things."""
    at, long = of.at, STEP_SECONDS[of.step]

    async def read() -> ClassHour:
        fold = ClassFold(Grid(at, at + long, least=long, points=2), group=of.group)
        found: dict[str, Any] = {
            "step": of.step,
            "begin": at,
            "end": at + long,
            "limit": MOST_ROWS,
            "fields": CLASS_FIELDS,
        }
        with without_collections():
            gpus = await console.read_points(HistorySelection(**found, pod=None))
            tenants = await console.read_points(HistorySelection(**found, namespace="")) if of.pods else None
            await asyncio.to_thread(fold.add, gpus, tenants)
        return fold.hour()

    key = (of.step, asked.group_by, asked.node, asked.model, scope and tuple(sorted(scope)))
    complete = at + long + console.config.scheduler.interval  # an analysis that begins in the hour ends by then
    return await console.class_hours.get(key, at, complete, read)


async def series_history(console: Console, asked: SeriesQuery, scope: Namespaces) -> SeriesHistory:
    """Use, memory, score, power, energy and allocation of one thing."""
    of = _subject(asked, scope)

    async def fetch() -> _Series:
        found, error = await _from_engine(console, asked, of)
        return found or await _from_store(console, asked, of, error)

    held = await console.chart(("series", asked, scope), fetch)
    found, now = held.value, console.now()
    return SeriesHistory(
        begin=iso(found.begin if found else now - _seconds(asked.range)),
        end=iso(found.end if found else now),
        step_seconds=found.grid.step if found else 0.0,
        source=found.source if found else "none",
        times=found.grid.times if found else (),
        columns=found.columns if found else (),
        parts=(part_of(held, now), *_engine_part(console, found)),
    )


def _engine_part(console: Console, found: _Series | None) -> tuple[Part, ...]:
    if console.engine is None:
        return ()
    error = found.engine if found else None
    if error is None:
        return (Part(name="prometheus", state="ok", at=iso(console.now())),)
    return (Part(name="prometheus", state="down", code=error.code, message=str(error), hint=error.advice),)


# ── the engine ───────────────────────────────────────────────────────────────────────────────────────────────────


async def _from_engine(
    console: Console, asked: SeriesQuery, of: ChartSubject
) -> tuple[_Series | None, ScopeError | None]:
    """The series of the engine; None if it has none, is not there, or is not asked for so long a range."""
    engine, span = console.engine, _seconds(asked.range)
    if engine is None or span > _BY_ENGINE:
        return None, None
    end = asked.end if asked.end is not None else console.now()
    scrape = console.config.prometheus.step
    grid = Grid(end - span, end, least=scrape, points=asked.points)
    queries = series_queries(of, window=max(grid.step, 2 * scrape), step=grid.step)
    wanted = {name: text for name, text in queries.items() if not asked.quantity or name in asked.quantity}
    try:
        columns = await asyncio.gather(*(_column(engine, grid, name, text) for name, text in wanted.items()))
    except QueryFailed as e:
        return None, e
    if not any(value is not None for column in columns for value in column.values):
        return None, None
    return _Series(grid, end - span, end, "prometheus", tuple(columns), None), None


async def _column(engine: PromApi, grid: Grid, quantity: Quantity, query: str) -> SeriesColumn:
    """One quantity; the value of a step is that of the range which ends with it."""
    by = asyncio.get_running_loop().time() + _ENGINE_WITHIN
    first, last = grid.times[0] + grid.step, grid.times[-1] + grid.step
    data = await engine.query_range(query, begin=first, end=last, step=grid.step, by=by)
    values: list[float | None] = [None] * len(grid.times)
    for line in promql.decode_matrix(data).rows[:1]:
        for at, value in line.samples():
            place = grid.place(at - grid.step + 0.001)
            if place is not None and value == value:  # noqa: PLR0124 - NaN
                values[place] = round(value, 4)
    return SeriesColumn(quantity=quantity, unit=UNITS[quantity], values=tuple(values), promql=query)


# ── the store ────────────────────────────────────────────────────────────────────────────────────────────────────


async def _from_store(console: Console, asked: SeriesQuery, of: ChartSubject, error: ScopeError | None) -> _Series:
    one = of.gpu_id is not None or of.pod is not None
    period = await _period(console, asked.range, asked.end, asked.points, pods=of.of_pods, one=one)
    quantities = [name for name in asked.quantity or QUANTITIES if of.mig is None or name not in _OF_WHOLE_GPUS]
    fold = SeriesFold(period.grid, quantities, measured=period.measured)
    only = {"gpu_id": of.gpu_id, "mig": of.mig, "pod": of.pod}
    async for gpus, tenants in _pieces(console, period, gpus=not of.of_pods, pods=of.of_pods, **only):
        await asyncio.to_thread(fold.add, [point for point in (*gpus, *tenants) if _of(point, of)])
    columns = await asyncio.to_thread(fold.columns)
    return _Series(period.grid, period.begin, period.end, _SOURCES[period.step], columns, error)


def _of(point: HistoryPoint, of: ChartSubject) -> bool:
    return (
        of.node in (None, point.hostname)
        and of.owner in (None, point.owner or f"Pod/{point.pod}")
        and (of.namespaces is None or point.namespace in of.namespaces)
    )


async def _period(
    console: Console, range_: str, end: UnixTime | None, points: int, *, pods: bool, one: bool = False
) -> _Period:
    """The finest step for which the store does not have to be read for too long."""
    until = end if end is not None else console.now()
    span, interval = _seconds(range_), console.config.scheduler.interval
    rows = 1 if one else await console.size(pods=pods)
    few = rows * span / interval <= _MOST_POINTS
    age, keep = console.now() - (until - span), console.config.analyzer
    by_analyses = span <= _BY_ANALYSES and few and age <= keep.keep_results
    step: Step = (
        "analysis" if by_analyses else "hour" if span <= _BY_HOURS and age <= max(_DAY, keep.keep_hours) else "day"
    )
    least = STEP_SECONDS[step] if step != "analysis" else max(1.0, interval)
    grid = Grid(until - span, until, least=least, points=points)
    found = await console.covered(grid.begin, grid.end, step=grid.step, kept=by_analyses)
    last = found.until + _MILLISECOND if by_analyses else grid.end
    measured = {quantity: grid.covered(seconds) for quantity, seconds in found.measured.items()}
    return _Period(until - span, until, step, grid, grid.covered(found.seconds), measured, min(last, console.now()))


async def _pieces(
    console: Console, period: _Period, *, gpus: bool, pods: bool, **only: Any
) -> AsyncIterator[tuple[list[HistoryPoint], list[HistoryPoint]]]:
    """Points of GPUs and of pods, some steps at a time, so that memory use does not grow with the range.

    They are those of all steps of the chart: the first and the last step are as whole as the others.
    """
    rows = max(1, await console.size(pods=pods))
    long = STEP_SECONDS.get(period.step, console.config.scheduler.interval)
    stride = long * max(1, int(_AT_ONCE / rows))
    at = period.grid.begin
    while at < period.until:
        asked = {"step": period.step, "begin": at, "end": min(at + stride, period.until), "limit": 10**9, **only}
        found = await console.read_points(HistorySelection(**(asked | {"pod": None}))) if gpus else []
        tenants = await console.read_points(HistorySelection(**asked, namespace="")) if pods else []
        yield found, tenants
        at += stride


def _wanted(point: HistoryPoint, asked: ClassesQuery, scope: Namespaces) -> bool:
    return (
        asked.node in (None, point.hostname)
        and asked.model in (None, point.model)
        and (scope is None or point.namespace in scope)
    )


def _subject(asked: SeriesQuery, scope: Namespaces) -> ChartSubject:
    return ChartSubject(
        gpu_id=asked.gpu_id,
        mig=asked.mig,
        node=asked.node,
        namespaces=None if scope is None else tuple(sorted(scope)),
        pod=asked.pod,
        owner=asked.owner,
    )


def _seconds(range_: str) -> Seconds:
    return min(LONGEST_PERIOD, long_seconds(range_))
