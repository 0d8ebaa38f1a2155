"""Small makers of nodes for the tests of the logic: one line says what a test is about."""

from vgpuscope.logic.node.snapshot import NodeTracker, Readings
from vgpuscope.model.device import DeviceReading, Gpu, GpuProcess, Memory, MigInstance
from vgpuscope.model.pod import Container, Grant, HamiShare, Pod, ProcessOwner
from vgpuscope.model.region import ContainerRegion, Region, RegionDevice, RegionReading, Slot, SlotDevice
from vgpuscope.model.usage import ContainerUsage, Ledger, NodeSnapshot

GIB = 1024**3
A = "GPU-aaaaaaaa-0000-0000-0000-000000000000"
B = "GPU-bbbbbbbb-0000-0000-0000-000000000000"
M1 = "MIG-11111111-0000-0000-0000-000000000000"
M2 = "MIG-22222222-0000-0000-0000-000000000000"


def memory(total=80 * GIB, used=0, reserved=GIB):
    return Memory(total=total, used=used, free=total - used - reserved, reserved=reserved)


def process(pid, memory=None, sm=None, kinds=("compute",)):
    return GpuProcess(pid=pid, kinds=frozenset(kinds), memory=memory, sm=sm)


def make_gpu(uuid=A, index=0, used=0, **more):
    defaults = {"memory": memory(used=used), "utilization": 0.0, "processes": (), "minor": index}
    return Gpu(uuid=uuid, index=index, model="NVIDIA A100-SXM4-80GB", **{**defaults, **more})


def instance(uuid, *, gi, ci=0, used=0, total=10 * GIB, processes=(), index=0, profile="1g.10gb", **more):
    pool = Memory(total=total, used=used, free=total - used, reserved=0)
    return MigInstance(
        uuid=uuid,
        index=index,
        gpu_instance=gi,
        compute_instance=ci,
        profile=profile,
        memory=pool,
        processes=processes,
        **more,
    )


def pod(name, *containers, namespace="ml", phase="Running", shares=(), **more):
    names = containers or ("main",)
    made = tuple(Container(name=c, id=f"{name}-{c}-id", running=True) for c in names)
    return Pod(
        uid=f"uid-{name}", namespace=namespace, name=name, phase=phase, containers=made, shares=tuple(shares), **more
    )


def owner(pid, name=None, container="main", command="python"):
    if name is None:
        return ProcessOwner(pid=pid, start_time=1, command=command)
    return ProcessOwner(
        pid=pid, start_time=1, pod_uid=f"uid-{name}", container_id=f"{name}-{container}-id", command=command
    )


def grant(name, device, container="main", namespace="ml", **more):
    more.setdefault("resource", "nvidia.com/gpu")
    return Grant(namespace=namespace, pod=name, container=container, device_id=device, **more)


def slot(host_pid, used=0, sm=0.0, *, pid=7, status=1, driver_used=0, devices=1):
    first = SlotDevice(context=0, module=0, buffer=used, offset=0, total=used, driver_used=driver_used, sm=sm)
    empty = SlotDevice(context=0, module=0, buffer=0, offset=0, total=0, driver_used=0, sm=0.0)
    return Slot(pid=pid, host_pid=host_pid, status=status, devices=(first, *[empty] * (devices - 1)))


def region(name, *slots, uuid=A, limit=0, container="main", sm_limit=1.0, last_kernel=0):
    return ContainerRegion(
        pod_uid=f"uid-{name}",
        container=container,
        region=Region(
            layout="v1",
            version=(1, 2),
            device_count=1,
            process_count=len(slots),
            devices=(RegionDevice(index=0, uuid=uuid, memory_limit=limit, sm_limit=sm_limit),),
            slots=tuple(slots),
            utilization_switch=1,
            recent_kernel=2,
            priority=1,
            last_kernel=last_kernel,
        ),
    )


def share(container="main", gpu=A, memory=8 * GIB, cores=30):
    return HamiShare(container=container, gpu=gpu, memory=memory, cores=cores)


def readings(*gpus, at=1000.0, tick=None, regions=(), owners=(), pods=(), grants=(), **more):
    fields = {
        "devices": DeviceReading(at=at, gpus=gpus),
        "regions": RegionReading(containers=tuple(regions)),
        "owners": {o.pid: o for o in owners},
        "pods": None if pods is None else tuple(pods),
        "grants": None if grants is None else tuple(grants),
    }
    return Readings(at=at, tick=at if tick is None else tick, **{**fields, **more})


def sample(*gpus, mind=None, ratio=1.0, **more) -> NodeSnapshot:
    mind = mind or NodeTracker(node="n1", window=60.0)
    return mind.conclude(readings(*gpus, **more), ratio=ratio).complete()


def usage(snapshot: NodeSnapshot, pod_name: str, container="main") -> ContainerUsage:
    found = [u for u in snapshot.containers if (u.key.pod, u.key.container) == (pod_name, container)]
    assert len(found) == 1, [u.key for u in snapshot.containers]
    return found[0]


def ledger(snapshot: NodeSnapshot, gpu=A, mig=None) -> Ledger:
    return next(entry for entry in snapshot.ledgers if (entry.gpu, entry.mig) == (gpu, mig))
