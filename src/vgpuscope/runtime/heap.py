"""Memory management of the process."""

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

_M_ARENA_MAX = -8  # M_ARENA_MAX in glibc


def one_heap() -> None:
    """Let all threads share one heap, because every heap keeps the memory it once had. Does nothing without glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Return free heap memory to the system; this takes milliseconds. Does nothing without glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@contextmanager
def without_collections() -> Iterator[None]:
    """Disable the cyclic garbage collector while many long-lived objects are created: it would scan all of them."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
