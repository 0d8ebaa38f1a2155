"""Signs of use in Prometheus: requests of inference servers, and the length of queues.

Every expression is asked for all pods at once; `logic/reclaim/signals.py` says what the values mean.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence

from vgpuscope.config import Config
from vgpuscope.formats.prom.promql import decode_labels, decode_vector
from vgpuscope.logic.reclaim.brakes import WorkloadFacts
from vgpuscope.logic.reclaim.signals import ActivityAnswer, Key, highest_values, signals_of
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
        self._answers: tuple[ActivityAnswer, ...] = ()
        self._at: UnixTime = float("-inf")
        self._told = OnChange(log)

    def known(self, workload: Workload) -> WorkloadFacts:
        answers = self._answers if self._clock() - self._at < _KEPT else ()
        signals = signals_of(answers, workload, self._queues(workload))
        if not answers and self._queries():
            signals = (*signals, Signal(name="prometheus", active=None, detail="not asked yet"))
        return WorkloadFacts(signals=signals)

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

    async def _one(self, engine: PromApi, query: ActivityQuery, by: float) -> ActivityAnswer:
        try:
            data = await engine.query(query.query, at=None, by=by)
            values = await asyncio.to_thread(_values, query, data)
        except ScopeError as e:
            message = "sign of use not read: no GPU is taken back"
            self._told.tell(query.name, e.code, level=logging.WARNING, message=message, **error_fields(e))
            return ActivityAnswer(query, {}, str(e))
        self._told.tell(query.name, "up", level=logging.INFO, message="sign of use read", query=query.name)
        return ActivityAnswer(query, values)


def _values(query: ActivityQuery, data: bytes) -> dict[Key, float]:
    """The values of an answer; AnswerUnreadable if a part of it is missing."""
    answer = decode_vector(data)
    if answer.missing:
        raise AnswerUnreadable(f"a part is missing: {answer.missing}")
    return highest_values(query, ((decode_labels(row.metric), row.value[1]) for row in answer.rows))
