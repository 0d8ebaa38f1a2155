"""A lease within one process, by its own clock."""

import time

from vgpuscope.model.quantity import Seconds


class Lease:
    """One holder at a time; without renewal it runs out."""

    def __init__(self) -> None:
        self._holder: str | None = None
        self._until = 0.0

    def take(self, holder: str, seconds: Seconds) -> bool:
        now = time.monotonic()
        if self._holder not in {None, holder} and now < self._until:
            return False
        self._holder, self._until = holder, now + seconds
        return True

    def free(self, holder: str) -> bool:
        """Whether nobody has it now."""
        if self._holder == holder:
            self._holder = None
        return self._holder is None
