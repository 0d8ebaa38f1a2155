"""Pods as the Kubernetes API writes them in JSON: lists, pages of lists and lines of a watch → Pod.

Only what we need is decoded. One bad pod, or one bad annotation of a pod, costs itself and is named as a fault; text
that is no list of pods at all is refused.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, Literal, NoReturn, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from vgpuscope.formats.hami_annotation import mig_allocations, pod_shares
from vgpuscope.model.errors import AnnotationMalformed, PodsUnreadable
from vgpuscope.model.pod import Container, Pod

T = TypeVar("T")

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]


class Fault(Struct, frozen=True, kw_only=True):
    """An object, or a part of it, that could not be read, and why."""

    uid: str  # empty: not even that could be read
    object: str
    reason: str


class Page(Struct, Generic[T], frozen=True, kw_only=True):
    """One answer to a list request."""

    items: tuple[T, ...] = ()
    resource_version: str = ""
    more: str = ""  # the continue token; empty on the last page
    faults: tuple[Fault, ...] = ()


class Event(Struct, Generic[T], frozen=True, kw_only=True):
    """One line of a watch."""

    type: EventType
    uid: str = ""
    item: T | None = None  # None: gone, unreadable, or not about an object
    resource_version: str = ""
    faults: tuple[Fault, ...] = ()
    status: int | None = None  # the HTTP status that an ERROR carries
    message: str = ""


PodPage = Page[Pod]
PodEvent = Event[Pod]


def decode_pods(data: bytes, *, origin: str = "pods", node: str | None = None) -> PodPage:
    """The pods of a list (of this node only, if one is named); PodsUnreadable for anything that is no list of pods."""
    try:
        found = _LIST.decode(data.removeprefix(b"\xef\xbb\xbf"))
    except (ValueError, RecursionError) as e:
        _refuse(origin, data, e)
    if found.kind not in _LIST_KINDS or (found.items is None and found.kind is None):
        raise PodsUnreadable(f"{origin}: expected a PodList, got {found.kind or 'an object without kind and items'}")
    meta = found.metadata or _AnyMeta()
    read = [_read(raw, node=node) for raw in found.items or ()]
    return PodPage(
        items=tuple(pod for pod, _ in read if pod is not None),
        resource_version=meta.resource_version or "",
        more=meta.more or "",
        faults=tuple(fault for _, faults in read for fault in faults),
    )


def decode_event(line: bytes) -> PodEvent:
    """What one line of a watch of pods says; PodsUnreadable for a line that is no event."""
    try:
        event = _EVENT.decode(line)
        if event.type == "ERROR":
            status = _STATUS.decode(event.object)
            return PodEvent(type="ERROR", status=status.code, message=status.message or status.reason or "")
        meta = _META_ONLY.decode(event.object).metadata or _AnyMeta()
    except (ValueError, RecursionError) as e:
        _refuse("watch", line, e)
    pod, faults = (None, ()) if event.type in {"BOOKMARK", "DELETED"} else _read(event.object)
    return PodEvent(
        type=event.type,
        uid=meta.uid or "",
        item=pod,
        resource_version=meta.resource_version or "",
        faults=faults,
    )


def decode_status(data: bytes) -> str:
    """Why the API server refused, in its own words; the beginning of the text when it is not the API server's."""
    try:
        status = _STATUS.decode(data)
    except (ValueError, RecursionError):
        return data[:200].decode("utf-8", "replace").strip()
    return status.message or status.reason or ""


def _refuse(origin: str, data: bytes, error: Exception) -> NoReturn:
    if not data.strip():
        raise PodsUnreadable(f"{origin}: empty, expected JSON") from error
    ends = f" (after byte {len(data)})" if "truncated" in str(error) else ""
    raise PodsUnreadable(f"{origin}: {error}{ends}") from error


# --- the shape of the JSON: unknown fields are skipped, null is as good as absent -------------------------------------


class _Resources(Struct):
    limits: dict[str, object] | None = None
    requests: dict[str, object] | None = None


class _ContainerSpec(Struct):
    name: str
    resources: _Resources | None = None


class _Spec(Struct, rename="camel"):
    node_name: str | None = None
    containers: list[_ContainerSpec] | None = None
    init_containers: list[_ContainerSpec] | None = None


class _Mark(Struct):
    """An object of which it matters only that it is there."""


class _State(Struct):
    running: _Mark | None = None


class _ContainerStatus(Struct):
    name: str
    id: str | None = field(default=None, name="containerID")
    state: _State | None = None


class _Status(Struct, rename="camel"):
    phase: str | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None


class _PodMeta(Struct):
    uid: str
    name: str
    namespace: str | None = None
    annotations: dict[str, str | None] | None = None


class _Pod(Struct):
    metadata: _PodMeta
    kind: str | None = None
    spec: _Spec | None = None
    status: _Status | None = None


class _AnyMeta(Struct, rename="camel"):
    uid: str | None = None
    name: str | None = None
    namespace: str | None = None
    resource_version: str | None = None
    more: str | None = field(default=None, name="continue")


class _MetaOnly(Struct):
    metadata: _AnyMeta | None = None


class _List(Struct):
    kind: str | None = None
    metadata: _AnyMeta | None = None
    items: list[Raw] | None = None


class _Event(Struct):
    type: EventType
    object: Raw


class _ApiStatus(Struct):
    code: int | None = None
    reason: str | None = None
    message: str | None = None


_LIST_KINDS = {None, "PodList", "List"}  # kubectl writes List
_LIST = msgspec.json.Decoder(_List)
_POD = msgspec.json.Decoder(_Pod)
_META_ONLY = msgspec.json.Decoder(_MetaOnly)
_EVENT = msgspec.json.Decoder(_Event)
_STATUS = msgspec.json.Decoder(_ApiStatus)


# --- from that shape to the model -------------------------------------------------------------------------------------


def _read(raw: Raw, *, node: str | None = None) -> tuple[Pod | None, tuple[Fault, ...]]:
    """The pod and what was wrong with it; no pod when it is unreadable, of another node, or no pod at all."""
    try:
        found = _POD.decode(raw)
    except (ValueError, RecursionError) as e:
        return None, (_fault(raw, str(e)),)
    spec, meta = found.spec or _Spec(), found.metadata
    elsewhere = node is not None and spec.node_name not in {None, "", node}
    if elsewhere or found.kind not in {None, "Pod"}:
        return None, ()
    status, annotations = found.status or _Status(), {k: v for k, v in (meta.annotations or {}).items() if v}
    containers = tuple(_containers(spec, status))
    wrong: list[str] = []
    pod = Pod(
        uid=meta.uid,
        namespace=meta.namespace or "default",
        name=meta.name,
        phase=status.phase or "Unknown",
        config_hash=annotations.get("kubernetes.io/config.hash") or annotations.get("kubernetes.io/config.mirror"),
        containers=containers,
        shares=_unless_malformed(lambda: pod_shares(annotations, containers), wrong),
        migs=_unless_malformed(lambda: mig_allocations(annotations), wrong),
    )
    return pod, tuple(Fault(uid=pod.uid, object=f"{pod.namespace}/{pod.name}", reason=reason) for reason in wrong)


def _unless_malformed(decode: Callable[[], tuple[T, ...]], wrong: list[str]) -> tuple[T, ...]:
    try:
        return decode()
    except AnnotationMalformed as e:
        wrong.append(str(e))
        return ()


def _fault(raw: Raw, reason: str) -> Fault:
    try:
        meta = _META_ONLY.decode(raw).metadata or _AnyMeta()
    except (ValueError, RecursionError):
        meta = _AnyMeta()
    return Fault(uid=meta.uid or "", object=f"{meta.namespace or '?'}/{meta.name or '?'}", reason=reason)


def _containers(spec: _Spec, status: _Status) -> Iterator[Container]:
    """Init containers first, as HAMi counts them."""
    yield from _joined(spec.init_containers or [], status.init_container_statuses or [], init=True)
    yield from _joined(spec.containers or [], status.container_statuses or [], init=False)


def _joined(specs: list[_ContainerSpec], statuses: list[_ContainerStatus], *, init: bool) -> Iterator[Container]:
    by_name = {status.name: status for status in statuses}
    for spec in specs:
        status = by_name.get(spec.name)
        yield Container(
            name=spec.name,
            id=_bare(status.id) if status else None,
            init=init,
            gpu_request=_asks_for_gpu(spec.resources),
            running=(status.state is not None and status.state.running is not None) if status else None,
        )


def _bare(container_id: str | None) -> str | None:
    """The id without the runtime's name before it, as cgroups carry it."""
    return (container_id or "").rpartition("://")[2] or None


_GPU = re.compile(r"nvidia\.com/(gpu|gpu\.shared|mig-.+|gpumem.*|gpucores)")


def _asks_for_gpu(resources: _Resources | None) -> bool:
    if resources is None:
        return False
    named: Mapping[str, object] = {**(resources.requests or {}), **(resources.limits or {})}
    return any(amount not in (0, "0", None) for name, amount in named.items() if _GPU.fullmatch(name))
