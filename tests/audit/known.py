"""Contradictions that the auditor finds and that are known, each with its reason; the list must become empty."""

from typing import Any


def unknown(differences: list[dict[str, Any]]) -> list[str]:
    """The differences that are not in the list, as sentences."""
    return [sentence(one) for one in differences if reason(one) is None]


def reason(one: dict[str, Any]) -> str | None:
    """Why a difference is known; None: it is not."""
    return None


def sentence(one: dict[str, Any]) -> str:
    first, second = one["first"], one["second"]
    places = [f"{place['surface']} {place['path']} ({place['figure']}) = {place['value']:g}" for place in (first, second)]
    return f"{one['check']} of {one['subject'] or 'the fleet'}: {places[0]}, {one['rule']} {places[1]}"
