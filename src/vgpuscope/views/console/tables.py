"""Lists of the console → a page of rows, sorted and with the asked fields, as JSON or CSV."""

from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import UNSET, Struct, UnsetType

from vgpuscope.model.console.gpus import Allocation, GpuRow, TenantRow, Use
from vgpuscope.model.console.parts import Part
from vgpuscope.views.fleet.selection import as_csv

T = TypeVar("T", bound=Struct)


def some_of(answer: type[Struct], row: type[Struct], parts: Sequence[str] = ()) -> Any:
    """The type of a list if only some fields of its rows were asked for; `parts`: also some fields of these fields."""
    fields = [(f.name, (_some(f.type) if f.name in parts else f.type) | UnsetType, UNSET) for f in _fields(row)]
    some = msgspec.defstruct(f"SomeOf{row.__name__}", fields, kw_only=True, forbid_unknown_fields=True)
    own = [(f.name, tuple[some, ...] if f.name == "rows" else f.type) for f in msgspec.structs.fields(answer)]  # type: ignore[valid-type]
    return msgspec.defstruct(f"SomeOf{answer.__name__}", own, kw_only=True, forbid_unknown_fields=True)


def field_names(row: type[Struct], parts: Sequence[str] = ()) -> tuple[str, ...]:
    """The fields that can be asked for. Of `parts`, which are structs or lists of them, also single fields."""
    own = [(field.name, _inner(field.type)) for field in _fields(row) if field.name in parts]
    return (*row.__struct_fields__, *(f"{name}.{one}" for name, inner in own for one in inner.__struct_fields__))


@cache
def _some(kind: Any) -> Any:
    """The type of a struct, or of a list of structs, of which some fields were asked for."""
    inner = _inner(kind)
    fields = [(field.name, field.type | UnsetType, UNSET) for field in _fields(inner)]
    some = msgspec.defstruct(f"SomeOf{inner.__name__}", fields, kw_only=True, forbid_unknown_fields=True)
    return some if inner is kind else tuple[some, ...]  # type: ignore[valid-type]


def _inner(kind: Any) -> type[Struct]:
    """The struct itself, or the struct of a tuple."""
    found: type[Struct] = get_args(kind)[0] if get_args(kind) else kind
    return found


def _fields(row: type[Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(row)


def page(rows: Sequence[T], *, sort: str | None, offset: int, limit: int | None) -> Sequence[T]:
    """The asked page; rows without a value come last in both directions."""
    found = _sorted(rows, sort) if sort else rows
    return found[offset : None if limit is None else offset + limit]


def json_list(rows: Sequence[T], *, fields: Sequence[str], head: dict[str, Any], parts: Sequence[Part]) -> bytes:
    """A list as JSON; `head` is what comes before the rows. A field `a.b` is the field b of the field a."""
    shown: Any = list(map(_picked(fields), rows)) if fields else rows
    return msgspec.json.encode({**head, "rows": shown, "parts": parts})


def _picked(fields: Sequence[str]) -> Callable[[Struct], dict[str, Any]]:
    """Takes the asked fields of a row."""
    parts: dict[str, list[str]] = {name: [] for name in _whole(fields)}
    for name, _, inner in (field.partition(".") for field in fields):
        if inner and name not in fields:
            parts[name].append(inner)
    within = {name: _picker(inner) for name, inner in parts.items() if inner}

    def pick(row: Struct) -> dict[str, Any]:
        found = {name: getattr(row, name) for name in parts}
        for name, take in within.items():
            value = found[name]
            found[name] = list(map(take, value)) if isinstance(value, tuple) else take(value)
        return found

    return pick


def _picker(names: Sequence[str]) -> Callable[[Struct], dict[str, Any]]:
    if len(names) == 1:
        return lambda one: {names[0]: getattr(one, names[0])}
    values = attrgetter(*names)
    return lambda one: dict(zip(names, values(one), strict=True))


def _whole(fields: Sequence[str]) -> tuple[str, ...]:
    """The fields without the names of their parts, each once."""
    return tuple(dict.fromkeys(field.partition(".")[0] for field in fields))


def csv_list(rows: Sequence[T], row: type[T], fields: Sequence[str]) -> bytes:
    """A list as CSV; a cell holds a whole field."""
    return as_csv(rows, _whole(fields) or row.__struct_fields__)


def searched(rows: Sequence[T], text: str | None) -> Sequence[T]:
    """The rows with this text in one of their names, or in a name of a tenant."""
    if not text:
        return rows
    wanted = text.lower()
    return [row for row in rows if wanted in _names(row)]


def tenants_or_row(rows: Sequence[GpuRow], passes: Callable[[GpuRow | TenantRow], bool]) -> Sequence[GpuRow]:
    """The GPUs that pass, or have a tenant that does."""
    return [row for row in rows if passes(row) or any(passes(tenant) for tenant in row.tenants)]


def _names(row: Struct) -> str:
    parts = [value for name in row.__struct_fields__ if isinstance(value := getattr(row, name), str)]
    parts += [value for value in getattr(row, "nodes", ()) if isinstance(value, str)]
    parts += (
        [gpu.gpu_id for gpu in getattr(row, "gpus", ()) or ()] if isinstance(getattr(row, "gpus", 0), tuple) else []
    )
    for tenant in getattr(row, "tenants", ()) if isinstance(getattr(row, "tenants", 0), tuple) else ():
        parts += [tenant.namespace, tenant.pod, tenant.container or "", tenant.owner or ""]
    return "\n".join(parts).lower()


def _sorted(rows: Sequence[T], sort: str) -> list[T]:
    name, reverse = sort.removeprefix("-"), sort.startswith("-")
    keyed = [(_key(getattr(row, name)), row) for row in rows]
    there = [pair for pair in keyed if pair[0] is not None]
    absent = [row for key, row in keyed if key is None]
    return [row for _, row in sorted(there, key=lambda pair: pair[0], reverse=reverse)] + absent


def _key(value: Any) -> Any:
    """What a value is sorted by; None: it is not known."""
    if isinstance(value, Use):
        return value.mean
    if isinstance(value, Allocation):
        return value.memory_ratio
    if isinstance(value, (tuple, dict)):
        return len(value)
    if isinstance(value, Struct):
        return msgspec.json.encode(value)
    return value
