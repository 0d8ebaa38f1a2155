"""The PromQL of a chart: queries over metrics of our agents and cluster exporter, for one thing or the fleet."""

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


# quantity → metric, how samples of a step are added up, and how GPUs are
_OF_GPUS: dict[Quantity, tuple[Metric, str, str]] = {
    "use": (m.GPU_UTILIZATION, "avg_over_time", "avg"),
    "use_max": (m.GPU_UTILIZATION, "max_over_time", "max"),
    "memory_used": (m.GPU_MEMORY_USED, "avg_over_time", "sum"),
    "memory_max": (m.GPU_MEMORY_USED, "max_over_time", "sum"),
    "power": (m.GPU_POWER, "avg_over_time", "sum"),
    "power_max": (m.GPU_POWER, "max_over_time", "sum"),
    "energy": (m.GPU_ENERGY, "rate", "sum"),
    "memory_allocated": (cluster.DEVICE_MEMORY_ALLOCATED, "avg_over_time", "sum"),
    "cores_allocated": (cluster.DEVICE_CORES_ALLOCATED, "avg_over_time", "avg"),
}
_OF_INSTANCES: dict[Quantity, tuple[Metric, str, str]] = {
    "memory_used": (m.MIG_MEMORY_USED, "avg_over_time", "sum"),
    "memory_max": (m.MIG_MEMORY_USED, "max_over_time", "sum"),
}
_OF_PODS: dict[Quantity, tuple[Metric, str, str]] = {
    "use": (m.CONTAINER_SM, "avg_over_time", "avg"),
    "use_max": (m.CONTAINER_SM, "max_over_time", "max"),
    "memory_used": (m.CONTAINER_MEMORY_USED, "avg_over_time", "sum"),
    "memory_max": (m.CONTAINER_MEMORY_USED, "max_over_time", "sum"),
    "power": (m.CONTAINER_POWER, "avg_over_time", "sum"),
    "power_max": (m.CONTAINER_POWER, "max_over_time", "sum"),
    "energy": (m.CONTAINER_ENERGY, "rate", "sum"),
    "memory_allocated": (cluster.HOLDER_MEMORY, "avg_over_time", "sum"),
    "cores_allocated": (cluster.HOLDER_CORES, "avg_over_time", "avg"),
}
_ONE_GPU, _ONE_POD = "gpu_uuid, mig_uuid", "gpu_uuid, mig_uuid, namespace, pod, container"


def series_queries(of: ChartSubject, *, window: Seconds, step: Seconds) -> dict[Quantity, str]:
    """The queries for each quantity; empty if the engine cannot know the subject, as the owner of pods.

    A value is that of the `window` before it; energy is that of one `step`.

    Two scrapes of one agent are one series, so the larger of both is taken before GPUs are added up.
    """
    if of.owner is not None:
        return {}
    table = _OF_PODS if of.of_pods else _OF_INSTANCES if of.mig else _OF_GPUS
    alike = _ONE_POD if of.of_pods else _ONE_GPU
    matchers = tuple(_matchers(of))
    within = promql.window(window)
    return {
        quantity: f"{over}(max by ({alike}) ({samples}({promql.selector(metric.name, matchers)}[{within}])))"
        + (f" * {step:g}" if samples == "rate" else "")
        for quantity, (metric, samples, over) in table.items()
    }


def _matchers(of: ChartSubject) -> list[promql.Matcher]:
    named = {"gpu_uuid": of.gpu_id, "mig_uuid": of.mig, "node": of.node, "pod": of.pod}
    found = [promql.Matcher(label, "=", value) for label, value in named.items() if value is not None]
    if of.namespaces is not None:
        found.append(promql.one_of("namespace", of.namespaces))
    return found
