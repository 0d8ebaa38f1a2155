"""Tracks → GPUs: each physical GPU or MIG instance once, with its tenants, score and verdict.

What a former tenant did with a GPU says nothing about the current tenant.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from vgpuscope.logic.fleet.scoring import (
    DEFAULT_POWER,
    WORK,
    WORK_OF_INSTANCE,
    ScoreWeights,
    Thresholds,
    believable,
    measured_value,
    score,
    status,
)
from vgpuscope.logic.fleet.sightings import (
    NEW,
    OF_GPUS,
    UNUSABLE,
    AnalysisContext,
    JudgedGpu,
    Key,
    PreviousVerdict,
    Tenancy,
    case_of,
    units_of,
)
from vgpuscope.logic.fleet.tenants import Concluded, busiest_cpu, former_use, key_of, not_started, tenant_uses, unknown
from vgpuscope.logic.fleet.verdict import VerdictRules, highest, judge
from vgpuscope.model.analysis import GpuUse, Reading, Score, Stat, Tenant, TenantUse, Term, Track
from vgpuscope.model.quantity import Bytes, DeviceUUID, UnixTime, Watts


def assemble(
    reading: Reading,
    *,
    previous: Mapping[Key, PreviousVerdict],
    weights: ScoreWeights,
    thresholds: Thresholds,
    rules: VerdictRules,
    owners: Mapping[tuple[str, str], str],
    default_power: Watts = DEFAULT_POWER,
    default_memory: Bytes | None = None,
) -> tuple[GpuUse, ...]:
    """All GPUs and MIG instances that the reading shows to be there now, ordered by node and index."""
    context = AnalysisContext(
        source=reading.source,
        window=reading.window,
        previous=previous,
        weights=weights,
        thresholds=thresholds,
        rules=rules,
        owners=owners,
        default_power=default_power,
        default_memory=default_memory,
        partial=reading.partial,
        faults=tuple(fault for fault in reading.faults if fault.terms),
    )
    gpus: dict[DeviceUUID, list[Track]] = {}
    for track in reading.tracks:
        gpus.setdefault(track.gpu_id, []).append(track)
    units = [unit for tracks in gpus.values() for unit in units_of(tracks, context)]
    found: list[GpuUse] = []
    for at in range(0, len(units), _BLOCK):
        found += conclude_all(units[at : at + _BLOCK], context)
    return tuple(sorted(found, key=_order))


def gpu_key(use: GpuUse) -> Key:
    """The key of a GPU or MIG instance, by which one analysis remembers it for the next."""
    return (use.gpu_id, use.mig)


def tenant_key(use: GpuUse, tenant: Tenant) -> Key:
    """The key of a tenant on a GPU; a pod of the same name that replaced it has another key."""
    return key_of(use.gpu_id, use.mig, tenant)


def remembered(uses: Iterable[GpuUse], *, before: Mapping[Key, PreviousVerdict] = {}) -> dict[Key, PreviousVerdict]:
    """The `previous` argument of the next analysis; `before` is the one that this analysis had."""
    previous: dict[Key, PreviousVerdict] = {}
    for use in uses:
        key = gpu_key(use)
        previous[key] = _past(use, before.get(key, NEW))
        for one in use.tenants:
            key = tenant_key(use, one.tenant)
            if one.own or one.idle_since is not None or key in before:
                previous[key] = _past(one, before.get(key, NEW))
    return previous


def _past(use: GpuUse | TenantUse, before: PreviousVerdict) -> PreviousVerdict:
    """What to remember of a verdict. An unknown verdict, as after a restart, does not end idle time; work does."""
    seen = use.evidence
    if use.verdict == "unknown" and before.idle_since is not None:
        return PreviousVerdict("unknown", seen.steady_for, before.idle_since, before.until)
    return PreviousVerdict(use.verdict, seen.steady_for, use.idle_since, seen.window_end)


# ── conclusions ──────────────────────────────────────────────────────────────────────────────────────────────────


def conclude(unit: list[Track], context: AnalysisContext) -> GpuUse | None:
    """One GPU or MIG instance, from its tracks to its verdict; None if it is no longer there."""
    case = case_of(unit, context)
    if case is None:
        return None
    found = _score(case, context)
    return _use(case, found, _judged(case, found, context), context)


def conclude_all(units: Iterable[list[Track]], context: AnalysisContext) -> list[GpuUse]:
    """`conclude` for many: each step for all of a block, which takes Python half the time in large fleets."""
    cases = [case for unit in units if (case := case_of(unit, context)) is not None]
    scores = [_score(case, context) for case in cases]
    concluded = [_judged(case, found, context) for case, found in zip(cases, scores, strict=True)]
    return [_use(*all_of_it, context) for all_of_it in zip(cases, scores, concluded, strict=True)]


_BLOCK = 500  # GPUs in one block


def _score(case: JudgedGpu, context: AnalysisContext) -> Score:
    base = case.base
    found = score(
        _of_instance(case.shown) if base.mig else case.shown,
        model=base.model,
        weights=context.weights,
        work=WORK_OF_INSTANCE if base.mig else WORK,
        default_power=context.default_power,
        default_memory=context.default_memory,
        expected=context.pace(base).expected,
    )
    nothing = base.health in UNUSABLE or case.contested  # its earlier work says nothing now
    return replace(found, value=None) if nothing else found


def _judged(case: JudgedGpu, found: Score, context: AnalysisContext) -> Concluded:
    base, tenancies = case.base, case.tenancies
    past = context.previous.get((base.gpu_id, base.mig), NEW)
    cpu = busiest_cpu(tenancies)
    concluded = judge(
        _of_instance(base.terms) if base.mig else base.terms,
        window=context.pace(base).window,
        first=base.first,
        last=base.last,
        previous=past.verdict,
        rules=context.rules,
        status=status(measured_value(found, case.shown), context.thresholds),
        schema=base.schema,
        model=base.model,
        default_power=context.default_power,
        source=context.source,
        partial=context.partial,
        failed=context.failed(case.schemas, own=False),
        origins=case.origins,
        beside=tenancies[0].most if len(tenancies) == 1 else max([tenancy.most for tenancy in tenancies], default=None),
        held_since=tenancies[0].since if len(tenancies) == 1 else _latest([tenancy.since for tenancy in tenancies]),
        handed_over=_handover(base, tenancies, case.seen_since, context) if case.several else None,
        steady=past.steady,
        cpu=cpu.mean,
        cpu_max=cpu.max,
    )
    if base.health in UNUSABLE:
        return unknown(concluded[2], "VERDICT_GPU_LOST")
    if case.contested:
        return unknown(concluded[2], "VERDICT_TARGETS_DISAGREE")
    if base.mig:
        concluded = _of_its_own(concluded)
    if concluded[0] == "idle" and tenancies and all(map(not_started, tenancies)):
        return "unknown", "not-started", unknown(concluded[2], "VERDICT_NOT_STARTED")[2]
    return _with_span(concluded, case) if case.span else concluded


def _of_instance(terms: Mapping[Term, Stat]) -> dict[Term, Stat]:
    """The terms of a MIG instance that can be scored and judged.

    Power is that of the whole GPU, or an estimated part of it. The power limit is that of the whole GPU. Utilisation
    and memory traffic are not defined for instances: a value above 0 shows work, but 0 only means that the exporter
    wrote 0.
    """
    return {
        name: stat
        for name, stat in terms.items()
        if name not in OF_GPUS and (name not in _ONLY_ABOVE_ZERO or highest(stat) > 0)
    }


_ONLY_ABOVE_ZERO: frozenset[Term] = frozenset({"gpu_util", "mem_copy"})


def _of_its_own(concluded: Concluded) -> Concluded:
    """An instance is never judged idle by its utilisation alone; the reason code names what is missing."""
    verdict, _, evidence = concluded
    blind = evidence.signal in {None, "gpu_util"}
    if blind and (verdict == "idle" or evidence.reasons[0] == "VERDICT_NO_SIGNAL"):
        return unknown(evidence, "VERDICT_MIG_NO_SIGNAL")
    return concluded


def _with_span(concluded: Concluded, case: JudgedGpu) -> Concluded:
    """The same conclusion, with a reason code: the numbers of the GPU and of its tenants cover different times."""
    verdict, use_class, evidence = concluded
    came = _latest([tenancy.track.first for tenancy in case.tenancies])
    return verdict, use_class, replace(evidence, reasons=(*evidence.reasons, case.span), held_since=came)


def _use(case: JudgedGpu, found: Score, concluded: Concluded, context: AnalysisContext) -> GpuUse:
    base, (verdict, use_class, evidence) = case.base, concluded
    past = context.previous.get((base.gpu_id, base.mig), NEW) if verdict == "idle" else NEW
    return GpuUse(
        gpu_id=base.gpu_id,
        mig=base.mig,
        profile=base.profile,
        gpu_instance=base.gpu_instance,
        gpu_index=base.gpu_index,
        hostname=base.hostname,
        model=base.model,
        terms=case.shown,
        score=found,
        status=believable(status(found.value, context.thresholds), verdict),
        verdict=verdict,
        use_class=use_class,
        evidence=evidence,
        tenants=tenant_uses(case, concluded, found, context) if case.tenancies else (),
        former=tuple(former_use(tenancy, context) for tenancy in case.gone) if case.gone else (),
        idle_since=context.idle_since(past, context.since(base)) if verdict == "idle" else None,
        target=base.target,
        jobs=case.jobs,
        health=base.health,
        xids=base.xids,
    )


def _handover(
    base: Track, tenancies: Iterable[Tenancy], seen_since: UnixTime | None, context: AnalysisContext
) -> UnixTime | None:
    """When the GPU last changed tenants, if the GPU was seen before that."""
    began = (base.first, *(tenancy.since for tenancy in tenancies))
    return _latest([at for at in began if context.later(at, seen_since)])


def _latest(times: Iterable[UnixTime | None]) -> UnixTime | None:
    return max((at for at in times if at is not None), default=None)


def _order(use: GpuUse) -> tuple[str, bool, int, str, str, str]:
    index = use.gpu_index
    number = int(index) if index.isascii() and index.isdigit() and len(index) < 10 else -1
    return (use.hostname, number < 0, number, index, use.gpu_id, use.mig)
