"""The clock of an event loop in the hands of a test: what waits for a time gets it at once, on any machine."""

import asyncio
from typing import Any


def forward(seconds: float) -> None:
    """Put the clock of the running loop forward: timers and deadlines that are due by then fall due now.

    Code that takes the loop's clock along has to do so after the first call, which may be of no seconds.
    """
    loop: Any = asyncio.get_running_loop()
    if not hasattr(loop, "ahead"):
        real, loop.ahead = loop.time, 0.0
        loop.time = lambda: real() + loop.ahead
    loop.ahead += seconds
