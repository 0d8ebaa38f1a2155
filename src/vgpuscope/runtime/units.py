"""Units of work that must not affect each other: an unexpected error belongs to one unit and ends no process."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from vgpuscope.model.errors import ScopeError
from vgpuscope.runtime.log import error_fields, fields

_MOST = 1000  # failing units that are remembered


class Units:
    """Counts each unexpected error, and logs it with the unit's name and a traceback unless it is the same again."""

    def __init__(self, log: logging.Logger, count: Callable[[ScopeError], None] = lambda _: None) -> None:
        self._log, self.count = log, count
        self._failing: dict[str, ScopeError] = {}

    @property
    def failing(self) -> Mapping[str, ScopeError]:
        """The units that failed the last time, and why."""
        return self._failing

    @contextmanager
    def isolated(self, unit: str) -> Iterator[None]:
        """Keep an unexpected error of this unit from all others."""
        try:
            yield
        except Exception as e:
            self.failed(unit, e)
        else:
            self.good(unit)

    def failed(self, unit: str, error: Exception) -> ScopeError:
        """Log and count an unexpected error; returns it as the error that users see."""
        found = error if isinstance(error, ScopeError) else ScopeError(f"{unit}: {error!r}")
        before = self._failing.get(unit)
        if before is None or str(before) != str(found):
            values = fields(unit=unit, **error_fields(found))
            self._log.error("unit of work failed", extra=values, exc_info=error)
        if len(self._failing) >= _MOST:
            self._failing.clear()
        self._failing[unit] = found
        self.count(found)
        return found

    def good(self, unit: str) -> None:
        """The unit works again."""
        self._failing.pop(unit, None)
