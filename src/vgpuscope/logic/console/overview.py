"""Rows of GPUs and what else is known → the fleet in figures, and its classes."""

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from vgpuscope.logic.console.gpus import Ledgers
from vgpuscope.logic.console.moments import average, share
from vgpuscope.model.analysis import USE_CLASSES, UseClass
from vgpuscope.model.console.gpus import GpuRow
from vgpuscope.model.console.overview import GPU_CLASSES, Figures, GpuClass, WasteBy
from vgpuscope.model.history import HistoryPoint
from vgpuscope.model.pending import PendingPod


class PastFacts(Struct, frozen=True, kw_only=True):
    """What the history says: idle hours of the last day and of the day before, and the fleet a day ago."""

    waste: tuple[WasteBy, ...]  # by namespace, most first
    wasted_gpu_hours: float | None
    before: Figures | None


def figures(
    rows: Sequence[GpuRow],
    *,
    cluster: Ledgers | None,
    whole: bool,
    pending: Sequence[PendingPod] | None,
    wasted: float | None,
    allocated: int | None = None,
    unlisted: int = 0,
) -> Figures:
    """The figures of these GPUs. `whole`: they are the whole fleet, so that all of the capacity is theirs.

    `allocated`: the memory that is allocated to pods of the chosen namespaces, if it is not the whole fleet.
    `unlisted`: GPUs without a row, of which only the number is known.
    """
    gpus = by_gpu(rows)
    held = [found for found in gpus if any(row.held for row in found)]
    devices = [one for _, one in cluster.devices.values()] if cluster and whole else []
    allocated = sum(one.memory_allocated for one in devices) if devices else allocated
    capacity = sum(one.device.memory for one in devices) if devices else None
    return Figures(
        gpus=len(gpus) + unlisted,
        gpus_unlisted=unlisted,
        gpus_divided=sum(any(row.mig for row in found) for found in gpus),
        gpus_healthy=sum(all(_healthy(row) for row in found) for found in gpus),
        gpus_held=len(held),
        mig_instances=sum(bool(row.mig) for row in rows),
        gpus_or_instances=len(rows),
        idle_held=sum(row.held and row.verdict == "idle" for row in rows),
        unknown=sum(row.verdict == "unknown" for row in rows),
        tenants_idle=sum(tenant.verdict == "idle" for row in rows for tenant in row.tenants),
        memory_capacity=capacity,
        memory_allocated=allocated,
        memory_ratio=share(allocated, capacity),
        cores_ratio=share(sum(one.cores_allocated for one in devices), sum(one.device.cores for one in devices)),
        use=mean_use(gpus),
        use_held=mean_use(held),
        gpus_measured=sum(_use(found) is not None for found in gpus),
        wasted_gpu_hours=wasted,
        power=power(rows),
        pending_pods=None if pending is None else sum(pod.outcome == "waiting" for pod in pending),
    )


def figures_before(points: Iterable[HistoryPoint], *, wasted: float | None) -> Figures | None:
    """The figures of an hour of the past; the history knows use and classes, not allocation or power."""
    gpus: dict[str, list[HistoryPoint]] = {}
    for point in points:
        gpus.setdefault(point.gpu_id, []).append(point)
    if not gpus:
        return None
    used = [use for found in gpus.values() if (use := average([one.util for one in found])) is not None]
    held = [found for found in gpus.values() if any(2 * one.held_seconds > one.seconds for one in found)]
    parts = [one for found in gpus.values() for one in found]
    return Figures(
        gpus=len(gpus),
        gpus_unlisted=None,
        gpus_divided=sum(any(one.mig for one in found) for found in gpus.values()),
        gpus_healthy=None,
        gpus_held=len(held),
        mig_instances=sum(bool(one.mig) for one in parts),
        gpus_or_instances=len(parts),
        idle_held=sum(2 * one.held_seconds > one.seconds and _mostly(one, "idle") for one in parts),
        unknown=sum(_mostly(one, "unknown") for one in parts),
        tenants_idle=None,
        memory_capacity=None,
        memory_allocated=None,
        memory_ratio=None,
        cores_ratio=None,
        use=average([*used]),
        use_held=average([average([one.util for one in found]) for found in held]),
        gpus_measured=len(used),
        wasted_gpu_hours=wasted,
        power=None,
        pending_pods=None,
    )


def gpu_class(row: GpuRow) -> GpuClass:
    """The class of a GPU, in which an idle GPU that no pod has is unallocated: free, not wasted."""
    return "unallocated" if row.verdict == "idle" and not row.held else row.use_class


def classes(rows: Iterable[GpuRow]) -> dict[GpuClass, int]:
    """GPUs and MIG instances by class; every class is listed."""
    counts = Counter(gpu_class(row) for row in rows)
    return {name: counts[name] for name in GPU_CLASSES}


def tenant_classes(rows: Iterable[GpuRow]) -> dict[UseClass, int]:
    """Tenants by class; every class is listed."""
    counts = Counter(tenant.use_class for row in rows for tenant in row.tenants)
    return {name: counts[name] for name in USE_CLASSES}


def by_gpu(rows: Iterable[GpuRow]) -> list[list[GpuRow]]:
    """The rows of each GPU: several if it has MIG instances."""
    found: dict[str, list[GpuRow]] = {}
    for row in rows:
        found.setdefault(row.gpu_id, []).append(row)
    return list(found.values())


def mean_use(gpus: Iterable[Sequence[GpuRow]]) -> float | None:
    """The mean use of the GPUs that are measured, by the best signal of each; instances count as their GPU."""
    return average([_use(found) for found in gpus])


def power(rows: Iterable[GpuRow]) -> float | None:
    """Of each GPU once: some exporters repeat the power of the GPU for each MIG instance."""
    watts = {row.gpu_id: row.power for row in rows if row.power is not None}
    return round(sum(watts.values()), 1) if watts else None


def _use(rows: Sequence[GpuRow]) -> float | None:
    return average([row.use.mean for row in rows])


def _healthy(row: GpuRow) -> bool:
    return row.health in (None, "ok") and (row.allocation is None or row.allocation.lost != "unhealthy")


def _mostly(point: HistoryPoint, verdict: str) -> bool:
    return 2 * sum(seconds for name, seconds in point.by_verdict.items() if name == verdict) > point.seconds
