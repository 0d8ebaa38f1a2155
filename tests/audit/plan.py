"""Random fleets as plans: nodes, GPUs, pods and their past. A seed always gives the same plan.

A plan is made of constants (a tenant's memory, its share of SM time), so that what a page must show can be added up by
hand; `truth.py` does that. Nothing here imports the package that is tested.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal

HOURS = (0, 1, 3, 7, 26)  # of the past that a world has
GIB = 1024  # MiB

NodeKind = Literal["hami", "whole", "mig", "sliced", "mps", "registered", "counted"]
AgentState = Literal["up", "dead", "stopped", "absent"]  # stopped: its page still shows the sample of an hour ago


@dataclass(frozen=True)
class Model:
    """A GPU model. MiB, watts."""

    name: str
    memory: int
    idle_watts: int
    limit_watts: int
    profiled: bool = False  # the driver has profiling counters, also for MIG instances


A100 = Model("NVIDIA A100-SXM4-80GB", 81920, 60, 400)
A100_40 = Model("NVIDIA A100-PCIE-40GB", 40960, 40, 250)
H100 = Model("NVIDIA H100 80GB HBM3", 81920, 70, 700, profiled=True)
T4 = Model("Tesla T4", 15360, 10, 70)
L4 = Model("NVIDIA L4", 23040, 14, 72)


@dataclass(frozen=True)
class Instance:
    """A MIG instance of a GPU."""

    uuid: str
    profile: str
    memory: int  # MiB
    slices: int  # of seven
    number: int  # its GPU instance


PROFILES = {"3g.40gb": (40192, 3), "2g.20gb": (19968, 2), "1g.10gb": (9728, 1)}
LAYOUTS = (
    ("3g.40gb", "2g.20gb", "1g.10gb"),  # one slice is not cut
    ("3g.40gb",),
    ("2g.20gb", "2g.20gb", "1g.10gb", "1g.10gb"),
    ("1g.10gb",) * 7,
)


@dataclass(frozen=True)
class Gpu:
    uuid: str
    model: Model
    instances: tuple[Instance, ...] = ()
    healthy: bool = True  # as the device plugin registers it
    cordoned: bool = False


@dataclass(frozen=True)
class Node:
    name: str
    kind: NodeKind
    gpus: tuple[Gpu, ...]
    agent: AgentState = "up"
    scaling: int = 1  # HAMi allocates so many times the memory and cores that there are
    schedulable: bool = True
    ready: bool = True

    @property
    def hami(self) -> bool:
        return self.kind in {"hami", "registered"}

    @property
    def seen(self) -> bool:
        """Whether an agent reports its GPUs now."""
        return self.agent == "up"


@dataclass(frozen=True)
class Use:
    """What a container has of one GPU or MIG instance, and what it does there."""

    node: str
    gpu: str
    instance: str | None
    container: str
    allocated: int | None  # MiB that HAMi has allocated; None: not by HAMi
    cores: int | None  # percent that HAMi has allocated
    used: int  # MiB
    sm: int  # percent of the GPU's SM time
    replica: int | None = None  # of a time-sliced or MPS GPU


@dataclass(frozen=True)
class Pod:
    namespace: str
    name: str
    uid: str
    uses: tuple[Use, ...]
    since: int = -1000  # the hour in which it began, counted back from now: -3 is three hours ago
    until: int = 1000  # the hour before which it ended
    idle_before: int = -1000  # until this hour it did nothing
    containers: tuple[str, ...] = ("main",)
    init: str | None = None  # an init container that had the same GPU, and has ended
    owner: str = ""
    listed: bool = True  # False: only the kubelet names it; no list of pods has it, nor does anybody know its UID

    def lives(self, hour: int) -> bool:
        return self.since <= hour < self.until

    def sm(self, use: Use, hour: int) -> int:
        return 0 if hour < self.idle_before else use.sm


@dataclass(frozen=True)
class Waiting:
    namespace: str
    name: str
    memory: int  # MiB


@dataclass(frozen=True)
class Plan:
    seed: int
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]  # of now and of the past
    waiting: tuple[Waiting, ...]
    quotas: dict[str, int]  # MiB by namespace
    hours: int  # of the past
    missing: frozenset[int] = field(default=frozenset())  # hours in which no analyzer ran

    @property
    def current(self) -> tuple[Pod, ...]:
        return self.at(0)

    def at(self, hour: int) -> tuple[Pod, ...]:
        return tuple(pod for pod in self.pods if pod.lives(hour))

    def uses(self, hour: int = 0) -> Iterator[tuple[Pod, Use]]:
        for pod in self.at(hour):
            for use in pod.uses:
                yield pod, use

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    @property
    def tenant_namespaces(self) -> list[str]:
        return sorted({pod.namespace for pod in self.pods})


NAMESPACES = ("ml-team", "serving", "research", "batch")
OWNERS = ("StatefulSet", "ReplicaSet", "")


def plan(seed: int) -> Plan:
    """The fleet of a seed."""
    return _Maker(seed).plan()


def rich(seed: int, *, hours: int) -> Plan:
    """A fleet with a node of every kind."""
    maker = _Maker(seed)
    maker.hours = hours
    return maker.plan(("hami", "whole", "mig", "sliced", "mps", "registered", "counted"))


class _Maker:
    def __init__(self, seed: int) -> None:
        self.seed, self.random = seed, Random(f"world {seed}")
        self.pods: list[Pod] = []
        self.hours = self.random.choice(HOURS)

    def plan(self, kinds: tuple[NodeKind, ...] = ()) -> Plan:
        kinds = kinds or self._kinds()
        nodes = tuple(self._node(f"{kind}-{number}", kind) for number, kind in enumerate(kinds))
        nodes = self._one_agent_is_silent(nodes)
        for node in nodes:
            self._fill(node)
        spaces = sorted({pod.namespace for pod in self.pods}) or ["ml-team"]
        return Plan(
            seed=self.seed,
            nodes=nodes,
            pods=tuple(self.pods),
            waiting=tuple(
                Waiting(self.random.choice([*spaces, "lonely"]), f"waits-{number}", self.random.choice((4, 200)) * GIB)
                for number in range(self.random.randint(0, 3))
            ),
            quotas={name: self.random.randint(1, 200) * GIB for name in spaces if self.random.random() < 0.5},
            hours=self.hours,
            missing=frozenset(h for h in range(-self.hours, 0) if h != -self.hours and self.random.random() < 0.1),
        )

    def _kinds(self) -> tuple[NodeKind, ...]:
        kinds: list[NodeKind] = self.random.sample(("hami", "whole", "mig", "sliced", "mps"), self.random.randint(1, 3))
        kinds += [kind for kind in ("registered", "counted") if self.random.random() < 0.4]
        return tuple(kinds)

    def _one_agent_is_silent(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """At most one of several agents is dead or has stopped sampling."""
        seen = [node for node in nodes if node.agent == "up"]
        if len(seen) < 2 or self.random.random() < 0.6:
            return nodes
        silent, states = self.random.choice(seen), list[AgentState](("dead", "stopped"))
        state = self.random.choice(states)
        return tuple(replace(node, agent=state) if node is silent else node for node in nodes)

    def _node(self, name: str, kind: NodeKind) -> Node:
        random = self.random
        model = {
            "hami": random.choice((A100, A100_40, H100)),
            "whole": random.choice((A100, H100, A100_40)),
            "mig": random.choice((A100, H100)),
            "sliced": T4,
            "mps": L4,
            "registered": A100_40,
            "counted": A100,
        }[kind]
        gpus = tuple(self._gpu(kind, model) for _ in range(random.randint(1, 4)))
        return Node(
            name=name,
            kind=kind,
            gpus=gpus,
            agent="absent" if kind in {"registered", "counted"} else "up",
            scaling=random.choice((1, 2)) if kind == "hami" else 1,
            schedulable=random.random() < 0.85,
            ready=random.random() < 0.85 or kind not in {"registered"},
        )

    def _gpu(self, kind: NodeKind, model: Model) -> Gpu:
        random = self.random
        cut = kind == "mig" and random.random() < 0.75
        return Gpu(
            uuid=f"GPU-{self._uuid()}",
            model=model,
            instances=tuple(
                Instance(f"MIG-{self._uuid()}", profile, *PROFILES[profile], number + 1)
                for number, profile in enumerate(random.choice(LAYOUTS))
            )
            if cut
            else (),
            healthy=kind not in {"hami", "registered"} or random.random() < 0.85,
            cordoned=kind in {"hami", "registered"} and random.random() < 0.15,
        )

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    # pods

    def _fill(self, node: Node) -> None:
        fill = {
            "hami": self._share,
            "registered": self._share,
            "whole": self._one_each,
            "mig": self._one_each,
            "sliced": self._replicas,
            "mps": self._replicas,
            "counted": self._nothing,
        }[node.kind]
        fill(node)

    def _nothing(self, node: Node) -> None:
        """Its GPUs have no names, so no pod is known to be on one of them."""

    def _share(self, node: Node) -> None:
        """HAMi: several pods share a GPU; some have two containers, or two GPUs."""
        random = self.random
        free = {gpu.uuid: gpu.model.memory * node.scaling for gpu in node.gpus}
        room = {gpu.uuid: gpu.model.memory - 2 * GIB for gpu in node.gpus}
        busy = dict.fromkeys(free, 0)
        for _ in range(random.randint(0, 3 * len(node.gpus))):
            containers = ("main", "helper") if random.random() < 0.25 else ("main",)
            gpus = random.sample(list(free), min(len(free), random.choice((1, 1, 1, 2))))
            memory = random.choice((4, 8, 10, 20)) * GIB
            cores = random.choice((0, 10, 30))
            uses = []
            for gpu in gpus:
                for container in containers:
                    used = random.choice((0, 600, memory // 2, memory - 512))
                    sm = random.choice((0, 0, 12, 20)) if used else 0
                    if free[gpu] < memory or room[gpu] < used or busy[gpu] + sm > 90:
                        continue
                    free[gpu] -= memory
                    room[gpu] -= used
                    busy[gpu] += sm
                    uses.append(Use(node.name, gpu, None, container, memory, cores or None, used, sm))
            if len(uses) == len(gpus) * len(containers):
                init = "prepare" if node.seen and random.random() < 0.15 else None
                self._add(tuple(uses), containers=containers, init=init)

    def _one_each(self, node: Node) -> None:
        """One pod on each GPU or MIG instance, or none."""
        random = self.random
        for gpu in node.gpus:
            for part in gpu.instances or (None,):
                if random.random() < 0.3:
                    continue
                memory = part.memory if part else gpu.model.memory
                used = random.choice((0, 600, memory // 4, memory // 2))
                sm = random.choice((0, 0, 35, 80)) if used else 0
                use = Use(node.name, gpu.uuid, part.uuid if part else None, "main", None, None, used, sm)
                self._add((use,), listed=part is not None or random.random() < 0.9)

    def _replicas(self, node: Node) -> None:
        """Time-slicing or MPS: up to four pods on each GPU."""
        random = self.random
        for gpu in node.gpus:
            for replica in range(random.randint(0, 4)):
                used = random.choice((0, 700, 1500, 2900))
                sm = random.choice((0, 12, 20)) if used else 0
                self._add((Use(node.name, gpu.uuid, None, "main", None, None, used, sm, replica),))

    def _add(self, uses: tuple[Use, ...], **more: object) -> None:
        """A pod of now, and perhaps an earlier one of the same name in its place."""
        random = self.random
        number = len(self.pods)
        pod = Pod(
            namespace=random.choice(NAMESPACES),
            name=f"{random.choice(('train', 'serve', 'lab'))}-{number}",
            uid=self._uuid(),
            uses=uses,
            owner=random.choice(OWNERS),
            **more,  # type: ignore[arg-type]
        )
        if self.hours > 1 and pod.listed:
            began = -random.randint(1, self.hours)
            came = random.random()
            if came < 0.25:  # the same name before, and nothing in the hour between
                self.pods.append(
                    replace(pod, uid=self._uuid(), until=began, since=-random.randint(-began, 2 * self.hours))
                )
                pod = replace(pod, since=began + 1)
            elif came < 0.4:  # it restarted in place
                self.pods.append(replace(pod, uid=self._uuid(), until=began))
                pod = replace(pod, since=began)
            elif came < 0.55:
                pod = replace(pod, since=began)
            elif came < 0.65:  # it is gone
                pod = replace(pod, until=began)
            elif came < 0.8:
                pod = replace(pod, idle_before=began)
        self.pods.append(pod)
