"""Followers of a result, each isolated from the failures of the others.

They run one after the other, in the order of the list: two at once would need the memory of both. Each has a task of
its own. A follower that raises, is cancelled or misses its deadline is logged once and counted under its name. Then the
next one runs.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from vgpuscope.model.errors import FollowerLate, ScopeError
from vgpuscope.model.quantity import Seconds
from vgpuscope.runtime.log import error_fields, fields

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

_LEAVE_WITHIN: Seconds = 1.0  # for a follower that is late to end when it is cancelled


class Follower(Struct, Generic[T], frozen=True, kw_only=True):
    """A step that runs after each result."""

    name: str
    follow: Callable[[T], Awaitable[None]]
    deadline: Seconds


class Followers(Generic[T]):
    """Passes each result to all followers."""

    def __init__(self, followers: Sequence[Follower[T]], *, failed: Callable[[str, ScopeError], None]) -> None:
        """`failed` is called with the name of a follower and its error, each time."""
        self._followers, self._failed = tuple(followers), failed
        self._failing: dict[str, ScopeError] = {}
        self._left: set[asyncio.Future[None]] = set()  # late ones that did not end when they were cancelled

    @property
    def failing(self) -> Mapping[str, ScopeError]:
        """The followers that failed with the last result, and why."""
        return self._failing

    async def tell(self, result: T) -> bool:
        """Pass a result to all followers; True if one raised an unexpected error. Never raises."""
        return any([await self.run(follower, result) for follower in self._followers])

    async def run(self, follower: Follower[R], result: R) -> bool:
        """Run one follower, of the list or beside it; True if it raised an unexpected error. Never raises."""
        name = follower.name
        error, cause = await self._outcome(follower, result)
        before = self._failing.pop(name, None)
        if error is None:
            return False
        self._failing[name] = error
        if before is None or str(before) != str(error):
            values = fields(follower=name, **error_fields(error))
            log.log(logging.ERROR, "follower of the analysis failed", extra=values, exc_info=cause)
        self._failed(name, error)
        return cause is not None

    async def _outcome(self, follower: Follower[R], result: R) -> tuple[ScopeError | None, BaseException | None]:
        """The follower's error, and the original exception if it is not a ScopeError."""
        clock = asyncio.get_running_loop().time
        began, task = clock(), asyncio.ensure_future(follower.follow(result))
        try:
            await asyncio.wait({task}, timeout=follower.deadline)
            if not task.done():
                await self._leave(task)
                return _late(follower), None
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.cancelled():
            return ScopeError(f"{follower.name} was cancelled from inside"), asyncio.CancelledError()
        error = task.exception()
        if isinstance(error, ScopeError):
            return error, None
        if error is not None:
            return ScopeError(f"{follower.name}: {error!r}"), error
        return (_late(follower) if clock() - began > follower.deadline else None), None

    async def _leave(self, task: "asyncio.Future[None]") -> None:
        """Cancel a late follower; one that does not end is left running."""
        task.cancel()
        self._left.add(task)
        task.add_done_callback(self._ended)
        await asyncio.wait({task}, timeout=_LEAVE_WITHIN)

    def _ended(self, task: "asyncio.Future[None]") -> None:
        self._left.discard(task)
        if not task.cancelled():
            task.exception()  # it was reported as late; asyncio must not report it again


def _late(follower: Follower[R]) -> FollowerLate:
    return FollowerLate(f"{follower.name} was not done within {follower.deadline:g} s")
