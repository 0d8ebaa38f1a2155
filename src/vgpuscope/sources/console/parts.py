"""Parts that answers are joined from: fetched on demand, once for all callers, and kept for a while.

However many callers ask, a part is fetched by one task at a time. A caller waits for it until the part's deadline. Then
it gets the last good value, or none. The fetch goes on, so that a slow part is there for the next caller. A part that
is known to be slow is not waited for as long as there is a good value.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from msgspec import Struct

from vgpuscope.model.console.parts import PartName, PartState
from vgpuscope.model.errors import KubeForbidden, QueryForbidden, QueryTimeout, ScopeError
from vgpuscope.model.quantity import Seconds, UnixTime

log = logging.getLogger(__name__)

T = TypeVar("T")

_DEADLINE: Seconds = 3.0
_KEPT: Seconds = 5.0
_QUICK: Seconds = 0.3  # a fetch that takes longer is slow
_SHARE = 40.0  # a part is fetched at most for 1/40 of the time,
_LONGEST_PAUSE: Seconds = 300.0  # unless that would be longer than this
_LONGEST: Seconds = 60.0  # for a fetch that nobody waits for any more
_TRUSTED: Seconds = 600.0  # an older value is not shown
_LATELY: Seconds = 120.0  # a console asks every 30 s by default
_MISSED = 1.25  # rhythms after which a slow part is fetched without one,
_LONGEST_WAIT: Seconds = 450.0  # unless that would be longer than this: a value is not shown after _TRUSTED


class PartReading(Struct, Generic[T], frozen=True, kw_only=True):
    """A part as it is known now."""

    name: PartName
    state: PartState
    value: T | None = None
    version: int = 0  # another one for another value
    at: UnixTime | None = None  # when the value was read
    error: ScopeError | None = None


class PartReader(Generic[T]):
    """One part."""

    def __init__(
        self,
        name: PartName,
        fetch: Callable[[], Awaitable[T]] | None,
        *,
        missing: ScopeError | None = None,
        deadline: Seconds = _DEADLINE,
        kept: Seconds = _KEPT,
        longest: Seconds = _LONGEST,
        share: float = _SHARE,
        rhythm: Callable[[], Seconds] | None = None,
        clock: Callable[[], Seconds] = time.monotonic,
        wall: Callable[[], UnixTime] = time.time,
    ) -> None:
        """`fetch` None: the part is not configured, and `missing` says how to configure it.

        A fetch that returns the same object as before says that nothing has changed. The pause between two fetches is
        at least `share` times as long as a fetch, up to 5 minutes. With `rhythm`, somebody calls `begin` about every so
        many seconds; a part whose pause is longer than half of that waits for it.
        """
        self._name, self._fetch, self._missing = name, fetch, missing
        self._deadline, self._kept, self._longest, self._share = deadline, kept, longest, share
        self._rhythm, self._clock, self._wall = rhythm, clock, wall
        self._asked = float("-inf")
        self._task: asyncio.Task[None] | None = None
        self._began = self._rested = self._due = float("-inf")
        self._paused: Seconds = 0.0
        self._took: Seconds = 0.0  # the last good fetch
        self._value: T | None = None
        self._version, self._at = 0, None  # type: tuple[int, UnixTime | None]
        self._error: ScopeError | None = None

    async def read(self) -> PartReading[T]:
        """The part, at most a deadline later; never raises."""
        if self._fetch is None:
            return PartReading(name=self._name, state="absent", error=self._missing)
        self._asked = self._clock()
        if self._task is None and self._clock() >= self._due:
            self._start(self._fetch)
        if self._task is not None:
            slow = self._took > _QUICK and self._trusted()
            left = 0.0 if slow else self._began + self._deadline - self._clock()
            await asyncio.wait({self._task}, timeout=max(0.0, left))
        return self.held()

    def begin(self) -> None:
        """Fetch the part now, without waiting, if somebody has asked for it lately and its pause is nearly over."""
        if self._fetch is None or self._rhythm is None or self._task is not None:
            return
        now, early = self._clock(), min(self._rhythm(), self._paused) / 2
        if now - self._asked <= _LATELY and now >= self._rested - early:
            self._start(self._fetch)

    def held(self) -> PartReading[T]:
        """The part as it is known, without waiting."""
        if self._fetch is None:
            return PartReading(name=self._name, state="absent", error=self._missing)
        error = self._late() or self._error
        trusted = self._trusted()
        return PartReading(
            name=self._name,
            state=_state(error, trusted=trusted),
            value=self._value if trusted else None,
            version=self._version if trusted else 0,
            at=self._at,
            error=error,
        )

    async def close(self) -> None:
        """End a fetch that is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _trusted(self) -> bool:
        return self._at is not None and self._wall() - self._at <= _TRUSTED

    def _late(self) -> ScopeError | None:
        """The error if a fetch takes long, also in comparison with the one before it."""
        within = max(self._deadline, 2 * self._took)
        if self._task is None or self._clock() < self._began + within:
            return None
        return QueryTimeout(f"no answer within {within:.3g} s", hint="The last good values are shown meanwhile.")

    def _start(self, fetch: Callable[[], Awaitable[T]]) -> None:
        self._began = self._clock()
        self._task = asyncio.create_task(self._refresh(fetch), name=f"part {self._name}")

    async def _refresh(self, fetch: Callable[[], Awaitable[T]]) -> None:
        at = self._wall()
        try:
            async with asyncio.timeout(self._longest):
                value = await fetch()
        except TimeoutError:
            self._error = QueryTimeout(f"no answer within {self._longest:g} s")
        except ScopeError as e:
            self._error = e
        except Exception as e:
            log.exception("a part of the console failed", extra={"fields": {"part": self._name}})
            self._error = ScopeError(f"{self._name}: {e!r}")
        else:
            if value is not self._value:
                self._value, self._version = value, self._version + 1
            self._at, self._error = at, None
            self._took = self._clock() - self._began
        finally:
            now = self._clock()
            self._paused = self._pause(now - self._began)
            self._rested, self._due = now + self._paused, now + self._with_rhythm(self._paused)
            self._task = None

    def _pause(self, took: Seconds) -> Seconds:
        """The time until the next fetch; a part that failed is soon tried again, however long it took to fail."""
        if self._error is not None:
            return max(self._kept, min(took, _LONGEST_PAUSE / 10))
        return max(self._kept, min(self._share * took, _LONGEST_PAUSE))

    def _with_rhythm(self, pause: Seconds) -> Seconds:
        """The time until the next fetch if nobody calls `begin`."""
        if self._rhythm is None or pause <= self._rhythm() / 2:
            return pause
        return max(pause, min(_MISSED * self._rhythm(), _LONGEST_WAIT))


def _state(error: ScopeError | None, *, trusted: bool) -> PartState:
    if isinstance(error, (QueryForbidden, KubeForbidden)):
        return "forbidden"
    if error is None and trusted:
        return "ok"
    return "stale" if trusted else "down"
