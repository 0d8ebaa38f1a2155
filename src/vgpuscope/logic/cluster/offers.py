"""GPUs of nodes without HAMi, which the kubelet only counts: how many are offered, requested and free."""

from collections.abc import Sequence

from vgpuscope.model.allocation import NodeState, OfferedResource, PodState, RegisteredDevice
from vgpuscope.model.cluster import LostReason, OfferLedger, RequestHolder


def settle_offers(node: NodeState, pods: Sequence[PodState]) -> tuple[OfferLedger, ...]:
    """One ledger for each counted resource of the node; empty if a DRA driver publishes the same GPUs one by one."""
    if not node.offers or any(map(_is_nvidia, node.devices)):
        return ()
    bound = [pod for pod in pods if pod.node == node.name and not pod.ended]
    return tuple(_settled(node, offer, bound) for offer in node.offers)


def _is_nvidia(device: RegisteredDevice) -> bool:
    return device.id.startswith(("GPU-", "MIG-")) or "nvidia" in device.vendor.lower()


def _settled(node: NodeState, offer: OfferedResource, bound: Sequence[PodState]) -> OfferLedger:
    holders = tuple(
        RequestHolder(namespace=pod.namespace, pod=pod.name, pod_uid=pod.uid, count=count)
        for pod in bound
        if (count := pod.requests.get(offer.resource, 0)) > 0
    )
    requested, lost = sum(holder.count for holder in holders), _lost(node, offer)
    return OfferLedger(
        offer=offer,
        requested=requested,
        free=0 if lost else max(0, offer.allocatable - requested),
        lost=lost,
        holders=holders,
    )


def _lost(node: NodeState, offer: OfferedResource) -> LostReason | None:
    """Why no GPU of the resource accepts a new pod."""
    if not offer.allocatable:
        return "kubelet-zero"
    if not node.ready:
        return "node-not-ready"
    return None if node.schedulable else "node-unschedulable"
