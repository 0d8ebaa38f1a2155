"""The extender's picture of the cluster: its objects by watches, and what the extender has written itself.

A watch is behind the API server. So what the extender writes is held as an assumption until the watch has reached the
version that was written; older news of the pod is ignored until then. Versions of one API server can be compared.

ResourceSlices and ResourceClaims are watched if the API server serves them. Without the right to read them the extender
decides, too, and reports that it does not know what claims hold.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct, structs

from vgpuscope.formats.hami.seal import Seals
from vgpuscope.formats.kube import objects
from vgpuscope.formats.kube.lists import ObjectPage, WatchEvent
from vgpuscope.logic.scheduler.state import SchedulerState
from vgpuscope.model.allocation import NodeState, PodState
from vgpuscope.model.cluster_event import NodeGone, NodeSet, PodGone, PodSet
from vgpuscope.model.errors import ScopeError
from vgpuscope.model.placement import Placement, PlacementRequest
from vgpuscope.model.quantity import PodUID, Seconds
from vgpuscope.model.watch import WatchState
from vgpuscope.services.watch import WatchedKind
from vgpuscope.services.watched_kinds import DRA_KINDS, KindBuilder

log = logging.getLogger(__name__)
T = TypeVar("T")
S = TypeVar("S")

_SEEN_WITHIN: Seconds = 60.0
_RETRY = (0.5, 5.0)  # seconds: without a watch nothing is decided, so it is tried again soon


class SeenPod(Struct, frozen=True):
    """A pod as the watch reports it, and the version that the watch has reached with it."""

    pod: PodState
    version: int


class SeenNode(Struct, frozen=True):
    """The same of a node."""

    node: NodeState
    version: int


class _Written(NamedTuple):
    """An assumption: when it was made, the version that was written (None: not known), the newest ignored news."""

    at: Seconds
    version: int | None = None
    ignored: SeenPod | None = None


class Cache:
    """The state of the cluster for decisions. One thread."""

    def __init__(
        self, *, resync: Seconds, seals: Seals | None = None, clock: Callable[[], Seconds] = time.monotonic
    ) -> None:
        """With `seals`, pods hold only what was sealed."""
        self.state = SchedulerState()
        self._seals = seals
        self._written: dict[PodUID, _Written] = {}
        self._seen: dict[PodUID, int] = {}
        self._seen_nodes: dict[str, int] = {}
        self._node_news: dict[str, asyncio.Event] = {}  # of nodes for which somebody waits
        self.kinds: tuple[WatchedKind[Any], ...] = tuple(self._watched(resync, clock))
        self._optional = frozenset(kind for kind in self.kinds if kind.name in DRA_KINDS)
        self._again = {kind.name: asyncio.Event() for kind in self.kinds}

    # ── the watches ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def synced(self) -> bool:
        """Whether all kinds were listed since relist(), and are watched now."""
        return all(map(self._is_synced, self.kinds))

    @property
    def missing(self) -> tuple[str, ...]:
        """The kinds that are not synced, with the reason if there is one."""
        return tuple(
            f"{kind.name}: {kind.state().message or 'not listed yet'}"
            for kind in self.kinds
            if not self._is_synced(kind)
        )

    @property
    def forbidden(self) -> tuple[str, ...]:
        """The kinds that the extender may not read, and decides without."""
        return tuple(kind.name for kind in self.kinds if kind in self._optional and kind.forbidden)

    def _is_synced(self, kind: WatchedKind[Any]) -> bool:
        return (kind.fresh and kind.state().up) or (kind in self._optional and kind.forbidden)

    @property
    def changes(self) -> int:
        """How many changes the watches have reported."""
        return sum(kind.told for kind in self.kinds)

    def states(self) -> tuple[WatchState, ...]:
        return tuple(
            structs.replace(kind.state(), awaited=False) if kind.name in self.forbidden else kind.state()
            for kind in self.kinds
        )

    def relist(self) -> None:
        """List everything again: from now on, nothing counts that was read before."""
        for kind in self.kinds:
            kind.fresh = False
            self._again[kind.name].set()

    async def follow(
        self, kind: WatchedKind[Any], kubeconfig: str | None, failed: Callable[[ScopeError], None]
    ) -> None:
        """Watch one kind for ever; start with a list whenever relist() was called."""
        again = self._again[kind.name]
        while True:
            again.clear()
            kind.relist()
            watching = asyncio.create_task(kind.follow(kubeconfig, failed), name=f"watch of {kind.name}")
            asked = asyncio.create_task(again.wait(), name=f"relist of {kind.name}")
            try:
                await asyncio.wait({watching, asked}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (watching, asked):
                    task.cancel()
                await asyncio.gather(watching, asked, return_exceptions=True)
            if watching.done() and not watching.cancelled():
                watching.result()

    async def until_seen(self, versions: dict[PodUID, str], *, still: Callable[[], bool]) -> None:
        """Wait until the watch has reached these versions of pods, or a pod is gone, or `still` is false."""
        wanted = {uid: _number(version) for uid, version in versions.items()}
        while still() and any(self._seen.get(uid, version) < version for uid, version in wanted.items()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    def _watched(self, resync: Seconds, clock: Callable[[], Seconds]) -> Iterator[WatchedKind[Any]]:
        build = KindBuilder(self.state, resync=resync, retry=_RETRY, clock=clock)
        yield build.kind(
            "nodes",
            decoders=(_nodes_page, _node_event),
            key=lambda seen: seen.node.name,
            keep=self.see_node,
            drop=self._drop_node,
        )
        yield build.kind(
            "pods",
            decoders=(partial(_pods_page, seals=self._seals), partial(_pod_event, seals=self._seals)),
            key=lambda seen: seen.pod.uid,
            keep=self.see,
            drop=self.gone,
        )
        yield build.quotas()
        yield build.slices()
        yield build.claims()

    # ── nodes ────────────────────────────────────────────────────────────────────────────────────────────────────

    def see_node(self, seen: SeenNode) -> None:
        """The watch reports a node."""
        name = seen.node.name
        self._seen_nodes[name] = seen.version
        self.state.apply(NodeSet(seen.node))
        if (news := self._node_news.get(name)) is not None:
            news.set()

    async def node_changed(self, name: str, version: str, within: Seconds) -> None:
        """Wait until the watch has reported a newer version of the node, at most that long. One waits for a node."""
        news = self._node_news[name] = asyncio.Event()
        try:
            async with asyncio.timeout(within):
                while self._seen_nodes.get(name, 0) <= _number(version):
                    news.clear()
                    await news.wait()
        except TimeoutError:
            pass
        finally:
            del self._node_news[name]

    def _drop_node(self, name: str) -> None:
        self._seen_nodes.pop(name, None)
        self.state.apply(NodeGone(name))

    # ── pods ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def see(self, seen: SeenPod) -> None:
        """The watch reports a pod."""
        uid = seen.pod.uid
        self._seen[uid] = seen.version
        held = self._written.get(uid)
        if held is not None and not seen.pod.ended:
            if held.version is None or seen.version < held.version:
                self._written[uid] = held._replace(ignored=seen)
                return
            self._catch_up(uid)
        self.state.apply(PodSet(seen.pod))

    def gone(self, uid: PodUID) -> None:
        """The pod does not exist any more, or does not concern GPUs."""
        self._written.pop(uid, None)
        self._seen.pop(uid, None)
        self.state.apply(PodGone(uid))

    def assume(self, request: PlacementRequest, placement: Placement, now: Seconds) -> None:
        """Hold the GPUs of a placement, before it is written; `now` is of a monotonic clock."""
        self.state.assume(request, placement)
        before = self._written.get(request.uid)
        self._written[request.uid] = _Written(now, ignored=before.ignored if before else None)

    def wrote(self, uid: PodUID, version: str) -> None:
        """The assumption was written, as this version of the pod."""
        held = self._written.get(uid)
        if held is None:  # the pod was deleted meanwhile
            return
        self._written[uid] = held._replace(version=_number(version))
        if held.ignored is not None:
            self.see(held.ignored)

    def forget(self, uid: PodUID, version: str | None = None) -> None:
        """The pod holds nothing any more: its assignment was not written, or it was cleared as this version."""
        held = self._written.pop(uid, None)
        pod = self.state.pods.get(uid)
        self.state.drop_pod(uid)
        if version is not None:
            return  # the watch reports the rest
        if held is not None and held.ignored is not None:
            self.state.apply(PodSet(held.ignored.pod))
        elif pod is not None:
            self.state.apply(PodSet(pod))

    def drop_assumptions(self) -> None:
        """Another replica has decided meanwhile: only what the API server lists counts."""
        for uid in list(self._written):
            self.forget(uid)

    def sweep(self, now: Seconds) -> None:
        """Drop assumptions about pods that were deleted before the watch saw them: it would have by now."""
        if self.synced:
            for uid, held in list(self._written.items()):
                if held.version is not None and uid not in self._seen and now - held.at > _SEEN_WITHIN:
                    self.gone(uid)

    @property
    def assumed(self) -> int:
        return len(self._written)

    def _catch_up(self, uid: PodUID) -> None:
        """The watch knows at least as much as we: what it reports counts, even if others changed it meanwhile."""
        del self._written[uid]
        self.state.drop_pod(uid)


def _number(version: str) -> int:
    return int(version) if version.isdigit() else 0


def _pods_page(data: bytes, *, seals: Seals | None) -> ObjectPage[SeenPod]:
    return _seen_page(objects.decode_cluster_pods(data, seals=seals), SeenPod)


def _pod_event(line: bytes, *, seals: Seals | None) -> WatchEvent[SeenPod]:
    return _seen_event(objects.decode_cluster_pod_event(line, seals=seals), SeenPod)


def _nodes_page(data: bytes) -> ObjectPage[SeenNode]:
    return _seen_page(objects.decode_nodes(data), SeenNode)


def _node_event(line: bytes) -> WatchEvent[SeenNode]:
    return _seen_event(objects.decode_node_event(line), SeenNode)


def _seen_page(page: ObjectPage[T], seen: Callable[[T, int], S]) -> ObjectPage[S]:
    version = _number(page.resource_version)
    return ObjectPage(
        items=tuple(seen(item, version) for item in page.items),
        resource_version=page.resource_version,
        more=page.more,
        faults=page.faults,
    )


def _seen_event(event: WatchEvent[T], seen: Callable[[T, int], S]) -> WatchEvent[S]:
    item = None if event.item is None else seen(event.item, _number(event.resource_version))
    return WatchEvent(**{**structs.asdict(event), "item": item})
