"""The parts of a case: GPUs, exporters, and the truth about each GPU."""

import random
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import Struct

from bench.trust_scrapes import Setup, Target
from bench.trust_world import A100, Gpu, Instance, Signal, Tenant, flat, never

BUSY, IDLE, PREPARING, UNPROVEN, EITHER = "busy", "idle", "preparing", "unproven", "either"
# busy: it worked within the window, and some exporter shows it; `idle` is wrong
# idle: it did no work within the window, and samples prove it; only `idle` is right, of any class but idle-preparing
# preparing: the same, but the CPUs of its tenant were busy; only `idle` of the class idle-preparing is right
# unproven: evidence is missing or contradictory; `idle` is wrong, whatever the GPU did
# either: it did no work, but a careful judge may want more evidence; no answer is counted


class Subject(NamedTuple):
    """What is judged: a GPU, a MIG instance of it, or one tenant of either."""

    uuid: str
    instance: str = ""  # GPU instance id
    pod: str = ""


class Kind(Struct, frozen=True, kw_only=True):
    """One kind of workload or fault."""

    name: str
    truth: str
    setups: tuple[Setup, ...]
    make: Callable[["Case"], None]
    world: str
    own: tuple[str, ...]  # schemas in which an analyzer with its own scrapes can see this kind


class Case:
    """One case of a kind: a builder for its GPUs and targets."""

    def __init__(self, kind: Kind, setup: Setup, *, window: float, number: int) -> None:
        self.kind, self.setup, self.window, self.number = kind, setup, window, number
        self.dice = random.Random(f"{kind.name} {setup.name} {number}")
        self.scale = min(1.0, window / 600)
        self.collect = min(30.0 * self.scale, setup.interval)
        self.gpus: list[Gpu] = []
        self.targets: list[Target] = []
        self.truth: dict[Subject, str] = {}
        self.begin, self.end = -1.5 * window, 0.3 * window

    @property
    def s(self) -> float:
        """Seconds between two scrapes."""
        return self.setup.interval

    @property
    def agent(self) -> bool:
        """Whether our own agent is the exporter."""
        return self.setup.schema == "agent"

    @property
    def seen(self) -> float:
        """Seconds that a burst must last to be sampled."""
        return 1.2 * max(self.s, self.collect)

    def m(self, minutes: float) -> float:
        """Seconds for this many minutes of a ten-minute window, scaled to the actual window."""
        return minutes * self.window / 10

    def somewhen(self, length: float = 0.0) -> float:
        """A random time well within the window, with room for this length after it."""
        return self.dice.uniform(-self.m(8.5), -self.m(1) - length)

    def gpu(self, compute: Signal = never, *, memory: float | Signal = 21_000.0, pod: str = "", **more: Any) -> Gpu:
        """A GPU; one pod has it, unless tenants or instances are given."""
        number = self.number * 64 + len(self.gpus)
        if not {"tenants", "instances"} & more.keys():
            holds = memory if callable(memory) else flat(memory)
            more["tenants"] = (Tenant(pod=pod or self.pod(), compute=compute, memory=holds),)
        usual: dict[str, Any] = {"model": A100, "node": f"node-{self.number:04d}", "collect": self.collect}
        usual |= {"begin": self.begin, "end": self.end, "agent_window": 60 * self.scale}
        made = Gpu(number=number, **(usual | more))
        self.gpus.append(made)
        self.truth[Subject(made.uuid)] = self.kind.truth
        return made

    def pod(self, suffix: str = "") -> str:
        """A name for a pod of this case."""
        return f"{re.sub('[^a-z0-9]+', '-', self.kind.name.lower())[:30].strip('-')}-{self.number}{suffix}"

    def target(self, *gpus: Gpu, **more: Any) -> Target:
        """An exporter; without GPUs given, it shows all GPUs of the case."""
        instance = f"10.{self.number >> 8 & 255}.{self.number & 255}.{17 + len(self.targets)}:9400"
        job = f"{self.setup.schema}-{self.setup.relabel}-{self.s:g}s"  # honor_labels is a setting of a scrape job
        usual: dict[str, Any] = {"setup": self.setup, "job": job, "instance": instance}
        usual |= {"phase": -self.dice.uniform(0.05, 0.95) * self.s}
        made = Target(gpus=gpus or tuple(self.gpus), **(usual | more))
        self.targets.append(made)
        return made

    def shows(self, gpu: Gpu, **more: Any) -> None:
        """Adds an exporter with one GPU."""
        self.target(gpu, **more)

    def shared(self, *tenants: tuple[Tenant, str], mode: str = "hami", gpu: str | None = None, **more: Any) -> Gpu:
        """A GPU with several tenants, and the truth about each of them."""
        made = self.gpu(tenants=tuple(one for one, _ in tenants), mode=mode, **more)
        self.truth[Subject(made.uuid)] = gpu or self.kind.truth
        for one, truth in tenants:
            self.truth[Subject(made.uuid, pod=one.pod)] = truth
        return made

    def cut(self, *instances: tuple[Instance, str], **more: Any) -> Gpu:
        """A GPU in MIG mode, and the truth about each MIG instance."""
        made = self.gpu(instances=tuple(one for one, _ in instances), mode="mig", **more)
        idle = all(truth == IDLE for _, truth in instances)
        self.truth[Subject(made.uuid)] = EITHER if idle else UNPROVEN  # the whole GPU needs no verdict
        for one, truth in instances:
            self.truth[Subject(made.uuid, instance=str(one.gi))] = truth
            if one.compute_shown:
                self.truth[Subject(made.uuid, instance=str(one.gi), pod=one.tenant.pod)] = truth
        return made

    def worked(self, subject: Subject) -> bool:
        """Whether the subject worked within the window, by the known activity of every second."""
        gpu = next(one for one in self.gpus if one.uuid == subject.uuid)
        seconds = range(int(-self.window), 1)
        for one in gpu.instances:
            if str(one.gi) == subject.instance:
                return any(max(one.tenant.compute(t), one.decoder(t)) >= 0.05 for t in seconds)
        for tenant in gpu.tenants:
            if tenant.pod == subject.pod and not self._alone(gpu):
                return any(tenant.there(t) and tenant.compute(t) >= 0.05 for t in seconds)
        return any(gpu.works(t) for t in seconds)

    @staticmethod
    def _alone(gpu: Gpu) -> bool:
        return len(gpu.tenants) == 1
