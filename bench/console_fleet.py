"""A fleet of shared GPUs as our agents show it, of any size: the same GPUs, pods and samples in every run."""

import json
import random
from collections.abc import Iterator
from typing import NamedTuple

from bench.analyzer_fleet import GPUS_ON_NODE, STEP, WINDOW
from vgpuscope.catalog import agent as m

TENANTS = 4  # pods on each GPU
SAMPLES = WINDOW // STEP
_NAMESPACES = 37
_MEMORY = 80 * 2**30
_MODELS = ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA L40S")
_LOADS = ((0, 0), (0, 0), (0, 2), (3, 10), (10, 20), (20, 25), (24, 25))  # percent of SMs of one pod, from and to
_SEED = 20250601

Labels = dict[str, str]


class Series(NamedTuple):
    """One series; a single value stands for all samples."""

    labels: str  # JSON without the braces, in the order in which Prometheus sends labels
    gpu_id: str
    values: tuple[float, ...]


def metrics(gpus: int) -> dict[str, list[Series]]:
    """Every series by the metric's name."""
    found: dict[str, list[Series]] = {}
    dice = random.Random(_SEED)
    for number in range(gpus):
        for name, labels, values in _of_gpu(number, dice):
            series = Series(
                json.dumps(dict(sorted(labels.items())), separators=(",", ":"))[1:-1], _uuid(number), values
            )
            found.setdefault(name, []).append(series)
    return found


Row = tuple[str, Labels, tuple[float, ...]]


def _of_gpu(number: int, dice: random.Random) -> Iterator[Row]:
    place, index = _place(number)
    gpu = {**place, "gpu_uuid": _uuid(number)}
    loads = [_load(dice) for _ in range(TENANTS)]
    used = [2**30 * dice.randint(2, 16) for _ in range(TENANTS)]
    if index == 0:
        yield from _of_node(place)
    yield from _of_pods(number, gpu, loads, used)
    total = tuple(min(1.0, sum(at)) for at in zip(*loads, strict=True))
    model = _MODELS[number // GPUS_ON_NODE % len(_MODELS)]
    yield m.GPU_INFO.name, {**gpu, "gpu_index": str(index), "model": model, "driver_version": "550.54.15"}, (1,)
    yield m.GPU_HEALTH.name, {**gpu, "health": "ok"}, (1,)
    yield m.GPU_MODE.name, {**gpu, "mode": "hami"}, (1,)
    yield m.GPU_UTILIZATION.name, gpu, total
    yield m.GPU_MEMORY_CONTROLLER.name, gpu, tuple(round(one / 2, 4) for one in total)
    yield m.GPU_MEMORY_USED.name, gpu, (sum(used),)
    yield m.GPU_MEMORY_TOTAL.name, gpu, (_MEMORY,)
    yield m.GPU_POWER.name, gpu, tuple(round(62 + 330 * one, 1) for one in total)
    yield m.GPU_POWER_LIMIT.name, gpu, (400,)
    yield m.GPU_SM_CLOCK.name, gpu, (1.41e9 if max(total) else 2.1e8,)
    yield m.GPU_TEMPERATURE.name, gpu, (round(34 + 40 * max(total)),)
    for owner, size in (("containers", sum(used)), ("system", 0), ("unattributed", 0), ("free", _MEMORY - sum(used))):
        yield m.GPU_MEMORY_LEDGER.name, {**gpu, "owner": owner}, (size,)


def _of_pods(number: int, gpu: Labels, loads: list[tuple[float, ...]], used: list[int]) -> Iterator[Row]:
    for slot, (load, size) in enumerate(zip(loads, used, strict=True)):
        pod = number * TENANTS + slot
        labels = {
            **gpu,
            "namespace": f"team-{pod * 7919 % _NAMESPACES:02d}",
            "pod": f"{'notebook' if slot else 'trainer'}-{pod:06d}",
            "pod_uid": f"{pod:08x}-5d1f-4a3e-8b7c-{pod * 2654435761 % 2**48:012x}",
            "container": "main",
        }
        vgpu = {**labels, "vdevice_index": "0"}
        yield m.CONTAINER_INFO.name, {**labels, "mode": "hami", "allocated": "true"}, (1,)
        yield m.CONTAINER_STATE.name, {**labels, "state": "running"}, (1,)
        yield m.CONTAINER_PROCESSES.name, labels, (1,)
        yield m.CONTAINER_SM.name, labels, load
        yield m.CONTAINER_MEMORY_USED.name, labels, (size,)
        yield m.CONTAINER_MEMORY_TOTAL.name, labels, (_MEMORY // TENANTS,)
        yield m.CONTAINER_POWER.name, labels, (round(15 + 330 * load[-1], 1),)
        yield m.VGPU_MEMORY_LIMIT.name, vgpu, (_MEMORY // TENANTS,)
        yield m.VGPU_SM_LIMIT.name, vgpu, (0.25,)
        yield m.VGPU_PRIORITY.name, vgpu, (1,)
        yield m.VGPU_BLOCKED.name, vgpu, (0,)
        yield m.VGPU_LAST_KERNEL.name, vgpu, (1.75e9,)


def _of_node(place: Labels) -> Iterator[Row]:
    for source in ("nvml", "regions", "proc", "pods", "podresources"):
        yield m.SOURCE_UP.name, {**place, "source": source}, (1,)
        yield m.SOURCE_AGE_SECONDS.name, {**place, "source": source}, (0.4,)
    yield m.SAMPLE_TIME.name, place, (1.75e9,)
    yield m.BUILD_INFO.name, {"instance": place["instance"], "job": place["job"], "version": "1.0.0"}, (1,)


def _place(number: int) -> tuple[Labels, int]:
    node, index = divmod(number, GPUS_ON_NODE)
    address = f"10.{node >> 8 & 255}.{node & 255}.17:9400"
    return {"instance": address, "job": "gpu-agents", "node": f"gpu-node-{node:05d}"}, index


def _uuid(number: int) -> str:
    return f"GPU-{number * 2654435761 % 2**32:08x}-7c3a-4e5b-9d21-{number:012x}"


def _load(dice: random.Random) -> tuple[float, ...]:
    low, high = dice.choice(_LOADS)
    return tuple(dice.randint(low, high) / 100 for _ in range(SAMPLES))
