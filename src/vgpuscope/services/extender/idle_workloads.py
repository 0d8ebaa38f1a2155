"""The idle workloads that an analyzer has found: advice for pods that do not fit.

They are read in the background. If the analyzer does not answer, or its analysis is old, there are none: nothing is
advised on old facts.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from msgspec import Struct

from vgpuscope.formats.times import from_rfc3339
from vgpuscope.model.decision_answers import IdleState
from vgpuscope.model.errors import ScopeError, SourceDown
from vgpuscope.model.quantity import PodUID, Seconds, UnixTime
from vgpuscope.runtime.log import SUMMARY, OnChange, error_fields
from vgpuscope.sources.clients.analyzer import ANALYZER
from vgpuscope.sources.clients.served_api import ServedApi

log = logging.getLogger(__name__)

_EVERY: Seconds = 60.0
_AGAIN: Seconds = 5.0  # after a failure: an analyzer that starts beside the extender is soon there
_WITHIN: Seconds = 10.0
_OLDEST: Seconds = 900.0  # age of an analysis whose verdicts are still used
_MOST = 10_000  # workloads
_FIELDS = "namespace,pod,pod_uid,idle_since"
_WORKLOADS = ANALYZER._replace(
    path="/api/v1/workloads", gives="list of workloads", content="workloads", ask="extender.analyzer_url:"
)


class IdleWorkload(Struct, frozen=True, kw_only=True):
    """A pod whose verdict is idle on all its GPUs."""

    namespace: str
    pod: str
    pod_uid: PodUID | None = None  # None: the metrics do not say it
    idle_since: str | None = None


class IdleNow(Struct, frozen=True, kw_only=True):
    """The idle workloads as far as they are known now."""

    state: IdleState
    workloads: tuple[IdleWorkload, ...] = ()
    age: Seconds | None = None  # of the analysis
    reason: str = ""  # why there are none


class _List(Struct, frozen=True):
    at: str | None = None
    stale: bool = True
    rows: tuple[IdleWorkload, ...] = ()


class IdleWorkloads:
    """Reads the idle workloads again and again."""

    def __init__(
        self,
        url: str | None,
        *,
        token: str | None = None,
        wall: Callable[[], UnixTime] = time.time,
        pause: Callable[[Seconds], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`url` None: no analyzer is configured."""
        self._url, self._token, self._wall, self._pause = url, token, wall, pause
        self._found: _List | None = None
        self._error: ScopeError | None = None
        self._told = OnChange(log)

    def now(self) -> IdleNow:
        """What is known now, without waiting."""
        if self._url is None:
            return IdleNow(state="absent", reason="no analyzer is configured (extender.analyzer_url)")
        found = self._found
        at = from_rfc3339(found.at) if found else None
        age = None if at is None else max(0.0, self._wall() - at)
        if found is None or age is None:
            reason = str(self._error) if self._error else "the analyzer has not answered yet"
            return IdleNow(state="down", reason=reason)
        if found.stale or age > _OLDEST:
            reason = f"the last good analysis of the analyzer is {age:.0f} s old"
            return IdleNow(state="stale", age=age, reason=f"{reason}: {self._error}" if self._error else reason)
        return IdleNow(state="ok", workloads=found.rows, age=age)

    async def run(self) -> None:
        """Read for ever; without an analyzer, do nothing for ever."""
        if self._url is None:
            await asyncio.Event().wait()
            return
        async with ServedApi(_WORKLOADS, self._url, content=_List, timeout=_WITHIN, token=self._token) as api:
            while True:
                await self._read(api)
                await self._pause(_AGAIN if self._error else _EVERY)

    async def _read(self, api: ServedApi[_List]) -> None:
        path = f"{_WORKLOADS.path}?verdict=idle&fields={_FIELDS}&limit={_MOST}"
        try:
            found = await api.ask("GET", path, _List)
            if from_rfc3339(found.at) is None:
                raise SourceDown("the analyzer has made no analysis yet")
        except ScopeError as e:
            self._error = e
            values = error_fields(e)
            self._told.tell("idle", e.code, level=logging.WARNING, message="idle workloads are not known", **values)
            return
        self._found, self._error = found, None
        self._told.tell("idle", "ok", level=SUMMARY, message="idle workloads are known", workloads=len(found.rows))
