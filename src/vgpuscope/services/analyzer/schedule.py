"""An analysis each interval, measured from start to start. Replicas that do not analyse read the leader's results."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from vgpuscope.config import Config
from vgpuscope.model.quantity import Seconds
from vgpuscope.services.analyzer.replica import Replica

READ_WITHIN = (1.0, 15.0)  # seconds between two reads of the leader's results: bounds for a fifth of the interval


class Schedule:
    """Analyses, or reads, in turn."""

    def __init__(
        self,
        config: Callable[[], Config],
        replica: Replica,
        *,
        analyse: Callable[[], Awaitable[None]],
        read: Callable[[], Awaitable[None]],
        read_within: tuple[Seconds, Seconds] = READ_WITHIN,
        clock: Callable[[], Seconds],
    ) -> None:
        """`analyse` returns when the analysis has ended; `read` takes over the leader's result.

        `read_within` is the shortest and the longest time between two reads.
        """
        self._config, self._replica, self._clock = config, replica, clock
        self._analyse, self._read, self._read_within = analyse, read, read_within
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Begin the next turn now: the settings or the leader changed."""
        self._wake.set()

    async def forever(self) -> None:
        while True:
            self._wake.clear()
            began, analyses = self._clock(), await self._replica.should_analyse()
            await (self._analyse() if analyses else self._read())
            rest = began + self._pause(analyses=analyses) - self._clock()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.05, rest)):
                    await self._wake.wait()

    def _pause(self, *, analyses: bool) -> Seconds:
        interval = self._config().scheduler.interval
        if analyses:
            return interval
        least, most = self._read_within
        return max(least, min(most, interval / 5))
