"""Answers the kubelet's Allocate: which pod it is, what its container gets, and what HAMi's scheduler must know of it.

found ─► checked ─► directory ─► annotation (served, or success) ─► lock released ─► answer ─► event
   └─────────┴────────┴───────────────┴─► failed: directory removed, counted, logged; the kubelet gets the code;
                                          rollback.py: phase failed, lock released, event
"""

import asyncio
import hashlib
import logging
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from vgpuscope.catalog.plugin import ALLOCATE_BOUNDS
from vgpuscope.formats.hami.annotation import BIND_PHASE, MIG_ALLOCATIONS, TO_ALLOCATE
from vgpuscope.formats.kube.allocating import lock_owner, named_instances
from vgpuscope.formats.kube.events import EventText
from vgpuscope.formats.kube.paths import ObjectRef
from vgpuscope.logic.plugin.assignment import (
    Answered,
    askers,
    check,
    index_names,
    instances_of,
    strangers,
    visible_of,
    waits,
)
from vgpuscope.logic.plugin.devices import preferred
from vgpuscope.logic.plugin.injection import HamiCore, controlled, visible
from vgpuscope.model.errors import (
    AllocateAmbiguous,
    AllocateCountMismatch,
    AllocateDeviceUnhealthy,
    AllocateDeviceUnknown,
    AllocateFailed,
    AllocateForged,
    AllocatePodUnknown,
    AnnotationMalformed,
    KubeConflict,
    ScopeError,
)
from vgpuscope.model.histogram import Histogram
from vgpuscope.model.plugin import (
    AllocatingPod,
    GpuState,
    Injection,
    KubeletView,
    NodeNotes,
    OfferedDevice,
    Segment,
    StaticInstance,
)
from vgpuscope.model.quantity import DeviceUUID, PodUID, Seconds, UnixTime
from vgpuscope.runtime.log import DETAIL, OnChange, error_fields, fields
from vgpuscope.services.plugin.cluster import ClusterSide
from vgpuscope.services.plugin.rollback import Rollbacks
from vgpuscope.sinks.container_dirs import ContainerDirs, ensure_preload

log = logging.getLogger(__name__)

_TRIES = 5  # with a pod that is changed between a look and the allocation
_PREFER_WITHIN: Seconds = 2.0  # the kubelet waits; without an answer it gets any ids
_REMEMBERED = 64  # answers, until they have reached the kubelet
_DRAIN_WITHIN: Seconds = 8.0  # of the plugin's time to end
_CLEAR_WITHIN: Seconds = 5.0  # until it is clear for which pod the kubelet asks, which waits
_LOOK_AGAIN: Seconds = 0.2
_LONG_KNOWN: Seconds = 60.0  # a pod that only the kubelet knows for so long is no pod that was deleted a moment ago
_NO_POD = (AllocateAmbiguous, AllocatePodUnknown, AllocateDeviceUnknown, AllocateDeviceUnhealthy)  # of no known pod


class _Served(NamedTuple):
    """A container that has got its devices."""

    pod: PodUID
    container: str
    devices: int
    injection: Injection


async def _no_view() -> KubeletView | None:
    return None


class Allocator:
    """Serves one container after the other: two at once could get the same segment."""

    def __init__(
        self,
        *,
        cluster: ClusterSide,
        dirs: ContainerDirs,
        control: HamiCore,
        states: Callable[[], Mapping[DeviceUUID, GpuState]],
        devices: Callable[[], Mapping[str, OfferedDevice]],
        whole: bool,
        count: Callable[[ScopeError], None],
        kubelet: Callable[[], Awaitable[KubeletView | None]] = _no_view,
        kept: Callable[[], None] = lambda: None,
        patience: Seconds = _CLEAR_WITHIN,
        clock: Callable[[], UnixTime] = time.time,
    ) -> None:
        """`states` and `devices` are what the node has now. `whole`: pods that HAMi did not place get whole GPUs.

        `kubelet` says which pods the kubelet knows. `kept` is called when a failure could not be undone: undo_failed()
        has to be called until it is. `patience`: how long it may take to know for which pod the kubelet asks.
        """
        self._cluster, self._dirs, self._control = cluster, dirs, control
        self._states, self._devices, self._whole, self._count = states, devices, whole, count
        self._kubelet, self._patience, self._clock = kubelet, patience, clock
        self._turn = asyncio.Lock()
        self._running: set[asyncio.Task[Any] | None] = set()
        self._later: set[asyncio.Task[None]] = set()
        self._tell = OnChange(log)
        self._asker: AllocatingPod | None = None  # the pod that is served now; no other can be meant
        self._served: deque[_Served] = deque(maxlen=_REMEMBERED)
        self._lost: list[_Served] = []  # that did not reach the kubelet
        self._answered: set[tuple[PodUID, str]] = set()  # containers that have their devices, while their pods exist
        self._refused: set[PodUID] = set()  # pods that got none
        self._strange: dict[tuple[str, str], UnixTime] = {}  # pods that only the kubelet knows, and since when
        self._rollbacks = Rollbacks(cluster, report=self._report, kept=kept, count=count, clock=clock)
        self.seconds = Histogram.empty(ALLOCATE_BOUNDS)
        self.allocations = 0
        self.failures: dict[str, int] = {}

    @property
    def limits(self) -> bool:
        """Whether HAMi's library is there; a change is logged."""
        there = os.path.isfile(self._control.library)
        message = (
            "HAMi's library found: containers get limits"
            if there
            else "HAMi's library is missing: containers share GPUs by time only, without limits"
        )
        level = logging.INFO if there else logging.WARNING
        self._tell.tell("library", there, level=level, message=message, library=self._control.library)
        return there

    async def allocate(self, ids: Sequence[str]) -> Injection:
        """What the next container gets; AllocateFailed, or another of our errors."""
        began, task = time.perf_counter(), asyncio.current_task()
        self._running.add(task)
        try:
            async with self._turn:
                return await self._counted(ids)
        finally:
            self._running.discard(task)
            self.seconds = self.seconds.with_one(time.perf_counter() - began)

    def unanswered(self, injection: Injection) -> None:
        """Keep an answer that did not reach the kubelet: the pod's annotation has nothing left for that container."""
        self._lost += [one for one in self._served if one.injection is injection]

    async def prefer(self, available: Sequence[str], required: Sequence[str], size: int) -> tuple[str, ...]:
        """The ids of the GPUs or MIG instances that the scheduler assigned, as far as they are available."""
        assigned: tuple[DeviceUUID, ...] = ()
        with suppress(ScopeError, TimeoutError):
            async with asyncio.timeout(_PREFER_WITHIN):
                asker = await self._look(size, await self._cluster.pods())
            if asker is not None and asker.segment is not None:
                instances = instances_of(asker.segment, self._states())
                assigned = tuple(one.uuid for one in instances) or tuple(gpu.gpu for gpu in asker.segment.devices)
        return preferred(available, required, size, devices=self._devices(), assigned=assigned)

    async def undo_failed(self) -> bool:
        """Undo failures that could not be undone when they happened; whether none is left."""
        for _ in range(self._rollbacks.waiting):
            async with self._turn:  # one of its pods may be served again
                if not await self._rollbacks.retry():
                    break
        return not self._rollbacks.waiting

    async def drain(self) -> None:
        """Wait for allocations that are being served, which must not end half done; not for ever."""
        if self._running:
            _, late = await asyncio.wait({task for task in self._running if task}, timeout=_DRAIN_WITHIN)
            if late:
                log.error("allocations were not finished", extra=fields(number=len(late)))

    async def close(self) -> None:
        """Wait for allocations, and for events that are being posted."""
        await self.drain()
        if self._later:
            await asyncio.wait(self._later, timeout=_PREFER_WITHIN)

    # --- one container ------------------------------------------------------------------------------------------------

    async def _counted(self, ids: Sequence[str]) -> Injection:
        self._asker = None
        try:
            return await self._serve(ids)
        except Exception as e:
            error = e if isinstance(e, ScopeError) else AllocateFailed(f"{type(e).__name__}: {e}")
            if error is not e:
                log.exception("allocation broke", extra=fields(error_code=error.code))
            self._failed(error, ids)
            await self._take_back(error)
            if error is e:
                raise
            raise error from e

    async def _serve(self, ids: Sequence[str]) -> Injection:
        loop, conflicts = asyncio.get_running_loop(), 0
        until = loop.time() + self._patience
        while True:
            notes, pods = await self._cluster.node(), await self._cluster.pods()
            try:
                self._asker = await self._look(len(ids), pods)
            except AllocateAmbiguous:
                if loop.time() > until:
                    raise
                await asyncio.sleep(_LOOK_AGAIN)  # the kubelet says meanwhile what has become of the others
                continue
            pod = self._asker
            if pod is not None and (again := self._again(pod, count=len(ids))) is not None:
                return again
            if pod is None or not waits(pod, self._cluster.node_name):
                return await self._unassigned(ids, notes, pod)
            try:
                return await self._give(pod, notes, count=len(ids))
            except KubeConflict as e:
                conflicts += 1
                if conflicts == _TRIES:
                    raise AllocateFailed(f"the pod was changed {_TRIES} times while it was served") from e

    async def _look(self, count: int, pods: Sequence[AllocatingPod]) -> AllocatingPod | None:
        """The pod for which the kubelet asks; None if no pod wants so many. AllocateAmbiguous if several do."""
        kubelet = await self._kubelet()
        known = {pod.uid for pod in pods}
        self._answered = {one for one in self._answered if one[0] in known}
        self._refused &= known
        self._lost = [one for one in self._lost if one.pod in known]
        missed = {(one.pod, one.container) for one in self._lost}
        answered = Answered(self._answered - missed, self._refused, kubelet)
        found = askers(pods, count=count, known=answered)
        self._strange = {one: self._strange.get(one, self._clock()) for one in strangers(pods, kubelet)}
        odd = [f"{one[0]}/{one[1]}" for one, since in self._strange.items() if self._clock() - since < _LONG_KNOWN]
        placed = any(pod.node for pod in found)
        if (len(found) > 1 or (odd and found)) and (placed or not self._whole):
            names = ", ".join([f"{pod.namespace}/{pod.name}" for pod in found] + odd)
            raise AllocateAmbiguous(f"{count} devices are asked for, and any of these pods may be meant: {names[:400]}")
        return found[0] if len(found) == 1 else None

    def _again(self, pod: AllocatingPod, *, count: int) -> Injection | None:
        """The answer that a kubelet which restarted did not get; None if there is none for as many devices."""
        found = next((one for one in self._lost if one.pod == pod.uid and one.devices == count), None)
        if found is None:
            return None
        self._lost.remove(found)
        values = {"pod_uid": found.pod, "container": found.container, "node": self._cluster.node_name}
        log.info("answer is given again: the kubelet did not get it", extra=fields(**values))
        return found.injection

    async def _unassigned(self, ids: Sequence[str], notes: NodeNotes, pod: AllocatingPod | None) -> Injection:
        """Whole GPUs for a pod that HAMi did not place, if GPUs are not shared. None: it is not known for which pod."""
        owner = lock_owner(notes)
        if owner is not None and await self._cluster.pod(*owner) is None:
            await self._release(*owner, notes)
        self._asker = None
        if not self._whole or (pod is not None and pod.node):
            if pod is not None:
                self._refused.add(pod.uid)
            name = f"pod {pod.namespace}/{pod.name} has no assignment of" if pod is not None else "no pod waits for"
            raise AllocatePodUnknown(f"{name} {len(ids)} devices on node {self._cluster.node_name}")
        known = self._devices()
        for one in ids:
            if one not in known:
                raise AllocateDeviceUnknown(f"{one} is not a device of this node")
            if not known[one].healthy:
                raise AllocateDeviceUnhealthy(f"{one} is unhealthy")
        devices = visible_of(known[one] for one in ids)
        self._done_whole(pod, devices, count=len(ids))
        return visible(devices)

    async def _give(self, pod: AllocatingPod, notes: NodeNotes, *, count: int) -> Injection:
        segment, states = pod.segment, self._states()
        if segment is None:
            raise AnnotationMalformed(pod.wrong)
        if pod.forged:
            raise AllocateForged(f"pod {pod.namespace}/{pod.name}: {pod.forged}")
        if segment.container not in dict(pod.asks):
            raise AllocateCountMismatch(f"container {segment.container} requests no devices")
        check(segment, count=count, states=states)
        instances = instances_of(segment, states)
        try:
            injection = await self._prepared(pod, segment, instances)
            await self._note(pod, segment, instances)
        except Exception:
            await asyncio.to_thread(self._dirs.remove, pod.uid, segment.container)
            raise
        self._served.append(_Served(pod.uid, segment.container, count, injection))
        self._answered.add((pod.uid, segment.container))
        self._rollbacks.served(_ref(pod), notes)
        if segment.last:
            await self._release(pod.namespace, pod.name, notes)
        self._done(pod, segment, index_names([device.gpu for device in segment.devices], states))
        return injection

    async def _prepared(self, pod: AllocatingPod, segment: Segment, instances: Sequence[StaticInstance]) -> Injection:
        if instances:
            return visible([one.uuid for one in instances])
        if segment.uncontrolled or not self.limits:
            return visible([device.gpu for device in segment.devices])
        directory, region = await asyncio.to_thread(self._directory, pod, segment)
        return controlled(segment.devices, self._control, directory=directory, region=region)

    def _directory(self, pod: AllocatingPod, segment: Segment) -> tuple[str, str]:
        try:
            ensure_preload(self._control.preload, f"{self._control.hook}/libvgpu.so")
        except OSError as e:
            raise AllocateFailed(f"{self._control.preload}: {e.strerror or e}") from e
        return self._dirs.create(pod.uid, segment.container)

    async def _note(self, pod: AllocatingPod, segment: Segment, instances: Sequence[StaticInstance]) -> None:
        """Mark the container as served, and the pod as successful if it was the last one."""
        changes: dict[str, str | None] = {TO_ALLOCATE: segment.rest}
        if instances and segment.instances:
            changes[MIG_ALLOCATIONS] = named_instances(pod, segment.index, instances)
        if segment.last:
            changes[BIND_PHASE] = "success"
        await self._cluster.annotate_pod(_ref(pod), changes, version=pod.version)

    def _done(self, pod: AllocatingPod, segment: Segment, gpus: str) -> None:
        values = {"pod": f"{pod.namespace}/{pod.name}", "container": segment.container, "gpus": gpus}
        log.log(DETAIL, "allocated", extra=fields(**values))
        self.allocations += 1
        self._report_allocated(_ref(pod), gpus)

    def _done_whole(self, pod: AllocatingPod | None, devices: Sequence[DeviceUUID], *, count: int) -> None:
        """Log whole devices always, and report them to the pod if it is known: the kubelet does not name it."""
        self.allocations += 1
        gpus = index_names(devices, self._states())
        values = {"node": self._cluster.node_name, "gpus": gpus, "devices": ",".join(devices)}
        if pod is None:
            log.info("allocated whole devices", extra=fields(**values))
            return
        open_ = [name for name, number in pod.asks if number == count and (pod.uid, name) not in self._answered]
        self._answered.update((pod.uid, name) for name in open_[:1])
        values |= {"pod": f"{pod.namespace}/{pod.name}", "container": open_[0] if open_ else ""}
        log.info("allocated whole devices", extra=fields(**values))
        self._report_allocated(_ref(pod), gpus)

    def _report_allocated(self, pod: ObjectRef, gpus: str) -> None:
        note = f"Allocated {gpus} on {self._cluster.node_name}"
        self._report(pod, EventText("DeviceAllocated", note, "Normal", "Allocating"))

    async def _take_back(self, error: ScopeError) -> None:
        """Tell the scheduler that the pod failed, and let it bind others to this node."""
        if self._asker is not None:
            self._refused.add(self._asker.uid)
            await self._rollbacks.undo(error, _ref(self._asker))
        elif not isinstance(error, _NO_POD):
            await self._rollbacks.undo(error, None)

    async def _release(self, namespace: str, pod: str, notes: NodeNotes) -> None:
        try:
            await self._cluster.release(namespace, pod, notes)
        except ScopeError as e:  # the lock expires by itself after five minutes
            self._count(e)
            log.warning("node lock was not released", extra=fields(pod=f"{namespace}/{pod}", **error_fields(e)))

    def _failed(self, error: ScopeError, ids: Sequence[str]) -> None:
        self.failures[error.code] = self.failures.get(error.code, 0) + 1
        self._count(error)
        pod = self._asker
        name = f"{pod.namespace}/{pod.name}" if pod else None
        values = {"pod": name, "node": self._cluster.node_name, "requested": len(ids)}
        log.error("allocation failed", extra=fields(**values, **error_fields(error)))

    # --- events -------------------------------------------------------------------------------------------------------

    def _report(self, pod: ObjectRef, text: EventText) -> None:
        """Post an event while the kubelet goes on; one with the same text about the same pod is posted once."""
        self._afterwards(self._posted(pod, text))

    async def _posted(self, about: ObjectRef, text: EventText) -> None:
        try:
            await self._cluster.writer().report_once(about, text, name=_event_name(about, text), now=self._clock())
        except ScopeError as e:
            self._count(e)
            log.warning("event was not posted", extra=fields(event=text.reason, **error_fields(e)))

    def _afterwards(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)


def _ref(pod: AllocatingPod) -> ObjectRef:
    return ObjectRef("Pod", pod.name, pod.namespace, pod.uid)


def _event_name(about: ObjectRef, text: EventText) -> str:
    """The same for the same text about the same pod: the plugin has no right to change an event."""
    digest = hashlib.sha256("\0".join((about.uid, text.reason, text.note)).encode(errors="replace")).hexdigest()
    return f"{about.name[:200]}.{digest[:16]}"
