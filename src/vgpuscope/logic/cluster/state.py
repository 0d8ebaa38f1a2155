"""The state of a cluster's devices: a fold over the events of nodes, pods, quotas, slices and claims.

    state = ClusterState()
    state.apply(NodeSet(node))
    state.apply(PodSet(pod))
    state.node("gpu-1").devices[0].memory_free   # up to date: recomputed if something has changed
    state.settled_nodes()                        # the last computed ledgers: no computation

The cluster exporter feeds the events of its watches into a ClusterState. It does no I/O. The order of events and
repeated events make no difference. The objects themselves are those of logic/objects.py, as in the scheduler's state.
"""

from collections.abc import Iterator, Mapping

from vgpuscope.logic.cluster.capacity import CapacityTotals
from vgpuscope.logic.cluster.ledger import ClusterLedger
from vgpuscope.model.allocation import NodeState, PodState
from vgpuscope.model.cluster import Capacity, Changes, NamespaceLedger, NodeLedger
from vgpuscope.model.cluster_event import ClusterEvent, ObjectSet
from vgpuscope.model.quantity import PodUID, Seconds


class ClusterState:
    """Nodes, pods, quotas, slices and claims of a cluster, and what follows from them. One writer."""

    def __init__(self, *, patience: Seconds = 300.0) -> None:
        """A pod that has held devices for `patience` without being bound is overdue."""
        self._ledger = ClusterLedger(patience=patience)
        self._totals = CapacityTotals()
        self._nodes: dict[str, NodeLedger] = {}  # the last computed ledgers
        self._namespaces: dict[str, NamespaceLedger] = {}
        self._version = 0
        self._stale_nodes: set[str] = set()
        self._stale_namespaces: set[str] = set()

    # ── events ───────────────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, event: ClusterEvent) -> None:
        """Apply one event. Only the object itself is processed; ledgers are computed on request."""
        self._ledger.apply(event)

    def keeps(self, event: ObjectSet) -> bool:
        """Whether the object is stored exactly as the event has it."""
        return self._ledger.keeps(event)

    def pass_time(self, now: Seconds) -> None:
        """Mark pods that have waited too long for their binding as overdue; `now` is of a monotonic clock."""
        self._ledger.pass_time(now)

    # ── objects ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def pods(self) -> Mapping[PodUID, PodState]:
        """All pods as the API server reports them, and claims that no pod uses; a live view."""
        return self._ledger.pods

    @property
    def nodes(self) -> Mapping[str, NodeState]:
        """All nodes as the API server reports them; a live view."""
        return self._ledger.nodes

    def pod(self, uid: PodUID) -> PodState | None:
        """A pod with all devices that it holds, through its annotations and through ResourceClaims."""
        return self._ledger.pod(uid)

    @property
    def unplaced(self) -> int | None:
        """Number of DRA devices that belong to no single node; None: no driver publishes devices."""
        return self._ledger.unplaced

    # ── results, up to date ──────────────────────────────────────────────────────────────────────────────────────

    def changed(self) -> Changes:
        """The nodes and namespaces whose last computed ledger may be stale, deleted ones included."""
        self._note_changes()
        return Changes(nodes=frozenset(self._stale_nodes), namespaces=frozenset(self._stale_namespaces))

    def node(self, name: str) -> NodeLedger | None:
        """The ledger of a node; None if the node is unknown and no pod refers to it."""
        self._note_changes()
        if name in self._stale_nodes:
            self._settle_node(name)
        return self._nodes.get(name)

    def namespace(self, name: str) -> NamespaceLedger:
        """The ledger of a namespace; empty if no pod holds a device there and no quota limits devices."""
        self._note_changes()
        if name in self._stale_namespaces:
            self._settle_namespace(name)
        return self.settled_namespace(name)

    # ── results, as last computed ────────────────────────────────────────────────────────────────────────────────

    def settled_node(self, name: str) -> NodeLedger | None:
        """The last computed ledger of a node."""
        return self._nodes.get(name)

    def settled_nodes(self) -> Iterator[NodeLedger]:
        """The last computed ledgers of all nodes, sorted by name."""
        return (self._nodes[name] for name in sorted(self._nodes))

    @property
    def settled_version(self) -> int:
        """A number that is raised when the last computed ledger of a node changes: equal numbers, equal ledgers."""
        return self._version

    def settled_namespace(self, name: str) -> NamespaceLedger:
        """The last computed ledger of a namespace."""
        return self._namespaces.get(name) or NamespaceLedger(name=name)

    def capacity(self) -> Capacity:
        """All settled nodes together; a request must still fit on one of them."""
        return self._totals.cluster()

    def capacity_types(self) -> tuple[Capacity, ...]:
        """The same, for each type of GPU."""
        return self._totals.types()

    def _note_changes(self) -> None:
        changes = self._ledger.changed()
        self._stale_nodes |= changes.nodes
        self._stale_namespaces |= changes.namespaces

    def _settle_node(self, name: str) -> None:
        self._stale_nodes.discard(name)
        node = self._ledger.node(name)
        if node == self._nodes.get(name):
            return
        self._version += 1
        if node is None:
            self._nodes.pop(name, None)
            self._totals.drop(name)
        else:
            self._nodes[name] = node
            self._totals.put(node)

    def _settle_namespace(self, name: str) -> None:
        self._stale_namespaces.discard(name)
        namespace = self._ledger.namespace(name)
        if namespace.pods or namespace.quotas:
            self._namespaces[name] = namespace
        else:
            self._namespaces.pop(name, None)
