"""Half-full clusters for the scheduler bench, and requests of which no two are alike."""

from collections.abc import Callable
from random import Random

from vgpuscope.logic.scheduler.state import SchedulerState
from vgpuscope.model.allocation import Assignment, NodeState, PodState, QuotaState, RegisteredDevice
from vgpuscope.model.cluster_event import NodeSet, PodSet, QuotaSet
from vgpuscope.model.placement import ContainerAsk, GpuSelection, PlacementRequest
from vgpuscope.model.quantity import MIB

GPUS = 8
_TYPES = ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3")


def half_full(nodes: int, random: Random) -> SchedulerState:
    """Nodes of 8 GPUs, each shared by 2 to 6 pods that hold half of its memory on average."""
    state = SchedulerState()
    state.apply(QuotaSet(QuotaState(namespace="limited", name="q", hard={"nvidia.com/gpumem": 10**9})))
    for number in range(nodes):
        name = f"node-{number:05}"
        state.apply(NodeSet(_node(name, random)))
        for index in range(GPUS):
            for place in range(random.randint(2, 6)):
                state.apply(PodSet(_pod(f"{name}-{index}-{place}", name, f"GPU-{name}-{index}", random)))
    return state


def _node(name: str, random: Random) -> NodeState:
    kind = random.choice(_TYPES)
    devices = tuple(
        RegisteredDevice(
            id=f"GPU-{name}-{index}",
            vendor="NVIDIA",
            index=index,
            slots=10,
            memory=81920 * MIB,
            cores=100,
            type=kind,
            numa=index * 2 // GPUS,
            healthy=random.random() > 0.01,
        )
        for index in range(GPUS)
    )
    return NodeState(name=name, devices=devices, allocatable={"nvidia.com/gpu": 10 * GPUS})


def _pod(name: str, node: str, gpu: str, random: Random) -> PodState:
    share = Assignment(
        container_index=0,
        container="main",
        init=False,
        vendor="NVIDIA",
        device=gpu,
        memory=random.randint(4000, 16000) * MIB,
        cores=random.choice((0, 5, 10, 15)),
    )
    return PodState(
        uid=f"uid-{name}",
        namespace=f"team-{random.randrange(50)}",
        name=name,
        phase="Running",
        node=node,
        assigned_node=node,
        assignments=(share,),
    )


def _one(random: Random) -> tuple[ContainerAsk, ...]:
    return (ContainerAsk(index=0, name="main", count=1, memory=random.randint(1000, 20000)),)


def _several(random: Random, count: int) -> tuple[ContainerAsk, ...]:
    memory, cores = random.randint(20000, 40000), random.randint(1, 40)
    return (ContainerAsk(index=0, name="main", count=count, memory=memory, cores=cores),)


def _two_containers(random: Random) -> tuple[ContainerAsk, ...]:
    first, second = random.randint(1000, 30000), random.randint(1000, 30000)
    return (
        ContainerAsk(index=0, name="a", count=1, memory=first, cores=10),
        ContainerAsk(index=1, name="b", count=2, memory=second),
    )


def _nowhere(random: Random) -> tuple[ContainerAsk, ...]:
    return (ContainerAsk(index=0, name="main", count=1, memory=random.randint(81000, 81900)),)


def _second_nowhere(random: Random) -> tuple[ContainerAsk, ...]:
    return (*_one(random), ContainerAsk(index=1, name="b", count=1, memory=random.randint(81000, 81900)))


def _percentage(random: Random) -> tuple[ContainerAsk, ...]:
    return (ContainerAsk(index=0, name="main", count=1, percentage=random.randint(5, 40)),)


_NUMA = GpuSelection(numa_bind=True)
_TOPOLOGY = GpuSelection(gpu_policy=("topology-aware",))

SHAPES: dict[str, Callable[[Random], PlacementRequest]] = {
    "one GPU": lambda random: _request(_one(random)),
    "two GPUs with cores": lambda random: _request(_several(random, 2)),
    "two containers": lambda random: _request(_two_containers(random)),
    "a type of GPU": lambda random: _request(_one(random), GpuSelection(use_types=("h100",))),
    "two GPUs of one NUMA node": lambda random: _request(_several(random, 2), _NUMA),
    "four GPUs by topology": lambda random: _request(_several(random, 4), _TOPOLOGY),
    "a percentage under a quota": lambda random: _request(_percentage(random), namespace="limited"),
    "fits nowhere": lambda random: _request(_nowhere(random)),
    "second container fits nowhere": lambda random: _request(_second_nowhere(random)),
}


def _request(
    asks: tuple[ContainerAsk, ...], selection: GpuSelection | None = None, namespace: str = "team-0"
) -> PlacementRequest:
    return PlacementRequest(
        uid="uid-new",
        namespace=namespace,
        name="new",
        containers=len(asks),
        asks=asks,
        selection=selection or GpuSelection(),
    )
