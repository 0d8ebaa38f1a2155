"""The low tenants of an analysis, and the body of a call to a control service about one of them."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from msgspec.structs import replace

from vgpuscope.model.opinion import PartId
from vgpuscope.model.quantity import UnixTime
from vgpuscope.views.fleet.results.results import ResultRow, low_or_idle, tenant_unit

_LONGEST_NAME = 253  # characters, of any name in Kubernetes


class LowParts(NamedTuple):
    """Tenants that are low, those of the lowest scores first, and tenants that are known not to be."""

    low: dict[PartId, ResultRow]
    in_use: frozenset[PartId]


def low_parts(rows: Iterable[ResultRow], *, threshold: float, only_idle: bool = False) -> LowParts:
    """Those of /results/low?kind=tenant with a known verdict. `only_idle`: those with the verdict idle.

    Where only a shared GPU is measured, its tenants have its numbers, as in gpu-oour.
    """
    parts = {_part_of(row): row for found in rows for row in _tenant_rows(found)}
    low = [
        part
        for part, row in parts.items()
        if row.verdict != "unknown" and low_or_idle(row, threshold) and (row.verdict == "idle" or not only_idle)
    ]
    low.sort(key=lambda part: (parts[part].score is None, parts[part].score or 0.0, part))
    known = {part for part, row in parts.items() if "unknown" not in (row.verdict, row.status)}
    return LowParts({part: parts[part] for part in low}, frozenset(known.difference(low)))


def _tenant_rows(row: ResultRow) -> Iterator[ResultRow]:
    for one in row.tenants:
        if row.shared and not one.own_numbers:
            yield replace(row, namespace=one.namespace, pod=one.pod, tenants=(one,), ai_analysis=one.ai_analysis)
        else:
            yield tenant_unit(row, one)


def _part_of(row: ResultRow) -> PartId:
    return PartId(row.gpu_id, row.mig, row.namespace, row.pod, row.tenants[0].container)


def control_body(
    *, gpu_id: str, pod: str, namespace: str, hostname: str, score: float | None, status: str, at: UnixTime
) -> dict[str, object]:
    """gpu-oour's seven keys, with the score as /results shows it and a time in UTC without its zone.

    Names come from labels that tenants can set, so they are cut and have no control characters.
    """
    return {
        "gpu_id": plain_name(gpu_id),
        "pod": plain_name(pod),
        "namespace": plain_name(namespace),
        "hostname": plain_name(hostname),
        "score": None if score is None else round(score, 1),
        "status": status,
        "timestamp": datetime.fromtimestamp(at, tz=UTC).isoformat(timespec="seconds").removesuffix("+00:00"),
    }


def plain_name(text: str) -> str:
    return "".join(char for char in text if char.isprintable())[:_LONGEST_NAME]
