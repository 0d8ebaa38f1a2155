"""Hours of the past that were read once: an hour of 10,000 shared GPUs takes seconds to read, and a day has 24."""

from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from vgpuscope.model.quantity import Seconds, UnixTime

T = TypeVar("T")

SETTLED: Seconds = 900.0  # after the end of an hour: until then, results of it may still arrive
AGAIN: Seconds = 6 * 3600.0  # then an hour is read again, in case results arrived after a long failure of the store


class PastHours(Generic[T]):
    """What was made of steps of the history, by the step's begin; the ones used last are kept."""

    def __init__(self, wall: Callable[[], UnixTime], *, most: int) -> None:
        self._wall, self._most = wall, most
        self._known: dict[tuple[Hashable, UnixTime], tuple[UnixTime, T]] = {}

    async def get(self, key: Hashable, begin: UnixTime, end: UnixTime, make: Callable[[], Awaitable[T]]) -> T:
        """The value of a step; it is made if it is not known, or may have changed."""
        place, now = (key, begin), self._wall()
        found = self._known.pop(place, None)
        if found is None or now - found[0] > AGAIN:
            found = (now, await make())
        if now - end > SETTLED:
            self._known[place] = found
            while len(self._known) > self._most:
                del self._known[next(iter(self._known))]
        return found[1]
