"""Small random clusters and requests for the tests of the scheduler."""

import json
from random import Random

from hypothesis import strategies as st
from msgspec.structs import replace

from vgpuscope.logic.scheduler.place import place
from vgpuscope.logic.scheduler.state import SchedulerState
from vgpuscope.model.allocation import Assignment, MigProfile, NodeState, PodState, QuotaState, RegisteredDevice
from vgpuscope.model.cluster_event import NodeSet, PodSet, QuotaSet
from vgpuscope.model.placement import ContainerAsk, GpuSelection, GpuWeights, PlacementRequest

MIB = 1024**2
TYPES = ("NVIDIA A100-SXM4-80GB", "NVIDIA-Tesla T4")
PROFILES = (
    MigProfile(name="1g.10gb", memory=9728 * MIB, cores=15, slices=1, placements=tuple((at, 1) for at in range(7))),
    MigProfile(name="2g.20gb", memory=19968 * MIB, cores=29, slices=2, placements=((0, 2), (2, 2), (4, 2))),
    MigProfile(name="3g.40gb", memory=40192 * MIB, cores=43, slices=3, placements=((0, 4), (4, 4))),
    MigProfile(name="7g.79gb", memory=80384 * MIB, cores=100, slices=7, placements=((0, 8),)),
)


def gpu(uuid, index=0, **more):
    defaults = {"slots": 10, "memory": 81920 * MIB, "cores": 100, "type": TYPES[0], "healthy": True, "vendor": "NVIDIA"}
    return RegisteredDevice(id=uuid, index=index, **{**defaults, **more})


def mig(uuid, index=0, **more):
    return gpu(uuid, index, **{"slots": 7, "mode": "mig", "profiles": PROFILES, **more})


def node(name, *devices, **more):
    return NodeState(name=name, devices=devices, **more)


def share(uuid, memory=8000, cores=0, *, container=0, init=False):
    return Assignment(
        container_index=container,
        container=f"c{container}",
        init=init,
        vendor="NVIDIA",
        device=uuid,
        memory=memory * MIB,
        cores=cores,
    )


def holder(name, on, *shares, namespace="ml", **more):
    return PodState(
        uid=f"uid-{name}",
        namespace=namespace,
        name=name,
        phase="Running",
        node=on,
        assigned_node=on,
        assignments=shares,
        **more,
    )


def ask(memory=8000, count=1, cores=0, *, index=0, init=False, percentage=None):
    return ContainerAsk(
        index=index, name=f"c{index}", init=init, count=count, memory=memory, percentage=percentage, cores=cores
    )


def request(*asks, name="new", namespace="ml", containers=None, **selection):
    asks = asks or (ask(),)
    return PlacementRequest(
        uid=f"uid-{name}",
        namespace=namespace,
        name=name,
        containers=containers or 1 + max(one.index for one in asks),
        asks=asks,
        selection=GpuSelection(**selection),
    )


def quota(namespace="ml", name="q", **hard):
    return QuotaState(namespace=namespace, name=name, hard={f"nvidia.com/{key}": hard[key] for key in hard})


def listed(kind, items):
    """Objects as the API server lists them."""
    return json.dumps({"kind": f"{kind}List", "metadata": {"resourceVersion": "1"}, "items": items}).encode()


def state(nodes=(), pods=(), quotas=()):
    made = SchedulerState()
    for one in nodes:
        made.apply(NodeSet(one))
    for one in pods:
        made.apply(PodSet(one))
    for one in quotas:
        made.apply(QuotaSet(one))
    return made


# --- random ones: few sizes, so that ties and exact fits are common. They are made from a seed, which is ten times as
# quick as to draw every value, so that more of them are tried.

SIZES = (1000, 2000, 4000, 8000)


class Seeded(Random):
    """A source of random values that names its seed when a test fails."""

    def __init__(self, seed):
        super().__init__(seed)
        self.first = seed

    def __repr__(self):
        return f"Seeded({self.first})"


seeds = st.integers(0, 2**40).map(Seeded)


def some_device(random, uuid, index, *, plain=False):
    common = {
        "numa": random.randrange(2),
        "healthy": plain or random.random() < 0.9,
        "cordoned": random.random() < 0.08,
        "type": random.choice(TYPES),
    }
    if not plain and random.random() < 0.25:
        return mig(uuid, index, **common)
    return gpu(
        uuid,
        index,
        memory=random.choice((4000, 8000, 16000)) * MIB,
        slots=random.randint(1, 4),
        cores=random.choice((100, 100, 200)),
        **common,
    )


def some_nodes(random, *, most=3, plain=False):
    found = []
    for at in range(random.randint(1, most)):
        gpus = tuple(
            some_device(random, f"GPU-{at}{index}", index, plain=plain) for index in range(random.randint(0, 4))
        )
        if random.random() < 0.3:  # all alike, as most real nodes are
            gpus = tuple(replace(gpus[0], id=one.id, index=one.index, numa=one.numa) for one in gpus)
        links = {one.id: {other.id: random.choice((10, 50, 200)) for other in gpus if other is not one} for one in gpus}
        offered = {"nvidia.com/gpu": 0} if not plain and random.random() < 0.05 else {}
        found.append(
            NodeState(
                name=f"n{at}",
                devices=gpus,
                pair_scores=links if random.random() < 0.5 else {},
                allocatable=offered,
            )
        )
    return found


def some_ask(random, index, *, init=False):
    by = random.choice(("memory", "memory", "percentage", "whole"))
    return ContainerAsk(
        index=index,
        name=f"c{index}",
        init=init,
        count=random.choice((1, 1, 1, 2, 3)),
        memory=random.choice(SIZES) if by == "memory" else None,
        percentage=random.choice((10, 50, 100)) if by == "percentage" else None,
        cores=random.choice((0, 0, 0, 10, 50, 100)),
    )


def some_selection(random):
    return GpuSelection(
        use_types=random.choice(((), (), (), (), ("a100",), ("h100", "t4"))),
        avoid_types=random.choice(((), (), (), (), ("t4",))),
        use_uuids=random.choice(((), (), (), (), ("GPU-00", "GPU-11"))),
        avoid_uuids=random.choice(((), (), (), (), ("GPU-01",))),
        mode=random.choice(("", "", "", "", "mig", "hami-core")),
        numa_bind=random.random() < 0.2,
        node_policy=random.choice((None, "binpack", "spread")),
        gpu_policy=random.choice(
            (
                (),
                (),
                ("binpack",),
                ("mutex",),
                ("numa",),
                ("topology-aware",),
                ("binpack", "numa"),
                ("mutex", "topology-aware"),
                ("numa", "spread"),
            )
        ),
        weights=random.choice((GpuWeights(), GpuWeights(), GpuWeights(5, 0, 1))),
    )


def some_request(random, name="new", *, most=3, inits=True):
    kinds = [random.choice(("app", "app", "init" if inits else "app", "none")) for _ in range(random.randint(1, most))]
    kinds.sort(key=lambda kind: kind != "init")
    asks = tuple(some_ask(random, at, init=kind == "init") for at, kind in enumerate(kinds) if kind != "none")
    return PlacementRequest(
        uid=f"uid-{name}",
        namespace=random.choice(("ml", "web")),
        name=name,
        containers=len(kinds),
        asks=asks or (some_ask(random, 0),),
        selection=some_selection(random) if random.random() < 0.7 else GpuSelection(),
    )


def some_quotas(random):
    return [
        quota(
            namespace=random.choice(("ml", "web")),
            name=random.choice(("q1", "q2")),
            gpumem=random.choice((4000, 20000, 100000)),
            gpucores=random.choice((0, 60, 400)),
        )
        for _ in range(random.choice((0, 0, 1, 2)))
    ]


def some_state(random, *, most=12, inits=True, plain=False):
    """A cluster into which pods were placed one after the other; some end, and some are never reported by a watch."""
    nodes = some_nodes(random, plain=plain)
    made = state(nodes, quotas=some_quotas(random))
    names = [one.name for one in nodes]
    for at in range(random.randint(0, most)):
        wanted = some_request(random, f"p{at}", inits=inits)
        found = place(made, wanted, names)
        if found.node:
            made.assume(wanted, found)
            if random.random() < 0.5:
                made.apply(PodSet(made.assumed[wanted.uid]))
            if random.random() < 0.2:
                made.drop_pod(wanted.uid)
    return made, names


def equal_state(random, *, nodes=4):
    """Nodes whose GPUs are all equal and partly held, as most real ones are: their bounds alone decide many requests.

    GPUs may be held beyond their memory, as after a change of the registered amount.
    """
    made, names = SchedulerState(), [f"n{at}" for at in range(nodes)]
    for name in names:
        size, slots, count = random.choice((8000, 16000)), random.randint(1, 4), random.randint(1, 5)
        uuids = [f"GPU-{name}-{index}" for index in range(count)]
        gpus = [gpu(uuid, index, memory=size * MIB, slots=slots, numa=index % 2) for index, uuid in enumerate(uuids)]
        made.apply(NodeSet(node(name, *gpus)))
        for uuid in uuids:
            for at in range(random.randint(0, slots)):
                held = share(uuid, random.choice(SIZES), random.choice((0, 10, 40)))
                made.apply(PodSet(holder(f"{uuid}-{at}", name, held)))
    return made, names


def several_containers(random):
    """Two or three containers, mostly without a selection; some want more than a GPU has."""
    kinds = [random.random() < 0.2, *[False] * random.choice((1, 1, 2))]
    asks = [
        replace(one, memory=random.choice((*SIZES, 12000, 17000)) if one.memory is not None else None)
        for one in (some_ask(random, at, init=init) for at, init in enumerate(kinds))
    ]
    selection = some_selection(random) if random.random() < 0.3 else GpuSelection()
    return replace(request(*asks), selection=selection)
