"""What a pod counts for: its assignments brought to one claim for each device, by HAMi's rule for init containers."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from vgpuscope.model.allocation import Assignment, PodState
from vgpuscope.model.cluster import Holder, InstanceHolder, PodShare
from vgpuscope.model.quantity import Bytes, DeviceUUID


class Claim(Struct, frozen=True, gc=False):
    """What one pod takes of one device."""

    device: DeviceUUID
    vendor: str
    memory: Bytes
    cores: int
    slots: int
    containers: int


class Part(Struct, frozen=True):
    """What a pod means to its node; follows from the pod alone, so it is made once for each."""

    order: tuple[str, str, str]
    counts: bool
    holders: tuple[Holder, ...]
    claims: tuple[Claim, ...]
    instances: tuple[InstanceHolder, ...]
    shares: tuple[PodShare, ...] = ()


def part(pod: PodState) -> Part:
    """What the pod means to its node."""
    order = (pod.namespace, pod.name, pod.uid)
    if not counts(pod):
        return Part(order, False, (), (), ())
    held_by, claimed = tuple(holders(pod)), claims(pod)
    shares = tuple(_shares(pod, held_by, claimed)) if len(held_by) > len(claimed) else ()
    return Part(order, True, held_by, claimed, tuple(instance_holders(pod)), shares)


def counts(pod: PodState) -> bool:
    """Whether the pod holds devices: from its assignment, which comes before the binding, until it ends or is gone."""
    return bool(pod.assignments) and pod.place != "" and not pod.ended


def held(pod: PodState) -> tuple[Assignment, ...]:
    """The assignments that still hold something: those of init containers end when all of these have succeeded."""
    if not pod.init_done:
        return pod.assignments
    return tuple([one for one in pod.assignments if not one.init])


def claims(pod: PodState) -> tuple[Claim, ...]:
    """What a pod takes of each device: its app containers together or its largest init container, if that is more.

    HAMi's rule. It follows that a device's sum may be less than that of its holders, as long as there are init ones.
    """
    assignments = held(pod)
    if len(assignments) == 1:
        return (_together(assignments),)
    found: dict[DeviceUUID, list[Assignment]] = {}
    for one in assignments:
        found.setdefault(one.device, []).append(one)
    return tuple(_claim(on_device) for on_device in found.values())


def holders(pod: PodState) -> list[Holder]:
    """Each device in each container's hands."""
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


def _shares(pod: PodState, held_by: Sequence[Holder], claimed: Iterable[Claim]) -> Iterator[PodShare]:
    """What the pod has of each device that it holds more than once."""
    times = Counter(holder.device for holder in held_by)
    for claim in claimed:
        if times[claim.device] > 1:
            yield PodShare(
                namespace=pod.namespace,
                pod=pod.name,
                pod_uid=pod.uid,
                device=claim.device,
                memory=claim.memory,
                cores=claim.cores,
            )


def instance_holders(pod: PodState) -> Iterator[InstanceHolder]:
    """Each MIG instance the pod holds."""
    if not pod.instances:
        return
    over = {one.container_index for one in pod.assignments if one.init} if pod.init_done else set()
    for instance in pod.instances:
        if instance.container_index not in over:
            yield InstanceHolder(namespace=pod.namespace, pod=pod.name, pod_uid=pod.uid, instance=instance)


def _claim(assignments: list[Assignment]) -> Claim:
    """One pod's assignments on one device, at the moment when most of it is in use."""
    app = [one for one in assignments if not one.init]
    if len(app) == len(assignments):
        return _together(app)
    phases = [_together(one_runs) for one_runs in _init_phases(assignments, app)]
    if app:
        phases.append(_together(app))
    return Claim(
        phases[0].device,
        phases[0].vendor,
        max(phase.memory for phase in phases),
        max(phase.cores for phase in phases),
        max(phase.slots for phase in phases),
        max(phase.containers for phase in phases),
    )


def _init_phases(assignments: list[Assignment], app: list[Assignment]) -> Iterator[list[Assignment]]:
    """Init containers run one after the other, each beside the sidecars that were started before it."""
    for index in {one.container_index: None for one in assignments if one.init}:
        sidecars = [one for one in app if one.container_index < index]
        yield [one for one in assignments if one.init and one.container_index == index] + sidecars


def _together(assignments: tuple[Assignment, ...] | list[Assignment]) -> Claim:
    """Containers that run at the same time; the same device twice in one container is two slots (two MIG instances)."""
    first = assignments[0]
    if len(assignments) == 1:
        return Claim(first.device, first.vendor, first.memory, first.cores, 1, 1)
    return Claim(
        first.device,
        first.vendor,
        sum(one.memory for one in assignments),
        sum(one.cores for one in assignments),
        len(assignments),
        len({one.container_index for one in assignments}),
    )
