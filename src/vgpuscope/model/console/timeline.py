"""What happened: transitions of verdicts, XIDs, health, scrape targets, pods that waited, changed settings."""

from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from vgpuscope.model.console.parts import Part

EventKind: TypeAlias = Literal["verdict", "xid", "health", "target", "gpu", "scheduling", "settings"]
EVENT_KINDS: tuple[EventKind, ...] = get_args(EventKind)


class TimelineEvent(Struct, frozen=True, kw_only=True, gc=False):
    """One event."""

    id: str  # unique
    at: str
    kind: EventKind
    code: str | None = None  # of the reason, if there is one
    node: str | None = None
    gpu_id: str | None = None
    mig: str | None = None
    namespace: str | None = None
    pod: str | None = None
    container: str | None = None
    before: str | None = None  # the former value: a class, a health, up or down, a setting's value
    after: str | None = None
    number: float | None = None  # the XID, or the seconds that a pod waited
    message: str | None = None


class Timeline(Struct, frozen=True, kw_only=True):
    """A page of events, newest first."""

    total: int
    since: str | None  # since when events are recorded
    rows: tuple[TimelineEvent, ...]
    parts: tuple[Part, ...]
