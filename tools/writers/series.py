"""The number of series of a page, computed from the table."""

from collections.abc import Iterable, Mapping

from vgpuscope.catalog.metric import Metric, Scope

AGENT_SCOPES: dict[Scope, str] = {
    "gpu": "GPU",
    "mig": "MIG instance",
    "container": "container on a GPU or MIG instance",
    "pod": "pod on a GPU",
    "vgpu": "device of a HAMi region",
    "holding": "MIG instance held through HAMi",
    "host": "container that holds a GPU",
    "source": "source",
    "node": "node",
}

CLUSTER_SCOPES: dict[Scope, str] = {
    "device": "registered device",
    "holder": "device held by a container",
    "instance": "MIG instance held through HAMi",
    "offer": "resource of a node whose GPUs are only counted",
    "quota": "device resource of a namespace",
    "place": "node with devices",
    "type": "GPU type",
    "finding": "finding",
    "kind": "watched kind of object",
    "scheduler": "scheduler named by pods with devices",
    "waiting": "namespace and reason of waiting pods",
    "cluster": "cluster",
}

ANALYZER_SCOPES: dict[Scope, str] = {
    "gpu-of-pod": "GPU or MIG instance, or pod that shares one, by gpu-oour's labels",
    "subject": "GPU or MIG instance",
    "tenant": "tenant whose own use is measured",
    "gpupod": "pod on a GPU or MIG instance",
    "opinion": "pod on a GPU that a language model was asked about",
    "group": "namespace with GPUs",
    "fleet": "fleet",
}

PLUGIN_SCOPES: dict[Scope, str] = {
    "offered": "GPU",
    "plugin": "node",
}
EXTENDER_SCOPES: dict[Scope, str] = {"extender-kind": "watched kind of object", "extender": "extender"}


def series_per(scope: Scope, metrics: Iterable[Metric], families: Iterable[str]) -> int:
    """The maximum number of series for one row of this scope: everything is measured and every alias applies."""
    on = frozenset(families)
    return sum(len(m.exposed(on)) * (m.each or 0) for m in metrics if m.scope == scope)


def most_series(counts: Mapping[Scope, int], metrics: Iterable[Metric], families: Iterable[str]) -> int:
    """Series of a page with this many rows of each scope, without metrics that have one series per distinct reason."""
    table = tuple(metrics)
    return sum(count * series_per(scope, table, families) for scope, count in counts.items())
