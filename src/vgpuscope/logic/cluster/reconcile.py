"""Findings on one node: unusable allocations, pods without an allocation, and allocations above the total."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from vgpuscope.knowledge.vendors import BY_WORD
from vgpuscope.model.allocation import NodeState, PodState
from vgpuscope.model.cluster import DeviceLedger, Finding, FindingCount, FindingKind, Holder
from vgpuscope.model.dra import UNUSED
from vgpuscope.model.quantity import DeviceUUID, PodUID

# Enough examples to see the problem; the counts still include all findings.
LISTED = 32


def reconcile(
    name: str,
    *,
    node: NodeState | None,
    devices: Sequence[DeviceLedger],
    holders: Sequence[Holder],
    pods: Sequence[PodState],
    overdue: Collection[PodUID],
) -> tuple[tuple[Finding, ...], tuple[FindingCount, ...]]:
    """At most `LISTED` findings, those that hold capacity first, and the number of findings of each kind."""
    found = [
        *_devices_over(name, devices),
        *_kubelet_zero(name, node, devices),
        *_held_in_vain(name, node, devices, holders),
        *_ghosts(name, node, pods, overdue),
        *_forged(name, pods),
        *_unallocated_users(name, devices, pods),
    ]
    if not found:
        return (), ()
    totals = Counter((one.kind, one.reason) for one in found)
    # Devices of ended pods are free again, so these findings are the first to be cut.
    listed = sorted(found, key=lambda one: one.reason == "ended")[:LISTED]
    return tuple(listed), tuple(
        FindingCount(kind=kind, reason=reason, count=count) for (kind, reason), count in sorted(totals.items())
    )


def _devices_over(name: str, devices: Sequence[DeviceLedger]) -> Iterator[Finding]:
    for one in devices:
        device = one.device
        for reason, taken, total in (
            ("memory", one.memory_allocated, device.memory),
            ("cores", one.cores_allocated, device.cores),
            ("slots", one.shared, device.slots),
        ):
            if taken > total > 0:  # a total of 0: the vendor does not report it
                yield Finding(kind="over-allocated", reason=reason, node=name, device=device.id)


def _kubelet_zero(name: str, node: NodeState | None, devices: Sequence[DeviceLedger]) -> Iterator[Finding]:
    """Vendors with registered devices for which the kubelet offers 0: pods placed here will be rejected."""
    for word in sorted({one.device.vendor for one in devices}):
        vendor = BY_WORD.get(word)
        if node and vendor and node.allocatable.get(vendor.count) == 0:
            yield Finding(kind="kubelet-zero", node=name, resource=vendor.count)


def _held_in_vain(
    name: str, node: NodeState | None, devices: Sequence[DeviceLedger], holders: Sequence[Holder]
) -> Iterator[Finding]:
    """Pods that hold devices on an unknown node, or devices that no longer exist."""
    missing = {one.device for one in holders} - {one.device.id for one in devices}
    if not missing:
        return
    found: dict[tuple[PodUID, DeviceUUID], Holder] = {}
    for one in holders:
        if one.device in missing:
            found.setdefault((one.pod_uid, one.device if node else ""), one)
    for (uid, device), one in found.items():
        kind: FindingKind = "vanished-device" if node else "node-unknown"
        yield Finding(kind=kind, node=name, device=device, namespace=one.namespace, pod=one.pod, pod_uid=uid)


def _ghosts(
    name: str, node: NodeState | None, pods: Sequence[PodState], overdue: Collection[PodUID]
) -> Iterator[Finding]:
    silent = node is not None and not node.ready
    for pod in pods:
        if pod.phase == "Running" and pod.node == name and not pod.deleting:
            continue  # the usual case
        if pod.assignments and pod.place == name and (reason := _ghost(pod, silent=silent, overdue=overdue)):
            yield Finding(
                kind="ghost", reason=reason, node=name, namespace=pod.namespace, pod=pod.name, pod_uid=pod.uid
            )


def _ghost(pod: PodState, *, silent: bool, overdue: Collection[PodUID]) -> str:
    if pod.ended:
        return "ended"
    if pod.node and pod.node != pod.place:
        return "elsewhere"
    if pod.phase == "Unknown":
        return "unknown"
    if pod.deleting and silent:
        return "terminating"
    if pod.uid not in overdue:
        return ""
    return "unused" if pod.phase == UNUSED else "unbound"


def _forged(name: str, pods: Sequence[PodState]) -> Iterator[Finding]:
    """Pods whose annotations name devices that they do not hold: nothing of this is in the ledger."""
    for pod in pods:
        if pod.claimed and pod.place == name and not pod.ended:
            yield Finding(
                kind="forged-assignment",
                reason=pod.doubt or "unsealed",
                node=name,
                namespace=pod.namespace,
                pod=pod.name,
                pod_uid=pod.uid,
                claimed_gpus=len({one.device for one in pod.claimed}),
                claimed_memory=sum(one.memory for one in pod.claimed),
                writer=pod.writer,
            )


def _unallocated_users(name: str, devices: Sequence[DeviceLedger], pods: Sequence[PodState]) -> Iterator[Finding]:
    """Bound pods that request a device registered on this node but have no assignment here.

    If no device is registered, another plugin allocates the devices, and no assignment is expected.
    """
    vendors = {vendor.count for one in devices if (vendor := BY_WORD.get(one.device.vendor))}
    for pod in pods:
        if pod.node != name or (pod.assignments and pod.place == name) or pod.ended:
            continue
        requests = pod.requests
        for resource in sorted(vendors & requests.keys()):
            if requests[resource] > 0:
                yield Finding(
                    kind="unallocated-user",
                    node=name,
                    namespace=pod.namespace,
                    pod=pod.name,
                    pod_uid=pod.uid,
                    resource=resource,
                )
