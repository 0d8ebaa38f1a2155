"""One thread for blocking calls: jobs run in order, one at a time; a job that hangs blocks this thread only."""

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Closed(RuntimeError):
    """The worker accepts no more jobs."""


class _Job(Generic[T]):
    """A function and the future for its result."""

    __slots__ = ("_future", "_work")

    def __init__(self, work: Callable[[], T], future: "Future[T]") -> None:
        self._work, self._future = work, future

    def run(self) -> None:
        if not self._future.set_running_or_notify_cancel():
            return
        try:
            self._future.set_result(self._work())
        except BaseException as e:  # every error belongs to the caller
            self._future.set_exception(e)

    def refuse(self, error: Exception) -> None:
        if self._future.set_running_or_notify_cancel():
            self._future.set_exception(error)


class Worker:
    """A daemon thread with a queue. The thread starts with the first job; a thread that hangs ends with the process."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._started = self._closed = False

    def submit(self, work: Callable[[], T]) -> "Future[T]":
        """The future of one job, for callers on any thread. A job that is cancelled before it begins never runs."""
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise Closed(f"{self._name} is closed")
            self._jobs.put(_Job(work, future))
            if not self._started:
                self._started = True
                threading.Thread(target=_work, args=(self._jobs,), name=self._name, daemon=True).start()
        return future

    async def do(self, work: Callable[[], T], *, deadline: float | None = None) -> T:
        """What the job returns or raises; TimeoutError after `deadline` seconds, counted from now."""
        async with asyncio.timeout(deadline):
            return await asyncio.wrap_future(self.submit(work))

    @property
    def waiting(self) -> int:
        """Jobs that have not started."""
        return self._jobs.qsize()

    def close(self) -> None:
        """Let the thread end after the queued jobs; no new job is accepted."""
        with self._lock:
            self._closed = True
            self._jobs.put(None)

    def abandon(self) -> None:
        """Close. Jobs that have not started raise Closed to their callers: a cancellation would end the callers too."""
        with self._lock:
            self._closed = True
            while not self._jobs.empty():
                job = self._jobs.get()
                if job is not None:
                    job.refuse(Closed(f"{self._name} is closed"))
            self._jobs.put(None)


def _work(jobs: "queue.SimpleQueue[_Job[Any] | None]") -> None:
    """Run the jobs of a queue. It has no reference to the worker, so an unused worker can be garbage-collected."""
    while (job := jobs.get()) is not None:
        job.run()
        del job  # while waiting, do not keep the last result alive
