"""A process: its loops start together and stop together, and it leaves in time when told to."""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from vgpuscope.model.errors import ScopeError
from vgpuscope.runtime.log import fields

log = logging.getLogger(__name__)

GRACE = 5.0  # seconds from the signal to the end, whatever hangs
DRAIN = 0.2  # seconds between saying "not ready" and closing the door

Loop = Callable[[], Awaitable[None]]


class Server(Protocol):
    """What serves while the loops run."""

    async def run(self) -> None:
        """Serve until told to stop."""

    def not_ready(self) -> None:
        """Report not ready from now on."""

    def stop(self) -> None:
        """Let run() finish."""


def main(work: Callable[["Lifecycle"], Coroutine[Any, Any, None]], *, grace: float = GRACE) -> int:
    """Run a process's main coroutine; 0 when a signal ended it, even if something stuck has to be left behind."""
    life = Lifecycle(grace=grace)
    asyncio.run(work(life))
    life.close()
    return 0


class Lifecycle:
    """From the start of a process to its end: signals, loops, the server, and a deadline for leaving."""

    def __init__(self, *, grace: float = GRACE, leave: Callable[[int], object] = os._exit) -> None:
        self._stop = asyncio.Event()
        self._leave = leave
        self._deadline = threading.Timer(grace, leave, (0,))
        self._deadline.daemon = True

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        """What a signal does, but without the deadline."""
        self._stop.set()

    async def run(self, loops: Mapping[str, Loop], *, server: Server | None = None) -> None:
        """Run named loops and a server until told to stop.

        A loop that raises or returns takes the others down with it, and its error comes out here: a restart that
        everyone can see is better than a process that half works.
        """
        try:
            async with asyncio.TaskGroup() as group:
                with self._signals():
                    await self._together(group, loops, server)
        except BaseExceptionGroup as errors:
            raise _first(errors) from None

    def close(self) -> None:
        """Call the deadline off, unless a thread that nobody can end would keep the process."""
        if all(t.daemon or t is threading.current_thread() for t in threading.enumerate()):
            self._deadline.cancel()

    async def _together(self, group: asyncio.TaskGroup, loops: Mapping[str, Loop], server: Server | None) -> None:
        tasks = [group.create_task(_eternal(name, loop), name=name) for name, loop in loops.items()]
        serving = group.create_task(server.run(), name="http") if server else None
        try:
            await self._stop.wait()
            if server and serving:
                server.not_ready()
                await asyncio.sleep(DRAIN)
                server.stop()
                await serving
        finally:
            for task in tasks:
                task.cancel()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        in_main = threading.current_thread() is threading.main_thread()  # elsewhere Python knows no signals
        caught = (signal.SIGTERM, signal.SIGINT) if in_main else ()
        for sig in caught:
            loop.add_signal_handler(sig, self._told, sig)
        try:
            yield
        finally:
            for sig in caught:
                loop.remove_signal_handler(sig)

    def _told(self, sig: signal.Signals) -> None:
        if self.stopping:
            self._leave(0)  # told twice: at once
            return
        log.info("stopping", extra=fields(signal=sig.name))
        self._deadline.start()
        self._stop.set()


async def _eternal(name: str, loop: Loop) -> None:
    await loop()
    raise RuntimeError(f"{name} came to an end, which it never should")


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that a user should see: one of ours before any other."""
    ours, others = errors.split(ScopeError)
    found: BaseException = ours or others or errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
