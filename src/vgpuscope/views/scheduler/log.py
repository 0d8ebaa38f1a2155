"""Decisions → the fields of log lines."""

from collections.abc import Iterator

from vgpuscope.model.placement import NodeVerdict, Placement
from vgpuscope.views.scheduler.notes import shown_score


def assigned_fields(pod: str, placement: Placement) -> dict[str, object]:
    """A pod that was assigned to a node."""
    fitting = sum(1 for one in placement.nodes if not one.code)
    return {
        "pod": pod,
        "node": placement.node,
        "gpus": ",".join(f"{one.uuid}:{one.memory}MB:{one.cores}%" for one in placement.gpus),
        "score": shown_score(placement.score, placement.policy),
        "policy": placement.policy,
        "fit": fitting,
        "refused": len(placement.nodes) - fitting,
    }


def refused_fields(pod: str, verdict: NodeVerdict | None, nodes: int) -> dict[str, object]:
    """A pod that no node can take: the verdict that stands for all."""
    return {
        "error_code": verdict.code if verdict else "SCHED_NO_NODES",
        "pod": pod,
        "node": verdict.node if verdict else None,
        "requested": verdict.requested or None if verdict else None,
        "available": verdict.available or None if verdict else None,
        "err": verdict.message or verdict.reason if verdict else "no nodes were given",
        "nodes": nodes,
    }


def verdict_fields(pod: str, placement: Placement) -> Iterator[dict[str, object]]:
    """One line for each node."""
    for one in placement.nodes:
        values: dict[str, object] = {"pod": pod, "node": one.node}
        if one.code:
            values |= {"error_code": one.code, "reason": one.reason, "err": one.message}
        else:
            values |= {"score": round(one.score or 0.0, 4)}
        yield values


def gpu_fields(pod: str, placement: Placement) -> Iterator[dict[str, object]]:
    """One line for each GPU that was given, and one for the terms of the score."""
    for one in placement.gpus:
        yield {
            "pod": pod,
            "node": placement.node,
            "container": one.container,
            "gpu": one.uuid,
            "memory": f"{one.memory}MB",
            "cores": f"{one.cores}%",
            "profile": one.profile or None,
        }
    if placement.terms:
        yield {"pod": pod, "node": placement.node, **{name: round(term, 4) for name, term in placement.terms.items()}}
