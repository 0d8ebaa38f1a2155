"""Changes of a directory, by inotify: nothing is polled while nothing happens.

Python's standard library has no inotify. Four calls of the C library are all that is needed.
"""

import asyncio
import ctypes
import os
from contextlib import suppress

from vgpuscope.model.quantity import Seconds

_CREATE, _DELETE, _MOVED, _GONE = 0x100, 0x200, 0xC0, 0xC00  # IN_*; gone: the directory itself was deleted or moved
_MASK = _CREATE | _DELETE | _MOVED | _GONE
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_EVENTS = 65536  # bytes read at once; the content does not matter


class DirectoryWatch:
    """Wakes who waits when an entry of the directory appears, disappears or is renamed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file: int | None = None
        self._changed = asyncio.Event()

    async def wait(self, most: Seconds) -> None:
        """Return after a change since the last call, or after that time: the directory itself may come and go."""
        self._open()
        with suppress(TimeoutError):
            async with asyncio.timeout(most):
                await self._changed.wait()
        self._changed.clear()

    def close(self) -> None:
        """Stop watching."""
        if self._file is not None:
            asyncio.get_running_loop().remove_reader(self._file)
            os.close(self._file)
            self._file = None

    def _open(self) -> None:
        if self._file is not None:
            return
        file = self._libc.inotify_init1(_FLAGS)
        if file < 0:  # the limit of watches is reached: the caller's time remains
            return
        if self._libc.inotify_add_watch(file, os.fsencode(self._path), _MASK) < 0:
            os.close(file)
            return
        self._file = file
        asyncio.get_running_loop().add_reader(file, self._read)
        self._changed.set()  # something may have changed before the watch was there

    def _read(self) -> None:
        assert self._file is not None
        with suppress(BlockingIOError):
            os.read(self._file, _EVENTS)
        self._changed.set()
        if not os.path.isdir(self._path):  # the next wait watches its successor
            self.close()
