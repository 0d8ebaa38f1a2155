"""The files of a planned node that a real agent reads: the driver's state, /proc, HAMi's regions, pods and grants."""

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from tests.audit.plan import Gpu, Instance, Node, Plan, Pod, Use
from vgpuscope.sim.podresources import Granted
from vgpuscope.sim.regions import DeviceUse, RegionFile
from vgpuscope.sim.state import NO_INSTANCE, DriverState, GpuState, InstanceState, ProcessState, Utilization

MIB = 1 << 20
RESERVED = 512  # MiB of a GPU that the driver keeps
Json = dict[str, Any]


def container_id(uid: str, container: str) -> str:
    return hashlib.sha256(f"{uid}/{container}".encode()).hexdigest()


def watts(gpu: Gpu, sm: float) -> float:
    """The power of a GPU that is busy for so many percent of the time."""
    return gpu.model.idle_watts + (gpu.model.limit_watts - gpu.model.idle_watts) * sm / 100


def busy(plan: Plan, gpu: Gpu, hour: int) -> float:
    """Percent of the time in which a kernel runs on the GPU; an instance is a part of it."""
    parts = {one.uuid: one.slices / 7 for one in gpu.instances}
    return sum(
        pod.sm(use, hour) * parts.get(use.instance or "", 1.0) for pod, use in plan.uses(hour) if use.gpu == gpu.uuid
    )


def used(plan: Plan, gpu: Gpu, hour: int, instance: str | None = None) -> int:
    """MiB that processes have, of the whole GPU or of one instance."""
    return sum(use.used for _, use in plan.uses(hour) if use.gpu == gpu.uuid and instance in {None, use.instance})


class Hardware:
    """One node as a directory; `tick` sets the time of its driver's samples."""

    def __init__(self, root: Path, node: Node, plan: Plan) -> None:
        self.root, self.node, self.plan = root, node, plan
        self.pods = [pod for pod in plan.current if pod.uses[0].node == node.name]
        self._pids: dict[tuple[str, str], int] = {}
        (root / "vgpu" / "containers").mkdir(parents=True)
        (root / "proc").mkdir()
        (root / "cgroup").mkdir()
        (root / "cgroup" / "cgroup.controllers").write_text("cpu io memory\n")
        for pod in self.pods:
            for container in dict.fromkeys(use.container for use in pod.uses if use.used):
                self._process(pod, container)
            if node.hami:
                for container in pod.containers:
                    self._region(pod, container)
        listed = [pod_object(plan, pod) for pod in self.pods if pod.listed]
        (root / "pods.json").write_text(json.dumps({"apiVersion": "v1", "kind": "PodList", "items": listed}))

    def tick(self, at: float) -> None:
        gpus = tuple(self._gpu(index, gpu, at) for index, gpu in enumerate(self.node.gpus))
        state = DriverState(driver="580.95.05", cuda=13000, gpus=gpus)
        fresh = self.root / ".devices.json"
        fresh.write_bytes(msgspec.json.encode(state))
        fresh.replace(self.root / "devices.json")

    def grants(self) -> list[Granted]:
        """What the kubelet says that it gave to the containers."""
        return [self._granted(pod, use) for pod in self.pods for use in pod.uses]

    def _granted(self, pod: Pod, use: Use) -> Granted:
        where = Granted(namespace=pod.namespace, pod=pod.name, container=use.container)
        if use.instance:
            return where._replace(resource=mig_resource(self.plan, use), device_ids=(use.instance,))
        if use.replica is not None:
            return where._replace(resource="nvidia.com/gpu", device_ids=(f"{use.gpu}::{use.replica}",))
        if self.node.hami:
            return where._replace(resource="nvidia.com/gpu", device_ids=(f"{use.gpu}-{pod.uid[:1]}",))
        return where._replace(resource="nvidia.com/gpu", device_ids=(use.gpu,))

    def _process(self, pod: Pod, container: str) -> None:
        pid = self._pids[pod.uid, container] = 5000 + len(self._pids)
        where = self.root / "proc" / str(pid)
        where.mkdir()
        (where / "stat").write_text(f"{pid} (python3) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {pid} 0 0\n")
        scope = f"cri-containerd-{container_id(pod.uid, container)}.scope"
        slice_ = f"kubepods-burstable-pod{pod.uid.replace('-', '_')}.slice"
        (where / "cgroup").write_text(f"0::/kubepods.slice/kubepods-burstable.slice/{slice_}/{scope}\n")

    def _region(self, pod: Pod, container: str) -> None:
        uses = [use for use in pod.uses if use.container == container]
        where = self.root / "vgpu" / "containers" / f"{pod.uid}_{container}"
        where.mkdir()
        pid = self._pids.get((pod.uid, container))
        if pid is None:
            return  # it has not started CUDA: HAMi's library has made no region yet
        region = RegionFile(
            where / "0b1c.cache",
            layout="v1.2",
            uuids=[use.gpu for use in uses],
            memory_limits=[(use.allocated or 0) * MIB for use in uses],
            sm_limit=uses[0].cores or 100,
            now=1_700_000_000,
        )
        region.attach(7, now=1_700_000_000, alive={7})
        devices = [DeviceUse(context=0, data=use.used * MIB, driver_used=use.used * MIB, sm=use.sm) for use in uses]
        region.update(7, host_pid=pid, devices=devices)
        region.close()

    def _gpu(self, index: int, gpu: Gpu, at: float) -> GpuState:
        model, part = gpu.model, busy(self.plan, gpu, 0)
        whole = None if gpu.instances else round(part)
        return GpuState(
            index=index,
            uuid=gpu.uuid,
            name=model.name,
            serial=None,
            bus_id=f"00000000:{7 + index:02X}:00.0",
            total=model.memory * MIB,
            reserved=RESERVED * MIB,
            used=used(self.plan, gpu, 0) * MIB,
            busy=whole,
            memory_busy=None if whole is None else whole // 2,
            encoder=None if whole is None else 0,
            decoder=None if whole is None else 0,
            power_mw=round(watts(gpu, part) * 1000),
            limit_mw=model.limit_watts * 1000,
            energy_mj=int(watts(gpu, part) * 1000 * (at - 1_700_000_000)),
            temperature=40,
            memory_temperature=45,
            sm_mhz=1410,
            sm_max_mhz=1410,
            memory_mhz=1593,
            memory_max_mhz=1593,
            throttle=0 if part else 1,
            sent=0,
            received=0,
            ecc=(0, 0),
            remapped=(0, 0, 0, 0),
            mig=bool(gpu.instances) if model.name not in {"Tesla T4", "NVIDIA L4"} else None,
            max_instances=7 if gpu.instances else 0,
            instances=tuple(self._instance(gpu, number, one) for number, one in enumerate(gpu.instances)),
            processes=tuple(self._processes(gpu, at)),
            gpm=_profile(part) if model.profiled else None,
        )

    def _instance(self, gpu: Gpu, number: int, one: Instance) -> InstanceState:
        sm = sum(pod.sm(use, 0) for pod, use in self.plan.uses() if use.instance == one.uuid)
        return InstanceState(
            index=number,
            uuid=one.uuid,
            name=f"{gpu.model.name} MIG {one.profile}",
            gpu_instance=one.number,
            compute_instance=0,
            total=one.memory * MIB,
            reserved=0,
            used=used(self.plan, gpu, 0, one.uuid) * MIB,
            slices=one.slices,
            memory_slices=one.slices,
            gpm=_profile(sm) if gpu.model.profiled else None,
        )

    def _processes(self, gpu: Gpu, at: float) -> list[ProcessState]:
        numbers = {one.uuid: one.number for one in gpu.instances}
        return [
            ProcessState(
                pid=self._pids[pod.uid, use.container],
                kinds=("C", "M") if self.node.kind == "mps" else ("C",),
                memory=use.used * MIB,
                gpu_instance=numbers.get(use.instance or "", NO_INSTANCE),
                compute_instance=0 if use.instance else NO_INSTANCE,
                sample=Utilization(at=int(at * 1e6), sm=use.sm) if use.sm and not use.instance else None,
            )
            for pod in self.pods
            for use in pod.uses
            if use.gpu == gpu.uuid and use.used
        ]


def _profile(sm: float) -> dict[int, float]:
    return {1: sm, 2: sm * 0.9, 3: sm * 0.5, 5: sm * 0.4, 10: sm * 0.5, 11: 0.0, 12: sm * 0.2, 13: 0.0}


# --- the same pods and nodes, as the API server has them ---


def stamp(at: float) -> str:
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


BORN = 1_700_000_000.0


def mig_resource(plan: Plan, use: Use) -> str:
    gpu = next(gpu for gpu in plan.node(use.node).gpus if gpu.uuid == use.gpu)
    profile = next(one.profile for one in gpu.instances if one.uuid == use.instance)
    return f"nvidia.com/mig-{profile}"


def pod_object(plan: Plan, pod: Pod) -> Json:
    node = plan.node(pod.uses[0].node)
    containers = [_container(plan, pod, name) for name in pod.containers]
    init = [_container(plan, pod, pod.containers[0]) | {"name": pod.init}] if pod.init else []
    metadata: Json = {
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
        "creationTimestamp": stamp(BORN),
        "annotations": {},
    }
    if pod.owner:
        reference = {
            "apiVersion": "apps/v1",
            "kind": pod.owner,
            "name": pod.name.rpartition("-")[0],
            "controller": True,
        }
        metadata["ownerReferences"] = [reference]
    if node.hami:
        segments = []
        first = pod.containers[:1] if pod.init else ()  # the init container had what the first container has
        for name in (*first, *pod.containers):
            uses = [use for use in pod.uses if use.container == name]
            segments.append("".join(f"{use.gpu},NVIDIA,{use.allocated},{use.cores or 0}:" for use in uses) + ";")
        metadata["annotations"] = {
            "hami.io/vgpu-node": node.name,
            "hami.io/vgpu-time": str(int(BORN)),
            "hami.io/bind-time": str(int(BORN)),
            "hami.io/bind-phase": "success",
            "hami.io/vgpu-devices-allocated": "".join(segments),
            "hami.io/vgpu-devices-to-allocate": ";",
        }
        metadata["labels"] = {"hami.io/vgpu-node": node.name}
    running = [
        {
            "name": name,
            "containerID": f"containerd://{container_id(pod.uid, name)}",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "image": "image",
            "imageID": "",
            "state": {"running": {"startedAt": stamp(BORN)}},
        }
        for name in pod.containers
    ]
    status: Json = {
        "phase": "Running",
        "qosClass": "Burstable",
        "startTime": stamp(BORN),
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(BORN)}],
        "containerStatuses": running,
    }
    if pod.init:
        done = running[0] | {
            "name": pod.init,
            "containerID": f"containerd://{container_id(pod.uid, pod.init)}",
            "state": {"terminated": {"exitCode": 0, "startedAt": stamp(BORN), "finishedAt": stamp(BORN + 9)}},
        }
        status["initContainerStatuses"] = [done]
    spec: Json = {
        "schedulerName": "hami-scheduler" if node.hami else "default-scheduler",
        "nodeName": node.name,
        "containers": containers,
        "restartPolicy": "Always",
    }
    if init:
        spec["initContainers"] = init
    return {"metadata": metadata, "spec": spec, "status": status}


def _container(plan: Plan, pod: Pod, name: str) -> Json:
    uses = [use for use in pod.uses if use.container == name]
    limits: dict[str, str] = {}
    if uses and uses[0].allocated is not None:
        limits = {"nvidia.com/gpu": str(len(uses)), "nvidia.com/gpumem": str(uses[0].allocated)}
        if uses[0].cores:
            limits["nvidia.com/gpucores"] = str(uses[0].cores)
    elif uses:
        limits = {mig_resource(plan, uses[0]) if uses[0].instance else "nvidia.com/gpu": str(len(uses))}
    return {"name": name, "image": "image", "resources": {"limits": limits, "requests": limits} if limits else {}}


def node_object(node: Node) -> Json:
    offers: dict[str, str] = {"cpu": "64", "memory": "515Gi", "pods": "110"}
    annotations: dict[str, str] = {}
    if node.hami:
        devices = [
            {
                "id": gpu.uuid,
                "index": index,
                "count": 10,
                "devmem": gpu.model.memory * node.scaling,
                "devcore": 100 * node.scaling,
                "type": gpu.model.name,
                "numa": 0,
                "mode": "hami-core",
                "health": gpu.healthy,
            }
            for index, gpu in enumerate(node.gpus)
        ]
        annotations["hami.io/node-nvidia-register"] = json.dumps(devices)
        cordoned = ",".join(gpu.uuid for gpu in node.gpus if gpu.cordoned)
        if cordoned:
            annotations["hami.io/device-cordon"] = cordoned
        offers["nvidia.com/gpu"] = str(10 * len(node.gpus))
    else:
        whole = [gpu for gpu in node.gpus if not gpu.instances]
        times = 4 if node.kind in {"sliced", "mps"} else 1
        offers["nvidia.com/gpu"] = str(times * len(whole))
        for gpu in node.gpus:
            for one in gpu.instances:
                name = f"nvidia.com/mig-{one.profile}"
                offers[name] = str(int(offers.get(name, "0")) + 1)
    labels = {"gpu": "on"}
    whole_gpus = [gpu for gpu in node.gpus if not gpu.instances]
    if not node.hami and whole_gpus:
        labels |= {
            "nvidia.com/gpu.product": whole_gpus[0].model.name.replace(" ", "-"),
            "nvidia.com/gpu.memory": str(whole_gpus[0].model.memory),
            "nvidia.com/gpu.count": str(sum(gpu.model == whole_gpus[0].model for gpu in node.gpus)),
            "nvidia.com/gpu.replicas": "4" if node.kind in {"sliced", "mps"} else "1",
            "nvidia.com/gpu.sharing-strategy": {"sliced": "time-slicing", "mps": "mps"}.get(node.kind, "none"),
        }
    return {
        "metadata": {"name": node.name, "uid": f"uid-{node.name}", "annotations": annotations, "labels": labels},
        "spec": {} if node.schedulable else {"unschedulable": True},
        "status": {
            "capacity": offers,
            "allocatable": offers,
            "conditions": [{"type": "Ready", "status": "True" if node.ready else "Unknown"}],
        },
    }


def waiting_object(plan: Plan, number: int) -> Json:
    one = plan.waiting[number]
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(one.memory)}
    return {
        "metadata": {
            "name": one.name,
            "namespace": one.namespace,
            "uid": f"uid-waits-{number}",
            "creationTimestamp": stamp(BORN + 10_000),
        },
        "spec": {
            "schedulerName": "hami-scheduler",
            "containers": [{"name": "main", "image": "image", "resources": {"limits": limits, "requests": limits}}],
        },
        "status": {"phase": "Pending"},
    }


def quota_object(namespace: str, memory: int) -> Json:
    return {
        "metadata": {"name": "gpu", "namespace": namespace, "uid": f"uid-quota-{namespace}"},
        "spec": {"hard": {"limits.nvidia.com/gpumem": str(memory)}},
        "status": {},
    }
