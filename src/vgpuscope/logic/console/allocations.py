"""The cluster's ledgers → what the scheduler has allocated to each pod, also to pods that do not run (yet)."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from vgpuscope.logic.console.gpus import Ledgers
from vgpuscope.model.cluster import Holder, PodShare
from vgpuscope.model.quantity import Bytes, DeviceUUID


class PodAllocation(Struct, frozen=True, kw_only=True, gc=False):
    """What one pod has been allocated of one registered GPU."""

    node: str
    gpu_id: DeviceUUID
    namespace: str
    pod: str
    memory: Bytes
    cores: int  # percent
    slots: int


def pod_allocations(cluster: Ledgers | None, namespaces: frozenset[str] | None = None) -> Iterator[PodAllocation]:
    """The allocations of all pods, or of those in some namespaces. They add up to what is allocated on the GPUs."""
    for node in cluster.nodes.values() if cluster else ():
        registered = {one.device.id for one in node.devices}
        shares = {(one.pod_uid, one.device): one for one in node.shares}
        held: dict[tuple[str, DeviceUUID], list[Holder]] = {}
        for holder in node.holders:
            if holder.device in registered and (namespaces is None or holder.namespace in namespaces):
                held.setdefault((holder.pod_uid, holder.device), []).append(holder)
        for key, holders in held.items():
            yield _allocation(node.name, holders, shares.get(key))


def _allocation(node: str, holders: list[Holder], share: PodShare | None) -> PodAllocation:
    """`share`: what counts of a pod that has the GPU more than once."""
    first = holders[0]
    return PodAllocation(
        node=node,
        gpu_id=first.device,
        namespace=first.namespace,
        pod=first.pod,
        memory=share.memory if share else sum(one.memory for one in holders),
        cores=share.cores if share else sum(one.cores for one in holders),
        slots=len(holders),
    )


def by_namespace(allocations: Iterable[PodAllocation]) -> dict[str, list[PodAllocation]]:
    """The allocations of each namespace."""
    found: dict[str, list[PodAllocation]] = {}
    for one in allocations:
        found.setdefault(one.namespace, []).append(one)
    return found


def memory_of(allocations: Iterable[PodAllocation]) -> Bytes | None:
    """The memory of these; None: there are none."""
    return sum(amounts) if (amounts := [one.memory for one in allocations]) else None


def cores_of(allocations: Iterable[PodAllocation]) -> int | None:
    """The cores of these; None: none of them asked for cores."""
    return sum(one.cores for one in allocations) or None
