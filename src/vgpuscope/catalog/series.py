"""How many series a page has: a formula that follows from the table."""

from collections.abc import Iterable, Mapping

from vgpuscope.catalog.metric import Metric, Scope

AGENT_SCOPES: dict[Scope, str] = {
    "gpu": "card",
    "mig": "MIG instance",
    "container": "container on a card or instance",
    "pod": "pod on a card",
    "vgpu": "device of a HAMi region",
    "holding": "MIG instance held through HAMi",
    "source": "source",
    "node": "node",
}

CLUSTER_SCOPES: dict[Scope, str] = {
    "device": "registered device",
    "holder": "device in a container's hands",
    "instance": "MIG instance held through HAMi",
    "quota": "device resource of a namespace",
    "place": "node with devices",
    "type": "type of card",
    "finding": "thing that does not add up",
    "kind": "kind of object that is watched",
    "scheduler": "scheduler that pods with devices ask for",
    "waiting": "reason why pods of a namespace wait",
    "cluster": "cluster",
}

ANALYZER_SCOPES: dict[Scope, str] = {
    "card": "GPU or MIG instance, or pod that shares one, by gpu-oour's labels",
    "subject": "GPU or MIG instance",
    "tenant": "tenant whose own use is measured",
    "gpupod": "pod on a GPU or MIG instance",
    "group": "namespace with GPUs",
    "fleet": "fleet",
}


def series_per(scope: Scope, metrics: Iterable[Metric], families: Iterable[str]) -> int:
    """Series that one thing of this scope has at the most: where everything is measured and every alias applies."""
    on = frozenset(families)
    return sum(len(m.exposed(on)) * (m.each or 0) for m in metrics if m.scope == scope)


def most_series(counts: Mapping[Scope, int], metrics: Iterable[Metric], families: Iterable[str]) -> int:
    """Series of a page with so many things of each scope, without those that are one per distinct reason."""
    table = tuple(metrics)
    return sum(count * series_per(scope, table, families) for scope, count in counts.items())
