"""The pods of a world as the Kubernetes API would list them, and their allocations by the kubelet."""

import re
import uuid
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from vgpuscope.sim.jobs import Job, Life
from vgpuscope.sim.podresources import Granted
from vgpuscope.sim.world import World

Json = dict[str, Any]
SCHEDULER = "hami-scheduler"  # of pods that share GPUs
POOL = "kubernetes.io/hostname"  # the label by which a job's pods stay on the node that simulates it


def pod_list(world: World) -> Json:
    """A PodList of all pods on this node."""
    lives = [life for life in world.lives.values() if not life.job.host and not life.waits]
    return {
        "apiVersion": "v1",
        "kind": "PodList",
        "metadata": {"resourceVersion": "1"},
        "items": [_pod(world, life) for life in lives],
    }


def waiting_pods(world: World) -> list[Json]:
    """The pods of this node's plan that no scheduler has placed yet, as they were created."""
    return [_pod(world, life) for life in world.waiting()]


def grants(world: World) -> list[Granted]:
    """The kubelet's allocations to running pods."""
    shares: dict[int, int] = defaultdict(int)
    given = []
    for life in world.lives.values():
        if life.job.host or life.phase(world.elapsed) != "Running":
            continue
        given.append(_grant(world, life, shares))
    return given


def hami_limits(*, gpus: int, memory: int, cores: int) -> dict[str, str]:
    """A container's requests to HAMi; memory in MiB on each GPU, 0: not requested."""
    limits = {"nvidia.com/gpu": str(gpus)}
    if memory:
        limits["nvidia.com/gpumem"] = str(memory)
    if cores:
        limits["nvidia.com/gpucores"] = str(cores)
    return limits


def allocated(gpus: Iterable[str], *, memory: int, cores: int) -> str:
    """The annotation that HAMi's scheduler writes on a pod after it allocated these GPUs to the first container."""
    return "".join(f"{gpu},NVIDIA,{memory},{cores}:" for gpu in gpus) + ";"


def _grant(world: World, life: Life, shares: dict[int, int]) -> Granted:
    job, gpus = life.job, [world.gpus[c] for c in life.job.gpus]
    where = Granted(namespace=job.namespace, pod=life.name, container=job.container)
    if job.claim:
        return where._replace(claim=job.claim, pool=world.plan.name, device=f"gpu-{gpus[0].index}")
    if job.hami:
        ids = []
        for gpu in gpus:
            ids.append(f"{gpu.uuid}-{shares[gpu.index]}")
            shares[gpu.index] += 1
        return where._replace(resource="nvidia.com/gpu", device_ids=tuple(ids))
    if job.resource is None:
        return where
    place = world.instance_of(life)
    ids = [place.uuid] if place else [c.uuid for c in gpus]
    if job.replicas:
        ids = [f"{gpus[0].uuid}::{n}" for n in job.replicas]
    return where._replace(resource=job.resource, device_ids=tuple(ids))


def _pod(world: World, life: Life) -> Json:
    job, phase = life.job, life.phase(world.elapsed)
    created = stamp(world.began + life.born)
    containers = [container(job)] + ([{"name": job.sidecar, "image": "busybox:1.37"}] if job.sidecar else [])
    statuses = [_status(world, life, job.container, life.container_id)]
    if job.sidecar:
        statuses.append(_status(world, life, job.sidecar, life.sidecar_id))
    return {
        "metadata": {
            "name": life.name,
            "namespace": job.namespace,
            "uid": life.uid,
            "creationTimestamp": created,
            "labels": {"app": stateful_set(life.name) or job.name}
            | ({"hami.io/vgpu-node": world.plan.name} if job.hami and not life.waits else {})
            | ({"pod-template-hash": match[2]} if (match := _REPLICA.fullmatch(life.name)) else {}),
            "annotations": _annotations(world, life),
        }
        | (_mirrored(world) if life.job.static else _owned(job.namespace, life.name)),
        "spec": {
            "schedulerName": SCHEDULER if job.hami else "default-scheduler",
            "containers": containers,
            "restartPolicy": "Always",
        }
        | ({"resourceClaims": [{"name": "gpu", "resourceClaimName": job.claim}]} if job.claim else {})
        | ({"nodeSelector": {POOL: world.plan.name}} if life.waits or life.notes is not None else {})
        | ({} if life.waits else {"nodeName": world.plan.name}),
        "status": {"phase": phase, "qosClass": job.qos}
        | (
            {}
            if life.waits
            else {
                "startTime": created,
                "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": created}],
                "containerStatuses": [] if phase == "Pending" else statuses,
            }
        ),
    }


_REPLICA = re.compile(r"(.+-([0-9a-f]{8,10}))-\w{5}")


def owner(name: str) -> str:
    """The owner of the pod, derived from its name: a Deployment, a StatefulSet, or none ("")."""
    if match := _REPLICA.fullmatch(name):
        return f"Deployment/{match[1].removesuffix(f'-{match[2]}')}"
    made_by = stateful_set(name)
    return f"StatefulSet/{made_by}" if made_by else ""


def stateful_set(name: str) -> str:
    """The StatefulSet of the pod, derived from its name; "": none."""
    match = None if _REPLICA.fullmatch(name) else re.fullmatch(r"(.+)-\d+", name)
    return match[1] if match else ""


def uid_of(kind: str, namespace: str, name: str) -> str:
    """The UID of an object that lives as long as the demo."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{kind}/{namespace}/{name}"))


def _mirrored(world: World) -> Json:
    """The kubelet makes mirror pods, and their Node owns them."""
    return _controlled("v1", "Node", world.plan.name, uid_of("Node", "", world.plan.name))


def _owned(namespace: str, name: str) -> Json:
    """The pod's controller, derived from its name: the ReplicaSet of a Deployment, a StatefulSet, or none."""
    if match := _REPLICA.fullmatch(name):
        kind, maker = "ReplicaSet", match[1]
    elif maker := stateful_set(name):
        kind = "StatefulSet"
    else:
        return {}
    return _controlled("apps/v1", kind, maker, uid_of(kind, namespace, maker))


def _controlled(version: str, kind: str, name: str, uid: str) -> Json:
    owner = {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}
    return {"ownerReferences": [owner]}


def container(job: Job) -> Json:
    """The container of a job, as its pod's spec has it."""
    limits: dict[str, str] = {}
    if job.hami:
        limits = hami_limits(gpus=len(job.gpus), memory=job.hami.memory, cores=job.hami.cores)
        limits["nvidia.com/priority"] = str(job.hami.priority)
    elif job.resource:
        limits[job.resource] = str(len(job.replicas) or len(job.gpus))
    resources: Json = {"limits": limits, "requests": limits} if limits else {}
    if job.claim:
        resources["claims"] = [{"name": "gpu"}]
    spec: Json = {"name": job.container, "image": f"registry.example/{job.name}:1", "resources": resources}
    if not (limits or job.claim):
        spec["securityContext"] = {"privileged": True}
    return spec


def _status(world: World, life: Life, name: str, id_: str) -> Json:
    running = life.phase(world.elapsed) == "Running"
    started = stamp(world.began + life.born + 1)
    ended = life.job.timeline.ends
    state: Json = {"running": {"startedAt": started}}
    if not running:
        code, reason = (0, "Completed") if ended == "Succeeded" else (137, "Error")
        state = {"terminated": {"exitCode": code, "reason": reason, "startedAt": started}}
    prefix = {"crio": "cri-o", "docker-cgroupfs": "docker"}.get(world.plan.runtime, "containerd")
    return {
        "name": name,
        "containerID": f"{prefix}://{id_}",
        "ready": running,
        "started": running,
        "restartCount": 0,
        "image": "image",
        "imageID": "",
        "state": state,
    }


def _annotations(world: World, life: Life) -> dict[str, str]:
    job = life.job
    if job.static:
        source = {"kubernetes.io/config.source": "file", "kubernetes.io/config.mirror": life.config_hash}
        return source | {"kubernetes.io/config.hash": life.config_hash}
    if not job.hami:
        return {}
    if life.notes is not None:
        return life.notes
    if life.waits:
        return {"nvidia.com/use-gpuuuid": ",".join(world.gpus[c].uuid for c in job.gpus)} if job.pinned else {}
    at = str(int(world.began + life.born))
    gpus = [world.gpus[c] for c in job.gpus]
    memory = job.hami.memory or gpus[0].spec.memory
    notes = {
        "hami.io/vgpu-node": world.plan.name,
        "hami.io/vgpu-time": at,
        "hami.io/bind-time": at,
        "hami.io/bind-phase": "success",
        "hami.io/vgpu-devices-allocated": allocated([gpu.uuid for gpu in gpus], memory=memory, cores=job.hami.cores),
        "hami.io/vgpu-devices-to-allocate": ";",
    }
    if job.instances:
        notes["hami.io/vgpu-mig-allocations"] = _mig_allocations(world, life)
    return notes


def _mig_allocations(world: World, life: Life) -> str:
    place = world.instance_of(life)
    assert place
    entry = {
        "containerIndex": 0,
        "deviceIndex": 0,
        "gpuUUID": world.gpus[life.job.gpus[0]].uuid,
        "profile": place.profile,
        "placement": {"start": place.index, "size": place.slices},
        "migUUID": place.uuid,
        "gpuInstanceID": place.gpu_instance,
        "computeInstanceID": place.compute_instance,
    }
    return msgspec.json.encode([entry]).decode()


def stamp(at: float) -> str:
    """A time in the format of Kubernetes."""
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
