"""Two things a region says that are not so, put right: zeros while its watcher refills it, and killed processes."""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct, structs

from vgpuscope.model.device import Gpu
from vgpuscope.model.pod import ProcessOwner
from vgpuscope.model.quantity import DeviceUUID, Pid, PodUID, Ratio
from vgpuscope.model.region import ContainerRegion, Region, Slot, SlotDevice

# The watcher thread of every process zeroes all slots about eight times a second and refills them after its driver
# calls. Samples are taken once a second, so they can meet the zeros again and again: how many follow one another says
# nothing. The driver's own sample of the process decides. Where it shows no work either, this many zeros are still
# bridged, because the driver's samples come at times of their own.
PATIENCE = 2

SlotKey: TypeAlias = tuple[PodUID, str, Pid, Pid, int]
DriverSm: TypeAlias = Mapping[tuple[DeviceUUID, Pid], Ratio]


class Held(Struct, frozen=True):
    """The last non-zero reading of one process on one device, and how many samples in a row have shown 0 since."""

    sm: float
    driver_used: int
    zeros: int


History: TypeAlias = dict[SlotKey, Held]


class Repaired(Struct, frozen=True, kw_only=True):
    """Regions after the corrections, with how many of each were made."""

    containers: tuple[ContainerRegion, ...]
    history: History
    false_zeros: int = 0
    dead_processes: int = 0


def host_pids(containers: Collection[ContainerRegion]) -> set[Pid]:
    """All host pids that regions record for processes that have not said goodbye."""
    return {
        slot.host_pid
        for container in containers
        if container.region
        for slot in container.region.live_slots()
        if slot.host_pid > 0
    }


def driver_sm(gpus: Collection[Gpu]) -> DriverSm:
    """What the driver itself says of each process on each GPU; without those of which it says nothing."""
    return {(gpu.uuid, p.pid): p.sm for gpu in gpus for p in gpu.processes or () if p.sm is not None}


def repair(
    containers: Collection[ContainerRegion],
    *,
    history: History,
    owners: Mapping[Pid, ProcessOwner] | None,
    driver_pids: Collection[Pid],
    driver_sm: DriverSm,
) -> Repaired:
    """The regions with dead processes left out and false zeros replaced: by what the driver says, or said before.

    A process counts as dead only where host pids can be seen at all: some recorded host pid, or one of the driver's,
    must be among the owners. Otherwise the region is taken at its word.
    """
    recorded = host_pids(containers)
    sees = owners is not None and any(pid in owners for pid in (*recorded, *driver_pids))
    known: History = {}
    out: list[ContainerRegion] = []
    zeros = dead = 0
    for container in containers:
        if container.region is None:
            out.append(container)
            continue
        slots: list[Slot] = []
        for slot in container.region.slots:
            if slot.status != 0 and sees and _is_dead(slot, container.pod_uid, owners or {}):
                dead += 1
                continue
            told = [driver_sm.get((device.uuid or "", slot.host_pid)) for device in container.region.devices]
            mended = _bridge(slot, container, history, known, told)
            zeros += mended is not slot
            slots.append(mended)
        out.append(_with_slots(container, container.region, tuple(slots)))
    return Repaired(containers=tuple(out), history=known, false_zeros=zeros, dead_processes=dead)


def _is_dead(slot: Slot, pod_uid: PodUID, owners: Mapping[Pid, ProcessOwner]) -> bool:
    """Its host pid is gone, or belongs to another pod by now."""
    if slot.host_pid <= 0:
        return False
    owner = owners.get(slot.host_pid)
    return owner is None or (owner.pod_uid is not None and owner.pod_uid != pod_uid)


def slot_key(container: ContainerRegion, slot: Slot, index: int) -> SlotKey:
    """What one process on one device is remembered by."""
    return (container.pod_uid, container.container, slot.pid, slot.host_pid, index)


def _bridge(
    slot: Slot, container: ContainerRegion, history: History, known: History, told: Sequence[Ratio | None]
) -> Slot:
    """The slot with false zeros replaced by what the driver told of each device; notes in known what it shows."""
    if slot.status == 0 or slot.host_pid <= 0:
        return slot  # the watcher fills nothing in before it knows the host pid
    mended: dict[int, SlotDevice] = {}
    for index, device in enumerate(slot.devices):
        key = slot_key(container, slot, index)
        held = known[key] = _held(device, history.get(key), told[index])
        if held.sm != device.sm:
            used = device.driver_used or held.driver_used
            mended[index] = structs.replace(device, sm=held.sm, driver_used=used)
    if not mended:
        return slot
    return structs.replace(slot, devices=tuple(mended.get(i, device) for i, device in enumerate(slot.devices)))


def _held(device: SlotDevice, before: Held | None, told: Ratio | None) -> Held:
    """What a process is taken to do on a device: as its region says, unless that is a 0 which is not believed."""
    if device.sm > 0:
        return Held(device.sm, device.driver_used, 0)
    used = device.driver_used or (before.driver_used if before else 0)
    if told:
        return Held(told, used, 0)
    zeros = before.zeros + 1 if before else 1
    if before is not None and before.sm > 0 and zeros <= PATIENCE:
        return Held(before.sm, used, zeros)
    return Held(0.0, device.driver_used, zeros)


def _with_slots(container: ContainerRegion, region: Region, slots: tuple[Slot, ...]) -> ContainerRegion:
    if slots == region.slots:
        return container
    return structs.replace(container, region=structs.replace(region, slots=slots))
