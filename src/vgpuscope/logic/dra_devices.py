"""Groups the devices that DRA drivers publish into GPUs, so that each GPU is counted once.

A published device is a whole GPU or a part of one. A driver that partitions GPUs on demand publishes the GPU and all
parts it could have; they draw from the same counters. For a GPU with fixed partitions, only the parts are published.

The cluster exporter and the node agent resolve devices by the same rules.
"""

from collections.abc import Iterable
from typing import TypeAlias

from msgspec import Struct

from vgpuscope.model.allocation import RegisteredDevice
from vgpuscope.model.dra import DraDevice, SliceState
from vgpuscope.model.quantity import DeviceUUID

PoolKey: TypeAlias = tuple[str, str]  # driver, pool


class DraGpu(Struct, frozen=True):
    """One GPU, and the devices that are parts of it (or all of it)."""

    registered: RegisteredDevice  # without any allocation
    node: str
    pool: PoolKey
    devices: tuple[DraDevice, ...]
    processors: int  # 0: unknown


class ResourcePool(Struct, frozen=True):
    """The content of a pool's slices of the newest generation."""

    gpus: tuple[DraGpu, ...] = ()
    devices: dict[str, tuple[DraDevice, DraGpu]] = {}
    unplaced: int = 0


def make_pool(key: PoolKey, slices: Iterable[SliceState]) -> ResourcePool:
    """Merges the slices of a pool; if two slices name the same device, the last slice by name is used."""
    slices = sorted(slices, key=lambda one: one.name)
    newest = max((one.generation for one in slices), default=0)
    devices = {device.name: device for one in slices if one.generation == newest for device in one.devices}
    made_of: dict[tuple[str, str], list[DraDevice]] = {}
    for name in sorted(devices):
        made_of.setdefault((devices[name].node, devices[name].gpu), []).append(devices[name])
    gpus = [_gpu(key, made_of[at]) for at in sorted(made_of)]
    return ResourcePool(
        tuple(gpu for gpu in gpus if gpu.node),
        {device.name: (device, gpu) for gpu in gpus for device in gpu.devices},
        sum(not device.node for device in devices.values()),
    )


def _gpu(pool: PoolKey, devices: list[DraDevice]) -> DraGpu:
    """The GPU of these devices: one device is the whole GPU, or all of them are its fixed partitions."""
    whole = max((one for one in devices if not one.part), key=lambda one: one.memory, default=None)
    parts = [one for one in devices if one.part]
    first = whole or parts[0]
    registered = RegisteredDevice(
        id=_gpu_id(pool, first, cut=whole is None),
        vendor=pool[0],
        index=first.index,
        slots=_slots(whole, parts),
        memory=whole.memory if whole else sum(part.memory for part in parts),
        cores=100,
        type=first.type,
        numa=first.numa,
        mode="dra" if whole else "mig",
        healthy=any(one.healthy for one in devices),
        cordoned=any(one.cordoned for one in devices) and all(one.cordoned or not one.healthy for one in devices),
    )
    return DraGpu(registered, first.node, pool, tuple(devices), whole.processors if whole else 0)


def _gpu_id(pool: PoolKey, device: DraDevice, *, cut: bool) -> DeviceUUID:
    return (device.parent if cut else device.uuid) or synthetic_id(*pool, device.gpu if cut else device.name)


def real_id(gpu: DraGpu) -> DeviceUUID:
    """The GPU's UUID; "" if its driver publishes none."""
    return "" if gpu.registered.id.startswith(synthetic_id(*gpu.pool, "")) else gpu.registered.id


def synthetic_id(driver: str, pool: str, device: str) -> DeviceUUID:
    """The id of a device without a UUID."""
    return f"{driver}/{pool}/{device}"


def _slots(whole: DraDevice | None, parts: list[DraDevice]) -> int:
    """How many claims can share the GPU: the number of fixed partitions, or how many of the smallest part fit."""
    if whole is None:
        return sum(part.slots for part in parts)
    return max([whole.slots, *(fit for part in parts if (fit := _fits(part, whole)))])


def _fits(part: DraDevice, whole: DraDevice) -> int:
    amounts = ((part.memory, whole.memory), (part.processors, whole.processors))
    return min((total // amount for amount, total in amounts if amount and total), default=0)
