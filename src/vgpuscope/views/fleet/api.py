"""The detailed resources of the analyzer's API: a summary of the fleet, GPUs with evidence, groups, workloads."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from vgpuscope.model.analysis import (
    Analysis,
    Evidence,
    Fault,
    GpuUse,
    Score,
    Stat,
    Status,
    Target,
    TenantUse,
    Term,
    UseClass,
    Verdict,
)
from vgpuscope.views.fleet.evidence import sentences
from vgpuscope.views.fleet.results import (
    ResultRow,
    Stats,
    TenantResult,
    average,
    by_gpu,
    by_namespace,
    iso,
    tenant_row,
    units,
)

Language = Literal["en", "zh"]


class Summary(Struct, frozen=True, kw_only=True):
    """The fleet in a few figures."""

    timestamp: str | None
    stale: bool
    partial: bool
    source: str
    schemas: tuple[str, ...]
    window_minutes: float | None
    seconds: float | None  # duration of the analysis
    requests: int
    errors_total: int
    faults: tuple[Fault, ...]
    gpus: int  # physical GPUs
    instances: int  # MIG instances among the rows
    rows: int
    nodes: int
    namespaces: int
    shared: int
    stats: Stats
    tenants: int
    stale_since: str | None = None  # null: the results are those of the last analysis
    stale_reason: str | None = None
    targets_up: int | None = None  # scrape targets that answer; null: the source does not know its targets
    targets_down: int | None = None  # targets that should answer and do not
    down_targets: tuple[Target, ...] = ()  # the first of these targets


class Shown(Struct, frozen=True, kw_only=True):
    """Which analysis is shown now."""

    number: int | None  # null: there is no analysis yet
    timestamp: str | None
    gpus: int
    stale: bool


class TenantDetail(Struct, frozen=True, kw_only=True):
    """One tenant of a GPU, with the evidence for its verdict."""

    tenant: TenantResult
    terms: dict[Term, Stat]
    evidence: Evidence
    why: tuple[str, ...]
    score: Score


class GpuDetail(Struct, frozen=True, kw_only=True):
    """One GPU or MIG instance, with the evidence for its verdict; quantities are in base units."""

    gpu_id: str
    mig: str
    profile: str
    gpu_index: str
    hostname: str
    model: str
    status: Status
    verdict: Verdict
    use_class: UseClass
    score: Score
    terms: dict[Term, Stat]
    evidence: Evidence
    why: tuple[str, ...]  # the evidence in sentences
    tenants: tuple[TenantDetail, ...]
    former: tuple[TenantDetail, ...]
    stale: bool
    idle_since: str | None
    last_seen: str | None  # null: the GPU reports
    target: str
    health: str
    xids: tuple[int, ...]


class GroupResult(Struct, frozen=True, kw_only=True):
    """The GPUs of one node or one namespace.

    A shared GPU belongs to the namespace of each of its tenants, and is judged there by the tenants of that namespace
    alone. Fields named tenants_* count tenants, all others count GPUs.
    """

    name: str
    gpus: int
    avg_score: float | None
    in_use: int
    idle: int
    unknown: int
    idle_held: int
    busy_unproductive: int
    models: tuple[str, ...]
    tenants: int
    tenants_in_use: int
    tenants_idle: int
    tenants_unknown: int
    tenants_idle_held: int


class WorkloadRow(Struct, frozen=True, kw_only=True):
    """The GPUs of one owner's pods, judged by these pods alone."""

    namespace: str
    owner: str  # a pod without an owner is its own: Pod/<name>
    pods: int
    gpus: int
    idle_gpus: int
    unknown_gpus: int
    avg_score: float | None  # the same as score
    score: float | None  # mean over the GPUs that it has alone and its tenants on shared GPUs
    tenants: int
    tenants_idle: int
    tenants_unknown: int
    tenants_idle_held: int


def summary(
    analysis: Analysis | None,
    rows: Sequence[ResultRow],
    stats: Stats,
    *,
    stale: bool,
    errors: int,
    stale_since: str | None = None,
    stale_reason: str | None = None,
) -> Summary:
    """The fleet as of the last good analysis."""
    up, down = target_counts(analysis)
    return Summary(
        timestamp=stats.timestamp,
        stale=stale,
        partial=bool(analysis and analysis.faults),
        source=analysis.source if analysis else "",
        schemas=analysis.schemas if analysis else (),
        window_minutes=round(analysis.window.seconds / 60, 2) if analysis else None,
        seconds=round(analysis.seconds, 3) if analysis else None,
        requests=analysis.requests if analysis else 0,
        errors_total=errors,
        faults=analysis.faults if analysis else (),
        gpus=len({row.gpu_id for row in rows}),
        instances=sum(bool(row.mig) for row in rows),
        rows=len(rows),
        nodes=len({row.hostname for row in rows}),
        namespaces=len(stats.by_namespace),
        shared=sum(row.shared for row in rows),
        stats=stats,
        tenants=stats.tenants_total,
        stale_since=stale_since,
        stale_reason=stale_reason,
        targets_up=up,
        targets_down=down,
        down_targets=tuple(target for target in analysis.targets if not target.up)[:_MOST_TARGETS] if analysis else (),
    )


_MOST_TARGETS = 100  # targets that are listed


def target_counts(analysis: Analysis | None) -> tuple[int | None, int | None]:
    """How many scrape targets answer, and how many should but do not; None: the source does not know."""
    if analysis is None or not analysis.targets:
        return None, None
    up = sum(target.up for target in analysis.targets)
    return up, len(analysis.targets) - up


def detail(gpu: GpuUse, *, lang: Language, stale: bool) -> GpuDetail:
    """Everything that is known of one GPU."""
    return GpuDetail(
        gpu_id=gpu.gpu_id,
        mig=gpu.mig,
        profile=gpu.profile,
        gpu_index=gpu.gpu_index,
        hostname=gpu.hostname,
        model=gpu.model,
        status="unknown" if stale else gpu.status,
        verdict="unknown" if stale else gpu.verdict,
        use_class="unknown" if stale else gpu.use_class,
        score=gpu.score,
        terms=gpu.terms,
        evidence=gpu.evidence,
        why=sentences(gpu.evidence, lang),
        tenants=tuple(_tenant(use, gpu, lang, stale=stale) for use in gpu.tenants),
        former=tuple(_tenant(use, gpu, lang, stale=stale) for use in gpu.former),
        stale=stale,
        idle_since=None if stale or gpu.idle_since is None else iso(gpu.idle_since),
        last_seen=None if gpu.last_seen is None else iso(gpu.last_seen),
        target=gpu.target,
        health=gpu.health,
        xids=gpu.xids,
    )


def groups(rows: Iterable[ResultRow], *, by: str) -> list[GroupResult]:
    """The rows by node, or the units by namespace, in order of name."""
    if by == "namespace":
        found = by_namespace(unit for row in rows for unit in units(row))
    else:
        found = {}
        for row in rows:
            found.setdefault(row.hostname, []).append(row)
    return [_group(name, found[name]) for name in sorted(found)]


def workloads(rows: Iterable[ResultRow]) -> list[WorkloadRow]:
    """The tenants by owner, in order of namespace and name."""
    found: dict[tuple[str, str], list[tuple[ResultRow, TenantResult]]] = {}
    for unit in (unit for row in rows for unit in units(row)):
        for tenant in unit.tenants:
            owner = tenant.owner or f"Pod/{tenant.pod}"
            found.setdefault((tenant.namespace, owner), []).append((unit, tenant))
    return [_workload(*names, found[names]) for names in sorted(found)]


def shown_config(config: Any) -> dict[str, Any]:
    """The settings that concern the analyzer, section by section, without secrets."""
    prometheus = config.prometheus
    return {
        "prometheus": {
            "url": prometheus.url or "",
            "query_condition": prometheus.query_condition,
            "time_window_min": whole(prometheus.time_window_min),
            "step": f"{prometheus.step:g}s",
        },
        "scoring": msgspec.to_builtins(config.scoring),
        "thresholds": _section(config.thresholds),
        "verdict": msgspec.to_builtins(config.verdict),
        "scheduler": _section(config.scheduler),
        "gpu_defaults": _section(config.gpu_defaults),
        "ai": {"enabled": False, "model": None},  # neither is part of this release, whatever was set
        "control": {"enabled": False, "api_url": None},
    }


def whole(value: float) -> float:
    """20 rather than 20.0: clients of gpu-oour read integers there."""
    return int(value) if value == int(value) else value


def _section(section: Struct) -> dict[str, Any]:
    found = msgspec.to_builtins(section)
    return {name: whole(value) if isinstance(value, float) else value for name, value in found.items()}


def _tenant(use: TenantUse, gpu: GpuUse, lang: Language, *, stale: bool) -> TenantDetail:
    return TenantDetail(
        tenant=tenant_row(use, gpu, stale=stale),
        terms=use.terms,
        evidence=use.evidence,
        why=sentences(use.evidence, lang),
        score=use.score,
    )


def _group(name: str, parts: list[ResultRow]) -> GroupResult:
    gpus = list(by_gpu(parts).values())
    tenants = [one for part in parts for one in part.tenants]
    verdicts = [one.verdict for one in tenants]
    return GroupResult(
        name=name,
        gpus=len(gpus),
        avg_score=average(parts),
        in_use=gpus.count("in_use"),
        idle=gpus.count("idle"),
        unknown=gpus.count("unknown"),
        idle_held=_gpus_of(parts, "idle-held"),
        busy_unproductive=_gpus_of(parts, "busy-unproductive"),
        models=tuple(sorted({part.model_name for part in parts})),
        tenants=len(tenants),
        tenants_in_use=verdicts.count("in_use"),
        tenants_idle=verdicts.count("idle"),
        tenants_unknown=verdicts.count("unknown"),
        tenants_idle_held=sum([one.use_class == "idle-held" for one in tenants]),
    )


def _gpus_of(parts: Iterable[ResultRow], use_class: UseClass) -> int:
    return len({(part.gpu_id, part.mig) for part in parts if part.use_class == use_class})


def _workload(namespace: str, owner: str, held: list[tuple[ResultRow, TenantResult]]) -> WorkloadRow:
    parts = list({id(unit): unit for unit, _ in held}.values())
    tenants = [tenant for _, tenant in held]
    gpus, verdicts, score = list(by_gpu(parts).values()), [one.verdict for one in tenants], average(parts)
    return WorkloadRow(
        namespace=namespace,
        owner=owner,
        pods=len({tenant.pod for tenant in tenants}),
        gpus=len(gpus),
        idle_gpus=gpus.count("idle"),
        unknown_gpus=gpus.count("unknown"),
        avg_score=score,
        score=score,
        tenants=len(tenants),
        tenants_idle=verdicts.count("idle"),
        tenants_unknown=verdicts.count("unknown"),
        tenants_idle_held=sum([one.use_class == "idle-held" for one in tenants]),
    )
