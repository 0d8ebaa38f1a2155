"""Rows of GPUs → rows of workloads: pods, owners or namespaces."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

from vgpuscope.logic.console.allocations import PodAllocation, cores_of, memory_of
from vgpuscope.logic.console.gpus import power_of
from vgpuscope.logic.console.moments import average, iso_or_none, total
from vgpuscope.logic.console.scheduling import waited
from vgpuscope.model.analysis import UseClass, Verdict
from vgpuscope.model.console.gpus import GpuRow, TenantRow, Use
from vgpuscope.model.console.workloads import WorkloadGpu, WorkloadGroup, WorkloadRow
from vgpuscope.model.pending import PendingPod
from vgpuscope.model.quantity import UnixTime

T = TypeVar("T")
Held = tuple[GpuRow, TenantRow]


def workload_rows(
    rows: Iterable[GpuRow],
    *,
    group_by: WorkloadGroup,
    pending: Sequence[PendingPod] = (),
    allocations: Iterable[PodAllocation] = (),
    now: UnixTime = 0.0,
) -> tuple[WorkloadRow, ...]:
    """The tenants by pod, owner or namespace, in order of names; by pod, also the pods that wait.

    A pod that waits has an allocation if it was assigned and not bound. It is in the sum of its owner and namespace.
    """
    groups: dict[tuple[str, str], list[Held]] = {}
    for row in rows:
        for tenant in row.tenants:
            groups.setdefault((tenant.namespace, _name(tenant, group_by)), []).append((row, tenant))
    running = {(tenant.namespace, tenant.pod) for held in groups.values() for _, tenant in held}
    waiting = {(pod.namespace, pod.pod): pod for pod in pending if (pod.namespace, pod.pod) not in running}
    assigned: dict[tuple[str, str], list[PodAllocation]] = {}
    for one in allocations:
        pod = waiting.get((one.namespace, one.pod))
        if pod is not None:
            assigned.setdefault((one.namespace, _name(pod, group_by)), []).append(one)
    made = [_row(held, assigned.get(name, []), group_by) for name, held in groups.items()]
    if group_by == "pod":
        made += [_waiting(pod, assigned.get(name, []), now) for name, pod in waiting.items()]
    return tuple(sorted(made, key=lambda row: (row.namespace, row.pod or "", row.owner or "")))


def verdict_of(verdicts: Iterable[Verdict]) -> Verdict:
    """In use if one is, idle only if all are."""
    words = set(verdicts)
    return "in_use" if "in_use" in words else "idle" if words == {"idle"} else "unknown"


def _name(one: TenantRow | PendingPod, group_by: WorkloadGroup) -> str:
    match group_by:
        case "pod":
            return one.pod
        case "owner":
            return one.owner or f"Pod/{one.pod}"
        case "namespace":
            return ""


def _row(held: Sequence[Held], assigned: Sequence[PodAllocation], group_by: WorkloadGroup) -> WorkloadRow:
    """`assigned`: what pods of the group were allocated that are not bound."""
    tenants = [tenant for _, tenant in held]
    first = tenants[0]
    classes = Counter(tenant.use_class for tenant in tenants)
    verdict = verdict_of(tenant.verdict for tenant in tenants)
    pods = {tenant.pod for tenant in tenants}
    return WorkloadRow(
        namespace=first.namespace,
        pod=first.pod if group_by == "pod" else None,
        pod_uid=first.pod_uid if group_by == "pod" else None,
        owner=None if group_by == "namespace" else first.owner or (f"Pod/{first.pod}" if len(pods) == 1 else None),
        state="running",
        pods=len(pods),
        nodes=tuple(sorted({gpu.node for gpu, _ in held if gpu.node})),
        gpus=tuple(
            [WorkloadGpu(gpu_id=gpu, mig=mig) for gpu, mig in dict.fromkeys((g.gpu_id, g.mig) for g, _ in held)]
        ),
        tenants=len(tenants),
        by_class=dict(classes),
        memory_allocated=total([*(one.memory_allocated for one in tenants), memory_of(assigned)]),
        memory_limit=total([one.memory_limit for one in tenants]),
        memory_used=total([one.memory_used for one in tenants]),
        memory_max=total([one.memory_max for one in tenants]),
        cores_allocated=total([*(one.cores_allocated for one in tenants), cores_of(assigned)]),
        cores_limit=total([one.cores_limit for one in tenants]),
        use=_use(tenants),
        power=power_of(tenants),
        score=_score(tenants),
        verdict=verdict,
        use_class=next(iter(classes)) if len(classes) == 1 else None,
        idle_since=_latest([one.idle_since for one in tenants]) if verdict == "idle" else None,
        since=_latest([one.since for one in tenants]),
        container_state=_same([one.state for one in tenants]),
        last_kernel=max((one.last_kernel for one in tenants if one.last_kernel), default=None),
        priority=_same([one.priority for one in tenants]),
        blocked=_any([one.blocked for one in tenants]),
        code=None,
        waited_seconds=None,
    )


def _waiting(pod: PendingPod, assigned: Sequence[PodAllocation], now: UnixTime) -> WorkloadRow:
    return WorkloadRow(
        namespace=pod.namespace,
        pod=pod.pod,
        pod_uid=pod.pod_uid or None,
        owner=pod.owner or None,
        state="pending",
        pods=1,
        nodes=tuple(sorted({one.node for one in assigned})),
        gpus=tuple([WorkloadGpu(gpu_id=one.gpu_id, mig=None) for one in assigned]),
        tenants=0,
        by_class={},
        memory_allocated=memory_of(assigned),
        memory_limit=None,
        memory_used=None,
        memory_max=None,
        cores_allocated=cores_of(assigned),
        cores_limit=None,
        use=Use(),
        power=None,
        score=None,
        verdict="unknown",
        use_class=None,
        idle_since=None,
        since=iso_or_none(pod.created),
        container_state=None,
        last_kernel=None,
        priority=None,
        blocked=None,
        code=pod.code,
        waited_seconds=waited(pod, now),
    )


def by_class(tenants: Iterable[TenantRow]) -> dict[UseClass, int]:
    return dict(Counter(tenant.use_class for tenant in tenants))


def _use(tenants: Sequence[TenantRow]) -> Use:
    """p95 is not known if it is not known of one that was measured: its mean is in the mean of all."""
    tails = [one.use.p95 for one in tenants if one.use.mean is not None]
    return Use(
        mean=average([one.use.mean for one in tenants]),
        p95=max((tail for tail in tails if tail is not None), default=None) if None not in tails else None,
        max=max((one.use.max for one in tenants if one.use.max is not None), default=None),
    )


def _score(tenants: Sequence[TenantRow]) -> float | None:
    found = average([one.score for one in tenants])
    return None if found is None else round(found, 1)


def _latest(moments: Sequence[str | None]) -> str | None:
    """The latest of these moments; None if one of them is not known."""
    known = [moment for moment in moments if moment is not None]
    return max(known) if known and len(known) == len(moments) else None


def _same(values: Sequence[T | None]) -> T | None:
    return values[0] if len(set(values)) == 1 else None


def _any(values: Sequence[bool | None]) -> bool | None:
    known = [value for value in values if value is not None]
    return any(known) if known else None
