"""The cluster's allocations: nodes with their registered devices, pods with their assignments, quotas."""

from typing import Literal, TypeAlias

from msgspec import Struct

from vgpuscope.model.quantity import Bytes, DeviceUUID, PodUID, UnixTime
from vgpuscope.model.scheduling_codes import Reason

# unrequested: the pod does not request the devices that its annotations name. unsealed: the scheduler did not seal them
Doubt: TypeAlias = Literal["unrequested", "unsealed"]
# shared: the node's labels do not show whether pods take turns (time-slicing) or run at once (MPS)
OfferMode: TypeAlias = Literal["whole", "time-slicing", "mps", "shared", "mig"]

_SCALED = 1.05  # of the memory in the model's name, which is rounded: 80GB for 81,559 MiB


class MigProfile(Struct, frozen=True, kw_only=True):
    """A size of MIG instance that a GPU offers, with every place on the GPU where one can be."""

    name: str  # 1g.10gb
    memory: Bytes
    cores: int  # percent of the GPU
    slices: int = 0  # of compute
    placements: tuple[tuple[int, int], ...] = ()  # first memory slice, and their number


class RegisteredDevice(Struct, frozen=True, kw_only=True):
    """One device as a vendor's plugin registered it. Memory and cores are scaled, so they can exceed the GPU's."""

    id: DeviceUUID
    vendor: str  # HAMi's name for it: NVIDIA, Ascend910B3, DCU, …
    index: int = 0
    slots: int = 0  # how many containers can share it
    memory: Bytes = 0
    physical: Bytes | None = None  # the memory of the GPU itself, from its model's name or its node's label
    cores: int = 0  # percent, 100 for a whole GPU unless scaled
    type: str = ""
    numa: int = 0
    mode: str = "hami-core"
    healthy: bool = False  # HAMi omits false values, so a missing value means unhealthy
    cordoned: bool = False
    profiles: tuple[MigProfile, ...] = ()  # of a GPU in MIG mode, since HAMi v2.10

    @property
    def memory_scaling(self) -> float | None:
        """How often the GPU's own memory can be allocated, if more than once; None: only once, or unknown."""
        if not self.physical or self.memory < _SCALED * self.physical:
            return None
        return self.memory / self.physical


class OfferedResource(Struct, frozen=True, kw_only=True):
    """GPUs that a node's kubelet offers only as a number, under one resource, as NVIDIA's own plugin does.

    One unit of the resource is a GPU, a share of a GPU, or a MIG instance. Details that the node's labels do not give
    are unknown.
    """

    resource: str  # nvidia.com/gpu, nvidia.com/gpu.shared, nvidia.com/mig-1g.10gb
    mode: OfferMode
    capacity: int
    allocatable: int  # if less than the capacity, the rest is unhealthy
    type: str = ""  # the GPU's model
    profile: str = ""  # of a MIG instance
    memory: Bytes | None = None  # of one GPU or MIG instance
    replicas: int | None = 1  # how many pods share one GPU or MIG instance; None: several, number unknown


class NodeState(Struct, frozen=True, kw_only=True):
    """One node of the cluster, with the fields that concern devices."""

    name: str
    ready: bool = True
    schedulable: bool = True
    devices: tuple[RegisteredDevice, ...] = ()
    allocatable: dict[str, int] = {}  # device resources that the kubelet advertises
    offers: tuple[OfferedResource, ...] = ()  # empty for a node with a HAMi register: there the kubelet counts slots
    labelled_gpus: int | None = None  # GPUs of one model, also those that MIG divides; None: no label gives them
    pair_scores: dict[DeviceUUID, dict[DeviceUUID, int]] = {}  # how well two GPUs are linked, if the node reports it


class Assignment(Struct, frozen=True, kw_only=True):
    """One device of one container, as the scheduler wrote it."""

    container_index: int  # init containers first
    container: str  # its name; "" when the assignment matches no container of the pod
    init: bool
    vendor: str
    device: DeviceUUID  # the physical GPU
    memory: Bytes
    cores: int  # percent; 0: not specified


class HeldInstance(Struct, frozen=True, kw_only=True):
    """A MIG instance that a container holds, with its placement on the GPU."""

    container_index: int
    device: DeviceUUID
    profile: str
    start: int
    size: int
    mig: DeviceUUID | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None


class UnschedulableCondition(Struct, frozen=True, kw_only=True, gc=False):
    """The PodScheduled condition of a pod that has no node yet, in its scheduler's own words."""

    reason: str  # Unschedulable, SchedulingGated, SchedulerError
    message: str = ""
    at: UnixTime | None = None  # since when the pod is refused; a changed message does not change this time
    said: tuple[Reason, ...] = ()  # the same as our reason codes


class PodTimes(Struct, frozen=True, kw_only=True, gc=False):
    """When a pod reached each stage, by the clocks of those that recorded it; None: not yet, or not recorded."""

    created: UnixTime | None = None
    filtered: UnixTime | None = None  # HAMi chose the node
    bind_begun: UnixTime | None = None  # HAMi acquired the node's lock
    bind_phase: str = ""  # HAMi's value: allocating, success, failed
    scheduled: UnixTime | None = None  # bound to its node
    started: UnixTime | None = None  # its first container, init containers included


class Controller(Struct, frozen=True, gc=False):
    """The object that controls another one, as its ownerReferences name it."""

    api_version: str
    kind: str
    name: str
    uid: str


class ContainerRequest(Struct, frozen=True):
    """The device resources and amounts that one container requests, as written."""

    index: int  # init containers first
    name: str
    init: bool  # holds devices only until it ends; False for a sidecar
    amounts: dict[str, int]


class PodState(Struct, frozen=True, kw_only=True):
    """One pod that has, requests or had devices."""

    uid: PodUID
    namespace: str
    name: str
    phase: str = "Pending"
    node: str = ""  # where it is bound
    assigned_node: str = ""  # the node that the scheduler extender chose, before the binding
    deleting: bool = False
    init_done: bool = False  # every init container has succeeded: devices that only they held are free again
    assignments: tuple[Assignment, ...] = ()
    instances: tuple[HeldInstance, ...] = ()
    sealed: bool | None = None  # whether its assignments have a seal; None: none is expected
    claimed: tuple[Assignment, ...] = ()  # what its annotations say beyond that, which it does not hold
    doubt: Doubt | None = None  # why not
    writer: str = ""  # who wrote these annotations, as the API server has noted it; "": it is not noted
    asks: tuple[ContainerRequest, ...] = ()  # of the containers that request devices
    claims: tuple[str, ...] = ()  # names of the ResourceClaims that it refers to
    scheduler: str = "default-scheduler"
    owner: str = ""  # the nearest controller that people know: Deployment/web, Job/train
    controller: Controller | None = None  # of the pod itself; the search for the topmost owner starts here
    times: PodTimes = PodTimes()
    refusal: UnschedulableCondition | None = None

    @property
    def ended(self) -> bool:
        return self.phase in {"Succeeded", "Failed"}

    @property
    def requests(self) -> dict[str, int]:
        """What the pod needs at the same time: the sum of its containers, or an init container that requests more."""
        if len(self.asks) == 1:
            return self.asks[0].amounts  # the usual case; shared, not copied
        total: dict[str, int] = {}
        for ask in self.asks:
            if not ask.init:
                for name, amount in ask.amounts.items():
                    total[name] = total.get(name, 0) + amount
        for ask in self.asks:
            if ask.init:
                for name, amount in ask.amounts.items():
                    total[name] = max(total.get(name, 0), amount)
        return total

    @property
    def asking(self) -> int:
        """How many containers request devices."""
        return len(self.asks)

    @property
    def place(self) -> str:
        """The node that has its devices."""
        return self.assigned_node or self.node


class QuotaState(Struct, frozen=True, kw_only=True):
    """The device limits of one ResourceQuota object."""

    namespace: str
    name: str
    hard: dict[str, int] = {}  # resource → limit; the name is that of the resource, without `limits.`
