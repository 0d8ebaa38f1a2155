"""A pod's part in the ledger of its node: what it uses of each device, and who holds it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from vgpuscope.logic.device_use import PodDeviceUse, counts, device_uses, held
from vgpuscope.model.allocation import PodState
from vgpuscope.model.cluster import Holder, InstanceHolder, PodShare


class PodLedgerPart(Struct, frozen=True):
    """A pod's part in its node's ledger; depends on the pod alone, so it is computed once for each pod."""

    order: tuple[str, str, str]
    counts: bool
    holders: tuple[Holder, ...]
    uses: tuple[PodDeviceUse, ...]
    instances: tuple[InstanceHolder, ...]
    shares: tuple[PodShare, ...] = ()


def part(pod: PodState) -> PodLedgerPart:
    """The pod's part in its node's ledger."""
    order = (pod.namespace, pod.name, pod.uid)
    if not counts(pod):
        return PodLedgerPart(order, False, (), (), ())
    held_by, uses = tuple(holders(pod)), device_uses(pod)
    shares = tuple(_shares(pod, held_by, uses)) if len(held_by) > len(uses) else ()
    return PodLedgerPart(order, True, held_by, uses, tuple(instance_holders(pod)), shares)


def holders(pod: PodState) -> list[Holder]:
    """One holder for each device of each container."""
    return [
        Holder(
            namespace=pod.namespace,
            pod=pod.name,
            pod_uid=pod.uid,
            container_index=one.container_index,
            container=one.container,
            init=one.init,
            vendor=one.vendor,
            device=one.device,
            memory=one.memory,
            cores=one.cores,
        )
        for one in held(pod)
    ]


def _shares(pod: PodState, held_by: Sequence[Holder], uses: Iterable[PodDeviceUse]) -> Iterator[PodShare]:
    """The pod's share of each device that it holds more than once."""
    times = Counter(holder.device for holder in held_by)
    for device_use in uses:
        if times[device_use.device] > 1:
            yield PodShare(
                namespace=pod.namespace,
                pod=pod.name,
                pod_uid=pod.uid,
                device=device_use.device,
                memory=device_use.memory,
                cores=device_use.cores,
            )


def instance_holders(pod: PodState) -> Iterator[InstanceHolder]:
    """Each MIG instance the pod holds; those of ended init containers exist until the pod ends."""
    for instance in pod.instances:
        yield InstanceHolder(namespace=pod.namespace, pod=pod.name, pod_uid=pod.uid, instance=instance)
