"""Idle GPU-hours of single hours, small enough to be kept, and their sums by namespace.

An hour that is over does not change any more. A day is the sum of its hours, so only the last ones are read again.
"""

from array import array
from collections.abc import Iterable, Sequence

from msgspec import Struct

from vgpuscope.logic.fleet.waste import WasteLedger
from vgpuscope.model.console.overview import WasteBy
from vgpuscope.model.quantity import Seconds

_HOUR = 3600.0
_COMPARABLE = 0.9  # of the hours of a span must have results


class NamespaceHour(Struct, frozen=True, kw_only=True):
    """The time that the pods of one namespace had GPUs in one hour, in seconds of a whole GPU."""

    idle: Seconds
    in_use: Seconds
    unknown: Seconds
    pods: "array[int]"  # hashes of their names: only their number is shown
    gpus: "array[int]"


class WasteHour(Struct, frozen=True, kw_only=True):
    """One hour of the fleet."""

    analysed: Seconds  # of GPUs, together
    namespaces: dict[str, NamespaceHour]


def waste_hour(ledger: WasteLedger) -> WasteHour:
    """What is kept of a ledger of one hour."""
    found: dict[str, NamespaceHour] = {}
    for name, held in ledger.by_namespace().items():
        sums = [sums for _, sums in held]
        found[name] = NamespaceHour(
            idle=sum(one.idle for one in sums),
            in_use=sum(one.in_use for one in sums),
            unknown=sum(one.unknown for one in sums),
            pods=array("q", {hash(who.pod) for who, _ in held}),
            gpus=array("q", {hash((who.gpu_id, who.mig)) for who, _ in held}),
        )
    return WasteHour(analysed=ledger.analysed, namespaces=found)


def waste_by_namespace(hours: Iterable[WasteHour]) -> tuple[tuple[WasteBy, ...], float | None]:
    """The hours of namespaces that held a GPU, most idle first, and idle hours in all; None: nothing was analysed."""
    known = tuple(hours)
    if not any(hour.analysed for hour in known):
        return (), None
    parts: dict[str, list[NamespaceHour]] = {}
    for hour in known:
        for name, part in hour.namespaces.items():
            parts.setdefault(name, []).append(part)
    idle = sum(part.idle for found in parts.values() for part in found)
    rows = [
        _row(name, found)
        for name, found in parts.items()
        if any(part.idle + part.in_use + part.unknown for part in found)
    ]
    rows.sort(key=lambda row: (-row.idle_gpu_hours, -row.held_gpu_hours, row.namespace))
    return tuple(rows), _hours(idle)


def idle_of_span(hours: Sequence[WasteHour]) -> float | None:
    """Idle hours of a span that another one is compared with; None if much of it was not analysed."""
    analysed = sum(hour.analysed > 0 for hour in hours)
    return waste_by_namespace(hours)[1] if hours and analysed >= _COMPARABLE * len(hours) else None


def _row(name: str, parts: list[NamespaceHour]) -> WasteBy:
    idle, in_use, unknown = (sum(getattr(part, of) for part in parts) for of in ("idle", "in_use", "unknown"))
    pods: set[int] = set()
    gpus: set[int] = set()
    for part in parts:
        pods.update(part.pods)
        gpus.update(part.gpus)
    return WasteBy(
        namespace=name,
        idle_gpu_hours=_hours(idle),
        held_gpu_hours=_hours(idle + in_use + unknown),
        idle_ratio=round(idle / (idle + in_use + unknown), 4),
        pods=len(pods),
        gpus=len(gpus),
    )


def _hours(seconds: Seconds) -> float:
    return round(seconds / _HOUR, 4)
