"""HAMi's lock on a node, an annotation: one pod at a time is bound to a node, until its device plugin has served it.

The lock is written only if the node has none, or over the node's resourceVersion if it replaces a void one: two writers
cannot both have it. A lock is void when it is too old, when its pod no longer exists, was given another node or is
served already, or when it cannot be read. The device plugin removes it; we remove it only if the binding that took it
fails. Who waits for a lock tries again when the watch reports a change of the node, and now and then.
"""

import logging
import random
import time
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Struct

from vgpuscope.formats.hami.annotation import BIND_PHASE, LOCK, NODE, NodeLock, decode_lock, encode_lock
from vgpuscope.formats.kube.paths import object_path
from vgpuscope.model.errors import AnnotationMalformed, KubeAbsent, KubeConflict, KubeUnreadable
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.model.verdict_words import said
from vgpuscope.model.words import Words
from vgpuscope.runtime.log import fields
from vgpuscope.sinks.kube.writer import KubeWriter
from vgpuscope.sources.kube import KubeClient

log = logging.getLogger(__name__)

_META = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_FIRST_PAUSE: Seconds = 0.1
_LONGEST_PAUSE: Seconds = 0.5
_TRIES = 8  # of a write that conflicts with the kubelet's


class NodeLocked(Exception):
    """Another pod is being bound to the node."""

    def __init__(self, words: Words) -> None:
        super().__init__(words.en)
        self.words = words


class NodeLocks:
    """Takes and releases the locks of nodes. Calls may raise KubeUnreadable or KubeUnwritten."""

    def __init__(
        self,
        api: KubeClient,
        writer: KubeWriter,
        *,
        expires: Seconds,
        changed: Callable[[str, str, Seconds], Awaitable[None]],
        wall: Callable[[], UnixTime] = time.time,
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        """`expires`: the age from which a lock is void.

        `changed` gets a node, its version, and a time; it waits until the watch reports a newer version, at most that
        long.
        """
        self._api, self._writer, self._expires, self._changed = api, writer, expires, changed
        self._wall, self._clock = wall, clock
        self._locked: dict[str, str] = {}  # node → its version when it was last locked here

    async def take(self, node: str, namespace: str, pod: str, *, until: Seconds) -> str:
        """Lock a node for a pod; the text of the lock. Raises KubeAbsent if there is no such node.

        Raises NodeLocked if another pod still has the lock at `until`, of the monotonic clock.
        """
        pause, tries = _FIRST_PAUSE, 0
        if (version := self._locked.pop(node, None)) is not None:
            await self._changed(
                node, version, _LONGEST_PAUSE
            )  # its plugin is still at work, or the watch is a little behind
        while True:
            text = encode_lock(NodeLock(self._wall(), namespace, pod))
            if version := await self._writer.annotate_new(_path(node), LOCK, text):
                self._locked[node] = version
                return text
            meta = await self._read(node)
            holder = await self._holder(meta.annotations.get(LOCK), node, (namespace, pod))
            if holder is None:
                try:
                    where, over = _path(node), meta.resource_version
                    self._locked[node] = await self._writer.annotate(where, {LOCK: text}, version=over)
                except KubeConflict:  # the kubelet writes, too
                    tries += 1
                    if tries >= _TRIES:
                        raise
                    continue
                return text
            if self._clock() + pause > until:
                raise NodeLocked(
                    said("locked-by", node, f"{holder.namespace}/{holder.pod}")
                    if holder.pod
                    else said("locked-old", node)
                )
            await self._changed(node, meta.resource_version, pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def doubt(self, node: str) -> None:
        """The lock that was taken may never be removed: the device plugin has served its pod before."""
        self._locked.pop(node, None)

    async def release(self, node: str, text: str) -> None:
        """Remove the lock if it is still this one."""
        for left in reversed(range(_TRIES)):
            try:
                meta = await self._read(node)
                if meta.annotations.get(LOCK) == text:
                    await self._writer.annotate(_path(node), {LOCK: None}, version=meta.resource_version)
            except KubeAbsent:
                return
            except KubeConflict:
                if not left:
                    raise
            else:
                self._locked.pop(node, None)
                return

    async def _holder(self, text: str | None, node: str, pod: tuple[str, str]) -> NodeLock | None:
        """The other pod that has the lock; None: it is free, void, or this pod's own."""
        if not text:
            return None
        try:
            lock = decode_lock(text)
        except AnnotationMalformed as e:
            log.warning("node lock is malformed and is ignored", extra=fields(err=str(e), error_code=e.code))
            return None
        if (lock.namespace, lock.pod) == pod or self._wall() - lock.since > self._expires:
            return None
        if lock.pod and await self._over(lock, node):
            log.info("node lock of a pod that is not being bound is ignored", extra=fields(node=node, pod=lock.pod))
            return None
        return lock

    async def _over(self, lock: NodeLock, node: str) -> bool:
        """Whether the pod of a lock is gone, has another node by now, or its binding has ended."""
        meta = await self._find(object_path("v1", "Pod", lock.pod, namespace=lock.namespace))
        if meta is None:
            return True
        return meta.annotations.get(NODE, node) != node or meta.annotations.get(BIND_PHASE) in {"success", "failed"}

    async def _read(self, node: str) -> "_Meta":
        meta = await self._find(_path(node))
        if meta is None:
            raise KubeAbsent(f"node {node} does not exist")
        return meta

    async def _find(self, path: str) -> "_Meta | None":
        found = await self._api.find(path, accept=_META)
        try:
            return None if found is None else msgspec.json.decode(found, type=_Object).metadata
        except msgspec.MsgspecError as e:
            raise KubeUnreadable(f"{path}: {e}") from e


def _path(node: str) -> str:
    return object_path("v1", "Node", node)


class _Meta(Struct, rename="camel"):
    resource_version: str
    annotations: dict[str, str] = {}


class _Object(Struct):
    metadata: _Meta
