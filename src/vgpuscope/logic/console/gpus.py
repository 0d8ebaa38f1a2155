"""The analysis, the cluster's ledgers and the agents' facts → a row for each GPU and MIG instance.

The analysis says which GPUs there are and how they are used, the ledgers say what is allocated, and the agents say how
they are now.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from vgpuscope.catalog import agent as m
from vgpuscope.logic.console.moments import iso_or_none, mean, share, short, whole
from vgpuscope.logic.fleet.allocated import UNREPORTED
from vgpuscope.model.analysis import KERNEL_TIME, Analysis, Evidence, GpuUse, Stat, TenantUse, Term
from vgpuscope.model.cluster import DeviceLedger, Holder, NodeLedger
from vgpuscope.model.console.facts import Facts, GpuFacts, TenantFacts, TenantKey
from vgpuscope.model.console.gpus import Allocation, GpuRow, Mode, TenantRow, Use
from vgpuscope.model.quantity import Ratio, Watts

_MODES: dict[str, Mode] = {"hami-core": "hami", "mig": "mig", "mps": "mps", "dra": "dra"}
_KNOWN_MODES: dict[str, Mode] = {
    "exclusive": "exclusive",
    "hami": "hami",
    "mig": "mig",
    "mps": "mps",
    "time-slicing": "time-slicing",
    "unallocated": "unallocated",
    "free": "free",
}
_WHOLE_GPU = 100  # percent of cores
_NO_GPU, _NO_TENANT = GpuFacts(), TenantFacts()


class Ledgers(Struct, frozen=True, kw_only=True):
    """The nodes' ledgers, by what is looked up in them."""

    nodes: Mapping[str, NodeLedger] = {}
    devices: Mapping[str, tuple[str, DeviceLedger]] = {}  # GPU → node and ledger
    holders: Mapping[str, tuple[Holder, ...]] = {}  # by GPU


def ledgers(nodes: Iterable[NodeLedger]) -> Ledgers:
    """The same ledgers, indexed."""
    by_name = {node.name: node for node in nodes}
    held: dict[str, list[Holder]] = {}
    for node in by_name.values():
        for holder in node.holders:
            held.setdefault(holder.device, []).append(holder)
    return Ledgers(
        nodes=by_name,
        devices={one.device.id: (node.name, one) for node in by_name.values() for one in node.devices},
        holders={device: tuple(found) for device, found in held.items()},
    )


def gpu_rows(
    analysis: Analysis | None, *, stale: bool, cluster: Ledgers | None, facts: Facts | None
) -> tuple[GpuRow, ...]:
    """A row for each GPU, in the order of node, index and instance.

    The analysis says which GPUs there are; before the first one, the ledgers do.
    """
    if analysis is not None:
        rows = [gpu_row(gpu, stale=stale, cluster=cluster, facts=facts) for gpu in analysis.gpus]
    else:
        known = cluster or Ledgers()
        rows = [_only_registered(node, one, known) for node, one in known.devices.values()]
    return tuple(sorted(rows, key=_place))


def gpu_row(gpu: GpuUse, *, stale: bool, cluster: Ledgers | None, facts: Facts | None) -> GpuRow:
    """One GPU or MIG instance that the analysis knows."""
    now = _gpu_facts(facts, gpu)
    device = _device(cluster, gpu)
    terms, evidence = gpu.terms, gpu.evidence
    tenants = tuple([tenant_row(use, gpu, stale=stale, cluster=cluster, facts=facts) for use in gpu.tenants])
    return GpuRow(
        gpu_id=gpu.gpu_id,
        mig=gpu.mig or None,
        profile=gpu.profile or None,
        node=gpu.hostname or None,
        index=int(gpu.gpu_index) if gpu.gpu_index.isdecimal() else None,
        model=gpu.model or None,
        mode=_mode(gpu, now, device),
        health=gpu.health or None,
        xids=gpu.xids,
        allocation=None if device is None or gpu.mig else _allocation(device),
        shared=len(gpu.tenants) > 1,
        held=bool(gpu.tenants or (cluster and not gpu.mig and cluster.holders.get(gpu.gpu_id))),
        signal=evidence.signal,
        use=_signal_use(evidence),
        gpu_util=_use(terms, "gpu_util"),
        sm_active=_use(terms, "sm_active"),
        memory_used=whole(mean(terms, "mem_used")),
        memory_max=whole(terms["mem_used"].max) if "mem_used" in terms else None,
        memory_total=device.device.physical if gpu.unreported and device else whole(mean(terms, "mem_total")),
        memory_unattributed=whole(now.ledger.get("unattributed")),
        power=short(mean(terms, "power"), 1),
        power_limit=short(mean(terms, "power_limit"), 1),
        temperature=now.values.get(m.GPU_TEMPERATURE.name),
        score=short(gpu.score.value, 1),
        status="unknown" if stale else gpu.status,
        verdict="unknown" if stale else gpu.verdict,
        use_class="unknown" if stale else gpu.use_class,
        reasons=evidence.reasons,
        confidence=short(gpu.score.confidence, 3) or 0.0,
        coverage=short(evidence.coverage, 3),
        idle_since=None if stale else iso_or_none(gpu.idle_since),
        last_seen=iso_or_none(gpu.last_seen),
        tenants=tenants,
    )


def tenant_row(use: TenantUse, gpu: GpuUse, *, stale: bool, cluster: Ledgers | None, facts: Facts | None) -> TenantRow:
    """One container on a GPU; a tenant that has the GPU alone has all the time in which kernels ran there."""
    tenant, terms = use.tenant, use.terms
    now = _tenant_facts(facts, use, gpu)
    held = _held(cluster, use, gpu)
    alone = len(gpu.tenants) == 1 and use.until is None and use.verdict == gpu.verdict
    score, status = (gpu.score, gpu.status) if alone else (use.score, use.status)
    own_use = _use(terms, "process_sm") if use.own else Use()
    own_power = mean(terms, "power") if use.own else None
    limit = now.values.get(m.VGPU_SM_LIMIT.name)
    kernel = now.values.get(m.VGPU_LAST_KERNEL.name)
    return TenantRow(
        namespace=tenant.namespace,
        pod=tenant.pod,
        pod_uid=tenant.pod_uid or None,
        container=tenant.container or None,
        owner=use.owner or None,
        own_numbers=use.own,
        use=_kernel_time(gpu.terms) if own_use.mean is None and alone else own_use,
        memory_used=_memory(use, gpu, alone=alone, which="mean"),
        memory_max=_memory(use, gpu, alone=alone, which="max"),
        memory_limit=use.memory_limit if use.memory_limit is not None else whole(_limit(now)),
        memory_allocated=sum(one.memory for one in held) if held else None,
        cores_allocated=sum(one.cores for one in held) or None,
        cores_limit=None if limit is None else round(limit * _WHOLE_GPU),
        power=short(mean(gpu.terms, "power") if own_power is None and alone and not gpu.mig else own_power, 1),
        score=short(score.value, 1),
        status="unknown" if stale else status,
        verdict="unknown" if stale else use.verdict,
        use_class="unknown" if stale else use.use_class,
        confidence=short(score.confidence, 3) or 0.0,
        coverage=short(use.evidence.coverage, 3),
        state=now.state,
        last_kernel=iso_or_none(kernel) if kernel else None,
        priority=whole(now.values.get(m.VGPU_PRIORITY.name)),
        blocked=_flag(now.values.get(m.VGPU_BLOCKED.name)),
        allocated=now.allocated,
        since=iso_or_none(use.since),
        window_share=window_share(use, gpu.evidence),
        idle_since=None if stale else iso_or_none(use.idle_since),
    )


def window_share(use: TenantUse, evidence: Evidence) -> Ratio:
    """The part of the window in which a tenant had its GPU; 1 if it came before the window, or that is not known."""
    begin, end = evidence.window_begin, evidence.window_end
    if use.since is None or begin is None or end is None or end <= begin:
        return 1.0
    return round(min(1.0, max(0.0, (end - use.since) / (end - begin))), 4)


def power_of(tenants: Iterable[TenantRow]) -> Watts | None:
    """What tenants draw together, as a mean over the whole window, so that they never draw more than their GPUs."""
    drawn = [one.power * one.window_share for one in tenants if one.power is not None]
    return round(sum(drawn), 1) if drawn else None


def _only_registered(node: str, one: DeviceLedger, cluster: Ledgers) -> GpuRow:
    """A GPU that the scheduler knows and no exporter reports."""
    device = one.device
    holders = cluster.holders.get(device.id, ())
    return GpuRow(
        gpu_id=device.id,
        node=node,
        index=device.index,
        model=device.type or None,
        mode=_MODES.get(device.mode),
        health=None if device.healthy else "unhealthy",
        allocation=_allocation(one),
        shared=len({(holder.pod_uid, holder.container_index) for holder in holders}) > 1,
        held=bool(holders),
        memory_total=device.physical,
        reasons=(UNREPORTED,),
        tenants=tuple([_holder_as_tenant(holder) for holder in holders]),
    )


def _holder_as_tenant(holder: Holder) -> TenantRow:
    return TenantRow(
        namespace=holder.namespace,
        pod=holder.pod,
        pod_uid=holder.pod_uid or None,
        container=holder.container or None,
        memory_allocated=holder.memory,
        cores_allocated=holder.cores or None,
        allocated=True,
    )


def _allocation(one: DeviceLedger) -> Allocation:
    device = one.device
    return Allocation(
        memory=one.memory_allocated,
        memory_capacity=device.memory,
        memory_ratio=share(one.memory_allocated, device.memory),
        cores=one.cores_allocated,
        cores_capacity=device.cores,
        cores_ratio=share(one.cores_allocated, device.cores),
        slots=one.shared,
        slots_capacity=device.slots,
        lost=one.lost,
    )


def _mode(gpu: GpuUse, now: GpuFacts, device: DeviceLedger | None) -> Mode | None:
    """How the GPU is shared: by its agent, else by the scheduler's register; agents do not know DRA."""
    if gpu.mig:
        return "mig"
    registered = None if device is None else _MODES.get(device.device.mode)
    if registered == "dra" or now.mode is None:
        return registered
    return _KNOWN_MODES.get(now.mode)


def _device(cluster: Ledgers | None, gpu: GpuUse) -> DeviceLedger | None:
    found = cluster.devices.get(gpu.gpu_id) if cluster else None
    return found[1] if found else None


def _gpu_facts(facts: Facts | None, gpu: GpuUse) -> GpuFacts:
    if facts is None:
        return _NO_GPU
    return facts.gpus.get((gpu.gpu_id, gpu.mig)) or facts.gpus.get((gpu.gpu_id, "")) or _NO_GPU


def _tenant_facts(facts: Facts | None, use: TenantUse, gpu: GpuUse) -> TenantFacts:
    """What the agent shows of a container: its row of the ledger, and HAMi's region, which knows no MIG instance."""
    if facts is None:
        return _NO_TENANT
    who = use.tenant
    key = TenantKey(gpu.gpu_id, gpu.mig, who.namespace, who.pod, who.container)
    found = facts.tenants.get(key)
    region = facts.tenants.get(key._replace(mig="")) if gpu.mig else found
    if found is None or region is None or found is region:
        return found or region or _NO_TENANT
    return TenantFacts(
        values=region.values | found.values, state=found.state, mode=found.mode, allocated=found.allocated
    )


def _held(cluster: Ledgers | None, use: TenantUse, gpu: GpuUse) -> list[Holder]:
    """The scheduler's allocations of this GPU to this container; of the pod, if the container is not known."""
    if cluster is None:
        return []
    who = use.tenant
    pods = [one for one in cluster.holders.get(gpu.gpu_id, ()) if (one.namespace, one.pod) == (who.namespace, who.pod)]
    return [one for one in pods if one.container == who.container] if who.container else pods


def _limit(now: TenantFacts) -> float | None:
    return now.values.get(m.VGPU_MEMORY_LIMIT.name, now.values.get(m.CONTAINER_MEMORY_TOTAL.name))


def _memory(use: TenantUse, gpu: GpuUse, *, alone: bool, which: str) -> int | None:
    terms = use.terms if use.own else gpu.terms if alone else {}
    stat = terms.get("mem_used")
    return None if stat is None else whole(getattr(stat, which))


def _use(terms: dict[Term, Stat], term: Term) -> Use:
    stat = terms.get(term)
    return Use() if stat is None else Use(mean=short(stat.mean), p95=short(stat.p95), max=short(stat.max))


def _kernel_time(terms: dict[Term, Stat]) -> Use:
    """The time in which kernels ran on a GPU; on a MIG instance, for which no driver reports it, its engines' time."""
    found = (_use(terms, term) for term in KERNEL_TIME)
    return next((use for use in found if use.mean is not None), Use())


def _signal_use(evidence: Evidence) -> Use:
    return Use(mean=short(evidence.signal_mean), p95=short(evidence.signal_p95), max=short(evidence.signal_max))


def _flag(value: float | None) -> bool | None:
    return None if value is None else value == 1


def _place(row: GpuRow) -> tuple[object, ...]:
    return row.node or "", row.index is None, row.index or 0, row.gpu_id, row.mig or ""
