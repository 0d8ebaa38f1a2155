"""What if: where the replicas of a pod would go, or why one does not fit and what would make it fit.

Nothing is created or held. The answer is about the cluster of this moment.
"""

from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from vgpuscope.knowledge.hami_reasons import CORES_SHORT, MEMORY_SHORT, QUOTA_NOT_FIT, TOO_FEW_GPUS
from vgpuscope.logic.scheduler.node_fit import NodeRefusal, fit_pod
from vgpuscope.logic.scheduler.place import ClusterView, WhatIfCluster, place_in
from vgpuscope.logic.scheduler.rearrange import pods_to_end, pods_to_move
from vgpuscope.logic.scheduler.remedies import UnplacedPod, never, relaxed, smaller
from vgpuscope.logic.scheduler.rules import Rules
from vgpuscope.logic.scheduler.state import NamespaceQuota, SchedulerState
from vgpuscope.logic.scheduler.verdicts import primary
from vgpuscope.model.fit import FitReport, NodeLack, Remedy, ReplicaPlace
from vgpuscope.model.placement import NodeVerdict, PlacementRequest, Policies
from vgpuscope.model.quantity import PodUID

_DEFAULT = Policies()
_MOST_REPLICAS = 10_000
_MOST_LACKS = 20  # nodes with the smallest lack that are listed


def fit(
    state: SchedulerState,
    request: PlacementRequest,
    *,
    replicas: int = 1,
    policies: Policies = _DEFAULT,
    candidates: Sequence[str] | None = None,
    idle: Collection[PodUID] = (),
    expired: Callable[[], bool] = never,
) -> FitReport:
    """Where each replica would go, and for the first that does not fit: the verdicts, the lacks and the remedies.

    `candidates` are all nodes unless given; `idle` are pods that may be ended. What the pod holds itself is free. Once
    `expired` is true, the report has what was found so far, and says that it was cut.
    """
    names = sorted(state.nodes) if candidates is None else list(dict.fromkeys(candidates))
    rules = Rules(request.selection, policies)
    filled = state.copy()  # each replica is applied to it, so that only its own node is computed again
    filled.drop_pod(request.uid)
    places: list[ReplicaPlace] = []
    refused: tuple[UnplacedPod, tuple[NodeVerdict, ...]] | None = None
    cut = False
    for replica in range(min(replicas, _MOST_REPLICAS)):
        if cut := bool(places) and expired():
            break
        found = place_in(filled, request, names, rules=rules)
        if not found.node:
            refused = UnplacedPod(state, WhatIfCluster(filled), request, names, policies, expired=expired), found.nodes
            break
        places.append(ReplicaPlace(replica=replica, node=found.node, gpus=found.gpus, score=found.score))
        filled.assume(replace(request, uid=f"{request.uid}#{replica}"), found)
    report = FitReport(
        namespace=request.namespace,
        name=request.name,
        replicas=replicas,
        fitting=len(places),
        places=tuple(places),
        policy=f"{rules.node_policy}/{','.join(rules.gpu_policy)}",
        cut=cut,
    )
    return report if refused is None else _explained(report, *refused, idle)


def _explained(
    report: FitReport, question: UnplacedPod, verdicts: tuple[NodeVerdict, ...], idle: Collection[PodUID]
) -> FitReport:
    """The report with the reasons why the next replica does not fit, and what would make it fit."""
    ended, cut_ended = pods_to_end(question, idle)
    moved, cut_moved = pods_to_move(question)
    remedies: list[Remedy] = [*smaller(question), *relaxed(question), *ended, *moved]
    return replace(
        report,
        nodes=verdicts,
        lacks=_lacks(question, verdicts),
        remedies=tuple(remedies),
        cut=cut_ended or cut_moved,
    )


def _lacks(question: UnplacedPod, verdicts: tuple[NodeVerdict, ...]) -> tuple[NodeLack, ...]:
    """What the nodes lack that come closest; nodes that lack something else than an amount come last."""
    room = question.view.room(question.request.namespace)
    found = [_lack(question, question.view, one, room=room) for one in verdicts]
    return tuple(sorted(found, key=_distance)[:_MOST_LACKS])


def _distance(lack: NodeLack) -> tuple[bool, int, int, int, str]:
    none = lack.memory is None and lack.cores is None and lack.gpus is None
    return none, lack.gpus or 0, lack.memory or 0, lack.cores or 0, lack.node


def _lack(question: UnplacedPod, view: ClusterView, verdict: NodeVerdict, *, room: NamespaceQuota) -> NodeLack:
    node_info = view.node_info(verdict.node)
    found = (
        fit_pod(node_info, question.request, question.rules, room)
        if node_info is not None and node_info.usable
        else None
    )
    memory = cores = gpus = None
    if isinstance(found, NodeRefusal):
        reason = primary(found.counts)
        if reason == MEMORY_SHORT and found.memory is not None:
            memory = found.memory[1] - found.memory[0]
        elif reason == CORES_SHORT and found.cores is not None:
            cores = min(found.ask.cores, 100) - found.cores
        if reason != QUOTA_NOT_FIT:  # then it is not the node that lacks something
            gpus = found.ask.count - (found.total if reason == TOO_FEW_GPUS else found.fitting)
    return NodeLack(
        node=verdict.node,
        code=verdict.code,
        message=verdict.message,
        message_zh=verdict.message_zh,
        memory=memory,
        cores=cores,
        gpus=gpus,
    )
