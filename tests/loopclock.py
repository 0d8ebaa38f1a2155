"""The clock of an event loop in the hands of a test: what waits for a time gets it at once, on any machine."""

import asyncio


def forward(seconds: float) -> None:
    """Put the clock of the running loop forward: timers and deadlines that are due by then fall due now."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds
