"""Rows of GPUs, quotas, waiting pods and idle hours → a row for each namespace."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from vgpuscope.logic.console.allocations import PodAllocation, by_namespace, cores_of, memory_of
from vgpuscope.logic.console.gpus import power_of
from vgpuscope.logic.console.moments import average, total
from vgpuscope.model.console.gpus import GpuRow, TenantRow
from vgpuscope.model.console.namespaces import NamespaceRow, QuotaRow
from vgpuscope.model.console.overview import WasteBy
from vgpuscope.model.pending import PendingPod


def namespace_rows(
    rows: Iterable[GpuRow],
    *,
    quotas: Mapping[str, tuple[QuotaRow, ...]] | None,
    pending: Sequence[PendingPod] | None,
    waste: Mapping[str, WasteBy] | None,
    allocations: Iterable[PodAllocation] = (),
) -> tuple[NamespaceRow, ...]:
    """Each namespace with tenants, allocations, quotas, waiting pods or GPU-hours of the last day, in order of name.

    A pod that is only assigned, such as one whose binding failed, is no tenant, and its allocation counts.
    """
    allocated = by_namespace(allocations)
    groups: dict[str, list[tuple[GpuRow, TenantRow]]] = {}
    for row in rows:
        for tenant in row.tenants:
            groups.setdefault(tenant.namespace, []).append((row, tenant))
    waiting = Counter(pod.namespace for pod in pending or () if pod.outcome == "waiting")
    return tuple(
        _row(
            name,
            groups.get(name, []),
            allocated.get(name, []),
            quotas=(quotas or {}).get(name, ()),
            pending=None if pending is None else waiting[name],
            waste=(waste or {}).get(name),
            wasted=waste is not None,
        )
        for name in sorted(namespace_names({*groups, *allocated}, quotas=quotas, pending=pending, waste=waste))
    )


def namespace_names(
    tenants: Iterable[str],
    *,
    quotas: Mapping[str, object] | None,
    pending: Sequence[PendingPod] | None,
    waste: Mapping[str, WasteBy] | None,
) -> set[str]:
    """The namespaces that are listed, of these tenants, quotas, pods and GPU-hours.

    A namespace whose pods have gone is listed for its GPU-hours, so that the hours of namespaces add up to the fleet's.
    """
    waiting = [pod.namespace for pod in pending or () if pod.outcome == "waiting"]
    return {*tenants, *(quotas or ()), *waiting, *(waste or ())}


def _row(
    name: str,
    held: Sequence[tuple[GpuRow, TenantRow]],
    allocated: Sequence[PodAllocation],
    *,
    quotas: tuple[QuotaRow, ...],
    pending: int | None,
    waste: WasteBy | None,
    wasted: bool,
) -> NamespaceRow:
    """`wasted`: hours are known, so a namespace without a row of waste held no GPU."""
    tenants = [tenant for _, tenant in held]
    score = average([tenant.score for tenant in tenants])
    return NamespaceRow(
        name=name,
        gpus=len({gpu.gpu_id for gpu, _ in held}),
        gpus_or_instances=len({(gpu.gpu_id, gpu.mig) for gpu, _ in held}),
        pods=len({tenant.pod for tenant in tenants}),
        tenants=len(tenants),
        by_class=dict(Counter(tenant.use_class for tenant in tenants)),
        by_verdict=dict(Counter(tenant.verdict for tenant in tenants)),
        memory_allocated=memory_of(allocated),
        memory_limit=total([one.memory_limit for one in tenants]),
        memory_used=total([one.memory_used for one in tenants]),
        cores_allocated=cores_of(allocated),
        use=average([one.use.mean for one in tenants]),
        power=power_of(tenants),
        score=None if score is None else round(score, 1),
        quotas=quotas,
        idle_gpu_hours=waste.idle_gpu_hours if waste else 0.0 if wasted else None,
        held_gpu_hours=waste.held_gpu_hours if waste else 0.0 if wasted else None,
        pending_pods=pending,
    )
