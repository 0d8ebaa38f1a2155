"""Pods at the API server, as decisions and bindings change them. Every write names the version that it changes."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.formats.hami.annotation import (
    BIND_BEGUN,
    BIND_PHASE,
    FILTERED,
    NODE,
    AssignedDevice,
    BindPhase,
    assignment_annotations,
    binding_annotations,
    encode_instances,
)
from vgpuscope.formats.hami.seal import SEAL, Seals
from vgpuscope.formats.kube.extender import PodHead, decode_pod_head
from vgpuscope.formats.kube.paths import ObjectRef, object_path
from vgpuscope.knowledge.vendors import NVIDIA
from vgpuscope.model.errors import BodyInvalid, KubeUnreadable
from vgpuscope.model.placement import Placement, PlacementRequest
from vgpuscope.model.pod import MigAllocation
from vgpuscope.model.quantity import UnixTime
from vgpuscope.sinks.kube.writer import KubeWriter
from vgpuscope.sources.kube import KubeClient

EPOCH = "vgpuscope.io/scheduler-epoch"  # which leader last fenced the pod
RETRY = "vgpuscope.io/retry"  # when the pod was seen to fit after it had been refused
_LONGEST_LABEL = 63  # characters that Kubernetes accepts
_INSTANCES = "hami.io/vgpu-mig-allocations"
_ASSIGNED = (*NVIDIA.allocated[:1], *NVIDIA.to_allocate[:1], _INSTANCES, NODE, FILTERED, SEAL)


class FoundPod(Struct, frozen=True):
    """A pod as the API server has it now."""

    head: PodHead
    body: bytes


class PodWriter:
    """Reads and changes pods. Calls may raise KubeUnreadable, KubeForbidden or KubeUnwritten."""

    def __init__(self, api: KubeClient, writer: KubeWriter, *, seals: Seals | None = None) -> None:
        """`seals` seals assignments; None: they are not sealed."""
        self._api, self._writer, self._seals = api, writer, seals

    async def read(self, namespace: str, name: str) -> FoundPod | None:
        """The pod; None: it does not exist."""
        body = await self._api.find(_path(namespace, name))
        if body is None:
            return None
        try:
            return FoundPod(decode_pod_head(body), body)
        except BodyInvalid as e:
            raise KubeUnreadable(f"pod {namespace}/{name}: {e}") from e

    async def assign(self, pod: PodHead, request: PlacementRequest, placement: Placement, now: UnixTime) -> PodHead:
        """Write an assignment over this version of the pod; the pod as it is then."""
        made = assignment_notes(request, placement, now)
        if self._seals is not None:
            texts = {key: text for key, text in made.items() if text is not None}
            made[SEAL] = self._seals.seal(pod.uid, texts, bound=False)
        notes: dict[str, str | None] = {**made, BIND_PHASE: None, BIND_BEGUN: None}
        version = await self._change(pod, notes, {NODE: _label(placement.node)})
        return replace(
            pod,
            version=version,
            assigned_node=placement.node,
            assigned=notes[NVIDIA.allocated[0]] or "",
            assigned_at=notes[FILTERED] or "",
            instances=notes[_INSTANCES] or "",
            seal=notes.get(SEAL) or "",
        )

    def sealed(self, pod: PodHead) -> bool:
        """Whether the assignment that the pod has is one of ours; always if assignments are not sealed."""
        if self._seals is None:
            return True
        return self._seals.holds(pod.uid, _assignment(pod) | {SEAL: pod.seal}, bound=False)

    async def clear(self, pod: PodHead, *, phase: BindPhase | None = None) -> str:
        """Remove the assignment; the new version. No earlier write over an older version can follow."""
        notes: dict[str, str | None] = {**dict.fromkeys(_ASSIGNED), **({BIND_PHASE: phase} if phase else {})}
        return await self._change(pod, notes, {NODE: None})

    async def fence(self, namespace: str, name: str, uid: str, epoch: int) -> str:
        """Give the pod a new version, so that no write of an earlier leader can follow; the new version."""
        change = {"metadata": {"uid": uid, "annotations": {EPOCH: str(epoch)}}}
        return await self._writer.patch(_path(namespace, name), change)

    async def touch(self, pod: PodHead, now: UnixTime) -> None:
        """Change an annotation, so that kube-scheduler tries the pod again."""
        change = {"metadata": {"uid": pod.uid, "annotations": {RETRY: str(int(now))}}}
        await self._writer.patch(_path(pod.namespace, pod.name), change)

    async def bind(self, pod: PodHead, node: str) -> None:
        """Bind a pod that has no assignment."""
        await self._writer.bind(reference(pod), node)

    async def bind_assigned(self, pod: PodHead, now: UnixTime) -> None:
        """Bind this version of the pod to the node of its assignment; the same write says that the binding begins."""
        notes = dict(binding_annotations("allocating", now=now))
        if self._seals is not None:
            notes[SEAL] = self._seals.seal(pod.uid, _assignment(pod), bound=True)
        await self._writer.bind(reference(pod), pod.assigned_node, version=pod.version, annotations=notes)

    async def _change(
        self, pod: PodHead, notes: Mapping[str, str | None], labels: Mapping[str, str | None] | None = None
    ) -> str:
        meta: dict[str, Any] = {"annotations": dict(notes)} | ({"labels": dict(labels)} if labels else {})
        return await self._writer.patch(_path(pod.namespace, pod.name), {"metadata": meta}, version=pod.version)


def reference(pod: PodHead) -> ObjectRef:
    """The pod as the object of an event or a binding."""
    return ObjectRef("Pod", pod.name, pod.namespace, pod.uid)


def assignment_notes(request: PlacementRequest, placement: Placement, now: UnixTime) -> dict[str, str | None]:
    """The annotations of an assignment: a segment for each container, empty if it has no GPU."""
    segments: list[list[AssignedDevice]] = [[] for _ in range(request.containers)]
    for one in placement.gpus:
        segments[one.container].append(AssignedDevice(one.uuid, NVIDIA.word, one.memory, one.cores))
    notes: dict[str, str | None] = dict(assignment_annotations(NVIDIA, node=placement.node, segments=segments, now=now))
    placed = [one for one in placement.gpus if one.profile]
    instances = [
        MigAllocation(container_index=one.container, device_index=one.position, gpu=one.uuid, profile=one.profile)
        for one in placed
    ]
    notes[_INSTANCES] = encode_instances(instances, [(one.start, one.size) for one in placed]) if placed else None
    return notes


def _assignment(pod: PodHead) -> dict[str, str]:
    """The annotations that a seal is about."""
    notes = {NODE: pod.assigned_node, FILTERED: pod.assigned_at, NVIDIA.allocated[0]: pod.assigned}
    return notes | ({_INSTANCES: pod.instances} if pod.instances else {})


def _path(namespace: str, name: str) -> str:
    return object_path("v1", "Pod", name, namespace=namespace)


def _label(node: str) -> str | None:
    """The name of a node as the value of a label; None: it is too long for one."""
    return node if len(node) <= _LONGEST_LABEL else None
