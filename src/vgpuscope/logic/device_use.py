"""What a pod uses of each device: merges its assignments device by device, by HAMi's init container rule.

The cluster's ledger and the scheduler extender count with the same rule.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct

from vgpuscope.model.allocation import Assignment, HeldInstance, PodState
from vgpuscope.model.quantity import Bytes, DeviceUUID

Span: TypeAlias = tuple[int, int]  # memory slices of a MIG GPU: the first, and their number


class PodDeviceUse(Struct, frozen=True, gc=False):
    """What one pod uses of one device."""

    device: DeviceUUID
    vendor: str
    memory: Bytes
    cores: int
    slots: int
    containers: int


def counts(pod: PodState) -> bool:
    """Whether the pod holds devices: from its assignment, which precedes the binding, until it ends or is deleted."""
    return bool(pod.assignments) and pod.place != "" and not pod.ended


def held(pod: PodState) -> tuple[Assignment, ...]:
    """The assignments still in effect: those of init containers end when all init containers have succeeded."""
    if not pod.init_done:
        return pod.assignments
    return tuple([one for one in pod.assignments if not one.init])


def held_slices(pod: PodState) -> dict[DeviceUUID, list[Span]]:
    """The memory slices of MIG GPUs that a pod holds, until it ends: HAMi's plugin keeps an instance until then.

    HAMi's scheduler places every init container as if the pod had no other container, so its instance may lie where
    that of an app container does. They take turns: such slices are held once.
    """
    if not pod.instances:
        return {}
    init = {one.container_index for one in pod.assignments if one.init}
    found: dict[DeviceUUID, list[HeldInstance]] = {}
    for one in pod.instances:
        found.setdefault(one.device, []).append(one)
    return {device: _held_spans(instances, init) for device, instances in found.items()}


def _held_spans(instances: Sequence[HeldInstance], init: Collection[int]) -> list[Span]:
    """Slices of containers that run at the same time are listed as often as they were given."""
    running = [one for one in instances if one.container_index not in init]
    spans = [(one.start, one.size) for one in running]
    for index in sorted({one.container_index for one in instances}.intersection(init)):
        sidecars = Counter((one.start, one.size) for one in running if one.container_index < index)
        others = sorted((Counter(spans) - sidecars).elements())
        for one in instances:
            if one.container_index == index:
                spans.extend(_outside(one.start, one.start + one.size, others))
    return spans


def _outside(start: int, end: int, others: Sequence[Span]) -> Iterator[Span]:
    """The parts from `start` to `end` that lie in none of the others, which are sorted."""
    for first, size in others:
        if first >= end:
            break
        if start < first:
            yield start, first - start
        start = max(start, first + size)
    if start < end:
        yield start, end - start


def device_uses(pod: PodState) -> tuple[PodDeviceUse, ...]:
    """What a pod uses of each device: the sum of its app containers, or its largest init container if that is more.

    This is HAMi's rule. While init containers hold devices, a device's sum may be less than the sum over its holders.
    """
    return device_uses_of(held(pod))


def device_uses_of(assignments: Sequence[Assignment]) -> tuple[PodDeviceUse, ...]:
    """The same for assignments that are all in effect; none: nothing."""
    if len(assignments) == 1:
        return (_together(assignments),)
    found: dict[DeviceUUID, list[Assignment]] = {}
    for one in assignments:
        found.setdefault(one.device, []).append(one)
    return tuple(_device_use(on_device) for on_device in found.values())


def _device_use(assignments: list[Assignment]) -> PodDeviceUse:
    """What one pod uses of one device: the maximum over the phases of its init and app containers."""
    app = [one for one in assignments if not one.init]
    if len(app) == len(assignments):
        return _together(app)
    phases = [_together(one_runs) for one_runs in _init_phases(assignments, app)]
    if app:
        phases.append(_together(app))
    return PodDeviceUse(
        phases[0].device,
        phases[0].vendor,
        max(phase.memory for phase in phases),
        max(phase.cores for phase in phases),
        max(phase.slots for phase in phases),
        max(phase.containers for phase in phases),
    )


def _init_phases(assignments: list[Assignment], app: list[Assignment]) -> Iterator[list[Assignment]]:
    """Init containers run one after the other, each together with the sidecars started before it."""
    for index in {one.container_index: None for one in assignments if one.init}:
        sidecars = [one for one in app if one.container_index < index]
        yield [one for one in assignments if one.init and one.container_index == index] + sidecars


def _together(assignments: Sequence[Assignment]) -> PodDeviceUse:
    """The sum over containers that run at the same time; a device twice in one container is two MIG instances.

    Each of them takes a slot.
    """
    first = assignments[0]
    if len(assignments) == 1:
        return PodDeviceUse(first.device, first.vendor, first.memory, first.cores, 1, 1)
    return PodDeviceUse(
        first.device,
        first.vendor,
        sum(one.memory for one in assignments),
        sum(one.cores for one in assignments),
        len(assignments),
        len({one.container_index for one in assignments}),
    )
