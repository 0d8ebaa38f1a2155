"""Ends the binding of a pod whose allocation failed: phase failed, the pod's lock released, an event with the code.

What the API server does not accept is kept, and tried again by the loop of the node.
"""

import logging
import time
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from vgpuscope.formats.hami.annotation import BIND_PHASE
from vgpuscope.formats.kube.allocating import lock_owner, locked_since
from vgpuscope.formats.kube.events import EventText
from vgpuscope.formats.kube.paths import ObjectRef
from vgpuscope.model.errors import ScopeError
from vgpuscope.model.plugin import NodeNotes, PodNotes
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.runtime.log import error_fields, fields
from vgpuscope.services.plugin.cluster import ClusterSide

log = logging.getLogger(__name__)

_MOST = 64  # failures that are kept
_LONGEST: Seconds = 600.0  # twice the time after which schedulers ignore a lock


class FailedAllocation(Struct, frozen=True, kw_only=True):
    """One allocation that failed."""

    at: UnixTime
    reason: str  # with the code
    pod: ObjectRef | None  # None: the API server failed before the pod was known


class Rollbacks:
    """The failures that are not undone yet, oldest first."""

    def __init__(
        self,
        cluster: ClusterSide,
        *,
        report: Callable[[ObjectRef, EventText], None],
        kept: Callable[[], None],
        count: Callable[[ScopeError], None],
        clock: Callable[[], UnixTime] = time.time,
    ) -> None:
        """`kept` is called when a failure has to be undone later."""
        self._cluster, self._report, self._wake, self._count, self._clock = cluster, report, kept, count, clock
        self._kept: deque[FailedAllocation] = deque(maxlen=_MOST)

    @property
    def waiting(self) -> int:
        """How many failures are not undone yet."""
        return len(self._kept)

    async def undo(self, error: ScopeError, pod: ObjectRef | None) -> None:
        """Undo a failure now, or keep it. Without a pod it is kept: the API server has just failed."""
        failure = FailedAllocation(at=self._clock(), reason=f"{error.code}: {error}", pod=pod)
        if pod is None or not await self._tried(failure):
            self._kept.append(failure)
            self._wake()

    async def retry(self) -> bool:
        """Try the oldest failure again; whether it is done with."""
        if not self._kept:
            return True
        failure = self._kept.popleft()
        if self._clock() - failure.at > _LONGEST:
            log.error("failed allocation was never undone", extra=fields(pod=_name(failure.pod), err=failure.reason))
            return True
        done = await self._tried(failure)
        if not done:
            self._kept.append(failure)  # behind the others: it may be the only one that cannot be undone
        return done

    def served(self, pod: ObjectRef, notes: NodeNotes) -> None:
        """Forget earlier failures of a pod that has got its devices: the kubelet asked again after a restart."""
        owner = lock_owner(notes) == (pod.namespace, pod.name)
        left = [one for one in self._kept if (one.pod != pod if one.pod else not owner)]
        self._kept = deque(left, _MOST)

    async def _tried(self, failure: FailedAllocation) -> bool:
        try:
            return await self._undone(failure)
        except ScopeError as e:
            self._count(e)
            values = {"pod": _name(failure.pod), **error_fields(e)}
            log.warning("failed allocation is not undone yet", extra=fields(**values))
            return False

    async def _undone(self, failure: FailedAllocation) -> bool:
        notes = await self._cluster.node()
        place = (failure.pod.namespace, failure.pod.name) if failure.pod else lock_owner(notes)
        if place is None:  # nobody waits for this node
            return True
        there = await self._cluster.pod(*place)
        if failure.pod is None and there is not None and not _failed_then(there, notes, failure.at):
            return False
        if there is not None and failure.pod is not None and there.uid != failure.pod.uid:
            return True  # another pod has its name now, and the lock is that one's
        if there is not None:
            await self._fail(ObjectRef("Pod", place[1], place[0], there.uid), there, failure)
        await self._cluster.release(*place, notes)
        return True

    async def _fail(self, pod: ObjectRef, there: PodNotes, failure: FailedAllocation) -> None:
        if there.phase != "failed":
            await self._cluster.annotate_pod(pod, {BIND_PHASE: "failed"})
            self._report(pod, EventText("DeviceAllocationFailed", failure.reason, "Warning", "Allocating"))


def _failed_then(owner: PodNotes, notes: NodeNotes, at: UnixTime) -> bool:
    """Whether the owner of the node's lock is the pod that failed: the kubelet ended it, or it had the lock by then."""
    since = locked_since(notes)
    return owner.ended or (since is not None and since <= at)


def _name(pod: ObjectRef | None) -> str | None:
    return f"{pod.namespace}/{pod.name}" if pod else None
