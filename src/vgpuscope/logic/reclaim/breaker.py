"""The circuit breaker: many workloads that turn idle at once look like a fault of the metrics.

It compares each workload with the last time that something was known of it. A workload that was never known before is
no history: it neither opens the breaker nor counts against it.
"""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.model.reclaim import Finding, Policy


class Breaker(Struct, frozen=True, kw_only=True):
    """Open: no action is taken."""

    open_since: UnixTime | None = None
    calm: int = 0  # analyses since it opened in which few workloads turned idle
    turned: int = 0  # how many turned idle when it opened
    of: int = 0
    counted_until: UnixTime = 0.0  # end of the last analysis that counted as calm

    @property
    def is_open(self) -> bool:
        return self.open_since is not None


IDLE: frozenset[Finding] = frozenset({"idle", "held", "preparing"})
_BUSY: frozenset[Finding] = frozenset({"busy", "partly"})


def turned_idle(known: Mapping[str, bool], now: Mapping[str, Finding]) -> int:
    """The workloads that are idle now and were busy when something was last known of them."""
    return sum(found in IDLE and known.get(key) is False for key, found in now.items())


def remember(known: Mapping[str, bool], now: Mapping[str, Finding]) -> dict[str, bool]:
    """Whether each present workload was idle when something was last known of it."""
    kept = {key: known[key] for key in now if key in known}
    kept.update((key, found in IDLE) for key, found in now.items() if found in IDLE or found in _BUSY)
    return kept


def after(
    breaker: Breaker, *, turned: int, of: int, now: UnixTime, end: UnixTime, interval: Seconds, policy: Policy
) -> Breaker:
    """The breaker after one analysis, ending at `end`, in which `turned` of `of` workloads turned idle.

    `interval`: between two scheduled analyses. Those in between, which look again at one case, do not count as calm.
    """
    if turned >= policy.breaker_least and turned > policy.breaker_share * of:
        return Breaker(open_since=now, turned=turned, of=of, counted_until=end)
    if not breaker.is_open or end - breaker.counted_until < interval / 2:
        return breaker
    calm = breaker.calm + 1
    return Breaker() if calm >= policy.breaker_calm else replace(breaker, calm=calm, counted_until=end)
