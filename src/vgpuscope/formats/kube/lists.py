"""Decodes lists, pages of lists and lines of a watch of the Kubernetes API (JSON), for objects of any kind.

If an object or a part of it is invalid, only that is missing, and it is reported as a fault. Text that is not a list is
rejected. Of a line that reports a deletion, only the object's metadata is read.
"""

from collections.abc import Callable
from typing import Any, Generic, Literal, NoReturn, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from vgpuscope.model.errors import KubeUnreadable

T = TypeVar("T")

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]


class ObjectFault(Struct, frozen=True, kw_only=True):
    """An object, or a part of it, that could not be read, and why."""

    uid: str  # the object's key; empty: the key could not be read either
    object: str
    reason: str


class ObjectPage(Struct, Generic[T], frozen=True, kw_only=True):
    """One answer to a list request."""

    items: tuple[T, ...] = ()
    resource_version: str = ""
    more: str = ""  # the continue token; empty on the last page
    faults: tuple[ObjectFault, ...] = ()


class WatchEvent(Struct, Generic[T], frozen=True, kw_only=True):
    """One line of a watch."""

    type: EventType
    uid: str = ""  # the object's key
    item: T | None = None  # None: deleted, unreadable, not needed, or not about an object
    resource_version: str = ""
    faults: tuple[ObjectFault, ...] = ()
    status: int | None = None  # the HTTP status that an ERROR carries
    message: str = ""


class AnyMeta(Struct, rename="camel"):
    """The metadata that identifies an object of any kind, or a list."""

    uid: str | None = None
    name: str | None = None
    namespace: str | None = None
    resource_version: str | None = None
    more: str | None = field(default=None, name="continue")


class ObjectKind(Struct, Generic[T], frozen=True):
    """How one kind of object is read."""

    name: str  # as the API spells it: Pod, ResourceQuota
    decoder: "msgspec.json.Decoder[Any]"  # of a shape with `metadata` (name, namespace, uid, resource_version), `kind`
    read: Callable[[Any, list[str]], T | None]  # None: not needed; the list gets the faults
    known_by: Literal["uid", "name", "namespace/name"] = "uid"


def decode_page(kind: ObjectKind[T], data: bytes, *, origin: str = "") -> ObjectPage[T]:
    """The objects of a list; raises KubeUnreadable for anything but a list of this kind."""
    origin = origin or f"list of {kind.name}s"
    try:
        found = _LIST.decode(data.removeprefix(b"\xef\xbb\xbf"))
    except (ValueError, RecursionError) as e:
        _refuse(origin, data, e)
    if found.kind not in {None, "List", f"{kind.name}List"} or (found.items is None and found.kind is None):
        got = (found.kind or "an object without kind and items")[:80]
        raise KubeUnreadable(f"{origin}: expected a {kind.name}List, got {got}")
    meta, read = found.metadata or AnyMeta(), [_read(kind, raw) for raw in found.items or ()]
    return ObjectPage(
        items=tuple(one.item for one in read if one.item is not None),
        resource_version=meta.resource_version or "",
        more=meta.more or "",
        faults=tuple(fault for one in read for fault in one.faults),
    )


def decode_line(kind: ObjectKind[T], line: bytes) -> WatchEvent[T]:
    """The event in one line of a watch; raises KubeUnreadable if the line is not an event."""
    try:
        event = _LINE.decode(line)
        if event.type == "ERROR":
            status = _STATUS.decode(event.object)
            return WatchEvent(type="ERROR", status=status.code, message=status.message or status.reason or "")
        if event.type in {"BOOKMARK", "DELETED"}:
            meta = _META_ONLY.decode(event.object).metadata or AnyMeta()
            return WatchEvent(type=event.type, uid=_key(kind, meta), resource_version=meta.resource_version or "")
    except (ValueError, RecursionError) as e:
        _refuse(f"watch of {kind.name}s", line, e)
    found = _read(kind, event.object)
    return WatchEvent(
        type=event.type,
        uid=_key(kind, found.meta),
        item=found.item,
        resource_version=found.meta.resource_version or "",
        faults=found.faults,
    )


def decode_status(data: bytes) -> str:
    """The API server's message about a rejected request; the beginning of the text if it is not a Status."""
    try:
        status = _STATUS.decode(data)
    except (ValueError, RecursionError):
        return data[:200].decode("utf-8", "replace").strip()
    return status.message or status.reason or ""


# --- the shape of the JSON: unknown fields are skipped, null is treated as absent -------------------------------------


class _MetaOnly(Struct):
    metadata: AnyMeta | None = None


class _List(Struct):
    kind: str | None = None
    metadata: AnyMeta | None = None
    items: list[Raw] | None = None


class _Line(Struct):
    type: EventType
    object: Raw


class _ApiStatus(Struct):
    code: int | None = None
    reason: str | None = None
    message: str | None = None


class _Read(Struct, Generic[T], frozen=True):
    """An object's metadata (a shape with AnyMeta's fields), the item made from it, and its faults."""

    meta: Any
    item: T | None
    faults: tuple[ObjectFault, ...] = ()


_LIST = msgspec.json.Decoder(_List)
_LINE = msgspec.json.Decoder(_Line)
_META_ONLY = msgspec.json.Decoder(_MetaOnly)
_STATUS = msgspec.json.Decoder(_ApiStatus)


def _read(kind: ObjectKind[T], raw: Raw) -> _Read[T]:
    try:
        found = kind.decoder.decode(raw)
    except (ValueError, RecursionError) as e:
        meta = _named(raw)
        return _Read(meta, None, (_fault(kind, meta, str(e)),))
    if found.kind not in {None, kind.name}:  # lists by kubectl mix kinds
        return _Read(found.metadata, None)
    wrong: list[str] = []
    try:
        item = kind.read(found, wrong)
    except Exception as e:  # whoever wrote this object must not be able to hide all others
        item = None
        wrong.append(f"unexpected {e!r}"[:200])
    return _Read(found.metadata, item, tuple(_fault(kind, found.metadata, reason) for reason in wrong))


def _named(raw: Raw) -> AnyMeta:
    try:
        return _META_ONLY.decode(raw).metadata or AnyMeta()
    except (ValueError, RecursionError):
        return AnyMeta()


def _fault(kind: ObjectKind[T], meta: Any, reason: str) -> ObjectFault:
    name = (meta.name or "?")[:253]
    place = name if kind.known_by == "name" else f"{(meta.namespace or '?')[:253]}/{name}"
    return ObjectFault(uid=_key(kind, meta), object=f"{kind.name}/{place}", reason=reason)


def _key(kind: ObjectKind[T], meta: Any) -> str:
    if kind.known_by == "uid":
        return meta.uid or ""
    name = meta.name or ""
    return name if kind.known_by == "name" or not name else f"{meta.namespace or 'default'}/{name}"


def _refuse(origin: str, data: bytes, error: Exception) -> NoReturn:
    if not data.strip():
        raise KubeUnreadable(f"{origin}: empty, expected JSON") from error
    ends = f" (after byte {len(data)})" if "truncated" in str(error) else ""
    raise KubeUnreadable(f"{origin}: {error}{ends}") from error
