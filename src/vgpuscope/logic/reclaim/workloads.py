"""An analysis → workloads, and what it found of each.

A finding is `idle` only if every share of the workload is proven idle with enough coverage. One busy share makes the
workload busy. A share that nobody measured makes it unknown. So does a GPU that the workload was seen on or was
allocated, if the analysis does not show the workload there. A workload with at least one idle share has a case; if it
is left alone, its finding says why.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TypeAlias

from vgpuscope.model.analysis import Analysis, GpuUse, TenantUse
from vgpuscope.model.quantity import DeviceUUID
from vgpuscope.model.reclaim import Brake, Finding, Policy, Share, Workload

Held = Mapping[str, frozenset[str]]  # by workload: the GPUs and MIG instances that it was seen on
_Uses: TypeAlias = list[tuple[GpuUse, TenantUse]]


class HoldingWorkloads:
    """Every workload that holds something now, by its id.

    Most workloads are busy and have no case. So a workload is put together only when it is asked for.
    """

    def __init__(self, gpus: Sequence[GpuUse]) -> None:
        self._gpus = gpus
        self._uses: dict[str, _Uses] = {}
        for gpu in gpus:
            for use in gpu.tenants:
                key = use.tenant.pod_uid or workload_id(use)
                known = self._uses.get(key)
                if known is None:
                    self._uses[key] = [(gpu, use)]
                else:
                    known.append((gpu, use))

    def __iter__(self) -> Iterator[str]:
        return iter(self._uses)

    def __contains__(self, key: str) -> bool:
        return key in self._uses

    def __getitem__(self, key: str) -> Workload:
        return _workload(self._uses[key])

    def held(self, before: Held) -> Held:
        """Of workloads with several GPUs: what each was ever seen on. It is forgotten when the workload is gone.

        A GPU that stops reporting, or whose processes cannot be attributed, has no tenant. Its pod still has the GPU.
        """
        found = {key: _parts(uses) for key, uses in self._uses.items() if len(uses) > 1}
        several = {key: parts for key, parts in found.items() if len(parts) > 1}
        if before:
            there = {_part(gpu): gpu for gpu in self._gpus}
            for key, parts in before.items():
                if key in self._uses:
                    several[key] = parts | several.get(key, frozenset()) | _parts(self._uses[key])
                elif any(part in there and not _reports(there[part]) for part in parts):
                    several[key] = parts
        return several

    def finding(self, key: str, policy: Policy, *, held: Held) -> Finding:
        """What the analysis found of the workload. `held`: all that it has, seen now or before."""
        uses = self._uses[key]
        busy = idle = prepares = holds = False
        proven = covered = True
        for _, use in uses:
            if use.verdict == "in_use":
                busy = True
                continue
            idle = idle or use.verdict == "idle"
            proven = proven and use.verdict == "idle" and not use.partly_seen
            covered = covered and _covered(use, policy)
            prepares = prepares or use.use_class == "idle-preparing"
            holds = holds or _holds_memory(use)
        if busy or not idle:
            return "partly" if busy and idle else "busy" if busy else "unknown"
        if not proven or (key in held and not held[key] <= _parts(uses)):
            return "unproven"
        if not covered:
            return "thin"
        if prepares and not policy.include_preparing:
            return "preparing"
        return "held" if holds and not policy.include_held else "idle"


LEFT_ALONE: Mapping[Finding, Brake] = {  # workloads with an idle share, and why they are left alone
    "held": "holds_memory",
    "preparing": "preparing",
    "partly": "gpu_in_use",
    "thin": "low_coverage",
    "unproven": "gpu_unknown",
}
WITH_IDLE: frozenset[Finding] = frozenset({"idle", *LEFT_ALONE})  # each has a case
NOT_IDLE: frozenset[Finding] = frozenset({"busy", "partly", "held", "preparing"})


def findings(analysis: Analysis, keys: Iterable[str], held: Held, policy: Policy) -> dict[str, Finding]:
    """What an analysis found of these workloads, as far as they are in it."""
    present = HoldingWorkloads(analysis.gpus)
    held = present.held(held)
    return {key: present.finding(key, policy, held=held) for key in keys if key in present}


def workload_id(use: TenantUse) -> str:
    """The pod's UID; without one, a name that cannot be a UID."""
    tenant = use.tenant
    if tenant.pod_uid:
        return tenant.pod_uid
    return f"name-{sha256(f'{tenant.namespace}/{tenant.pod}'.encode()).hexdigest()[:32]}"


def vanished(gpu_ids: Iterable[DeviceUUID], gpus: Mapping[DeviceUUID, GpuUse]) -> bool:
    """Whether fresh data show all these GPUs, none of them with the workload that the caller missed.

    A GPU that no longer reports proves nothing.
    """
    seen = [gpus.get(gpu_id) for gpu_id in gpu_ids]
    return bool(seen) and all(gpu is not None and _reports(gpu) for gpu in seen)


def _reports(gpu: GpuUse) -> bool:
    return gpu.last_seen is None and gpu.absent_since is None and not gpu.unreported


def _part(gpu: GpuUse) -> str:
    return f"{gpu.gpu_id}/{gpu.mig}" if gpu.mig else gpu.gpu_id


def _parts(uses: _Uses) -> frozenset[str]:
    return frozenset([_part(gpu) for gpu, _ in uses])


def _holds_memory(use: TenantUse) -> bool:
    """A tenant that prepares data may hold memory, too; its class does not say so."""
    return use.use_class == "idle-held" or _HELD in use.evidence.reasons


_HELD = "VERDICT_IDLE_MEMORY_HELD"


def _covered(use: TenantUse, policy: Policy) -> bool:
    coverage = use.evidence.coverage
    return coverage is not None and coverage >= policy.min_coverage


def _workload(uses: _Uses) -> Workload:
    tenant, owner = uses[0][1].tenant, ""
    for _, use in uses:
        owner = owner or use.owner
    return Workload(
        uid=tenant.pod_uid,
        namespace=tenant.namespace,
        pod=tenant.pod,
        owner=owner,
        shares=tuple([_share(gpu, use) for gpu, use in uses]),
    )


def _share(gpu: GpuUse, use: TenantUse) -> Share:
    """On a shared GPU the score is the tenant's own. A GPU that one pod has alone has the GPU's score."""
    judged: GpuUse | TenantUse = use if _is_shared(gpu, use) else gpu
    return Share(
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
        jobs=gpu.jobs,
    )


def _is_shared(gpu: GpuUse, use: TenantUse) -> bool:
    """Whether another workload has a part of the GPU; the containers of one pod are one workload."""
    mine = workload_id(use)
    for one in gpu.tenants:  # noqa: SIM110 - `any` takes twice as long, and a fleet has 100,000 tenants
        if one is not use and workload_id(one) != mine:
            return True
    return False
