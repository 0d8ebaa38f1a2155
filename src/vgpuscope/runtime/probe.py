"""One source, read on its own thread: a call that hangs blocks that thread and nothing else."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from vgpuscope.model.errors import SourceDown
from vgpuscope.worker import Worker

T = TypeVar("T")


class Probe(Generic[T]):
    """Reads by calling a function on a worker's thread; while a call is running, no second one is started.

    One thread at a time may call read().
    """

    def __init__(
        self,
        name: str,
        fn: Callable[[], T],
        *,
        doing: Callable[[], str] | None = None,
        error: type[SourceDown] = SourceDown,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._fn = fn
        self._doing = doing
        self._error = error
        self._clock = clock
        self._worker = Worker(f"probe-{name}")
        self._out: tuple[Future[T], float] | None = None  # the running call, and when it began

    def read(self, deadline: float) -> T:
        """What the function returns or raises; the probe's error when the call misses the deadline."""
        if self.stuck_seconds is not None:
            raise self._late()
        call = self._worker.submit(self._fn)
        self._out = call, self._clock()
        if not _done(call, deadline):
            raise self._late()
        self._out = None
        return call.result()

    @property
    def stuck_seconds(self) -> float | None:
        """How long a call that missed its deadline has been running; None when there is none."""
        if self._out is None or self._out[0].done():
            return None
        return self._clock() - self._out[1]

    def close(self) -> None:
        """Let the thread end after its current call; a stuck thread ends with the process."""
        self._worker.close()

    def _late(self) -> SourceDown:
        what = self._doing() if self._doing else "the read"
        return self._error(f"{self._name}: {what} has not come back for {self.stuck_seconds or 0.0:.1f} s")


def _done(call: "Future[T]", deadline: float) -> bool:
    """Whether the call finished in time. result() cannot tell, since the function itself may raise TimeoutError."""
    try:
        call.exception(deadline)
    except TimeoutError:
        return False
    return True
