"""The annotations that HAMi's scheduler and device plugin write on pods and on locked nodes: decoded and encoded.

    hami.io/vgpu-devices-allocated   the devices of each container; until v2.2 the key was 4pd.io/vgpu-ids-new
    hami.io/vgpu-mig-allocations     JSON since v2.10: the MIG instance of each device

A container is `<device>:<device>:…;`, a device `<uuid>,<vendor word>,<MiB>,<percent of cores>`; init containers come
first. A container without a GPU is an empty segment, `,,0,0:`, or (v2.10.0) has no segment at all. Until v2.9 the uuid
of a MIG device ends in `[template-slot]`. Devices of other vendors have the same format under their own keys.

    hami.io/vgpu-node, hami.io/vgpu-time    the node that the scheduler chose, and when (Unix seconds)
    hami.io/<vendor>-devices-to-allocate    the same text as -allocated; the device plugin empties it as it allocates
    hami.io/bind-phase, hami.io/bind-time   allocating, then success or failed; when the binding began
    hami.io/mutex.lock                      on a node: `<RFC 3339>,<namespace>,<pod>` while a pod is being bound to it
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from vgpuscope.formats.times import from_rfc3339
from vgpuscope.knowledge.vendors import Vendor
from vgpuscope.model.allocation import HeldInstance
from vgpuscope.model.errors import AnnotationMalformed
from vgpuscope.model.pod import Container, HamiShare, MigAllocation
from vgpuscope.model.quantity import MIB, UnixTime

ALLOCATED, TO_ALLOCATE = "hami.io/vgpu-devices-allocated", "hami.io/vgpu-devices-to-allocate"
MIG_ALLOCATIONS = "hami.io/vgpu-mig-allocations"
_DEVICES = (ALLOCATED, "4pd.io/vgpu-ids-new")
_MIGS = MIG_ALLOCATIONS
_DEVICE = re.compile(r"([^,\[]*+)[^,]*+,([^,]*+),([0-9]{1,12}),([0-9]{1,12})(?:,.*)?", re.DOTALL)
_MOST = 1024  # containers or devices of one pod; a longer annotation is malformed and is not parsed
_LONGEST = 253  # characters of id and vendor word
_MOST_SLICES = 64  # memory slices of a GPU; NVIDIA's have at most 8


def pod_shares(annotations: Mapping[str, str], containers: Sequence[Container]) -> tuple[HamiShare, ...]:
    """The share of each GPU that each container was allocated; empty for a pod that HAMi did not place."""
    key = next((key for key in _DEVICES if key in annotations), None)
    if key is None:
        return ()
    segments = assigned_devices(key, annotations[key])
    shares: dict[tuple[str, str], HamiShare] = {}
    for container, devices in _holders(key, segments, containers):
        for uuid, _, memory, cores in devices:
            # Several MIG instances of one GPU are several devices in the annotation, but one share of the GPU.
            share = shares.get((container.name, uuid))
            shares[container.name, uuid] = HamiShare(
                container=container.name,
                gpu=uuid,
                memory=memory * MIB + (share.memory if share else 0),
                cores=cores + (share.cores if share else 0),
            )
    return tuple(shares.values())


def is_assigned(annotations: Mapping[str, str]) -> bool:
    """Whether a scheduler of HAMi's kind assigned NVIDIA devices to the pod; the text may be malformed."""
    return any(key in annotations for key in (*_DEVICES, TO_ALLOCATE, _MIGS))


class AssignedDevice(NamedTuple):
    """One device of one container, as the annotation has it."""

    uuid: str  # of the physical GPU
    word: str
    mib: int
    cores: int


def assigned_devices(key: str, text: str) -> list[list[AssignedDevice]]:
    """The devices in each segment of an assignment, without matching segments to containers; AnnotationMalformed."""
    if text.count(";") > _MOST or text.count(":") > _MOST:
        raise AnnotationMalformed(f"{key}: more than {_MOST} devices")
    segments = text.strip().split(";")
    if not segments[-1]:  # a semicolon ends each segment, so the last part is empty
        segments.pop()
    return [list(_devices(key, segment)) for segment in segments]


def _devices(key: str, segment: str) -> Iterator[AssignedDevice]:
    for device in filter(None, segment.split(":")):
        found = _DEVICE.fullmatch(device)
        if found is None or found.end(2) > _LONGEST:
            raise AnnotationMalformed(f"{key}: {device[:80]!r} is not uuid,type,memory,cores")
        gpu, word, mib, cores = found.groups()
        if gpu:
            yield AssignedDevice(gpu, word, int(mib), int(cores))


def _holders(
    key: str, segments: list[list[AssignedDevice]], containers: Sequence[Container]
) -> Iterator[tuple[Container, list[AssignedDevice]]]:
    """The container of each segment: by position; if segments are missing, only containers that request GPUs."""
    ordered = sorted(containers, key=lambda container: not container.init)
    if len(segments) != len(ordered):
        segments = [devices for devices in segments if devices]
        ordered = [container for container in ordered if container.gpu_request]
    if len(segments) > len(ordered):
        raise AnnotationMalformed(f"{key}: {len(segments)} containers with devices, but the pod has {len(ordered)}")
    return zip(ordered, segments, strict=False)


def container_at(
    key: str, segments: list[list[AssignedDevice]], position: int, containers: Sequence[Container]
) -> tuple[int, Container]:
    """The container of one segment and its number, init containers first; AnnotationMalformed if there is none.

    `segments` are those of the whole assignment, served ones included.
    """
    ordered = list(enumerate(sorted(containers, key=lambda container: not container.init)))
    if len(segments) != len(ordered):
        position = sum(1 for devices in segments[:position] if devices)
        ordered = [one for one in ordered if one[1].gpu_request]
    if position >= len(ordered):
        raise AnnotationMalformed(f"{key}: segment {position + 1}, but the pod has {len(ordered)} such containers")
    return ordered[position]


class NextSegment(NamedTuple):
    """The first container that still waits for devices."""

    position: int
    devices: list[AssignedDevice]
    rest: str  # the annotation once it has them
    last: bool


def next_segment(key: str, text: str) -> NextSegment | None:
    """The first segment with devices of what is to be allocated; None if nothing is left. AnnotationMalformed."""
    segments = assigned_devices(key, text)
    filled = [number for number, devices in enumerate(segments) if devices]
    if not filled:
        return None
    texts = text.strip().split(";")
    texts[filled[0]] = ""
    return NextSegment(filled[0], segments[filled[0]], ";".join(texts), len(filled) == 1)


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
        """Whether indexes and sizes are possible, and the instance has either all of its ids or none yet."""
        numbers = (self.container_index, self.device_index, self.placement.start, self.placement.size - 1)
        named = [part is not None for part in (self.mig, self.gpu_instance, self.compute_instance)]
        possible = min(numbers) >= 0 and max(self.container_index, self.device_index) < _MOST
        within = self.placement.start + self.placement.size <= _MOST_SLICES
        return possible and within and all(named) == any(named)


_allocations = msgspec.json.Decoder(list[_Allocation])


def mig_allocations(annotations: Mapping[str, str]) -> tuple[MigAllocation, ...]:
    """The MIG instances that HAMi chose for a pod; uuid and ids are None until its device plugin has created them."""
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
    """The same MIG instances with their placement on the GPUs."""
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
    if len(found) > _MOST:
        raise AnnotationMalformed(f"{_MIGS}: more than {_MOST} instances")
    places = {(one.container_index, one.device_index) for one in found}
    if len(places) != len(found) or not all(one.valid() for one in found):
        raise AnnotationMalformed(f"{_MIGS}: an instance is listed twice, has no complete name, or is misplaced")
    return found


# --- what a scheduler writes ------------------------------------------------------------------------------------------

NODE, FILTERED = "hami.io/vgpu-node", "hami.io/vgpu-time"
BIND_PHASE, BIND_BEGUN = "hami.io/bind-phase", "hami.io/bind-time"
LOCK = "hami.io/mutex.lock"

BindPhase: TypeAlias = Literal["allocating", "success", "failed"]
_SEPARATORS = re.compile(r"[,:;\[\]\s]")


def encode_devices(segments: Iterable[Iterable[AssignedDevice]]) -> str:
    """The text that `assigned_devices` reads: one segment for each container, init containers first.

    Raises AnnotationMalformed for a device that a reader would not decode to the same values.
    """
    text = "".join("".join(map(_device_text, devices)) + ";" for devices in segments)
    if text.count(";") > _MOST or text.count(":") > _MOST:
        raise AnnotationMalformed(f"more than {_MOST} devices")
    return text


def assignment_annotations(
    vendor: Vendor, *, node: str, segments: Sequence[Sequence[AssignedDevice]], now: UnixTime
) -> dict[str, str]:
    """What HAMi's filter writes on a pod that it places.

    Vendors whose device plugin allocates nothing have one key less.
    """
    text = encode_devices(segments)
    keys = (*vendor.allocated[:1], *vendor.to_allocate[:1])
    return {**dict.fromkeys(keys, text), NODE: node, FILTERED: str(int(now))}


def binding_annotations(phase: BindPhase, *, now: UnixTime) -> dict[str, str]:
    """What HAMi writes on a pod before it is bound."""
    return {BIND_PHASE: phase, BIND_BEGUN: str(int(now))}


class NodeLock(NamedTuple):
    """The pod that may bind to a node now, and since when. Until v2.3 only the time was written."""

    since: UnixTime  # whole seconds
    namespace: str = ""
    pod: str = ""


def encode_lock(lock: NodeLock) -> str:
    """The text that `decode_lock` reads; AnnotationMalformed if `decode_lock` could not read it."""
    if bool(lock.namespace) != bool(lock.pod) or "," in lock.namespace + lock.pod:
        raise AnnotationMalformed(f"{LOCK}: {lock!r} names no pod")
    moment = datetime.fromtimestamp(int(lock.since), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{moment},{lock.namespace},{lock.pod}" if lock.pod else moment


def decode_lock(text: str) -> NodeLock:
    """The lock in an annotation; AnnotationMalformed for text that no HAMi release writes."""
    moment, *owner = text.strip().split(",")
    since = from_rfc3339(moment)
    if since is None or len(owner) not in {0, 2} or not all(owner):
        raise AnnotationMalformed(f"{LOCK}: {text[:80]!r} is not time,namespace,pod")
    return NodeLock(since, *owner)


def encode_instances(instances: Iterable[MigAllocation], placements: Iterable[tuple[int, int]]) -> str:
    """The text that `mig_allocations` and `held_instances` read; a placement is the first slice and their number."""
    return msgspec.json.encode(
        [_instance_fields(one, place) for one, place in zip(instances, placements, strict=True)]
    ).decode()


def _device_text(device: AssignedDevice) -> str:
    text = f"{device.uuid},{device.word},{device.mib},{device.cores}"
    odd = not device.uuid or any(map(_SEPARATORS.search, (device.uuid, device.word)))
    found = None if odd else _DEVICE.fullmatch(text)
    if found is None or found.end(2) > _LONGEST:
        raise AnnotationMalformed(f"{text[:80]!r} is not uuid,type,memory,cores")
    return f"{text}:"


def _instance_fields(one: MigAllocation, place: tuple[int, int]) -> dict[str, object]:
    """The fields in HAMi's order. Fields that the device plugin has not set yet are omitted."""
    fields: dict[str, object] = {
        "containerIndex": one.container_index,
        "deviceIndex": one.device_index,
        "gpuUUID": one.gpu,
        "profile": one.profile,
        "placement": {"start": place[0], "size": place[1]},
    }
    made = {"migUUID": one.mig, "gpuInstanceID": one.gpu_instance, "computeInstanceID": one.compute_instance}
    return fields | {name: value for name, value in made.items() if value is not None}
