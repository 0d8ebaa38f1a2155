"""An analysis → the tenants that are worth an opinion, with the evidence on each.

Worth asking about: idle, idle-held or stalled tenants, and those whose score is near a threshold. A tenant whose
verdict is unknown is not asked about: no opinion could make up for missing numbers. A GPU that no tenant holds and that
does nothing is free, and nobody has to explain that.
"""

import hashlib
import json
from collections.abc import Iterable

from msgspec import Struct

from vgpuscope.model.analysis import Analysis, GpuUse, Stat, Status, TenantUse, Term, UseClass, Window
from vgpuscope.model.analysis import Score as ScoreOf
from vgpuscope.model.opinion import Evidence, Level, PartId, Weighed
from vgpuscope.model.quantity import Seconds, UnixTime

NEAR = 5.0  # points of the score around a threshold
_ASKED: dict[UseClass, int] = {"idle": 0, "idle-held": 1, "stalled": 2}  # in the order in which they are asked about
_NEAR_RANK = 3
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


def evidence_of(analysis: Analysis, bounds: Bounds) -> tuple[Evidence, ...]:
    """The evidence on everything that is worth an opinion, most urgent first."""
    found = [
        _evidence(gpu, use, analysis.window)
        for gpu in analysis.gpus
        for use in (gpu.tenants or (None,))
        if worth_asking(gpu, use, bounds)
    ]
    return tuple(sorted(found, key=lambda one: (one.rank, one.part)))


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


def keys_by_uid(found: Iterable[Evidence]) -> dict[str, tuple[str, ...]]:
    """The keys of each pod's evidence; pods without a known UID are left out."""
    keys: dict[str, list[str]] = {}
    for one in found:
        if one.uid:
            keys.setdefault(one.uid, []).append(one.key)
    return {uid: tuple(dict.fromkeys(own)) for uid, own in keys.items()}


def _evidence(gpu: GpuUse, use: TenantUse | None, window: Window) -> Evidence:
    judged, part = use or gpu, part_of(gpu, use)
    shared = len(gpu.tenants) > 1
    terms = {**({} if shared else gpu.terms), **(use.terms if use else {})}
    score, status = _score(gpu, use)
    memory, watts = _highest(gpu, "mem_total"), _highest(gpu, "power_limit")
    whole = gpu.terms.get("gpu_util")
    return Evidence(
        key=_key(part, use, terms, judged.use_class, memory=memory, limit=watts),
        part=part,
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
        score_terms=tuple(Weighed(one.name, one.weight, one.value, one.points) for one in score.terms),
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
        rank=_rank(judged.use_class, judged.idle_since, part),
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


def _level(stat: Stat) -> Level:
    return Level(mean=stat.mean, p95=stat.p95, max=stat.max)


def _idle_for(since: UnixTime | None, end: UnixTime) -> Seconds | None:
    return None if since is None else max(0.0, end - since)


def _key(
    part: PartId,
    use: TenantUse | None,
    terms: dict[Term, Stat],
    use_class: UseClass,
    *,
    memory: float | None,
    limit: float | None,
) -> str:
    """A digest of the incarnation, the class and the rounded levels. GPUs of one pod in one state share it."""
    whole = {"mem_used": memory, "power": limit}
    levels = [_step(terms.get(term), steps, whole.get(term, 1.0)) for term, steps in _ROUNDED]
    uid = use.tenant.pod_uid if use else ""
    who = [uid] if uid else ["", *part]
    return hashlib.sha256(json.dumps([who, use_class, levels]).encode()).hexdigest()[:32]


def _step(stat: Stat | None, steps: int, whole: float | None) -> int | None:
    """The mean as one of `steps` parts of the whole; None: not measured."""
    if stat is None or stat.mean is None or not whole:
        return None
    return round(steps * min(1.0, max(0.0, stat.mean / whole)))
