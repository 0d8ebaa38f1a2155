"""The objects of a cluster for measuring: nodes with eight GPUs, four pods on each GPU, as an API server sends them.

A pod also has the fields that real pods have and that the exporter does not need (managed fields, volumes, conditions),
because skipping them is part of the cost of an event.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

Object = dict[str, Any]

GPUS = 8
PER_GPU = 4
PODS = GPUS * PER_GPU  # on each node
TEAMS = 20
GIVEN = 8192  # MiB that each pod has at first
_GPU = 81920  # MiB
_SINCE = "2025-06-01T08:00:00Z"
_ASKED = {"nvidia.com/gpu": "1", "nvidia.com/gpucores": "20", "cpu": "8", "memory": "64Gi"}


class Place(NamedTuple):
    """One pod: the number of its node, and its number on that node."""

    node: int
    slot: int


def places(nodes: int) -> list[Place]:
    """Every pod of a cluster."""
    return [Place(node, slot) for node in range(nodes) for slot in range(PODS)]


def nodes(count: int) -> Iterator[Object]:
    """That many nodes."""
    return (node(number) for number in range(count))


def pods(count: int) -> Iterator[Object]:
    """The pods of that many nodes."""
    return (pod(place, memory=GIVEN) for place in places(count))


def node(number: int) -> Object:
    """A node whose plugin registered its GPUs."""
    gpus = [
        {
            "id": _gpu(number, index),
            "index": index,
            "count": 10,
            "devmem": _GPU,
            "devcore": 100,
            "type": "NVIDIA A100-SXM4-80GB",
            "numa": index // 4,
            "mode": "hami-core",
            "health": True,
        }
        for index in range(GPUS)
    ]
    room = {"cpu": "128", "memory": "2048Gi", "pods": "250", "nvidia.com/gpu": "80"}
    name = _node(number)
    return {
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"{number:08x}-0000-4111-8222-{number:012x}",
            "creationTimestamp": _SINCE,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "gpu": "on"},
            "annotations": {
                "hami.io/node-handshake": "Reported 2025-06-01 08:00:00",
                "hami.io/node-nvidia-register": json.dumps(gpus),
            },
        },
        "spec": {},
        "status": {"capacity": room, "allocatable": room, "conditions": [_condition("Ready")]},
    }


def pod(place: Place, *, memory: int) -> Object:
    """A running pod with a part of a GPU, this many MiB."""
    number = place.node * PODS + place.slot
    where, gpu = _node(place.node), _gpu(place.node, place.slot // PER_GPU)
    given = f"{gpu},NVIDIA,{memory},20:;"
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("data", "scratch", "models")]
    return {
        "kind": "Pod",
        "metadata": {
            "name": f"trainer-{number:06d}-7c9d8b6f5-abcde",
            "generateName": f"trainer-{number:06d}-7c9d8b6f5-",
            "namespace": f"team-{number % TEAMS}",
            "uid": f"{number:08x}-1111-4222-8333-{number:012x}",
            "creationTimestamp": _SINCE,
            "labels": {"app": "trainer", "pod-template-hash": "7c9d8b6f5", "hami.io/vgpu-node": where},
            "annotations": {
                "hami.io/bind-phase": "success",
                "hami.io/bind-time": "1748764800",
                "hami.io/vgpu-node": where,
                "hami.io/vgpu-time": "1748764799",
                "hami.io/vgpu-devices-allocated": given,
                "hami.io/vgpu-devices-to-allocate": ";",
            },
            "managedFields": _managed_fields(),
        },
        "spec": {
            "nodeName": where,
            "schedulerName": "hami-scheduler",
            "restartPolicy": "Always",
            "serviceAccountName": "default",
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example.com/ml/trainer:2025.6",
                    "command": ["python", "-m", "trainer", "--config", "/data/config.yaml"],
                    "env": [{"name": f"SETTING_{i}", "value": f"value-{i}"} for i in range(8)],
                    "resources": {"limits": {**_ASKED, "nvidia.com/gpumem": str(memory)}, "requests": _ASKED},
                    "volumeMounts": mounts,
                }
            ],
            "volumes": [{"name": mount["name"], "emptyDir": {}} for mount in mounts],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        },
        "status": {
            "phase": "Running",
            "podIP": "10.1.2.3",
            "hostIP": "10.0.0.3",
            "startTime": _SINCE,
            "conditions": [_condition(word) for word in ("Initialized", "Ready", "ContainersReady", "PodScheduled")],
            "containerStatuses": [
                {
                    "name": "main",
                    "ready": True,
                    "started": True,
                    "restartCount": 0,
                    "containerID": f"containerd://{number:064x}",
                    "image": "registry.example.com/ml/trainer:2025.6",
                    "imageID": f"registry.example.com/ml/trainer@sha256:{7:064x}",
                    "state": {"running": {"startedAt": _SINCE}},
                }
            ],
        },
    }


def _node(number: int) -> str:
    return f"gpu-node-{number:05d}"


def _gpu(number: int, index: int) -> str:
    return f"GPU-{number:08x}-{index:04x}-4aaa-8bbb-{number:06x}{index:06x}"


def _condition(word: str) -> Object:
    return {"type": word, "status": "True", "lastTransitionTime": _SINCE}


def _managed_fields() -> list[Object]:
    fields: Object = {
        f"f:{word}": {".": {}, "f:name": {}, "f:value": {}} for word in ("metadata", "spec", "status", "volumes")
    }
    return [
        {"manager": who, "operation": "Update", "apiVersion": "v1", "time": _SINCE, "fieldsV1": fields}
        for who in ("kube-controller-manager", "hami-scheduler", "kubelet")
    ]
