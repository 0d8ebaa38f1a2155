"""The nodes, pods, quotas, slices and claims of a cluster: a fold over their events.

The ledger of the cluster exporter and the state of the scheduler extender are built on it. They add what follows from
the objects. They are called after an object was stored, and only if it has changed, so repeated events cost nothing.

ResourceSlices and ResourceClaims add GPUs to nodes and shares of GPUs to pods. A cluster without them has no index.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import assert_never

from msgspec import structs

from vgpuscope.logic.dra_index import DraIndex
from vgpuscope.logic.dra_joins import joined_pod
from vgpuscope.model.allocation import NodeState, PodState, QuotaState, RegisteredDevice
from vgpuscope.model.cluster_event import (
    ClaimGone,
    ClaimSet,
    ClusterEvent,
    DraEvent,
    NodeGone,
    NodeSet,
    ObjectSet,
    PodGone,
    PodSet,
    QuotaGone,
    QuotaSet,
    SliceGone,
    SliceSet,
)
from vgpuscope.model.dra import ClaimShare, ExclusiveHolds
from vgpuscope.model.quantity import PodUID


def as_given(before: PodState | None, now: PodState) -> PodState:
    """The pod with what it was given, where assignments are sealed: that does not change once a pod is bound.

    Who empties or rewrites the annotations of a running pod, also with an older seal of it, changes nothing.
    """
    if before is None or before.sealed is None or not before.assignments or not before.node:
        return now
    if now.ended or now.node != before.node or (now.sealed and now.assignments == before.assignments):
        return now
    kept = structs.replace(now, assignments=before.assignments, instances=before.instances, sealed=before.sealed)
    claimed = now.claimed or (now.assignments if now.assignments != before.assignments else ())
    return structs.replace(kept, assigned_node=before.assigned_node, claimed=claimed)


class ClusterObjects(ABC):
    """All objects as the API server reports them. One writer, the watch.

    Pods are kept only here; indexes hold their UIDs. A claim that no pod uses is a pod here.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, NodeState] = {}
        self._pods: dict[PodUID, PodState] = {}
        self._quotas: dict[str, dict[str, QuotaState]] = {}  # by namespace and name
        self._dra: DraIndex | None = None  # only while there is a slice or a claim
        self._gpus: dict[str, tuple[RegisteredDevice, ...]] = {}  # by node: GPUs that DRA drivers publish there
        self._shares: dict[PodUID, ClaimShare] = {}  # devices that pods hold through ResourceClaims
        self._exclusive: dict[str, ExclusiveHolds] = {}  # by node: GPUs that claims hold and do not share

    @property
    def nodes(self) -> Mapping[str, NodeState]:
        """All nodes, by name; a live view."""
        return MappingProxyType(self._nodes)

    @property
    def pods(self) -> Mapping[PodUID, PodState]:
        """All pods, and claims that no pod uses; a live view."""
        return MappingProxyType(self._pods)

    @property
    def unplaced(self) -> int | None:
        """Number of DRA devices that belong to no single node; None: no driver publishes devices."""
        return self._dra.unplaced if self._dra is not None else None

    def pod(self, uid: PodUID) -> PodState | None:
        """The latest state of a pod, with the devices of its ResourceClaims."""
        pod = self._pods.get(uid)
        return joined_pod(pod, self._shares.get(uid)) if pod and self._shares else pod

    # ── events ───────────────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, event: ClusterEvent) -> None:
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
            case SliceSet() | SliceGone() | ClaimSet() | ClaimGone():
                self._apply_dra(event)
            case _:
                assert_never(event)

    def keeps(self, event: ObjectSet) -> bool:
        """Whether the object is stored exactly as the event has it, so that the event would change nothing."""
        match event:
            case PodSet(pod):
                return self._pods.get(pod.uid) == pod
            case NodeSet(node):
                return self._nodes.get(node.name) == node
            case QuotaSet(quota):
                return self._quotas.get(quota.namespace, {}).get(quota.name) == quota
            case SliceSet(found):
                return self._dra is not None and self._dra.slice(found.name) == found
            case ClaimSet(claim):
                return self._dra is not None and self._dra.claim(claim.uid) == claim
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
        self._store_pod(as_given(self._pods.get(pod.uid), pod))
        if self._dra is not None:
            self._dra.set_pod(pod)

    def drop_pod(self, uid: PodUID) -> None:
        """A pod was deleted."""
        self._remove_pod(uid)
        if self._dra is not None:
            self._dra.drop_pod(uid)

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

    def _store_pod(self, pod: PodState) -> None:
        old = self._pods.get(pod.uid)
        if old != pod:
            self._pods[pod.uid] = pod
            self._pod_changed(pod.uid, old, pod)

    def _remove_pod(self, uid: PodUID) -> None:
        if self._shares:
            self._set_share(uid, None)
        old = self._pods.pop(uid, None)
        if old is not None:
            self._pod_changed(uid, old, None)

    # ── slices and claims ────────────────────────────────────────────────────────────────────────────────────────

    def _apply_dra(self, event: DraEvent) -> None:
        if self._dra is None and isinstance(event, SliceGone | ClaimGone):
            return
        index = self._dra = self._dra or self._dra_index()
        match event:
            case SliceSet(found):
                index.set_slice(found)
            case SliceGone(name):
                index.drop_slice(name)
            case ClaimSet(claim):
                index.set_claim(claim)
            case ClaimGone(uid):
                index.drop_claim(uid)
        if index.empty:
            self._dra = None

    def _dra_index(self) -> DraIndex:
        made = DraIndex(
            keep_gpus=self._set_gpus,
            keep_share=self._set_share,
            keep_exclusive=self._set_exclusive,
            keep_pod=self._store_pod,
            drop_pod=self._remove_pod,
        )
        for pod in self._pods.values():
            made.set_pod(pod)
        return made

    def _set_gpus(self, name: str, gpus: tuple[RegisteredDevice, ...]) -> None:
        """DRA drivers publish these GPUs on a node; the node itself may still be unknown."""
        if self._gpus.get(name, ()) != gpus:
            self._gpus[name] = gpus
            if not gpus:
                del self._gpus[name]
            self._published_changed(name)

    def _set_share(self, uid: PodUID, share: ClaimShare | None) -> None:
        """A pod holds these devices through its ResourceClaims; None: no devices."""
        old = self._shares.get(uid)
        if uid in self._pods and old != share:
            self._shares.pop(uid, None)
            if share is not None:
                self._shares[uid] = share
            self._share_changed(uid, old, share)

    def _set_exclusive(self, name: str, holds: ExclusiveHolds) -> None:
        """Claims hold these GPUs of a node exclusively; the node itself may still be unknown."""
        if self._exclusive.get(name, {}) != holds:
            self._exclusive[name] = holds
            if not holds:
                del self._exclusive[name]
            self._exclusive_changed(name)

    # ── what follows ─────────────────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def _node_changed(self, name: str) -> None:
        """A node was added, has changed, or was deleted."""

    @abstractmethod
    def _pod_changed(self, uid: PodUID, old: PodState | None, new: PodState | None) -> None:
        """A pod was added (`old` is None), has changed, or was deleted (`new` is None). Its share stays."""

    @abstractmethod
    def _quotas_changed(self, namespace: str) -> None:
        """The quotas of a namespace have changed."""

    @abstractmethod
    def _share_changed(self, uid: PodUID, old: ClaimShare | None, new: ClaimShare | None) -> None:
        """What a pod holds through its claims has changed; before a pod is deleted, it loses its share."""

    @abstractmethod
    def _published_changed(self, name: str) -> None:
        """The GPUs that DRA drivers publish on a node have changed."""

    @abstractmethod
    def _exclusive_changed(self, name: str) -> None:
        """The GPUs of a node that claims hold exclusively have changed."""
