"""What a caller of some namespaces gets, and what a view of some namespaces shows: nothing of others."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from vgpuscope.logic.audit.waste import reading_of
from vgpuscope.model.consistency import FigureComparison, Surfaces

_HOURS = 0.0002  # each row is rounded


def only_own_names(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """No answer to a caller of some namespaces, and no list of them, names another namespace."""
    for answer in surfaces.answers:
        if answer.sees is None:
            continue
        others = Counter(name for name in _namespaces(answer.body) if name and name not in answer.sees)
        own = ",".join(answer.sees)
        yield FigureComparison(
            check="scope",
            subject=", ".join(sorted(others)),
            first=reading_of(answer, "fleet.namespaces", f"count(namespace not in {own})", sum(others.values())),
            second=reading_of(answer, "fleet.namespaces", "0", 0),
            rule="equal",
        )


def _namespaces(item: Any) -> Iterator[str]:
    if isinstance(item, dict):
        name = item.get("namespace")
        if isinstance(name, str):
            yield name
        for inner in item.values():
            yield from _namespaces(inner)
    elif isinstance(item, list):
        for inner in item:
            yield from _namespaces(inner)


def only_own_hours(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """The GPU-hours of some namespaces are those that their pods held: none are free, and none are of others."""
    for answer in surfaces.answers:
        if answer.kind != "Waste" or answer.sees is None or not answer.body["history"]:
            continue
        rows = answer.body["rows"]
        if answer.body["count"] != len(rows):
            continue
        held = sum(row["held_gpu_hours"] for row in rows)
        for field in ("gpu_hours", "held_gpu_hours"):
            yield FigureComparison(
                check="scope",
                subject=answer.body["group_by"],
                first=reading_of(answer, f"fleet.{field}", field, answer.body[field]),
                second=reading_of(answer, "waste.held_gpu_hours", "sum(rows[].held_gpu_hours)", held),
                rule="sum",
                tolerance=_HOURS * (len(rows) + 1) + 1e-4 * held,
            )
