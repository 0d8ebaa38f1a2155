"""A histogram of durations."""

from bisect import bisect_left
from itertools import accumulate

from msgspec import Struct


class Histogram(Struct, frozen=True, gc=False):
    """Observations by size.

    `counts[i]` is the number of observations above `bounds[i-1]` and at most `bounds[i]`; the last count is of those
    above all bounds.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float = 0.0

    @classmethod
    def empty(cls, bounds: tuple[float, ...]) -> "Histogram":
        """A histogram without observations."""
        return cls(bounds, (0,) * (len(bounds) + 1))

    def with_one(self, value: float) -> "Histogram":
        """This histogram with one more observation."""
        counts = list(self.counts)
        counts[bisect_left(self.bounds, value)] += 1
        return Histogram(self.bounds, tuple(counts), self.sum + value)

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> tuple[int, ...]:
        """The number of observations at most as large as each bound, and last the number of all observations."""
        return tuple(accumulate(self.counts))
