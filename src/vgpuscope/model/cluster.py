"""The conclusions of the cluster's ledger: the holders of each device, the free capacity, and the contradictions."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from vgpuscope.model.allocation import HeldInstance, OfferedResource, RegisteredDevice
from vgpuscope.model.quantity import Bytes, DeviceUUID, PodUID, Ratio

FindingKind: TypeAlias = Literal[
    "ghost",  # devices are held for a pod that does not use them, or cannot
    "unallocated-user",  # a pod requests devices and is bound to the node, but the scheduler allocated none
    "vanished-device",  # held, but no longer registered by the node
    "node-unknown",  # held on a node that does not exist in the cluster
    "over-allocated",  # more is held than was registered
    "kubelet-zero",  # registered with the scheduler, but the kubelet offers 0
    "forged-assignment",  # a pod's annotations name devices that the scheduler did not give it; it holds none of them
]
LostReason: TypeAlias = Literal["unhealthy", "cordoned", "kubelet-zero", "node-not-ready", "node-unschedulable"]

_MOST_INSTANCES = 7  # of one GPU that MIG divides


class Holder(Struct, frozen=True, kw_only=True, gc=False):
    """One device held by one container. Init containers hold their devices until all of them have succeeded."""

    namespace: str
    pod: str
    pod_uid: PodUID
    container_index: int  # init containers first
    container: str  # "": the assignment matches no container of the pod
    init: bool
    vendor: str
    device: DeviceUUID
    memory: Bytes
    cores: int  # percent; 0: not specified


class PodShare(Struct, frozen=True, kw_only=True, gc=False):
    """One pod's share of one device, by HAMi's rule: its app containers together, or a larger init container."""

    namespace: str
    pod: str
    pod_uid: PodUID
    device: DeviceUUID
    memory: Bytes
    cores: int  # percent


class InstanceHolder(Struct, frozen=True, kw_only=True):
    """One MIG instance held by one pod."""

    namespace: str
    pod: str
    pod_uid: PodUID
    instance: HeldInstance


class DeviceLedger(Struct, frozen=True, kw_only=True):
    """One registered device and how much of it is allocated, which can be more than was registered."""

    device: RegisteredDevice
    memory_allocated: Bytes = 0
    cores_allocated: int = 0
    shared: int = 0  # slots in use, as HAMi counts them: one for each allocation of the device to a container
    containers: int = 0  # how many different containers can be on it at once
    instances: tuple[InstanceHolder, ...] = ()
    lost: LostReason | None = None  # why nothing new can be placed here, even if capacity is free

    @property
    def slots_free(self) -> int:
        return max(0, self.device.slots - self.shared)

    @property
    def memory_free(self) -> Bytes:
        return max(0, self.device.memory - self.memory_allocated)

    @property
    def cores_free(self) -> int:
        return max(0, self.device.cores - self.cores_allocated)


class RequestHolder(Struct, frozen=True, kw_only=True, gc=False):
    """A pod on the node that requests an amount of a resource. Only its kubelet knows which GPUs it got."""

    namespace: str
    pod: str
    pod_uid: PodUID
    count: int


class OfferLedger(Struct, frozen=True, kw_only=True):
    """GPUs known only by their number: how many of one resource the node offers, and the pods that request them."""

    offer: OfferedResource
    requested: int = 0
    free: int = 0  # available to a new pod; 0 if `lost` has a reason
    lost: LostReason | None = None
    holders: tuple[RequestHolder, ...] = ()

    @property
    def gpus(self) -> int | None:
        """The number of GPUs or MIG instances; None: they are shared, and the node does not report by how many pods."""
        replicas = self.offer.replicas
        return None if replicas is None else -(-self.offer.capacity // replicas)

    @property
    def usable(self) -> int | None:
        """The number of GPUs or MIG instances that accept new pods."""
        if self.lost:
            return 0
        replicas = self.offer.replicas
        return None if replicas is None else -(-self.offer.allocatable // replicas)

    @property
    def whole(self) -> int:
        """How many whole GPUs a new pod can get of this resource."""
        return self.free if self.offer.mode == "whole" else 0

    @property
    def largest_memory(self) -> Bytes | None:
        """The memory of one GPU or instance that a new pod can get; None: not known, or shares without a limit."""
        if not self.free:
            return 0
        return self.offer.memory if self.offer.mode in {"whole", "mig"} else None

    @property
    def memory_total(self) -> Bytes | None:
        """The memory of all its GPUs or instances; None: not known."""
        return None if self.offer.memory is None or self.gpus is None else self.gpus * self.offer.memory

    @property
    def memory_requested(self) -> Bytes | None:
        """The memory of the GPUs or instances that pods have; None: not known, or shares without a limit."""
        return None if self.offer.memory is None or self.offer.replicas != 1 else self.requested * self.offer.memory

    @property
    def memory_free(self) -> Bytes | None:
        """Memory of the GPUs or instances that new pods can get; None: not known, or shares without a limit."""
        largest = self.largest_memory
        return None if largest is None else self.free * largest


def memory_of_all(parts: Sequence[Bytes | None]) -> Bytes | None:
    """The sum; None if there is no part, or the memory of one is not known."""
    known = [part for part in parts if part is not None]
    return sum(known) if known and len(known) == len(parts) else None


class Finding(Struct, frozen=True, kw_only=True, gc=False):
    """A contradiction, with the objects that it is about; "" for a kind of object that is not involved.

    The reason of a `ghost` is one of: `ended` (the pod has finished; its devices are no longer counted here, but a
    scheduler that missed the end still counts them), `unknown` (its kubelet does not report), `terminating` (on a node
    that is not ready, so no kubelet ends the pod), `elsewhere` (bound to another node than the one with its devices),
    `unbound` (devices allocated long ago, but never bound) and `unused` (a ResourceClaim that has held devices for
    long, used by no pod).

    The reason of `over-allocated` is `memory`, `cores` or `slots`. That of a `forged-assignment` is `unrequested` (the
    pod does not request what its annotations name) or `unsealed` (the scheduler did not write them).
    """

    kind: FindingKind
    node: str
    reason: str = ""
    device: DeviceUUID = ""
    namespace: str = ""
    pod: str = ""
    pod_uid: PodUID = ""
    resource: str = ""
    claimed_gpus: int | None = None  # how many GPUs the annotations of a forged assignment name,
    claimed_memory: Bytes | None = None  # and how much memory of them
    writer: str = ""  # which program wrote them, as the API server has noted; "": it is not noted


class FindingCount(Struct, frozen=True, kw_only=True):
    """The number of findings of a kind on a node, including those that were cut from the list."""

    kind: FindingKind
    reason: str
    count: int


class Amount(Struct, frozen=True, gc=False):
    """An amount of devices, slots, memory and cores."""

    cards: int = 0
    slots: int = 0
    memory: Bytes = 0
    cores: int = 0  # percent of a GPU


class Capacity(Struct, frozen=True, kw_only=True):
    """What a node, all GPUs of one type, or the cluster can still take.

    Every registered GPU is in `total`, and either in `lost` or in `usable`. The rest of a usable GPU is in `free` if a
    request can get it. It is in `mig` if that depends on a MIG placement. Otherwise it is in `stranded`: the GPU has no
    free slot, memory or cores left. So slots, memory and cores add up: `total` is `lost` + `allocated` - `over` +
    `free` + `mig` + `stranded`.
    """

    vendor: str = ""  # "": all vendors
    type: str = ""
    total: Amount = Amount()
    lost: dict[LostReason, Amount] = {}
    allocated: Amount = Amount()  # of usable GPUs
    free: Amount = Amount()
    stranded: Amount = Amount()
    mig: Amount = Amount()
    over: Amount = Amount()  # the part of `allocated` beyond what its GPU registered
    whole: Amount = Amount()  # the part of `free` on GPUs without a holder
    largest_memory: Bytes = 0  # the largest request for one GPU that fits on some node
    largest_cores: int = 0  # percent of one GPU
    whole_cards: int = 0  # the most whole GPUs that one pod can get: they must be on one node

    @property
    def usable(self) -> Amount:
        lost = self.lost.values()
        return Amount(
            self.total.cards - sum(part.cards for part in lost),
            self.total.slots - sum(part.slots for part in lost),
            self.total.memory - sum(part.memory for part in lost),
            self.total.cores - sum(part.cores for part in lost),
        )

    @property
    def fragmentation(self) -> Ratio | None:
        """The share of free memory on partly allocated GPUs; None: no memory is free.

        0 if all free memory is on whole GPUs, 1 if no free GPU is whole. The measure is whole GPUs and not the one
        largest piece, because an idle cluster of many GPUs is not fragmented.
        """
        return 1 - self.whole.memory / self.free.memory if self.free.memory else None


class NodeGpus(Struct, frozen=True, kw_only=True):
    """The physical GPUs of a node, and its MIG instances that the kubelet counts."""

    number: int  # a GPU that MIG divides counts once
    usable: int  # of these, how many accept new pods
    instances: int
    usable_instances: int
    exact: bool  # False: at least so many, because the instances are on an unknown number of GPUs


class NodeLedger(Struct, frozen=True, kw_only=True):
    """All conclusions about one node."""

    name: str
    known: bool = True  # False: pods have devices on this node, but the cluster has no such node
    real: bool = True  # False: moreover no pod is bound to it. Only annotations or claims name it
    ready: bool = True
    schedulable: bool = True
    devices: tuple[DeviceLedger, ...] = ()
    holders: tuple[Holder, ...] = ()  # including holders of devices that the node does not register
    shares: tuple[PodShare, ...] = ()  # only of pods that have one device more than once; for other pods see the holder
    offers: tuple[OfferLedger, ...] = ()  # GPUs known only by number, on a node that registers no devices
    labelled_gpus: int | None = None  # GPUs of one model, also those that MIG divides; None: no label gives them
    capacity: Capacity = Capacity()  # of registered devices
    types: tuple[Capacity, ...] = ()  # the same, for each type of GPU
    findings: tuple[Finding, ...] = ()
    finding_counts: tuple[FindingCount, ...] = ()

    @property
    def gpus(self) -> NodeGpus:
        """How many physical GPUs the node has, and how many of them accept new pods.

        A kubelet counts MIG instances, not the GPUs that have them: the label counts these if all are of one model.
        """
        whole, usable = self.capacity.total.cards, self.capacity.usable.cards
        instances = usable_instances = 0
        for resource in self.offers:
            if resource.offer.mode == "mig":
                instances += resource.gpus or 0
                usable_instances += resource.usable or 0
            else:
                whole += resource.gpus or 0
                usable += resource.usable or 0
        least, labelled = whole - (-instances // _MOST_INSTANCES), self.labelled_gpus or 0
        models = {resource.offer.type for resource in self.offers if resource.offer.type}
        number = max(least, labelled) if instances else whole
        return NodeGpus(
            number=number,
            usable=usable + (number - whole if usable_instances else 0),
            instances=instances,
            usable_instances=usable_instances,
            exact=not instances or (labelled >= least and len(models) <= 1),
        )

    @property
    def whole_gpus(self) -> int | None:
        """The most whole GPUs that one pod can still get, of one resource; None: the node offers no GPUs."""
        found = [one.whole for one in self.offers] + ([self.capacity.whole_cards] if self.devices else [])
        return max(found, default=None)

    @property
    def largest_memory(self) -> Bytes | None:
        """The most memory of one GPU or MIG instance that a request can still get; None: not known."""
        found = [one.largest_memory for one in self.offers] + ([self.capacity.largest_memory] if self.devices else [])
        known = [one for one in found if one is not None]
        return max(known, default=None) if len(known) == len(found) or any(known) else None


class QuotaLimit(Struct, frozen=True, kw_only=True):
    """The limit of one ResourceQuota object for one resource."""

    name: str
    limit: int


class QuotaUse(Struct, frozen=True, kw_only=True):
    """One namespace's use of one resource, in the quota's own units: MiB of memory, percent of cores."""

    resource: str
    used: int
    limits: tuple[QuotaLimit, ...] = ()
    factor: int = 1  # `used` is compared with limit × factor

    @property
    def limit(self) -> int | None:
        """The strictest of the limits, as written; None: no limit, which is not a limit of 0."""
        return min((one.limit for one in self.limits), default=None)


class NamespaceLedger(Struct, frozen=True, kw_only=True):
    """All conclusions about one namespace; without pods and quotas there is nothing to show."""

    name: str
    pods: int = 0  # pods that hold devices
    quotas: tuple[QuotaUse, ...] = ()


class Changes(Struct, frozen=True, kw_only=True):
    """The nodes and namespaces whose conclusions must be recomputed, because an input changed or was removed."""

    nodes: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
