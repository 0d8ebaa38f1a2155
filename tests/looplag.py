"""How long an event loop is kept from its next turn, in CPU time of its thread.

Neither a busy machine nor another thread, such as a stand-in server, makes it longer. Neither do the objects of earlier
tests: the garbage collector would go through all of them in the middle of a turn.
"""

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

_LOOK_EVERY = 0.001  # seconds
_TRIES = 3
T = TypeVar("T")


class LoopLag:
    """The longest stretch between two looks, in seconds."""

    longest = 0.0

    async def watch(self) -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(_LOOK_EVERY)  # what it measures: how late the loop comes back
            self.longest = max(self.longest, time.thread_time() - before)


@contextlib.asynccontextmanager
async def loop_lag() -> AsyncIterator[LoopLag]:
    """A probe that runs meanwhile in the current event loop."""
    lag = LoopLag()
    gc.collect()
    gc.freeze()
    watching = asyncio.create_task(lag.watch(), name="loop lag")
    try:
        yield lag
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        gc.unfreeze()


async def longest_turn(work: Callable[[], Awaitable[T]], *, below: float) -> tuple[T, float]:
    """What the work returns, and its longest turn; tried again while a turn is not below the limit.

    To its guest, a pause of a virtual machine looks like CPU time of the thread that ran. Work that is slow is slow in
    every try.
    """
    for _ in range(_TRIES):
        async with loop_lag() as lag:
            result = await work()
        if lag.longest < below:
            break
    return result, lag.longest
