"""Idle GPU-hours of a period, read from the store step by step so that memory use does not grow with the period."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from vgpuscope.http.answer_limits import MOST_ROWS
from vgpuscope.logic.fleet.waste import LEDGER_FIELDS, Now, WasteLedger, present
from vgpuscope.model.analysis import Analysis
from vgpuscope.model.history import STEP_SECONDS, HistoryPoint, Step
from vgpuscope.model.quantity import UnixTime
from vgpuscope.store.results.wanted import HistorySelection

ReadPoints: TypeAlias = Callable[[HistorySelection], Awaitable[list[HistoryPoint]]]


async def wasted(
    read: ReadPoints, analysis: Analysis | None, *, step: Step, begin: UnixTime, end: UnixTime
) -> WasteLedger:
    """The ledger of a period; `begin` is the beginning of a step."""
    now = await asyncio.to_thread(present, analysis.gpus if analysis else ())
    return await wasted_by(read, now, step=step, begin=begin, end=end)


async def wasted_by(read: ReadPoints, now: Now, *, step: Step, begin: UnixTime, end: UnixTime) -> WasteLedger:
    """The ledger of a period; `now`: what the last analysis found about pods."""
    ledger = WasteLedger(now)
    at, stride = begin, STEP_SECONDS[step]
    while at < end:
        until = min(at + stride, end)
        gpus, pods = [await points(read, step, at, until, namespace=of, fields=LEDGER_FIELDS) for of in (None, "")]
        await asyncio.to_thread(ledger.add, gpus, pods)
        at += stride
    return ledger


async def points(
    read: ReadPoints,
    step: Step,
    begin: UnixTime,
    end: UnixTime,
    *,
    namespace: str | None,
    pod: str | None = None,
    fields: frozenset[str] = frozenset(),
) -> list[HistoryPoint]:
    """All points of GPUs, or of pods if a namespace is given ("": any). `fields`: those that are needed, or all."""
    wanted = HistorySelection(
        step=step, begin=begin, end=end, limit=MOST_ROWS, namespace=namespace, pod=pod, fields=fields
    )
    return await read(wanted)
