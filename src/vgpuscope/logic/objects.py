"""The nodes, pods and quotas of a cluster: a fold over their events.

The ledger of the cluster exporter and the state of the scheduler extender are built on it. They add what follows from
the objects. They are called after an object was stored, and only if it has changed, so repeated events cost nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import assert_never

from vgpuscope.model.allocation import NodeState, PodState, QuotaState
from vgpuscope.model.cluster_event import NodeGone, NodeSet, ObjectEvent, PodGone, PodSet, QuotaGone, QuotaSet
from vgpuscope.model.quantity import PodUID


class ClusterObjects(ABC):
    """All nodes, pods and quotas as the API server reports them. One writer, the watch.

    Pods are kept only here; indexes hold their UIDs.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, NodeState] = {}
        self._pods: dict[PodUID, PodState] = {}
        self._quotas: dict[str, dict[str, QuotaState]] = {}  # by namespace and name

    @property
    def nodes(self) -> Mapping[str, NodeState]:
        """All nodes, by name; a live view."""
        return MappingProxyType(self._nodes)

    @property
    def pods(self) -> Mapping[PodUID, PodState]:
        """All pods; a live view."""
        return MappingProxyType(self._pods)

    def apply(self, event: ObjectEvent) -> None:
        """Apply one event of the watch."""
        match event:
            case PodSet(pod):
                self.set_pod(pod)
            case PodGone(uid):
                self.drop_pod(uid)
            case NodeSet(node):
                self.set_node(node)
            case NodeGone(name):
                self.drop_node(name)
            case QuotaSet(quota):
                self.set_quota(quota)
            case QuotaGone(namespace, name):
                self.drop_quota(namespace, name)
            case _:
                assert_never(event)

    def set_node(self, node: NodeState) -> None:
        """A node was added or has changed."""
        if self._nodes.get(node.name) != node:
            self._nodes[node.name] = node
            self._node_changed(node.name)

    def drop_node(self, name: str) -> None:
        """A node was deleted."""
        if self._nodes.pop(name, None) is not None:
            self._node_changed(name)

    def set_pod(self, pod: PodState) -> None:
        """A pod was added or has changed."""
        old = self._pods.get(pod.uid)
        if old != pod:
            self._pods[pod.uid] = pod
            self._pod_changed(pod.uid, old, pod)

    def drop_pod(self, uid: PodUID) -> None:
        """A pod was deleted."""
        old = self._pods.pop(uid, None)
        if old is not None:
            self._pod_changed(uid, old, None)

    def set_quota(self, quota: QuotaState) -> None:
        """A quota was added or has changed."""
        quotas = self._quotas.setdefault(quota.namespace, {})
        if quotas.get(quota.name) != quota:
            quotas[quota.name] = quota
            self._quotas_changed(quota.namespace)

    def drop_quota(self, namespace: str, name: str) -> None:
        """A quota was deleted."""
        quotas = self._quotas.get(namespace, {})
        if quotas.pop(name, None) is not None:
            if not quotas:
                del self._quotas[namespace]
            self._quotas_changed(namespace)

    @abstractmethod
    def _node_changed(self, name: str) -> None:
        """A node was added, has changed, or was deleted."""

    @abstractmethod
    def _pod_changed(self, uid: PodUID, old: PodState | None, new: PodState | None) -> None:
        """A pod was added (`old` is None), has changed, or was deleted (`new` is None)."""

    @abstractmethod
    def _quotas_changed(self, namespace: str) -> None:
        """The quotas of a namespace have changed."""
