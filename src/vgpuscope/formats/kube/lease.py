"""A Lease of coordination.k8s.io/v1 as leader election uses it: the record of client-go, decoded and encoded."""

from typing import Any

import msgspec
from msgspec import Struct

from vgpuscope.formats.kube.lists import ObjectKind, ObjectPage, WatchEvent, decode_line, decode_page
from vgpuscope.formats.times import from_rfc3339, micro_time
from vgpuscope.model.errors import KubeUnreadable
from vgpuscope.model.quantity import Seconds, UnixTime


class LeaseRecord(Struct, frozen=True, kw_only=True):
    """Who leads, and when the leader last said so, by the leader's clock."""

    holder: str = ""  # "": released
    seconds: Seconds = 15.0  # how long the record is valid after it changed
    acquired: UnixTime | None = None
    renewed: UnixTime | None = None
    transitions: int = 0  # how often the holder changed
    version: str = ""  # resourceVersion of the object


class SeenLease(Struct, frozen=True, kw_only=True):
    """A lease in a watch of all namespaces."""

    key: str  # namespace/name
    record: LeaseRecord


def decode_lease(data: bytes) -> LeaseRecord:
    """The record in a Lease; raises KubeUnreadable for anything else."""
    try:
        found = msgspec.json.decode(data, type=_Lease)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise KubeUnreadable(f"lease: {e}") from e
    return _record(found)


def _record(found: "_Lease") -> LeaseRecord:
    spec = found.spec or _Spec()
    return LeaseRecord(
        holder=spec.holder_identity or "",
        seconds=float(spec.lease_duration_seconds or 15),
        acquired=from_rfc3339(spec.acquire_time),
        renewed=from_rfc3339(spec.renew_time),
        transitions=spec.lease_transitions or 0,
        version=found.metadata.resource_version or "",
    )


def lease_spec(record: LeaseRecord) -> dict[str, Any]:
    """The spec of a Lease with this record."""
    return {
        "holderIdentity": record.holder,
        "leaseDurationSeconds": max(1, round(record.seconds)),
        "acquireTime": _micro(record.acquired),
        "renewTime": _micro(record.renewed),
        "leaseTransitions": record.transitions,
    }


def _micro(moment: UnixTime | None) -> str | None:
    return None if moment is None else micro_time(moment)


def decode_leases(data: bytes) -> ObjectPage[SeenLease]:
    """The leases of a list; raises KubeUnreadable for anything but a list of leases."""
    return decode_page(_LEASES, data)


def decode_lease_event(line: bytes) -> WatchEvent[SeenLease]:
    """The event in one line of a watch of leases; raises KubeUnreadable if the line is not an event."""
    return decode_line(_LEASES, line)


class _Meta(Struct, rename="camel"):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None


class _Spec(Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Lease(Struct):
    metadata: _Meta
    kind: str | None = None
    spec: _Spec | None = None


def _seen(found: _Lease, wrong: list[str]) -> SeenLease | None:  # noqa: ARG001 - the shape of a reader
    meta, record = found.metadata, _record(found)
    return SeenLease(key=f"{meta.namespace or 'default'}/{meta.name or ''}", record=record)


_LEASES = ObjectKind[SeenLease]("Lease", msgspec.json.Decoder(_Lease), _seen, known_by="namespace/name")
