"""The ledger of the cluster: what follows from its nodes, pods and quotas.

An event only marks the nodes and namespaces it affects. Results are computed on request, for one node or namespace at
a time, from the current objects. So the order of events and repeated events make no difference, and a fresh list
repairs missed events.
"""

from vgpuscope.logic.cluster.node import settle_node
from vgpuscope.logic.cluster.pod_parts import PodLedgerPart, part
from vgpuscope.logic.cluster.quota import NamespaceUse, settle_namespace
from vgpuscope.logic.device_use import counts
from vgpuscope.logic.dra_joins import joined_node, joined_pod
from vgpuscope.logic.objects import ClusterObjects
from vgpuscope.model.allocation import NodeState, PodState
from vgpuscope.model.cluster import Changes, NamespaceLedger, NodeLedger
from vgpuscope.model.dra import ClaimShare
from vgpuscope.model.quantity import PodUID, Seconds


class _Wait:
    """How long a pod has held devices on a node without being bound."""

    __slots__ = ("node", "overdue", "since")

    def __init__(self, node: str) -> None:
        self.node = node
        self.since: Seconds | None = None
        self.overdue = False


class ClusterLedger(ClusterObjects):
    """The objects of a cluster and the devices that pods hold. A claim that no pod uses is a pod here."""

    def __init__(self, *, patience: Seconds = 300.0) -> None:
        super().__init__()
        self._patience = patience
        self._parts: dict[PodUID, PodLedgerPart] = {}  # a cache, filled when a node's ledger is computed
        # By node: pods that are bound or assigned to it. A dict keeps the order of the list, so sorting is cheap.
        self._at: dict[str, dict[PodUID, None]] = {}
        self._use: dict[str, NamespaceUse] = {}
        self._waits: dict[PodUID, _Wait] = {}
        self._changed_nodes: set[str] = set()
        self._changed_namespaces: set[str] = set()

    # ── events ───────────────────────────────────────────────────────────────────────────────────────────────────

    def pass_time(self, now: Seconds) -> None:
        """Mark pods that have waited too long for their binding as overdue; `now` is of a monotonic clock."""
        for wait in self._waits.values():
            if wait.since is None or now < wait.since:
                wait.since = now
            elif not wait.overdue and now - wait.since >= self._patience:
                wait.overdue = True
                self._changed_nodes.add(wait.node)

    # ── results ──────────────────────────────────────────────────────────────────────────────────────────────────

    def changed(self) -> Changes:
        """The nodes and namespaces that may have changed since the last call, deleted ones included."""
        changes = Changes(nodes=frozenset(self._changed_nodes), namespaces=frozenset(self._changed_namespaces))
        self._changed_nodes.clear()
        self._changed_namespaces.clear()
        return changes

    def node(self, name: str) -> NodeLedger | None:
        """The ledger of a node; None if the node is unknown and no pod refers to it."""
        node, uids = self.node_state(name), self._at.get(name, ())
        if node is None and not uids:
            return None
        overdue = {uid for uid in uids if (wait := self._waits.get(uid)) and wait.overdue} if self._waits else ()
        pods = [self._pods[uid] for uid in uids]
        if self._shares:
            pods = [joined_pod(pod, self._shares.get(pod.uid)) for pod in pods]
        return settle_node(name, node=node, pods=pods, overdue=overdue, part_of=self._part)

    def namespace(self, name: str) -> NamespaceLedger:
        """The ledger of a namespace; empty if no pod holds a device there and no quota limits devices."""
        use = self._use.get(name) or NamespaceUse()
        return settle_namespace(name, use=use, quotas=self._quotas.get(name, {}).values())

    def node_state(self, name: str) -> NodeState | None:
        """The latest state of a node, with the GPUs that DRA drivers publish on it."""
        node, gpus = self._nodes.get(name), self._gpus.get(name)
        return joined_node(node, gpus) if node and gpus else node

    # ── indexes ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _node_changed(self, name: str) -> None:
        self._changed_nodes.add(name)

    def _quotas_changed(self, namespace: str) -> None:
        self._changed_namespaces.add(namespace)

    def _pod_changed(self, uid: PodUID, old: PodState | None, new: PodState | None) -> None:
        share = self._shares.get(uid) if self._shares else None
        if old is not None:
            self._take_out(joined_pod(old, share))
        if new is not None:
            self._put_in(joined_pod(new, share))
        else:
            self._waits.pop(uid, None)

    def _share_changed(self, uid: PodUID, old: ClaimShare | None, new: ClaimShare | None) -> None:
        self._take_out(joined_pod(self._pods[uid], old))
        self._put_in(joined_pod(self._pods[uid], new))

    def _published_changed(self, name: str) -> None:
        if name in self._nodes:
            self._changed_nodes.add(name)

    def _exclusive_changed(self, name: str) -> None:
        """A ledger shows holders; who shares follows from them."""

    def _put_in(self, pod: PodState) -> None:
        self._wait(pod)
        if not _matters(pod):
            return
        for name in _places(pod):
            self._at.setdefault(name, {})[pod.uid] = None
            self._changed_nodes.add(name)
        if counts(pod):
            self._use.setdefault(pod.namespace, NamespaceUse()).add(pod)
            self._changed_namespaces.add(pod.namespace)

    def _take_out(self, pod: PodState) -> None:
        if not _matters(pod):
            return
        self._parts.pop(pod.uid, None)
        for name in _places(pod):
            at = self._at[name]
            at.pop(pod.uid, None)
            if not at:
                del self._at[name]
            self._changed_nodes.add(name)
        if counts(pod):
            use = self._use[pod.namespace]
            use.remove(pod)
            if not use.pods:
                del self._use[pod.namespace]
            self._changed_namespaces.add(pod.namespace)

    def _part(self, pod: PodState) -> PodLedgerPart:
        found = self._parts.get(pod.uid)
        if found is None:
            found = self._parts[pod.uid] = part(pod)
        return found

    def _wait(self, pod: PodState) -> None:
        """Start, continue or end the wait for the binding to the assigned node."""
        if not counts(pod) or pod.node:
            self._waits.pop(pod.uid, None)
        elif (wait := self._waits.get(pod.uid)) is None or wait.node != pod.place:
            self._waits[pod.uid] = _Wait(pod.place)


def _matters(pod: PodState) -> bool:
    """Whether the pod affects the ledger of a node or namespace."""
    return bool(pod.assignments or pod.instances or pod.asks or pod.claimed)


def _places(pod: PodState) -> set[str]:
    return {name for name in (pod.node, pod.assigned_node) if name}
