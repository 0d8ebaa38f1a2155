"""Pods and their containers, and what they were given."""

from msgspec import Struct

from vgpuscope.model.quantity import Bytes, DeviceUUID, Pid, PodUID


class ClaimUse(Struct, frozen=True):
    """A ResourceClaim that a container uses, or one request of it."""

    claim: str
    request: str = ""  # "": all requests


class Container(Struct, frozen=True, kw_only=True):
    """One container of a pod."""

    name: str
    id: str | None = None  # without the runtime's prefix
    init: bool = False
    sidecar: bool = False  # an init container that runs beside the app containers
    gpu_request: bool = False  # asks for a GPU resource of any kind
    running: bool | None = None  # None: no status yet
    claims: tuple[ClaimUse, ...] = ()

    @property
    def past(self) -> bool:
        """An init container that has ended or not begun: what it has of GPUs is the app containers' now."""
        return self.init and not self.sidecar and self.running is False


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
    claimed: tuple[HamiShare, ...] = ()  # what its annotations say, and the scheduler has not sealed
    assigned: bool = False  # annotations of HAMi's scheduler assign devices to it, readable or not
    dcgm: str | None = None  # HOST:PORT of the dcgm-exporter that runs in it

    @property
    def ended(self) -> bool:
        """Its containers will not run again, so nothing on a GPU can be its own."""
        return self.phase in {"Succeeded", "Failed"}


class PublishedDevice(Struct, frozen=True, kw_only=True):
    """The device of a claim, as its driver publishes it in a ResourceSlice."""

    gpu: DeviceUUID = ""  # "": not published; the instance is then found by its own UUID
    part: bool = False  # a MIG instance
    mig: DeviceUUID = ""  # "": the driver creates the instance for the claim, so its UUID is not published
    profile: str = ""
    start: int | None = None  # the first memory slice of the instance; None: not published
    shared: bool = False  # several claims can have it at once
    hami: bool = False


class RequestShare(Struct, frozen=True):
    """What one request of a claim has of a device."""

    request: str
    memory: Bytes | None = None  # None: the claim limits no memory


class Grant(Struct, frozen=True, kw_only=True):
    """A device that the kubelet gave to a container, as the device plugin names it."""

    namespace: str
    pod: str
    container: str
    resource: str  # "nvidia.com/gpu"; the driver's name for a claim
    device_id: str  # as the plugin says: UUID, index, replica, MIG, or a claim's device name
    claim: str | None = None  # namespace/name of the DRA claim
    pool: str = ""  # the driver's pool that has the device, for a claim
    published: PublishedDevice | None = None  # None: not a claim, or no slice has the device
    requests: tuple[RequestShare, ...] = ()  # of the claim, for this device; empty: the claim was not read


class ProcessOwner(Struct, frozen=True, kw_only=True):
    """Whose a host process is, by its cgroup. Neither pod nor container: it belongs to the host."""

    pid: Pid
    start_time: int  # clock ticks since boot; with the pid it names one process for good
    pod_uid: PodUID | None = None
    container_id: str | None = None
    command: str | None = None  # the kernel's short name, never the command line
    uid: int | None = None  # effective user id
    command_line: str | None = None  # without secrets; None: hidden, or not readable
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
