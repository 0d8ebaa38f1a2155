"""Contradictions that the auditor reports and that are known, each with its reason; the list must become empty."""

from collections.abc import Callable
from typing import Any

Found = dict[str, Any]

_SUMMARY = {"fleet.gpus", "fleet.nodes", "fleet.namespaces"}
_RESULTS = ("GET /results", "GET /api/v1/summary", "GET /metrics (analyzer)")
_WASTE = "GET /api/v1/waste?"
WASTE_LISTS_ONLY_IDLE = True  # rows without idle hours are missing in /api/v1/waste


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


def _figures(one: Found) -> set[str]:
    return {one["first"]["figure"], one["second"]["figure"]}


def _surfaces(one: Found) -> tuple[str, str]:
    return one["first"]["surface"], one["second"]["surface"]


def _on(one: Found, *begins: str) -> bool:
    return any(surface.startswith(begins) for surface in _surfaces(one))


KNOWN: dict[str, Callable[[Found], bool]] = {
    "the summary counts listed GPUs, their nodes and namespaces; the overview also those known only by number, quota "
    "or waiting pod, under the same codes": lambda one: (
        bool(_SUMMARY & _figures(one)) and _on(one, "GET /api/v1/summary", "GET /api/v1/gpus")
    ),
    "results and metrics count unallocated GPUs as idle, the overview under a class of their own": lambda one: (
        "fleet.by_class" in _figures(one)
        and one["subject"] in {"idle", "idle-held", "unallocated"}
        and _on(one, *_RESULTS)
    ),
    "the auditor compares 24 hours with 7 days of a history that is longer than 24 hours": lambda one: (
        one["check"] == "same" and all(surface.startswith(_WASTE) for surface in _surfaces(one))
    ),
    "the auditor takes one series of several namespaces for the whole fleet": lambda one: (
        "fleet.pending_by_reason" in _figures(one)
    ),
    "the auditor leaves out tenants whose namespace is unknown": lambda one: (
        one["check"] == "sums" and any(code.startswith("fleet.tenants") for code in _figures(one))
    ),
    "waste lists only rows with idle hours": lambda one: one["check"] == "waste-rows",
    "a tenant's part of a GPU-hour is its memory limit's; what no tenant has of a held GPU is in no sum": lambda one: (
        one["check"] in {"waste-hours", "waste-groups"}
    ),
    "an idle workload that a policy leaves alone is no case": lambda one: one["check"] == "cases",
    "the doctor of the command and that of the console count facts of their own": lambda one: one["check"] == "doctors",
    "the doctor rules out profiling of a model of which some GPUs show it": lambda one: one["check"] == "ruled-out",
    "what still fits of counted GPUs has the code of that of registered ones": lambda one: (
        "capacity.whole_gpus" in _figures(one)
    ),
}
