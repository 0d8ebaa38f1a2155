"""The state of the simulated driver, as stored in devices.json. Units are the driver's own."""

from typing import Literal

from msgspec import Struct

NO_INSTANCE = 0xFFFFFFFF


class Utilization(Struct, frozen=True, kw_only=True):
    """One utilisation sample of one process: percent, with its wall-clock time in microseconds."""

    at: int
    sm: int
    memory: int = 0
    encoder: int = 0
    decoder: int = 0


class ProcessState(Struct, frozen=True, kw_only=True):
    """One process on a GPU."""

    pid: int
    kinds: tuple[Literal["C", "G", "M"], ...]
    memory: int | None
    gpu_instance: int = NO_INSTANCE
    compute_instance: int = NO_INSTANCE
    sample: Utilization | None = None  # None: the process did no work


class InstanceState(Struct, frozen=True, kw_only=True):
    """One MIG device."""

    index: int
    uuid: str
    name: str
    gpu_instance: int
    compute_instance: int
    total: int
    reserved: int
    used: int
    slices: int
    memory_slices: int
    gpm: dict[int, float] | None = None  # of its GPU instance, by metric; None: the driver has no GPM for it


class GpuState(Struct, frozen=True, kw_only=True):
    """One GPU. None: the GPU does not support the query."""

    index: int
    uuid: str
    name: str
    serial: str | None
    bus_id: str
    total: int
    reserved: int
    used: int
    busy: int | None  # percent
    memory_busy: int | None
    encoder: int | None
    decoder: int | None
    power_mw: int
    limit_mw: int
    energy_mj: int
    temperature: int
    memory_temperature: int
    sm_mhz: int
    sm_max_mhz: int
    memory_mhz: int
    memory_max_mhz: int
    throttle: int
    sent: int
    received: int
    ecc: tuple[int, int] | None
    remapped: tuple[int, int, int, int] | None
    fan: int | None = None
    mig: bool | None = None  # None: the GPU does not support MIG
    max_instances: int = 0
    instances: tuple[InstanceState, ...] = ()
    processes: tuple[ProcessState, ...] = ()
    lost: bool = False
    hung: bool = False
    gpm: dict[int, float] | None = None  # by metric, in percent and MiB/s; None: the GPU has no GPM
    gpm_instances_only: bool = False  # samples of the whole GPU are refused, as some drivers do in MIG mode


class XidState(Struct, frozen=True, kw_only=True):
    """One XID event; the numbers increase, so that a reader sees each event once."""

    number: int
    uuid: str
    xid: int


class DriverState(Struct, frozen=True, kw_only=True):
    """The state of the whole driver at one moment."""

    driver: str
    cuda: int
    gpus: tuple[GpuState, ...]
    xids: tuple[XidState, ...] = ()
