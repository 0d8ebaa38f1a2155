"""How the process keeps its memory."""

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

_M_ARENA_MAX = -8  # glibc's number for it


def one_heap() -> None:
    """Let threads that take turns share one heap: every heap keeps what it once held. Nothing, without glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Return to the system what is free in the heap; it takes milliseconds. Nothing, without glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@contextmanager
def without_collections() -> Iterator[None]:
    """No search for garbage in cycles while much is made that will stay, and of which all would be looked at."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
