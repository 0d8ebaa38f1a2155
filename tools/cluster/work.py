"""What containers of the playground do on its simulated GPUs.

A container says it with its variable GPU_WORK: `train`, `serve`, `idle` (the default: memory is held and nothing is
computed) or `none` (no process on the GPU). The stand-in driver then reports processes, memory, activity and power.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.native.scenario import GIB, Scenario, gpu_uuid, mig_uuid
from tools.cluster.containers import Container

MIB = 1 << 20
WHOLE = (0, 1, 2)  # slots of GPUs that pods share
MIG_SLOT = 3  # this one is divided
MEMORY = 80 * GIB
IDLE_POWER, FULL_POWER = 70_000, 640_000  # mW
ENGINE, SM, TENSOR, DRAM = 1, 2, 5, 10  # metrics of GPM


class Instance(NamedTuple):
    """A MIG instance of the divided GPU."""

    gi: int
    profile: str
    slices: int
    memory: int
    placed: tuple[int, int]


INSTANCES = (
    Instance(1, "3g.40gb", 3, 40 * GIB, (9, 0)),
    Instance(9, "1g.10gb", 1, 10 * GIB, (19, 4)),
    Instance(10, "1g.10gb", 1, 10 * GIB, (19, 5)),
)


class Load(NamedTuple):
    """Percent of the SM time and of the container's memory that a process uses; busy work goes up and down."""

    sm: int
    memory: int


LOADS = {"train": Load(sm=82, memory=85), "serve": Load(sm=34, memory=60), "idle": Load(sm=0, memory=40)}


@dataclass
class Work:
    """The driver's state of the node, by the containers that run there."""

    directory: Path
    driver: Scenario = field(init=False)

    def __post_init__(self) -> None:
        self.driver = Scenario(self.directory / "state")
        for slot in (*WHOLE, MIG_SLOT):
            quiet = dict.fromkeys(("encoder", "decoder", "jpeg", "ofa", "pcie_sent", "pcie_received"), 0)
            limits = {"power_limit": 700_000, "power_limit_max": 700_000}
            self.driver.gpu(slot, name="NVIDIA H100 80GB HBM3", memory_total=MEMORY, **limits, **quiet)

    def step(self, containers: Iterable[Container], *, now: float) -> None:
        """Writes what the driver reports now."""
        holders: dict[str, list[Container]] = {}
        for container in containers:
            if container.environ.get("GPU_WORK", "idle") in LOADS:
                for gpu in container.gpus:
                    holders.setdefault(gpu, []).append(container)
        for slot in WHOLE:
            self.driver.empty(slot)
            sm, memory = self._processes(slot, holders.get(gpu_uuid(slot), ()), MEMORY, now=now)
            self._activity(slot, sm, memory)
        self.driver.empty(MIG_SLOT)
        total_sm = total_memory = 0
        for index, instance in enumerate(INSTANCES):
            holding = holders.get(mig_uuid(MIG_SLOT, index), ())
            sm, memory = self._processes(MIG_SLOT, holding, instance.memory, now=now, gi=instance.gi)
            self.driver.mig(
                *(MIG_SLOT, index),
                gi=instance.gi,
                profile=instance.profile,
                slices=instance.slices,
                memory_total=instance.memory,
                memory_used=memory,
                placed=instance.placed,
            )
            self.driver.gpm(MIG_SLOT, _profile(sm), index=index)
            total_sm, total_memory = total_sm + sm * instance.slices // 7, total_memory + memory
        self._activity(MIG_SLOT, total_sm, total_memory)
        self.driver.write()

    def _processes(
        self, slot: int, holders: Iterable[Container], capacity: int, *, now: float, gi: int | None = None
    ) -> tuple[int, int]:
        """Lists a process for each container; percent of the SM time and bytes that they use together."""
        total_sm = total_memory = 0
        for container in holders:
            load = LOADS[container.environ.get("GPU_WORK", "idle")]
            wave = 1 + 0.15 * math.sin(now / 7 + container.pid)
            sm = min(round(load.sm * wave), 100 - total_sm)
            memory = _limit(container, capacity) * load.memory // 100
            self.driver.process(slot, container.pid, memory=memory, gi=gi, ci=None if gi is None else 0)
            if gi is None:  # the driver has no samples of processes in MIG instances
                self.driver.sample(slot, container.pid, sm=sm, mem=sm // 2)
            total_sm, total_memory = total_sm + sm, total_memory + memory
        return total_sm, total_memory

    def _activity(self, slot: int, sm: int, memory: int) -> None:
        power = IDLE_POWER + (FULL_POWER - IDLE_POWER) * sm // 100
        self.driver.gpu(slot, utilization=sm, memory_controller=sm // 2, power=power, memory_used=memory)
        self.driver.gpm(slot, _profile(sm))


def _limit(container: Container, capacity: int) -> int:
    """Bytes that the container may use of each of its GPUs."""
    limit = re.fullmatch(r"(\d+)m", container.environ.get("CUDA_DEVICE_MEMORY_LIMIT_0", ""))
    return min(int(limit[1]) * MIB, capacity) if limit else capacity


def _profile(sm: int) -> dict[int, float]:
    return {ENGINE: min(sm * 1.1, 100.0), SM: float(sm), TENSOR: sm * 0.6, DRAM: sm * 0.5}
