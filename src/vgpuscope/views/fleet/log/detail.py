"""What the analyzer logs beside the table: a summary of each node, and the parts of each GPU's score.

An event is a message with its fields. Events are made one by one, so that an event that is not logged is not made.
"""

from collections.abc import Collection, Iterator, Mapping

from vgpuscope.model.analysis import Analysis, GpuUse, ScoreTerm
from vgpuscope.model.quantity import MIB
from vgpuscope.views.fleet.results.results import mean

Event = tuple[str, Mapping[str, object]]

_MOST = 40  # nodes in a summary, those with the most idle GPUs first


def node_events(analysis: Analysis, *, all_nodes: bool, only: Collection[str] | None = None) -> Iterator[Event]:
    """One line for each node; in a large fleet only for some nodes, unless all are wanted. `only`: these nodes."""
    nodes: dict[str, list[GpuUse]] = {}
    for gpu in analysis.gpus:
        if only is None or gpu.hostname in only:
            nodes.setdefault(gpu.hostname, []).append(gpu)
    idle = {name: sum(gpu.verdict == "idle" for gpu in gpus) for name, gpus in nodes.items()}
    order = sorted(nodes, key=lambda name: (-idle[name], name))
    shown = order if all_nodes else order[:_MOST]
    for name in shown:
        yield "node", _node(name, nodes[name])
    if len(order) > len(shown):
        yield "nodes", {"more": len(order) - len(shown)}


def gpu_events(analysis: Analysis) -> Iterator[Event]:
    """For each GPU: its verdict, the points of each term of its score, and its tenants."""
    for gpu in analysis.gpus:
        yield "gpu", _gpu(gpu)
        yield "score", _score(gpu)
        for use in gpu.tenants:
            yield (
                "tenant",
                {
                    **_place(gpu),
                    "namespace": use.tenant.namespace,
                    "pod": use.tenant.pod,
                    "container": use.tenant.container or None,
                    "owner": use.owner or None,
                    "score": None if use.score.value is None else round(use.score.value, 1),
                    "status": use.status,
                    "verdict": use.verdict,
                    "use_class": use.use_class,
                    "util_percent": mean(use.terms, "process_sm", scale=100, digits=2),
                    "memory_mib": mean(use.terms, "mem_used", scale=1 / MIB, digits=1) if use.own else None,
                },
            )


def _node(name: str, gpus: list[GpuUse]) -> dict[str, object]:
    scores = [gpu.score.value for gpu in gpus if gpu.score.value is not None]
    verdicts = [gpu.verdict for gpu in gpus]
    return {
        "node": name or "(unknown)",
        "gpus": len({gpu.gpu_id for gpu in gpus}),
        "mig_instances": sum(bool(gpu.mig) for gpu in gpus),
        "in_use": verdicts.count("in_use"),
        "idle": verdicts.count("idle"),
        "unknown": verdicts.count("unknown"),
        "tenants": sum(len(gpu.tenants) for gpu in gpus),
        "average_score": round(sum(scores) / len(scores), 1) if scores else None,
    }


def _place(gpu: GpuUse) -> dict[str, object]:
    return {"node": gpu.hostname or None, "gpu": gpu.gpu_id, "mig": gpu.mig or None}


def _gpu(gpu: GpuUse) -> dict[str, object]:
    evidence = gpu.evidence
    return {
        **_place(gpu),
        "model": gpu.model or None,
        "status": gpu.status,
        "verdict": gpu.verdict,
        "use_class": gpu.use_class,
        "reasons": ",".join(evidence.reasons) or None,
        "signal": evidence.signal,
        "signal_mean": evidence.signal_mean,
        "signal_max": evidence.signal_max,
        "coverage": evidence.coverage,
        "samples": f"{evidence.samples} of {evidence.expected}",
        "dropped": evidence.dropped or None,
        "age_seconds": evidence.freshness,
    }


def _score(gpu: GpuUse) -> dict[str, object]:
    value = gpu.score.value
    terms: dict[str, str] = {term.name: _term(term) for term in gpu.score.terms}
    confidence = round(gpu.score.confidence, 3)
    return {**_place(gpu), "value": None if value is None else round(value, 1), "confidence": confidence, **terms}


def _term(term: ScoreTerm) -> str:
    """47.5 of 50 (95.0 %): the points of a term, the most that its weight allows, and the measured value."""
    if term.value is None or term.points is None:
        return "not measured"
    against = f" of {term.reference}" if term.reference else ""
    return f"{term.points:.1f} of {100 * term.weight:.4g} ({100 * term.value:.1f} %{against})"
