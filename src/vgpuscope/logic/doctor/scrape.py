"""Prometheus and its targets: is everything scraped, once, and often enough?"""

from vgpuscope.catalog import agent as m
from vgpuscope.knowledge.gpu_series import CLUSTER_LABELS, DCGM_UTILIZATION, DEVICES, HAMI, REPLICA_LABELS
from vgpuscope.logic.doctor.judging import (
    ANSWERS,
    NamedObjects,
    failed,
    failed_if,
    few,
    gpu_nodes,
    gpu_of,
    grouped,
    named,
    nodes_with_series,
    nothing,
    ours,
    passed,
    skipped,
    target_of,
    tenant_of,
    warned,
    warned_if,
)
from vgpuscope.model.doctor import CheckOutcome, DoctorFacts, KubeNode, Missing, ObjectNames, SeriesValue, known
from vgpuscope.model.quantity import Seconds

_NONE = frozenset({"not-given", "not-here"})  # there is no Prometheus
_FEWEST = 5  # samples in the analyzer's window
_WINDOW: Seconds = 600.0  # the analyzer's default
_SELECTED = {"gpu": "on"}  # the label by which HAMi's and our DaemonSets choose nodes
_TOLERATED = ("nvidia.com/gpu", "node.kubernetes.io/", "node-role.kubernetes.io/")


def prometheus_down(facts: DoctorFacts) -> CheckOutcome:
    """Prometheus does not answer."""
    found = facts.prometheus
    if not isinstance(found, Missing):
        return passed(url=found.url, targets=found.targets)
    if found.reason == "no-answer":
        return failed([found.detail], place=found.place)
    return passed(place=found.place) if found.reason in ANSWERS else skipped(found)


def wrong_prometheus(facts: DoctorFacts) -> CheckOutcome:
    """Something answers at the address of Prometheus that is none."""
    found = facts.prometheus
    if isinstance(found, Missing) and found.reason in {"wrong-service", "unreadable"}:
        return failed([found.detail], place=found.place)
    analyzer = facts.analyzer
    if not isinstance(analyzer, Missing) and analyzer.error_code == "ANSWER_UNREADABLE":
        return failed([analyzer.error], place=analyzer.url)
    if not isinstance(analyzer, Missing) and isinstance(found, Missing) and found.reason not in _NONE:
        return passed(place=analyzer.url)
    known(found)
    return passed()


def empty(facts: DoctorFacts) -> CheckOutcome:
    """Prometheus scrapes nothing at all."""
    found = known(facts.prometheus)
    return passed(targets=found.targets) if found.targets or found.names else failed(place=found.url)


def gpu_metrics_absent(facts: DoctorFacts) -> CheckOutcome:
    """Prometheus has targets, and no GPU metric."""
    if isinstance(facts.prometheus, Missing):
        analyzer = facts.analyzer
        if not isinstance(analyzer, Missing) and analyzer.error_code == "METRICS_ABSENT":
            return failed([analyzer.error], targets="?")
        known(facts.prometheus)
    found = known(facts.prometheus)
    if not found.targets and not found.names:
        return skipped(Missing(fact="prometheus", reason="no-data", place=found.url))
    return passed(names=len(found.names)) if found.names else failed(targets=found.targets)


def targets_down(facts: DoctorFacts) -> CheckOutcome:
    """Targets with GPUs that do not answer."""
    if not isinstance(facts.prometheus, Missing):
        jobs = facts.prometheus.jobs
        if not jobs:
            return skipped(Missing(fact="prometheus", reason="no-data", place=facts.prometheus.url))
        down = sum(job.down for job in jobs)
        shown = [example for job in jobs for example in job.examples]
        return failed(shown, count=down) if down else passed(count=sum(job.up for job in jobs))
    analyzer = facts.analyzer
    if isinstance(analyzer, Missing) or analyzer.targets_up is None:
        return skipped(facts.prometheus)
    down = analyzer.targets_down or 0
    return failed(analyzer.down, count=down) if down else passed(count=analyzer.targets_up)


def nodes_without_agent(facts: DoctorFacts) -> CheckOutcome:
    """Nodes with GPUs of which no series is scraped."""
    series = known(facts.series)
    if not series.whole:
        return skipped(Missing(fact="prometheus", reason="elsewhere", place=series.origin))
    with_gpus = gpu_nodes(facts)
    if not with_gpus:
        return skipped(facts.cluster if isinstance(facts.cluster, Missing) else _no_gpu_nodes())
    if series.all_gpus > series.gpus:  # only a part was looked at
        return skipped(Missing(fact="series", reason="no-data", detail=f"{series.gpus} / {series.all_gpus}"))
    ready = {node for node in with_gpus if _ready(facts, node)}
    blind = sorted(ready - nodes_with_series(series))
    kube = {} if isinstance(facts.kubernetes, Missing) else {node.name: node for node in facts.kubernetes.nodes or ()}
    shown = NamedObjects(
        (f"{node}{_why(kube[node]) if node in kube else ''}", ObjectNames(node=node)) for node in blind
    )
    return failed(shown, count=len(blind), all=len(ready)) if blind else passed(count=len(ready))


def _no_gpu_nodes() -> Missing:
    return Missing(fact="cluster", reason="no-data", detail="nodes")


def _ready(facts: DoctorFacts, name: str) -> bool:
    """A node that is not ready has no running agent, and that is no fault of the scrape."""
    if isinstance(facts.cluster, Missing):
        return isinstance(facts.kubernetes, Missing) or all(
            node.ready for node in facts.kubernetes.nodes or () if node.name == name
        )
    return all(node.ready for node in facts.cluster.nodes if node.name == name)


def _why(node: KubeNode) -> str:
    """Why a DaemonSet does not put a pod there, if that shows."""
    missing = [f"{name}={value}" for name, value in _SELECTED.items() if node.labels.get(name) != value]
    taints = [taint for taint in node.taints if not taint.startswith(_TOLERATED)]
    parts = [f"label {' '.join(missing)} is missing"] * bool(missing) + [f"taint {' '.join(few(taints))}"] * bool(
        taints
    )
    return f" ({', '.join(parts)})" if parts else ""


def hami_beside_ours(facts: DoctorFacts) -> CheckOutcome:
    """The same HAMi series from HAMi's exporters and from ours: a sum counts them twice."""
    series = known(facts.series)
    mine = ours(series)
    shown = named(series, *HAMI)
    if not shown or not mine:
        return nothing(series, m.BUILD_INFO.name)
    by_thing = grouped(shown, lambda one: (one.name, gpu_of(one.labels), *tenant_of(one.labels)))
    double = {
        name
        for (name, gpu, *_), found in by_thing.items()
        if gpu and len({target_of(one.labels) in mine for one in found}) > 1
    }
    return warned_if(double, count=len(by_thing))


def scraped_twice(facts: DoctorFacts) -> CheckOutcome:
    """One exporter that two jobs scrape."""
    series = known(facts.series)
    names = (DCGM_UTILIZATION, m.GPU_UTILIZATION.name)
    shown = named(series, *names)
    if not shown:
        return nothing(series, *names)
    by_gpu = grouped(
        shown, lambda one: (one.name, gpu_of(one.labels), one.labels.get("GPU_I_ID", ""), _place(one), _replica(one))
    )
    double = {
        f"{' + '.join(sorted({one.job for one in found}))}: {gpu}"
        for (_, gpu, *_), found in by_gpu.items()
        if gpu and len({one.job for one in found}) > 1
    }
    jobs = {text.partition(":")[0] for text in double}
    return warned(double, count=len(double), jobs=", ".join(sorted(jobs))) if double else passed(count=len(by_gpu))


def replicas_double(facts: DoctorFacts) -> CheckOutcome:
    """Series that differ only in the label of a Prometheus replica."""
    series = known(facts.series)
    shown = [one for one in series.now if one.name in DEVICES]
    if not shown:
        return nothing(series, *DEVICES)
    by_series = grouped(shown, lambda one: (one.name, frozenset(_without(one, REPLICA_LABELS).items())))
    double = [found for found in by_series.values() if len({_replica(one) for one in found}) > 1]
    labels = {name for found in double for one in found for name in REPLICA_LABELS if name in one.labels}
    replicas = {_replica(one) for found in double for one in found}
    if double:
        return warned(replicas, count=len(double), label=", ".join(sorted(labels)))
    return passed(count=len(by_series))


def clusters_without_label(facts: DoctorFacts) -> CheckOutcome:
    """Two machines of one name: two clusters are in one Prometheus, and no label tells them apart."""
    series = known(facts.series)
    shown = [one for one in named(series, DCGM_UTILIZATION, m.GPU_INFO.name) if one.labels.get("gpu", _index(one))]
    if not shown:
        return nothing(series, DCGM_UTILIZATION)
    by_gpu = grouped(shown, lambda one: (_place(one), _host(one), one.labels.get("gpu", _index(one))))
    twice = {
        host for (_, host, _), found in by_gpu.items() if host and len({gpu_of(one.labels) for one in found} - {""}) > 1
    }
    return failed_if(twice, count=len(by_gpu))


def interval_long(facts: DoctorFacts) -> CheckOutcome:
    """Scrapes are too rare for the analyzer's window."""
    window = _WINDOW
    if not isinstance(facts.analyzer, Missing) and facts.analyzer.window:
        window = facts.analyzer.window
    jobs = [job for job in known(facts.prometheus).jobs if job.interval is not None]
    if not jobs:
        return skipped(Missing(fact="prometheus", reason="no-data", place=known(facts.prometheus).url))
    slow = [f"{job.name}: {job.interval:.0f} s" for job in jobs if job.interval and job.interval * _FEWEST > window]
    needed = max((job.interval or 0.0) for job in jobs) * _FEWEST / 60
    numbers: dict[str, float | str] = {"window": round(window / 60, 2), "needed": round(needed + 0.5)}
    return failed(slow, count=len(slow), **numbers) if slow else passed(jobs=len(jobs))


def rule_names_unknown(facts: DoctorFacts) -> CheckOutcome:
    """Rules that use GPU metrics which nothing exports: their panels and alerts stay empty."""
    found = known(facts.prometheus)
    if found.unknown_names is None:
        return skipped(Missing(fact="prometheus", reason="elsewhere", detail="/api/v1/rules", place=found.url))
    if not found.names:
        return skipped(Missing(fact="prometheus", reason="no-data", place=found.url))
    shown = [f"{rule}: {name}" for rule, name in found.unknown_names]
    return warned_if(shown)


def _without(one: SeriesValue, names: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in one.labels.items() if name not in names}


def _replica(one: SeriesValue) -> str:
    return next((one.labels[name] for name in REPLICA_LABELS if name in one.labels), "")


def _place(one: SeriesValue) -> str:
    return next((one.labels[name] for name in CLUSTER_LABELS if name in one.labels), "")


def _host(one: SeriesValue) -> str:
    return next(
        (one.labels[name] for name in ("Hostname", "hostname", "exported_node", "node") if name in one.labels), ""
    )


def _index(one: SeriesValue) -> str:
    return one.labels.get("gpu_index", one.labels.get("index", ""))
