"""Limits per client: the request rate of one client, and of all clients together."""

import time
from collections.abc import Callable

from vgpuscope.http.ratelimit import RateLimiter
from vgpuscope.http.too_many import too_many
from vgpuscope.model.quantity import Seconds

_BURST_SECONDS = 4.0  # seconds of the allowed rate that may arrive as one burst


class ClientLimits:
    """One rate limit for all clients, counted for each client separately."""

    def __init__(self, rate: float, *, clock: Callable[[], Seconds] = time.monotonic) -> None:
        self._interval, self._burst, self._clock = 1 / rate, max(1.0, rate * _BURST_SECONDS), clock
        self._limiter = RateLimiter()

    def check(self, client: str) -> None:
        """Count one request of a client; 429 with retry-after when the client exceeds its rate."""
        wait = self._limiter.wait(client, interval=self._interval, burst=self._burst, now=self._clock())
        if wait:
            too_many(wait)
