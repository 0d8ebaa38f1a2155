"""Contradictions that the auditor reports and that are known, each with its reason; the list must become empty."""

from collections.abc import Callable
from typing import Any

Found = dict[str, Any]

_SMALL = 5000.0  # J


def _small_energy_of_a_pod(one: Found) -> bool:
    return bool(
        one["check"] == "energies"
        and "&pod=" in one["first"]["surface"]
        and one["second"]["path"].startswith("power × seconds")
        and one["first"]["value"] < _SMALL
    )


KNOWN: dict[str, Callable[[Found], bool]] = {
    "not explained yet: in a demo's first minute a pod had 1,433 J, by its power 1,001 J": _small_energy_of_a_pod,
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
