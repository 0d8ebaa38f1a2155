"""Lists of the console → a page of rows, sorted and with the asked fields, as JSON or CSV."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from vgpuscope.model.console.gpus import Allocation, GpuRow, TenantRow, Use
from vgpuscope.model.console.parts import Part
from vgpuscope.views.fleet.selection import as_csv

T = TypeVar("T", bound=Struct)


def some_of(answer: type[Struct], row: type[Struct]) -> Any:
    """The type of a list if only some fields of its rows were asked for."""
    fields = [(field.name, field.type | UnsetType, UNSET) for field in msgspec.structs.fields(row)]
    some = msgspec.defstruct(f"SomeOf{row.__name__}", fields, kw_only=True, forbid_unknown_fields=True)
    own = [(f.name, tuple[some, ...] if f.name == "rows" else f.type) for f in msgspec.structs.fields(answer)]  # type: ignore[valid-type]
    return msgspec.defstruct(f"SomeOf{answer.__name__}", own, kw_only=True, forbid_unknown_fields=True)


def page(rows: Sequence[T], *, sort: str | None, offset: int, limit: int | None) -> Sequence[T]:
    """The asked page; rows without a value come last in both directions."""
    found = _sorted(rows, sort) if sort else rows
    return found[offset : None if limit is None else offset + limit]


def json_list(rows: Sequence[T], *, fields: Sequence[str], head: dict[str, Any], parts: Sequence[Part]) -> bytes:
    """A list as JSON; `head` is what comes before the rows."""
    shown: Any = rows if not fields else [{name: getattr(row, name) for name in fields} for row in rows]
    return msgspec.json.encode({**head, "rows": shown, "parts": parts})


def csv_list(rows: Sequence[T], row: type[T], fields: Sequence[str]) -> bytes:
    """A list as CSV."""
    return as_csv(rows, fields or row.__struct_fields__)


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
