"""What the cluster says was given to whom: nodes with their registered devices, pods with their assignments, quotas."""

from typing import Literal, TypeAlias

from msgspec import Struct

from vgpuscope.model.decision import Reason
from vgpuscope.model.quantity import Bytes, DeviceUUID, PodUID, UnixTime

# shared: by pods that take turns or run at once, the node does not say which
OfferMode: TypeAlias = Literal["whole", "time-slicing", "mps", "shared", "mig"]

_SCALED = 1.05  # of what a model's name says: that is rounded, as 80GB for 81,559 MiB


class RegisteredDevice(Struct, frozen=True, kw_only=True):
    """One device as a vendor's plugin registered it. Memory and cores are after scaling, so may pass the GPU."""

    id: DeviceUUID
    vendor: str  # HAMi's word: NVIDIA, Ascend910B3, DCU, …
    index: int = 0
    slots: int = 0  # how many containers may share it
    memory: Bytes = 0
    physical: Bytes | None = None  # the memory of the GPU itself, by its model's name or its node's label
    cores: int = 0  # percent, 100 for a whole GPU unless scaled
    type: str = ""
    numa: int = 0
    mode: str = "hami-core"
    healthy: bool = False  # HAMi leaves out what is false, so what is missing is unhealthy
    cordoned: bool = False

    @property
    def memory_scaling(self) -> float | None:
        """How many times its own memory can be given out, where that is more than once; None: it is not, or unknown."""
        if not self.physical or self.memory < _SCALED * self.physical:
            return None
        return self.memory / self.physical


class OfferedResource(Struct, frozen=True, kw_only=True):
    """GPUs that a node's kubelet offers by number alone, under one resource, as NVIDIA's own plugin has it.

    One of the resource is a GPU, a share of a GPU, or a MIG instance. What labels of the node do not say is unknown.
    """

    resource: str  # nvidia.com/gpu, nvidia.com/gpu.shared, nvidia.com/mig-1g.10gb
    mode: OfferMode
    capacity: int
    allocatable: int  # less than the capacity: the rest is unhealthy
    type: str = ""  # the GPU's model
    profile: str = ""  # of a MIG instance
    memory: Bytes | None = None  # of one GPU or MIG instance
    replicas: int | None = 1  # how many pods share one GPU or MIG instance; None: several, not known how many


class NodeState(Struct, frozen=True, kw_only=True):
    """One node of the cluster, as far as devices are concerned."""

    name: str
    ready: bool = True
    schedulable: bool = True
    devices: tuple[RegisteredDevice, ...] = ()
    allocatable: dict[str, int] = {}  # device resources the kubelet advertises
    offers: tuple[OfferedResource, ...] = ()  # never of a node that has a HAMi register: there the kubelet counts slots


class Assignment(Struct, frozen=True, kw_only=True):
    """One device in one container's hands, as the scheduler wrote it."""

    container_index: int  # init containers first
    container: str  # its name; "" when the assignment names no container of the pod
    init: bool
    vendor: str
    device: DeviceUUID  # the physical GPU
    memory: Bytes
    cores: int  # percent; 0: not specified


class HeldInstance(Struct, frozen=True, kw_only=True):
    """A MIG instance that a container holds, with its place on the GPU."""

    container_index: int
    device: DeviceUUID
    profile: str
    start: int
    size: int
    mig: DeviceUUID | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None


class RegisterRefusal(Struct, frozen=True, kw_only=True, gc=False):
    """What the PodScheduled condition says of a pod that has no node yet, in its scheduler's own words."""

    reason: str  # Unschedulable, SchedulingGated, SchedulerError
    message: str = ""
    at: UnixTime | None = None  # since when it is refused; a change of the words does not change it
    said: tuple[Reason, ...] = ()  # the same in our words


class PodTimes(Struct, frozen=True, kw_only=True, gc=False):
    """How far a pod has come, and when, by the clocks of those who wrote it down; None: not yet, or nobody wrote it."""

    created: UnixTime | None = None
    filtered: UnixTime | None = None  # HAMi chose the node
    bind_begun: UnixTime | None = None  # HAMi had the node's lock
    bind_phase: str = ""  # HAMi's word: allocating, success, failed
    scheduled: UnixTime | None = None  # bound to its node
    started: UnixTime | None = None  # its first container, init containers included


class Controller(Struct, frozen=True, gc=False):
    """The object that controls another one, as its ownerReferences name it."""

    api_version: str
    kind: str
    name: str
    uid: str


class ContainerRequest(Struct, frozen=True):
    """What one container asks for: device resources and amounts, as written."""

    index: int  # init containers first
    name: str
    init: bool  # gives back what it holds when it ends; a sidecar is none
    amounts: dict[str, int]


class PodState(Struct, frozen=True, kw_only=True):
    """One pod that has, wants or had devices."""

    uid: PodUID
    namespace: str
    name: str
    phase: str = "Pending"
    node: str = ""  # where it is bound
    assigned_node: str = ""  # where the scheduler extender put it, which comes before the binding
    deleting: bool = False
    init_done: bool = False  # every init container has succeeded: what only they held is free again
    assignments: tuple[Assignment, ...] = ()
    instances: tuple[HeldInstance, ...] = ()
    requests: dict[str, int] = {}  # device resources it asks for, all containers together
    asking: int = 0  # how many containers ask for them
    containers: tuple[ContainerRequest, ...] = ()  # those that ask for them
    claims: tuple[str, ...] = ()  # the ResourceClaims it refers to, by name
    scheduler: str = "default-scheduler"
    owner: str = ""  # who made it, the nearest that people know: Deployment/web, Job/train
    controller: Controller | None = None  # of the pod itself, where the way to the topmost owner begins
    times: PodTimes = PodTimes()
    refusal: RegisterRefusal | None = None

    @property
    def ended(self) -> bool:
        return self.phase in {"Succeeded", "Failed"}

    @property
    def place(self) -> str:
        """The node its devices are on."""
        return self.assigned_node or self.node


class QuotaState(Struct, frozen=True, kw_only=True):
    """The device limits of one ResourceQuota object."""

    namespace: str
    name: str
    hard: dict[str, int] = {}  # resource → limit, as written
