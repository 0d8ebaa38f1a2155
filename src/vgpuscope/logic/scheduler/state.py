"""The state of the scheduler extender: nodes, quotas and the GPUs that pods and claims hold, by events and assumptions.

An assumption is a placement that the extender has decided and that the watch has not reported yet. Its GPUs are held
from the decision on. The watch takes over when it reports the same assignment, or a binding. Until then both count: an
old assignment of the pod that still arrives cannot free the new one.

What a ResourceClaim holds of a GPU is counted apart from the pods that use the claim: a pod that is placed again, moved
or ended in a simulation does not release its claims.

The order of events and repeated events make no difference. It does no I/O.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from vgpuscope.knowledge.vendors import NVIDIA
from vgpuscope.logic.device_use import Span, counts, device_uses, device_uses_of, held, held_slices
from vgpuscope.logic.objects import ClusterObjects
from vgpuscope.logic.scheduler.node_info import AllocatedAmounts, NodeInfo
from vgpuscope.model.allocation import Assignment, HeldInstance, NodeState, PodState, QuotaState
from vgpuscope.model.dra import UNUSED, ClaimShare
from vgpuscope.model.placement import Placement, PlacementRequest
from vgpuscope.model.quantity import MIB, DeviceUUID, PodUID


class NamespaceQuota(Struct, frozen=True):
    """What the quotas of a namespace leave for NVIDIA GPUs: used and limit of memory (MiB) and of cores (percent)."""

    memory_used: int = 0
    memory_limit: int | None = None  # None: no quota limits it
    cores_used: int = 0
    cores_limit: int | None = None

    @property
    def limited(self) -> bool:
        return self.memory_limit is not None or self.cores_limit is not None

    def fits(self, memory: int, cores: int) -> bool:
        """Whether that much more stays within the limits."""
        over_memory = self.memory_limit is not None and self.memory_used + memory > self.memory_limit
        return not over_memory and (self.cores_limit is None or self.cores_used + cores <= self.cores_limit)


class SchedulerState(ClusterObjects):
    """Nodes, pods, quotas and assumptions of a cluster. One writer."""

    def __init__(self) -> None:
        super().__init__()
        self._assumed: dict[PodUID, PodState] = {}
        self._uses: dict[str, dict[DeviceUUID, AllocatedAmounts]] = {}  # by node, also of unknown GPUs and nodes
        self._at: dict[str, dict[PodUID, None]] = {}  # by node: the pods that hold GPUs there
        self._namespaces: dict[str, list[int]] = {}  # MiB and cores of NVIDIA GPUs, and the number of holders
        self._node_infos: dict[str, NodeInfo] = {}  # as last computed
        self._stale: set[str] = set()

    # ── events ───────────────────────────────────────────────────────────────────────────────────────────────────

    def set_pod(self, pod: PodState) -> None:
        """A pod was added or has changed; its assumption ends if the watch takes over."""
        super().set_pod(pod)
        assumed = self._assumed.get(pod.uid)
        if assumed is not None and (pod.ended or pod.node or _same(pod, assumed)):
            self._drop_assumed(pod.uid)

    def drop_pod(self, uid: PodUID) -> None:
        """Drop what the pod holds, assumed or assigned: it is gone, or its binding failed and was undone."""
        self._drop_assumed(uid)
        super().drop_pod(uid)

    def assume(self, request: PlacementRequest, placement: Placement) -> None:
        """Hold the GPUs of a placement from now on, before the watch reports them; replaces an older assumption."""
        assert placement.node, "a refusal holds nothing"
        self._drop_assumed(request.uid)
        known = self._pods.get(request.uid)
        if known is not None and known.ended:
            return
        made = assumed_pod(request, placement)
        if known is None or not _same(known, made):
            self._assumed[request.uid] = made
            self._count(made, 1)

    # ── reads ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def assumed(self) -> Mapping[PodUID, PodState]:
        """The assumptions that the watch has not taken over, as pods with assignments; a live view."""
        return MappingProxyType(self._assumed)

    def quotas(self, namespace: str) -> tuple[QuotaState, ...]:
        """The quotas of a namespace."""
        return tuple(self._quotas.get(namespace, {}).values())

    def holds(self, uid: PodUID) -> bool:
        """Whether the pod holds GPUs, assumed or assigned."""
        pod = self._pods.get(uid)
        return uid in self._assumed or (pod is not None and counts(pod))

    def holding(self, uid: PodUID) -> tuple[PodState, ...]:
        """The pod's assignment and its assumption, as far as they hold GPUs."""
        found = (self._pods.get(uid), self._assumed.get(uid))
        return tuple(pod for pod in found if pod is not None and counts(pod))

    def holders(self, node: str) -> tuple[PodUID, ...]:
        """The pods that hold GPUs on a node, in the order of their names."""
        found = [pod for uid in self._at.get(node, ()) for pod in self.holding(uid)[:1] if pod.phase != UNUSED]
        return tuple(pod.uid for pod in sorted(found, key=lambda pod: (pod.namespace, pod.name, pod.uid)))

    def node_info(self, name: str) -> NodeInfo | None:
        """The GPUs of a node with their usage; None for an unknown node."""
        if self._stale:
            self._settle()
        return self._node_infos.get(name)

    def node_infos(self) -> Mapping[str, NodeInfo]:
        """The same for all nodes."""
        if self._stale:
            self._settle()
        return self._node_infos

    def room(
        self, namespace: str, *, without: Collection[PodUID] = (), also: Iterable[PodState] = ()
    ) -> NamespaceQuota:
        """What the quotas of a namespace leave, if some pods held nothing and `also` held GPUs.

        Of several quotas the strictest counts.
        """
        quotas = self._quotas.get(namespace)
        if not quotas:
            return NamespaceQuota()
        memory, cores, _ = self._namespaces.get(namespace, (0, 0, 0))
        gone = [(pod, -1) for uid in without for pod in self.holding(uid)]
        for pod, sign in [*gone, *((pod, 1) for pod in also)]:
            if pod.namespace == namespace:
                more = nvidia_sums(pod)
                memory, cores = memory + sign * more[0], cores + sign * more[1]
        limits = [_strictest(quotas.values(), resource) for resource in NVIDIA.quotas]
        return NamespaceQuota(memory, limits[0], cores, limits[1])

    def node_info_with(
        self, name: str, *, without: Collection[PodUID] = (), also: Iterable[PodState] = ()
    ) -> NodeInfo | None:
        """The node as it would be if some pods held nothing and `also` held its GPUs; nothing changes here."""
        node = self._nodes.get(name)
        if node is None:
            return None
        uses = {uuid: use.copy() for uuid, use in self._uses.get(name, {}).items()}
        for pod in [pod for uid in without for pod in self.holding(uid) if pod.place == name]:
            _tally_pod(uses, pod, -1)
        for pod in also:
            if pod.place == name:
                _tally_pod(uses, pod, 1)
        return NodeInfo(node, uses, self._exclusive.get(name))

    def _settle(self) -> None:
        for name in self._stale:
            node = self._nodes.get(name)
            if node is None:
                self._node_infos.pop(name, None)
            else:
                self._node_infos[name] = NodeInfo(node, self._uses.get(name, {}), self._exclusive.get(name))
        self._stale.clear()

    def copy(self) -> "SchedulerState":
        """The state of this moment, for a long calculation beside decisions; values that never change are shared.

        It gets no more events of slices and claims: what claims hold stays held, whatever happens to the pods.
        """
        self._settle()
        made = SchedulerState()
        made._exclusive = dict(self._exclusive)
        made._nodes, made._pods, made._assumed = dict(self._nodes), dict(self._pods), dict(self._assumed)
        made._quotas = {namespace: dict(quotas) for namespace, quotas in self._quotas.items()}
        made._uses = {name: {uuid: use.copy() for uuid, use in uses.items()} for name, uses in self._uses.items()}
        made._at = {name: dict(pods) for name, pods in self._at.items()}
        made._namespaces = {namespace: list(sums) for namespace, sums in self._namespaces.items()}
        made._node_infos = dict(self._node_infos)
        return made

    def with_nodes(self, nodes: Iterable[NodeState], *, without: PodUID) -> "SchedulerState":
        """The same allocations and quotas on other nodes, without what one pod was assigned: for a simulation."""
        made = self.copy()
        made.drop_pod(without)
        made._nodes = {node.name: node for node in nodes}
        made._node_infos = {}
        made._stale = set(made._nodes)
        return made

    # ── counts ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _node_changed(self, name: str) -> None:
        self._stale.add(name)

    def _pod_changed(self, uid: PodUID, old: PodState | None, new: PodState | None) -> None:  # noqa: ARG002 - the shape of the hook
        if old is not None:
            self._count(old, -1)
        if new is not None:
            self._count(new, 1)

    def _quotas_changed(self, namespace: str) -> None:
        """Quotas are read when room() is asked."""

    def _share_changed(self, uid: PodUID, old: ClaimShare | None, new: ClaimShare | None) -> None:  # noqa: ARG002
        """What a pod holds through claims is held at the node of the devices, and counts against no quota of HAMi."""
        for share, sign in ((old, -1), (new, 1)):
            if share is not None:
                uses = self._uses_at(share.node)
                _tally(uses, share.assignments, _placements(share.instances), sign)
                self._tallied(share.node, uses)

    def _published_changed(self, name: str) -> None:
        """Only GPUs that HAMi's plugin registers are placed here."""

    def _exclusive_changed(self, name: str) -> None:
        self._stale.add(name)

    def _drop_assumed(self, uid: PodUID) -> None:
        old = self._assumed.pop(uid, None)
        if old is not None:
            self._count(old, -1)

    def _count(self, pod: PodState, sign: int) -> None:
        """Add or remove what a pod holds, at its node and in its namespace."""
        if not counts(pod):
            return
        uses = self._uses_at(pod.place)
        _tally_pod(uses, pod, sign)
        self._tallied(pod.place, uses)
        sums = self._namespaces.setdefault(pod.namespace, [0, 0, 0])
        memory, cores = nvidia_sums(pod)
        sums[0] += sign * memory
        sums[1] += sign * cores
        sums[2] += sign
        if not sums[2]:
            del self._namespaces[pod.namespace]
        at = self._at.setdefault(pod.place, {})
        if sign > 0:
            at[pod.uid] = None
        elif not any(other.place == pod.place for other in self.holding(pod.uid)):
            at.pop(pod.uid, None)
            if not at:
                del self._at[pod.place]

    def _uses_at(self, name: str) -> dict[DeviceUUID, AllocatedAmounts]:
        return self._uses.setdefault(name, {})

    def _tallied(self, name: str, uses: Mapping[DeviceUUID, AllocatedAmounts]) -> None:
        if not uses:
            del self._uses[name]
        self._stale.add(name)


def _tally_pod(uses: dict[DeviceUUID, AllocatedAmounts], pod: PodState, sign: int) -> None:
    """Add or remove what a pod holds, and whether it is known where on a MIG GPU that lies."""
    assignments, slices = held(pod), held_slices(pod)
    for device in {one.device for one in assignments} | slices.keys() if pod.phase != UNUSED else ():
        use = uses.setdefault(device, AllocatedAmounts())
        if device in slices:
            use.divided += sign
        else:
            use.undivided += sign
    _tally(uses, assignments, slices, sign)


def _tally(
    uses: dict[DeviceUUID, AllocatedAmounts],
    assignments: Sequence[Assignment],
    slices: Mapping[DeviceUUID, Sequence[Span]],
    sign: int,
) -> None:
    """Add or remove what one holder has of each device; a device that nobody holds has no entry."""
    for device_use in device_uses_of(assignments):
        use = uses.setdefault(device_use.device, AllocatedAmounts())
        use.slots += sign * device_use.slots
        use.memory += sign * (device_use.memory // MIB)
        use.cores += sign * device_use.cores
    for uuid, spans in slices.items():
        use = uses.setdefault(uuid, AllocatedAmounts())
        placed = Counter(use.placed)
        placed.update(spans) if sign > 0 else placed.subtract(spans)
        use.placed = tuple(sorted(placed.elements()))
    for uuid in {one.device for one in assignments} | slices.keys():
        if uuid in uses and not uses[uuid].held:
            del uses[uuid]


def nvidia_sums(pod: PodState) -> tuple[int, int]:
    """The memory in MiB and the cores of NVIDIA GPUs that count against the quotas of the pod's namespace."""
    found = [device_use for device_use in device_uses(pod) if device_use.vendor == NVIDIA.word]
    return sum(device_use.memory // MIB for device_use in found), sum(device_use.cores for device_use in found)


def _placements(instances: Sequence[HeldInstance]) -> dict[DeviceUUID, list[Span]]:
    """The placements of MIG instances, by GPU."""
    found: dict[DeviceUUID, list[Span]] = {}
    for one in instances:
        found.setdefault(one.device, []).append((one.start, one.size))
    return found


def _strictest(quotas: Iterable[QuotaState], resource: str) -> int | None:
    return min((quota.hard[resource] for quota in quotas if resource in quota.hard), default=None)


def assumed_pod(request: PlacementRequest, placement: Placement) -> PodState:
    """The pod as the watch will report it once the assignment is written."""
    init = {ask.index for ask in request.asks if ask.init}
    names = {ask.index: ask.name for ask in request.asks}
    return PodState(
        uid=request.uid,
        namespace=request.namespace,
        name=request.name,
        assigned_node=placement.node,
        assignments=tuple(
            Assignment(
                container_index=gpu.container,
                container=names.get(gpu.container, ""),
                init=gpu.container in init,
                vendor=NVIDIA.word,
                device=gpu.uuid,
                memory=gpu.memory * MIB,
                cores=gpu.cores,
            )
            for gpu in placement.gpus
        ),
        instances=tuple(
            HeldInstance(
                container_index=gpu.container, device=gpu.uuid, profile=gpu.profile, start=gpu.start, size=gpu.size
            )
            for gpu in placement.gpus
            if gpu.profile
        ),
    )


def _same(pod: PodState, assumed: PodState) -> bool:
    """Whether the watch reports what was assumed: the same shares and MIG instances on the same node."""
    if pod.place != assumed.place or len(pod.assignments) != len(assumed.assignments):
        return False
    return _shares(pod) == _shares(assumed) and _instances(pod) == _instances(assumed)


def _shares(pod: PodState) -> Counter[tuple[DeviceUUID, int, int]]:
    return Counter((one.device, one.memory, one.cores) for one in pod.assignments)


def _instances(pod: PodState) -> Counter[tuple[DeviceUUID, int, int]]:
    """Two instances of one profile have equal shares: only their placements tell them apart."""
    return Counter((one.device, one.start, one.size) for one in pod.instances)
