"""Scripted pods: the plan of a workload (Job), and each pod made from it (Life) with its processes."""

from dataclasses import dataclass, field
from random import Random
from typing import Literal, NamedTuple

from vgpuscope.sim.workloads import Demand, Shape

Phase = Literal["Pending", "Running", "Succeeded", "Failed"]
Ending = Literal["exit", "kill"]

HOUR = 3600.0
LONG_AGO = 87240.0  # seconds: a day and some minutes; chosen so that no job starts or ends when the demo begins
_PENDING = 1.5  # seconds from creation to a running container
HOST_PID_DELAY = 2.0  # seconds after the start of a process until HAMi knows its host pid


class Hami(NamedTuple):
    """What HAMi's scheduler allocates on each GPU."""

    memory: int  # MiB; 0: no limit
    cores: int = 0  # percent; 0: no limit
    priority: int = 1
    layout: str = "v1.2"


class Timeline(NamedTuple):
    """When the lives of a job begin, in seconds after the start of the demo, and how long each lasts (None: no end)."""

    first: float = -LONG_AGO
    life: float | None = None
    period: float | None = None
    ends: Phase = "Succeeded"
    linger: float = 12.0  # seconds for which a finished pod stays listed

    def born(self, elapsed: float) -> float | None:
        """When the current life began; None before the first life and between two lives."""
        if elapsed < self.first:
            return None
        turn = int((elapsed - self.first) // self.period) if self.period else 0
        born = self.first + turn * (self.period or 0.0)
        return born if self.life is None or elapsed < born + self.life + self.linger else None


class Before(NamedTuple):
    """What a job did before the demo: it used this shape until `ended` seconds before the start of the demo."""

    ended: float
    shape: Shape


class Job(NamedTuple):
    """A workload as planned. Without hami, resource and claim, it uses the GPU without an allocation."""

    name: str
    shape: Shape | None  # None: never starts CUDA
    gpus: tuple[int, ...] = (0,)
    namespace: str = "default"
    container: str = "main"
    timeline: Timeline = Timeline()
    hami: Hami | None = None
    resource: str | None = None  # resource of the device plugin
    replicas: tuple[int, ...] = ()  # indices of the replicas of a time-sliced or MPS GPU
    instances: tuple[int, ...] = ()  # MIG indices on the one GPU
    claim: str | None = None  # a DRA claim
    workers: int = 1
    warmup: float = 4.0  # seconds from the start of the container to CUDA
    killed_every: float | None = None  # seconds after which the last worker is killed (SIGKILL), again and again
    respawned_after: float = 25.0  # seconds after which a killed worker is replaced
    sidecar: str | None = None  # a second container without a GPU
    kind: Literal["C", "M", "G"] = "C"
    command: str = "python3"
    host: bool = False  # a process of the host, not a pod
    qos: Literal["Guaranteed", "Burstable", "BestEffort"] = "Burstable"
    cpu: float = 0.05  # cores of its node
    static: bool = False  # a static pod: its cgroups carry the configuration hash
    before: Before | None = None  # None: its shape was always the same
    pinned: bool = False  # its pods name their GPUs, so that the scheduler chooses no others

    @property
    def restarts(self) -> bool:
        """Whether its pods follow one another and therefore need different names."""
        return self.timeline.period is not None


@dataclass
class Process:
    """One process of a life: one pid for all engines that it uses."""

    pid: int
    inner_pid: int
    began: float  # seconds after the demo began
    worker: int
    command: str
    ended: Ending | None = None
    demand: Demand = field(default_factory=Demand)
    memory: dict[int, int] = field(default_factory=dict)  # bytes by GPU, as HAMi's library counts them
    sm: dict[int, float] = field(default_factory=dict)  # share by GPU, after SM time was divided among the processes


@dataclass
class Life:
    """One pod, from creation to deletion."""

    job: Job
    born: float
    uid: str
    name: str
    container_id: str
    sidecar_id: str
    config_hash: str
    region_name: str
    random: Random
    processes: list[Process] = field(default_factory=list)
    spawned: int = 0  # number of processes started so far
    blocked: bool = False  # by a container of higher priority
    waits: bool = False  # for a scheduler; its job's GPUs are only planned
    notes: dict[str, str] | None = None  # the annotations that the scheduler and the device plugin wrote

    def phase(self, elapsed: float) -> Phase:
        """The phase in its pod status."""
        if self.waits:
            return "Pending"
        age = elapsed - self.born
        if self.job.timeline.life is not None and age >= self.job.timeline.life:
            return self.job.timeline.ends
        return "Running" if age >= _PENDING else "Pending"

    def wanted_workers(self, elapsed: float) -> int:
        """The number of processes that it should have now."""
        age = elapsed - self.born - _PENDING - self.job.warmup
        if self.job.shape is None or age < 0 or self.phase(elapsed) != "Running":
            return 0
        if self.job.killed_every is not None and age % self.job.killed_every > self._kill_point():
            return self.job.workers - 1
        return self.job.workers

    def running(self) -> list[Process]:
        """The processes that have not ended."""
        return [p for p in self.processes if p.ended is None]

    def _kill_point(self) -> float:
        assert self.job.killed_every is not None
        return self.job.killed_every - self.job.respawned_after
