"""The two ways in which a Prometheus may know a fleet: which metric gives which term, in which unit, by which labels.

A group is a set of series with one set of labels: dcgm-exporter has one, our agent has three (cards, MIG instances,
containers). A quantity is a row of a group's table: the metrics that give its statistics, the first that exists first.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from vgpuscope.catalog import node as m
from vgpuscope.catalog.metric import Metric
from vgpuscope.formats.prom.promql import Matcher, selector, window
from vgpuscope.model.analysis import Schema, Tenant, Term
from vgpuscope.model.quantity import MIB

Statistic: TypeAlias = Literal["mean", "max", "p95", "samples", "last"]
STATISTICS: Final[tuple[Statistic, ...]] = ("mean", "max", "p95", "samples", "last")
Part: TypeAlias = Term | Literal["mem_free", "mem_reserved", "presence"]  # the last three are ours, for others' sake

_FUNCTIONS: Final[dict[Statistic, str]] = {
    "mean": "avg_over_time({series}[{window}])",
    "max": "max_over_time({series}[{window}])",
    "p95": "quantile_over_time(0.95,{series}[{window}])",
    "samples": "count_over_time({series}[{window}])",
    "last": "timestamp({series})",
}

_RATE: Final = "rate({series}[{window}])"

# What no card has. Blank values of DCGM (2147483632, 9223372036854775792, 140737488355328 and a few above each) lie far
# beyond all of them, also as one sample of a mean, as long as the mean is of fewer than _MANY.
_MOST_MEMORY = 4096.0 * 1024 * MIB
_MOST_POWER = 10_000.0
_MOST_CLOCK = 10e9
_MOST_TRAFFIC = 1e12
_MANY = 256
_ROUNDING = 1 + 1e-6  # a mean of ones may end a little above 1
_PERCENT = 100.0
SENTINELS: Final = (float(2**31 - 16), float(2**63 - 16), float(2**47))


class Quantity(Struct, frozen=True, kw_only=True):
    """One term of a group: where its statistics come from, and between what a sample must lie to be true."""

    part: Part
    scale: float = 1.0  # theirs of ours, as in the catalog: 100 for percent
    high: float = 1.0
    mean: tuple[str, ...] = ()
    max: tuple[str, ...] = ()
    p95: tuple[str, ...] = ()
    samples: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    max_if_many: tuple[str, ...] = ()  # asked for only where a sentinel could hide in the mean
    counter: bool = False  # it counts up, and its rate is what is meant
    twin: bool = False  # of another quantity, in base units: a second name for the same
    by_values: bool = False  # the name leaves open whether it is 0-1 or 0-100; see `percent`

    @property
    def term(self) -> str:
        """The term that suffers if this is not known."""
        return "mem_total" if self.part in {"mem_free", "mem_reserved"} else self.part

    def names(self, statistic: Statistic, *, many: bool) -> tuple[str, ...]:
        """The metrics that could give a statistic."""
        found: tuple[str, ...] = getattr(self, statistic)
        return self.max_if_many if many and statistic == "max" and not found else found

    @property
    def highest(self) -> float:
        """In our unit, or where only its values can tell the unit, in the larger one."""
        return (_PERCENT if self.by_values else self.high) * _ROUNDING

    def percent(self, most: float) -> bool:
        """Whether one exporter's values, of which this is the highest, are 0-100 though the name says ratio.

        In doubt they are 0-1: that is the busier reading.
        """
        return self.by_values and most > self.high * _ROUNDING

    def plausible(self, value: float) -> bool:
        """Whether a sample in the metric's own unit can be true; NaN cannot."""
        return 0.0 <= value / self.scale <= self.highest


class Group(Struct, frozen=True, kw_only=True):
    """Series with one set of labels."""

    schema: Schema
    kind: Literal["device", "instance", "container"]
    uuid: str  # the label that holds the card's UUID
    quantities: tuple[Quantity, ...]
    info: str = ""  # a metric whose labels say more: model, index, profile
    state: str = ""  # a metric that is 1 for the state that its label of the same name says
    state_label: str = ""
    xids: str = ""  # a metric that shows XIDs

    @property
    def measures(self) -> frozenset[str]:
        """Every metric that gives a statistic."""
        return frozenset(name for q in self.quantities for s in STATISTICS for name in q.names(s, many=True))

    @property
    def clocks(self) -> frozenset[str]:
        """Metrics whose samples say how many there are of it, and when."""
        return frozenset(name for quantity in self.quantities for name in quantity.last)

    @property
    def facts(self) -> frozenset[str]:
        """Metrics whose labels tell something, not their numbers."""
        return frozenset(filter(None, (self.info, self.state)))

    @property
    def names(self) -> frozenset[str]:
        """Every metric that may be asked for."""
        return self.measures | self.facts | frozenset(filter(None, (self.xids,)))


class Ask(NamedTuple):
    """The statistics that are wanted of a quantity. More than one: its samples are asked for."""

    group: Group
    quantity: int
    statistics: tuple[Statistic, ...]
    name: str
    matchers: tuple[Matcher, ...]
    recorded: bool = False  # it is a recording rule's result, and needs only to be read

    @property
    def series(self) -> str:
        return selector(self.name, self.matchers)

    @property
    def columns(self) -> tuple[int, ...]:
        return tuple(self.quantity * len(STATISTICS) + STATISTICS.index(one) for one in self.statistics)

    @property
    def raw(self) -> bool:
        return len(self.statistics) > 1

    @property
    def part(self) -> str:
        """What is missing if it fails: begins with the term."""
        return f"{self.group.quantities[self.quantity].term} {' '.join(self.statistics)} ({self.name})"

    def query(self, window: str) -> str:
        if self.recorded:
            return self.series
        if self.raw:
            return f"{self.series}[{window}]"
        function = _RATE if self.group.quantities[self.quantity].counter else _FUNCTIONS[self.statistics[0]]
        return function.format(series=self.series, window=window)


def plan(
    group: Group, *, present: Iterable[str], condition: tuple[Matcher, ...], expected: float, recorded: bool = False
) -> Iterator[Ask]:
    """The queries for a group, by the metrics that are there and the samples that a series may have.

    `recorded`: where a recording rule's result is there, it is read.
    """
    there, matchers = frozenset(present), matchers_for(group, condition)
    for index, quantity in enumerate(group.quantities):
        for statistic in STATISTICS:
            names = quantity.names(statistic, many=expected > _MANY)
            name = next((name for name in names if name in there), None)
            if name is None:
                continue
            rule = record_name(name, statistic)
            if recorded and statistic in RECORDED and rule in there:
                yield Ask(group, index, (statistic,), rule, matchers, recorded=True)
            else:
                yield Ask(group, index, (statistic,), name, matchers)


# ── recording rules ──────────────────────────────────────────────────────────────────────────────────────────────

# Only what does not decide about being idle: a rule that is no longer evaluated goes on saying its last word for five
# minutes, and in these a card may have begun to work.
RECORDED: Final[tuple[Statistic, ...]] = ("mean", "p95")
RECORDED_SECONDS: Final = 600.0  # the window of the rules, which is the analyzer's usual one
RECORDED_EVERY: Final = 30.0  # seconds between two evaluations


def record_name(name: str, statistic: Statistic) -> str:
    """What the rule for a statistic of a metric is called."""
    return f"vgpuscope:{name}:{statistic}_10m"


class Rule(NamedTuple):
    """A recording rule that the analyzer makes use of."""

    group: Group
    metric: str  # what it records a statistic of
    name: str
    expression: str


def recording_rules() -> Iterator[Rule]:
    """All of them."""
    for group in GROUPS:
        for quantity in [one for one in group.quantities if not (one.twin or one.counter)]:
            for statistic in RECORDED:
                for name in quantity.names(statistic, many=False)[:1]:
                    expression = _FUNCTIONS[statistic].format(series=name, window=window(RECORDED_SECONDS))
                    yield Rule(group, name, record_name(name, statistic), expression)


def gathered(asks: Iterable[Ask]) -> Iterator[Ask]:
    """The same in fewer queries: where several statistics of a quantity are of one metric, its samples are asked for.

    An engine takes about as long to give twenty samples of a series as to give one statistic of them.
    """
    for _, quantity in groupby(asks, key=lambda ask: (id(ask.group), ask.quantity)):
        by_name: dict[str, list[Ask]] = {}
        for ask in quantity:
            by_name.setdefault(ask.name, []).append(ask)
        for together in by_name.values():
            yield together[0]._replace(statistics=tuple(ask.statistics[0] for ask in together))


def matchers_for(group: Group, condition: tuple[Matcher, ...]) -> tuple[Matcher, ...]:
    """The configured condition as it applies to a group.

    Cards and instances of our agent do not name tenants, so what the condition says of pods must not hide them: there
    all matchers apply but those on pod, namespace and container.
    """
    if group.schema == "dcgm" or group.kind == "container":
        return condition
    return tuple(matcher for matcher in condition if matcher.label.removeprefix(_EXPORTED) not in _TENANT)


# ── whose series it is ───────────────────────────────────────────────────────────────────────────────────────────

_EXPORTED = "exported_"  # what Prometheus puts before a label that its own of the same name displaced
_TENANT = ("namespace", "pod", "container", "pod_uid")
_DISPLACED = tuple(_EXPORTED + name for name in _TENANT)
_HOSTS = (f"{_EXPORTED}node", "Hostname", "hostname", "kubernetes_node", "node", "nodename")
_EXPORTERS = ("dcgm-exporter", "vgpuscope")


class Place(NamedTuple):
    """What a series' labels say."""

    gpu_id: str
    mig: str
    profile: str
    gpu_index: str
    hostname: str
    model: str
    tenant: Tenant | None


def place(
    group: Group, labels: Mapping[str, str], *, displaced: bool, words: dict[str, str] | None = None
) -> Place | None:
    """Card, instance and tenant of a series; None: it names no card.

    `displaced`: see `displaced_jobs`. `words` holds texts that come again and again, so that they are kept once.
    """
    words = {} if words is None else words
    gpu_id = labels.get(group.uuid) or labels.get(f"{_EXPORTED}{group.uuid}", "")
    if not gpu_id:
        return None
    same, host = words.setdefault, _hostname(labels)
    if group.schema == "vgpuscope":
        tenant = _tenant(labels, words, displaced=displaced) if group.kind == "container" else None
        return Place(gpu_id, labels.get("mig_uuid", ""), "", "", same(host, host), "", tenant)
    instance, profile = labels.get("GPU_I_ID", ""), labels.get("GPU_I_PROFILE", "")
    index, model = labels.get("gpu", ""), labels.get("modelName", "")
    return Place(
        gpu_id,
        f"GI-{instance}" if instance else "",
        same(profile, profile),
        same(index, index),
        same(host, host),
        same(model, model),
        _tenant(labels, words, displaced=displaced),
    )


def displaced_jobs(all_labels: Iterable[Mapping[str, str]]) -> frozenset[str]:
    """Jobs that are scraped with honor_labels off: `pod` is the exporter's own there, the tenant is `exported_pod`.

    One series that tells is enough for its job. The others of the job that have no `exported_pod` are of free cards.
    """
    return frozenset(labels.get("job", "") for labels in all_labels if any(name in labels for name in _DISPLACED))


def _tenant(labels: Mapping[str, str], words: dict[str, str], *, displaced: bool) -> Tenant | None:
    namespace, pod, container, uid = (labels.get(name, "") for name in (_DISPLACED if displaced else _TENANT))
    uid = uid or labels.get("pod_uid", "")  # targets rarely have such a label, and then it is not displaced
    if not (pod or uid) or (not displaced and _is_exporter(labels)):
        return None
    same = words.setdefault
    return Tenant(namespace=same(namespace, namespace), pod=pod, container=same(container, container), pod_uid=uid)


def _is_exporter(labels: Mapping[str, str]) -> bool:
    """Whether pod is that of the exporter itself: honor_labels is off and not one card has a tenant to show it."""
    pod, container, job = labels.get("pod", ""), labels.get("container", ""), labels.get("job", "").rpartition("/")[2]
    if job and (container == job or pod.startswith(f"{job}-")):
        return True
    return any(name in pod or name in container for name in _EXPORTERS)


def _hostname(labels: Mapping[str, str]) -> str:
    own = labels.get("pod", "")  # a Hostname that is the exporter's pod says nothing, if another label knows better
    found = ""
    for name in _HOSTS:
        host = labels.get(name)
        if host and host != own:
            return host
        found = found or host or ""
    return found


# ── the tables ───────────────────────────────────────────────────────────────────────────────────────────────────


def _twin(part: Part, name: str, *wanted: Statistic, high: float = 1.0) -> Quantity:
    """A quantity of dcgm-exporter under its name of DCGM 4.7, in base units."""
    by = dict.fromkeys(wanted, (name,))
    ratio = name.endswith("_RATIO")  # in some releases before, such a name held 0-100
    return Quantity(part=part, high=high, twin=True, by_values=ratio, **by)  # type: ignore[arg-type]


def _dcgm(part: Part, metric: Metric | str, *wanted: Statistic, **more: float) -> Quantity:
    """A quantity of dcgm-exporter; name and scale of those that our agent can imitate are in the catalog."""
    name, scale = (metric, 1.0) if isinstance(metric, str) else _imitated(metric)
    by = dict.fromkeys(wanted, (name,))
    return Quantity(part=part, scale=scale, **by, **more)  # type: ignore[arg-type]


def _imitated(metric: Metric) -> tuple[str, float]:
    alias = next(alias for alias in metric.aliases if alias.family == "dcgm")
    return alias.name, alias.scale


def _ours(part: Part, *, high: float = 1.0, **by: Metric | tuple[Metric, ...]) -> Quantity:
    names = {key: tuple(x.name for x in (value if isinstance(value, tuple) else (value,))) for key, value in by.items()}
    return Quantity(part=part, high=high, **names)  # type: ignore[arg-type]


def _rate(part: Part, metric: Metric, *, high: float) -> Quantity:
    return Quantity(part=part, high=high, mean=(metric.name,), counter=True)


_FB_USED = _imitated(m.GPU_MEMORY_USED)[0]

DCGM: Final = Group(
    schema="dcgm",
    kind="device",
    uuid="UUID",
    quantities=(
        _dcgm("gpu_util", m.GPU_UTILIZATION, *STATISTICS),
        _dcgm("mem_copy", m.GPU_MEMORY_CONTROLLER, "mean", "max"),
        Quantity(part="mem_used", scale=1 / MIB, high=_MOST_MEMORY, mean=(_FB_USED,), max_if_many=(_FB_USED,)),
        _dcgm("mem_free", m.GPU_MEMORY_FREE, "mean", high=_MOST_MEMORY),
        _dcgm("mem_reserved", m.GPU_MEMORY_RESERVED, "mean", high=_MOST_MEMORY),
        _dcgm("mem_total", m.GPU_MEMORY_TOTAL, "max", high=_MOST_MEMORY),
        _dcgm("power", m.GPU_POWER, "mean", high=_MOST_POWER),
        _dcgm("power_limit", m.GPU_POWER_LIMIT, "max", high=_MOST_POWER),
        _dcgm("power_limit", "DCGM_FI_DEV_POWER_MGMT_LIMIT", "max", high=_MOST_POWER),
        _dcgm("sm_clock", m.GPU_SM_CLOCK, "mean", high=_MOST_CLOCK),
        _dcgm("encoder", m.GPU_ENCODER, "mean", "max"),
        _dcgm("pcie_in", "DCGM_FI_PROF_PCIE_RX_BYTES", "mean", high=_MOST_TRAFFIC),
        _dcgm("pcie_out", "DCGM_FI_PROF_PCIE_TX_BYTES", "mean", high=_MOST_TRAFFIC),
        Quantity(part="energy", scale=1000, high=_MOST_POWER, mean=(m.GPU_TOTAL_ENERGY.name,), counter=True),
        _dcgm("decoder", m.GPU_DECODER, "mean", "max"),
        _dcgm("sm_active", "DCGM_FI_PROF_SM_ACTIVE", *STATISTICS),
        _dcgm("engine_active", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", *STATISTICS),
        _twin("gpu_util", "DCGM_FI_DEV_GPU_UTIL_RATIO", *STATISTICS),
        _twin("mem_copy", "DCGM_FI_DEV_MEMORY_UTIL_RATIO", "mean", "max"),
        _twin("mem_used", "DCGM_FI_DEV_FB_USED_BYTES", "mean", high=_MOST_MEMORY),
        _twin("mem_free", "DCGM_FI_DEV_FB_FREE_BYTES", "mean", high=_MOST_MEMORY),
        _twin("mem_reserved", "DCGM_FI_DEV_FB_RESERVED_BYTES", "mean", high=_MOST_MEMORY),
        _twin("mem_total", "DCGM_FI_DEV_FB_CAPACITY_BYTES", "max", high=_MOST_MEMORY),
        _twin("power", "DCGM_FI_DEV_BOARD_POWER_WATTS", "mean", high=_MOST_POWER),
        _twin("sm_clock", "DCGM_FI_DEV_SM_CLOCK_HERTZ", "mean", high=_MOST_CLOCK),
        _twin("encoder", "DCGM_FI_DEV_ENC_UTIL_RATIO", "mean", "max"),
        Quantity(
            part="energy", high=_MOST_POWER, mean=("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL",), counter=True, twin=True
        ),
        _twin("decoder", "DCGM_FI_DEV_DEC_UTIL_RATIO", "mean", "max"),
        _twin("sm_active", "DCGM_FI_PROF_SM_UTIL_RATIO", *STATISTICS),
        _twin("engine_active", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", *STATISTICS),
    ),
    xids=m.GPU_LAST_XID.name,
)

# Our agent samples more often than it is scraped, and keeps mean and maximum of its last window: what happened between
# two scrapes is in these.
CARDS: Final = Group(
    schema="vgpuscope",
    kind="device",
    uuid="gpu_uuid",
    info=m.GPU_INFO.name,
    state=m.GPU_HEALTH.name,
    state_label="health",
    xids=m.GPU_XIDS.name,
    quantities=(
        _ours(
            "gpu_util",
            mean=(m.GPU_UTILIZATION_MEAN, m.GPU_UTILIZATION),
            max=(m.GPU_UTILIZATION_MAX, m.GPU_UTILIZATION),
            p95=m.GPU_UTILIZATION,
            samples=m.GPU_UTILIZATION,
            last=m.GPU_UTILIZATION,
        ),
        _ours(
            "mem_copy",
            mean=(m.GPU_MEMORY_CONTROLLER_MEAN, m.GPU_MEMORY_CONTROLLER),
            max=(m.GPU_MEMORY_CONTROLLER_MAX, m.GPU_MEMORY_CONTROLLER),
        ),
        _ours("mem_used", high=_MOST_MEMORY, mean=m.GPU_MEMORY_USED),
        _ours("mem_total", high=_MOST_MEMORY, max=m.GPU_MEMORY_TOTAL),
        _ours("power", high=_MOST_POWER, mean=(m.GPU_POWER_MEAN, m.GPU_POWER)),
        _ours("power_limit", high=_MOST_POWER, max=m.GPU_POWER_LIMIT),
        _ours("sm_clock", high=_MOST_CLOCK, mean=(m.GPU_SM_CLOCK_MEAN, m.GPU_SM_CLOCK)),
        _ours("encoder", mean=m.GPU_ENCODER, max=m.GPU_ENCODER),
        _ours("decoder", mean=m.GPU_DECODER, max=m.GPU_DECODER),
        _ours("jpeg", mean=m.GPU_JPEG, max=m.GPU_JPEG),
        _ours("ofa", mean=m.GPU_OFA, max=m.GPU_OFA),
        _rate("pcie_in", m.GPU_PCIE_RECEIVED, high=_MOST_TRAFFIC),
        _rate("pcie_out", m.GPU_PCIE_SENT, high=_MOST_TRAFFIC),
        _rate("energy", m.GPU_ENERGY, high=_MOST_POWER),
    ),
)
INSTANCES: Final = Group(
    schema="vgpuscope",
    kind="instance",
    uuid="gpu_uuid",
    info=m.MIG_INFO.name,
    quantities=(
        _ours("mem_used", high=_MOST_MEMORY, mean=m.MIG_MEMORY_USED, samples=m.MIG_MEMORY_USED, last=m.MIG_MEMORY_USED),
        _ours("mem_total", high=_MOST_MEMORY, max=m.MIG_MEMORY_TOTAL),
    ),
)
CONTAINERS: Final = Group(
    schema="vgpuscope",
    kind="container",
    uuid="gpu_uuid",
    state=m.CONTAINER_STATE.name,
    state_label="state",
    quantities=(
        _ours("presence", high=1e9, samples=m.CONTAINER_PROCESSES, last=m.CONTAINER_PROCESSES),
        _ours(
            "process_sm",
            mean=(m.CONTAINER_SM_MEAN, m.CONTAINER_SM),
            max=(m.CONTAINER_SM_MAX, m.CONTAINER_SM),
            p95=m.CONTAINER_SM,
            samples=m.CONTAINER_SM,
        ),
        _ours("mem_used", high=_MOST_MEMORY, mean=m.CONTAINER_MEMORY_USED),
        _ours("mem_total", high=_MOST_MEMORY, max=m.CONTAINER_MEMORY_TOTAL),
    ),
)
GROUPS: Final = (DCGM, CARDS, INSTANCES, CONTAINERS)
