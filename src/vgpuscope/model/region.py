"""The content of HAMi's shared-memory region of one container."""

from msgspec import Struct

from vgpuscope.model.quantity import Bytes, DeviceUUID, Pid, PodUID, Ratio


class SlotDevice(Struct, frozen=True, kw_only=True):
    """What one process slot records of one device."""

    context: Bytes
    module: Bytes
    buffer: Bytes
    offset: Bytes
    total: Bytes
    driver_used: Bytes  # as NVML reports it for the host pid; 0 while the host pid is unknown
    sm: Ratio


class Slot(Struct, frozen=True, kw_only=True):
    """One process slot in use."""

    pid: Pid  # inside the container
    host_pid: Pid  # 0: not known yet
    status: int  # 0 exited, 1 running, 2 suspended
    devices: tuple[SlotDevice, ...]  # by device index, as long as Region.devices


class RegionDevice(Struct, frozen=True, kw_only=True):
    """One device slot of a region."""

    index: int
    uuid: DeviceUUID | None  # None: not written yet, or not text
    memory_limit: Bytes  # 0: unlimited
    sm_limit: Ratio  # 1.0: unlimited


class Region(Struct, frozen=True, kw_only=True):
    """One decoded region. Slots beyond the process count are never read; exited processes stay listed with status 0."""

    layout: str  # "v0", "v1", "v1s"
    version: tuple[int, int] | None
    device_count: int  # as written, before the limit of 16
    process_count: int  # as written, before the limits 0 and 1024
    devices: tuple[RegionDevice, ...]
    slots: tuple[Slot, ...]
    utilization_switch: int
    recent_kernel: int  # -1: blocked by a container of higher priority
    priority: int  # 0 high, 1 low
    last_kernel: int  # unix seconds; 0: not recorded
    writing: bool = False  # a slot was being written while we read
    corrupt: int = 0  # records with impossible numbers (a counter that went below zero); those numbers become 0

    def live_slots(self) -> tuple[Slot, ...]:
        """The slots whose process has not exited."""
        for slot in self.slots:
            if slot.status == 0:
                return tuple(slot for slot in self.slots if slot.status != 0)
        return self.slots  # the usual case; called several times per sample


class ContainerRegion(Struct, frozen=True, kw_only=True):
    """A region with the container that its directory names."""

    pod_uid: PodUID
    container: str
    region: Region | None  # None: the directory exists, but no region has been written yet
    path: str | None = None  # of the region's file


class RejectedRegion(Struct, frozen=True, kw_only=True):
    """A region file, or its directory, that was rejected, and why."""

    path: str
    reason: str


class RegionReading(Struct, frozen=True, kw_only=True):
    """All regions of a node in one sample."""

    containers: tuple[ContainerRegion, ...] = ()
    refusals: tuple[RejectedRegion, ...] = ()
