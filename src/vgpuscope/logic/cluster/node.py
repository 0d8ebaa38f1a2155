"""Computes the ledger of one node from the node and the pods bound or assigned to it, and from nothing else."""

from collections.abc import Callable, Collection, Iterable, Sequence

from vgpuscope.knowledge.vendors import BY_WORD
from vgpuscope.logic.cluster.capacity import node_capacity
from vgpuscope.logic.cluster.offers import settle_offers
from vgpuscope.logic.cluster.pod_parts import PodLedgerPart, part
from vgpuscope.logic.cluster.reconcile import reconcile
from vgpuscope.logic.device_use import PodDeviceUse
from vgpuscope.model.allocation import NodeState, PodState, RegisteredDevice
from vgpuscope.model.cluster import DeviceLedger, InstanceHolder, LostReason, NodeLedger
from vgpuscope.model.quantity import DeviceUUID, PodUID


def settle_node(
    name: str,
    *,
    node: NodeState | None,
    pods: Iterable[PodState],
    overdue: Collection[PodUID] = (),
    part_of: Callable[[PodState], PodLedgerPart] = part,
) -> NodeLedger:
    """The node's ledger, from `pods` that are bound or assigned to it; `overdue` ones wait too long to be bound.

    The order of the pods makes no difference. `part_of` may cache its result for a pod.
    """
    parts = sorted([(part_of(pod), pod) for pod in pods], key=_order)
    here = [pod for _, pod in parts]
    counted = [one for one, pod in parts if one.counts and pod.place == name]
    held = tuple([holder for one in counted for holder in one.holders])
    devices = _devices(node, counted) if node else ()
    capacity, types = node_capacity(devices)
    findings, finding_counts = reconcile(name, node=node, devices=devices, holders=held, pods=here, overdue=overdue)
    return NodeLedger(
        name=name,
        known=node is not None,
        real=node is not None or any(pod.node == name for pod in here),
        ready=node.ready if node else True,
        schedulable=node.schedulable if node else True,
        devices=devices,
        holders=held,
        shares=tuple([share for one in counted for share in one.shares]),
        offers=settle_offers(node, here) if node else (),
        labelled_gpus=node.labelled_gpus if node else None,
        capacity=capacity,
        types=types,
        findings=findings,
        finding_counts=finding_counts,
    )


def _order(one: tuple[PodLedgerPart, PodState]) -> tuple[str, str, str]:
    return one[0].order


def _devices(node: NodeState, counted: Sequence[PodLedgerPart]) -> tuple[DeviceLedger, ...]:
    by_pods: dict[DeviceUUID, list[PodDeviceUse]] = {}
    instances: dict[DeviceUUID, list[InstanceHolder]] = {}
    for one in counted:
        for device_use in one.uses:
            by_pods.setdefault(device_use.device, []).append(device_use)
        for holder in one.instances:
            instances.setdefault(holder.instance.device, []).append(holder)
    # A plugin writes its devices in no stable order. The same id twice would count a GPU twice.
    unique = {device.id: device for device in reversed(node.devices)}
    return tuple(
        _device(node, device, by_pods.get(device.id, ()), instances.get(device.id, ()))
        for device in sorted(unique.values(), key=lambda device: (device.vendor, device.index, device.id))
    )


def _device(
    node: NodeState, device: RegisteredDevice, by_pods: Sequence[PodDeviceUse], instances: Sequence[InstanceHolder]
) -> DeviceLedger:
    memory = cores = shared = containers = 0
    for device_use in by_pods:
        memory += device_use.memory
        cores += device_use.cores
        shared += device_use.slots
        containers += device_use.containers
    return DeviceLedger(
        device=device,
        memory_allocated=memory,
        cores_allocated=cores,
        shared=shared,
        containers=containers,
        instances=tuple(instances),
        lost=_lost(node, device),
    )


def _lost(node: NodeState, device: RegisteredDevice) -> LostReason | None:
    """The first reason why the device accepts no pods; its own reasons come first, as they outlast the node's."""
    if not device.healthy:
        return "unhealthy"
    if device.cordoned:
        return "cordoned"
    vendor = BY_WORD.get(device.vendor)
    if vendor and node.allocatable.get(vendor.count) == 0:
        return "kubelet-zero"
    if not node.ready:
        return "node-not-ready"
    return None if node.schedulable else "node-unschedulable"
