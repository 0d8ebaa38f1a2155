"""Which regions to read again before their zeros are accepted, and how the readings are combined.

HAMi's watcher thread zeroes a region about eight times a second before it refills it. The driver's own samples show
whether such a zero is real. If the driver has no sample of a process, only another read at another moment can show it.
"""

from collections.abc import Collection

from msgspec import structs

from vgpuscope.logic.node.region_repair import ContainerName, DriverSm, RegionHistory, slot_key
from vgpuscope.model.region import ContainerRegion, Region, RegionReading, Slot, SlotDevice

_SETTLED = 10  # samples of zeros after which a process is read again only in every tenth sample


def doubtful(
    containers: Collection[ContainerRegion], *, history: RegionHistory, driver_sm: DriverSm
) -> frozenset[ContainerName]:
    """The containers whose region shows 0 for a process that the driver has no sample of."""
    return frozenset(
        (container.pod_uid, container.container)
        for container in containers
        if container.region is not None and _is_doubtful(container, container.region, history, driver_sm)
    )


def busier(reading: RegionReading, again: RegionReading) -> RegionReading:
    """The first reading, with the second reading's values for processes that the first one shows at 0."""
    looks = {(one.pod_uid, one.container): one.region for one in again.containers}
    containers = tuple(_busier(one, looks.get((one.pod_uid, one.container))) for one in reading.containers)
    return structs.replace(reading, containers=containers)


def _is_doubtful(container: ContainerRegion, region: Region, history: RegionHistory, driver_sm: DriverSm) -> bool:
    for slot in region.slots:
        if slot.status == 0 or slot.host_pid <= 0:
            continue
        for device, use in zip(region.devices, slot.devices, strict=True):
            if use.sm > 0 or use.total == 0 or (device.uuid or "", slot.host_pid) in driver_sm:
                continue
            zeros = history.zeros.get(slot_key(container, slot, device.index), 0)
            if zeros < _SETTLED or zeros % _SETTLED == 0:
                return True
    return False


def _busier(container: ContainerRegion, again: Region | None) -> ContainerRegion:
    if container.region is None or again is None:
        return container
    looks = {(slot.pid, slot.host_pid): slot for slot in again.slots if slot.status != 0}
    slots = tuple(_busier_slot(slot, looks.get((slot.pid, slot.host_pid))) for slot in container.region.slots)
    return structs.replace(container, region=structs.replace(container.region, slots=slots))


def _busier_slot(slot: Slot, again: Slot | None) -> Slot:
    if slot.status == 0 or again is None or len(again.devices) != len(slot.devices):
        return slot
    return structs.replace(slot, devices=tuple(map(_busier_use, slot.devices, again.devices)))


def _busier_use(use: SlotDevice, again: SlotDevice) -> SlotDevice:
    if use.sm > 0 or again.sm == 0:
        return use
    return structs.replace(use, sm=again.sm, driver_used=use.driver_used or again.driver_used)
