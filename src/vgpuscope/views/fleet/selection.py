"""Selects rows of a table: filters, order, page and fields; and writes them as JSON or CSV."""

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T", bound=Struct)


class RowSelection(Struct, frozen=True, kw_only=True):
    """What was requested. All filters must match; text must be equal, `search` matches a part of any name."""

    equal: dict[str, str | bool] = {}
    search: str = ""
    least: dict[str, float] = {}
    most: dict[str, float] = {}
    sort: str = ""  # a field's name; with - before it, the other way round. "": as they come
    offset: int = 0
    limit: int | None = None
    fields: tuple[str, ...] = ()  # (): all


def select(
    rows: Sequence[T], asked: RowSelection, *, parts: Callable[[T], Sequence[T]] = lambda _: ()
) -> tuple[Sequence[T], int]:
    """The requested page, and the number of rows on all pages.

    A row matches itself or through one of its `parts`, which must pass all filters alone.
    """
    found = matching(rows, asked, parts=parts)
    if asked.sort:
        found = _sorted(found, asked.sort)
    end = None if asked.limit is None else asked.offset + asked.limit
    return found[asked.offset : end], len(found)


def matching(
    rows: Sequence[T], asked: RowSelection, *, parts: Callable[[T], Sequence[T]] = lambda _: ()
) -> Sequence[T]:
    """All rows that pass the filters, or that have a part which does."""
    if not _filters(asked):
        return rows
    return [row for row in rows if _passes(row, asked) or any(_passes(part, asked) for part in parts(row))]


def as_json(rows: Sequence[T], fields: Sequence[str] = ()) -> bytes:
    """A JSON array of the rows, with these fields only."""
    if not fields:
        return msgspec.json.encode(rows)
    return msgspec.json.encode([{name: getattr(row, name) for name in fields} for row in rows])


def as_csv(rows: Sequence[Struct], fields: Sequence[str]) -> bytes:
    """The rows after a header line. Nested values are JSON; text that a spreadsheet would run is made plain text."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(fields)
    writer.writerows([_cell(getattr(row, name)) for name in fields] for row in rows)
    return text.getvalue().encode()


def _filters(asked: RowSelection) -> bool:
    return bool(asked.equal or asked.search or asked.least or asked.most)


def _passes(row: Struct, asked: RowSelection) -> bool:
    if any(getattr(row, name) != value for name, value in asked.equal.items()):
        return False
    if not all(_at_least(getattr(row, name), bound) for name, bound in asked.least.items()):
        return False
    if not all(_at_most(getattr(row, name), bound) for name, bound in asked.most.items()):
        return False
    return not asked.search or asked.search.lower() in _names(row)


def _at_least(value: float | None, bound: float) -> bool:
    return value is not None and value >= bound


def _at_most(value: float | None, bound: float) -> bool:
    return value is not None and value <= bound


def _names(row: Struct) -> str:
    """All text of a row, tenants included, to search in."""
    parts = [value for name in row.__struct_fields__ if isinstance(value := getattr(row, name), str)]
    for tenant in getattr(row, "tenants", ()):
        parts += [tenant.namespace, tenant.pod, tenant.container, tenant.owner]
    return "\n".join(parts).lower()


def _sorted(rows: Sequence[T], sort: str) -> list[T]:
    """By one field; rows without a value come last in both directions."""
    name, reverse = sort.removeprefix("-"), sort.startswith("-")
    value: Callable[[T], Any] = lambda row: getattr(row, name)  # noqa: E731
    there = [row for row in rows if value(row) is not None]
    absent = [row for row in rows if value(row) is None]
    return sorted(there, key=value, reverse=reverse) + absent


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else value
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, (int, float)) else msgspec.json.encode(value).decode()
