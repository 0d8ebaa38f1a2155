"""What of a node gets series: only what exists, and no more than the limits allow.

Annotations of pods are written by their authors. So an allocation gets series only if the node registers its device.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from msgspec import structs

from vgpuscope.catalog.label_sets import HeldInstanceLabels
from vgpuscope.catalog.limits import (
    CONTAINER_DEVICES,
    NODE_DEVICES,
    NODE_HOLDERS,
    NODE_OFFERS,
    POD_INSTANCES,
    ClusterOmission,
)
from vgpuscope.model.cluster import Finding, Holder, NodeLedger
from vgpuscope.model.quantity import DeviceUUID, PodUID

_PODS_REMEMBERED = 65536  # pods and GPUs; a pod that is forgotten may name other instances again
_EXAMPLES = 3


class ShownLedger(NamedTuple):
    """The part of a node's ledger that gets series, and how many things do not."""

    node: NodeLedger
    omitted: Counter[ClusterOmission]


def shown(node: NodeLedger) -> ShownLedger:
    """The node without allocations of devices that it does not register, and without what exceeds a limit."""
    omitted = Counter[ClusterOmission]()
    devices, offers = node.devices[: NODE_DEVICES.most], node.offers[: NODE_OFFERS.most]
    omitted["node-limit"] += len(node.devices) - len(devices) + len(node.offers) - len(offers)
    registered = registered_devices(node)
    holders = [one for one in node.holders if one.device in registered]
    omitted["unregistered-device"] += len(node.holders) - len(holders)
    if len(node.devices) > len(devices):
        kept = {one.device.id for one in devices}
        holders = _counted(holders, [one for one in holders if one.device in kept], "node-limit", omitted)
    if len(holders) > CONTAINER_DEVICES.most:
        holders = _counted(holders, list(_of_containers(holders)), "container-limit", omitted)
        holders = _counted(holders, holders[: NODE_HOLDERS.most], "node-limit", omitted)
    omitted += Counter()  # without those that are 0
    if not omitted:
        return ShownLedger(node, omitted)
    held = {(one.pod_uid, one.device) for one in holders}
    shares = tuple(one for one in node.shares if (one.pod_uid, one.device) in held)
    return ShownLedger(
        structs.replace(node, devices=devices, offers=offers, holders=tuple(holders), shares=shares), omitted
    )


def registered_devices(node: NodeLedger) -> set[DeviceUUID]:
    """The devices that the node registers."""
    return {one.device.id for one in node.devices}


def examples(findings: Iterable[Finding]) -> str:
    """A few pods and what they name, for the log."""
    named = dict.fromkeys(f"{one.namespace}/{one.pod} {(one.device or one.node)[:80]}" for one in findings if one.pod)
    return ", ".join(list(named)[:_EXAMPLES])


def _counted(
    before: list[Holder], after: list[Holder], reason: ClusterOmission, omitted: Counter[ClusterOmission]
) -> list[Holder]:
    omitted[reason] += len(before) - len(after)
    return after


def _of_containers(holders: Collection[Holder]) -> Iterator[Holder]:
    """The first devices of each container, up to the limit."""
    held = Counter[tuple[PodUID, int]]()
    for one in holders:
        container = (one.pod_uid, one.container_index)
        held[container] += 1
        if held[container] <= CONTAINER_DEVICES.most:
            yield one


class InstanceMemory:
    """The MIG instances that each pod has named so far.

    No registration lists MIG instances, and a pod's author can rewrite the annotation at any time. So the number of
    different instances of a pod on one GPU is limited for the life of the pod.
    """

    def __init__(self) -> None:
        self._named: dict[tuple[PodUID, DeviceUUID], frozenset[int]] = {}

    def admits(self, pod: PodUID, row: HeldInstanceLabels) -> bool:
        """Whether the instance gets series."""
        key, instance = (pod, row.gpu_uuid), hash(row)
        known = self._named.get(key, frozenset())
        if instance in known:
            return True
        if len(known) >= POD_INSTANCES.most:
            return False
        self._named[key] = known | {instance}
        if len(self._named) > _PODS_REMEMBERED:
            del self._named[next(iter(self._named))]
        return True
