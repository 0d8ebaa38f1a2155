"""Events on pods, written in the background: a decision never waits for one.

A pod that fits nowhere is refused again and again. While the codes stay the same, the refusals are counted in one
event, which is renewed at most every half minute, and gets its current numbers every ten minutes.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from vgpuscope.formats.kube.events import EventText
from vgpuscope.formats.kube.paths import ObjectRef
from vgpuscope.model.errors import ScopeError
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.runtime.log import SUMMARY, error_fields, fields

log = logging.getLogger(__name__)

_MOST = 2000  # events that wait
_REMEMBERED = 10_000  # pods whose last refusal is known
_AGAIN: Seconds = 30.0
_NEW_TEXT: Seconds = 600.0
_LANES = 4  # events written at once


class Reporter(Protocol):
    """Writes one event."""

    def __call__(self, about: ObjectRef, text: EventText, *, now: UnixTime, times: int = 1) -> Awaitable[None]: ...


class _Key(NamedTuple):
    uid: str
    reason: str


class _Waiting(NamedTuple):
    about: ObjectRef
    text: EventText
    times: int
    at: UnixTime
    due: Seconds


class _Last(NamedTuple):
    """The last event of one reason about a pod."""

    codes: frozenset[str]
    text: EventText
    since: Seconds  # when the text was new
    posted: Seconds


class EventPoster:
    """A bounded queue of events."""

    def __init__(
        self,
        report: Reporter,
        *,
        failed: Callable[[ScopeError], None] = lambda _: None,
        clock: Callable[[], Seconds] = time.monotonic,
        pause: Callable[[Seconds], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._report, self._failed, self._clock, self._pause = report, failed, clock, pause
        self._waiting: OrderedDict[_Key, _Waiting] = OrderedDict()
        self._last: OrderedDict[_Key, _Last] = OrderedDict()
        self.posted = self.dropped = 0

    def post(self, about: ObjectRef, text: EventText, *, now: UnixTime, codes: frozenset[str] = frozenset()) -> None:
        """Queue an event; with codes, an event with the same codes is a repetition of the last one."""
        key, clock = _Key(about.uid, text.reason), self._clock()
        due, last = clock, self._last.get(key) if codes else None
        if last is not None and last.codes == codes:
            due = last.posted + _AGAIN
            text = last.text if clock - last.since < _NEW_TEXT else text
        if codes and (last is None or last.codes != codes or last.text != text):
            self._remember(key, _Last(codes, text, clock, clock))
        before = self._waiting.get(key)
        times = before.times + 1 if before is not None and before.text == text else 1
        self._waiting[key] = _Waiting(about, text, times, now, min(due, before.due) if before else due)
        if len(self._waiting) > _MOST:
            self._waiting.popitem(last=False)
            self.dropped += 1

    async def run(self) -> None:
        """Write the events that are due, for ever."""
        lanes = asyncio.Semaphore(_LANES)
        async with asyncio.TaskGroup() as group:
            while True:
                for key in self._due():
                    await lanes.acquire()
                    group.create_task(self._write(key, lanes), name="event")
                await self._pause(0.1)

    async def flush(self) -> None:
        """Write all that are due now, one after another."""
        for key in self._due():
            await self._post(key)

    def _due(self) -> list[_Key]:
        now = self._clock()
        return [key for key, one in self._waiting.items() if one.due <= now]

    async def _write(self, key: _Key, lanes: asyncio.Semaphore) -> None:
        try:
            await self._post(key)
        finally:
            lanes.release()

    async def _post(self, key: _Key) -> None:
        one = self._waiting.pop(key, None)
        if one is None:
            return
        if last := self._last.get(key):
            self._last[key] = last._replace(posted=self._clock())
        try:
            await self._report(one.about, one.text, now=one.at, times=one.times)
        except ScopeError as e:
            self.dropped += 1
            self._failed(e)
            log.log(SUMMARY, "event was not written", extra=fields(pod=one.about.name, **error_fields(e)))
        else:
            self.posted += 1

    def _remember(self, key: _Key, last: _Last) -> None:
        self._last[key] = last
        self._last.move_to_end(key)
        if len(self._last) > _REMEMBERED:
            self._last.popitem(last=False)
