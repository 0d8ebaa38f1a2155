"""A process: its loops start and stop together, and after a signal it ends within a deadline."""

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from msgspec import Struct

from vgpuscope.model.errors import ScopeError
from vgpuscope.model.quantity import Seconds
from vgpuscope.runtime.backoff import RESTART, BackOff
from vgpuscope.runtime.log import error_fields, fields

log = logging.getLogger(__name__)

GRACE = 5.0  # seconds from the signal to the end, even if something hangs
DRAIN = 0.2  # seconds between reporting "not ready" and closing the listener

Loop = Callable[[], Awaitable[None]]
Died = Callable[[str, ScopeError], None]


class Restartable(Struct, frozen=True):
    """A loop that is restarted when it dies: all of its state is outside of it.

    Any other loop that dies ends the process.
    """

    run: Loop


Loops = Mapping[str, Loop | Restartable]


class RunningServer(Protocol):
    """The server that runs while the loops run."""

    async def run(self) -> None:
        """Serve until stop() is called."""

    def not_ready(self) -> None:
        """Report not ready from now on."""

    def stop(self) -> None:
        """Let run() finish."""


def main(work: Callable[["Lifecycle"], Coroutine[Any, Any, None]], *, grace: float = GRACE) -> int:
    """Run a process's main coroutine; 0 when a signal ended it, even if a stuck thread has to be abandoned."""
    life = Lifecycle(grace=grace, whole_process=True)
    try:
        asyncio.run(work(life))
    finally:
        life.close()
    return 0


class Lifecycle:
    """From the start of a process to its end: signals, loops, the server, and a deadline for ending."""

    def __init__(
        self,
        *,
        grace: float = GRACE,
        drain: Seconds = DRAIN,
        whole_process: bool = False,
        signals: Collection[signal.Signals] = (signal.SIGTERM, signal.SIGINT),
        leave: Callable[[int], object] = os._exit,
        sleep: Callable[[Seconds], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        """`signals` end the process, at the latest after `grace`. `drain` is the time between "not ready" and closing
        the listener. With `whole_process`, the process also ends after `grace` if an error is the reason and something
        hangs. `sleep` and `clock` time the back-off of loops that are restarted.
        """
        self._stop = asyncio.Event()
        self._caught = tuple(signals)
        self._leave, self._sleep, self._clock = leave, sleep, clock
        self._grace, self._drain, self._whole_process = grace, drain, whole_process
        self._deadline: threading.Timer | None = None
        self._waiting: set[str] = set()

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    @property
    def waiting(self) -> tuple[str, ...]:
        """Loops that died and have not been restarted yet."""
        return tuple(sorted(self._waiting))

    def stop(self) -> None:
        """Stop like a signal does, but without the deadline."""
        self._stop.set()

    async def run(self, loops: Loops, *, server: RunningServer | None = None, died: Died = lambda _, __: None) -> None:
        """Run named loops and a server until stopped; `died` is called for each loop that dies.

        A loop never ends normally. A loop that raises, returns or is cancelled by other code has died, which is logged
        with its name. A restartable loop is restarted after a pause. Any other loop takes the rest down with it, and
        its error is raised here: a visible restart is better than a process that half works.
        """
        try:
            async with asyncio.TaskGroup() as group:
                with self._signals():
                    await self._together(group, loops, server, died)
        except BaseExceptionGroup as errors:
            if self._whole_process:
                self._end_within_grace(1)
            raise _first(errors) from None

    def close(self) -> None:
        """Cancel the deadline, unless a thread that cannot be ended would keep the process alive."""
        if self._deadline and all(t.daemon or t is threading.current_thread() for t in threading.enumerate()):
            self._deadline.cancel()

    def _end_within_grace(self, code: int) -> None:
        if self._deadline is None:
            self._deadline = threading.Timer(self._grace, self._leave, (code,))
            self._deadline.daemon = True
            self._deadline.start()

    async def _together(self, group: asyncio.TaskGroup, loops: Loops, server: RunningServer | None, died: Died) -> None:
        tasks = [group.create_task(self._live(name, loop, died), name=name) for name, loop in loops.items()]
        serving = group.create_task(self._serve(server, died), name="http") if server else None
        try:
            await self._stop.wait()
            if server and serving:
                server.not_ready()
                await asyncio.sleep(self._drain)
                server.stop()
                await serving
        finally:
            for task in tasks:
                task.cancel()

    async def _live(self, name: str, loop: Loop | Restartable, died: Died) -> None:
        if isinstance(loop, Restartable):
            await self._restarted(name, loop.run, died)
        else:
            with _seen(name, died):
                await _eternal(name, loop)

    async def _restarted(self, name: str, loop: Loop, died: Died) -> None:
        """Restart a loop whenever it dies; the pause doubles with each death, unless the loop ran for long before."""
        back_off = BackOff(RESTART, self._clock)
        while True:
            back_off.begin()
            with suppress(Exception), _seen(name, died):
                await _eternal(name, loop)
            await self._rest(name, back_off.pause())

    async def _rest(self, name: str, pause: Seconds) -> None:
        log.warning("loop is started again after a pause", extra=fields(loop=name, seconds=pause))
        self._waiting.add(name)
        try:
            await self._sleep(pause)
        finally:
            self._waiting.discard(name)

    async def _serve(self, server: RunningServer, died: Died) -> None:
        """Run the server; it may end, but not before the process is stopping."""
        with _seen("http", died):
            await server.run()
            if not self.stopping:
                raise RuntimeError("http came to an end, which it never should")

    @contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        in_main = threading.current_thread() is threading.main_thread()  # Python handles signals only there
        caught = self._caught if in_main else ()
        for sig in caught:
            loop.add_signal_handler(sig, self._told, sig)
        try:
            yield
        finally:
            for sig in caught:
                loop.remove_signal_handler(sig)

    def _told(self, sig: signal.Signals) -> None:
        if self.stopping:
            self._leave(0)  # second signal: exit immediately
            return
        log.info("stopping", extra=fields(signal=sig.name))
        self._end_within_grace(0)
        self._stop.set()


@contextmanager
def _seen(name: str, died: Died) -> Iterator[None]:
    """Log and count the error that ends a loop, and re-raise it."""
    try:
        yield
    except asyncio.CancelledError:
        raise  # the process is ending
    except BaseException as e:
        error = e if isinstance(e, ScopeError) else ScopeError(f"{name}: {e!r}")
        where = None if error is e else e  # a ScopeError needs no traceback
        log.log(logging.ERROR, "loop died", extra=fields(loop=name, **error_fields(error)), exc_info=where)
        died(name, error)
        raise


async def _eternal(name: str, loop: Loop) -> None:
    """Run a loop that never ends; every end that is not ours is an error.

    The loop has a task of its own: code in it can cancel that task, but not the one that watches it.
    """
    task = asyncio.create_task(_awaited(loop), name=name)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error from None
        raise
    if task.cancelled():
        raise RuntimeError(f"{name} was cancelled from inside, which it never should be")
    raise task.exception() or RuntimeError(f"{name} came to an end, which it never should")


async def _awaited(loop: Loop) -> None:
    await loop()


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that a user should see: a ScopeError before any other."""
    ours, others = errors.split(ScopeError)
    found: BaseException = ours or others or errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
