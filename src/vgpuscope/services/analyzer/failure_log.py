"""Logs that analyses fail or lack something: when that begins, when the reason changes, each hour, and when it ends."""

import logging
from collections.abc import Callable, Sequence

from vgpuscope.model.analysis import Fault
from vgpuscope.model.errors import ScopeError
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.runtime.log import error_fields, fields

_MOST = 10  # faults of one analysis that are logged
_AGAIN: Seconds = 3600.0


class FailureLog:
    """What was logged of the failures of analyses that lasts until now."""

    def __init__(self, log: logging.Logger, *, clock: Callable[[], UnixTime]) -> None:
        self._log, self._clock = log, clock
        self._failure: tuple[str, str] | None = None  # code and cause of the failure that was logged last
        self._failed, self._failure_due = 0, 0.0
        self._faults: dict[tuple[str, str], UnixTime] = {}  # part and code → when it is logged again

    def failed(self, error: ScopeError, cause: BaseException | None = None) -> None:
        """An analysis failed; `cause` is logged with its traceback if it is an unexpected error."""
        self._failed += 1
        failure, now = (error.code, repr(cause) if cause else ""), self._clock()
        if failure != self._failure or now >= self._failure_due:
            values = fields(**error_fields(error), failed=self._failed)
            self._log.error("analysis failed", extra=values, exc_info=cause)
            self._failure, self._failure_due = failure, now + _AGAIN

    def succeeded(self, faults: Sequence[Fault]) -> None:
        """An analysis succeeded, but for these faults."""
        if self._failure is not None:
            self._log.info("analyses succeed again", extra=fields(failed=self._failed))
            self._failure, self._failed = None, 0
        now, found = self._clock(), {(fault.part, fault.code): fault for fault in faults}
        ended = sorted(self._faults.keys() - found.keys())
        for part, code in ended[:_MOST]:
            self._log.info("part of the analysis is complete again", extra=fields(part=part, error_code=code))
        if len(ended) > _MOST:
            self._log.info("part of the analysis is complete again", extra=fields(more=len(ended) - _MOST))
        due = [key for key in found if now >= self._faults.get(key, 0.0)]
        for key in due[:_MOST]:
            fault = found[key]
            values = fields(part=fault.part, error_code=fault.code, err=fault.message)
            self._log.warning("partial analysis", extra=values)
        if len(due) > _MOST:
            self._log.warning("partial analysis", extra=fields(more=len(due) - _MOST))
        self._faults = {key: now + _AGAIN if key in due else self._faults[key] for key in found}
