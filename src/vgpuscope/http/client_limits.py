"""Limits per client: how often one client may ask, and how often all clients together may."""

import math
import time
from collections.abc import Callable

from starlette.exceptions import HTTPException

from vgpuscope.http.ratelimit import RateLimiter
from vgpuscope.model.quantity import Seconds

_BURST_SECONDS = 4.0  # of the allowed rate that may come at once


class ClientLimits:
    """One rate for every client, each counted on its own."""

    def __init__(self, rate: float, *, clock: Callable[[], Seconds] = time.monotonic) -> None:
        self._interval, self._burst, self._clock = 1 / rate, max(1.0, rate * _BURST_SECONDS), clock
        self._limiter = RateLimiter()

    def check(self, client: str) -> None:
        """Count one request of a client; 429 with retry-after when it came too early."""
        wait = self._limiter.wait(client, interval=self._interval, burst=self._burst, now=self._clock())
        if wait:
            raise HTTPException(429, headers={"retry-after": str(math.ceil(wait))})
