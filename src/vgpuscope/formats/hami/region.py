"""HAMi-core's shared-memory region, by version. Little-endian, 64-bit Linux; a file is the region plus one byte.

    offset of              v0        v1 (1.1, 1.2)   v1s (v2.8.1 only, marked 1.1)
    magic            i32   0         0               0
    major, minor     u32   -         4, 8            4, 8
    device count     u64   48        56              88
    uuids       16 x 96 B  56        64              96
    memory limits 16 x u64 1592      1600            1632
    SM limits    16 x u64  1720      1728            1760
    slots      1024 x slot 1848      1856            1888
    process count    i32   1197880   2008896         2008928
    utilization switch, recent kernel, priority: i32 each, right behind
    last kernel time i64   -         2008912         2008944
    region                 1197896   2008952         2008984

    inside a slot
    pid, host pid    i32   0, 4      0, 4            0, 4
    seqlock          u64   -         1936 (1.2 on)   8
    memory records   x 16  8, 40 B   8, 64 B         16, 64 B   context, module, buffer, offset, total: u64 each
    driver's memory  u64   648       1032            1040       x 16
    utilisation      x 16  776, 24 B 1160, 48 B      1168, 48 B decoder, encoder, SM: u64 percent each
    status           i32   1160      1928            1936
    slot                   1168      1960            1960

Semaphores and owner pid are internal to HAMi and are skipped. HAMi itself accepts any size in a range and any minor
version, so it reads v1s with the offsets of v1, and a truncated v1 as v0. Here size and version must both be known.
"""

import struct
from functools import lru_cache
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.model.errors import RegionRefused
from vgpuscope.model.quantity import DeviceUUID
from vgpuscope.model.region import Region, RegionDevice, Slot, SlotDevice

MAX_DEVICES = 16
MAX_PROCESSES = 1024

_MAGIC = 19920718
_IDENTITY = struct.Struct("<iII")  # magic, and on versioned layouts major and minor
_UUID_STRIDE = 96
_UUID_LENGTH = 40  # GPU- or MIG- and 36 characters; HAMi reads no more either
_DEVICES = struct.Struct(f"<Q{MAX_DEVICES * _UUID_STRIDE}x{MAX_DEVICES}Q{MAX_DEVICES}Q")  # count, limits, SM limits
_UUIDS = 8  # offset of the uuids, after the device count
_SM_IN_UTILISATION = 16

_IDENTITIES_KEPT = 16  # sizes and versions; four exist

_IMPOSSIBLE = 1 << 63  # a counter that went below zero wraps to a value above this
_IMPOSSIBLE_SM = 100 * MAX_PROCESSES  # percent; old releases add up several processes in one slot, but never this many


class Layout(Struct, frozen=True, kw_only=True):
    """The offsets of the fields that we read, in one generation of HAMi-core."""

    name: str
    size: int
    versioned: bool
    devices: int
    slots: int
    slot_size: int
    slot: tuple[
        struct.Struct, ...
    ]  # by number of devices: pids, memory, driver's memory, SM, status; the length of a whole slot
    seqlock: int | None  # in the slot; its first byte shows whether the value is odd or even
    tail: tuple[int, int]  # offset and length
    tail_fields: struct.Struct

    def fits(self, size: int) -> bool:
        """Whether a file of this layout has that size: HAMi-core extends it by writing one byte after the region."""
        return 0 <= size - self.size <= 1

    def process_count(self, tail: bytes) -> int:
        """The process count as written, which may be invalid; 0 when the tail is cut short."""
        return int(self.tail_fields.unpack_from(tail)[0]) if len(tail) >= self.tail[1] else 0

    def head_length(self, process_count: int) -> int:
        """The length in bytes of the header and that many slots."""
        return self.slots + self.slot_size * _used_slots(process_count)


def _slot(
    *, size: int, memory: int, memory_stride: int, driver: int, sm: int, sm_stride: int, status: int
) -> tuple[struct.Struct, ...]:
    """Unpackers of one slot for 0 to 16 devices; records of unused devices are skipped."""

    def fields(devices: int) -> struct.Struct:
        code, end = "<ii", 8
        for offset, kind, length in (
            *((memory + memory_stride * d, "5Q", 40) for d in range(devices)),
            *((driver + 8 * d, "Q", 8) for d in range(devices)),
            *((sm + _SM_IN_UTILISATION + sm_stride * d, "Q", 8) for d in range(devices)),
            (status, "i", 4),
        ):
            code += f"{offset - end}x{kind}"
            end = offset + length
        return struct.Struct(f"{code}{size - end}x")

    return tuple(fields(devices) for devices in range(MAX_DEVICES + 1))


_V0_SLOT = _slot(size=1168, memory=8, memory_stride=40, driver=648, sm=776, sm_stride=24, status=1160)
_V1_SLOT = _slot(size=1960, memory=8, memory_stride=64, driver=1032, sm=1160, sm_stride=48, status=1928)
_V1S_SLOT = _slot(size=1960, memory=16, memory_stride=64, driver=1040, sm=1168, sm_stride=48, status=1936)

_V0 = Layout(
    name="v0",
    size=1197896,
    versioned=False,
    devices=48,
    slots=1848,
    slot_size=1168,
    slot=_V0_SLOT,
    seqlock=None,
    tail=(1197880, 16),
    tail_fields=struct.Struct("<4i"),
)
_V1_1 = Layout(
    name="v1",
    size=2008952,
    versioned=True,
    devices=56,
    slots=1856,
    slot_size=1960,
    slot=_V1_SLOT,
    seqlock=None,  # reserved bytes in 1.1; 1.2 uses some of them as the seqlock
    tail=(2008896, 24),
    tail_fields=struct.Struct("<4iq"),
)
_V1_2 = replace(_V1_1, seqlock=1936)
_V1S = Layout(
    name="v1s",
    size=2008984,
    versioned=True,
    devices=88,
    slots=1888,
    slot_size=1960,
    slot=_V1S_SLOT,
    seqlock=8,
    tail=(2008928, 24),
    tail_fields=struct.Struct("<4iq"),
)


def identify(size: int, head: bytes) -> Layout:
    """The layout of a file of that size with that beginning, or RegionRefused."""
    if size < _IDENTITY.size or len(head) < _IDENTITY.size:
        raise RegionRefused("too_small")
    return _identified(size, head[: _IDENTITY.size])


@lru_cache(_IDENTITIES_KEPT)
def _identified(size: int, identity: bytes) -> Layout:
    magic, major, minor = _IDENTITY.unpack(identity)
    if magic != _MAGIC:
        raise RegionRefused("bad_magic")
    if _V0.fits(size):
        return _V0
    if not _V1_1.fits(size) and not _V1S.fits(size):
        raise RegionRefused("unknown_size_or_version")
    if major != 1:
        raise RegionRefused("unknown_major")
    if _V1_1.fits(size):
        return _V1_2 if minor >= 2 else _V1_1
    if minor != 1:
        raise RegionRefused("unknown_size_or_version")
    return _V1S


class LastDecoded:
    """The last decoded values of one file: the same bytes give the same objects, without decoding again.

    The limits of a container never change. While the container is idle, its whole region does not change either.
    """

    __slots__ = ("body", "devices", "region", "table", "tail")

    def __init__(self) -> None:
        self.body = self.tail = self.table = b""
        self.region: Region | None = None
        self.devices: _Devices = (0, (), 0)


def decode(layout: Layout, head: bytes, tail: bytes, known: LastDecoded | None = None) -> Region:
    """The region that begins with head and ends with tail; RegionRefused when one of them is cut short."""
    if len(tail) < layout.tail[1]:
        raise RegionRefused("too_small")
    end = layout.head_length(layout.process_count(tail))
    if len(head) < end:
        raise RegionRefused("too_small")
    known = known or LastDecoded()
    version = _IDENTITY.unpack_from(head)[1:] if layout.versioned else None
    body = head[layout.devices : end]  # without the semaphores before it
    region = known.region
    if (
        region is None
        or (layout.name, version, tail) != (region.layout, region.version, known.tail)
        or body != known.body
    ):
        region = known.region = _region(layout, version, body, tail, known)
        known.body, known.tail = body, tail
    return region


def _region(layout: Layout, version: tuple[int, int] | None, body: bytes, tail: bytes, known: LastDecoded) -> Region:
    process_count, switch, recent_kernel, priority, *last_kernel = layout.tail_fields.unpack_from(tail)
    table = body[: _DEVICES.size]
    if table != known.table:
        known.devices, known.table = _devices(table), table
    device_count, devices, corrupt_limits = known.devices
    slots, corrupt_records, writing = _slots(layout, body, devices=len(devices))
    return Region(
        layout=layout.name,
        version=version,
        device_count=device_count,
        process_count=process_count,
        devices=devices,
        slots=slots,
        utilization_switch=switch,
        recent_kernel=recent_kernel,
        priority=priority,
        last_kernel=max((0, *last_kernel)),
        writing=writing,
        corrupt=corrupt_limits + corrupt_records,
    )


def _used_slots(process_count: int) -> int:
    return min(max(process_count, 0), MAX_PROCESSES)


_Devices: TypeAlias = tuple[int, tuple[RegionDevice, ...], int]


def _devices(table: bytes) -> _Devices:
    """The device count as written, the devices within the limit of 16, and the number of impossible limits."""
    count, *limits = _DEVICES.unpack(table)
    shown = range(min(count, MAX_DEVICES))
    devices = tuple(
        RegionDevice(
            index=d,
            uuid=_uuid(table, _UUIDS + _UUID_STRIDE * d),
            memory_limit=limits[d] if limits[d] < _IMPOSSIBLE else 0,
            sm_limit=min(limits[MAX_DEVICES + d], 100) / 100,
        )
        for d in shown
    )
    return count, devices, sum(limits[d] >= _IMPOSSIBLE for d in shown)


def _uuid(table: bytes, offset: int) -> DeviceUUID | None:
    text = table[offset : offset + _UUID_LENGTH].partition(b"\0")[0]
    try:
        return text.decode() or None
    except UnicodeDecodeError:
        return None


def _slots(layout: Layout, body: bytes, *, devices: int) -> tuple[tuple[Slot, ...], int, bool]:
    """The used slots, the number of impossible records, and whether a live slot was being written."""
    begin = layout.slots - layout.devices
    driver, sm = 2 + 5 * devices, 2 + 6 * devices
    slots, corrupt = [], 0
    for values in layout.slot[devices].iter_unpack(memoryview(body)[begin:]):
        records = []
        for d in range(devices):
            record, sound = _record(values[2 + 5 * d : 7 + 5 * d], values[driver + d], values[sm + d])
            records.append(record)
            corrupt += not sound
        slots.append(Slot(pid=values[0], host_pid=values[1], status=values[-1], devices=tuple(records)))
    if layout.seqlock is None:
        return tuple(slots), corrupt, False
    locks = body[begin + layout.seqlock :: layout.slot_size]  # the first byte of each seqlock
    writing = any(lock & 1 and slot.status != 0 for lock, slot in zip(locks, slots, strict=True))
    return tuple(slots), corrupt, writing


def _record(memory: tuple[int, ...], driver_used: int, sm: int) -> tuple[SlotDevice, bool]:
    """One slot's record of one device, and whether all its values are possible; an impossible value becomes 0."""
    sound = True
    if max(memory) >= _IMPOSSIBLE:
        memory, sound = (0, 0, 0, 0, 0), False
    if driver_used >= _IMPOSSIBLE:  # HAMi copies NVML's "not available" (all ones): unknown, not corrupt
        driver_used = 0
    if sm > _IMPOSSIBLE_SM:
        sm, sound = 0, False
    context, module, buffer, offset, total = memory
    return SlotDevice(
        context=context,
        module=module,
        buffer=buffer,
        offset=offset,
        total=total,
        driver_used=driver_used,
        sm=sm / 100,
    ), sound
