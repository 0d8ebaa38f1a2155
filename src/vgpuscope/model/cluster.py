"""What the cluster's ledger concludes: who holds which device, what is still to be had, and what does not add up."""

from typing import Literal, TypeAlias

from msgspec import Struct

from vgpuscope.model.allocation import HeldInstance, OfferedResource, RegisteredDevice
from vgpuscope.model.quantity import Bytes, DeviceUUID, PodUID, Ratio

FindingKind: TypeAlias = Literal[
    "ghost",  # devices are held for a pod that does not, or cannot, use them
    "unallocated-user",  # a pod asks for devices and is bound to the node, but the scheduler gave it none
    "vanished-device",  # held, but no longer registered by the node
    "node-unknown",  # held on a node that the cluster does not have
    "over-allocated",  # more is held than was registered
    "kubelet-zero",  # registered with the scheduler, while the kubelet offers none
]
LostReason: TypeAlias = Literal["unhealthy", "cordoned", "kubelet-zero", "node-not-ready", "node-unschedulable"]


class Holder(Struct, frozen=True, kw_only=True, gc=False):
    """One device in one container's hands. Init containers hold theirs until all of them have succeeded."""

    namespace: str
    pod: str
    pod_uid: PodUID
    container_index: int  # init containers first
    container: str  # "": the assignment names no container of the pod
    init: bool
    vendor: str
    device: DeviceUUID
    memory: Bytes
    cores: int  # percent; 0: not specified


class DeviceRequest(Struct, frozen=True, kw_only=True, gc=False):
    """What one container asks for of one vendor's devices; None: it does not say."""

    container_index: int  # init containers first
    container: str
    init: bool
    vendor: str
    count: int | None  # devices
    memory: Bytes | None  # of each device
    memory_percentage: int | None  # of each device's memory
    cores: int | None  # of each device, in the vendor's unit: percent for most


class PodShare(Struct, frozen=True, kw_only=True, gc=False):
    """What one pod has of one device, by HAMi's rule: its app containers together, or the larger init container."""

    namespace: str
    pod: str
    pod_uid: PodUID
    device: DeviceUUID
    memory: Bytes
    cores: int  # percent


class InstanceHolder(Struct, frozen=True, kw_only=True):
    """One MIG instance in one pod's hands."""

    namespace: str
    pod: str
    pod_uid: PodUID
    instance: HeldInstance


class DeviceLedger(Struct, frozen=True, kw_only=True):
    """One registered device and what of it is given away. More than was registered is possible, and shown as it is."""

    device: RegisteredDevice
    memory_allocated: Bytes = 0
    cores_allocated: int = 0
    shared: int = 0  # slots in use, as HAMi counts them: one for each time a container was given the device
    containers: int = 0  # how many different containers can be on it at once
    instances: tuple[InstanceHolder, ...] = ()
    lost: LostReason | None = None  # why nothing new can be placed here, however much is free

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
    """A pod on the node that asks for so many of a resource. Which GPUs it got only its kubelet knows."""

    namespace: str
    pod: str
    pod_uid: PodUID
    count: int


class OfferLedger(Struct, frozen=True, kw_only=True):
    """GPUs that are only counted: how many of one resource the node offers, and who asks for them."""

    offer: OfferedResource
    requested: int = 0
    free: int = 0  # that a new pod can have; 0 where `lost` says why
    lost: LostReason | None = None
    holders: tuple[RequestHolder, ...] = ()

    @property
    def gpus(self) -> int | None:
        """GPUs, or MIG instances; None: they are shared, and the node does not say by how many."""
        replicas = self.offer.replicas
        return None if replicas is None else -(-self.offer.capacity // replicas)

    @property
    def usable(self) -> int | None:
        """Those of them that take new pods."""
        if self.lost:
            return 0
        replicas = self.offer.replicas
        return None if replicas is None else -(-self.offer.allocatable // replicas)


class Finding(Struct, frozen=True, kw_only=True, gc=False):
    """Something that does not add up, with the objects it is about; "" where there is none of the kind.

    A ghost's reason is one of `ended` (the pod has finished; its devices are no longer counted here, but a scheduler
    that missed its end counts them still), `unknown` (its kubelet is silent), `terminating` (on a node that is not
    ready, so nobody ends it), `elsewhere` (bound to another node than the one its devices are on), `unbound` (given
    devices long ago and never bound) and `unused` (a ResourceClaim that has held devices for long, and no pod uses).
    An over-allocation's reason is `memory`, `cores` or `slots`.
    """

    kind: FindingKind
    node: str
    reason: str = ""
    device: DeviceUUID = ""
    namespace: str = ""
    pod: str = ""
    pod_uid: PodUID = ""
    resource: str = ""


class FindingCount(Struct, frozen=True, kw_only=True):
    """How many findings of a kind a node has: all of them, also where the list was cut."""

    kind: FindingKind
    reason: str
    count: int


class Amount(Struct, frozen=True, gc=False):
    """So much of devices."""

    cards: int = 0
    slots: int = 0
    memory: Bytes = 0
    cores: int = 0  # percent of a GPU


class Capacity(Struct, frozen=True, kw_only=True):
    """What a node, all GPUs of one type, or the cluster can still take.

    Every registered GPU is in `total`, and either in `lost` or in `usable`. What is left on a usable GPU is in
    `free` if a request can have it, in `mig` if a MIG placement decides about that, and else in `stranded`: behind a
    GPU without free slots, memory or cores.
    """

    vendor: str = ""  # "": all of them
    type: str = ""
    total: Amount = Amount()
    lost: dict[LostReason, Amount] = {}
    allocated: Amount = Amount()  # of usable GPUs
    free: Amount = Amount()
    stranded: Amount = Amount()
    mig: Amount = Amount()
    whole: Amount = Amount()  # the part of `free` that is on GPUs nobody holds
    largest_memory: Bytes = 0  # the largest request for one GPU that fits somewhere
    largest_cores: int = 0  # percent of one GPU
    whole_cards: int = 0  # the most whole GPUs that one pod can have: they must be on one node

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
        """The share of free memory that is in pieces, on GPUs somebody holds a part of; None: no memory is free.

        0 if all that is free is whole GPUs, 1 if no GPU is whole. Measured against whole GPUs and not against the
        one largest piece, because an idle cluster of many GPUs is not fragmented.
        """
        return 1 - self.whole.memory / self.free.memory if self.free.memory else None


class NodeLedger(Struct, frozen=True, kw_only=True):
    """All conclusions about one node."""

    name: str
    known: bool = True  # False: pods have devices on it, but the cluster has no such node
    ready: bool = True
    schedulable: bool = True
    devices: tuple[DeviceLedger, ...] = ()
    holders: tuple[Holder, ...] = ()  # also of devices the node does not register
    shares: tuple[PodShare, ...] = ()  # only of pods that have one device more than once; else the holder's own
    offers: tuple[OfferLedger, ...] = ()  # counted GPUs of a node that registers none of them
    capacity: Capacity = Capacity()  # of registered devices
    types: tuple[Capacity, ...] = ()  # the same, for each type of GPU
    findings: tuple[Finding, ...] = ()
    finding_counts: tuple[FindingCount, ...] = ()


class QuotaLimit(Struct, frozen=True, kw_only=True):
    """One ResourceQuota object's word on one resource."""

    name: str
    limit: int


class QuotaUse(Struct, frozen=True, kw_only=True):
    """One namespace's use of one resource, in the quota's own terms: MiB of memory, percent of cores."""

    resource: str
    used: int
    limits: tuple[QuotaLimit, ...] = ()
    factor: int = 1  # `used` is held against limit × factor

    @property
    def limit(self) -> int | None:
        """The strictest of the limits, as written; None: nothing limits it, which is not a limit of 0."""
        return min((one.limit for one in self.limits), default=None)


class NamespaceLedger(Struct, frozen=True, kw_only=True):
    """All conclusions about one namespace; with neither pods nor quotas there is nothing to show."""

    name: str
    pods: int = 0  # that hold devices
    quotas: tuple[QuotaUse, ...] = ()


class Changes(Struct, frozen=True, kw_only=True):
    """Whose conclusions must be made anew, because something they rest on has changed or gone."""

    nodes: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
