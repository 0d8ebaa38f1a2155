"""An analysis → the tenants that are worth an opinion, with the evidence on each.

Worth asking about: idle, idle-held, stalled or idle-preparing tenants, and those whose score is near a threshold. A
tenant whose verdict is unknown is not asked about: no opinion could make up for missing numbers. A GPU that no tenant
holds and that does nothing is free, and nobody has to explain that. Who wants every GPU gets all that report numbers.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from vgpuscope.model.analysis import Analysis, GpuUse, Stat, Status, TenantUse, Term, UseClass, Window
from vgpuscope.model.analysis import Score as ScoreOf
from vgpuscope.model.opinion import PartId, QuantitySummary, TenantEvidence, WeightedTerm
from vgpuscope.model.quantity import PodUID, Seconds, UnixTime

NEAR = 5.0  # points of the score around a threshold
# in the order in which they are asked about
_ASKED: dict[UseClass, int] = {"idle": 0, "idle-held": 1, "stalled": 2, "idle-preparing": 3}
_NEAR_RANK = 4
_SHOWN: tuple[Term, ...] = (
    "process_sm",
    "gpu_util",
    "sm_active",
    "mem_copy",
    "mem_used",
    "power",
    "encoder",
    "decoder",
)
# What the key is made of, and into how many steps the range of each is divided: two windows of one state have one key.
_ROUNDED: tuple[tuple[Term, int], ...] = (
    ("process_sm", 20),
    ("gpu_util", 20),
    ("sm_active", 20),
    ("mem_copy", 20),
    ("mem_used", 10),
    ("power", 10),
)


class Bounds(Struct, frozen=True, kw_only=True):
    """The thresholds of the score, in points."""

    idle: float
    low: float


class Candidate(NamedTuple):
    """What is worth an opinion: a name, and the key of the evidence on it."""

    key: str  # of the pod's incarnation, its class and its rounded levels; without times
    part: PartId
    uid: PodUID
    rank: tuple[int, float]  # the lower, the earlier it is asked about


def candidates(analysis: Analysis, bounds: Bounds, *, every: bool = False) -> tuple[Candidate, ...]:
    """Everything that is worth an opinion, most urgent first. `every`: all that report numbers."""
    found = [
        _candidate(gpu, use)
        for gpu in analysis.gpus
        for use in (gpu.tenants or (None,))
        if (every and gpu.last_seen is None and gpu.terms) or worth_asking(gpu, use, bounds)
    ]
    return tuple(sorted(found, key=lambda one: (one.rank, one.part)))


def evidence_on(analysis: Analysis, chosen: Sequence[Candidate]) -> list[TenantEvidence]:
    """The evidence on some candidates of an analysis, in their order."""
    keys = {one.part: one.key for one in chosen}
    gpus = {part.gpu_id for part in keys}
    made = {
        part: _evidence(gpu, use, analysis.window, key=keys[part])
        for gpu in analysis.gpus
        if gpu.gpu_id in gpus
        for use in (gpu.tenants or (None,))
        if (part := part_of(gpu, use)) in keys
    }
    return [made[one.part] for one in chosen if one.part in made]


def worth_asking(gpu: GpuUse, use: TenantUse | None, bounds: Bounds) -> bool:
    """Whether an opinion on this tenant, or on a GPU without one, could be of use."""
    judged = use or gpu
    if judged.verdict == "unknown" or gpu.last_seen is not None:
        return False
    if use is None and judged.use_class == "idle":
        return False
    score = _score(gpu, use)[0].value
    near = score is not None and bounds.idle - NEAR <= score <= bounds.low + NEAR
    return judged.use_class in _ASKED or near


def part_of(gpu: GpuUse, use: TenantUse | None) -> PartId:
    """The name of a tenant on a GPU."""
    if use is None:
        return PartId(gpu.gpu_id, gpu.mig, "", "", "")
    tenant = use.tenant
    return PartId(gpu.gpu_id, gpu.mig, tenant.namespace, tenant.pod, tenant.container)


def keys_by_uid(found: Iterable[Candidate]) -> dict[str, tuple[str, ...]]:
    """The keys of each pod's evidence; pods without a known UID are left out."""
    keys: dict[str, list[str]] = {}
    for one in found:
        if one.uid:
            keys.setdefault(one.uid, []).append(one.key)
    return {uid: tuple(dict.fromkeys(own)) for uid, own in keys.items()}


def _candidate(gpu: GpuUse, use: TenantUse | None) -> Candidate:
    judged, part = use or gpu, part_of(gpu, use)
    uid = use.tenant.pod_uid if use else ""
    key = _key(uid or "\0".join(part), judged.use_class, _terms(gpu, use), gpu)
    return Candidate(key, part, uid, _rank(judged.use_class, judged.idle_since, part))


def _terms(gpu: GpuUse, use: TenantUse | None) -> Mapping[Term, Stat]:
    """The numbers that are the tenant's: on a shared GPU its own, else those of the GPU, too."""
    if use is None or not use.terms:
        return {} if use is not None and len(gpu.tenants) > 1 else gpu.terms
    return use.terms if len(gpu.tenants) > 1 else {**gpu.terms, **use.terms}


def _evidence(gpu: GpuUse, use: TenantUse | None, window: Window, *, key: str) -> TenantEvidence:
    judged, terms = use or gpu, _terms(gpu, use)
    shared = len(gpu.tenants) > 1
    score, status = _score(gpu, use)
    memory, watts = _highest(gpu, "mem_total"), _highest(gpu, "power_limit")
    whole = gpu.terms.get("gpu_util")
    return TenantEvidence(
        key=key,
        part=part_of(gpu, use),
        uid=use.tenant.pod_uid if use else "",
        owner=use.owner if use else "",
        model=gpu.model,
        profile=gpu.profile,
        tenants=len(gpu.tenants),
        own=bool(use and use.own),
        use_class=judged.use_class,
        verdict=judged.verdict,
        status=status,
        score=score.value,
        score_terms=tuple(WeightedTerm(one.name, one.weight, one.value, one.points) for one in score.terms),
        signal=judged.evidence.signal,
        reasons=judged.evidence.reasons,
        coverage=judged.evidence.coverage,
        window=window.seconds,
        idle_for=_idle_for(judged.idle_since, window.end),
        levels={term: _level(terms[term]) for term in _SHOWN if term in terms},
        gpu_util=_level(whole) if shared and whole is not None else None,
        memory_total=None if memory is None else round(memory),
        power_limit=watts,
        xids=gpu.xids,
    )


def _score(gpu: GpuUse, use: TenantUse | None) -> tuple[ScoreOf, Status]:
    """On a shared GPU the tenant's own score; a GPU that one tenant has alone has one score for both."""
    if use is None or len(gpu.tenants) == 1:
        return gpu.score, gpu.status
    return use.score, use.status


def _rank(use_class: UseClass, idle_since: UnixTime | None, part: PartId) -> tuple[int, float]:
    """Tenants before GPUs without one; then by class; the longest idle first, since reclaim waits for these."""
    return (_ASKED.get(use_class, _NEAR_RANK) + (10 if not part.pod else 0), idle_since or 0.0)


def _highest(gpu: GpuUse, term: Term) -> float | None:
    stat = gpu.terms.get(term)
    return None if stat is None else stat.mean if stat.max is None else stat.max


def _level(stat: Stat) -> QuantitySummary:
    return QuantitySummary(mean=stat.mean, p95=stat.p95, max=stat.max)


def _idle_for(since: UnixTime | None, end: UnixTime) -> Seconds | None:
    return None if since is None else max(0.0, end - since)


def _key(who: str, use_class: UseClass, terms: Mapping[Term, Stat], gpu: GpuUse) -> str:
    """A digest of the incarnation, the class and the rounded levels. GPUs of one pod in one state share it."""
    whole = {"mem_used": _highest(gpu, "mem_total"), "power": _highest(gpu, "power_limit")}
    levels = [_step(terms.get(term), steps, whole.get(term, 1.0)) for term, steps in _ROUNDED]
    return hashlib.sha256(f"{who}\0{use_class}\0{levels}".encode()).hexdigest()[:32]


def _step(stat: Stat | None, steps: int, whole: float | None) -> int | None:
    """The mean as one of `steps` parts of the whole; None: not measured."""
    if stat is None or stat.mean is None or not whole:
        return None
    return round(steps * min(1.0, max(0.0, stat.mean / whole)))
