"""Binds a pod to the node that was chosen for it: lock the node as HAMi does, then bind and mark the pod in one write.

A binding that fails leaves nothing behind: the phase is `failed`, the assignment is cleared, a lock that this binding
took is released, and the GPUs are free again. If the API server does not answer, this is done later; until then the
GPUs stay allocated. The binding names the version of the pod that has the assignment. So a pod that was changed
meanwhile cannot be bound by it, however late it arrives; and a pod that the filter has just written need not be read.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from msgspec.structs import replace

from vgpuscope.formats.kube.extender import BindingArgs, PodHead
from vgpuscope.formats.kube.placement_request import placement_request
from vgpuscope.model.errors import (
    ExtenderStandby,
    KubeAbsent,
    KubeConflict,
    KubeUnreadable,
    KubeUnwritten,
    RequestInvalid,
    ScopeError,
)
from vgpuscope.model.placement import NodeVerdict
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.model.verdict_words import Sentence, said
from vgpuscope.services.extender.node_lock import NodeLocked, NodeLocks
from vgpuscope.services.extender.pods import FoundPod, PodWriter

FAILED, LOCKED = "SCHED_BIND_FAILED", "SCHED_NODE_LOCKED"
_TRIES = 3  # of a pod that others change meanwhile
_IN_LINE = 0.6  # of the time of a binding: how long it waits for others of its node


class BindFailed(Exception):
    """A pod was not bound: a code of docs/scheduling-codes.md, and why. `chinese`: "" if there is only English."""

    def __init__(self, code: str, message: str, chinese: str = "") -> None:
        super().__init__(message)
        self.code, self.chinese = code, chinese


def _failed(sentence: Sentence, *values: str) -> BindFailed:
    words = said(sentence, *values)
    return BindFailed(FAILED, words.en, words.zh)


class BindingRollback(NamedTuple):
    """What a failed binding has to take back."""

    args: BindingArgs
    begun: UnixTime
    gpus: bool | None = None  # whether the pod asks for GPUs; if not, nothing was written. None: it was not read yet
    assignment: str = ""  # that the binding was about
    lock: str = ""  # that it took; "": none


class _Turn:
    """The bindings to one node that wait for each other."""

    def __init__(self) -> None:
        self.lock, self.users = asyncio.Lock(), 0
        self.bound: set[str] = set()  # uids; kube-scheduler asks again for a pod if it has not waited long enough


class Binder:
    """Binds pods, several at once; pods of one node one after another."""

    def __init__(
        self,
        pods: PodWriter,
        locks: NodeLocks,
        *,
        written: Callable[[str], PodHead | None],
        overfull: Callable[[str, str], NodeVerdict | None],
        cleared: Callable[[str, str], None],
        check: Callable[[], None],
        leads: Callable[[], bool],
        sealed: Callable[[PodHead], bool] = lambda _: True,
        failed: Callable[[ScopeError], None] = lambda _: None,
        timeout: Seconds,
        patience: Seconds,
        clock: Callable[[], Seconds] = time.monotonic,
        wall: Callable[[], UnixTime] = time.time,
    ) -> None:
        """`written` gets a pod's uid, and returns the pod as this process wrote it with its assignment, if it did.

        `overfull` gets a pod's uid and node, and says which GPU is allocated beyond its capacity. `cleared` gets the
        uid and the new version of a pod whose assignment was removed. `sealed` says whether we made an assignment.
        `check` raises ExtenderStandby or ExtenderNotSynced while this replica must not bind. `patience`: how long one
        pod may keep the lock of a node while another waits for it; waiting for pods before it may take longer.
        """
        self._pods, self._locks, self._written = pods, locks, written
        self._overfull, self._cleared, self._sealed, self._leads = overfull, cleared, sealed, leads
        self._check, self._failed = check, failed
        self._timeout, self._patience = timeout, patience
        self._clock, self._wall = clock, wall
        self._nodes: dict[str, _Turn] = {}
        self.binding = 0  # pods that are being bound, or whose failed binding is being taken back
        self.undone: dict[str, BindingRollback] = {}  # by uid: what could not be taken back yet

    async def bind(self, args: BindingArgs) -> PodHead:
        """Bind the pod; raises BindFailed, after everything was taken back or queued to be."""
        self.binding += 1
        try:
            return await self._bound(args)
        finally:
            self.binding -= 1

    async def _bound(self, args: BindingArgs) -> PodHead:
        undo = [BindingRollback(args, self._wall())]
        try:
            self._check()
            async with asyncio.timeout(self._timeout):
                return await self._bind(args, undo)
        except BindFailed as e:
            error = e
        except NodeLocked as e:
            error = BindFailed(LOCKED, e.words.en, e.words.zh)
        except TimeoutError:
            error = _failed("bind-timeout", f"{self._timeout:g}")
        except ScopeError as e:
            self._failed(e)
            error = BindFailed(FAILED, f"{e.code}: {e}")
        return await self._settled(undo[-1], error)

    async def _bind(self, args: BindingArgs, undo: list[BindingRollback]) -> PodHead:
        """`undo` gets what has to be taken back, step by step."""
        pod, gpus = self._written(args.uid), True
        if pod is None or (pod.namespace, pod.name) != (args.namespace, args.name):
            pod, gpus = await self._found(args)
        undo.append(undo[-1]._replace(gpus=gpus, assignment=pod.assignment))
        if pod.node:
            return pod
        if not gpus:
            await self._pods.bind(pod, args.node)
            return pod
        self._check_assignment(args, pod)
        async with self._turn(args.node) as turn:
            if args.uid in turn.bound:
                return replace(pod, node=args.node)
            bound = await self._bind_locked(args, pod, undo)
            turn.bound.add(args.uid)
            return bound

    async def _bind_locked(self, args: BindingArgs, pod: PodHead, undo: list[BindingRollback]) -> PodHead:
        until = self._clock() + self._patience
        lock = await self._locks.take(args.node, args.namespace, args.name, until=until)
        undo.append(undo[-1]._replace(lock=lock))
        for left in reversed(range(_TRIES)):
            self._check_assignment(args, pod)
            try:
                self._check_leads()
                await self._pods.bind_assigned(pod, self._wall())
            except KubeConflict:
                if not left:
                    raise
            else:
                return pod
            pod, _ = await self._found(args)
            if pod.node:
                self._locks.doubt(args.node)
                return pod
            undo.append(undo[-1]._replace(assignment=pod.assignment))
        raise AssertionError("the last try returns or raises")

    async def settle(self) -> None:
        """Take back what earlier bindings could not."""
        for uid, undo in list(self.undone.items()):
            try:
                async with asyncio.timeout(self._timeout):
                    await self._take_back(undo)
            except (KubeUnreadable, KubeUnwritten, TimeoutError):
                continue
            if self.undone.get(uid) is undo:
                del self.undone[uid]

    async def _found(self, args: BindingArgs) -> tuple[PodHead, bool]:
        """The pod as it is now, if it can be bound to this node, and whether it asks for GPUs."""
        found = await self._pods.read(args.namespace, args.name)
        if found is None:
            raise _failed("bind-gone")
        pod = found.head
        if pod.uid != args.uid:
            raise _failed("bind-replaced")
        if pod.deleting or pod.ended:
            raise _failed("bind-ended")
        if pod.node and pod.node != args.node:
            raise _failed("bind-elsewhere", pod.node)
        try:
            return pod, placement_request(found.body) is not None
        except RequestInvalid as e:
            raise BindFailed(e.code, str(e), e.chinese) from e

    def _check_assignment(self, args: BindingArgs, pod: PodHead) -> None:
        if not pod.assigned or pod.assigned_node != args.node:
            if pod.assigned_node not in ("", args.node):
                raise _failed("bind-assigned-elsewhere", args.node, pod.assigned_node)
            raise _failed("bind-unassigned", args.node)
        if not self._sealed(pod):
            raise _failed("bind-unsealed", args.node)
        over = self._overfull(args.uid, args.node)
        if over is not None:
            raise BindFailed(over.code, over.message, over.message_zh)

    def _check_leads(self) -> None:
        if not self._leads():
            raise ExtenderStandby("this replica does not lead any more")

    @asynccontextmanager
    async def _turn(self, node: str) -> AsyncIterator[_Turn]:
        """One binding to a node at a time: the others would only wait for the lock at the API server."""
        turn = self._nodes.setdefault(node, _Turn())
        turn.users += 1
        try:
            try:
                async with asyncio.timeout(self._timeout * _IN_LINE):
                    await turn.lock.acquire()
            except TimeoutError:
                raise NodeLocked(said("locked", node)) from None
            try:
                yield turn
            finally:
                turn.lock.release()
        finally:
            turn.users -= 1
            if not turn.users:
                self._nodes.pop(node, None)

    async def _settled(self, undo: BindingRollback, error: BindFailed) -> PodHead:
        """Take everything back; if it turns out that the pod is bound after all, that is the result."""
        try:
            async with asyncio.timeout(self._timeout):
                bound = await self._take_back(undo)
        except (KubeUnreadable, KubeUnwritten, TimeoutError):
            self.undone[undo.args.uid] = undo
            raise error from None
        if bound is not None:
            return bound
        raise error

    async def _take_back(self, undo: BindingRollback) -> PodHead | None:
        """Clear what the binding left; the pod, if it is bound to the node after all."""
        args = undo.args
        if undo.gpus is None and not self._leads():
            return None  # this replica has changed nothing, and the pod belongs to the leader
        for left in reversed(range(_TRIES)):
            found = await self._pods.read(args.namespace, args.name)
            pod = found.head if found is not None and found.head.uid == args.uid else None
            if pod is not None and pod.node == args.node:
                return pod
            if found is None or pod is None or pod.node or not _is_about(undo, found):
                break  # it is gone, has no GPUs, or another decision was made meanwhile
            try:
                self._cleared(args.uid, await self._pods.clear(pod, phase="failed"))
            except KubeAbsent:
                break
            except KubeConflict:
                if not left:
                    raise
            else:
                break
        if undo.lock:
            await self._locks.release(args.node, undo.lock)
        return None


def _is_about(undo: BindingRollback, found: FoundPod) -> bool:
    """Whether what the pod has now is what the failed binding was about."""
    pod = found.head
    if undo.gpus is not None:
        return undo.gpus and pod.assignment in {"", undo.assignment}
    if not pod.assigned:
        return _asks(found)
    made = int(pod.assigned_at) if pod.assigned_at.isdecimal() else 0
    return pod.assigned_node == undo.args.node and made <= undo.begun


def _asks(found: FoundPod) -> bool:
    try:
        return placement_request(found.body) is not None
    except RequestInvalid:
        return True
