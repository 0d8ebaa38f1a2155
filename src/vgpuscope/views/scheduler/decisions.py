"""Entries of the log of decisions → answers of the API."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from vgpuscope.model.decision_answers import AskedGpus, DecidedNode, DecisionBody
from vgpuscope.model.logged_decision import LoggedDecision, VerdictGroup
from vgpuscope.model.placement import PlacementRequest
from vgpuscope.model.scheduling_codes import telling

MOST_NODES = 50_000  # of one answer, 13 MB; ten decisions about 5,000 nodes


def decision_bodies(entries: Iterable[LoggedDecision], *, nodes: bool = True) -> list[DecisionBody]:
    """The answer. With `nodes`, the verdict on each node, as far as the answer has room: the first entries first."""
    left, found = MOST_NODES if nodes else 0, []
    for entry in entries:
        body = decision_body(entry, most=left)
        left -= len(body.nodes)
        found.append(body)
    return found


def decision_body(entry: LoggedDecision, *, most: int) -> DecisionBody:
    """One decision, with the verdicts on at most so many nodes."""
    nodes = tuple(islice(_nodes(entry.groups), most))
    return DecisionBody(
        id=entry.id,
        at=entry.at,
        verb=entry.verb,
        namespace=entry.namespace,
        pod=entry.pod,
        pod_uid=entry.pod_uid,
        outcome=entry.outcome,
        node=entry.node,
        devices=entry.devices,
        score=entry.score,
        policy=entry.policy,
        terms=entry.terms,
        nodes=nodes,
        codes=_codes(entry.groups),
        fitting=sum(len(group.nodes) for group in entry.groups if not group.code),
        nodes_omitted=entry.node_count - len(nodes),
        seconds=entry.seconds,
        asks=asks_of(entry.request),
        constraints=constraints_of(entry.request),
    )


def _codes(groups: Iterable[VerdictGroup]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for group in groups:
        if group.code:
            counts[group.code] += len(group.nodes)
    return dict(sorted(counts.items(), key=lambda item: telling(*item)))


def asks_of(request: PlacementRequest | None) -> tuple[AskedGpus, ...]:
    """What a pod requests; empty if that is not known."""
    return tuple(
        AskedGpus(
            container=one.name,
            init=one.init,
            count=one.count,
            memory=one.memory,
            percentage=one.percentage,
            cores=one.cores,
        )
        for one in (request.asks if request else ())
    )


def constraints_of(request: PlacementRequest | None) -> tuple[str, ...]:
    """The annotations that restrict the choice of GPUs, as HAMi names them."""
    if request is None:
        return ()
    found = request.selection
    values = {
        "nvidia.com/use-gputype": ",".join(found.use_types),
        "nvidia.com/nouse-gputype": ",".join(found.avoid_types),
        "nvidia.com/use-gpuuuid": ",".join(found.use_uuids),
        "nvidia.com/nouse-gpuuuid": ",".join(found.avoid_uuids),
        "nvidia.com/vgpu-mode": found.mode,
        "nvidia.com/numa-bind": "true" if found.numa_bind else "",
        "hami.io/node-scheduler-policy": found.node_policy or "",
        "hami.io/gpu-scheduler-policy": ",".join(found.gpu_policy),
    }
    return tuple(f"{name}={value}" for name, value in values.items() if value)


def _nodes(groups: Iterable[VerdictGroup]) -> Iterator[DecidedNode]:
    for group in groups:
        for node in group.nodes:
            yield DecidedNode(
                node=node,
                code=group.code,
                message=group.message,
                requested=group.requested,
                available=group.available,
                score=group.score,
                message_zh=group.message_zh,
            )
