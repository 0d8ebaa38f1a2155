"""The driver's lists of processes as plain tuples.

The binding asks for the length, creates an array type for it (garbage in a cycle) and an object for each row: 3 µs per
process and sample. Here one buffer serves all calls, and rows are unpacked from it.
"""

import ctypes
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

Row = tuple[int, int | None, int, int]  # pid, bytes used or None, GPU instance, compute instance

LISTS = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
)

_INFO = struct.Struct("@IQII")  # nvmlProcessInfo_v2_t, and v3: pid, used bytes, GPU instance, compute instance
_NOT_AVAILABLE = (1 << 64) - 1
_SUCCESS, _INSUFFICIENT_SIZE, _FUNCTION_NOT_FOUND = 0, 7, 13
_ROOM = 64  # processes of one GPU; the first size of the buffer


def raw_lists(binding: Any) -> dict[str, Callable[[Any], list[Row]]]:
    """The list functions by the binding's own names; empty for a binding without a C library."""
    info = getattr(binding, "c_nvmlProcessInfo_v3_t", None)
    if info is None or not hasattr(binding, "nvmlLib") or ctypes.sizeof(info) != _INFO.size:
        return {}
    buffer = _Buffer(binding)
    symbols = {name: f"{name}_v3" for name in LISTS} | {f"{name}_v2": f"{name}_v2" for name in LISTS}
    return {name: partial(buffer.rows, symbol) for name, symbol in symbols.items()}


def as_row(process: Any) -> Row:
    """A row from an object of the binding."""
    return process.pid, process.usedGpuMemory, process.gpuInstanceId, process.computeInstanceId


class _Buffer:
    """A buffer for one list; grows when a GPU has more processes."""

    def __init__(self, binding: Any) -> None:
        self._binding = binding
        self._bytes = ctypes.create_string_buffer(_ROOM * _INFO.size)

    def rows(self, symbol: str, handle: Any) -> list[Row]:
        """One row for each process, or the binding's own error."""
        function = getattr(self._binding.nvmlLib, symbol, None)
        if function is None:
            raise self._binding.NVMLError(_FUNCTION_NOT_FOUND)
        count = ctypes.c_uint(len(self._bytes) // _INFO.size)
        while (code := function(handle, ctypes.byref(count), self._bytes)) == _INSUFFICIENT_SIZE:
            count.value = 2 * count.value + 5  # more processes may start before the next call
            self._bytes = ctypes.create_string_buffer(count.value * _INFO.size)
        if code != _SUCCESS:
            raise self._binding.NVMLError(code)
        rows = _INFO.iter_unpack(memoryview(self._bytes)[: count.value * _INFO.size])
        return [(pid, None if used == _NOT_AVAILABLE else used, gi, ci) for pid, used, gi, ci in rows]
