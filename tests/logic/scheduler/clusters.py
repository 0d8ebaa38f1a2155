"""Small clusters of NVIDIA GPUs for tests: nodes with equal GPUs, and pods that request them."""

from vgpuscope.logic.scheduler.state import SchedulerState
from vgpuscope.model.allocation import NodeState, RegisteredDevice
from vgpuscope.model.cluster_event import NodeSet
from vgpuscope.model.placement import ContainerAsk, GpuSelection, PlacementRequest
from vgpuscope.model.quantity import MIB

TYPE = "NVIDIA A100-SXM4-40GB"


def node(name, *, gpus=2, memory=16_000, slots=10, kind=TYPE):
    devices = tuple(
        RegisteredDevice(
            id=f"GPU-{name}-{number}",
            vendor="NVIDIA",
            index=number,
            slots=slots,
            memory=memory * MIB,
            cores=100,
            type=kind,
            healthy=True,
            mode="hami-core",
        )
        for number in range(gpus)
    )
    return NodeState(name=name, devices=devices)


def cluster(*nodes):
    state = SchedulerState()
    for one in nodes:
        state.apply(NodeSet(one))
    return state


def request(name, *, namespace="ml", count=1, memory=8_000, cores=0, uid=None, **selection):
    return PlacementRequest(
        uid=uid or f"uid-{namespace}-{name}",
        namespace=namespace,
        name=name,
        containers=1,
        asks=(ContainerAsk(index=0, name="main", count=count, memory=memory, cores=cores),),
        selection=GpuSelection(**selection),
    )
