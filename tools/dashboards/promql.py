"""PromQL over the table of metrics: a metric is a constant, and a label that the metric does not have is an error.

Every selector takes the variable `cluster`, and every series is merged to one for each object first, so that two
replicas of an exporter, or of Prometheus behind Thanos, do not double a sum or break a join.
"""

import re

from vgpuscope.catalog import agent, analyzer, cluster, extender, plugin
from vgpuscope.catalog.metric import Metric

METRICS: tuple[Metric, ...] = (
    *agent.METRICS,
    *cluster.METRICS,
    *analyzer.METRICS,
    *extender.METRICS,
    *plugin.METRICS,
)
WINDOW = "$__rate_interval"  # Grafana: at least four scrape intervals
RANGE = "$__range"  # Grafana: the time range that is shown

SERVICES = (
    # first: the cluster exporter has estimates under the same names, and leaves them to the extender where one runs
    ("scheduler extender", "调度器扩展", frozenset(m.name for m in extender.METRICS)),
    ("device plugin", "设备插件", frozenset(m.name for m in plugin.METRICS)),
    ("node agent", "agent", frozenset(m.name for m in agent.METRICS)),
    ("cluster exporter", "集群 exporter", frozenset(m.name for m in cluster.METRICS)),
    ("analyzer", "分析器", frozenset(m.name for m in analyzer.METRICS)),
)

_NAMES = frozenset(m.name for m in METRICS)
_SUFFIX = re.compile(r"_(?:bucket|sum|count)$")
_WORD = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class UnknownLabel(ValueError):
    """A query names a label that the metric does not have."""


def select(metric: Metric, suffix: str = "", **matches: str) -> str:
    """The series of a metric. "$name" is a variable of the dashboard, "!x" is "not x", a text with | is a choice."""
    _check(metric, matches)
    wanted = {"cluster": "$cluster", **matches}
    return f"{metric.name}{suffix}{{{','.join(_matcher(label, value) for label, value in wanted.items())}}}"


def _matcher(label: str, value: str) -> str:
    if value.startswith("!"):
        return f'{label}!="{value[1:]}"'
    return f'{label}{"=~" if value.startswith("$") or "|" in value else "="}"{value}"'


def labels_of(metric: Metric) -> tuple[str, ...]:
    """The labels that tell the series of one metric apart."""
    return (*(name for name, _ in metric.labels), *metric.extra)


def _check(metric: Metric, labels: object) -> None:
    own = {*labels_of(metric), "cluster"}
    for label in labels:  # type: ignore[attr-defined]
        if label not in own:
            raise UnknownLabel(f"{metric.name} has no label {label}: {', '.join(sorted(own))}")


def merged(metric: Metric, expression: str, *by: str) -> str:
    """One series for each object of an expression over this metric."""
    _check(metric, by)
    return f"max by ({', '.join(('cluster', *(by or labels_of(metric))))}) ({expression})"


def each(metric: Metric, *by: str, **matches: str) -> str:
    """The metric, one series for each object, or for each combination of `by`."""
    return merged(metric, select(metric, **matches), *by)


def rate(metric: Metric, *by: str, window: str = WINDOW, **matches: str) -> str:
    """The increase of a counter in a second, one series for each object."""
    return merged(metric, f"rate({select(metric, **matches)}[{window}])", *by)


def increase(metric: Metric, *by: str, window: str = RANGE, **matches: str) -> str:
    """The increase of a counter in a window.

    increase() does not see the first event of a series that appears with it, as series of errors do. A series that is
    younger than the window counts from 0.
    """
    series = select(metric, **matches)
    return merged(metric, f"({series} unless {series} offset {window}) or increase({series}[{window}])", *by)


def buckets(metric: Metric, *by: str, window: str, **matches: str) -> str:
    """The buckets of a histogram over a window, added up over everything but `by`."""
    series = f"increase({select(metric, '_bucket', **matches)}[{window}])"
    own = ", ".join(("cluster", *labels_of(metric), "le"))
    return f"sum by ({', '.join((*by, 'le'))}) (max by ({own}) ({series}))"


def quantile(q: float, metric: Metric, *by: str, window: str, **matches: str) -> str:
    """A quantile of a histogram over a window."""
    return f"histogram_quantile({q:g}, {buckets(metric, *by, window=window, **matches)})"


def share_below(q: float, metric: Metric, *, window: str) -> str:
    """A quantile of a histogram without labels over all targets: quantiles do not change if a target counts twice."""
    return f"histogram_quantile({q:g}, sum by (le) (increase({select(metric, '_bucket')}[{window}])))"


def or_zero(expression: str, proof: Metric) -> str:
    """The expression, or 0 if it has no series while its exporter reports: absence alone does not say zero."""
    return f"({expression}) or on () (0 * max({each(proof)}))"


def named(expression: str, **matches: str) -> str:
    """Series of GPUs with index and model; of two infos of one GPU, as after a reboot, one is taken."""
    on = "cluster, node, gpu_uuid"
    info = each(agent.GPU_INFO, "node", "gpu_uuid", "gpu_index", "model", **matches)
    return f"({expression}) * on ({on}) group_left (gpu_index, model) topk by ({on}) (1, {info})"


def with_labels(expression: str, on: str, copied: str, info: str) -> str:
    """The series with labels of an info metric; of several infos of one object, one is taken."""
    return f"({expression}) * on ({on}) group_left ({copied}) topk by ({on}) (1, {info})"


def shortened(expression: str, label: str, short: str) -> str:
    """Series with one more label: the beginning of a UUID, which is enough to read and fits into a legend."""
    return f'label_replace({expression}, "{short}", "$1", "{label}", "([A-Z]+-.{{8}}).*")'


def metrics_in(expression: str) -> tuple[str, ...]:
    """The metrics of the table that an expression reads, in order, without the suffixes of histograms."""
    words = (_SUFFIX.sub("", word) if word not in _NAMES else word for word in _WORD.findall(expression))
    return tuple(dict.fromkeys(word for word in words if word in _NAMES))
