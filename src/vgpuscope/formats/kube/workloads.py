"""Decodes pods, their owners and autoscalers, as far as taking GPUs back needs them. Raises KubeUnreadable."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec
from msgspec import Struct

from vgpuscope.formats.hami.annotation import assigned_devices
from vgpuscope.formats.kube.notes import notes_of
from vgpuscope.formats.times import from_rfc3339
from vgpuscope.knowledge.vendors import BY_ALLOCATED
from vgpuscope.model.allocation import Controller
from vgpuscope.model.errors import AnnotationMalformed, KubeUnreadable
from vgpuscope.model.kube_object import Autoscaler, KubeObject, KubePod
from vgpuscope.model.quantity import DeviceUUID

T = TypeVar("T")
_ENDED = {"Succeeded", "Failed"}
_OWN = "kubernetes.io"  # resources of Kubernetes itself; all others with a slash are extended ones


class _Owner(Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class _Meta(Struct, rename="camel"):
    name: str
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None


class _Expression(Struct):
    key: str
    operator: str
    values: list[str] | None = None


class _Selector(Struct, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: list[_Expression] | None = None


class _Resources(Struct):
    limits: dict[str, object] | None = None
    requests: dict[str, object] | None = None


class _Container(Struct):
    resources: _Resources | None = None


class _PodSpec(Struct, rename="camel"):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    priority_class_name: str = ""
    node_name: str = ""
    resource_claims: list[object] | None = None


class _Template(Struct):
    spec: _PodSpec | None = None


class _ObjectSpec(Struct):
    selector: _Selector | None = None
    template: _Template | None = None


class _Object(Struct):
    metadata: _Meta
    spec: _ObjectSpec | None = None


class _PodStatus(Struct, frozen=True):
    phase: str = ""


class _Pod(Struct):
    metadata: _Meta
    spec: _PodSpec
    status: _PodStatus = _PodStatus()


class _ListMeta(Struct, frozen=True):
    more: str = msgspec.field(default="", name="continue")


class _Pods(Struct):
    items: list[_Pod]
    metadata: _ListMeta = _ListMeta()


class _Scaled(Struct, frozen=True):
    kind: str = ""
    name: str = ""


class _AutoscalerSpec(Struct, rename="camel", frozen=True):
    scale_target_ref: _Scaled = _Scaled()


class _Autoscaler(Struct):
    metadata: _Meta
    spec: _AutoscalerSpec = _AutoscalerSpec()


class _Autoscalers(Struct):
    items: list[_Autoscaler]


def decode_object(data: bytes, *, api_version: str, kind: str) -> KubeObject:
    """An object, or only its metadata, read as one of this kind."""
    found = _decoded(data, _Object, f"{kind} of {api_version}")
    meta = found.metadata
    selector = found.spec.selector if found.spec else None
    template = found.spec.template.spec if found.spec and found.spec.template else None
    return KubeObject(
        api_version=api_version,
        kind=kind,
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        notes=notes_of(meta.annotations or {}),
        labels=meta.labels or {},
        controller=_controller(meta),
        selector=_selector(selector) if selector else "",
        wants_devices=template is not None and _wants_devices(template),
    )


def decode_pod(data: bytes) -> KubePod:
    return _pod(_decoded(data, _Pod, "pod"))


def decode_pods(data: bytes) -> tuple[KubePod, ...]:
    """All pods of a list; a list that goes on is refused: a part of the pods proves nothing."""
    found = _decoded(data, _Pods, "list of pods")
    if found.metadata.more:
        raise KubeUnreadable("the list of pods goes on")
    return tuple(map(_pod, found.items))


def decode_autoscalers(data: bytes) -> tuple[Autoscaler, ...]:
    found = _decoded(data, _Autoscalers, "list of autoscalers")
    return tuple(
        Autoscaler(
            name=one.metadata.name,
            kind=one.spec.scale_target_ref.kind,
            of=one.spec.scale_target_ref.name,
            keda=_by_keda(one.metadata),
        )
        for one in found.items
    )


def _pod(found: _Pod) -> KubePod:
    meta, spec = found.metadata, found.spec
    return KubePod(
        name=meta.name,
        uid=meta.uid,
        created=from_rfc3339(meta.creation_timestamp),
        ends=meta.deletion_timestamp is not None or found.status.phase in _ENDED,
        notes=notes_of(meta.annotations or {}),
        controller=_controller(meta),
        priority_class=spec.priority_class_name,
        wants_devices=_wants_devices(spec),
        node=spec.node_name,
        devices=_assigned(meta.annotations or {}),
    )


def _assigned(annotations: Mapping[str, str]) -> frozenset[DeviceUUID] | None:
    """The devices in assignments of any vendor; none if one of them cannot be read, because it proves nothing."""
    keys = BY_ALLOCATED.keys() & annotations.keys()
    try:
        segments = [segment for key in keys for segment in assigned_devices(key, annotations[key])]
    except AnnotationMalformed:
        return frozenset()
    return frozenset(device.uuid for segment in segments for device in segment) if keys else None


def _wants_devices(spec: _PodSpec) -> bool:
    return bool(spec.resource_claims) or any(map(_extended, _asked(spec)))


def _asked(spec: _PodSpec) -> Iterable[str]:
    for one in (*(spec.containers or ()), *(spec.init_containers or ())):
        if one.resources is not None:
            yield from one.resources.limits or ()
            yield from one.resources.requests or ()


def _extended(resource: str) -> bool:
    domain, slash, _ = resource.partition("/")
    return bool(slash) and not (domain == _OWN or domain.endswith(f".{_OWN}"))


def _controller(meta: _Meta) -> Controller | None:
    found = next((one for one in meta.owner_references or () if one.controller), None)
    return None if found is None else Controller(found.api_version, found.kind, found.name, found.uid)


def _by_keda(meta: _Meta) -> bool:
    owners = {one.kind for one in meta.owner_references or ()}
    return "ScaledObject" in owners or any(key.endswith(".keda.sh/name") for key in meta.labels or ())


def _selector(found: _Selector) -> str:
    """As the API takes it in a request: a=b,c in (d,e),!f."""
    parts = [f"{key}={value}" for key, value in sorted((found.match_labels or {}).items())]
    parts += (_expression(one) for one in found.match_expressions or ())
    return ",".join(parts)


def _expression(one: _Expression) -> str:
    values = f"({','.join(one.values or ())})"
    words: Mapping[str, str] = {
        "In": f"{one.key} in {values}",
        "NotIn": f"{one.key} notin {values}",
        "Exists": one.key,
        "DoesNotExist": f"!{one.key}",
    }
    if one.operator not in words:
        raise KubeUnreadable(f"a selector with the operator {one.operator[:40]!r}")
    return words[one.operator]


def _decoded(data: bytes, shape: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as e:
        raise KubeUnreadable(f"not a {what}: {e}") from e
