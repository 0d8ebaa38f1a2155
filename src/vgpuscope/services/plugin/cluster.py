"""This node and its pods at the API server: read, annotated, and the node's lock released."""

import logging
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from vgpuscope.formats.hami.annotation import LOCK
from vgpuscope.formats.hami.seal import Seals
from vgpuscope.formats.kube.allocating import lock_owner, locked_by_nobody
from vgpuscope.formats.kube.paths import ObjectRef, object_path
from vgpuscope.model.errors import KubeAbsent, KubeConflict, KubeUnwritten, SourceDown
from vgpuscope.model.plugin import AllocatingPod, NodeNotes, PodNotes
from vgpuscope.model.quantity import DeviceUUID, PodUID, Seconds
from vgpuscope.runtime.log import OnChange
from vgpuscope.sinks.kube.writer import KubeWriter
from vgpuscope.sources.kube import KubeClient, open_client
from vgpuscope.sources.plugin.cluster import allocating_pods, given_gpus, node_notes, pod_notes, pod_uids

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")
log = logging.getLogger(__name__)

COMPONENT = "hami-device-plugin"
_TIMEOUT: Seconds = 5.0  # of one request
_DEADLINE: Seconds = 10.0  # of one change with its retries
_LOOKS = 5  # at a node that changes between a look and a change; its kubelet writes to it all the time


class ClusterSide:
    """One client, which is made when it is first needed."""

    def __init__(self, node: str, kubeconfig: str | None, *, seals: Seals | None = None) -> None:
        """`seals` checks assignments; None: they are not sealed."""
        self.node_name = node
        self._seals = seals
        self._kubeconfig = kubeconfig
        self._client: httpx2.AsyncClient | None = None
        self._tell = OnChange(log)
        self.up: bool | None = None  # whether the last request succeeded; None: there was none

    async def node(self) -> NodeNotes:
        """The node as it is now."""
        return await self._noted(node_notes(self._api(), self.node_name))

    async def pods(self) -> tuple[AllocatingPod, ...]:
        """The pods of the node, as they are now."""
        return await self._noted(allocating_pods(self._api(), self.node_name, self._seals))

    async def given(self) -> dict[tuple[PodUID, str], frozenset[DeviceUUID]]:
        """The GPUs that the containers of the node were given, by pod UID and name."""
        return await self._noted(given_gpus(self._api(), self.node_name, self._seals))

    async def all_pods(self) -> frozenset[PodUID]:
        """All pods of the node, as they are now; KubeAbsent if there is no such node, which has no pods either."""
        await self.node()
        return await self._noted(pod_uids(self._api(), self.node_name))

    async def pod(self, namespace: str, name: str) -> PodNotes | None:
        """The pod as it is now; None if it does not exist any more."""
        return await self._noted(pod_notes(self._api(), namespace, name))

    async def annotate_node(self, annotations: Mapping[str, str | None]) -> None:
        """Set annotations of the node, and remove those that are None."""
        await self._noted(self.writer().annotate(self._node_path, annotations))

    async def annotate_pod(
        self, pod: ObjectRef, annotations: Mapping[str, str | None], *, version: str | None = None
    ) -> None:
        """Set annotations of a pod; KubeConflict if a `version` is given and the pod has another one."""
        await self._noted(self.writer().annotate(pod.path, annotations, version=version))

    async def release(self, namespace: str, pod: str, seen: NodeNotes) -> bool:
        """Remove the node's lock if it names this pod, or no pod at all; whether there was such a lock.

        `seen` is the node since the pod was bound: its lock was there before.
        """
        for look in range(_LOOKS):
            notes = await self.node() if look else seen
            if lock_owner(notes) != (namespace, pod) and not locked_by_nobody(notes):
                return False
            with suppress(KubeConflict):
                await self.writer().annotate(self._node_path, {LOCK: None}, version=notes.version)
                return True
        raise KubeUnwritten(f"the lock of node {self.node_name} could not be removed: the node changes all the time")

    def writer(self) -> KubeWriter:
        """What changes objects; it counts repeated events."""
        api = self._api()
        if self._writer is None:
            self._writer = KubeWriter(api, component=COMPONENT, instance=self.node_name, deadline=_DEADLINE)
        return self._writer

    _writer: KubeWriter | None = None

    async def close(self) -> None:
        """Close the client."""
        if self._client is not None:
            await self._client.aclose()

    @property
    def _node_path(self) -> str:
        return object_path("v1", "Node", self.node_name)

    def _api(self) -> KubeClient:
        if self._client is None:
            self._client = open_client(self._kubeconfig)
        return KubeClient(self._client, timeout=_TIMEOUT)

    async def _noted(self, request: Awaitable[T]) -> T:
        """The answer; whether the API server gave one is noted and a change of that logged."""
        try:
            found = await request
        except (KubeConflict, KubeAbsent):
            self._is(up=True, error=None)
            raise
        except (SourceDown, KubeUnwritten) as e:
            self._is(up=False, error=e)
            raise
        self._is(up=True, error=None)
        return found

    def _is(self, *, up: bool, error: SourceDown | KubeUnwritten | None) -> None:
        self.up = up
        code = error.code if error else None
        values = {"error_code": code, "err": str(error) if error else None}
        level, word = (logging.INFO, "API server up") if up else (logging.WARNING, "API server down")
        self._tell.tell("API server", (up, code), level=level, message=word, **values)
