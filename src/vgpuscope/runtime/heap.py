"""Memory management of the process."""

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

_M_ARENA_MAX, _M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -8, -3, -1  # as glibc numbers them
_LARGE = 256 * 1024  # bytes


def one_heap() -> None:
    """Let all threads share one heap, because every heap keeps the memory it once had. Does nothing without glibc.

    Large buffers, such as those of a page, stay outside of it, so that the system has them back at once. Without a
    fixed size glibc puts them into the heap after the first one, where small objects that outlive them keep the space.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _LARGE)
        mallopt(_M_TRIM_THRESHOLD, _LARGE)


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
