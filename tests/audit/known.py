"""Contradictions that the auditor reports and that are known, each with its reason; the list must become empty."""

from collections.abc import Callable
from typing import Any

Found = dict[str, Any]

KNOWN: dict[str, Callable[[Found], bool]] = {
    "a point of the history does not say for how much of its time a value was known, nor the auditor for how much of a "
    "day a pod was there: where values are missing for a part, long and short steps differ": lambda one: (
        one["check"] == "steps"
    ),
    "the same of allocations, which the demo's past often lacks: a node can exceed the fleet": lambda one: (
        one["check"] == "chart-parts" and one["first"]["figure"] in {"chart.memory_allocated", "chart.cores_allocated"}
    ),
    "the demo's past has two GPUs less than its agents, which are in the chart only after some analyses": lambda one: (
        one["check"] == "chart-tile"
    ),
}


def unknown(differences: list[Found]) -> list[str]:
    """The differences that are not in the list, as sentences."""
    return [sentence(one) for one in differences if reason(one) is None]


def reason(one: Found) -> str | None:
    """Why a difference is known; None: it is not."""
    return next((why for why, matches in KNOWN.items() if matches(one)), None)


def sentence(one: Found) -> str:
    first, second = one["first"], one["second"]
    places = [
        f"{place['surface']} {place['path']} ({place['figure']}) = {place['value']:g}" for place in (first, second)
    ]
    return f"{one['check']} of {one['subject'] or 'the fleet'}: {places[0]}, {one['rule']} {places[1]}"
