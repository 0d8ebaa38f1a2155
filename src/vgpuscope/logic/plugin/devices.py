"""The ids that the kubelet may allocate, and which of them are best."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from vgpuscope.model.plugin import GpuState, OfferedDevice
from vgpuscope.model.quantity import DeviceUUID


def offered(states: Iterable[GpuState], *, split: int) -> tuple[OfferedDevice, ...]:
    """Every id of every GPU: `<uuid>-<n>` for its shares, the UUIDs of its instances with MIG."""
    found: list[OfferedDevice] = []
    for state in states:
        gpu = state.gpu
        names = (
            [(one.uuid, one.uuid) for one in gpu.instances]
            if gpu.mig
            else [(f"{gpu.uuid}-{n}", gpu.uuid) for n in range(split)]
        )
        found += [
            OfferedDevice(id=name, gpu=gpu.uuid, visible=visible, healthy=state.healthy, numa=gpu.numa)
            for name, visible in names
        ]
    return tuple(found)


def preferred(
    available: Sequence[str],
    required: Sequence[str],
    size: int,
    *,
    devices: Mapping[str, OfferedDevice],
    assigned: Collection[DeviceUUID] = (),
) -> tuple[str, ...]:
    """`size` ids with all that are required: first those that are assigned, then of as many GPUs as possible.

    `assigned` are GPUs or MIG instances. The ids that a pod holds are then its own, also for those who ask the kubelet.
    """
    chosen = list(dict.fromkeys(required))[:size]
    used = Counter(_gpu(one, devices) for one in chosen)
    missing = Counter(assigned)
    missing.subtract(_visible(one, devices) for one in chosen)
    left = [one for one in dict.fromkeys(available) if one not in chosen]
    while left and len(chosen) < size:
        best = min(left, key=lambda one: (missing[_visible(one, devices)] <= 0, used[_gpu(one, devices)]))
        left.remove(best)
        chosen.append(best)
        used[_gpu(best, devices)] += 1
        missing[_visible(best, devices)] -= 1
    return tuple(chosen)


def _gpu(id_: str, devices: Mapping[str, OfferedDevice]) -> str:
    return devices[id_].gpu if id_ in devices else id_


def _visible(id_: str, devices: Mapping[str, OfferedDevice]) -> str:
    return devices[id_].visible if id_ in devices else id_
