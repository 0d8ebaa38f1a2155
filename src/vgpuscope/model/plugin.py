"""What the device plugin offers to the kubelet, what a pod was assigned, and what its container gets."""

from typing import Literal, TypeAlias

from msgspec import Struct

from vgpuscope.model.device import Health
from vgpuscope.model.quantity import Bytes, DeviceUUID, PodUID, UnixTime

RESOURCE = "nvidia.com/gpu"

FeedbackMove: TypeAlias = Literal["block", "unblock", "enforce", "release"]


class StaticInstance(Struct, frozen=True, kw_only=True):
    """One MIG instance that fills its GPU instance. None: the driver does not tell."""

    uuid: DeviceUUID
    gpu_instance: int
    compute_instance: int
    profile: str | None = None  # 1g.10gb
    memory: Bytes | None = None
    slices: int | None = None  # of the seven compute slices of a GPU
    start: int | None = None  # the first memory slice
    size: int | None = None  # the number of memory slices


class PluginGpu(Struct, frozen=True, kw_only=True):
    """One GPU of this node, with the values of the last time that it answered."""

    uuid: DeviceUUID
    index: int
    model: str
    memory: Bytes | None = None  # None: the driver does not report it
    numa: int | None = None  # None: unknown, or the machine has only one NUMA node
    mig: bool = False
    instances: tuple[StaticInstance, ...] = ()


class GpuFault(Struct, frozen=True, kw_only=True):
    """An XID after which a GPU stays unhealthy until somebody, or the time, clears it."""

    gpu: DeviceUUID
    xid: int
    since: UnixTime  # whole seconds


class GpuState(Struct, frozen=True, kw_only=True):
    """Whether a GPU can be used, and if not, why."""

    gpu: PluginGpu
    driver: Health  # what the driver says of it
    fault: GpuFault | None = None

    @property
    def healthy(self) -> bool:
        return self.driver == "ok" and self.fault is None

    @property
    def reason(self) -> str:
        """ "" for a healthy GPU; the driver's word, or the XID."""
        if self.driver != "ok":
            return self.driver
        return f"xid-{self.fault.xid}" if self.fault else ""


class OfferedDevice(Struct, frozen=True, kw_only=True):
    """One id that the kubelet may allocate: a share of a GPU, a GPU or a MIG instance."""

    id: str
    gpu: DeviceUUID
    visible: DeviceUUID  # what a container must see to use it: the GPU or the MIG instance
    healthy: bool
    numa: int | None = None


class PluginMigProfile(Struct, frozen=True, kw_only=True):
    """A size of MIG instances, and where on the GPU there are such instances: first slice and number of slices."""

    name: str
    memory: int  # MiB
    cores: int  # percent of the GPU
    slices: int
    placements: tuple[tuple[int, int], ...]


class GpuRegistration(Struct, frozen=True, kw_only=True):
    """One GPU as HAMi's scheduler reads it from the node. Memory is in MiB; memory and cores are scaled."""

    id: DeviceUUID
    index: int
    slots: int
    memory: int
    cores: int  # percent
    type: str
    numa: int = 0
    mode: Literal["hami-core", "mig"] = "hami-core"
    profiles: tuple[PluginMigProfile, ...] = ()
    healthy: bool = False


class Assigned(Struct, frozen=True, kw_only=True):
    """A share of one GPU that the scheduler assigned to a container."""

    gpu: DeviceUUID
    memory: int  # MiB
    cores: int  # percent; 0: no limit


class AssignedInstance(Struct, frozen=True, kw_only=True):
    """A MIG instance that the scheduler chose for a container."""

    gpu: DeviceUUID
    profile: str
    start: int
    size: int


class Segment(Struct, frozen=True, kw_only=True):
    """The next container of a pod that gets devices."""

    container: str
    devices: tuple[Assigned, ...]
    instances: tuple[AssignedInstance, ...] = ()  # the MIG instances, in the order of the devices; empty without MIG
    index: int = 0  # of the container, as the MIG instances name it
    rest: str = ""  # the annotation once this container has its devices
    last: bool = True  # no other container waits
    uncontrolled: bool = False  # the container asks for no control: CUDA_DISABLE_CONTROL=true


class AllocatingPod(Struct, frozen=True, kw_only=True):
    """A pod that waits on its node for devices, most often for those that the scheduler assigned."""

    uid: PodUID
    namespace: str
    name: str
    version: str  # resourceVersion
    node: str = ""  # that HAMi's scheduler chose; "": another scheduler placed the pod
    phase: str = ""  # allocating, success, failed
    bound: UnixTime | None = None  # when it was bound
    segment: Segment | None = None  # None: nothing is left to allocate
    migs: str = ""  # hami.io/vgpu-mig-allocations as it is
    asks: tuple[tuple[str, int], ...] = ()  # its containers with devices, init first, and how many each wants
    wrong: str = ""  # why its annotations cannot be read
    admitted: bool = False  # the kubelet says that it has started, or ended, so it has asked for all its devices
    leaving: bool = False  # it is being deleted
    forged: str = ""  # why its assignment is not believed


class KubeletView(Struct, frozen=True, kw_only=True):
    """The pods that the kubelet knows, by namespace and name, and the containers that have devices of ours.

    The kubelet takes up one pod after the other, and asks for its devices before it takes up the next.
    """

    pods: frozenset[tuple[str, str]]
    holding: frozenset[tuple[str, str, str]]


class NodeNotes(Struct, frozen=True, kw_only=True):
    """The annotations of this node."""

    name: str
    uid: str
    version: str  # resourceVersion
    annotations: dict[str, str]


class PodNotes(Struct, frozen=True, kw_only=True):
    """What must be known of a pod whose allocation failed."""

    uid: PodUID
    phase: str = ""  # of its binding: allocating, success, failed
    ended: bool = False  # its containers will not run any more


class Mount(Struct, frozen=True, kw_only=True):
    """A file or directory of the host inside a container."""

    container: str
    host: str
    read_only: bool = False


class Injection(Struct, frozen=True, kw_only=True):
    """What a container gets."""

    envs: dict[str, str]
    mounts: tuple[Mount, ...] = ()


class FeedbackRegion(Struct, frozen=True, kw_only=True):
    """The fields of one container's region that the priority feedback reads and writes."""

    path: str
    devices: tuple[DeviceUUID, ...]
    priority: int
    recent_kernel: int
    utilization_switch: int


class FeedbackDecision(Struct, frozen=True, kw_only=True):
    """What one round of feedback says about one container."""

    region: FeedbackRegion
    recent_kernel: int
    utilization_switch: int
    active: bool
    blocked: bool

    @property
    def moves(self) -> tuple[FeedbackMove, ...]:
        """What changes for the container."""
        moves: list[FeedbackMove] = []
        if (self.recent_kernel < 0) != (self.region.recent_kernel < 0):
            moves.append("block" if self.recent_kernel < 0 else "unblock")
        if self.utilization_switch != self.region.utilization_switch:
            moves.append("enforce" if self.utilization_switch else "release")
        return tuple(moves)
