"""Pods and their containers, and what they were given."""

from msgspec import Struct

from vgpuscope.model.quantity import Bytes, DeviceUUID, Pid, PodUID


class Container(Struct, frozen=True, kw_only=True):
    """One container of a pod."""

    name: str
    id: str | None = None  # without the runtime's prefix
    init: bool = False
    gpu_request: bool = False  # asks for a GPU resource of any kind
    running: bool | None = None  # None: no status yet


class MigAllocation(Struct, frozen=True, kw_only=True):
    """A MIG instance that HAMi gave to a container."""

    container_index: int
    device_index: int
    gpu: DeviceUUID
    profile: str
    mig: DeviceUUID | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None


class HamiShare(Struct, frozen=True, kw_only=True):
    """What HAMi's scheduler assigned to one container on one GPU."""

    container: str
    gpu: DeviceUUID
    memory: Bytes
    cores: int  # percent; 0: no limit


class Pod(Struct, frozen=True, kw_only=True):
    """One pod of this node. A static pod is found by its configuration hash too: that is what its cgroups carry."""

    uid: PodUID
    namespace: str
    name: str
    phase: str = "Unknown"
    config_hash: PodUID | None = None
    containers: tuple[Container, ...] = ()
    shares: tuple[HamiShare, ...] = ()
    migs: tuple[MigAllocation, ...] = ()

    @property
    def ended(self) -> bool:
        """Its containers will not run again, so nothing on a GPU can be its own."""
        return self.phase in {"Succeeded", "Failed"}


class Grant(Struct, frozen=True, kw_only=True):
    """A device that the kubelet gave to a container, as the device plugin names it."""

    namespace: str
    pod: str
    container: str
    resource: str  # "nvidia.com/gpu"; the driver's name for a claim
    device_id: str  # as the plugin says: UUID, index, replica, MIG, or a claim's device name
    claim: str | None = None  # namespace/name of the DRA claim


class ProcessOwner(Struct, frozen=True, kw_only=True):
    """Whose a host process is, by its cgroup. Neither pod nor container: it belongs to the host."""

    pid: Pid
    start_time: int  # clock ticks since boot; with the pid it names one process for good
    pod_uid: PodUID | None = None
    container_id: str | None = None
    command: str | None = None  # the kernel's short name, never the command line
    outer: tuple[tuple[PodUID, str | None], ...] = ()  # pods around it with their containers, the outermost first

    def is_in(self, pod_uid: PodUID) -> bool:
        """Whether the process may be of this pod: its cgroup names the pod, or no pod at all."""
        return self.pod_uid in (None, pod_uid) or any(uid == pod_uid for uid, _ in self.outer)


class SourceState(Struct, frozen=True, kw_only=True):
    """How the last read of one source went."""

    source: str
    up: bool
    absent: bool = False  # known not to be here (no driver installed, no kubelet socket): not a fault
    read_seconds: float | None = None  # None: never finished
    age_seconds: float | None = None  # since the last good read; None: there was none
    code: str | None = None  # why it is down
    message: str | None = None
