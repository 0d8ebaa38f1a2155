"""Nodes and pods together with what ResourceSlices and ResourceClaims add to them."""

from msgspec import structs

from vgpuscope.model.allocation import NodeState, PodState, RegisteredDevice
from vgpuscope.model.dra import ClaimShare


def joined_node(node: NodeState, gpus: tuple[RegisteredDevice, ...]) -> NodeState:
    """The node with the GPUs that DRA drivers publish on it; HAMi's registration of the same GPU takes precedence."""
    known = {device.id for device in node.devices}
    more = tuple(gpu for gpu in gpus if gpu.id not in known)
    return structs.replace(node, devices=(*node.devices, *more)) if more else node


def joined_pod(pod: PodState, share: ClaimShare | None) -> PodState:
    """The pod with the devices of its claims, assigned to the node of these devices."""
    if share is None:
        return pod
    return structs.replace(
        pod,
        assigned_node=pod.assigned_node or (share.node if share.node != pod.node else ""),
        assignments=(*pod.assignments, *share.assignments),
        instances=(*pod.instances, *share.instances),
    )
