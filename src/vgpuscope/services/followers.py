"""Followers of a result, each isolated from the failures of the others.

They run one after the other, in the order of the list: two at once would need the memory of both. A follower that
raises or misses its deadline is logged once and counted under its name. Then the next one runs.
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
        error, cause = await _outcome(follower, result)
        before = self._failing.pop(name, None)
        if error is None:
            return False
        self._failing[name] = error
        if before is None or str(before) != str(error):
            values = fields(follower=name, **error_fields(error))
            log.log(logging.ERROR, "follower of the analysis failed", extra=values, exc_info=cause)
        self._failed(name, error)
        return cause is not None


async def _outcome(follower: Follower[R], result: R) -> tuple[ScopeError | None, Exception | None]:
    """The follower's error, and the original exception if it is not a ScopeError."""
    try:
        async with asyncio.timeout(follower.deadline) as limit:
            await follower.follow(result)
    except ScopeError as e:
        return e, None
    except Exception as e:
        if isinstance(e, TimeoutError) and limit.expired():
            return FollowerLate(f"{follower.name} was not done within {follower.deadline:g} s"), None
        return ScopeError(f"{follower.name}: {e!r}"), e
    return None, None
