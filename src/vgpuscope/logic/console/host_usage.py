"""A pod and its node beside the GPUs: from an agent's sample, or from the samples that a PromQL engine has stored."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, get_args

from vgpuscope.catalog import agent as m
from vgpuscope.logic.console.moments import iso, iso_or_none, short, whole
from vgpuscope.model.console.host_usage import FigureRow, HostRow, NodeBeside, PodBeside, ProcessRow, Resource
from vgpuscope.model.host import HostUse
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.model.usage import CERTAINTIES, ContainerUsage, NodeSnapshot

Samples = Sequence[tuple[UnixTime, float]]

_MINUTES = ("1", "5", "15")
_RESOURCES: tuple[Resource, ...] = get_args(Resource)
_IDLE = ("idle", "iowait")

OF_POD = frozenset(
    metric.name
    for metric in (
        m.HOST_CPU,
        m.HOST_CPU_LIMIT,
        m.HOST_PERIODS,
        m.HOST_THROTTLED_PERIODS,
        m.HOST_WORKING_SET,
        m.HOST_MEMORY_LIMIT,
        m.HOST_READ,
        m.HOST_WRITTEN,
        m.HOST_RECEIVED,
        m.HOST_SENT,
        m.CONTAINER_METHOD,
        m.CONTAINER_MEMORY_ERROR,
        m.CONTAINER_SM_ERROR,
    )
)
OF_NODE = frozenset(
    metric.name for metric in (m.NODE_CPU, m.NODE_CPUS, m.NODE_MEMORY_TOTAL, m.NODE_MEMORY_AVAILABLE, m.NODE_LOAD)
)

# ── from an agent's sample ───────────────────────────────────────────────────────────────────────────────────────


def pod_of_sample(sample: NodeSnapshot, namespace: str, pod: str) -> PodBeside:
    """One pod, as its agent knows it now."""
    uses = [use for use in sample.host.containers if (use.key.namespace, use.key.pod) == (namespace, pod)]
    held = [one for one in sample.containers if (one.key.namespace, one.key.pod) == (namespace, pod)]
    return PodBeside(
        at=iso(sample.at),
        seconds=max((use.over for use in uses if use.over is not None), default=None),
        source="agent",
        containers=tuple(_host_row(use) for use in sorted(uses, key=lambda use: use.key.container)),
        received_rate=_most(use.received_rate for use in uses),  # the containers of a pod share one network
        sent_rate=_most(use.sent_rate for use in uses),
        figures=tuple(figure for one in held for figure in _figures(one)),
        processes=_processes(sample, namespace, pod),
    )


def _host_row(use: HostUse) -> HostRow:
    return HostRow(
        container=use.key.container or None,
        cpu_cores=short(use.cpu_cores),
        cpu_limit=use.cpu_limit,
        throttled=short(use.throttled),
        memory=use.memory_working_set,
        memory_limit=use.memory_limit,
        read_rate=short(use.read_rate, 1),
        written_rate=short(use.written_rate, 1),
    )


def _figures(one: ContainerUsage) -> Iterable[FigureRow]:
    known = (
        (one.memory_method, one.memory_certainty, one.memory_error),
        (one.sm_method, one.sm_certainty, one.sm_error),
        (one.energy_method, one.energy_certainty, None),
    )
    for resource, (method, certainty, error) in zip(_RESOURCES, known, strict=True):
        if method is not None:
            yield FigureRow(
                gpu_id=one.gpu,
                mig=one.mig,
                container=one.key.container or None,
                resource=resource,
                method=method,
                certainty=certainty,
                error=error,
            )


def _processes(sample: NodeSnapshot, namespace: str, pod: str) -> tuple[ProcessRow, ...]:
    found = [
        ProcessRow(
            gpu_id=one.gpu,
            mig=one.mig,
            container=one.key.container or None,
            pid=one.pid,
            user=one.uid,
            command=one.command,
            memory=one.memory,
            sm=short(one.sm),
            started=iso_or_none(one.started),
        )
        for one in sample.processes
        if one.key is not None and (one.key.namespace, one.key.pod) == (namespace, pod)
    ]
    return tuple(sorted(found, key=lambda row: (row.gpu_id, row.mig or "", -(row.memory or 0), row.pid)))


def node_of_sample(sample: NodeSnapshot) -> NodeBeside:
    """One node, as its agent knows it now."""
    node = sample.host.node
    return NodeBeside(
        at=iso(sample.at),
        seconds=node.over,
        source="agent",
        cpus=node.cpus,
        cpu_used=short(node.cpu_used),
        iowait=short(node.iowait),
        memory_total=node.memory_total,
        memory_available=node.memory_available,
        load=node.load or (None, None, None),
    )


# ── from stored samples ──────────────────────────────────────────────────────────────────────────────────────────


class SeriesSamples(NamedTuple):
    """The samples of one series, in order of time."""

    name: str
    labels: Mapping[str, str]
    samples: Samples


class _Gain(NamedTuple):
    seconds: Seconds
    value: float


class _Held:
    """The series of one thing, by metric."""

    def __init__(self) -> None:
        self.last: dict[str, float] = {}
        self.gains: dict[str, _Gain] = {}

    def take(self, track: SeriesSamples) -> None:
        self.last[track.name] = track.samples[-1][1]
        if (gain := _gain(track.samples)) is not None:
            self.gains[track.name] = gain

    def rate(self, name: str, digits: int = 1) -> float | None:
        gain = self.gains.get(name)
        return None if gain is None else round(gain.value / gain.seconds, digits)


def pod_of_tracks(tracks: Sequence[SeriesSamples]) -> PodBeside | None:
    """One pod, from the samples of some minutes; None if there are none."""
    current, at = _current(tracks)
    if at is None:
        return None
    hosts: dict[str, _Held] = {}
    network, figures, errors = _Held(), [], {}
    for track in current:
        container = _label(track.labels, "container")
        if track.name == m.CONTAINER_METHOD.name:
            figures.append(track.labels)
        elif track.name in _ERRORS:
            errors[(*_place(track.labels), _ERRORS[track.name])] = track.samples[-1][1]
        elif track.name in (m.HOST_RECEIVED.name, m.HOST_SENT.name):
            network.take(track)
        else:
            hosts.setdefault(container, _Held()).take(track)
    return PodBeside(
        at=iso(at),
        seconds=_most(gain.seconds for held in hosts.values() for gain in held.gains.values()),
        source="prometheus",
        containers=tuple(_stored_row(name, held) for name, held in sorted(hosts.items())),
        received_rate=network.rate(m.HOST_RECEIVED.name),
        sent_rate=network.rate(m.HOST_SENT.name),
        figures=tuple(_stored_figure(labels, errors) for labels in figures if labels.get("resource") in _RESOURCES),
    )


_ERRORS: dict[str, Resource] = {m.CONTAINER_MEMORY_ERROR.name: "memory", m.CONTAINER_SM_ERROR.name: "sm"}


def _stored_row(container: str, held: _Held) -> HostRow:
    periods, throttled = held.gains.get(m.HOST_PERIODS.name), held.gains.get(m.HOST_THROTTLED_PERIODS.name)
    applied = periods is not None and throttled is not None and periods.value > 0
    return HostRow(
        container=container or None,
        cpu_cores=held.rate(m.HOST_CPU.name, 4),
        cpu_limit=held.last.get(m.HOST_CPU_LIMIT.name),
        throttled=short(min(1.0, throttled.value / periods.value)) if applied and throttled and periods else None,
        memory=whole(held.last.get(m.HOST_WORKING_SET.name)),
        memory_limit=whole(held.last.get(m.HOST_MEMORY_LIMIT.name)),
        read_rate=held.rate(m.HOST_READ.name),
        written_rate=held.rate(m.HOST_WRITTEN.name),
    )


def _stored_figure(labels: Mapping[str, str], errors: Mapping[tuple[str, str, str, Resource], float]) -> FigureRow:
    gpu, mig, container = _place(labels)
    resource = next(one for one in _RESOURCES if one == labels["resource"])
    return FigureRow(
        gpu_id=gpu,
        mig=mig or None,
        container=container or None,
        resource=resource,
        method=labels.get("method", ""),
        certainty=next((one for one in CERTAINTIES if one == labels.get("certainty")), None),
        error=errors.get((gpu, mig, container, resource)),
    )


def node_of_tracks(tracks: Sequence[SeriesSamples]) -> NodeBeside | None:
    """One node, from the samples of some minutes; None if there are none."""
    current, at = _current(tracks)
    if at is None:
        return None
    node = _Held()
    load: dict[str, float] = {}
    modes: dict[str, _Gain] = {}
    for track in current:
        if track.name == m.NODE_LOAD.name:
            load[track.labels.get("minutes", "")] = track.samples[-1][1]
        elif track.name == m.NODE_CPU.name:
            if (gain := _gain(track.samples)) is not None:
                modes[track.labels.get("mode", "")] = gain
        else:
            node.take(track)
    total = sum(gain.value for gain in modes.values())
    known = total > 0 and modes.keys() >= set(_IDLE)
    one, five, fifteen = (load.get(minutes) for minutes in _MINUTES)
    return NodeBeside(
        at=iso(at),
        seconds=_most(gain.seconds for gain in modes.values()),
        source="prometheus",
        cpus=whole(node.last.get(m.NODE_CPUS.name)),
        cpu_used=short(_ratio(total - sum(modes[name].value for name in _IDLE), total)) if known else None,
        iowait=short(_ratio(modes["iowait"].value, total)) if known else None,
        memory_total=whole(node.last.get(m.NODE_MEMORY_TOTAL.name)),
        memory_available=whole(node.last.get(m.NODE_MEMORY_AVAILABLE.name)),
        load=(one, five, fifteen),
    )


def _current(tracks: Iterable[SeriesSamples]) -> tuple[list[SeriesSamples], UnixTime | None]:
    """The series that go on, and the time of the newest sample.

    All series of an agent are scraped at once, so one that lacks the last scrape has ended.
    """
    some = [track for track in tracks if track.samples]
    newest = max((track.samples[-1][0] for track in some), default=None)
    if newest is None:
        return [], None
    return [track for track in some if newest - track.samples[-1][0] < _spacing(track.samples)], newest


def _spacing(samples: Samples) -> Seconds:
    return samples[-1][0] - samples[-2][0] if len(samples) > 1 else 1.0


def _gain(samples: Samples) -> _Gain | None:
    """What a counter gained since it last fell; None without two samples since then."""
    first = next((n for n in range(len(samples) - 1, 0, -1) if samples[n][1] < samples[n - 1][1]), 0)
    seconds = samples[-1][0] - samples[first][0]
    return _Gain(seconds, samples[-1][1] - samples[first][1]) if seconds > 0 else None


def _place(labels: Mapping[str, str]) -> tuple[str, str, str]:
    return labels.get("gpu_uuid", ""), labels.get("mig_uuid", ""), _label(labels, "container")


def _label(labels: Mapping[str, str], name: str) -> str:
    """A label of the agent; Prometheus renames it if the scrape target has a label of the same name."""
    return labels.get(f"exported_{name}") or labels.get(name, "")


def _most(values: Iterable[float | None]) -> float | None:
    return short(max((value for value in values if value is not None), default=None), 1)


def _ratio(part: float, of: float) -> float:
    return min(1.0, max(0.0, part / of))
