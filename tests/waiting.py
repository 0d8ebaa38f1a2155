"""Waiting for the state that a test asserts, with a deadline. Pauses of tests are here, between two looks.

What cannot wait this way says why in a comment beside its pause; tests/repo/test_habits.py holds that.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

WITHIN = 180.0  # seconds: how long a condition may take on a busy machine; an API server sends bookmarks once a minute


async def until(condition: Any, *, within: float = WITHIN) -> Any:
    """What the condition returns, as soon as it is true; it may be a coroutine function."""
    async with asyncio.timeout(within):
        while True:
            value = condition()
            if asyncio.iscoroutine(value):
                value = await value
            if value:
                return value
            await asyncio.sleep(0.01)


def wait_until(
    condition: Callable[[], Any], *, within: float = WITHIN, every: float = 0.02, why: Callable[[], str] = str
) -> Any:
    """The same without an event loop. `why` says what is wrong if it does not come true."""
    end = time.monotonic() + within
    while not (value := condition()):
        assert time.monotonic() < end, f"did not come true in {within:g} s\n{why()}"
        time.sleep(every)
    return value
