"""What the driver reports of the GPUs of a node at one moment. None: the driver did not report it."""

from typing import Literal, get_args

from msgspec import Struct

from vgpuscope.model.quantity import Bytes, Celsius, DeviceUUID, Hertz, Joules, Pid, Ratio, Watts

Health = Literal["ok", "lost", "reset-required", "unresponsive", "no-permission", "error"]
HEALTH: tuple[Health, ...] = get_args(Health)

ThrottleReason = Literal[
    "idle",
    "app-clocks",
    "sw-power-cap",
    "hw-slowdown",
    "sync-boost",
    "sw-thermal",
    "hw-thermal",
    "hw-power-brake",
    "display-clocks",
]
THROTTLE_REASONS: tuple[ThrottleReason, ...] = get_args(ThrottleReason)

ProcessKind = Literal["compute", "graphics", "mps"]


class Memory(Struct, frozen=True, kw_only=True):
    """Frame buffer of a GPU or instance; total = used + free + reserved."""

    total: Bytes
    used: Bytes  # without the memory that the driver reserves
    free: Bytes
    reserved: Bytes | None = None  # None: an old driver, which includes it in used


class GpuProcess(Struct, frozen=True, kw_only=True):
    """One process that the driver lists on a GPU or MIG instance: listed once, whichever engines it uses."""

    pid: Pid
    kinds: frozenset[ProcessKind]
    memory: Bytes | None = None
    sm: Ratio | None = None  # share of SM time since the last sample; 0 when the driver has no sample of it
    encoder: Ratio | None = None
    decoder: Ratio | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None


class MigInstance(Struct, frozen=True, kw_only=True):
    """One MIG device. Two compute instances of one GPU instance share its memory pool."""

    uuid: DeviceUUID
    index: int  # within its GPU; numbers may have gaps
    gpu_instance: int
    compute_instance: int
    profile: str | None = None  # "1g.10gb"
    memory: Memory | None = None
    processes: tuple[GpuProcess, ...] | None = None
    slices: int | None = None  # compute slices of the instance; a GPU has seven
    profile_id: int | None = None  # of its GPU instance, as the driver numbers profiles
    start: int | None = None  # the first memory slice of its GPU instance
    size: int | None = None  # the number of its memory slices


class Gpu(Struct, frozen=True, kw_only=True):
    """One physical GPU in one sample."""

    uuid: DeviceUUID
    index: int
    model: str
    health: Health = "ok"
    serial: str | None = None
    minor: int | None = None
    pci_bus_id: str | None = None
    mig_enabled: bool | None = None
    memory: Memory | None = None
    utilization: Ratio | None = None  # share of time with at least one kernel; not how many SMs were busy
    memory_controller: Ratio | None = None  # share of time in which memory was accessed; not how full it is
    encoder: Ratio | None = None
    decoder: Ratio | None = None
    jpeg: Ratio | None = None
    ofa: Ratio | None = None
    power: Watts | None = None
    power_limit: Watts | None = None  # the enforced limit
    power_limit_max: Watts | None = None  # the highest limit that can be set
    energy: Joules | None = None  # since the driver was loaded
    temperature: Celsius | None = None
    memory_temperature: Celsius | None = None
    sm_clock: Hertz | None = None
    memory_clock: Hertz | None = None
    sm_clock_max: Hertz | None = None
    memory_clock_max: Hertz | None = None
    fan: Ratio | None = None
    throttle: frozenset[ThrottleReason] | None = None
    pcie_sent: Bytes | None = None  # counters since the driver was loaded, if the driver has them
    pcie_received: Bytes | None = None
    pcie_replays: int | None = None  # since the driver was loaded
    ecc_corrected: int | None = None  # since the driver was loaded
    ecc_uncorrected: int | None = None
    remapped_corrected: int | None = None
    remapped_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    processes: tuple[GpuProcess, ...] | None = None  # None: the list itself could not be read
    instances: tuple[MigInstance, ...] = ()


class XidCount(Struct, frozen=True, kw_only=True):
    """How often a GPU has reported one XID since the agent began to listen."""

    gpu: DeviceUUID
    xid: int
    count: int


class DeviceReading(Struct, frozen=True, kw_only=True):
    """Everything that the driver reported in one sample."""

    at: float  # unix time of the sample
    driver_version: str | None = None
    cuda_version: str | None = None
    gpus: tuple[Gpu, ...] = ()
    xids: tuple[XidCount, ...] = ()
    last_xid: tuple[tuple[DeviceUUID, int], ...] = ()
    dropped: tuple[tuple[str, int], ...] = ()  # values rejected so far, by reason: garbage is dropped, not clamped
