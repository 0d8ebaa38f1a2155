"""The simulated cluster as its API server reports it: nodes with devices, pods, quotas, namespaces.

Some pods run, some wait, and some keep devices that they cannot use. The five nodes of the demo are simulated. Two more
nodes, without an agent, show what a healthy node cannot: the kubelet of `worn-f` does not respond, and `retired-g` is
deleted while a pod still has devices there. Why pods wait is not written here: the scheduler extender decides it.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from vgpuscope.model.analysis import Allocated, RegisteredGpu
from vgpuscope.sim.hardware import A100_40, MIB, Spec
from vgpuscope.sim.jobs import Timeline
from vgpuscope.sim.kubeapi import Json, Objects
from vgpuscope.sim.pods import POOL, SCHEDULER, allocated, hami_limits, pod_list, stamp, waiting_pods
from vgpuscope.sim.world import World

REGISTER = "hami.io/node-nvidia-register"
_SLOTS = 10
_REPLICAS = 4  # replicas of each GPU that is shared by time-slicing
_SCALING = 2  # HAMi may allocate twice the memory and cores that the GPUs of hami-a have
_WORN, _RETIRED = "worn-f", "retired-g"
_FORMER = "former-scheduler"
_NODE_AGE = 40 * 86400  # seconds before the start of the demo
_STALE_AGE = 7200  # the same, of pods that have GPUs they cannot use
_KUBELET = "v1.35.8"
_SHARED = {"gpu-sharing": "hami"}  # a label of the nodes whose GPUs HAMi shares


def publish(objects: Objects, worlds: Sequence[World]) -> None:
    """Passes the current state of the cluster to the API."""
    created = stamp(worlds[0].began - _NODE_AGE)
    pods = [*_running(worlds), *_waiting(worlds[0]), *_stale_pods(worlds[0])]
    nodes = [*(_node(world) for world in worlds), _worn_node()]
    objects.replace("nodes", [_machine(node, index, created) for index, node in enumerate(nodes)])
    objects.replace("pods", pods)
    objects.replace("resourcequotas", [_created(quota, created) for quota in _QUOTAS])
    names = {one["metadata"]["namespace"] for one in (*pods, *_QUOTAS)} | {"default", "kube-system"}
    names |= {job.namespace for world in worlds for job in world.plan.jobs}  # also without a pod at this moment
    objects.replace("namespaces", [_created(_namespace(name), created) for name in sorted(names)])


# --- nodes -----------------------------------------------------------------------------------------------------------


class _Device(NamedTuple):
    """A GPU as HAMi's plugin registers it."""

    uuid: str
    spec: Spec
    mode: str = "hami-core"
    scaling: int = 1


def _node(world: World) -> Json:
    """A node; where HAMi schedules pods, its plugin registers the GPUs, elsewhere the kubelet only counts them."""
    name, devices = world.plan.name, [_Device(gpu.uuid, gpu.spec) for gpu in world.gpus]
    if not any(job.hami for job in world.plan.jobs):
        return _plain_node(world)
    if world.plan.slices:
        cut = {gpu.uuid for gpu in world.gpus if gpu.mig}
        devices = [one._replace(mode="mig" if one.uuid in cut else one.mode) for one in devices]
    else:
        devices = [one._replace(scaling=_SCALING) for one in devices]
    return _node_object(name, offered=len(devices) * _SLOTS, annotations={REGISTER: _register(devices)})


def _plain_node(world: World) -> Json:
    """A node of NVIDIA's device plugin: whole GPUs by count, MIG instances by profile."""
    whole = [gpu for gpu in world.gpus if not gpu.mig]
    replicas = _REPLICAS if any(job.replicas for job in world.plan.jobs) else 1
    profiles = [instance.profile for gpu in world.gpus for instance in gpu.instances]
    return _node_object(
        world.plan.name,
        offered=sum(not gpu.lost for gpu in whole) * replicas,
        capacity=len(whole) * replicas,
        labels=_labels(world, replicas),
        instances={f"nvidia.com/mig-{profile}": str(profiles.count(profile)) for profile in sorted(set(profiles))},
    )


def _labels(world: World, replicas: int) -> dict[str, str]:
    """The labels that NVIDIA's GPU feature discovery sets on a node.

    Of several models it reports the first that has whole GPUs, and counts all GPUs of this model, divided or not.
    """
    spec = next(gpu.spec for gpu in world.gpus if not gpu.mig)
    values = {
        "product": _product(spec) + ("-SHARED" if replicas > 1 else ""),
        "memory": str(spec.memory),
        "count": str(sum(gpu.spec == spec for gpu in world.gpus)),
        "replicas": str(replicas),
        "sharing-strategy": "time-slicing" if replicas > 1 else "none",
    }
    labels = {f"nvidia.com/gpu.{name}": value for name, value in values.items()}
    for gpu in world.gpus:
        for instance in gpu.instances:
            labels[f"nvidia.com/mig-{instance.profile}.product"] = f"{_product(gpu.spec)}-MIG-{instance.profile}"
    return labels


def _product(spec: Spec) -> str:
    return spec.name.replace(" ", "-")


def _node_object(
    name: str,
    *,
    offered: int,
    capacity: int | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    instances: dict[str, str] | None = None,
    ready: str = "True",
) -> Json:
    offer = {"cpu": "64", "memory": "515Gi", "pods": "110"} | (instances or {})
    labels = {"gpu": "on", POOL: name, **(labels or {})} | (_SHARED if annotations else {})
    return {
        "metadata": {"name": name, "uid": _uid(name), "annotations": annotations or {}, "labels": labels},
        "spec": {},
        "status": {
            "capacity": offer | {"nvidia.com/gpu": str(offered if capacity is None else capacity)},
            "allocatable": offer | {"nvidia.com/gpu": str(offered)},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def _machine(node: Json, index: int, created: str) -> Json:
    """The node with what every real node says of itself: its software, its address, and since when it is as it is."""
    name, status = node["metadata"]["name"], node["status"]
    ready = {"lastHeartbeatTime": created, "lastTransitionTime": created}
    ready |= {"reason": "KubeletReady", "message": "kubelet is posting ready status"}
    if any(one["status"] != "True" for one in status["conditions"]):
        ready |= {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
    addresses = [{"type": "InternalIP", "address": f"10.20.0.{index + 11}"}, {"type": "Hostname", "address": name}]
    info = {
        "kubeletVersion": _KUBELET,
        "osImage": "Ubuntu 24.04.3 LTS",
        "kernelVersion": "6.8.0-88-generic",
        "containerRuntimeVersion": "containerd://2.2.0",
        "operatingSystem": "linux",
        "architecture": "amd64",
        **dict.fromkeys(("machineID", "systemUUID", "bootID", "kubeProxyVersion"), ""),
    }
    conditions = [one | ready for one in status["conditions"]]
    more = {"conditions": conditions, "addresses": addresses, "nodeInfo": info}
    return _created(node, created) | {"status": status | more}


def _created(one: Json, created: str) -> Json:
    return one | {"metadata": one["metadata"] | {"creationTimestamp": created}}


def _register(devices: Iterable[_Device]) -> str:
    content = [
        {
            "id": one.uuid,
            "index": index,
            "count": _SLOTS,
            "devmem": one.spec.memory * one.scaling,
            "devcore": 100 * one.scaling,
            "type": one.spec.name,
            "numa": index // 2,
            "mode": one.mode,
            "health": True,
        }
        for index, one in enumerate(devices)
    ]
    return msgspec.json.encode(content).decode()


_WORN_GPUS = tuple(f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{_WORN}/{n}')}" for n in range(3))  # the last was removed


def registered_only() -> dict[str, RegisteredGpu]:
    """The GPUs of the node without an agent: only HAMi's registration names them."""
    return {
        gpu_id: RegisteredGpu(node=_WORN, index=index, model=A100_40.name, healthy=True)
        for index, gpu_id in enumerate(_WORN_GPUS[:2])
    }


def _worn_node() -> Json:
    """A node whose kubelet offers no GPU and no longer responds; HAMi's old registration is still there."""
    register = _register(_Device(gpu, A100_40) for gpu in _WORN_GPUS[:2])
    annotations = {REGISTER: register, "hami.io/device-cordon": _WORN_GPUS[1]}
    return _node_object(_WORN, offered=0, annotations=annotations, ready="Unknown")


# --- pods ------------------------------------------------------------------------------------------------------------


def _running(worlds: Iterable[World]) -> Iterator[Json]:
    for world in worlds:
        yield from pod_list(world)["items"]
        yield from waiting_pods(world)


class _Asks(NamedTuple):
    """A pod that exists in the API only."""

    namespace: str
    name: str
    memory: int  # MiB on each GPU
    cores: int = 0
    gpus: int = 1


class _Wait(NamedTuple):
    """A pod that no node has room for: its requests, and its timeline."""

    asks: _Asks
    timeline: Timeline = Timeline(first=-3600)


_WAITS = (
    _Wait(_Asks("research", "llm-eval-huge-0", 200_000)),  # more than any GPU has
    _Wait(_Asks("ml-team", "train-octet-0", 40_960, cores=100, gpus=8)),  # more GPUs than any node has
    _Wait(_Asks("ml-team", "sweep-12", 16_384, cores=10)),  # the namespace has used up its quota
    _Wait(_Asks("batch", "backfill-7", 131_072), Timeline(first=10, life=45, period=75, linger=0)),
    _Wait(_Asks("serving", "canary-3", 131_072, cores=90), Timeline(first=25, life=20, period=60, linger=0)),
)


def _waiting(world: World) -> Iterator[Json]:
    for wait in _WAITS:
        born = wait.timeline.born(world.elapsed)
        if born is not None:
            name = f"{wait.asks.name}-{int(born)}" if wait.timeline.period else wait.asks.name
            yield _pod(wait.asks._replace(name=name), created=world.began + born, phase="Pending")


class _StalePod(NamedTuple):
    """A pod that has devices it cannot use: its GPUs, their node, the node it was bound to, and its state."""

    asks: _Asks
    gpus: tuple[str, ...]
    on: str
    bound: str
    phase: str = "Running"
    bind: str = "success"
    deleting: bool = False


_STALE_PODS = (
    _StalePod(_Asks("ml-team", "tune-stuck-0", 24_576, cores=40), _WORN_GPUS[:1], _WORN, _WORN, deleting=True),
    _StalePod(_Asks("serving", "serve-silent-0", 20_480, cores=30), _WORN_GPUS[:1], _WORN, _WORN, phase="Unknown"),
    _StalePod(_Asks("research", "notebook-frank", 8_192), _WORN_GPUS[2:], _WORN, _WORN),
    _StalePod(_Asks("batch", "archive-0", 16_384), (f"GPU-{uuid.UUID(int=7)}",), _RETIRED, _RETIRED),
)


def _all_stale(world: World) -> tuple[_StalePod, ...]:
    unbound = _Asks("batch", "bind-failed-0", 8_192, cores=10)
    never = _StalePod(unbound, (world.gpus[3].uuid,), world.plan.name, "", phase="Pending", bind="failed")
    return (*_STALE_PODS, never)


def _stale_pods(world: World) -> Iterator[Json]:
    for stale in _all_stale(world):
        yield _stale_pod(stale, world.began - _STALE_AGE)


def stale_allocations(world: World) -> Iterator[tuple[tuple[str, str, str], Allocated]]:
    """What pods that cannot use their GPUs hold now, by GPU, namespace and pod."""
    if world.elapsed >= -_STALE_AGE:
        for stale in _all_stale(world):
            for gpu in stale.gpus:
                given = Allocated(stale.asks.memory * MIB, stale.asks.cores or None)
                yield (gpu, stale.asks.namespace, stale.asks.name), given


def _stale_pod(stale: _StalePod, began: float) -> Json:
    at = str(int(began))
    pod = _pod(stale.asks, created=began, phase=stale.phase, node=stale.bound)
    pod["spec"]["schedulerName"] = _FORMER  # which does not run any more, so that nothing tries to schedule them again
    pod["metadata"]["annotations"] = {
        "hami.io/vgpu-node": stale.on,
        "hami.io/vgpu-time": at,
        "hami.io/bind-time": at,
        "hami.io/bind-phase": stale.bind,
        "hami.io/vgpu-devices-allocated": allocated(stale.gpus, memory=stale.asks.memory, cores=stale.asks.cores),
    }
    if stale.deleting:
        pod["metadata"]["deletionTimestamp"] = stamp(began + 3600)
    return pod


def _pod(asks: _Asks, *, created: float, phase: str, node: str = "") -> Json:
    limits = hami_limits(gpus=asks.gpus, memory=asks.memory, cores=asks.cores)
    main: Json = {
        "name": "main",
        "image": "registry.example/main:1",
        "resources": {"limits": limits, "requests": limits},
    }
    return {
        "metadata": {
            "name": asks.name,
            "namespace": asks.namespace,
            "uid": _uid(f"{asks.namespace}/{asks.name}"),
            "creationTimestamp": stamp(created),
        },
        "spec": {
            "schedulerName": SCHEDULER,
            "nodeSelector": _SHARED,
            "containers": [main],
        }
        | ({"nodeName": node} if node else {}),
        "status": {"phase": phase},
    }


def _uid(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


# --- namespaces and quotas -------------------------------------------------------------------------------------------


def _namespace(name: str) -> Json:
    labels = {"kubernetes.io/metadata.name": name}
    return {
        "metadata": {"name": name, "uid": _uid(f"namespace/{name}"), "labels": labels},
        "status": {"phase": "Active"},
    }


def _quota(namespace: str, **hard: int) -> Json:
    limits = {f"limits.nvidia.com/{name}": str(amount) for name, amount in hard.items()}
    metadata = {"name": "gpu", "namespace": namespace, "uid": _uid(f"quota/{namespace}")}
    # Kubernetes does not count these resources, so `used` is empty in a real cluster, too: HAMi's scheduler counts them
    return {"metadata": metadata, "spec": {"hard": limits}, "status": {"hard": limits}}


_QUOTAS = (
    _quota("ml-team", gpumem=122_880, gpucores=200),  # 93 % of its memory is allocated, and train-octet-0 requests more
    _quota("serving", gpumem=327_680, gpucores=400),
)
