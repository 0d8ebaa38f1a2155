"""Where a pod goes: one node of the candidates and its GPUs, decided as HAMi v2.10 decides, or why there is none.

Every candidate gets a verdict. Ties of nodes are broken by name, in alphabetical order; ties of GPUs by index, the
highest first, and then by UUID, the last in alphabetical order first. HAMi breaks them at random.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from vgpuscope.logic.scheduler.node_fit import NodeRefusal, PodFit
from vgpuscope.logic.scheduler.node_info import NodeInfo
from vgpuscope.logic.scheduler.rules import Rules
from vgpuscope.logic.scheduler.state import NamespaceQuota, SchedulerState
from vgpuscope.logic.scheduler.verdicts import refused, unregistered
from vgpuscope.model.allocation import PodState
from vgpuscope.model.placement import NodeVerdict, Placement, PlacementRequest, Policies
from vgpuscope.model.quantity import PodUID

_DEFAULT = Policies()


class ClusterView(Protocol):
    """The nodes and quotas that a decision is made from: those of the state, or changed ones."""

    def node_info(self, name: str) -> NodeInfo | None: ...

    def room(self, namespace: str) -> NamespaceQuota: ...


def place(
    state: SchedulerState, request: PlacementRequest, candidates: Sequence[str], *, policies: Policies = _DEFAULT
) -> Placement:
    """The node and GPUs for a pod, or the verdicts on all candidates; the state does not change.

    What the pod itself holds is not counted, so that a second attempt does not compete with the first.
    """
    return check_nodes(state, request, candidates, policies=policies).placement()


def check_nodes(
    state: SchedulerState, request: PlacementRequest, candidates: Sequence[str], *, policies: Policies = _DEFAULT
) -> "CheckedCandidates":
    """The first half of the same: the verdicts, before the nodes that fit are ranked."""
    view: ClusterView = WhatIfCluster(state, without=(request.uid,)) if state.holds(request.uid) else state
    return _check(view, request, candidates, rules=Rules(request.selection, policies))


class WhatIfCluster:
    """Nodes and quotas as if some pods held nothing and others held GPUs. Only their nodes are computed."""

    def __init__(
        self, state: SchedulerState, *, without: Collection[PodUID] = (), also: Sequence[PodState] = ()
    ) -> None:
        self._state, self._without, self._also = state, without, also
        names = {pod.place for uid in without for pod in state.holding(uid)} | {pod.place for pod in also}
        self._node_infos = {name: state.node_info_with(name, without=without, also=also) for name in names}

    def node_info(self, name: str) -> NodeInfo | None:
        """The GPUs of a node with their usage; None for an unknown node."""
        return self._node_infos[name] if name in self._node_infos else self._state.node_info(name)

    def room(self, namespace: str) -> NamespaceQuota:
        """What the quotas of a namespace leave."""
        return self._state.room(namespace, without=self._without, also=self._also)

    def changed(self, *, without: Collection[PodUID] = (), also: Sequence[PodState] = ()) -> "WhatIfCluster":
        """The same with more changes."""
        return WhatIfCluster(self._state, without=(*self._without, *without), also=(*self._also, *also))


def place_in(view: ClusterView, request: PlacementRequest, candidates: Sequence[str], *, rules: Rules) -> Placement:
    """The same, for other nodes and quotas than those of the state."""
    return _check(view, request, candidates, rules=rules).placement()


def _check(
    view: ClusterView, request: PlacementRequest, candidates: Sequence[str], *, rules: Rules
) -> "CheckedCandidates":
    room = view.room(request.namespace)
    verdicts: list[NodeVerdict] = []
    fitting: list[NodeInfo] = []
    pod_fit = PodFit(request, rules, room)
    for name in dict.fromkeys(candidates):
        node_info = view.node_info(name)
        if node_info is None or not node_info.usable:
            verdicts.append(unregistered(name, node_info))
            continue
        refusal = pod_fit.refusal(node_info)
        if refusal is not None:
            verdicts.append(refused(node_info, refusal, rules=rules, room=room, namespace=request.namespace))
        else:
            verdicts.append(NodeVerdict(node=name, score=node_info.score))
            fitting.append(node_info)
    return CheckedCandidates(rules, pod_fit, fitting=fitting, verdicts=tuple(verdicts))


class CheckedCandidates:
    """The candidates of one pod after the checks: a verdict on each, and the nodes that fit."""

    def __init__(
        self, rules: Rules, pod_fit: PodFit, *, fitting: list[NodeInfo], verdicts: tuple[NodeVerdict, ...]
    ) -> None:
        self._rules, self._pod_fit, self._fitting, self._verdicts = rules, pod_fit, fitting, verdicts

    def best(self) -> NodeInfo | None:
        """Rank the nodes that fit; the first of them, None if there is none."""
        sign = 1 if self._rules.node_policy == "spread" else -1
        return min(self._fitting, key=lambda node_info: (sign * node_info.score, node_info.name), default=None)

    def placement(self) -> Placement:
        """The decision for the best node."""
        return self.on(self.best())

    def on(self, best: NodeInfo | None) -> Placement:
        """The decision for a node that fits; None: the refusal."""
        policy = f"{self._rules.node_policy}/{','.join(self._rules.gpu_policy)}"
        if best is None:
            return Placement(policy=policy, nodes=self._verdicts)
        gpus = self._pod_fit.choose(best)
        assert not isinstance(gpus, NodeRefusal), "the node fitted a moment ago"
        slots, cores, memory = best.terms
        return Placement(
            node=best.name,
            gpus=gpus,
            score=best.score,
            policy=policy,
            terms={"slots": 10 * slots, "cores": 10 * cores, "memory": 10 * memory},
            nodes=self._verdicts,
        )


def first_place(view: ClusterView, request: PlacementRequest, names: Sequence[str], *, rules: Rules) -> Placement:
    """The first of the nodes that fits, without verdicts: for a search that tries many placements."""
    room = view.room(request.namespace)
    pod_fit = PodFit(request, rules, room)
    for name in names:
        node_info = view.node_info(name)
        if node_info is None or not node_info.usable or pod_fit.refusal(node_info) is not None:
            continue
        gpus = pod_fit.choose(node_info)
        assert not isinstance(gpus, NodeRefusal), "the node fitted a moment ago"
        return Placement(node=name, gpus=gpus)
    return Placement()
