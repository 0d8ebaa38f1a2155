"""The PromQL of a chart: queries over metrics of our agents and cluster exporter, for one thing or the fleet."""

from typing import NamedTuple, TypeAlias

from msgspec import Struct

from vgpuscope.catalog import agent as m
from vgpuscope.catalog import cluster
from vgpuscope.catalog.metric import Metric
from vgpuscope.formats.prom import promql
from vgpuscope.model.console.history import Quantity
from vgpuscope.model.quantity import Seconds


class ChartSubject(Struct, frozen=True, kw_only=True):
    """What a chart is about; all None: the fleet."""

    gpu_id: str | None = None
    mig: str | None = None
    node: str | None = None
    namespaces: tuple[str, ...] | None = None
    pod: str | None = None
    owner: str | None = None

    @property
    def of_pods(self) -> bool:
        return self.namespaces is not None or self.pod is not None or self.owner is not None


class _Signals(NamedTuple):
    """Metrics of use, the best first as in model.analysis.SIGNALS; `instances`: of a GPU that MIG divides."""

    whole: tuple[Metric, ...]
    instances: tuple[Metric, ...] = ()


# how samples of a step become one number of a GPU or pod, and how those of several become one
_MEAN, _SUM, _HIGHEST, _PEAK, _INTEGRAL = "mean", "sum", "highest", "peak", "integral"
_Chart: TypeAlias = tuple[_Signals | Metric, str]
# as an analysis: means of the agent's windows, which include what happened between two scrapes
_MEANS_OF_INSTANCES = (m.MIG_SM_ACTIVE_MEAN, m.MIG_ENGINE_ACTIVE_MEAN)
_PEAKS_OF_INSTANCES = (m.MIG_SM_ACTIVE_MAX, m.MIG_ENGINE_ACTIVE_MAX)
_USE = _Signals((m.GPU_SM_ACTIVE_MEAN, m.GPU_ENGINE_ACTIVE_MEAN, m.GPU_UTILIZATION_MEAN), _MEANS_OF_INSTANCES)
_HIGHEST_USE = _Signals((m.GPU_SM_ACTIVE_MAX, m.GPU_ENGINE_ACTIVE_MAX, m.GPU_UTILIZATION_MAX), _PEAKS_OF_INSTANCES)
_OF_GPUS: dict[Quantity, _Chart] = {
    "use": (_USE, _MEAN),
    "use_max": (_HIGHEST_USE, _HIGHEST),
    "memory_used": (m.GPU_MEMORY_USED, _SUM),
    "memory_max": (m.GPU_MEMORY_USED, _PEAK),
    "power": (m.GPU_POWER_MEAN, _SUM),
    "power_max": (m.GPU_POWER_MAX, _PEAK),
    "energy": (m.GPU_ENERGY, _INTEGRAL),
    "memory_allocated": (cluster.DEVICE_MEMORY_ALLOCATED, _SUM),
    "cores_allocated": (cluster.DEVICE_CORES_ALLOCATED, _MEAN),
}
_OF_INSTANCES: dict[Quantity, _Chart] = {
    "use": (_Signals(_MEANS_OF_INSTANCES), _MEAN),
    "use_max": (_Signals(_PEAKS_OF_INSTANCES), _HIGHEST),
    "memory_used": (m.MIG_MEMORY_USED, _SUM),
    "memory_max": (m.MIG_MEMORY_USED, _PEAK),
}
_OF_PODS: dict[Quantity, _Chart] = {  # in a MIG instance, use is of the instance
    "use": (_Signals((m.CONTAINER_INSTANCE_SM_MEAN, m.CONTAINER_SM_MEAN)), _MEAN),
    "use_max": (_Signals((m.CONTAINER_INSTANCE_SM_MAX, m.CONTAINER_SM_MAX)), _HIGHEST),
    "memory_used": (m.CONTAINER_MEMORY_USED, _SUM),
    "memory_max": (m.CONTAINER_MEMORY_USED, _PEAK),
    "power": (m.CONTAINER_POWER, _SUM),
    "power_max": (m.CONTAINER_POWER, _PEAK),
    "energy": (m.CONTAINER_ENERGY, _INTEGRAL),
    "memory_allocated": (cluster.HOLDER_MEMORY, _SUM),
    "cores_allocated": (cluster.HOLDER_CORES, _MEAN),
}
_OF_CLUSTER = frozenset({cluster.DEVICE_MEMORY_ALLOCATED, cluster.HOLDER_MEMORY})
_ONE_GPU, _ONE_POD = "node, gpu_uuid, mig_uuid", "node, gpu_uuid, mig_uuid, namespace, pod_uid, container"


def series_queries(of: ChartSubject, *, window: Seconds, step: Seconds) -> dict[Quantity, str]:
    """The queries for each quantity; empty if the engine cannot know the subject, as the owner of pods.

    A value is that of the `window` before it; energy is that of one `step`. In a sum, what was there for a part of the
    time in which its node was scraped counts for that part. Two scrapes of one agent are one series, so the larger of
    both is taken before GPUs are added up.
    """
    if of.owner is not None:
        return {}
    table = _OF_PODS if of.of_pods else _OF_INSTANCES if of.mig else _OF_GPUS
    alike = _ONE_POD if of.of_pods else _ONE_GPU
    matchers, within = tuple(_matchers(of)), promql.window(window)

    def each(function: str, of_each: _Signals | Metric) -> str:
        """A value for each GPU, instance or container; of a GPU that MIG divides, that of its instances."""
        signals = of_each if isinstance(of_each, _Signals) else _Signals((of_each,))
        parts = [
            f"max by ({alike}) ({function}({promql.selector(metric.name, matchers)}[{within}]))"
            for metric in signals.whole
        ]
        if signals.instances:
            joined = "max" if function == "max_over_time" else "avg"
            parts.insert(0, f"{joined} by (node, gpu_uuid) ({each(function, _Signals(signals.instances))})")
        return " or ".join(parts)

    def query(metric: _Signals | Metric, how: str) -> str:
        match how:
            case "mean":
                return f"sum({each('sum_over_time', metric)}) / sum({each('count_over_time', metric)})"
            case "sum":
                always = cluster.NODE_READY if metric in _OF_CLUSTER else m.SAMPLE_TIME
                scrapes = f"max by (node) (count_over_time({promql.selector(always.name, ())}[{within}]))"
                return f"sum({each('sum_over_time', metric)} / on (node) group_left () {scrapes})"
            case "highest":
                return f"max({each('max_over_time', metric)})"
            case "peak":  # only of one: several may have had their peaks at different times
                peaks = each("max_over_time", metric)
                return f"sum({peaks}) and (count({peaks}) == 1)"
            case _:
                return f"sum({each('rate', metric)}) * {step:g}"

    return {quantity: query(metric, how) for quantity, (metric, how) in table.items()}


def _matchers(of: ChartSubject) -> list[promql.Matcher]:
    named = {"gpu_uuid": of.gpu_id, "mig_uuid": of.mig, "node": of.node, "pod": of.pod}
    found = [promql.Matcher(label, "=", value) for label, value in named.items() if value is not None]
    if of.namespaces is not None:
        found.append(promql.one_of("namespace", of.namespaces))
    return found
