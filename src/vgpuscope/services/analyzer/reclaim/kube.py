"""The Kubernetes API in taking GPUs back: what it knows of workloads with a case, and what is changed there.

Objects are read when a case needs them, a limited number at a time, and again immediately before each call. What was
read is forgotten after a while: then the pod is unknown, and nothing is done about it.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from vgpuscope.config import Config
from vgpuscope.logic.reclaim import annotations, targets
from vgpuscope.logic.reclaim.brakes import WorkloadFacts
from vgpuscope.model.errors import CallFailed, KubeForbidden, KubeObjectUnreadable, KubeUnreadable
from vgpuscope.model.kube_object import KubeObject, KubePod
from vgpuscope.model.quantity import PodUID, Seconds, UnixTime
from vgpuscope.model.reclaim import Call, PodFacts, ReclaimTarget, Signal, Workload
from vgpuscope.runtime.log import OnChange, error_fields
from vgpuscope.services.analyzer.reclaim.calls import CHANGE_WITHIN, ClusterChange
from vgpuscope.services.analyzer.reclaim.dependencies import CallResult, KubeState
from vgpuscope.sinks.kube.reclaimer import ChangeReason, KubeReclaimer
from vgpuscope.sinks.kube.writer import KubeWriter
from vgpuscope.sources.kube import KubeClient, open_client
from vgpuscope.sources.reclaim.objects import ObjectReader

if TYPE_CHECKING:
    import httpx2

log = logging.getLogger(__name__)

_REQUEST: Seconds = 4.0  # of one request with its retries; a change is two of them, and an event
_WITHIN: Seconds = 20.0  # for all that is read before a tick
_AT_ONCE = 8
_MOST = 200  # workloads that are read before one tick, those that were read longest ago first
_KEPT: Seconds = 1800.0
_FRESH: Seconds = 30.0  # the age of what a change is based on
_DEEPEST = 8  # owners above each other
_COMPONENT = "vgpuscope"  # the reporter of events
_LONGEST_NAME = 80  # characters of a name of metrics in the evidence
T = TypeVar("T")


class _Read(NamedTuple):
    """What was read of one workload, and when."""

    at: UnixTime
    pod: PodFacts
    signals: tuple[Signal, ...] = ()
    queues: frozenset[str] = frozenset()


_NOTHING = _Read(0.0, PodFacts())


class _Round(NamedTuple):
    """What several workloads share in one round of reading."""

    reader: ObjectReader
    seen: Collection[PodUID]
    tasks: dict[object, "asyncio.Task[Any]"]

    async def shared(self, key: object, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Read an object that several workloads need, once."""
        if key not in self.tasks:
            self.tasks[key] = asyncio.create_task(read())
        found: T = await self.tasks[key]
        return found


class ReclaimKube:
    """Reads and changes objects through one client, which is made when it is first needed."""

    def __init__(
        self,
        config: Callable[[], Config],
        *,
        connect: Callable[[str | None], "httpx2.AsyncClient"] = open_client,
        clock: Callable[[], UnixTime] = time.time,
    ) -> None:
        self._config, self._connect, self._clock = config, connect, clock
        self._client: httpx2.AsyncClient | None = None
        self._made_for: str | None = None
        self._read: dict[PodUID, _Read] = {}
        self._down = ""
        self._told = OnChange(log)

    @property
    def state(self) -> KubeState:
        """none: not configured. down: it did not answer when it was last asked, so nobody acts."""
        if not wanted(self._config()):
            return "none"
        return "down" if self._down else "ok"

    @property
    def fault(self) -> str:
        return self._down

    # ── what is known ────────────────────────────────────────────────────────────────────────────────────────────

    def known(self, workload: Workload) -> WorkloadFacts:
        found = self._of(workload.uid)
        return WorkloadFacts(pod=found.pod, signals=found.signals)

    def queues(self, workload: Workload) -> frozenset[str]:
        """The queues that the workload's annotations name."""
        return self._of(workload.uid).queues

    def _of(self, uid: PodUID) -> _Read:
        found = self._read.get(uid, _NOTHING)
        return found if self._clock() - found.at < _KEPT else _NOTHING

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def learn(self, workloads: Sequence[Workload], *, fresh: bool, seen: Collection[PodUID]) -> None:
        """Read what concerns these workloads; `fresh`: now, or nothing is known of them."""
        if not wanted(self._config()):
            self._read.clear()
            return
        if not fresh:
            kept = {one.uid for one in workloads}
            self._read = {uid: one for uid, one in self._read.items() if uid in kept}
        due = sorted((one for one in workloads if one.uid), key=lambda one: self._of(one.uid).at)[:_MOST]
        if fresh:
            for one in due:
                self._read.pop(one.uid, None)
        try:
            if due:
                await self._learn(due, ObjectReader(self._api()), seen)
        except KubeUnreadable as e:  # the kubeconfig cannot be used
            self._note([str(e)])

    async def _learn(self, due: Sequence[Workload], reader: ObjectReader, seen: Collection[PodUID]) -> None:
        around, gate = _Round(reader, seen, {}), asyncio.Semaphore(_AT_ONCE)
        faults: list[str] = []
        answered = False

        async def one(workload: Workload) -> None:
            nonlocal answered
            async with gate:
                try:
                    self._read[workload.uid] = await self._workload(workload, around)
                    answered = True
                except KubeObjectUnreadable as e:
                    answered = True
                    self._read[workload.uid] = self._unread(str(e))
                    self._told.tell(
                        ("object", workload.uid),
                        e.code,
                        level=logging.WARNING,
                        message="not read: this workload is left alone",
                        namespace=workload.namespace,
                        pod=workload.pod,
                        **error_fields(e),
                    )
                except KubeForbidden as e:  # of this object; others may be allowed
                    answered = True
                    self._read[workload.uid] = self._unread(str(e))
                    self._told.tell("rights", str(e), level=logging.WARNING, message="not read", **error_fields(e))
                except KubeUnreadable as e:
                    faults.append(str(e))

        try:
            async with asyncio.timeout(_WITHIN), asyncio.TaskGroup() as tasks:
                for workload in due:
                    tasks.create_task(one(workload))
        except TimeoutError:  # if some were read, the API answers, and the others are read before the next tick
            if not answered:
                faults.append(f"nothing was read within {_WITHIN:g} s")
        finally:
            for task in around.tasks.values():
                task.cancel()
            await asyncio.gather(*around.tasks.values(), return_exceptions=True)
        self._note(faults)
        self._told.keep({"kube", "rights", *(("object", uid) for uid in self._read)})

    def _note(self, faults: Sequence[str]) -> None:
        self._down = faults[0] if faults else ""
        if faults:
            self._told.tell(
                "kube",
                "down",
                level=logging.WARNING,
                message="the Kubernetes API does not answer: no GPU is taken back",
                error=faults[0],
            )
        else:
            self._told.tell("kube", "up", level=logging.INFO, message="the Kubernetes API answers")

    async def _workload(self, workload: Workload, around: _Round) -> _Read:
        pod = await around.reader.pod(workload.namespace, workload.pod)
        if pod is None or pod.uid != workload.uid:
            return self._unread("no pod of this name has this UID")
        if pod.ends:
            return self._unread("the pod is ending")
        if (share := targets.unheld(pod, workload.shares)) is not None:
            return self._unread(
                f"metrics of {_cut(share.hostname)} name this pod on {_cut(share.gpu_id)}; the Kubernetes API does not "
                f"show that it holds this GPU{f' on {pod.node}' if pod.node else ''}"
            )
        owners, complete = await self._owners(workload.namespace, pod, around)
        namespace = await around.shared(workload.namespace, lambda: around.reader.namespace(workload.namespace))
        levels = [pod.notes, *(one.notes for one in owners)]
        levels += [namespace.notes] if namespace is not None else []
        now = self._clock()
        facts = PodFacts(
            read=True,
            consent=annotations.consent_of(levels),
            idle_grace=annotations.grace_of(levels),
            notify=annotations.notify_of(levels),
            priority_class=pod.priority_class,
            created=pod.created,
        )
        if self._config().reclaim.action == "scale":
            facts = await self._with_target(facts, workload, pod, owners, around, complete=complete)
        recent = self._config().activity.recent
        signals = tuple(annotations.signals_of(levels, now=now, recent=recent))
        return _Read(now, facts, signals, annotations.queues_of(levels))

    def _unread(self, fault: str) -> _Read:
        signal = Signal(name="kubernetes", active=False, detail=fault)
        return _Read(self._clock(), PodFacts(), (signal,))

    async def _owners(self, namespace: str, pod: KubePod, around: _Round) -> tuple[list[KubeObject], bool]:
        """The controllers from the nearest to the topmost, and whether that is all of them."""
        owners: list[KubeObject] = []
        above = pod.controller
        while above is not None and len(owners) < _DEEPEST:
            found = await around.shared((namespace, above), partial(around.reader.owner, namespace, above))
            if found is None:
                return owners, False
            owners.append(found)
            above = found.controller
        return owners, above is None

    async def _with_target(
        self,
        facts: PodFacts,
        workload: Workload,
        pod: KubePod,
        owners: Sequence[KubeObject],
        around: _Round,
        *,
        complete: bool,
    ) -> PodFacts:
        """What would be changed, and every pod that this would end. The version is older than the list of pods."""
        chosen = targets.chosen(pod, owners, complete=complete)
        if chosen is None or chosen.target.kind not in self._config().kube.kinds:
            return facts
        target, namespace = chosen.target, workload.namespace
        peers: tuple[PodUID, ...] = (pod.uid,)
        if chosen.selector:
            read = partial(around.reader.pods, namespace, chosen.selector)
            pods = await around.shared((namespace, chosen.selector), read)
            if targets.has_no_template(target) and not await self._all_proven(target, namespace, pods, around):
                return facts
            peers = targets.peers(pods, {*around.seen, pod.uid})
            scalers = await around.shared(("autoscalers", namespace), lambda: around.reader.autoscalers(namespace))
            if pod.uid not in peers or targets.fought_over(target, scalers):
                return facts
        return msgspec.structs.replace(facts, target=target, peers=peers, reversible=targets.reversible(target))

    async def _all_proven(self, target: ReclaimTarget, namespace: str, pods: Iterable[KubePod], around: _Round) -> bool:
        """Whether every pod that carries the label of the target is controlled by it."""
        for pod in pods:
            if pod.ends:
                continue
            owners, complete = await self._owners(namespace, pod, around)
            if not targets.proven(target, owners, complete=complete):
                return False
        return True

    # ── changing ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def scale(self, call: Call, *, now: UnixTime) -> CallResult:
        """Free the GPUs by the object that was looked at a moment ago."""
        order = msgspec.json.decode(call.body, type=ClusterChange)
        found = self._of(order.pod_uid)
        target = found.pod.target
        if target is None or target.uid != order.target.uid or self._clock() - found.at > _FRESH:
            raise CallFailed(f"{order.target} was replaced, or could not be read in the last {_FRESH:g} s")
        mark = await _in_time(self._reclaimer().stop(target, _why(call, order), now=now))
        return CallResult(msgspec.json.encode(mark).decode())

    async def restore(self, call: Call, *, now: UnixTime) -> CallResult:
        order = msgspec.json.decode(call.body, type=ClusterChange)
        hands = self._reclaimer()
        mark = await _in_time(hands.restore(order.target, _why(call, order), earlier=order.earlier, now=now))
        return CallResult(msgspec.json.encode(mark).decode())

    def _reclaimer(self) -> KubeReclaimer:
        try:
            api = self._api()
        except KubeUnreadable as e:
            raise CallFailed(str(e)) from e
        writer = KubeWriter(api, component=_COMPONENT, instance=socket.gethostname(), deadline=_REQUEST)
        return KubeReclaimer(api, writer)

    def _api(self) -> KubeClient:
        """A client for the kubeconfig of this moment; KubeUnreadable if that cannot be used."""
        kubeconfig = self._config().analyzer.kubeconfig
        if self._client is None or kubeconfig != self._made_for:
            self._client, self._made_for = self._connect(kubeconfig), kubeconfig
        return KubeClient(self._client, timeout=_REQUEST)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def wanted(config: Config) -> bool:
    """Whether the settings ask for the Kubernetes API."""
    return config.kube.enabled or config.reclaim.action == "scale"


async def _in_time(change: Coroutine[Any, Any, T]) -> T:
    """A change that may have been made, and did not end in time, is made again: its key is on the object."""
    try:
        async with asyncio.timeout(CHANGE_WITHIN):
            return await change
    except TimeoutError as e:
        raise CallFailed(f"the Kubernetes API did not answer within {CHANGE_WITHIN:g} s") from e


def _cut(name: str) -> str:
    return "".join(char for char in name if char.isprintable())[:_LONGEST_NAME] or "an unknown node"


def _why(call: Call, order: ClusterChange) -> ChangeReason:
    return ChangeReason(call.key, order.namespace, order.pod, order.pod_uid, order.secret)
