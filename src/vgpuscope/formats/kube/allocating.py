"""A node and its pods as the device plugin reads them: annotations, versions, and what still has to be allocated."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import msgspec
from msgspec import Struct

from vgpuscope.formats.hami.annotation import (
    ALLOCATED,
    BIND_BEGUN,
    BIND_PHASE,
    LOCK,
    MIG_ALLOCATIONS,
    NODE,
    TO_ALLOCATE,
    NodeLock,
    assigned_devices,
    container_at,
    decode_lock,
    encode_instances,
    held_instances,
    mig_allocations,
    next_segment,
)
from vgpuscope.formats.hami.seal import Seals
from vgpuscope.formats.kube.lists import ObjectKind, ObjectPage, decode_page
from vgpuscope.formats.kube.quantity import whole_number
from vgpuscope.formats.times import from_rfc3339, from_unix
from vgpuscope.model.errors import AnnotationMalformed, KubeUnreadable
from vgpuscope.model.plugin import (
    RESOURCE,
    AllocatingPod,
    Assigned,
    AssignedInstance,
    NodeNotes,
    PodNotes,
    Segment,
    StaticInstance,
)
from vgpuscope.model.pod import Container
from vgpuscope.model.quantity import PodUID, UnixTime

_DISABLE = "CUDA_DISABLE_CONTROL"
_ENDED = {"Failed", "Succeeded"}
_TRUE = {"1", "t", "T", "true", "TRUE", "True"}  # as Go reads them


class _Env(Struct):
    name: str
    value: str | None = None


class _Resources(Struct):
    limits: dict[str, object] | None = None
    requests: dict[str, object] | None = None


class _Container(Struct):
    name: str
    env: list[_Env] | None = None
    resources: _Resources | None = None


class _Spec(Struct, rename="camel"):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None


class _Meta(Struct, rename="camel"):
    name: str
    uid: str = ""
    namespace: str | None = None
    resource_version: str = ""
    deletion_timestamp: str | None = None
    creation_timestamp: str | None = None
    annotations: dict[str, str | None] | None = None


class _AnyPod(Struct):
    metadata: _Meta
    kind: str | None = None


class _Status(Struct, rename="camel"):
    phase: str | None = None
    start_time: str | None = None


class _Pod(Struct):
    metadata: _Meta
    kind: str | None = None
    spec: _Spec | None = None
    status: _Status | None = None


class _Node(Struct):
    metadata: _Meta


_node = msgspec.json.Decoder(_Node)


def decode_node_notes(data: bytes) -> NodeNotes:
    """The annotations of a node; KubeUnreadable if this is not a node."""
    try:
        meta = _node.decode(data).metadata
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as e:
        raise KubeUnreadable(f"node: {e}") from e
    return NodeNotes(name=meta.name, uid=meta.uid, version=meta.resource_version, annotations=_annotations(meta))


def decode_pod_notes(data: bytes) -> ObjectPage[PodNotes]:
    """The states of the pods of a list; KubeUnreadable for anything but a list of pods."""
    return decode_page(_NOTED_PODS, data, origin="list of pods by name")


def decode_allocating(data: bytes, *, seals: Seals | None = None) -> ObjectPage[AllocatingPod]:
    """The pods of a list; KubeUnreadable for anything but that. With `seals` only what is sealed is believed."""
    kind = _PODS if seals is None else ObjectKind("Pod", _PODS.decoder, partial(_read, seals=seals))
    return decode_page(kind, data, origin="list of the node's pods")


def decode_pod_uids(data: bytes) -> ObjectPage[PodUID]:
    """The UIDs of a list of pods; KubeUnreadable if one cannot be read: it would be taken for gone."""
    page = decode_page(_ANY_PODS, data, origin="list of the node's pods")
    if page.faults:
        raise KubeUnreadable(f"list of the node's pods: {len(page.faults)} of them cannot be read")
    return page


def lock_owner(notes: NodeNotes) -> tuple[str, str] | None:
    """Namespace and name of the pod that the node is locked for; None if no lock names a pod."""
    lock = _lock(notes)
    return (lock.namespace, lock.pod) if lock and lock.pod else None


def locked_since(notes: NodeNotes) -> UnixTime | None:
    """When the node was locked, by the scheduler's clock; None if no lock can be read."""
    lock = _lock(notes)
    return lock.since if lock else None


def _lock(notes: NodeNotes) -> NodeLock | None:
    try:
        return decode_lock(notes.annotations.get(LOCK, ""))
    except AnnotationMalformed:
        return None


def locked_by_nobody(notes: NodeNotes) -> bool:
    """Whether there is a lock that names no pod: of HAMi up to v2.3, or one that cannot be read."""
    return bool(notes.annotations.get(LOCK)) and lock_owner(notes) is None


def named_instances(pod: AllocatingPod, index: int, instances: Sequence[StaticInstance]) -> str:
    """The pod's MIG annotation with the ids of the instances that one of its containers got."""
    annotations = {MIG_ALLOCATIONS: pod.migs}
    rows, places = list(mig_allocations(annotations)), [(one.start, one.size) for one in held_instances(annotations)]
    own = sorted((row.device_index, number) for number, row in enumerate(rows) if row.container_index == index)
    for (_, number), one in zip(own, instances, strict=True):
        made = {"mig": one.uuid, "gpu_instance": one.gpu_instance, "compute_instance": one.compute_instance}
        rows[number] = msgspec.structs.replace(rows[number], **made)
    return encode_instances(rows, places)


# --- from the JSON's shape to the model -------------------------------------------------------------------------------


def _annotations(meta: _Meta) -> dict[str, str]:
    return {key: text for key, text in (meta.annotations or {}).items() if text}


def _read(found: _Pod, wrong: list[str], *, seals: Seals | None = None) -> AllocatingPod:  # noqa: ARG001 - see .wrong
    meta, spec, status = found.metadata, found.spec or _Spec(), found.status or _Status()
    annotations = _annotations(meta)
    reason, segment = "", None
    try:
        segment = _segment(annotations, spec) if NODE in annotations else None
    except AnnotationMalformed as e:
        reason = str(e)
    return AllocatingPod(
        uid=meta.uid,
        namespace=meta.namespace or "default",
        name=meta.name,
        version=meta.resource_version,
        node=annotations.get(NODE, ""),
        phase=annotations.get(BIND_PHASE, ""),
        bound=from_unix(annotations.get(BIND_BEGUN)),
        segment=segment,
        asks=tuple(_asking(spec)),
        migs=annotations.get(MIG_ALLOCATIONS, ""),
        wrong=reason,
        admitted=status.phase not in {None, "Pending"} or status.start_time is not None,
        leaving=meta.deletion_timestamp is not None,
        forged=_forged(meta, annotations, segment, seals) if segment is not None else "",
    )


def _forged(meta: _Meta, annotations: Mapping[str, str], segment: Segment, seals: Seals | None) -> str:
    """Why this assignment is not the scheduler's, or what is to be allocated is not of it; "": it is."""
    created = from_rfc3339(meta.creation_timestamp)
    if seals is not None and not seals.believes(meta.uid, annotations, bound=True, created=created):
        return "its seal is missing, or not one of this assignment"
    whole = assigned_devices(ALLOCATED, annotations.get(ALLOCATED, ""))
    given = [(one.gpu, one.memory, one.cores) for one in segment.devices]
    if ALLOCATED in annotations and given not in [[(one.uuid, one.mib, one.cores) for one in part] for part in whole]:
        return f"{TO_ALLOCATE} says something else than {ALLOCATED}"
    return ""


def _segment(annotations: Mapping[str, str], spec: _Spec) -> Segment | None:
    text = annotations.get(TO_ALLOCATE, "")
    found = next_segment(TO_ALLOCATE, text)
    if found is None:
        return None
    whole = assigned_devices(ALLOCATED, annotations.get(ALLOCATED, text))
    index, container = container_at(TO_ALLOCATE, whole, found.position, tuple(_containers(spec)))
    return Segment(
        container=container.name,
        index=index,
        devices=tuple(Assigned(gpu=one.uuid, memory=one.mib, cores=one.cores) for one in found.devices),
        instances=tuple(_instances(annotations, index)),
        rest=found.rest,
        last=found.last,
        uncontrolled=_uncontrolled(spec, container.name),
    )


def _instances(annotations: Mapping[str, str], index: int) -> Iterator[AssignedInstance]:
    rows = zip(mig_allocations(annotations), held_instances(annotations), strict=True)
    for row, held in sorted(rows, key=lambda pair: pair[0].device_index):
        if row.container_index == index:
            yield AssignedInstance(gpu=row.gpu, profile=row.profile, start=held.start, size=held.size)


def _containers(spec: _Spec) -> Iterator[Container]:
    for init, group in ((True, spec.init_containers), (False, spec.containers)):
        for one in group or ():
            yield Container(name=one.name, init=init, gpu_request=_asks(one.resources) not in (None, 0, "0"))


def _asking(spec: _Spec) -> Iterator[tuple[str, int]]:
    for one in (*(spec.init_containers or ()), *(spec.containers or ())):
        number = whole_number(_asks(one.resources) or 0)
        if number is not None and number > 0:
            yield one.name, number


def _asks(resources: _Resources | None) -> object:
    named = {**(resources.requests or {}), **(resources.limits or {})} if resources else {}
    return named.get(RESOURCE)


def _uncontrolled(spec: _Spec, container: str) -> bool:
    found = [one for one in (*(spec.init_containers or ()), *(spec.containers or ())) if one.name == container]
    return any(env.name == _DISABLE and env.value in _TRUE for one in found for env in one.env or ())


def _uid(found: _AnyPod, wrong: list[str]) -> PodUID | None:
    if not found.metadata.uid:
        wrong.append("it has no UID")
    return found.metadata.uid or None


def _notes(found: _Pod, wrong: list[str]) -> PodNotes:  # noqa: ARG001 - the shape of a reader
    status, meta = found.status or _Status(), found.metadata
    return PodNotes(uid=meta.uid, phase=_annotations(meta).get(BIND_PHASE, ""), ended=status.phase in _ENDED)


_ANY_PODS = ObjectKind[PodUID]("Pod", msgspec.json.Decoder(_AnyPod), _uid)
_NOTED_PODS = ObjectKind[PodNotes]("Pod", msgspec.json.Decoder(_Pod), _notes)
_PODS = ObjectKind[AllocatingPod]("Pod", msgspec.json.Decoder(_Pod), _read)
