"""Which pod the kubelet means, and which devices its container gets.

The kubelet names no pod: it only says how many devices it wants. It may mean every pod of the node that wants as many
and has not asked yet, whoever placed it. So what a pod's author writes never takes the pod from this list: that would
let it take what was assigned to another. Only the kubelet's word does, and what this plugin has answered.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from vgpuscope.model.errors import AllocateCountMismatch, AllocateDeviceUnhealthy, AllocateDeviceUnknown
from vgpuscope.model.plugin import (
    AllocatingPod,
    AssignedInstance,
    GpuState,
    KubeletView,
    OfferedDevice,
    Segment,
    StaticInstance,
)
from vgpuscope.model.quantity import DeviceUUID, PodUID

_WAITING = ("allocating", "success")  # success: a container of the same pod may still wait


class Answered(NamedTuple):
    """What is known of containers and pods that do not ask any more."""

    served: Container[tuple[PodUID, str]]  # containers that got their devices
    refused: Container[PodUID]  # pods that got nothing: the kubelet ends them
    kubelet: KubeletView | None = None  # None: it does not say


def askers(pods: Iterable[AllocatingPod], *, count: int, known: Answered) -> tuple[AllocatingPod, ...]:
    """The pods of which one wants `count` devices now."""
    return tuple(pod for pod in pods if any(number == count for _, number in _may_be_next(pod, known)))


def strangers(pods: Iterable[AllocatingPod], kubelet: KubeletView | None) -> frozenset[tuple[str, str]]:
    """Pods without devices that the kubelet knows and the API server does not: deleted while the kubelet asks."""
    if kubelet is None:
        return frozenset()
    holding = {(namespace, name) for namespace, name, _ in kubelet.holding}
    return kubelet.pods - holding - {(pod.namespace, pod.name) for pod in pods}


def waits(pod: AllocatingPod, node: str) -> bool:
    """Whether the pod was assigned devices of this node, and has not got all of them."""
    there = pod.node == node and pod.phase in _WAITING and not pod.leaving
    return there and (pod.segment is not None or bool(pod.wrong))


def _may_be_next(pod: AllocatingPod, known: Answered) -> Sequence[tuple[str, int]]:
    """The containers for which the kubelet may ask next, and how many devices each wants.

    It asks for one container after the other. If the pod's annotation says that the first ones are served already, that
    may be true, if this plugin did it before it restarted, or not.
    """
    name, kubelet = (pod.namespace, pod.name), known.kubelet
    if pod.admitted or pod.uid in known.refused or (kubelet is not None and name not in kubelet.pods):
        return ()
    holding = kubelet.holding if kubelet is not None else ()
    left = [
        (container, number)
        for container, number in pod.asks
        if (pod.uid, container) not in known.served and (*name, container) not in holding
    ]
    if not pod.node:
        return left[:1]
    names = [container for container, _ in left]
    return left[: names.index(pod.segment.container) + 1] if pod.segment and pod.segment.container in names else left


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
