"""Hours of the past that were read once: an hour of 10,000 shared GPUs takes seconds to read, and a day has 24."""

from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from vgpuscope.model.quantity import Seconds, UnixTime

T = TypeVar("T")

SETTLED: Seconds = 900.0  # after the end of an hour: until then, results of it may still arrive
AGAIN: Seconds = 6 * 3600.0  # then an hour is read again, in case results arrived after a long failure of the store


class _Read(NamedTuple, Generic[T]):
    """One step as it was read."""

    at: UnixTime
    stored: Hashable
    value: T


class PastHours(Generic[T]):
    """What was made of steps of the history, by the step's begin; the ones used last are kept."""

    def __init__(
        self, wall: Callable[[], UnixTime], *, most: int, stored: Callable[[], Hashable] = lambda: None
    ) -> None:
        """`stored` returns another value when other results may be in the store. None: that is not known."""
        self._wall, self._most, self._stored = wall, most, stored
        self._known: dict[tuple[Hashable, UnixTime], _Read[T]] = {}

    async def get(self, key: Hashable, begin: UnixTime, end: UnixTime, make: Callable[[], Awaitable[T]]) -> T:
        """The value of a step; it is made if it is not known, or may have changed."""
        place, now, stored = (key, begin), self._wall(), self._stored()
        found = self._known.pop(place, None)
        if found is None or not self._lasts(found, end, now, stored):
            found = _Read(now, stored, await make())
        self._known[place] = found
        while len(self._known) > self._most:
            del self._known[next(iter(self._known))]
        return found.value

    def _lasts(self, found: "_Read[T]", end: UnixTime, now: UnixTime, stored: Hashable) -> bool:
        """Whether a step is still as it was read; until it is settled, every saved analysis may change it."""
        settled = found.at - end > SETTLED
        return now - found.at <= AGAIN and (settled or (stored is not None and found.stored == stored))
