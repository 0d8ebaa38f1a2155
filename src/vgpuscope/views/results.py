"""An analysis → the rows of /results and what is summed up from them: gpu-oour's fields with its digits, and ours.

A number that was not measured is null, never 0. Times carry their zone.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from msgspec import Struct

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
from vgpuscope.model.quantity import MIB, Ratio, UnixTime

W = TypeVar("W", bound=str)


class TenantRow(Struct, frozen=True, kw_only=True):
    """Who has a card, or had it earlier in the window."""

    namespace: str
    pod: str
    container: str
    owner: str
    own_numbers: bool  # whether verdict and numbers are the tenant's own, or only the card's are known
    verdict: Verdict
    use_class: UseClass
    gpu_util: float | None  # percent of the whole card
    mem_used_mb: float | None
    since: str | None  # null: since before the window
    until: str | None  # null: has it still


class OourRow(Struct, frozen=True):
    """What gpu-oour says of a card, in its order."""

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
    ai_analysis: None = None


class ResultRow(OourRow, frozen=True, kw_only=True):
    """One card, or one MIG instance of one: gpu-oour's fields, and ours."""

    verdict: Verdict
    use_class: UseClass
    confidence: float
    coverage: float | None
    gpu_index: str
    mig: str
    mig_profile: str
    shared: bool
    tenants: tuple[TenantRow, ...]
    stale: bool = False
    last_seen: str | None = None  # of a GPU that no longer reports; null: it reports


class NamespaceStats(Struct, frozen=True, kw_only=True):
    """One namespace; a shared card counts in each of its tenants' namespaces."""

    count: int
    avg_score: float | None
    low_util_count: int
    idle_verdict_count: int
    unknown_count: int


class Stats(Struct, frozen=True, kw_only=True):
    """What /results/stats says. The first eight fields are gpu-oour's."""

    total_gpus: int
    avg_score: float
    min_score: float
    max_score: float
    low_utilization_count: int
    idle_count: int
    by_status: dict[Status, int]
    by_namespace: dict[str, NamespaceStats]
    by_verdict: dict[Verdict, int]
    by_class: dict[UseClass, int]
    unknown_count: int
    scored: int  # cards that have a score; without any, the three scores above are 0 as gpu-oour has them
    timestamp: str | None
    stale_since: str | None = None  # null: it is what the last analysis found
    stale_reason: str | None = None


def rows(analysis: Analysis, *, stale: bool = False) -> tuple[ResultRow, ...]:
    """All rows, in rising order of score as gpu-oour sends them; those without a score come last."""
    stamp = iso(analysis.started)
    made = [_row(gpu, stamp, stale=stale) for gpu in analysis.gpus]
    return tuple(sorted(made, key=lambda row: (row.score is None, row.score or 0, row.gpu_id, row.mig)))


def stats(found: Sequence[ResultRow], *, threshold: float, timestamp: str | None) -> Stats:
    """The sums over rows."""
    scores = [row.score for row in found if row.score is not None]
    by_status = _counted([row.status for row in found], STATUSES)
    by_verdict = _counted([row.verdict for row in found], VERDICTS)
    return Stats(
        total_gpus=len(found),
        avg_score=round(sum(scores) / len(scores), 1) if scores else 0.0,
        min_score=min(scores, default=0.0),
        max_score=max(scores, default=0.0),
        low_utilization_count=len(low(found, threshold=threshold)),
        idle_count=by_status.get("idle", 0),
        by_status=by_status,
        by_namespace=_by_namespace(found, threshold),
        by_verdict=by_verdict,
        by_class=_counted([row.use_class for row in found], USE_CLASSES),
        unknown_count=by_verdict.get("unknown", 0),
        scored=len(scores),
        timestamp=timestamp,
    )


def low(found: Iterable[ResultRow], *, threshold: float) -> list[ResultRow]:
    """Rows whose score is below the threshold; not those whose score, being old or of too few terms, says nothing."""
    return [row for row in found if row.score is not None and row.score < threshold and row.status != "unknown"]


def iso(moment: UnixTime) -> str:
    """A time in UTC, to the second, with its zone."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def mean(terms: dict[Term, Stat], term: Term, *, scale: float, digits: int) -> float | None:
    """A term's mean in the API's unit, rounded as the API rounds it."""
    stat = terms.get(term)
    return None if stat is None or stat.mean is None else round(stat.mean * scale, digits)


def only_tenant(gpu: GpuUse) -> tuple[str, str]:
    """Namespace and pod that have the card; of several, what they have in common."""
    if len(gpu.tenants) == 1:
        tenant = gpu.tenants[0].tenant
        return tenant.namespace, tenant.pod
    spaces = {use.tenant.namespace for use in gpu.tenants}
    pods = {(use.tenant.namespace, use.tenant.pod) for use in gpu.tenants}
    return (spaces.pop() if len(spaces) == 1 else "", pods.pop()[1] if len(pods) == 1 else "")


def memory_percent(terms: dict[Term, Stat]) -> float | None:
    """Memory in use of all there is."""
    used, total = terms.get("mem_used"), terms.get("mem_total")
    if used is None or total is None or used.mean is None or not total.mean:
        return None
    return round(100 * min(1.0, used.mean / total.mean), 2)


def _row(gpu: GpuUse, stamp: str, *, stale: bool) -> ResultRow:
    namespace, pod = only_tenant(gpu)
    terms, evidence = gpu.terms, gpu.evidence
    return ResultRow(  # by position, since Python takes many arguments by name through a dictionary: 1 µs for each card
        gpu.gpu_id,
        pod,
        namespace,
        gpu.hostname,
        gpu.model,
        mean(terms, "gpu_util", scale=100, digits=2),
        mean(terms, "mem_copy", scale=100, digits=2),
        mean(terms, "mem_used", scale=1 / MIB, digits=1),
        mean(terms, "mem_total", scale=1 / MIB, digits=1),
        memory_percent(terms),
        mean(terms, "power", scale=1, digits=1),
        mean(terms, "sm_clock", scale=1e-6, digits=0),
        None if gpu.score.value is None else round(gpu.score.value, 1),
        "unknown" if stale else gpu.status,
        stamp,
        verdict="unknown" if stale else gpu.verdict,
        use_class="unknown" if stale else gpu.use_class,
        confidence=_ratio(gpu.score.confidence),
        coverage=None if evidence.coverage is None else _ratio(evidence.coverage),
        gpu_index=gpu.gpu_index,
        mig=gpu.mig,
        mig_profile=gpu.profile,
        shared=len(gpu.tenants) > 1,
        tenants=tuple([tenant_row(use, stale=stale) for use in gpu.tenants]),
        stale=stale,
        last_seen=None if gpu.last_seen is None else iso(gpu.last_seen),
    )


def tenant_row(use: TenantUse, *, stale: bool = False) -> TenantRow:
    """One tenant as the API shows it; an old verdict is none."""
    return TenantRow(
        namespace=use.tenant.namespace,
        pod=use.tenant.pod,
        container=use.tenant.container,
        owner=use.owner,
        own_numbers=use.own,
        verdict="unknown" if stale else use.verdict,
        use_class="unknown" if stale else use.use_class,
        gpu_util=mean(use.terms, "process_sm", scale=100, digits=2),
        mem_used_mb=mean(use.terms, "mem_used", scale=1 / MIB, digits=1) if use.own else None,
        since=None if use.since is None else iso(use.since),
        until=None if use.until is None else iso(use.until),
    )


def _ratio(value: Ratio) -> Ratio:
    return round(value, 3) if value < 1 else 1.0  # nearly all are


def _by_namespace(found: Sequence[ResultRow], threshold: float) -> dict[str, NamespaceStats]:
    groups: dict[str, list[ResultRow]] = {}
    for row in found:
        for namespace in (row.namespace,) if row.namespace else {tenant.namespace for tenant in row.tenants}:
            groups.setdefault(namespace, []).append(row)
    return {namespace: _namespace(groups[namespace], threshold) for namespace in sorted(groups)}


def _namespace(found: list[ResultRow], threshold: float) -> NamespaceStats:
    scores = [row.score for row in found if row.score is not None]
    verdicts = [row.verdict for row in found]
    return NamespaceStats(
        count=len(found),
        avg_score=round(sum(scores) / len(scores), 1) if scores else None,
        low_util_count=len(low(found, threshold=threshold)),
        idle_verdict_count=verdicts.count("idle"),
        unknown_count=verdicts.count("unknown"),
    )


def _counted(words: Iterable[W], order: Sequence[W]) -> dict[W, int]:
    counts = Counter(words)
    return {word: counts[word] for word in order if counts[word]}
