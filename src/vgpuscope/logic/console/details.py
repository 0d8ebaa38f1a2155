"""Everything that is known of one GPU, and of one tenant."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from vgpuscope.catalog import agent as m
from vgpuscope.formats.prom import promql
from vgpuscope.knowledge.xid import ADVICE, advice
from vgpuscope.logic.console.gpus import Ledgers, tenant_row
from vgpuscope.logic.console.moments import short, whole
from vgpuscope.logic.console.opinions import opinion_on
from vgpuscope.logic.console.overview import gpu_class
from vgpuscope.model.allocation import HeldInstance
from vgpuscope.model.analysis import Evidence, GpuUse, TenantUse
from vgpuscope.model.console.facts import Facts, GpuFacts, TenantFacts, TenantKey
from vgpuscope.model.console.gpus import (
    GpuRow,
    Hardware,
    HolderRow,
    InstanceRow,
    LedgerKind,
    LedgerRow,
    MemoryLedger,
    Query,
    TenantDetail,
    XidRow,
)
from vgpuscope.model.opinion import NO_OPINIONS, OpinionsShown, PartId

Sentences = Callable[[Evidence], tuple[str, ...]]
_LEFT: tuple[LedgerKind, ...] = ("system", "unattributed", "free")  # rows of the ledger besides containers
_IDLE = "idle"  # a throttle reason that is not a fault


def tenant_detail(
    use: TenantUse,
    gpu: GpuUse,
    *,
    stale: bool,
    cluster: Ledgers | None,
    facts: Facts | None,
    say: Sentences,
    opinions: OpinionsShown = NO_OPINIONS,
) -> TenantDetail:
    """One tenant, with the evidence for its verdict."""
    return TenantDetail(
        tenant=tenant_row(use, gpu, stale=stale, cluster=cluster, facts=facts),
        terms=use.terms,
        score_terms=use.score.terms,
        evidence=use.evidence,
        why=say(use.evidence),
        opinion=opinion_on(opinions, _part(gpu, use)) if use.until is None else None,
    )


def _part(gpu: GpuUse, use: TenantUse) -> PartId:
    tenant = use.tenant
    return PartId(gpu.gpu_id, gpu.mig, tenant.namespace, tenant.pod, tenant.container)


def holders(cluster: Ledgers | None, gpu_id: str) -> tuple[HolderRow, ...]:
    """The containers that hold the GPU, by the scheduler."""
    return tuple(
        HolderRow(
            namespace=one.namespace,
            pod=one.pod,
            pod_uid=one.pod_uid,
            container=one.container or None,
            init=one.init,
            memory=one.memory,
            cores=one.cores or None,
        )
        for one in (cluster.holders.get(gpu_id, ()) if cluster else ())
    )


def memory_ledger(facts: Facts | None, gpu_id: str, mig: str = "") -> MemoryLedger | None:
    """How the memory is divided: the agent's rows of containers, and what belongs to none of them."""
    found = facts.gpus.get((gpu_id, mig)) if facts else None
    if facts is None or found is None or "free" not in found.ledger:
        return None
    rows = [*_container_rows(facts, gpu_id, mig), *_other_rows(found)]
    return MemoryLedger(total=round(sum(found.ledger.values())), rows=tuple(rows))


def _container_rows(facts: Facts, gpu_id: str, mig: str) -> list[LedgerRow]:
    rows = [
        _container_row(key, tenant)
        for key, tenant in facts.tenants.items()
        if key.gpu_id == gpu_id and mig in ("", key.mig) and m.CONTAINER_MEMORY_USED.name in tenant.values
    ]
    return sorted(rows, key=lambda row: (-row.memory, row.namespace or "", row.pod or "", row.container or ""))


def _container_row(key: TenantKey, tenant: TenantFacts) -> LedgerRow:
    return LedgerRow(
        kind="container",
        memory=round(tenant.values[m.CONTAINER_MEMORY_USED.name]),
        namespace=key.namespace or None,
        pod=key.pod or None,
        container=key.container or None,
        memory_limit=whole(tenant.values.get(m.CONTAINER_MEMORY_TOTAL.name)),
        allocated=tenant.allocated,
    )


def _other_rows(found: GpuFacts) -> Iterator[LedgerRow]:
    for kind in _LEFT:
        yield LedgerRow(kind=kind, memory=round(found.ledger.get(kind, 0.0)))


def scoped_ledger(ledger: MemoryLedger | None, namespaces: frozenset[str] | None) -> MemoryLedger | None:
    """The ledger without the names of other namespaces: their containers are one row."""
    if ledger is None or namespaces is None:
        return ledger
    foreign = [row for row in ledger.rows if row.kind == "container" and row.namespace not in namespaces]
    rows = [row for row in ledger.rows if row not in foreign]
    if foreign:
        rows.append(LedgerRow(kind="container", memory=sum(row.memory for row in foreign)))
    return MemoryLedger(total=ledger.total, rows=tuple(rows))


def hardware(facts: Facts | None, gpu_id: str) -> Hardware | None:
    """What the driver says of the GPU now; None: no agent reports it."""
    found = facts.gpus.get((gpu_id, "")) if facts else None
    if found is None:
        return None
    value, info = found.values.get, found.info.get
    return Hardware(
        serial=info("serial") or None,
        pci_bus_id=info("pci_bus_id") or None,
        driver_version=info("driver_version") or None,
        memory_temperature=value(m.GPU_MEMORY_TEMPERATURE.name),
        sm_clock=value(m.GPU_SM_CLOCK.name),
        sm_clock_limit=value(m.GPU_SM_CLOCK_LIMIT.name),
        memory_clock=value(m.GPU_MEMORY_CLOCK.name),
        memory_clock_limit=value(m.GPU_MEMORY_CLOCK_LIMIT.name),
        fan=value(m.GPU_FAN.name),
        encoder=short(value(m.GPU_ENCODER.name)),
        decoder=short(value(m.GPU_DECODER.name)),
        throttle=tuple(sorted(reason for reason in found.throttle if reason != _IDLE)),
        ecc_corrected=whole(value(m.GPU_ECC_CORRECTED.name)),
        ecc_uncorrected=whole(value(m.GPU_ECC_UNCORRECTED.name)),
        remapped_corrected=whole(value(m.GPU_REMAPPED_CORRECTED.name)),
        remapped_uncorrected=whole(value(m.GPU_REMAPPED_UNCORRECTED.name)),
        remap_pending=_flag(value(m.GPU_REMAP_PENDING.name)),
        remap_failed=_flag(value(m.GPU_REMAP_FAILED.name)),
        processes=whole(value(m.GPU_PROCESSES.name)),
    )


def xids(facts: Facts | None, gpu_id: str, seen: Iterable[int]) -> tuple[XidRow, ...]:
    """The XIDs that the agent counted, and those of the window, with NVIDIA's advice."""
    found = facts.gpus.get((gpu_id, "")) if facts else None
    counts = {**dict.fromkeys(seen, None), **(found.xids if found else {})}
    return tuple(_xid(xid, counts[xid]) for xid in sorted(counts))


def _xid(xid: int, count: int | None) -> XidRow:
    known = advice(xid)
    return XidRow(
        xid=xid,
        count=count,
        name=known.name or None,
        action=known.action,
        advice=ADVICE[known.action],
        fatal=known.fatal,
    )


def instances(
    rows: Sequence[GpuRow], cluster: Ledgers | None, facts: Facts | None, gpu_id: str
) -> tuple[InstanceRow, ...]:
    """The MIG layout of one GPU: its instances by the analysis and its agent, and where the scheduler placed them."""
    device = cluster.devices.get(gpu_id) if cluster else None
    placed = {one.instance.mig: one.instance for one in device[1].instances} if device else {}
    shown = {row.mig: row for row in rows if row.mig}
    reported = {mig: found for (gpu, mig), found in facts.gpus.items() if gpu == gpu_id and mig} if facts else {}
    made = [
        _instance(mig, shown.get(mig), reported.get(mig), placed.get(mig))
        for mig in sorted({*shown, *reported, *(mig for mig in placed if mig)})
    ]
    return tuple(sorted(made, key=lambda one: (one.start is None, one.start or 0, one.gpu_instance or 0)))


def _instance(mig: str, row: GpuRow | None, found: GpuFacts | None, placed: HeldInstance | None) -> InstanceRow:
    info, values = (found.info, found.values) if found else ({}, {})
    tenant = row.tenants[0] if row and row.tenants else None
    return InstanceRow(
        mig=mig,
        profile=(row.profile if row else None) or info.get("profile") or (placed.profile if placed else None),
        gpu_instance=_number(info.get("gpu_instance")),
        compute_instance=_number(info.get("compute_instance")),
        start=placed.start if placed else None,
        size=placed.size if placed else None,
        memory_used=row.memory_used if row else whole(values.get(m.MIG_MEMORY_USED.name)),
        memory_total=row.memory_total if row else whole(values.get(m.MIG_MEMORY_TOTAL.name)),
        use_class=gpu_class(row) if row else None,
        namespace=tenant.namespace if tenant else None,
        pod=tenant.pod if tenant else None,
    )


def queries(gpu_id: str, mig: str = "") -> tuple[Query, ...]:
    """The PromQL of the numbers that our agents report of one GPU; of a MIG instance its own, where it has its own."""
    gpu = (promql.Matcher("gpu_uuid", "=", gpu_id),)
    instance = (*gpu, promql.Matcher("mig_uuid", "=", mig))
    shown = [(name, metric) for name, metric in _SHOWN.items() if not mig or name in _OF_GPU_ONLY]
    own = [Query(name=name, promql=promql.selector(one.name, instance)) for name, one in _OF_INSTANCE.items() if mig]
    return (*own, *(Query(name=name, promql=promql.selector(one.name, gpu)) for name, one in shown))


_SHOWN = {
    "gpu_util": m.GPU_UTILIZATION,
    "memory_used": m.GPU_MEMORY_USED,
    "memory_total": m.GPU_MEMORY_TOTAL,
    "power": m.GPU_POWER,
    "power_limit": m.GPU_POWER_LIMIT,
    "temperature": m.GPU_TEMPERATURE,
    "health": m.GPU_HEALTH,
    "xids": m.GPU_XIDS,
    "ledger": m.GPU_MEMORY_LEDGER,
    "tenant_memory_used": m.CONTAINER_MEMORY_USED,
    "tenant_use": m.CONTAINER_SM,
    "memory_limit": m.CONTAINER_MEMORY_TOTAL,
    "last_kernel": m.VGPU_LAST_KERNEL,
}
_OF_INSTANCE = {
    "sm_active": m.MIG_SM_ACTIVE,
    "memory_used": m.MIG_MEMORY_USED,
    "memory_total": m.MIG_MEMORY_TOTAL,
    "ledger": m.MIG_MEMORY_LEDGER,
    "tenant_memory_used": m.CONTAINER_MEMORY_USED,
    "tenant_use": m.CONTAINER_SM,
    "memory_limit": m.CONTAINER_MEMORY_TOTAL,
}
_OF_GPU_ONLY = frozenset({"power", "power_limit", "health", "xids"})  # the driver does not divide them


def _flag(value: float | None) -> bool | None:
    return None if value is None else value == 1


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None
