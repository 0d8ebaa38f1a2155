"""An analysis → the rows of /results and their sums: gpu-oour's fields with its rounding, and ours.

A number that was not measured is null, never 0. Times carry their zone.

There is one row for each GPU or MIG instance. Filters and sums by namespace work on units: the row itself, or on a
shared GPU each tenant with its own numbers. The list of low GPUs and tenants has rows of both kinds.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.model.analysis import (
    STATUSES,
    USE_CLASSES,
    VERDICTS,
    Analysis,
    GpuUse,
    Stat,
    Status,
    TenantUse,
    Term,
    UseClass,
    Verdict,
)
from vgpuscope.model.opinion import Opinion, OpinionsShown, OpinionStatus, PartId
from vgpuscope.model.quantity import MIB, Ratio, UnixTime
from vgpuscope.model.words import Language

W = TypeVar("W", bound=str)
RowKind: TypeAlias = Literal["gpu", "tenant"]  # gpu: a GPU or a MIG instance


class AiAnalysis(Struct, frozen=True):
    """The opinion of a language model, with gpu-oour's keys and in ai.language. It changes no other field."""

    status: OpinionStatus
    confidence: float
    reason: str
    recommendation: str
    ai_adjusted_score: float


class TenantResult(Struct, frozen=True, kw_only=True):
    """A tenant of a GPU, or a former tenant that had it earlier in the window."""

    namespace: str
    pod: str
    container: str
    owner: str
    own_numbers: bool  # True: verdict and numbers are the tenant's own; False: only the GPU's are known
    verdict: Verdict
    use_class: UseClass
    gpu_util: float | None  # percent of the whole GPU
    mem_used_mb: float | None
    since: str | None  # null: since before the window
    until: str | None  # null: it still has the GPU
    pod_uid: str
    score: float | None  # by its own numbers; the only tenant of a GPU has the score of the GPU
    status: Status
    idle_since: str | None  # null: its verdict is not idle
    memory_limit_mb: float | None  # null: no limit is known
    confidence: float
    coverage: float | None
    ai_analysis: AiAnalysis | None = None  # null: the model was not asked about it, or did not answer


class OourRow(Struct, frozen=True):
    """gpu-oour's fields of a GPU, in its order."""

    gpu_id: str
    pod: str
    namespace: str
    hostname: str
    model_name: str
    gpu_util: float | None
    mem_copy: float | None
    mem_used_mb: float | None
    mem_total_mb: float | None
    mem_usage_percent: float | None
    power_usage: float | None
    sm_clock: float | None
    score: float | None
    status: Status
    timestamp: str
    ai_analysis: AiAnalysis | None = None


class ResultRow(OourRow, frozen=True, kw_only=True):
    """One GPU, or one MIG instance of one: gpu-oour's fields, and ours."""

    verdict: Verdict
    use_class: UseClass
    confidence: float
    coverage: float | None
    gpu_index: str
    mig: str
    mig_profile: str
    shared: bool
    tenants: tuple[TenantResult, ...]
    stale: bool = False
    idle_since: str | None = None  # null: its verdict is not idle
    health: str = ""  # as the exporter reports it: ok, lost, …; "": not reported
    xids: tuple[int, ...] = ()  # XIDs of the window
    last_seen: str | None = None  # of a GPU that no longer reports; null: it reports
    kind: RowKind = "gpu"  # of what the numbers are; tenant: only in the list of low GPUs and tenants


class NamespaceStats(Struct, frozen=True, kw_only=True):
    """One namespace by its own tenants; a shared GPU counts once in the namespace of each of its tenants."""

    count: int  # GPUs
    avg_score: float | None  # mean over its tenants; one that has a GPU alone has the score of the GPU
    low_util_count: int  # GPUs on which a tenant of the namespace is below the threshold
    idle_verdict_count: int  # GPUs on which all its tenants are idle
    unknown_count: int  # GPUs on which some of its tenants are unknown and none is in use
    tenants: int
    tenants_low: int
    tenants_idle: int
    tenants_unknown: int


class Stats(Struct, frozen=True, kw_only=True):
    """The body of /results/stats; the first eight fields are gpu-oour's.

    Fields named tenants_* count tenants, all others count GPUs; a GPU divided by MIG counts as its instances.
    """

    total_gpus: int
    avg_score: float
    min_score: float
    max_score: float
    low_utilization_count: int  # with a score below the threshold
    idle_count: int
    by_status: dict[Status, int]
    by_namespace: dict[str, NamespaceStats]
    by_verdict: dict[Verdict, int]
    by_class: dict[UseClass, int]
    unknown_count: int
    scored: int  # GPUs that have a score; if none has, the three scores above are 0 as in gpu-oour
    timestamp: str | None
    tenants_total: int
    tenants_low: int  # with a score below the threshold, or with verdict idle: /results/low?kind=tenant lists them
    tenants_idle: int  # by verdict
    tenants_unknown: int  # by verdict
    tenants_by_status: dict[Status, int]
    tenants_by_verdict: dict[Verdict, int]
    tenants_by_class: dict[UseClass, int]
    stale_since: str | None = None  # null: the results are those of the last analysis
    stale_reason: str | None = None
    gpus_low: int = 0  # with a score below the threshold, or with verdict idle: /results/low?kind=gpu lists them
    mig_instances: int = 0  # among total_gpus


def rows(analysis: Analysis, *, stale: bool = False) -> tuple[ResultRow, ...]:
    """All rows, in ascending order of score as in gpu-oour; rows without a score come last."""
    stamp = iso(analysis.started)
    made = [_row(gpu, stamp, stale=stale) for gpu in analysis.gpus]
    return tuple(sorted(made, key=_by_score))


def with_opinions(found: tuple[ResultRow, ...], shown: OpinionsShown) -> tuple[ResultRow, ...]:
    """The rows with the opinions on them; a shared GPU has none of its own, but each of its tenants can."""
    given = {part: _ai_analysis(one, shown.language) for part, one in shown.parts.items() if isinstance(one, Opinion)}
    return tuple([_with_opinions(row, given) for row in found]) if given else found


def _with_opinions(row: ResultRow, given: Mapping[PartId, AiAnalysis]) -> ResultRow:
    parts = [PartId(row.gpu_id, row.mig, one.namespace, one.pod, one.container) for one in row.tenants]
    alone = parts[0] if len(parts) == 1 else PartId(row.gpu_id, row.mig, "", "", "")
    if alone not in given and not any(part in given for part in parts):
        return row
    tenants = tuple([replace(one, ai_analysis=given.get(part)) for one, part in zip(row.tenants, parts, strict=True)])
    return replace(row, tenants=tenants, ai_analysis=given.get(alone))


def _ai_analysis(one: Opinion, language: Language) -> AiAnalysis:
    return AiAnalysis(
        status=one.status,
        confidence=one.confidence,
        reason=one.reason_in(language),
        recommendation=one.recommendation_in(language),
        ai_adjusted_score=one.ai_adjusted_score,
    )


def units(row: ResultRow) -> tuple[ResultRow, ...]:
    """The row itself; for a shared GPU one row for each tenant, with its pod, its numbers and its verdict."""
    return tuple([tenant_unit(row, one) for one in row.tenants]) if row.shared else (row,)


def named_by_tenants(row: ResultRow) -> tuple[ResultRow, ...]:
    """The same numbers under the names of each tenant of a shared GPU: names select the GPU, numbers are its own."""
    if row.kind == "tenant" or not row.shared:
        return ()
    return tuple([replace(row, namespace=one.namespace, pod=one.pod) for one in row.tenants])


def stats(
    found: Sequence[ResultRow],
    *,
    threshold: float,
    timestamp: str | None,
    chosen: Sequence[ResultRow] | None = None,
) -> Stats:
    """The sums over rows; `chosen`: the units to count, if not all of them."""
    scores = [row.score for row in found if row.score is not None]
    by_status = _counted([row.status for row in found], STATUSES)
    by_verdict = _counted([row.verdict for row in found], VERDICTS)
    parts = [unit for row in found for unit in units(row)] if chosen is None else chosen
    tenants = [one for part in parts for one in part.tenants]
    tenant_verdicts = _counted([one.verdict for one in tenants], VERDICTS)
    return Stats(
        total_gpus=len(found),
        avg_score=round(sum(scores) / len(scores), 1) if scores else 0.0,
        min_score=min(scores, default=0.0),
        max_score=max(scores, default=0.0),
        low_utilization_count=sum([below(row, threshold) for row in found]),
        idle_count=by_status["idle"],
        by_status=by_status,
        by_namespace=_by_namespace(parts, threshold),
        by_verdict=by_verdict,
        by_class=_counted([row.use_class for row in found], USE_CLASSES),
        unknown_count=by_verdict["unknown"],
        scored=len(scores),
        timestamp=timestamp,
        tenants_total=len(tenants),
        tenants_low=sum([low_or_idle(one, threshold) for one in tenants]),
        tenants_idle=tenant_verdicts["idle"],
        tenants_unknown=tenant_verdicts["unknown"],
        tenants_by_status=_counted([one.status for one in tenants], STATUSES),
        tenants_by_verdict=tenant_verdicts,
        tenants_by_class=_counted([one.use_class for one in tenants], USE_CLASSES),
        gpus_low=sum([low_or_idle(row, threshold) for row in found]),
        mig_instances=sum([row.mig != "" for row in found]),
    )


def low(found: Iterable[ResultRow], *, threshold: float, kind: RowKind | None = None) -> list[ResultRow]:
    """Rows that are idle or have a score below the threshold, in the order of their scores.

    There is a row for each GPU or MIG instance and one for each tenant, except that a tenant that has a listed GPU
    alone is in the row of this GPU. `kind` gpu: only GPUs and MIG instances; tenant: one row for each tenant.
    """
    listed: list[ResultRow] = []
    for row in found:
        of_gpu = kind != "tenant" and low_or_idle(row, threshold)
        if of_gpu:
            listed.append(row)
        if kind == "tenant" or (kind is None and (row.shared or not of_gpu)):
            listed += [tenant_unit(row, one) for one in row.tenants if low_or_idle(one, threshold)]
    return sorted(listed, key=_by_score)


def low_or_idle(unit: ResultRow | TenantResult, threshold: float) -> bool:
    """Whether it is idle or below the threshold; memory held can lift the score of what is idle above it."""
    return unit.verdict == "idle" or below(unit, threshold)


def below(unit: ResultRow | TenantResult, threshold: float) -> bool:
    """Whether the score is below the threshold; a score that is old or of too few terms proves nothing."""
    return unit.score is not None and unit.score < threshold and unit.status != "unknown"


def _by_score(row: ResultRow) -> tuple[object, ...]:
    return row.score is None, row.score or 0, row.gpu_id, row.mig


def tenant_unit(row: ResultRow, one: TenantResult) -> ResultRow:
    """The row of one tenant; numbers of the whole GPU are its own only if it has the GPU alone."""
    if not row.shared and (one.verdict, one.score, one.status) == (row.verdict, row.score, row.status):
        return replace(row, kind="tenant")
    total, used = row.mem_total_mb, one.mem_used_mb
    return replace(
        row,
        pod=one.pod,
        namespace=one.namespace,
        gpu_util=one.gpu_util,
        mem_copy=None,
        mem_used_mb=used,
        mem_usage_percent=None if used is None or not total else round(100 * min(1.0, used / total), 2),
        power_usage=None,
        sm_clock=None,
        score=one.score,
        status=one.status,
        verdict=one.verdict,
        use_class=one.use_class,
        confidence=one.confidence,
        coverage=one.coverage,
        tenants=(one,),
        idle_since=one.idle_since,
        ai_analysis=one.ai_analysis,
        kind="tenant",
    )


def iso(moment: UnixTime) -> str:
    """A time in UTC, to the second, with its zone."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def mean(terms: dict[Term, Stat], term: Term, *, scale: float, digits: int) -> float | None:
    """A term's mean in the API's unit, rounded as the API rounds it."""
    stat = terms.get(term)
    return None if stat is None or stat.mean is None else round(stat.mean * scale, digits)


def only_tenant(gpu: GpuUse) -> tuple[str, str]:
    """Namespace and pod of the GPU's tenant; of several tenants, what they have in common."""
    if len(gpu.tenants) == 1:
        tenant = gpu.tenants[0].tenant
        return tenant.namespace, tenant.pod
    spaces = {use.tenant.namespace for use in gpu.tenants}
    pods = {(use.tenant.namespace, use.tenant.pod) for use in gpu.tenants}
    return (spaces.pop() if len(spaces) == 1 else "", pods.pop()[1] if len(pods) == 1 else "")


def memory_percent(terms: dict[Term, Stat]) -> float | None:
    """Memory in use, in percent of the total."""
    used, total = terms.get("mem_used"), terms.get("mem_total")
    if used is None or total is None or used.mean is None or not total.mean:
        return None
    return round(100 * min(1.0, used.mean / total.mean), 2)


def _row(gpu: GpuUse, stamp: str, *, stale: bool) -> ResultRow:
    namespace, pod = only_tenant(gpu)
    terms, evidence = gpu.terms, gpu.evidence
    return ResultRow(
        gpu_id=gpu.gpu_id,
        pod=pod,
        namespace=namespace,
        hostname=gpu.hostname,
        model_name=gpu.model,
        gpu_util=mean(terms, "gpu_util", scale=100, digits=2),
        mem_copy=mean(terms, "mem_copy", scale=100, digits=2),
        mem_used_mb=mean(terms, "mem_used", scale=1 / MIB, digits=1),
        mem_total_mb=mean(terms, "mem_total", scale=1 / MIB, digits=1),
        mem_usage_percent=memory_percent(terms),
        power_usage=mean(terms, "power", scale=1, digits=1),
        sm_clock=mean(terms, "sm_clock", scale=1e-6, digits=0),
        score=None if gpu.score.value is None else round(gpu.score.value, 1),
        status="unknown" if stale else gpu.status,
        timestamp=stamp,
        verdict="unknown" if stale else gpu.verdict,
        use_class="unknown" if stale else gpu.use_class,
        confidence=_ratio(gpu.score.confidence),
        coverage=None if evidence.coverage is None else _ratio(evidence.coverage),
        gpu_index=gpu.gpu_index,
        mig=gpu.mig,
        mig_profile=gpu.profile,
        shared=len(gpu.tenants) > 1,
        tenants=tuple([tenant_row(use, gpu, stale=stale) for use in gpu.tenants]),
        stale=stale,
        idle_since=_moment(None if stale else gpu.idle_since),
        health=gpu.health,
        xids=gpu.xids,
        last_seen=_moment(gpu.last_seen),
    )


def tenant_row(use: TenantUse, gpu: GpuUse, *, stale: bool = False) -> TenantResult:
    """One tenant as the API shows it; an old verdict is shown as unknown."""
    tenant, terms = use.tenant, use.terms
    # an only tenant has the score and status of its GPU, so that there is one score wherever it is read
    score, status = (gpu.score, gpu.status) if _has_alone(use, gpu) else (use.score, use.status)
    return TenantResult(
        namespace=tenant.namespace,
        pod=tenant.pod,
        container=tenant.container,
        owner=use.owner,
        own_numbers=use.own,
        verdict="unknown" if stale else use.verdict,
        use_class="unknown" if stale else use.use_class,
        gpu_util=tenant_util(use),
        mem_used_mb=mean(terms, "mem_used", scale=1 / MIB, digits=1) if use.own else None,
        since=_moment(use.since),
        until=_moment(use.until),
        pod_uid=tenant.pod_uid,
        score=None if score.value is None else round(score.value, 1),
        status="unknown" if stale else status,
        idle_since=_moment(None if stale else use.idle_since),
        memory_limit_mb=None if use.memory_limit is None else round(use.memory_limit / MIB, 1),
        confidence=_ratio(score.confidence),
        coverage=None if use.evidence.coverage is None else _ratio(use.evidence.coverage),
    )


def tenant_util(use: TenantUse) -> float | None:
    """The tenant's own share of the GPU's time, percent."""
    return mean(use.terms, "process_sm", scale=100, digits=2)


def _has_alone(use: TenantUse, gpu: GpuUse) -> bool:
    return len(gpu.tenants) == 1 and use.until is None and use.verdict == gpu.verdict


def _moment(at: UnixTime | None) -> str | None:
    return None if at is None else iso(at)


def _ratio(value: Ratio) -> Ratio:
    return round(value, 3) if value < 1 else 1.0  # nearly all values are 1


def _by_namespace(parts: Iterable[ResultRow], threshold: float) -> dict[str, NamespaceStats]:
    found = by_namespace(parts)
    return {namespace: _namespace(found[namespace], threshold) for namespace in sorted(found)}


def by_namespace(parts: Iterable[ResultRow]) -> dict[str, list[ResultRow]]:
    """Units by the namespace of their tenant."""
    groups: dict[str, list[ResultRow]] = {}
    for part in parts:
        for namespace in {one.namespace for one in part.tenants}:
            groups.setdefault(namespace, []).append(part)
    return groups


def by_gpu(parts: Iterable[ResultRow]) -> dict[tuple[str, str], Verdict]:
    """The verdict on each GPU from these units of it: in use if one is, idle only if all are."""
    said: dict[tuple[str, str], set[Verdict]] = {}
    for part in parts:
        said.setdefault((part.gpu_id, part.mig), set()).add(part.verdict)
    return {gpu: next(word for word in _STRONGEST if word in words) for gpu, words in said.items()}


_STRONGEST: tuple[Verdict, ...] = ("in_use", "unknown", "idle")


def _namespace(parts: list[ResultRow], threshold: float) -> NamespaceStats:
    gpus = list(by_gpu(parts).values())
    tenants = [one for part in parts for one in part.tenants]
    verdicts = [one.verdict for one in tenants]
    scores = [one.score for one in tenants if one.score is not None]
    return NamespaceStats(
        count=len(gpus),
        avg_score=round(sum(scores) / len(scores), 1) if scores else None,
        low_util_count=len({(part.gpu_id, part.mig) for part in parts if below(part, threshold)}),
        idle_verdict_count=gpus.count("idle"),
        unknown_count=gpus.count("unknown"),
        tenants=len(tenants),
        tenants_low=sum([low_or_idle(one, threshold) for one in tenants]),
        tenants_idle=verdicts.count("idle"),
        tenants_unknown=verdicts.count("unknown"),
    )


def _counted(words: Iterable[W], order: Sequence[W]) -> dict[W, int]:
    counts = Counter(words)
    return {word: counts[word] for word in order}
