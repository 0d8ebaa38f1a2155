"""How often something took how long."""

from bisect import bisect_left
from itertools import accumulate

from msgspec import Struct


class Histogram(Struct, frozen=True, gc=False):
    """Observations by size. `counts[i]` were at most `bounds[i]` and above the bound before it; the last, above all."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float = 0.0

    @classmethod
    def empty(cls, bounds: tuple[float, ...]) -> "Histogram":
        """Nothing was observed yet."""
        return cls(bounds, (0,) * (len(bounds) + 1))

    def with_one(self, value: float) -> "Histogram":
        """The same and one observation more."""
        counts = list(self.counts)
        counts[bisect_left(self.bounds, value)] += 1
        return Histogram(self.bounds, tuple(counts), self.sum + value)

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> tuple[int, ...]:
        """For each bound, and at last for infinity, how many observations were at most that."""
        return tuple(accumulate(self.counts))
