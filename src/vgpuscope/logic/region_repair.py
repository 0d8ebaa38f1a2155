"""Two things a region says that are not so, put right: zeros while its watcher refills it, and killed processes."""

from collections.abc import Collection, Mapping
from typing import TypeAlias

from msgspec import Struct, structs

from vgpuscope.model.pod import ProcessOwner
from vgpuscope.model.quantity import Pid, PodUID
from vgpuscope.model.region import ContainerRegion, Region, Slot, SlotDevice

# The watcher thread of every process zeroes all slots about eight times a second and refills them after its driver
# calls. At one sample a second, three zeros in a row by chance are rare; a process that really stopped shows it
# two samples late.
PATIENCE = 2

_SlotKey: TypeAlias = tuple[PodUID, str, Pid, Pid, int]


class Held(Struct, frozen=True):
    """The last non-zero reading of one process on one device, and how many zeros have followed it."""

    sm: float
    driver_used: int
    zeros: int


History: TypeAlias = dict[_SlotKey, Held]


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


def repair(
    containers: Collection[ContainerRegion],
    *,
    history: History,
    owners: Mapping[Pid, ProcessOwner] | None,
    driver_pids: Collection[Pid],
) -> Repaired:
    """The regions with dead processes left out and false zeros bridged.

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
            mended = _bridge(slot, container, history, known)
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


def _bridge(slot: Slot, container: ContainerRegion, history: History, known: History) -> Slot:
    """The slot with short runs of zeros replaced by what stood before them; notes in known what it shows."""
    if slot.status == 0 or slot.host_pid <= 0:
        return slot  # the watcher fills nothing in before it knows the host pid
    mended: dict[int, SlotDevice] = {}
    for index, device in enumerate(slot.devices):
        key = (container.pod_uid, container.container, slot.pid, slot.host_pid, index)
        before = history.get(key)
        if device.sm > 0 or before is None:
            if device.sm > 0 or device.driver_used > 0:
                known[key] = Held(device.sm, device.driver_used, 0)
        elif before.zeros < PATIENCE and before.sm > 0:
            known[key] = Held(before.sm, before.driver_used, before.zeros + 1)
            used = device.driver_used or before.driver_used
            mended[index] = structs.replace(device, sm=before.sm, driver_used=used)
        else:
            known[key] = Held(0.0, device.driver_used, 0)
    if not mended:
        return slot
    return structs.replace(slot, devices=tuple(mended.get(i, device) for i, device in enumerate(slot.devices)))


def _with_slots(container: ContainerRegion, region: Region, slots: tuple[Slot, ...]) -> ContainerRegion:
    if slots == region.slots:
        return container
    return structs.replace(container, region=structs.replace(region, slots=slots))
