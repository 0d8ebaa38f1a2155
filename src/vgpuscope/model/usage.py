"""What the agent concludes: who uses what of each GPU, so that it adds up."""

from typing import Literal

from msgspec import Struct

from vgpuscope.model.activity import Activity, ActivitySource, Blind
from vgpuscope.model.container_key import ContainerKey as ContainerKey  # noqa: PLC0414 - imported from here
from vgpuscope.model.device import Gpu, XidCount
from vgpuscope.model.host import HostSide, ProcessUse
from vgpuscope.model.pod import SourceState
from vgpuscope.model.quantity import Bytes, DeviceUUID, Joules, PodUID, Ratio, Seconds, Watts

Method = Literal["hami-region", "nvml-process", "mig", "podresources", "share", "gpm", "dcgm"]

# measured: by the driver, of the container's own processes. derived: by a rule from something measured, such as "the
# only container of a GPU has all of it". shared-out: a total divided in proportion.
Certainty = Literal["measured", "derived", "shared-out"]
CERTAINTIES: tuple[Certainty, ...] = ("measured", "derived", "shared-out")

Mode = Literal["hami", "exclusive", "mig", "mps", "time-slicing", "unallocated"]
MODES: tuple[Mode, ...] = ("hami", "exclusive", "mig", "mps", "time-slicing", "unallocated")

State = Literal["not-started", "idle", "active", "unknown"]
STATES: tuple[State, ...] = ("not-started", "idle", "active", "unknown")


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
    memory_certainty: Certainty | None = None
    memory_error: Bytes | None = None  # how far the figure can be off; None: not known
    memory_total: Bytes | None = None  # what it may use: HAMi limit, instance, or GPU / ratio
    sm: Ratio | None = None
    sm_method: Method | None = None
    sm_certainty: Certainty | None = None
    sm_error: Ratio | None = None
    sm_burst: Burst | None = None
    sm_seconds: Seconds | None = None  # since the agent first saw it
    instance_sm: Ratio | None = None  # the same as a share of its MIG instance; None outside MIG
    instance_sm_burst: Burst | None = None
    energy: Joules | None = None
    energy_method: Method | None = None
    energy_certainty: Certainty | None = None
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
    activity: Activity | None = None  # profiling values
    activity_source: ActivitySource | None = None
    activity_blind: Blind = ""  # why the driver has no profiling values
    engine_burst: Burst | None = None
    sm_active_burst: Burst | None = None


class MigUsage(Struct, frozen=True, kw_only=True):
    """One MIG instance with what was concluded about it. None: not measured, or not separable from another instance."""

    gpu: DeviceUUID
    mig: DeviceUUID
    activity: Activity | None = None  # of the instance, not of the whole GPU
    activity_source: ActivitySource | None = None
    engine_burst: Burst | None = None
    sm_active_burst: Burst | None = None
    busy_seconds: Seconds | None = None  # in seconds of the whole GPU, as in the ledger
    energy: Joules | None = None  # its part of the GPU's energy
    energy_method: Method | None = None
    method: Method | None = None  # of busy_seconds


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
    instances: tuple[MigUsage, ...] = ()
    xids: tuple[XidCount, ...] = ()
    last_xid: tuple[tuple[DeviceUUID, int], ...] = ()
    regions: int = 0  # read in this sample
    regions_refused: dict[str, int] = {}  # now, by reason
    disputes: tuple[Dispute, ...] = ()
    unknown_devices: tuple[Dispute, ...] = ()  # in annotations: devices that the node does not have
    forged_assignments: tuple[Dispute, ...] = ()  # in annotations: devices that the scheduler did not assign
    regions_orphaned: int = 0  # directories whose pod is gone: HAMi's monitor removes them, we never do
    sources: tuple[SourceState, ...] = ()
    tally: Tally = Tally()
    host: HostSide = HostSide()  # the node and its containers beside the GPUs
    processes: tuple[ProcessUse, ...] = ()
    sample_seconds: float | None = None
    samples: int = 0
