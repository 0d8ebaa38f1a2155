"""Fields of objects that free GPUs: their values, merge patches of them, and our marks on the objects."""

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from vgpuscope.knowledge.stops import KSERVE_STOP, MIN_REPLICAS, NOTEBOOK_STOP, REPLICAS, STOPS, SUSPEND
from vgpuscope.model.quantity import UnixTime
from vgpuscope.model.reclaim import ReclaimTarget

Fields: TypeAlias = dict[str, Any]

RECLAIMED, RESTORED = "vgpuscope.io/reclaimed", "vgpuscope.io/restored"
_MOST_REPLICAS = 10_000
_LONGEST_VALUE = 64  # characters of an annotation that stops an object: a time, or true


class ChangeAnnotation(Struct, frozen=True, kw_only=True):
    """What we write on an object that we change: by which call, when, and the fields before and after.

    Whoever may change the object can write one, too: only the signature, with the secret of the call, shows that it is
    ours.
    """

    key: str
    at: str
    before: Fields = {}
    after: Fields = {}
    pod: str = ""  # because of which pod
    signature: str = ""


def stopped(target: ReclaimTarget, now: UnixTime) -> Fields:
    """The fields that free the GPUs of an object, with their new values."""
    values = {SUSPEND: True, KSERVE_STOP: "true", NOTEBOOK_STOP: iso(now)}
    return {name: values.get(name, 0) for name in STOPS[target.group, target.kind]}


def at_rest(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether the fields have freed the GPUs already, whoever set them. A notebook's holds the time of its stop."""
    return all(before[name] == value or (name == NOTEBOOK_STOP and before[name]) for name, value in after.items())


def present(item: Mapping[str, Any], fields: Iterable[str]) -> Fields:
    """The values that an object has in these fields; None: it does not have the field."""
    return {name: _at(item, name.split(" ")) for name in fields}


def patch(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch that sets these fields, and removes those that are None."""
    change: dict[str, Any] = {}
    for name, value in fields.items():
        *parents, last = name.split(" ")
        place = change
        for key in parents:
            place = place.setdefault(key, {})
        place[last] = value
    return change


def annotation(name: str) -> str:
    """The field of an annotation."""
    return f"metadata annotations {name}"


def mark_of(item: Mapping[str, Any], name: str) -> ChangeAnnotation | None:
    """Our mark on an object; None: there is none, or somebody changed it into something else."""
    text = _at(item, ["metadata", "annotations", name])
    try:
        return msgspec.json.decode(text, type=ChangeAnnotation) if isinstance(text, str) else None
    except (msgspec.MsgspecError, RecursionError):
        return None


def signed(mark: ChangeAnnotation, target: ReclaimTarget, secret: str) -> ChangeAnnotation:
    """The mark with its signature, which holds for this object and this call only."""
    content = {"uid": target.uid, "mark": msgspec.structs.replace(mark, signature="")}
    data = msgspec.json.encode(content, order="deterministic")
    return msgspec.structs.replace(mark, signature=hmac.digest(secret.encode(), data, hashlib.sha256).hex())


def is_ours(mark: ChangeAnnotation, target: ReclaimTarget, secret: str) -> bool:
    """Whether the call with this secret wrote the mark on this object; a call without a secret signs nothing."""
    wanted = signed(mark, target, secret).signature
    return bool(secret) and hmac.compare_digest(mark.signature.encode(), wanted.encode())


def restorable(target: ReclaimTarget, fields: Mapping[str, Any]) -> bool:
    """Whether these are the fields that a stop of such an object changes, with values that they can have."""
    names = STOPS.get((target.group, target.kind), ())
    return set(fields) == set(names) and all(_possible(name, value) for name, value in fields.items())


def _possible(name: str, value: object) -> bool:
    if value is None:  # the object did not have the field
        return True
    if name in {REPLICAS, MIN_REPLICAS}:
        return type(value) is int and 0 <= value <= _MOST_REPLICAS
    if name == SUSPEND:
        return type(value) is bool
    return isinstance(value, str) and len(value) <= _LONGEST_VALUE


def told(fields: Mapping[str, Any]) -> str:
    """The fields in words: replicas 3, suspend false."""
    return ", ".join(_words(fields))


def iso(now: UnixTime) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _words(fields: Mapping[str, Any]) -> Iterator[str]:
    for name, value in fields.items():
        shown = "unset" if value is None else str(value).lower()
        yield f"{name.rpartition(' ')[2]} {shown}"


def _at(item: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        item = item.get(key) if isinstance(item, Mapping) else None
    return item
