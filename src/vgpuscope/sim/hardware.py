"""Physical GPUs: memory adds up, power follows load, temperature follows power."""

import math
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

MIB = 1024 * 1024


class Spec(NamedTuple):
    """Properties of a GPU model. MiB, watts, MHz."""

    name: str
    memory: int
    reserved: int
    idle_watts: float
    limit_watts: float
    sm_clock: int
    memory_clock: int
    mig: bool = True
    remapping: bool = True  # row remapping came with Ampere
    codecs: bool = True  # has video engines
    serial: bool = True
    gpm: bool = False  # profiling counters in the driver came with Hopper


A100_80 = Spec("NVIDIA A100-SXM4-80GB", 81920, 635, 62, 400, 1410, 1593)
A100_40 = Spec("NVIDIA A100-PCIE-40GB", 40960, 581, 36, 250, 1410, 1215)
H100 = Spec("NVIDIA H100 80GB HBM3", 81559, 551, 70, 700, 1980, 2619, gpm=True)
T4 = Spec("Tesla T4", 15360, 443, 10, 70, 1590, 5001, mig=False, remapping=False)
L4 = Spec("NVIDIA L4", 23034, 534, 14, 72, 2040, 6251, mig=False)
A30 = Spec("NVIDIA A30", 24576, 512, 29, 165, 1440, 1215)

_IDLE_CLOCK = 210
_AMBIENT = 29.0
_POWER_LAG = 1.5  # seconds
_HEAT_LAG = 25.0
_BASE_USED = 4 * MIB  # held by the driver, but not counted as reserved
_FREE_RUNNING = 0.93  # share of the power limit above which the GPU throttles


@dataclass(frozen=True)
class Instance:
    """A MIG device. Two with the same gpu_instance share their memory."""

    index: int
    uuid: str
    gpu_instance: int
    compute_instance: int
    profile: str
    memory: int  # MiB, of the whole GPU instance
    slices: int  # compute slices of this device, of the GPU's seven

    @property
    def total(self) -> int:
        """Memory of its GPU instance, in bytes."""
        return self.memory * MIB

    @property
    def reserved(self) -> int:
        """Memory of the GPU instance that the driver reserves, in bytes."""
        return self.memory // 160 * MIB


@dataclass
class Load:
    """The demand of all processes on a GPU at one moment."""

    sm: float = 0.0  # 0-1
    memory: int = 0
    encoder: float = 0.0
    decoder: float = 0.0


@dataclass
class SimGpu:
    """One GPU with its temperature, load and memory use."""

    spec: Spec
    index: int
    uuid: str
    serial: str
    bus_id: str
    random: Random
    mig: bool = False
    instances: list[Instance] = field(default_factory=list)
    load: Load = field(default_factory=Load)
    power: float = 0.0
    temperature: float = 0.0
    energy: float = 0.0  # joules since the driver was loaded
    sent: float = 0.0
    received: float = 0.0
    ecc_uncorrected: int = 0
    remap_pending: bool = False
    lost: bool = False
    hung: bool = False

    def __post_init__(self) -> None:
        self.power = self.spec.idle_watts
        self.temperature = _AMBIENT + 4

    @property
    def total(self) -> int:
        """Memory of the GPU, in bytes."""
        return self.spec.memory * MIB

    @property
    def reserved(self) -> int:
        """Memory that the driver reserves, in bytes."""
        return self.spec.reserved * MIB

    @property
    def used(self) -> int:
        """Memory in use without the reserved memory, in bytes."""
        return _BASE_USED + self.load.memory

    @property
    def room(self) -> int:
        """Memory that processes can allocate altogether, in bytes."""
        return self.total - self.reserved - _BASE_USED

    @property
    def busy(self) -> float:
        """Share of time with a kernel on the GPU."""
        return min(1.0, self.load.sm)

    @property
    def sm_clock(self) -> float:
        """MHz; falls when the GPU is idle or reaches its power limit."""
        if self.busy == 0:
            return _IDLE_CLOCK
        over = max(0.0, self.power / self.spec.limit_watts - _FREE_RUNNING)
        return self.spec.sm_clock * (1 - 2 * over)

    @property
    def throttle(self) -> int:
        """The driver's bit mask: 1 idle, 4 power cap."""
        if self.busy == 0:
            return 1
        return 4 if self.power > _FREE_RUNNING * self.spec.limit_watts else 0

    def step(self, seconds: float) -> None:
        """Advances the GPU under the current load."""
        spec, busy = self.spec, self.busy
        wanted = spec.idle_watts + (spec.limit_watts - spec.idle_watts) * 0.97 * busy**0.85
        wanted *= 1 + self.random.uniform(-0.02, 0.02)
        self.power += (wanted - self.power) * -math.expm1(-seconds / _POWER_LAG)
        self.power = min(self.power, spec.limit_watts)
        self.energy += self.power * seconds
        warm = _AMBIENT + 4 + 44 * self.power / spec.limit_watts
        self.temperature += (warm - self.temperature) * -math.expm1(-seconds / _HEAT_LAG)
        self.sent += busy * 1.4e9 * seconds
        self.received += busy * 2.9e9 * seconds

    def settle(self, load: Load) -> None:
        """Applies a load as if it had lasted for hours, so that the first values are already warm."""
        self.load = load
        for _ in range(8):
            self.step(30)
        self.energy = self.power * self.random.uniform(2e5, 9e5)

    def reset(self) -> None:
        """Restarts the GPU after a reset: its counters start at 0."""
        self.lost, self.remap_pending = False, False
        self.energy = self.sent = self.received = 0.0
        self.ecc_uncorrected = 0
        self.power, self.temperature = self.spec.idle_watts, _AMBIENT + 6
