"""What work costs, told so that a limit means the same on every machine."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_YARDSTICK = 0.02  # seconds of CPU that _count takes on the machine that the limits were written for


def seconds(work: Callable[[], object]) -> float:
    """CPU time of the quickest of three runs; on a slower machine, what it would be on that of the limits.

    The quickest: others share the machine, and a collection of garbage may fall into any run.
    """
    with untraced():
        return _quickest(work) / max(1.0, _quickest(_count) / _YARDSTICK)


@contextmanager
def untraced() -> Iterator[None]:
    """What is measured is the work and not the tracer of `make coverage`, which makes it several times as long."""
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)


def _quickest(work: Callable[[], object]) -> float:
    took = []
    for _ in range(3):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return min(took)


def _count() -> dict[int, int]:
    return {number: number * number for number in range(200_000)}
