"""One thread that runs one job after the other, so that the event loop never waits for a database."""

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from vgpuscope.model.errors import HistoryDown
from vgpuscope.model.quantity import Seconds

T = TypeVar("T")


class Worker:
    """A daemon thread: if it hangs in a driver, it still ends with the process."""

    def __init__(self, name: str, *, most_waiting: int) -> None:
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._most_waiting = most_waiting
        self._closed = False
        threading.Thread(target=self._work, name=name, daemon=True).start()

    async def do(self, job: Callable[[], T], *, deadline: Seconds) -> T:
        """The result of the job; TimeoutError after the deadline, and a job still in the queue never runs."""
        if self._closed:
            raise HistoryDown("the store is closed")
        if self._jobs.qsize() >= self._most_waiting:
            raise HistoryDown(f"{self._most_waiting} calls to the store are waiting; this one was rejected")
        future: Future[T] = Future()
        self._jobs.put((future, job))
        return await asyncio.wait_for(asyncio.wrap_future(future), deadline)

    def close(self) -> None:
        self._closed = True
        self._jobs.put(None)

    def _work(self) -> None:
        while (task := self._jobs.get()) is not None:
            future, job = task
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(job())
                except BaseException as e:  # every exception is passed to the caller
                    future.set_exception(e)
            del task, future, job  # do not keep a job's objects alive while waiting for the next job
