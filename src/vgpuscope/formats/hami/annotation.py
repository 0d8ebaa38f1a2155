"""What HAMi's scheduler and device plugin write on a pod.

    hami.io/vgpu-devices-allocated   what each container was given; until v2.2 the key was 4pd.io/vgpu-ids-new
    hami.io/vgpu-mig-allocations     JSON since v2.10: which MIG instance each of them became

A container is `<device>:<device>:…;`, a device `<uuid>,<vendor word>,<MiB>,<percent of cores>`; init containers come
first. A container without a GPU has been written as nothing, as `,,0,0:`, or (v2.10.0) left out altogether. Until v2.9
the uuid of a MIG device ends in `[template-slot]`. Other vendors' devices are written the same way under their own
keys.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

from vgpuscope.model.allocation import HeldInstance
from vgpuscope.model.errors import AnnotationMalformed
from vgpuscope.model.pod import Container, HamiShare, MigAllocation
from vgpuscope.model.quantity import MIB

_DEVICES = ("hami.io/vgpu-devices-allocated", "4pd.io/vgpu-ids-new")
_MIGS = "hami.io/vgpu-mig-allocations"
_DEVICE = re.compile(r"([^,\[]*+)[^,]*+,([^,]*+),([0-9]{1,12}),([0-9]{1,12})(?:,.*)?", re.DOTALL)
_MOST = 1024  # containers or devices of one pod; what has more is noise, and is not worth the time to read it
_LONGEST = 253  # characters of id and vendor word


def pod_shares(annotations: Mapping[str, str], containers: Sequence[Container]) -> tuple[HamiShare, ...]:
    """What each container was given on each GPU; nothing for a pod that HAMi did not place."""
    key = next((key for key in _DEVICES if key in annotations), None)
    if key is None:
        return ()
    segments = assigned_devices(key, annotations[key])
    shares: dict[tuple[str, str], HamiShare] = {}
    for container, devices in _holders(key, segments, containers):
        for uuid, _, memory, cores in devices:
            # Several MIG instances of one GPU are several devices here, and together one share of the GPU.
            share = shares.get((container.name, uuid))
            shares[container.name, uuid] = HamiShare(
                container=container.name,
                gpu=uuid,
                memory=memory * MIB + (share.memory if share else 0),
                cores=cores + (share.cores if share else 0),
            )
    return tuple(shares.values())


class AssignedDevice(NamedTuple):
    """One device of one container, as it is written."""

    uuid: str  # of the physical GPU
    word: str
    mib: int
    cores: int


def assigned_devices(key: str, text: str) -> list[list[AssignedDevice]]:
    """The devices in each segment of an assignment, whichever container that belongs to; AnnotationMalformed."""
    if text.count(";") > _MOST or text.count(":") > _MOST:
        raise AnnotationMalformed(f"{key}: more than {_MOST} devices")
    segments = text.strip().split(";")
    if not segments[-1]:  # each one is terminated, not parted, by its semicolon
        segments.pop()
    return [list(_devices(key, segment)) for segment in segments]


def _devices(key: str, segment: str) -> Iterator[AssignedDevice]:
    for device in filter(None, segment.split(":")):
        found = _DEVICE.fullmatch(device)
        if found is None or found.end(2) > _LONGEST:
            raise AnnotationMalformed(f"{key}: {device[:80]!r} is not uuid,type,memory,cores")
        card, word, mib, cores = found.groups()
        if card:
            yield AssignedDevice(card, word, int(mib), int(cores))


def _holders(
    key: str, segments: list[list[AssignedDevice]], containers: Sequence[Container]
) -> Iterator[tuple[Container, list[AssignedDevice]]]:
    """Which container each segment belongs to: by position, or where segments were left out by who asked for a GPU."""
    ordered = sorted(containers, key=lambda container: not container.init)
    if len(segments) != len(ordered):
        segments = [devices for devices in segments if devices]
        ordered = [container for container in ordered if container.gpu_request]
    if len(segments) > len(ordered):
        raise AnnotationMalformed(f"{key}: {len(segments)} containers with devices, but the pod has {len(ordered)}")
    return zip(ordered, segments, strict=False)


class _Placement(Struct, frozen=True):
    start: int
    size: int


class _Allocation(Struct, frozen=True, rename="camel"):
    container_index: int
    device_index: int
    profile: str
    placement: _Placement
    gpu: str = msgspec.field(name="gpuUUID")
    mig: str | None = msgspec.field(name="migUUID", default=None)
    gpu_instance: int | None = msgspec.field(name="gpuInstanceID", default=None)
    compute_instance: int | None = msgspec.field(name="computeInstanceID", default=None)

    def valid(self) -> bool:
        """Indexes and sizes that can be, and an instance that is named in full or not yet at all."""
        numbers = (self.container_index, self.device_index, self.placement.start, self.placement.size - 1)
        named = [part is not None for part in (self.mig, self.gpu_instance, self.compute_instance)]
        return min(numbers) >= 0 and all(named) == any(named)


_allocations = msgspec.json.Decoder(list[_Allocation])


def mig_allocations(annotations: Mapping[str, str]) -> tuple[MigAllocation, ...]:
    """The MIG instances HAMi chose for a pod; uuid and ids are None until its device plugin has made them."""
    return tuple(
        MigAllocation(
            container_index=one.container_index,
            device_index=one.device_index,
            gpu=one.gpu,
            profile=one.profile,
            mig=one.mig,
            gpu_instance=one.gpu_instance,
            compute_instance=one.compute_instance,
        )
        for one in _chosen(annotations)
    )


def held_instances(annotations: Mapping[str, str]) -> tuple[HeldInstance, ...]:
    """The same instances with their places on the GPUs."""
    return tuple(
        HeldInstance(
            container_index=one.container_index,
            device=one.gpu,
            profile=one.profile,
            start=one.placement.start,
            size=one.placement.size,
            mig=one.mig,
            gpu_instance=one.gpu_instance,
            compute_instance=one.compute_instance,
        )
        for one in _chosen(annotations)
    )


def _chosen(annotations: Mapping[str, str]) -> list[_Allocation]:
    text = annotations.get(_MIGS, "").strip()
    if not text:
        return []
    try:
        found = _allocations.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise AnnotationMalformed(f"{_MIGS}: {error}") from error
    places = {(one.container_index, one.device_index) for one in found}
    if len(places) != len(found) or not all(one.valid() for one in found):
        raise AnnotationMalformed(f"{_MIGS}: an instance comes twice, is half named or has an impossible place")
    return found
