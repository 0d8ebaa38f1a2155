"""Counters that every process keeps about itself."""

import threading

from vgpuscope.model.errors import ScopeError


class Counters:
    """Errors by code, restarts by loop, failures by follower. Any thread may count; readers see consistent numbers."""

    def __init__(self) -> None:
        self.errors: dict[str, int] = {}
        self.restarts: dict[str, int] = {}
        self.failures: dict[str, int] = {}
        self._lock = threading.Lock()

    def count(self, error: ScopeError) -> None:
        """Count one more of this error."""
        self._add(self.errors, error.code)

    def died(self, loop: str, error: ScopeError) -> None:
        """Count a loop that died of this error; if the process survives, the loop is restarted."""
        self._add(self.errors, error.code)
        self._add(self.restarts, loop)

    def failed(self, follower: str) -> None:
        """Count a failed follower of an analysis."""
        self._add(self.failures, follower)

    @property
    def total(self) -> int:
        """The sum of all counters; it changes whenever one of them does."""
        return sum(sum(counts.values()) for counts in (self.errors, self.restarts, self.failures))

    def _add(self, counts: dict[str, int], name: str) -> None:
        with self._lock:
            counts[name] = counts.get(name, 0) + 1
