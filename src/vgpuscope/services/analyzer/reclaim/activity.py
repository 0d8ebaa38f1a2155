"""Signs of use in Prometheus: requests of inference servers, and the length of queues.

Every expression is asked for all pods at once. A pod of which an expression says nothing has no such sign. An
expression that failed is unknown for all pods, and so is a queue that a pod names and no expression knows.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from vgpuscope.config import Config
from vgpuscope.formats.prom.promql import decode_labels, decode_vector
from vgpuscope.logic.reclaim.brakes import WorkloadFacts
from vgpuscope.model.errors import AnswerUnreadable, ScopeError
from vgpuscope.model.quantity import PodUID, Seconds, UnixTime
from vgpuscope.model.reclaim import ActivityQuery, Signal, Workload
from vgpuscope.runtime.log import OnChange, error_fields
from vgpuscope.services.analyzer.sources.sources import prom_api
from vgpuscope.sources.fleet.promapi import PromApi

log = logging.getLogger(__name__)

_WITHIN: Seconds = 10.0
_LARGEST = 64 * 1024 * 1024  # bytes of one answer
_AT_ONCE = 4
_KEPT: Seconds = 900.0
_FRESH: Seconds = 15.0  # several calls in a row ask once
Key = tuple[str, ...]  # namespace and pod, or a queue


class _Answer(NamedTuple):
    """The values of one expression; or why there are none."""

    query: ActivityQuery
    values: Mapping[Key, float]
    fault: str = ""


class ReclaimActivity:
    """Asks the expressions of `activity.queries`, if Prometheus is the source."""

    def __init__(
        self,
        config: Callable[[], Config],
        *,
        engine: Callable[[], bool],
        queues: Callable[[Workload], frozenset[str]],
        clock: Callable[[], UnixTime] = time.time,
    ) -> None:
        """`engine`: whether Prometheus is the source. `queues` are those that a workload's annotations name."""
        self._config, self._engine, self._queues, self._clock = config, engine, queues, clock
        self._answers: tuple[_Answer, ...] = ()
        self._at: UnixTime = float("-inf")
        self._told = OnChange(log)

    def known(self, workload: Workload) -> WorkloadFacts:
        answers = self._answers if self._clock() - self._at < _KEPT else ()
        signals = [one for answer in answers if (one := _signal(answer, workload)) is not None]
        signals += (_queue(answers, name) for name in sorted(self._queues(workload)))
        if not answers and self._queries():
            signals.append(Signal(name="prometheus", active=None, detail="not asked yet"))
        return WorkloadFacts(signals=tuple(signals))

    async def learn(self, workloads: Sequence[Workload], *, fresh: bool, seen: Collection[PodUID]) -> None:  # noqa: ARG002 - all pods are asked for at once
        if not self._queries():
            self._answers = ()
        elif workloads and not (fresh and self._clock() - self._at < _FRESH):
            await self._ask(self._queries())

    @property
    def asks(self) -> bool:
        """Whether there is an expression to ask, and somebody to ask."""
        return bool(self._queries())

    def _queries(self) -> tuple[ActivityQuery, ...]:
        return self._config().activity.queries if self._engine() else ()

    async def _ask(self, queries: Sequence[ActivityQuery]) -> None:
        engine = prom_api(self._config(), largest=_LARGEST, at_once=_AT_ONCE)
        by = asyncio.get_running_loop().time() + _WITHIN
        try:
            self._answers = tuple(await asyncio.gather(*(self._one(engine, query, by) for query in queries)))
        finally:
            await engine.aclose()
        self._at = self._clock()

    async def _one(self, engine: PromApi, query: ActivityQuery, by: float) -> _Answer:
        try:
            data = await engine.query(query.query, at=None, by=by)
            values = await asyncio.to_thread(_values, query, data)
        except ScopeError as e:
            message = "sign of use not read: no GPU is taken back"
            self._told.tell(query.name, e.code, level=logging.WARNING, message=message, **error_fields(e))
            return _Answer(query, {}, str(e))
        self._told.tell(query.name, "up", level=logging.INFO, message="sign of use read", query=query.name)
        return _Answer(query, values)


def _values(query: ActivityQuery, data: bytes) -> dict[Key, float]:
    """The highest value of each pod or queue; one that is no number is unknown, and only a sign of use outweighs it."""
    answer = decode_vector(data)
    if answer.missing:
        raise AnswerUnreadable(f"a part is missing: {answer.missing}")
    found: dict[Key, float] = {}
    names = ("namespace", "pod") if query.by == "pod" else ("queue",)
    for row in answer.rows:
        labels = decode_labels(row.metric)
        key = tuple(labels.get(name, "") for name in names)
        value = row.value[1]
        if all(key):
            found[key] = max(value, found.get(key, value), key=_weight)
    return found


def _weight(value: float) -> tuple[bool, bool, float]:
    """Use outweighs unknown, and unknown outweighs quiet."""
    unknown = math.isnan(value)
    return (value > 0, unknown, 0.0 if unknown else value)


def _signal(answer: _Answer, workload: Workload) -> Signal | None:
    if answer.fault:
        return Signal(name=answer.query.name, active=None, detail=answer.fault)
    if answer.query.by == "queue":
        return None
    return _valued(answer, (workload.namespace, workload.pod))


def _queue(answers: Sequence[_Answer], name: str) -> Signal:
    found = (_valued(one, (name,)) for one in answers if one.query.by == "queue")
    unknown = Signal(name=f"queue {name}", active=None, detail="no expression of activity.queries knows this queue")
    return next((one for one in found if one is not None), unknown)


def _valued(answer: _Answer, key: Key) -> Signal | None:
    value = answer.values.get(key)
    if value is None:
        return None
    if math.isnan(value):
        return Signal(name=answer.query.name, active=None, detail="the value is no number")
    return Signal(name=answer.query.name, active=value > 0, value=value)
