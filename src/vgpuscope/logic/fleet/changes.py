"""What changed from one analysis to the next: GPUs that came or went, and verdicts, classes and health that turned.

A class is compared only if it says more than the verdict does. `busy` and `low` follow the load, as the score does.
"""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from msgspec import Struct

from vgpuscope.model.analysis import Analysis, GpuUse, Tenant, UseClass, Verdict
from vgpuscope.model.result_change import ChangeKind, ResultChange

_GpuKey: TypeAlias = tuple[str, str]  # UUID and MIG instance
_TELLING: frozenset[UseClass] = frozenset(
    ("stalled", "busy-unproductive", "idle-held", "idle-preparing", "not-started")
)


class _Judged(Struct, frozen=True):
    verdict: Verdict
    use_class: UseClass | None  # None: it says no more than the verdict


class ResultsSeen(Struct, frozen=True):
    """What is remembered of an analysis, to compare the next with it."""

    gpus: Mapping[_GpuKey, _Judged]
    tenants: Mapping[tuple[_GpuKey, Tenant], _Judged]
    health: Mapping[str, str]
    nodes: Mapping[str, tuple[int, int, int]]  # GPUs in use, idle and unknown
    places: Mapping[_GpuKey, str]  # the node of each GPU


def seen(analysis: Analysis) -> ResultsSeen:
    """What to remember of an analysis."""
    gpus, health = {}, {}
    tenants: dict[tuple[_GpuKey, Tenant], _Judged] = {}
    nodes: dict[str, list[Verdict]] = {}
    for gpu in analysis.gpus:
        key = (gpu.gpu_id, gpu.mig)
        gpus[key] = _judged(gpu.verdict, gpu.use_class)
        nodes.setdefault(gpu.hostname, []).append(gpu.verdict)
        if gpu.health:
            health[gpu.gpu_id] = gpu.health
        for use in gpu.tenants:
            tenants.setdefault((key, use.tenant), _judged(use.verdict, use.use_class))
    return ResultsSeen(
        gpus=gpus,
        tenants=tenants,
        health=health,
        nodes={name: (v.count("in_use"), v.count("idle"), v.count("unknown")) for name, v in nodes.items()},
        places={(gpu.gpu_id, gpu.mig): gpu.hostname for gpu in analysis.gpus},
    )


def changes(before: ResultsSeen, analysis: Analysis) -> Iterator[ResultChange]:
    """Every change, GPU by GPU; those that are gone come last.

    The only tenant of a GPU is named with the GPU. A tenant of a shared GPU is told of when it turns idle or works
    again, not when its first samples are complete.
    """
    health_told = set[str]()
    for gpu in analysis.gpus:
        if gpu.gpu_id not in health_told:
            health_told.add(gpu.gpu_id)
            yield from _health(before, gpu)
        known = before.gpus.get((gpu.gpu_id, gpu.mig))
        if known is None:
            yield _of_gpu("appeared", gpu, "")
        else:
            yield from _of_verdict(known, gpu)
        if len(gpu.tenants) > 1:
            yield from _of_tenants(before, gpu)
    now = {(gpu.gpu_id, gpu.mig) for gpu in analysis.gpus}
    for gpu_id, mig in before.gpus.keys() - now:
        known = before.gpus[gpu_id, mig]
        yield ResultChange(kind="gone", gpu_id=gpu_id, mig=mig, node=before.places[gpu_id, mig], before=known.verdict)


def _judged(verdict: Verdict, use_class: UseClass) -> _Judged:
    return _Judged(verdict, use_class if use_class in _TELLING else None)


def _health(before: ResultsSeen, gpu: GpuUse) -> Iterator[ResultChange]:
    was = before.health.get(gpu.gpu_id, "")
    if gpu.health and gpu.health != was and (was or gpu.health != "ok"):
        yield _of_gpu("health", gpu, was)


def _of_verdict(known: _Judged, gpu: GpuUse) -> Iterator[ResultChange]:
    found = _judged(gpu.verdict, gpu.use_class)
    if found.verdict != known.verdict:
        yield _of_gpu("verdict", gpu, known.verdict)
    elif found.use_class != known.use_class:
        yield _of_gpu("class", gpu, known.use_class or known.verdict)


def _of_tenants(before: ResultsSeen, gpu: GpuUse) -> Iterator[ResultChange]:
    for use in {use.tenant: use for use in reversed(gpu.tenants)}.values():
        known = before.tenants.get(((gpu.gpu_id, gpu.mig), use.tenant))
        found = _judged(use.verdict, use.use_class)
        if known is None or known == found or "idle" not in {known.verdict, found.verdict}:
            continue
        turned = found.verdict != known.verdict
        yield ResultChange(
            kind="tenant_verdict" if turned else "tenant_class",
            gpu_id=gpu.gpu_id,
            mig=gpu.mig,
            node=gpu.hostname,
            tenant=use.tenant,
            before=known.verdict if turned else known.use_class or known.verdict,
            verdict=use.verdict,
            use_class=use.use_class,
            score=use.score.value,
            reason=next(iter(use.evidence.reasons), ""),
        )


def _of_gpu(kind: ChangeKind, gpu: GpuUse, before: str) -> ResultChange:
    return ResultChange(
        kind=kind,
        gpu_id=gpu.gpu_id,
        mig=gpu.mig,
        node=gpu.hostname,
        tenant=gpu.tenants[0].tenant if len(gpu.tenants) == 1 else None,
        before=before,
        verdict=gpu.verdict,
        use_class=gpu.use_class,
        score=gpu.score.value,
        reason=next(iter(gpu.evidence.reasons), ""),
        health=gpu.health,
    )
