"""Corrects two wrong values in a region: zeros while HAMi's watcher refills it, and slots of killed processes."""

from collections.abc import Collection, Mapping, Sequence
from operator import is_, is_not
from typing import TypeAlias

from msgspec import Struct, structs

from vgpuscope.model.device import Gpu
from vgpuscope.model.pod import ProcessOwner
from vgpuscope.model.quantity import DeviceUUID, Pid, PodUID, Ratio
from vgpuscope.model.region import ContainerRegion, Region, Slot, SlotDevice

# The watcher thread of every process zeroes all slots about eight times a second and refills them after its driver
# calls. Samples are taken once a second, so several in a row can see the zeros: their number proves nothing. The
# driver's own sample of the process decides. If the driver shows no work either, this many zeros are still replaced by
# the last value, because the driver's samples come at different times.
PATIENCE = 2

ContainerName: TypeAlias = tuple[PodUID, str]
SlotKey: TypeAlias = tuple[PodUID, str, Pid, Pid, int]
DriverSm: TypeAlias = Mapping[tuple[DeviceUUID, Pid], Ratio]


class RegionHistory(Struct, frozen=True):
    """The corrected values of the last sample."""

    regions: Mapping[ContainerName, Region] = {}  # after the corrections
    zeros: Mapping[SlotKey, int] = {}  # by process and device: consecutive samples that showed 0


class Repaired(Struct, frozen=True, kw_only=True):
    """Regions after the corrections, with the number of corrections of each kind."""

    containers: tuple[ContainerRegion, ...]
    history: RegionHistory
    false_zeros: int = 0
    dead_processes: int = 0


def host_pids(containers: Collection[ContainerRegion]) -> set[Pid]:
    """All host pids that regions record for processes that have not exited."""
    return {
        slot.host_pid
        for container in containers
        if container.region
        for slot in container.region.live_slots()
        if slot.host_pid > 0
    }


def driver_sm(gpus: Collection[Gpu]) -> DriverSm:
    """The driver's SM value of each process on each GPU; processes without a value are omitted."""
    return {(gpu.uuid, p.pid): p.sm for gpu in gpus for p in gpu.processes or () if p.sm is not None}


def repair(
    containers: Collection[ContainerRegion],
    *,
    history: RegionHistory,
    owners: Mapping[Pid, ProcessOwner] | None,
    driver_pids: Collection[Pid],
    driver_sm: DriverSm,
) -> Repaired:
    """The regions without dead processes, and with false zeros replaced by the driver's value or the last value.

    A process is judged dead only if host pids are visible at all: some recorded host pid, or one of the driver's, must
    be among the owners. Otherwise no process is removed.
    """
    known = owners or {}
    sees = not known.keys().isdisjoint(driver_pids) or not known.keys().isdisjoint(host_pids(containers))
    bridge = _Bridge(history, driver_sm)
    out: list[ContainerRegion] = []
    zeros = dead = 0
    for container in containers:
        region = container.region
        if region is None:
            out.append(container)
            continue
        living = [slot for slot in region.slots if not (sees and slot.status and _is_dead(slot, container, known))]
        dead += len(region.slots) - len(living)
        slots = bridge.mended(container, region, living)
        zeros += sum(map(is_not, slots, living))
        out.append(_with_slots(container, region, slots))
    regions = {(one.pod_uid, one.container): one.region for one in out if one.region is not None}
    return Repaired(
        containers=tuple(out),
        history=RegionHistory(regions, bridge.zeros),
        false_zeros=zeros,
        dead_processes=dead,
    )


def _is_dead(slot: Slot, container: ContainerRegion, owners: Mapping[Pid, ProcessOwner]) -> bool:
    """Whether the slot's host pid is gone, or now belongs to another pod."""
    if slot.host_pid <= 0:
        return False
    owner = owners.get(slot.host_pid)
    return owner is None or not owner.is_in(container.pod_uid)


def slot_key(container: ContainerRegion, slot: Slot, index: int) -> SlotKey:
    """The key of one process on one device."""
    return (container.pod_uid, container.container, slot.pid, slot.host_pid, index)


class _Bridge:
    """Replaces false zeros. Most processes show work, and for those nothing is looked up or stored."""

    def __init__(self, history: RegionHistory, driver_sm: DriverSm) -> None:
        self._history = history
        self._driver_sm = driver_sm
        self.zeros: dict[SlotKey, int] = {}

    def mended(self, container: ContainerRegion, region: Region, slots: Sequence[Slot]) -> tuple[Slot, ...]:
        """The slots with false zeros replaced."""
        if not any(map(_shows_zero, slots)):
            return tuple(slots)
        before = self._history.regions.get((container.pod_uid, container.container))
        was = {(slot.pid, slot.host_pid): slot for slot in before.live_slots()} if before else {}
        return tuple(
            self._slot(container, region, slot, was.get((slot.pid, slot.host_pid))) if _shows_zero(slot) else slot
            for slot in slots
        )

    def _slot(self, container: ContainerRegion, region: Region, slot: Slot, was: Slot | None) -> Slot:
        devices = list(slot.devices)
        for index, use in enumerate(slot.devices):
            if use.sm == 0:
                told = self._driver_sm.get((region.devices[index].uuid or "", slot.host_pid))
                before = was.devices[index] if was and index < len(was.devices) else None
                devices[index] = self._use(slot_key(container, slot, index), use, before, told)
        return slot if tuple(devices) == slot.devices else structs.replace(slot, devices=tuple(devices))

    def _use(self, key: SlotKey, use: SlotDevice, before: SlotDevice | None, told: Ratio | None) -> SlotDevice:
        """The use of a device by a process that shows 0: the driver's value, or for a few samples the last value."""
        if told:
            return _as(use, told, before)
        zeros = self.zeros[key] = self._history.zeros.get(key, 0) + 1
        if before is not None and before.sm > 0 and zeros <= PATIENCE:
            return _as(use, before.sm, before)
        return use


def shows_zero(region: Region | None) -> bool:
    """Whether a running process of the region shows 0 on a device."""
    return region is not None and any(map(_shows_zero, region.slots))


def _shows_zero(slot: Slot) -> bool:
    """Whether a running process shows 0 on a device. The watcher fills a slot only once it knows the host pid."""
    if slot.status == 0 or slot.host_pid <= 0:
        return False
    for use in slot.devices:  # noqa: SIM110 - nearly all have one device, for which a generator takes longer
        if use.sm == 0:
            return True
    return False


def _as(use: SlotDevice, sm: Ratio, before: SlotDevice | None) -> SlotDevice:
    return structs.replace(use, sm=sm, driver_used=use.driver_used or (before.driver_used if before else 0))


def _with_slots(container: ContainerRegion, region: Region, slots: tuple[Slot, ...]) -> ContainerRegion:
    if len(slots) == len(region.slots) and all(map(is_, slots, region.slots)):
        return container
    return structs.replace(container, region=structs.replace(region, slots=slots))
