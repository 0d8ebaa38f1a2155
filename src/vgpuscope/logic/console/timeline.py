"""Two analyses, one after the other → what happened between them."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from vgpuscope.knowledge.xid import advice
from vgpuscope.logic.console.moments import iso
from vgpuscope.model.analysis import Analysis, GpuUse, UseClass, Verdict
from vgpuscope.model.console.timeline import TimelineEvent
from vgpuscope.model.pending import PendingPod
from vgpuscope.model.quantity import UnixTime

_HEALTHY = "ok"
_Key = tuple[str, str]
_Who = tuple[str, str, str]
_Said = tuple[Verdict, UseClass]


class GpuDigest(NamedTuple):
    """What is remembered of a GPU until the next analysis."""

    verdict: Verdict
    use_class: UseClass
    health: str
    xids: tuple[int, ...]
    objects: dict[str, object]
    tenants: dict[_Who, _Said] | None  # None: its only tenant has the GPU's verdict


class Digest(NamedTuple):
    """What is remembered of an analysis: a small part of it, because whole analyses are large."""

    number: int
    gpus: dict[_Key, GpuDigest]
    targets: dict[str, tuple[bool, str]]  # up, and why not
    nodes: dict[str, str]  # by target


def digest(analysis: Analysis) -> Digest:
    """What the next analysis is compared with."""
    return Digest(
        number=analysis.number,
        gpus={(gpu.gpu_id, gpu.mig): _digest(gpu) for gpu in analysis.gpus},
        targets={target.name: (target.up, target.reason) for target in analysis.targets},
        nodes={gpu.target: gpu.hostname for gpu in analysis.gpus if gpu.target},
    )


def _digest(gpu: GpuUse) -> GpuDigest:
    said = {
        (one.tenant.namespace, one.tenant.pod, one.tenant.container): (one.verdict, one.use_class)
        for one in gpu.tenants
    }
    tenants = said if len(gpu.tenants) > 1 else None
    return GpuDigest(gpu.verdict, gpu.use_class, gpu.health, gpu.xids, _objects(gpu), tenants)


def _objects(gpu: GpuUse) -> dict[str, object]:
    """The objects of an event about a GPU; its only tenant is one of them."""
    who = gpu.tenants[0].tenant if len(gpu.tenants) == 1 else None
    return {
        "node": gpu.hostname or None,
        "gpu_id": gpu.gpu_id,
        "mig": gpu.mig or None,
        "namespace": who.namespace or None if who else None,
        "pod": who.pod or None if who else None,
        "container": who.container or None if who else None,
    }


def between(before: Digest, after: Digest, *, at: UnixTime) -> Iterator[TimelineEvent]:
    """Changed verdicts, new XIDs, changed health, GPUs and targets that went away or came back."""
    moment = iso(at)
    for place, fields in enumerate(_events(before, after)):
        yield TimelineEvent(id=f"{at:.3f}-{place}", at=moment, **fields)  # type: ignore[arg-type]


def _events(before: Digest, after: Digest) -> Iterator[dict[str, object]]:
    for key, gpu in after.gpus.items():
        was = before.gpus.get(key)
        if was is None:
            yield {**gpu.objects, "kind": "gpu", "before": None, "after": "seen"}
        else:
            yield from _changes(was, gpu)
    for key, gone in before.gpus.items():
        if key not in after.gpus:
            yield {**gone.objects, "kind": "gpu", "before": "seen", "after": None}
    yield from _targets(before, after)


def _changes(was: GpuDigest, now: GpuDigest) -> Iterator[dict[str, object]]:
    if was.verdict != now.verdict:
        yield {**now.objects, "kind": "verdict", "code": now.verdict, "before": was.use_class, "after": now.use_class}
    if was.health != now.health and now.health and (was.health or now.health != _HEALTHY):
        yield {**now.objects, "kind": "health", "before": was.health or None, "after": now.health}
    for xid in now.xids:
        if xid not in was.xids:
            name = advice(xid).name or None
            yield {**now.objects, "kind": "xid", "code": f"XID_{xid}", "number": float(xid), "message": name}
    for who, said in (now.tenants or {}).items():
        old = (was.tenants or {}).get(who)
        if old is not None and old[0] != said[0]:
            namespace, pod, container = who
            named = {"namespace": namespace or None, "pod": pod or None, "container": container or None}
            yield {**now.objects, **named, "kind": "verdict", "code": said[0], "before": old[1], "after": said[1]}


def _targets(before: Digest, after: Digest) -> Iterator[dict[str, object]]:
    for name, (up, reason) in after.targets.items():
        was = before.targets.get(name)
        if was is not None and was[0] != up:
            yield {
                "kind": "target",
                "node": after.nodes.get(name) or None,
                "before": "up" if was[0] else "down",
                "after": "up" if up else "down",
                "message": f"{name}: {reason}" if reason else name,
            }


def waits(pods: Iterable[PendingPod]) -> Iterator[TimelineEvent]:
    """The pods whose wait has ended."""
    for pod in pods:
        if pod.ended is not None:
            yield TimelineEvent(
                id=f"pod-{pod.pod_uid}",
                at=iso(pod.ended),
                kind="scheduling",
                code=pod.code,
                node=pod.node or None,
                namespace=pod.namespace,
                pod=pod.pod,
                before="waiting",
                after=pod.outcome,
                number=None if pod.created is None else round(max(0.0, pod.ended - pod.created), 1),
            )
