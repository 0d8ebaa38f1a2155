"""The scheduler extender and the device plugins."""

from vgpuscope.catalog import cluster as c
from vgpuscope.catalog import extender as x
from vgpuscope.catalog import plugin as d
from vgpuscope.logic.doctor.judging import (
    NamedObjects,
    failed,
    failed_if,
    few,
    named,
    passed,
    skipped,
    target_of,
    warned,
    warned_if,
)
from vgpuscope.model.doctor import CheckOutcome, DoctorFacts, Missing, ObjectNames, SeriesValue, known

_LEASE = "lease:"  # how an extender begins to say that it does not lead
_WAITED = 60.0  # seconds; kube-scheduler tries a new pod at once


def extender_down(facts: DoctorFacts) -> CheckOutcome:
    """The extender does not answer."""
    found = facts.extender
    if not isinstance(found, Missing):
        return passed(url=found.url)
    if found.reason in {"no-answer", "unreadable"}:
        return failed([found.detail], place=found.place)
    return passed(place=found.place) if found.reason in {"refused", "wrong-service"} else skipped(found)


def extender_not_ready(facts: DoctorFacts) -> CheckOutcome:
    """The extender answers and cannot decide, though it leads or could."""
    found = known(facts.extender)
    lacks = [one for one in found.missing if not one.startswith(_LEASE)]
    return failed_if(lacks)


def no_leader(facts: DoctorFacts) -> CheckOutcome:
    """No replica leads, so no pod with GPUs is scheduled; or only this replica does not."""
    if not isinstance(facts.series, Missing) and (shown := named(facts.series, x.LEADER.name)):
        if any(one.value == 1 for one in shown):
            return passed(replicas=len(shown))
        return failed([_target(one) for one in shown], count=len(shown))
    found = known(facts.extender)
    if found.leader is None:
        return skipped(Missing(fact="extender", reason="no-data", detail=x.LEADER.name, place=found.url))
    return passed(replicas=1) if found.leader else warned([*found.missing] or [found.url], count=1)


def not_asked(facts: DoctorFacts) -> CheckOutcome:
    """Pods with GPUs wait, and kube-scheduler has never asked the extender."""
    found = known(facts.extender)
    if found.filters:
        return passed(requests=found.filters)
    waiting = NamedObjects(
        (f"{pod.namespace}/{pod.pod}: {pod.scheduler or '?'}", ObjectNames(namespace=pod.namespace, pod=pod.pod))
        for pod in known(facts.cluster).pending.pending
        if pod.outcome == "waiting" and pod.created is not None and facts.at - pod.created > _WAITED
    )
    if found.filters is None or not waiting:
        return skipped(Missing(fact="extender", reason="no-data", detail="/filter", place=found.url))
    return failed(waiting, count=len(waiting))


def metrics_double(facts: DoctorFacts) -> CheckOutcome:
    """The cluster exporter estimates what the extender measures, under the same names."""
    series = known(facts.series)
    if not named(series, x.LEADER.name):
        return skipped(Missing(fact="extender", reason="no-data", detail=x.LEADER.name, place=series.origin))
    exporters = {target_of(one.labels) for one in named(series, c.WATCH_UP.name)}
    double = [_target(one) for one in named(series, x.BIND_SUCCESS.name) if target_of(one.labels) in exporters]
    return warned_if(set(double))


# ── device plugins ───────────────────────────────────────────────────────────────────────────────────────────────


def not_registered(facts: DoctorFacts) -> CheckOutcome:
    """The kubelet of a node does not know its GPUs."""
    shown = _of_plugins(facts, d.KUBELET_UP.name)
    found = {one.labels.get("node", "?") for one in shown if one.value == 0}
    return failed_if(found, nodes=len(shown))


def gpu_unhealthy(facts: DoctorFacts) -> CheckOutcome:
    """GPUs that a device plugin does not hand out."""
    shown = _of_plugins(facts, d.HEALTHY.name)
    reasons = {
        one.labels.get("gpu_uuid", ""): one.labels.get("reason", "") for one in _of_plugins(facts, d.UNHEALTHY.name, 0)
    }
    found = NamedObjects(
        (
            f"{one.labels.get('node', '?')}: {gpu} {reasons.get(gpu, '')}".rstrip(),
            ObjectNames(node=one.labels.get("node", "")),
        )
        for one in shown
        if one.value == 0
        for gpu in [one.labels.get("device", "?")]
    )
    return failed_if(found, gpus=len(shown))


def without_library(facts: DoctorFacts) -> CheckOutcome:
    """Nodes without HAMi's library: nothing enforces the limits of containers."""
    shown = _of_plugins(facts, d.LIMITS.name)
    found = {one.labels.get("node", "?") for one in shown if one.value == 0}
    return warned_if(found, nodes=len(shown))


def _of_plugins(facts: DoctorFacts, name: str, least: int = 1) -> list[SeriesValue]:
    """Series of device plugins, asked themselves or by Prometheus; Absent if there are fewer than `least`."""
    found: dict[tuple[str, ...], SeriesValue] = {}
    for part in (facts.series, facts.plugins):
        if not isinstance(part, Missing):
            found |= {_same(one): one for one in named(part, name)}
    if len(found) < least:
        known(facts.plugins)
        known(Missing(fact="plugin", reason="no-data", detail=name))
    return list(found.values())


def _same(one: SeriesValue) -> tuple[str, ...]:
    """What tells two series of one metric apart, whoever was asked."""
    return tuple(one.labels.get(label, "") for label in ("cluster", "node", "device", "gpu_uuid", "reason"))


def _target(one: SeriesValue) -> str:
    return few([" ".join(filter(None, target_of(one.labels)))])[0]
