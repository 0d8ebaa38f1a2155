"""Writes HAMi-core's shared-memory regions in place, as the library inside a container does.

All numbers are little-endian. A file is sparse, and one byte longer than its region. There are three layouts: v0
without a version, that of 1.1 and 1.2, and the shifted one of HAMi v2.8.1, whose version is still 1.1.
"""

import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

MAGIC = 19920718
DEVICES = 16
SLOTS = 1024
UUID_BYTES = 96
EXITED, RUNNING = 0, 1
BLOCKED = -1
_SEMAPHORE = struct.pack("<QI", 1, 0x80).ljust(32, b"\0")  # glibc: value 1, shared between processes


class WrittenLayout(NamedTuple):
    """Offsets of the fields in one layout of the region."""

    size: int
    version: tuple[int, int] | None
    semaphores: tuple[int, ...]
    device_count: int
    uuids: int
    memory_limits: int
    sm_limits: int
    slots: int
    tail: int  # process count, utilisation switch, recent kernel, priority: four int32 in a row
    last_kernel: int | None
    slot_size: int
    used: int
    used_size: int
    monitor_used: int
    utilization: int
    utilization_size: int
    status: int
    sequence: int | None  # the slot's lock-free counter: even while no write is in progress
    keeps_exited: bool  # an ended process leaves its slot behind, marked as exited


_V1 = WrittenLayout(
    size=2008952,
    version=(1, 2),
    semaphores=(24, 2008920),
    device_count=56,
    uuids=64,
    memory_limits=1600,
    sm_limits=1728,
    slots=1856,
    tail=2008896,
    last_kernel=2008912,
    slot_size=1960,
    used=8,
    used_size=64,
    monitor_used=1032,
    utilization=1160,
    utilization_size=48,
    status=1928,
    sequence=1936,
    keeps_exited=True,
)

LAYOUTS: dict[str, WrittenLayout] = {
    "v1.2": _V1,
    "v1.1": _V1._replace(version=(1, 1), semaphores=(24,), sequence=None, keeps_exited=False),
    "v1s": WrittenLayout(
        size=2008984,
        version=(1, 1),
        semaphores=(24, 56),
        device_count=88,
        uuids=96,
        memory_limits=1632,
        sm_limits=1760,
        slots=1888,
        tail=2008928,
        last_kernel=2008944,
        slot_size=1960,
        used=16,
        used_size=64,
        monitor_used=1040,
        utilization=1168,
        utilization_size=48,
        status=1936,
        sequence=8,
        keeps_exited=True,
    ),
    "v0": WrittenLayout(
        size=1197896,
        version=None,
        semaphores=(16,),
        device_count=48,
        uuids=56,
        memory_limits=1592,
        sm_limits=1720,
        slots=1848,
        tail=1197880,
        last_kernel=None,
        slot_size=1168,
        used=8,
        used_size=40,
        monitor_used=648,
        utilization=776,
        utilization_size=24,
        status=1160,
        sequence=None,
        keeps_exited=False,
    ),
}


class DeviceUse(NamedTuple):
    """What one process uses of one device, in bytes and percent."""

    context: int
    data: int
    driver_used: int
    sm: int


@dataclass
class _Slot:
    pid: int
    host_pid: int = 0
    status: int = RUNNING
    sequence: int = 0
    devices: list[DeviceUse] = field(default_factory=list)


class RegionFile:
    """One container's region: created once, then changed in place."""

    def __init__(
        self,
        path: Path,
        *,
        layout: str,
        uuids: list[str],
        memory_limits: list[int],
        sm_limit: int = 100,
        priority: int = 1,
        now: float,
    ) -> None:
        self.path = path
        self._at = LAYOUTS[layout]
        self._slots: list[_Slot] = []
        self._switch, self._recent, self._priority = 1, 2, priority
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        os.pwrite(self._fd, b"\0", self._at.size)
        self._write_header(uuids=uuids, memory_limits=memory_limits, sm_limit=sm_limit)
        self._write_tail()
        self.kernel(now)
        os.pwrite(self._fd, struct.pack("<i", MAGIC), 0)  # written last: a reader that sees it can read the rest

    def attach(self, pid: int, *, now: float, alive: set[int]) -> None:
        """Gives a new process a slot; like the library, first clears the slots of dead processes."""
        for slot in [s for s in self._slots if s.status == EXITED or s.pid not in alive]:
            self._remove(slot)
        self._slots.append(_Slot(pid))
        self._write_slot(len(self._slots) - 1)
        self._write_tail()
        self.kernel(now)

    def update(self, pid: int, *, host_pid: int, devices: list[DeviceUse]) -> None:
        """Writes what a process currently uses."""
        index, slot = self._find(pid)
        slot.host_pid, slot.devices = host_pid, devices
        slot.sequence += 2
        self._write_slot(index)

    def exit(self, pid: int) -> None:
        """Removes or marks the slot of a process that exits normally."""
        index, slot = self._find(pid)
        if self._at.keeps_exited:
            slot.pid, slot.status = 0, EXITED
            self._write_slot(index)
        else:
            self._remove(slot)
            self._write_tail()

    def flicker(self) -> None:
        """Shows the moment in which the watcher has zeroed the values and not yet written new ones."""
        for index, slot in enumerate(self._slots):
            slot.devices = [use._replace(driver_used=0, sm=0) for use in slot.devices]
            self._write_slot(index)

    def kernel(self, now: float) -> None:
        """Records a kernel launch; the time never decreases."""
        if self._at.last_kernel is not None:
            os.pwrite(self._fd, struct.pack("<Q", int(now)), self._at.last_kernel)

    def feedback(self, *, blocked: bool, enforced: bool, active: bool) -> None:
        """Writes the feedback of HAMi's monitor: blocked by a higher priority, and whether the SM limit is enforced."""
        state = (int(enforced), BLOCKED if blocked else 2 if active else 0)
        if state != (self._switch, self._recent):
            self._switch, self._recent = state
            self._write_tail()

    def close(self) -> None:
        """Closes the file; it stays on disk."""
        os.close(self._fd)

    def _find(self, pid: int) -> tuple[int, _Slot]:
        for index, slot in enumerate(self._slots):
            if slot.pid == pid:
                return index, slot
        raise LookupError(f"no slot of pid {pid} in {self.path}")

    def _remove(self, slot: _Slot) -> None:
        # The last slot moves to the place of the removed one; its old bytes stay where they were, as in the library.
        index, last = self._slots.index(slot), self._slots.pop()
        if index < len(self._slots):
            self._slots[index] = last
            self._write_slot(index)

    def _write_header(self, *, uuids: list[str], memory_limits: list[int], sm_limit: int) -> None:
        at = self._at
        if at.version:
            os.pwrite(self._fd, struct.pack("<II", *at.version), 4)
        for offset in at.semaphores:
            os.pwrite(self._fd, _SEMAPHORE, offset)
        os.pwrite(self._fd, struct.pack("<Q", len(uuids)), at.device_count)
        os.pwrite(self._fd, b"".join(u.encode().ljust(UUID_BYTES, b"\0") for u in uuids), at.uuids)
        limits = memory_limits + [0] * (DEVICES - len(memory_limits))
        os.pwrite(self._fd, struct.pack("<16Q", *limits), at.memory_limits)
        os.pwrite(self._fd, struct.pack("<16Q", *[sm_limit] * DEVICES), at.sm_limits)

    def _write_tail(self) -> None:
        tail = struct.pack("<iiii", len(self._slots), self._switch, self._recent, self._priority)
        os.pwrite(self._fd, tail, self._at.tail)

    def _write_slot(self, index: int) -> None:
        os.pwrite(self._fd, self._pack(self._slots[index]), self._at.slots + index * self._at.slot_size)

    def _pack(self, slot: _Slot) -> bytes:
        at, buffer = self._at, bytearray(self._at.slot_size)
        struct.pack_into("<ii", buffer, 0, slot.pid, slot.host_pid)
        struct.pack_into("<i", buffer, at.status, slot.status)
        if at.sequence is not None:
            struct.pack_into("<Q", buffer, at.sequence, slot.sequence)
        for d, use in enumerate(slot.devices):
            memory = (use.context, 0, use.data, 0, use.context + use.data)  # module size and offset: never written
            struct.pack_into("<5Q", buffer, at.used + d * at.used_size, *memory)
            struct.pack_into("<Q", buffer, at.monitor_used + d * 8, use.driver_used)
            struct.pack_into("<QQQ", buffer, at.utilization + d * at.utilization_size, 0, 0, use.sm)
        return bytes(buffer)
