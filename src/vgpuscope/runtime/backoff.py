"""The pause before something that ended is started again."""

import time
from collections.abc import Callable

from vgpuscope.model.quantity import Seconds

RESTART = (1.0, 60.0)  # seconds: first and longest pause before a loop or a process is restarted


class BackOff:
    """Each pause is twice the last, up to the longest; after a run that lasted longer than that, the first again."""

    def __init__(self, pauses: tuple[Seconds, Seconds], clock: Callable[[], Seconds] = time.monotonic) -> None:
        """`pauses`: the first and the longest."""
        self._first, self._longest = pauses
        self._clock = clock
        self._next, self._began = self._first, clock()

    def begin(self) -> None:
        """A run begins now."""
        self._began = self._clock()

    def lasted(self) -> Seconds:
        """The time since the run began."""
        return self._clock() - self._began

    def pause(self) -> Seconds:
        """The pause after a run that ends now."""
        pause = self._first if self.lasted() > self._longest else self._next
        self._next = min(2 * pause, self._longest)
        return pause
