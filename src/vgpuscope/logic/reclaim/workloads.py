"""An analysis → workloads, and what it found of each.

A finding is `idle` only if every share of the workload is proven idle with enough coverage. One busy share makes the
workload busy. A share that nobody measured makes it unknown, and so does a GPU that it should hold and that the
analysis did not see.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256

from vgpuscope.model.analysis import GpuUse, TenantUse
from vgpuscope.model.quantity import DeviceUUID
from vgpuscope.model.reclaim import Finding, Policy, Share, Workload

Held = Mapping[str, frozenset[DeviceUUID]]  # by pod UID: the GPUs that the scheduler assigned


def workloads(gpus: Iterable[GpuUse]) -> dict[str, Workload]:
    """Every workload that holds something now, by its id."""
    found: dict[str, list[tuple[GpuUse, TenantUse]]] = {}
    for gpu in gpus:
        for use in gpu.tenants:
            found.setdefault(workload_id(use), []).append((gpu, use))
    return {key: _workload(uses) for key, uses in found.items()}


def workload_id(use: TenantUse) -> str:
    """The pod's UID; without one, a name that cannot be a UID."""
    tenant = use.tenant
    if tenant.pod_uid:
        return tenant.pod_uid
    return f"name-{sha256(f'{tenant.namespace}/{tenant.pod}'.encode()).hexdigest()[:32]}"


def finding(workload: Workload, policy: Policy, *, held: frozenset[DeviceUUID] | None = None) -> Finding:
    """What the analysis found of the workload. `held`: the GPUs that it was assigned, if that is known."""
    verdicts = {share.verdict for share in workload.shares}
    if "in_use" in verdicts:
        return "busy"
    if verdicts != {"idle"} or not _covered(workload, policy):
        return "unknown"
    if held is not None and not held <= {share.gpu_id for share in workload.shares}:
        return "unknown"
    if not policy.include_held and any(share.use_class == "idle-held" for share in workload.shares):
        return "held"
    return "idle"


def vanished(gpu_ids: Iterable[DeviceUUID], gpus: Mapping[DeviceUUID, GpuUse]) -> bool:
    """Whether fresh data show all these GPUs, none of them with the workload that the caller missed.

    A GPU that no longer reports proves nothing.
    """
    seen = [gpus.get(gpu_id) for gpu_id in gpu_ids]
    return bool(seen) and all(gpu is not None and gpu.last_seen is None and gpu.absent_since is None for gpu in seen)


def _covered(workload: Workload, policy: Policy) -> bool:
    return all(share.coverage is not None and share.coverage >= policy.min_coverage for share in workload.shares)


def _workload(uses: list[tuple[GpuUse, TenantUse]]) -> Workload:
    tenant = uses[0][1].tenant
    return Workload(
        uid=tenant.pod_uid,
        namespace=tenant.namespace,
        pod=tenant.pod,
        owner=next((use.owner for _, use in uses if use.owner), ""),
        shares=tuple(_shares(uses)),
    )


def _shares(uses: list[tuple[GpuUse, TenantUse]]) -> Iterator[Share]:
    """On a shared GPU the score is the tenant's own. A GPU that one pod has alone has the GPU's score."""
    for gpu, use in uses:
        shared = len({workload_id(one) for one in gpu.tenants}) > 1
        judged: GpuUse | TenantUse = use if shared else gpu
        yield Share(
            gpu_id=gpu.gpu_id,
            mig=gpu.mig,
            hostname=gpu.hostname,
            model=gpu.model,
            score=judged.score.value,
            status=judged.status,
            verdict=use.verdict,
            use_class=use.use_class,
            coverage=use.evidence.coverage,
            idle_since=use.idle_since,
        )
