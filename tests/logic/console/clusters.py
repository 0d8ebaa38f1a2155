"""Ledgers of a cluster, made by hand for the GPUs of an analysis."""

from typing import Any

from vgpuscope.model.allocation import RegisteredDevice
from vgpuscope.model.cluster import Amount, Capacity, DeviceLedger, Holder, NodeLedger

GIB = 1024**3


def device(gpu_id: str, *, memory: int = 80 * GIB, allocated: int = 0, cores: int = 0, **more) -> DeviceLedger:
    fields: dict[str, Any] = {
        "id": gpu_id,
        "vendor": "NVIDIA",
        "slots": 10,
        "memory": memory,
        "cores": 100,
        "healthy": True,
    }
    registered = RegisteredDevice(**fields, **more)
    return DeviceLedger(device=registered, memory_allocated=allocated, cores_allocated=cores)


def holder(gpu_id: str, pod: str, *, namespace: str = "ml", container: str = "main", memory: int = GIB, cores: int = 0):
    return Holder(
        namespace=namespace,
        pod=pod,
        pod_uid=f"uid-{pod}",
        container_index=0,
        container=container,
        init=False,
        vendor="NVIDIA",
        device=gpu_id,
        memory=memory,
        cores=cores,
    )


def node(name: str, *devices: DeviceLedger, holders: tuple[Holder, ...] = (), **more) -> NodeLedger:
    whole = Amount(
        cards=len(devices),
        slots=sum(one.device.slots for one in devices),
        memory=sum(one.device.memory for one in devices),
        cores=sum(one.device.cores for one in devices),
    )
    return NodeLedger(name=name, devices=devices, holders=holders, capacity=Capacity(total=whole), **more)
