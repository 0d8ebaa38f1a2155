"""The GPUs of a node, as registered for HAMi's scheduler."""

import math
from collections.abc import Iterable

from vgpuscope.model.allocation import RegisteredDevice
from vgpuscope.model.plugin import GpuRegistration, GpuState, PluginGpu, PluginMigProfile, StaticInstance
from vgpuscope.model.quantity import MIB, Bytes

_SLICES = 7  # compute slices of a GPU with MIG


def registrations(
    states: Iterable[GpuState],
    *,
    split: int,
    memory_scaling: float = 1.0,
    core_scaling: float = 1.0,
    memory_unless_known: int | None = None,
) -> tuple[GpuRegistration, ...]:
    """Every GPU whose memory is known; `memory_unless_known` is the MiB of the others, None: they are left out."""
    found = []
    for state in states:
        gpu = state.gpu
        memory = gpu.memory // MIB if gpu.memory else memory_unless_known
        if memory is None:
            continue
        found.append(
            GpuRegistration(
                id=gpu.uuid,
                index=gpu.index,
                slots=len(gpu.instances) if gpu.mig else split,
                memory=memory if gpu.mig else int(memory * memory_scaling),
                cores=100 if gpu.mig else int(100 * core_scaling),
                type=_type(gpu.model),
                numa=gpu.numa or 0,
                mode="mig" if gpu.mig else "hami-core",
                profiles=tuple(_profiles(gpu)),
                healthy=state.healthy,
            )
        )
    return tuple(found)


def registered_before(devices: Iterable[RegisteredDevice], *, memory_scaling: float) -> tuple[PluginGpu, ...]:
    """The GPUs of an earlier registration, with memory that gives the same registration again."""
    return tuple(
        PluginGpu(
            uuid=one.id,
            index=one.index,
            model=one.type,
            memory=_unscaled(one.memory, 1.0 if one.mode == "mig" else memory_scaling),
            numa=one.numa if one.numa > 0 else None,
            mig=one.mode == "mig",
        )
        for one in devices
    )


def placed(instance: StaticInstance) -> bool:
    """Whether the driver reports where a MIG instance is, and by which profile it was made."""
    return bool(instance.profile and instance.start is not None and instance.size)


def _unscaled(memory: Bytes, scaling: float) -> Bytes | None:
    return math.ceil(memory // MIB / scaling) * MIB or None


def _type(model: str) -> str:
    """As HAMi names it: with the vendor's name exactly once."""
    return model if model.startswith("NVIDIA") else f"NVIDIA-{model}"


def _profiles(gpu: PluginGpu) -> Iterable[PluginMigProfile]:
    """The profiles of the instances that exist, with their places: the scheduler then chooses one of them."""
    by_name: dict[str, list[StaticInstance]] = {}
    for one in gpu.instances:
        if one.profile and one.start is not None and one.size:
            by_name.setdefault(one.profile, []).append(one)
    for name, same in sorted(by_name.items(), key=lambda item: (item[1][0].memory or 0, item[0])):
        first = same[0]
        slices = first.slices or 0
        yield PluginMigProfile(
            name=name,
            memory=(first.memory or 0) // MIB,
            cores=-(-100 * slices // _SLICES),
            slices=slices,
            placements=tuple(sorted((one.start or 0, one.size or 0) for one in same)),
        )
