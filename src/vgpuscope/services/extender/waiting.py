"""Refused pods that fit by now: kube-scheduler is told, because it would not ask again for up to five minutes.

kube-scheduler tries a refused pod again when an object of the cluster changes. It often asks before our own watch has
seen that change, and some changes it does not notice: an assignment that was cleared, a quota. A changed annotation of
the pod makes it ask again.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from vgpuscope.formats.kube.extender import PodHead
from vgpuscope.logic.scheduler.place import place
from vgpuscope.model.errors import KubeAbsent, KubeUnreadable, KubeUnwritten, ScopeError
from vgpuscope.model.placement import PlacementRequest, Policies
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.services.extender.cache import Cache
from vgpuscope.services.extender.pods import PodWriter

_MOST = 2000  # refused pods that are known
_AT_ONCE = 20  # of them looked at in one round, and
_ROUND: Seconds = 0.1  # how long a round may compute: requests of kube-scheduler wait meanwhile
_PAUSE: Seconds = 10.0  # between two signs for one pod


class _Refused(NamedTuple):
    pod: PodHead
    request: PlacementRequest
    nodes: tuple[str, ...]
    told: Seconds | None = None  # when kube-scheduler was last told


class RefusedPods:
    """The pods that were refused last, looked at again when the cluster has changed."""

    def __init__(
        self,
        cache: Cache,
        pods: PodWriter,
        *,
        policies: Policies,
        failed: Callable[[ScopeError], None] = lambda _: None,
        clock: Callable[[], Seconds] = time.monotonic,
        wall: Callable[[], UnixTime] = time.time,
    ) -> None:
        self._cache, self._pods, self._policies = cache, pods, policies
        self._failed, self._clock, self._wall = failed, clock, wall
        self._known: OrderedDict[str, _Refused] = OrderedDict()
        self._seen = -1  # changes of the cluster until the current pass
        self._left = 0  # pods that the current pass has not looked at
        self.told = 0

    def refused(self, pod: PodHead, request: PlacementRequest, nodes: Sequence[str]) -> None:
        """A pod fits on none of these nodes."""
        before = self._known.pop(pod.uid, None)
        self._known[pod.uid] = _Refused(pod, request, tuple(nodes), before.told if before else None)
        if len(self._known) > _MOST:
            self._known.popitem(last=False)

    def placed(self, uid: str) -> None:
        """The pod waits no longer."""
        self._known.pop(uid, None)

    async def look(self) -> None:
        """One round: if the cluster has changed, tell kube-scheduler of pods that fit now."""
        if self._seen != self._cache.changes:
            self._seen, self._left = self._cache.changes, len(self._known)
        spent: Seconds = 0.0
        for uid in list(self._known)[: min(_AT_ONCE, self._left)]:
            if spent > _ROUND:
                return  # the next round goes on from here
            self._left -= 1
            one = self._known.get(uid)
            if one is None:
                continue  # placed meanwhile
            began = self._clock()
            fits = self._looked_at(one)
            spent += self._clock() - began
            await asyncio.sleep(0)  # a decision over thousands of nodes takes long enough for others to wait
            if fits:
                await self._tell(one)

    def _looked_at(self, one: _Refused) -> bool:
        """Whether the pod fits by now, and kube-scheduler should be told."""
        uid = one.pod.uid
        self._known.move_to_end(uid)
        known = self._cache.state.pods.get(uid)
        if known is None or known.node or known.ended:
            self._known.pop(uid, None)
            return False
        return self._due(one) and bool(place(self._cache.state, one.request, one.nodes, policies=self._policies).node)

    def _due(self, one: _Refused) -> bool:
        return one.told is None or self._clock() - one.told > _PAUSE

    async def _tell(self, one: _Refused) -> None:
        if self._known.get(one.pod.uid) is not one:
            return  # decided again meanwhile
        self._known[one.pod.uid] = one._replace(told=self._clock())
        try:
            await self._pods.touch(one.pod, self._wall())
            self.told += 1
        except KubeAbsent:
            self._known.pop(one.pod.uid, None)
        except (KubeUnreadable, KubeUnwritten) as e:
            self._failed(e)
