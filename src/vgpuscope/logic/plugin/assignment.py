"""Which pod the kubelet means, and which devices its container gets.

The kubelet names neither: it only says how many devices it wants. So the pod is the one that the scheduler locked the
node for, or else the one that was bound first and waits for as many devices.
"""

from collections.abc import Container, Iterable, Mapping, Sequence

from msgspec import Struct

from vgpuscope.model.errors import AllocateCountMismatch, AllocateDeviceUnhealthy, AllocateDeviceUnknown
from vgpuscope.model.plugin import AllocatingPod, AssignedInstance, GpuState, OfferedDevice, Segment, StaticInstance
from vgpuscope.model.quantity import DeviceUUID, PodUID

_WAITING = ("allocating", "success")  # success: a container of the same pod may still wait


class ServedPod(Struct, frozen=True, kw_only=True):
    """The pod that is served now."""

    pod: AllocatingPod
    sure: bool  # no other pod can be meant: if it fails, this pod has failed


def choose(pods: Iterable[AllocatingPod], *, node: str, owner: tuple[str, str] | None, count: int) -> ServedPod | None:
    """The pod that waits for `count` devices; None if no pod waits. `owner`: namespace and name in the node's lock."""
    waiting = [pod for pod in pods if _waits(pod, node)]
    locked = next((pod for pod in waiting if (pod.namespace, pod.name) == owner), None)
    if locked is not None:
        return ServedPod(pod=locked, sure=True)
    ordered = sorted(waiting, key=lambda pod: (_misfit(pod, count), pod.phase != "allocating", pod.bound or 0.0))
    return ServedPod(pod=ordered[0], sure=len(ordered) == 1) if ordered else None


def only_asking(
    pods: Iterable[AllocatingPod], *, count: int, held: Container[tuple[PodUID, str]]
) -> tuple[AllocatingPod, str] | None:
    """The pod without an assignment, and its container, that wants `count` whole devices; None if it may be another.

    `held`: containers, by pod UID and name, that have their devices already.
    """
    found = [
        (pod, container)
        for pod in pods
        if not pod.node
        for container, number in pod.asks
        if number == count and (pod.uid, container) not in held
    ]
    return found[0] if len({pod.uid for pod, _ in found}) == 1 else None


def _waits(pod: AllocatingPod, node: str) -> bool:
    there = pod.node == node and pod.bound is not None and pod.phase in _WAITING
    return there and (pod.segment is not None or bool(pod.wrong))


def _misfit(pod: AllocatingPod, count: int) -> bool:
    return pod.segment is None or len(pod.segment.devices) != count


def check(segment: Segment, *, count: int, states: Mapping[DeviceUUID, GpuState]) -> None:
    """Raises an AllocateFailed if the container cannot get what it was assigned."""
    if len(segment.devices) != count:
        raise AllocateCountMismatch(
            f"container {segment.container} was assigned {len(segment.devices)} devices, the kubelet wants {count}"
        )
    for device in segment.devices:
        state = states.get(device.gpu) or _parent(device.gpu, states)
        if state is None:
            raise AllocateDeviceUnknown(f"container {segment.container}: {device.gpu} is not on this node")
        if not state.healthy:
            raise AllocateDeviceUnhealthy(f"container {segment.container}: {device.gpu} is unhealthy: {state.reason}")


def instances_of(segment: Segment, states: Mapping[DeviceUUID, GpuState]) -> tuple[StaticInstance, ...]:
    """The MIG instances that the scheduler chose, in the order of the devices; empty if no GPU has MIG.

    It chose them by profile and place, or (HAMi's static strategy) by their UUIDs. Raises AllocateDeviceUnknown if an
    instance does not exist: this plugin creates none.
    """
    named = {one.uuid: one for state in states.values() for one in state.gpu.instances}
    if all(device.gpu in named for device in segment.devices):
        return tuple(named[device.gpu] for device in segment.devices)
    if not any(device.gpu in states and states[device.gpu].gpu.mig for device in segment.devices):
        return ()
    if len(segment.instances) != len(segment.devices):
        raise AllocateDeviceUnknown(
            f"container {segment.container}: {len(segment.devices)} devices with MIG, "
            f"but the scheduler chose {len(segment.instances)} instances"
        )
    return tuple(_instance(chosen, states) for chosen in segment.instances)


def _parent(instance: DeviceUUID, states: Mapping[DeviceUUID, GpuState]) -> GpuState | None:
    """The GPU of a MIG instance."""
    return next((one for one in states.values() if any(i.uuid == instance for i in one.gpu.instances)), None)


def _instance(chosen: AssignedInstance, states: Mapping[DeviceUUID, GpuState]) -> StaticInstance:
    there = states[chosen.gpu].gpu.instances if chosen.gpu in states else ()
    for one in there:
        if (one.profile, one.start) == (chosen.profile, chosen.start):
            return one
    raise AllocateDeviceUnknown(f"{chosen.gpu} has no MIG instance {chosen.profile} at slice {chosen.start}")


def index_names(gpus: Sequence[DeviceUUID], states: Mapping[DeviceUUID, GpuState]) -> str:
    """GPU-0, GPU-1: the indexes of the GPUs, each once and in order."""
    found = (states.get(uuid) or _parent(uuid, states) for uuid in gpus)
    indexes = sorted({state.gpu.index for state in found if state is not None})
    return ", ".join(f"GPU-{index}" for index in indexes)


def visible_of(devices: Iterable[OfferedDevice]) -> tuple[DeviceUUID, ...]:
    """What a container must see that holds these ids, each once."""
    return tuple(dict.fromkeys(device.visible for device in devices))
