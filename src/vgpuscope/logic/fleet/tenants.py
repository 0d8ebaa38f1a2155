"""The verdict on each tenant of a GPU: by its own numbers, or by the GPU's if it is the only tenant."""

from collections.abc import Iterable
from typing import TypeAlias

from msgspec.structs import replace

from vgpuscope.logic.fleet.scoring import believable, share, status, tenant_score
from vgpuscope.logic.fleet.sightings import NEW, OF_GPUS, AnalysisContext, JudgedGpu, Key, Tenancy
from vgpuscope.logic.fleet.verdict import CpuUse, cpu_use, highest, holds_memory, idle_class, judge, measured
from vgpuscope.model.analysis import SIGNALS, Evidence, Score, Stat, Tenant, TenantUse, Term, UseClass, Verdict
from vgpuscope.model.quantity import Bytes, Ratio

Concluded: TypeAlias = tuple[Verdict, UseClass, Evidence]


def tenant_uses(case: JudgedGpu, gpu: Concluded, found: Score, context: AnalysisContext) -> tuple[TenantUse, ...]:
    """The current tenants of the GPU. `gpu` is the conclusion about the GPU, `found` its score."""
    tenancies = case.tenancies
    if len(tenancies) == 1 and not _tells(tenancies[0]):
        lone = Score(value=found.value, confidence=found.confidence)  # the GPU has the terms
        return (_tenant(tenancies[0], _by_gpu(tenancies[0], case, gpu, context), lone, case, context),)
    if gpu[2].reasons[0] in {"VERDICT_GPU_LOST", "VERDICT_TARGETS_DISAGREE"}:
        return tuple([_tenant(tenancy, gpu, _NO_SCORE, case, context) for tenancy in tenancies])
    doubtful = _unexplained(case, gpu, context)
    uses: list[TenantUse] = []
    for tenancy in tenancies:
        own = _own_score(tenancy, case, context)
        if not _tells(tenancy):
            concluded = _by_gpu(tenancy, case, gpu, context)
        else:
            concluded = _own(tenancy, own, case, context)
            if concluded[0] == "idle" and (doubtful or _may_do_video(tenancy, case, context)):
                concluded = unknown(concluded[2], "VERDICT_UNEXPLAINED_WORK")
            elif len(tenancies) == 1 and not case.span:
                concluded = _as_its_gpu(concluded, gpu)
        uses.append(_tenant(tenancy, concluded, own, case, context))
    return tuple(uses)


def former_use(tenancy: Tenancy, context: AnalysisContext) -> TenantUse:
    """A tenant that had the GPU earlier in the window."""
    track = tenancy.track
    return TenantUse(
        tenant=tenancy.tenant,
        own=track.own,
        terms=track.terms,  # of the tenant's own time, so even the whole GPU's terms describe it
        since=tenancy.since,
        until=track.last,
        evidence=Evidence(
            reasons=("VERDICT_ENDED",),
            window_begin=context.window.begin,
            window_end=context.window.end,
            freshness=None if track.last is None else context.window.end - track.last,
            source=context.source,
            schema=track.schema,
        ),
        owner=context.owner(tenancy.tenant),
    )


def unknown(evidence: Evidence, reason: str) -> Concluded:
    """The verdict unknown, for this reason."""
    kept = tuple(code for code in evidence.reasons if code in _KEPT)
    return "unknown", "unknown", replace(evidence, reasons=(reason, *kept), steady_for=1)


_KEPT = frozenset({"VERDICT_PARTIAL_READING", "VERDICT_SAMPLES_DROPPED"})


def not_started(tenancy: Tenancy) -> bool:
    """Whether our agent reports this state; little memory in use does not prove it."""
    return tenancy.track.own and tenancy.track.state == "not-started"


def own_cpu(tenancy: Tenancy) -> CpuUse:
    """The CPU cores that the tenant used, if a source reports them."""
    return cpu_use(tenancy.track.terms) if tenancy.track.own else _NO_CPU


def busiest_cpu(tenancies: Iterable[Tenancy]) -> CpuUse:
    """The CPU cores of the tenant that used most."""
    return max(map(own_cpu, tenancies), key=lambda cpu: cpu.most, default=_NO_CPU)


_NO_CPU = CpuUse()


def key_of(gpu_id: str, mig: str, tenant: Tenant) -> Key:
    return (gpu_id, mig, tenant.namespace, tenant.pod, tenant.pod_uid, tenant.container)


def _tenant(
    tenancy: Tenancy, concluded: Concluded, found: Score, case: JudgedGpu, context: AnalysisContext
) -> TenantUse:
    if not_started(tenancy) and concluded[0] != "in_use" and concluded[2].reasons[0] != "VERDICT_GPU_LOST":
        concluded = "unknown", "not-started", unknown(concluded[2], "VERDICT_NOT_STARTED")[2]
    verdict, use_class, evidence = concluded
    track, idle_since = tenancy.track, None
    if verdict == "idle":
        past = context.previous.get(key_of(case.base.gpu_id, case.base.mig, tenancy.tenant), NEW)
        idle_since = context.idle_since(past, tenancy.since)
    return TenantUse(
        tenant=tenancy.tenant,
        own=track.own,
        terms=track.terms if track.own else _NO_TERMS,
        score=found,
        status=believable(status(found.value, context.thresholds), verdict),
        memory_limit=_limit(tenancy, case) if track.own else None,
        since=tenancy.since,
        idle_since=idle_since,
        verdict=verdict,
        use_class=use_class,
        evidence=evidence,
        owner=context.owner(tenancy.tenant),
    )


_NO_TERMS: dict[Term, Stat] = {}


def _limit(tenancy: Tenancy, case: JudgedGpu) -> Bytes | None:
    """The tenant's memory limit. The memory of the whole GPU is not a limit; that of a MIG instance is."""
    may, total = tenancy.track.terms.get("mem_total"), case.base.terms.get("mem_total")
    if may is None or may.mean is None:
        return None
    whole = None if total is None or case.base.mig else total.mean
    return None if whole is not None and abs(may.mean - whole) <= _ROUNDING * whole else round(may.mean)


_ROUNDING = 0.001


# ── by the tenant's own numbers ──────────────────────────────────────────────────────────────────────────────────


def _tells(tenancy: Tenancy) -> bool:
    """Whether a tenant's own numbers show how much it works."""
    track = tenancy.track
    if not track.own:
        return False
    stats = [track.terms[name] for name in SIGNALS if name in track.terms]
    return any(measured(value) is not None for stat in stats for value in (stat.mean, stat.max))


def _own_score(tenancy: Tenancy, case: JudgedGpu, context: AnalysisContext) -> Score:
    track = tenancy.track
    if not track.own:
        return _NO_SCORE
    return tenant_score(
        track.terms,
        total=case.base.terms.get("mem_total"),
        weights=context.weights,
        default_memory=context.default_memory,
        expected=context.pace(track).expected,
    )


_NO_SCORE = Score(value=None)


def _own(tenancy: Tenancy, found: Score, case: JudgedGpu, context: AnalysisContext) -> Concluded:
    """The verdict by the tenant's own numbers. Its power is not compared with the limit, which is the whole GPU's."""
    track = tenancy.track
    past = context.previous.get(key_of(case.base.gpu_id, case.base.mig, tenancy.tenant), NEW)
    cpu = own_cpu(tenancy)
    return judge(
        {name: stat for name, stat in track.terms.items() if name not in OF_GPUS},
        window=context.pace(track).window,
        first=track.first,
        last=track.last,
        previous=past.verdict,
        rules=context.rules,
        status=status(found.value, context.thresholds),
        schema=track.schema,
        source=context.source,
        partial=context.partial,
        failed=context.failed((track.schema,), own=True),
        beside=tenancy.most,
        held_since=tenancy.since,
        handed_over=tenancy.since if context.later(tenancy.since, case.seen_since) else None,
        steady=past.steady,
        cpu=cpu.mean,
        cpu_max=cpu.max,
    )


def _as_its_gpu(concluded: Concluded, gpu: Concluded) -> Concluded:
    """Unproductive work shows only in the GPU's numbers; it is assigned to the GPU's only tenant."""
    verdict, _, evidence = concluded
    code = _FRUITLESS.get(gpu[1])
    if code is None or verdict != "in_use":
        return concluded
    seen = gpu[2]
    reasons = (*(reason for reason in evidence.reasons if reason != "VERDICT_LOW_SCORE"), code)
    its = replace(evidence, reasons=reasons, power_share=seen.power_share, power_limit=seen.power_limit)
    return verdict, gpu[1], its


_FRUITLESS: dict[UseClass, str] = {"stalled": "VERDICT_STALLED", "busy-unproductive": "VERDICT_FEW_SMS"}


def _unexplained(case: JudgedGpu, gpu: Concluded, context: AnalysisContext) -> bool:
    """Whether the GPU works, or draws power as if it did, and its tenants' own numbers do not show who works.

    On some GPUs the driver reports 0 for every process. A process of no known container is missing from all tenants'
    numbers. In these cases a tenant's own numbers do not prove that it is idle.
    """
    evidence, rules = gpu[2], context.rules
    seen = max(evidence.signal_max or 0.0, evidence.other_max or 0.0)
    if gpu[0] != "in_use" and seen < rules.idle_enter:
        hot = evidence.power_share is not None and evidence.power_share > rules.power_contradiction
        return hot or evidence.reasons[0] in _DOUBTS
    everybody = (*case.tenancies, *case.gone)
    if not any(tenancy.most >= rules.idle_enter for tenancy in everybody):
        return True
    works = share(case.base.terms.get("gpu_util"))
    if works is None or case.base.mig:
        return False
    return works - _explained(everybody, context) > max(rules.idle_leave, works / 2)


_DOUBTS = frozenset({"VERDICT_NO_MAX", "VERDICT_PARTIAL_READING", "VERDICT_PCIE_TRAFFIC"})


def _explained(tenancies: Iterable[Tenancy], context: AnalysisContext) -> Ratio:
    """The part of the window in which the tenants' own processes worked."""
    found = 0.0
    for tenancy in tenancies:
        stat = tenancy.track.terms.get("process_sm") if tenancy.track.own else None
        mean = share(stat)
        if stat is not None and mean is not None:
            found += mean * min(1.0, stat.samples / context.pace(tenancy.track).expected)
    return found


def _may_do_video(tenancy: Tenancy, case: JudgedGpu, context: AnalysisContext) -> bool:
    """Whether the GPU may encode or decode video, and this tenant's own numbers do not exclude that it does."""
    terms, unread = case.base.terms, context.failed(case.schemas, own=False)
    for name in _VIDEO:
        seen = highest(terms[name]) >= context.rules.idle_enter if name in terms else name in unread
        if seen and name not in tenancy.track.terms:
            return True
    return False


_VIDEO: tuple[Term, ...] = ("encoder", "decoder", "jpeg", "ofa")


# ── by the GPU's numbers ────────────────────────────────────────────────────────────────────────────────────────


def _by_gpu(tenancy: Tenancy, case: JudgedGpu, gpu: Concluded, context: AnalysisContext) -> Concluded:
    """The verdict by the whole GPU's numbers. It applies to an only tenant; to several tenants only if it is idle."""
    verdict, _, evidence = gpu
    if verdict == "unknown":
        return gpu
    window = context.window
    since = tenancy.since if context.later(tenancy.since, case.seen_since) else None
    if since is not None and window.end - since < context.rules.min_coverage * window.seconds:
        return unknown(replace(evidence, held_since=since), "VERDICT_HANDOVER_YOUNG")
    if len(case.tenancies) == 1:
        return gpu
    if verdict == "in_use":
        return unknown(evidence, "VERDICT_SHARED_CARD")
    return _its_idle_class(tenancy, evidence, context)


def _its_idle_class(tenancy: Tenancy, evidence: Evidence, context: AnalysisContext) -> Concluded:
    """One of several tenants of an idle GPU: whether it holds memory or prepares data is its own."""
    holds = _HELD in evidence.reasons and tenancy.track.own and holds_memory(tenancy.track.terms, context.rules)
    cpu = own_cpu(tenancy)
    its = idle_class(cpu, holds=holds, rules=context.rules)
    deciding, *others = [code for code in evidence.reasons if code not in (_HELD, _CPU_BUSY)]
    own = ((_CPU_BUSY,) if its == "idle-preparing" else ()) + ((_HELD,) if holds else ())
    return "idle", its, replace(evidence, reasons=(deciding, *own, *others), cpu=cpu.mean, cpu_max=cpu.max)


_HELD, _CPU_BUSY = "VERDICT_IDLE_MEMORY_HELD", "VERDICT_IDLE_CPU_BUSY"
