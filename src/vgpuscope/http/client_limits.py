"""Limits per client: how often one client may ask, and how often all clients together may."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.exceptions import HTTPException

_CLIENTS = 4096  # whose requests are counted; the longest silent is forgotten first
_BURST_SECONDS = 4.0  # of the allowed rate that may come at once


class TokenBucket:
    """Filled at a steady rate up to the burst; a request takes one token."""

    __slots__ = ("_at", "_left")

    def __init__(self) -> None:
        self._left: float | None = None  # None: full
        self._at = 0.0

    def take(self, *, rate: float, burst: float, now: float) -> float:
        """0, or the seconds until the next request may come."""
        left = burst if self._left is None else min(burst, self._left + (now - self._at) * rate)
        allowed = left >= 1
        self._left, self._at = left - 1 if allowed else left, now
        return 0.0 if allowed else (1 - left) / rate


class ClientLimits:
    """One rate for every client, each counted on its own."""

    def __init__(self, rate: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, max(1.0, rate * _BURST_SECONDS), clock
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def check(self, client: str) -> None:
        """Count one request of a client; 429 with retry-after when it came too early."""
        bucket = self._buckets.pop(client, None) or TokenBucket()
        self._buckets[client] = bucket
        if len(self._buckets) > _CLIENTS:
            self._buckets.popitem(last=False)
        if wait := bucket.take(rate=self._rate, burst=self._burst, now=self._clock()):
            raise HTTPException(429, headers={"retry-after": str(math.ceil(wait))})
