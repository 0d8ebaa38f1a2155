"""What the agent concludes: who uses what of each GPU, so that it adds up."""

from typing import Literal

from msgspec import Struct

from vgpuscope.model.device import Gpu, XidCount
from vgpuscope.model.pod import SourceState
from vgpuscope.model.quantity import Bytes, DeviceUUID, Joules, PodUID, Ratio, Seconds, Watts

Method = Literal["hami-region", "nvml-process", "mig", "podresources", "share"]

Mode = Literal["hami", "exclusive", "mig", "mps", "time-slicing", "unallocated"]
MODES: tuple[Mode, ...] = ("hami", "exclusive", "mig", "mps", "time-slicing", "unallocated")

State = Literal["not-started", "idle", "active", "unknown"]
STATES: tuple[State, ...] = ("not-started", "idle", "active", "unknown")


class ContainerKey(Struct, frozen=True, kw_only=True, order=True, cache_hash=True):
    """Which container. Names are empty where no source of pods could tell them; the UID is always there for a pod."""

    namespace: str = ""
    pod: str = ""
    pod_uid: PodUID = ""
    container: str = ""


class Burst(Struct, frozen=True, kw_only=True):
    """A fast-changing value over the last window, so that a burst between two scrapes is not lost."""

    mean: float
    max: float


class ContainerUsage(Struct, frozen=True, kw_only=True):
    """One row of the ledger: what one container uses of one GPU or instance."""

    key: ContainerKey
    gpu: DeviceUUID
    mig: DeviceUUID | None = None
    mode: Mode
    state: State
    allocated: bool  # False: uses the GPU though nobody gave it to the container
    processes: int | None = None
    memory: Bytes | None = None
    memory_method: Method | None = None
    memory_total: Bytes | None = None  # what it may use: HAMi limit, instance, or GPU / ratio
    sm: Ratio | None = None
    sm_method: Method | None = None
    sm_burst: Burst | None = None
    sm_seconds: Seconds | None = None  # since the agent first saw it
    energy: Joules | None = None
    energy_method: Method | None = None
    power: Watts | None = None  # its part of the GPU's power over the last sample


class PodUsage(Struct, frozen=True, kw_only=True):
    """The containers of one pod on one GPU, added up."""

    namespace: str
    pod: str
    pod_uid: PodUID
    gpu: DeviceUUID
    gpu_index: int
    memory: Bytes | None = None
    memory_total: Bytes | None = None
    sm: Ratio | None = None


class Vgpu(Struct, frozen=True, kw_only=True):
    """What HAMi's region says of one container and one of its devices, after our corrections."""

    key: ContainerKey
    index: int
    gpu: DeviceUUID
    used: Bytes
    limit: Bytes  # 0: unlimited
    context: Bytes
    module: Bytes
    buffer: Bytes
    offset: Bytes
    sm: Ratio  # Σ of its processes; may pass 1
    sm_limit: Ratio  # 1.0: unlimited
    priority: int
    blocked: bool
    last_kernel: int  # unix seconds; 0: not recorded


class Split(Struct, frozen=True, kw_only=True):
    """A total that adds up: total = containers + system + unattributed (+ ended, for counters; + free, for memory)."""

    total: float
    containers: float
    system: float
    unattributed: float
    free: float | None = None
    ended: float | None = None  # what containers used that are gone by now


class Ledger(Struct, frozen=True, kw_only=True):
    """Where a GPU's (or an instance's) memory, SM time and energy went. None: not measured."""

    gpu: DeviceUUID
    mig: DeviceUUID | None = None
    memory: Split | None = None  # bytes
    sm_seconds: Split | None = None  # since the agent first saw the GPU
    energy: Split | None = None  # joules, since the agent first saw the GPU


class GpuUsage(Struct, frozen=True, kw_only=True):
    """One GPU with what was concluded about it."""

    gpu: Gpu
    mode: Mode | None  # None: free, nobody was given it and nobody uses it
    holder: ContainerKey | None = None  # the one container that has the whole GPU
    sharers: int = 0  # containers that hold or use it
    utilization_burst: Burst | None = None
    memory_controller_burst: Burst | None = None
    memory_burst: Burst | None = None
    power_burst: Burst | None = None
    sm_clock_burst: Burst | None = None
    busy_seconds: Seconds | None = None  # ∫ utilisation dt: rate() of it is the true mean between any two scrapes
    energy: Joules | None = None  # as a counter that survives a driver reload


class MigHolding(Struct, frozen=True, kw_only=True):
    """A MIG instance and the container that HAMi says holds it."""

    key: ContainerKey
    index: int
    gpu: DeviceUUID
    mig: DeviceUUID | None
    profile: str
    gpu_instance: int | None
    compute_instance: int | None


class Tally(Struct, frozen=True, kw_only=True):
    """Events counted since the agent started, by what happened."""

    corrections: dict[str, int] = {}  # false-zero, dead-process, …
    dropped: dict[str, int] = {}  # driver values refused as garbage, by reason
    scaled: dict[str, int] = {}  # ledger rows cut down because together they passed the total, by resource
    ended: int = 0  # containers that went away
    errors: dict[str, int] = {}  # by error code


class Dispute(Struct, frozen=True, kw_only=True):
    """A region or annotation names devices that were not assigned to its container, or are not on the node."""

    key: ContainerKey
    devices: int
    example: str  # one of their UUIDs, as written


class NodeSnapshot(Struct, frozen=True, kw_only=True):
    """One sample of a node, complete: what every view of the agent is made from."""

    at: float
    node: str
    ratio: float
    driver_version: str | None = None
    cuda_version: str | None = None
    gpus: tuple[GpuUsage, ...] = ()
    ledgers: tuple[Ledger, ...] = ()
    containers: tuple[ContainerUsage, ...] = ()
    pods: tuple[PodUsage, ...] = ()
    vgpus: tuple[Vgpu, ...] = ()
    migs: tuple[MigHolding, ...] = ()
    xids: tuple[XidCount, ...] = ()
    last_xid: tuple[tuple[DeviceUUID, int], ...] = ()
    regions: int = 0  # read in this sample
    regions_refused: dict[str, int] = {}  # now, by reason
    disputes: tuple[Dispute, ...] = ()
    unknown_devices: tuple[Dispute, ...] = ()  # in annotations: devices that the node does not have
    regions_orphaned: int = 0  # directories whose pod is gone: HAMi's monitor removes them, we never do
    sources: tuple[SourceState, ...] = ()
    tally: Tally = Tally()
    sample_seconds: float | None = None
    samples: int = 0
