"""One source, read on its own thread: a call that hangs costs that thread and nothing else."""

import queue
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from vgpuscope.model.errors import SourceDown

T = TypeVar("T")


class _Call(Generic[T]):
    """One run of the function: finished exactly once, with a value or an error."""

    __slots__ = ("began", "done", "error", "value")

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.done = threading.Event()
        self.error: BaseException | None = None
        self.value: T | None = None

    def run(self, fn: Callable[[], T]) -> None:
        try:
            self.value = fn()
        except BaseException as e:  # it belongs to the caller, whatever it is
            self.error = e
        self.done.set()


class Probe(Generic[T]):
    """Reads by calling a function on one daemon thread; a call that is still out is never started a second time.

    One thread at a time may call read().
    """

    def __init__(
        self,
        name: str,
        fn: Callable[[], T],
        *,
        doing: Callable[[], str] | None = None,
        error: type[SourceDown] = SourceDown,
    ) -> None:
        self._name = name
        self._fn = fn
        self._doing = doing
        self._error = error
        self._jobs: queue.SimpleQueue[_Call[T] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._out: _Call[T] | None = None

    def read(self, deadline: float) -> T:
        """What the function returns or raises; the probe's error when it is not back within the deadline."""
        if self.stuck_seconds is not None:
            raise self._late()
        call = self._out = _Call[T]()
        self._start()
        self._jobs.put(call)
        if not call.done.wait(deadline):
            raise self._late()
        self._out = None
        if call.error is not None:
            raise call.error
        return call.value  # type: ignore[return-value]  # T may include None

    @property
    def stuck_seconds(self) -> float | None:
        """How long a call that missed its deadline has been out; None when none is."""
        call = self._out
        if call is None or call.done.is_set():
            return None
        return time.monotonic() - call.began

    def close(self) -> None:
        """Let the thread end after what it is doing; a thread that is stuck ends with the process."""
        self._jobs.put(None)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"probe-{self._name}", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while (call := self._jobs.get()) is not None:
            call.run(self._fn)
            del call  # while waiting, do not keep the last reading alive

    def _late(self) -> SourceDown:
        what = self._doing() if self._doing else "the read"
        return self._error(f"{self._name}: {what} has not come back for {self.stuck_seconds or 0.0:.1f} s")
