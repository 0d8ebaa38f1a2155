"""Events about pods, as the Kubernetes API lists and watches them → our codes for how scheduling goes.

The last part is the way back: the body of an event that we post.

Events about other objects or without a word about scheduling are skipped. There are two generations of events: old
recorders use `count` and `lastTimestamp`, new ones use `series` and leave the old fields empty.
"""

from sys import intern
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from vgpuscope.formats.kube.lists import ObjectKind, ObjectPage, WatchEvent, decode_line, decode_page
from vgpuscope.formats.kube.paths import ObjectRef, list_path
from vgpuscope.formats.scheduler_messages.reasons import reasons, success
from vgpuscope.formats.times import from_rfc3339, micro_time
from vgpuscope.model.pending import PodEvent
from vgpuscope.model.quantity import UnixTime

_Name = Annotated[str, Meta(max_length=253)]
_MESSAGE = 8192  # characters read of a message; Kubernetes itself cuts events at 1,024
_MOST = 2**31 - 1  # Kubernetes counts in 32 bits
_COMBINED = "(combined from similar events): "  # prefix that a recorder puts before the latest of many texts
_GROUP = "events.k8s.io/v1"  # of events that we post
_NOTE, _INSTANCE = 1024, 128  # the API server's limits; it counts bytes, not characters


def decode_events(data: bytes) -> ObjectPage[PodEvent]:
    """The events of a list that are about a pod's scheduling; raises KubeUnreadable for anything else."""
    return decode_page(_EVENTS, data)


def decode_event_line(line: bytes) -> WatchEvent[PodEvent]:
    """The event in one line of a watch of events; without an item if it is not about a pod's scheduling."""
    return decode_line(_EVENTS, line)


class _Metadata(Struct, rename="camel"):
    uid: _Name = ""
    name: _Name = ""
    namespace: _Name | None = None
    resource_version: str | None = None
    creation_timestamp: str | None = None


class _Object(Struct):
    kind: str | None = None
    namespace: _Name | None = None
    name: _Name | None = None
    uid: _Name | None = None


class _Series(Struct, rename="camel"):
    count: int | None = None
    last_observed_time: str | None = None


class _Source(Struct):
    component: str | None = None
    host: str | None = None


class _Event(Struct, rename="camel"):
    metadata: _Metadata
    kind: str | None = None
    involved_object: _Object | None = None
    reason: str | None = None
    message: str | None = None
    source: _Source | None = None
    reporting_component: str | None = None
    reporting_instance: str | None = None
    count: int | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: _Series | None = None


def _event(found: _Event, wrong: list[str]) -> PodEvent | None:
    about, reason = found.involved_object, found.reason or ""
    if about is None or about.kind != "Pod" or not about.uid:
        return None
    component = ((found.source and found.source.component) or found.reporting_component or "")[:253]
    message = (found.message or "")[:_MESSAGE]
    combined = message.startswith(_COMBINED)
    said = reasons(component, reason, message.removeprefix(_COMBINED))
    if not said and success(component, reason) is None:
        return None
    if not found.metadata.uid:
        wrong.append("it has no uid")
        return None
    first, last = _times(found)
    return PodEvent(
        uid=found.metadata.uid,
        pod_uid=about.uid,
        namespace=intern(about.namespace or found.metadata.namespace or "default"),
        pod=about.name or "",
        component=intern(component),
        instance=intern((found.reporting_instance or (found.source and found.source.host) or "")[:_INSTANCE]),
        reason=intern(reason[:253]),
        said=said,
        combined=combined,
        count=_count(found),
        first=first,
        last=last,
    )


def _count(found: _Event) -> int:
    """How often the event happened; 1 for an event without a count."""
    series = found.series.count if found.series else None
    return min(max(1, found.count or 0, series or 0), _MOST)


def _times(found: _Event) -> tuple[UnixTime | None, UnixTime | None]:
    """When the event happened first and last, in either generation; both None if it has no time."""
    series = found.series.last_observed_time if found.series else None
    texts = (found.first_timestamp, found.event_time, found.last_timestamp, series)
    times = [moment for text in texts if (moment := from_rfc3339(text)) is not None]
    if not times:
        created = from_rfc3339(found.metadata.creation_timestamp)
        return created, created
    return min(times), max(times)


_EVENTS = ObjectKind[PodEvent]("Event", msgspec.json.Decoder(_Event), _event)


# ── events that we post ──────────────────────────────────────────────────────────────────────────────────────────────


class EventText(NamedTuple):
    """The content of an event, without the object it is about."""

    reason: str  # BindingSucceed
    note: str
    type: Literal["Normal", "Warning"] = "Normal"
    action: str = "Scheduling"


def event_body(
    about: ObjectRef, text: EventText, *, name: str, component: str, instance: str, now: UnixTime
) -> dict[str, Any]:
    """A new event about an object; a longer note or name of the instance is cut to what the API server accepts."""
    return {
        "apiVersion": _GROUP,
        "kind": "Event",
        "metadata": {"name": name, "namespace": about.namespace or "default"},
        "eventTime": micro_time(now),
        "reportingController": component,
        "reportingInstance": _cut(instance, _INSTANCE) or component,
        "action": text.action,
        "reason": text.reason,
        "type": text.type,
        "note": _cut(text.note, _NOTE),
        "regarding": {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "name": about.name,
            "namespace": about.namespace,
            "uid": about.uid,
        },
    }


def events_path(about: ObjectRef) -> str:
    """The path of the events about an object."""
    return list_path(_GROUP, "Event", namespace=about.namespace or "default")


def _cut(text: str, most: int) -> str:
    """At most that many bytes of whole characters; "?" for a surrogate, which UTF-8 has not."""
    return text.encode(errors="replace")[:most].decode(errors="ignore")
