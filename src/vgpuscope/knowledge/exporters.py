"""The supported exporters: which metric gives which term, in which unit, with which labels.

A group is a set of series with one set of labels: dcgm-exporter has one, our agent has three (GPUs, MIG instances,
containers). A quantity is a row of a group's table: the metrics that give its statistics, in order of preference.
"""

from typing import Final, Literal, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.catalog import agent as m
from vgpuscope.catalog.metric import Metric
from vgpuscope.knowledge import dcgm_fields as dcgm
from vgpuscope.knowledge.dcgm_fields import MOST_CLOCK, MOST_MEMORY, MOST_POWER, DcgmField
from vgpuscope.knowledge.link_speeds import HIGHEST_PCIE
from vgpuscope.model.analysis import Schema, Term

Statistic: TypeAlias = Literal["mean", "max", "p95", "samples", "last"]
STATISTICS: Final[tuple[Statistic, ...]] = ("mean", "max", "p95", "samples", "last")
Part: TypeAlias = Term | Literal["mem_free", "mem_reserved", "presence"]  # the last three are internal

_MOST_CORES = 1e5
MANY_SAMPLES: Final = 256
_ROUNDING = 1 + 1e-6  # a mean of ones may end a little above 1
_PERCENT = 100.0
SENTINELS: Final = (float(2**31 - 16), float(2**63 - 16), float(2**47))


class Quantity(Struct, frozen=True, kw_only=True):
    """One term of a group: the metrics of its statistics, and the range of possible values."""

    part: Part
    scale: float = 1.0  # value in the metric's unit for 1 in ours, as in the catalog: 100 for percent
    high: float = 1.0
    mean: tuple[str, ...] = ()
    max: tuple[str, ...] = ()
    p95: tuple[str, ...] = ()
    samples: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    max_if_many: tuple[str, ...] = ()  # queried only if a blank value could hide in the mean
    counter: bool = False  # a counter, whose rate is used
    twin: bool = False  # a second name for another quantity, in base units
    by_values: bool = False  # the name does not say whether it is 0-1 or 0-100; see `percent`

    @property
    def term(self) -> str:
        """The term that is missing if this quantity is not known."""
        return "mem_total" if self.part in {"mem_free", "mem_reserved"} else self.part

    def names(self, statistic: Statistic, *, many: bool) -> tuple[str, ...]:
        """The metrics that could give a statistic."""
        found: tuple[str, ...] = getattr(self, statistic)
        return self.max_if_many if many and statistic == "max" and not found else found

    @property
    def highest(self) -> float:
        """The highest possible value, in our unit; if only the values show the unit, in percent."""
        return (_PERCENT if self.by_values else self.high) * _ROUNDING

    def percent(self, most: float) -> bool:
        """Whether an exporter's values are 0-100 though the name says ratio; `most`: the highest of them.

        In doubt they are 0-1: then the GPU looks busier.
        """
        return self.by_values and most > self.high * _ROUNDING

    def plausible(self, value: float) -> bool:
        """Whether a sample in the metric's own unit is possible; NaN is not."""
        return 0.0 <= value / self.scale <= self.highest


class Group(Struct, frozen=True, kw_only=True):
    """Series with one set of labels."""

    schema: Schema
    kind: Literal["device", "instance", "container"]
    uuid: str  # the label that holds the GPU's UUID
    quantities: tuple[Quantity, ...]
    info: str = ""  # a metric whose labels give model, index and profile
    state: str = ""  # a metric that is 1 for the state that the label `state_label` names
    state_label: str = ""
    xids: str = ""  # a metric that shows XIDs

    @property
    def measures(self) -> frozenset[str]:
        """Every metric that gives a statistic."""
        return frozenset(name for q in self.quantities for s in STATISTICS for name in q.names(s, many=True))

    @property
    def clocks(self) -> frozenset[str]:
        """Metrics whose samples show how many samples there are, and when."""
        return frozenset(name for quantity in self.quantities for name in quantity.last)

    @property
    def facts(self) -> frozenset[str]:
        """Metrics whose labels carry information, not their values."""
        return frozenset(filter(None, (self.info, self.state)))

    @property
    def names(self) -> frozenset[str]:
        """Every metric that may be queried."""
        return self.measures | self.facts | frozenset(filter(None, (self.xids,)))


# ── the tables ───────────────────────────────────────────────────────────────────────────────────────────────────


def _dcgm(field: DcgmField, *wanted: Statistic) -> Quantity:
    """A quantity of dcgm-exporter under the name that all releases have."""
    by = dict.fromkeys(wanted, (field.name,))
    return Quantity(part=cast("Part", field.term), scale=field.scale, high=field.high, **by)  # type: ignore[arg-type]


def _twin(field: DcgmField, *wanted: Statistic) -> Quantity:
    """The same under its name of DCGM 4.7, in base units."""
    by = dict.fromkeys(wanted, (field.base_name,))
    return Quantity(part=cast("Part", field.term), high=field.high, twin=True, by_values=field.is_ratio, **by)  # type: ignore[arg-type]


def _ours(part: Part, *, high: float = 1.0, **by: Metric | tuple[Metric, ...]) -> Quantity:
    names = {key: tuple(x.name for x in (value if isinstance(value, tuple) else (value,))) for key, value in by.items()}
    return Quantity(part=part, high=high, **names)  # type: ignore[arg-type]


def _profiled(sm: tuple[Metric, Metric, Metric], engine: tuple[Metric, Metric, Metric]) -> tuple[Quantity, ...]:
    """The profiling values that our agent gives of a GPU or MIG instance: mean, maximum and last value of each."""
    named: tuple[tuple[Part, tuple[Metric, Metric, Metric]], ...] = (("sm_active", sm), ("engine_active", engine))
    return tuple(
        _ours(part, mean=(mean, last), max=(top, last), p95=(mean, last), samples=last, last=last)
        for part, (mean, top, last) in named
    )


def _rate(part: Part, metric: Metric, *, high: float) -> Quantity:
    return Quantity(part=part, high=high, mean=(metric.name,), counter=True)


DCGM: Final = Group(
    schema="dcgm",
    kind="device",
    uuid="UUID",
    quantities=(
        _dcgm(dcgm.GPU_UTIL, *STATISTICS),
        _dcgm(dcgm.MEM_COPY, "mean", "max"),
        replace(_dcgm(dcgm.FB_USED, "mean"), max_if_many=(dcgm.FB_USED.name,)),
        _dcgm(dcgm.FB_FREE, "mean"),
        _dcgm(dcgm.FB_RESERVED, "mean"),
        _dcgm(dcgm.FB_TOTAL, "max"),
        _dcgm(dcgm.POWER, "mean"),
        _dcgm(dcgm.POWER_LIMIT, "max"),
        _dcgm(dcgm.SET_POWER_LIMIT, "max"),
        _dcgm(dcgm.SM_CLOCK, "mean"),
        _dcgm(dcgm.ENCODER, "mean", "max"),
        _dcgm(dcgm.PCIE_RECEIVED, "mean"),
        _dcgm(dcgm.PCIE_SENT, "mean"),
        replace(_dcgm(dcgm.ENERGY, "mean"), counter=True),
        _dcgm(dcgm.DECODER, "mean", "max"),
        _dcgm(dcgm.SM, *STATISTICS),
        _dcgm(dcgm.ENGINE, *STATISTICS),
        _dcgm(dcgm.DRAM, "mean", "max"),
        _twin(dcgm.GPU_UTIL, *STATISTICS),
        _twin(dcgm.MEM_COPY, "mean", "max"),
        _twin(dcgm.FB_USED, "mean"),
        _twin(dcgm.FB_FREE, "mean"),
        _twin(dcgm.FB_RESERVED, "mean"),
        _twin(dcgm.FB_TOTAL, "max"),
        _twin(dcgm.POWER, "mean"),
        _twin(dcgm.SM_CLOCK, "mean"),
        _twin(dcgm.ENCODER, "mean", "max"),
        replace(_twin(dcgm.ENERGY, "mean"), counter=True),
        _twin(dcgm.DECODER, "mean", "max"),
        _twin(dcgm.SM, *STATISTICS),
        _twin(dcgm.ENGINE, *STATISTICS),
        _twin(dcgm.DRAM, "mean", "max"),
    ),
    xids=m.GPU_LAST_XID.name,
)

# Our agent samples more often than it is scraped, and keeps mean and maximum of its last window. These include what
# happened between two scrapes. p95 is read from the same metric as the mean: of single samples it could be 0 beside a
# mean of bursts that no scrape has met.
GPUS: Final = Group(
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
            p95=(m.GPU_UTILIZATION_MEAN, m.GPU_UTILIZATION),
            samples=m.GPU_UTILIZATION,
            last=m.GPU_UTILIZATION,
        ),
        _ours(
            "mem_copy",
            mean=(m.GPU_MEMORY_CONTROLLER_MEAN, m.GPU_MEMORY_CONTROLLER),
            max=(m.GPU_MEMORY_CONTROLLER_MAX, m.GPU_MEMORY_CONTROLLER),
        ),
        _ours("mem_used", high=MOST_MEMORY, mean=m.GPU_MEMORY_USED),
        _ours("mem_total", high=MOST_MEMORY, max=m.GPU_MEMORY_TOTAL),
        _ours("power", high=MOST_POWER, mean=(m.GPU_POWER_MEAN, m.GPU_POWER)),
        _ours("power_limit", high=MOST_POWER, max=m.GPU_POWER_LIMIT),
        _ours("sm_clock", high=MOST_CLOCK, mean=(m.GPU_SM_CLOCK_MEAN, m.GPU_SM_CLOCK)),
        _ours("encoder", mean=m.GPU_ENCODER, max=m.GPU_ENCODER),
        _ours("decoder", mean=m.GPU_DECODER, max=m.GPU_DECODER),
        _ours("jpeg", mean=m.GPU_JPEG, max=m.GPU_JPEG),
        _ours("ofa", mean=m.GPU_OFA, max=m.GPU_OFA),
        *_profiled(
            (m.GPU_SM_ACTIVE_MEAN, m.GPU_SM_ACTIVE_MAX, m.GPU_SM_ACTIVE),
            (m.GPU_ENGINE_ACTIVE_MEAN, m.GPU_ENGINE_ACTIVE_MAX, m.GPU_ENGINE_ACTIVE),
        ),
        _rate("pcie_in", m.GPU_PCIE_RECEIVED, high=HIGHEST_PCIE),
        _rate("pcie_out", m.GPU_PCIE_SENT, high=HIGHEST_PCIE),
        _rate("energy", m.GPU_ENERGY, high=MOST_POWER),
    ),
)
INSTANCES: Final = Group(
    schema="vgpuscope",
    kind="instance",
    uuid="gpu_uuid",
    info=m.MIG_INFO.name,
    quantities=(
        _ours("mem_used", high=MOST_MEMORY, mean=m.MIG_MEMORY_USED, samples=m.MIG_MEMORY_USED, last=m.MIG_MEMORY_USED),
        _ours("mem_total", high=MOST_MEMORY, max=m.MIG_MEMORY_TOTAL),
        *_profiled(
            (m.MIG_SM_ACTIVE_MEAN, m.MIG_SM_ACTIVE_MAX, m.MIG_SM_ACTIVE),
            (m.MIG_ENGINE_ACTIVE_MEAN, m.MIG_ENGINE_ACTIVE_MAX, m.MIG_ENGINE_ACTIVE),
        ),
        # the only sign of a tenant that copies or, before Hopper, decodes video: no SM and no engine is busy then
        _ours("dram_active", mean=m.MIG_DRAM_ACTIVE, max=m.MIG_DRAM_ACTIVE),
        _ours("decoder", mean=m.MIG_DECODER, max=m.MIG_DECODER),
        _ours("jpeg", mean=m.MIG_JPEG, max=m.MIG_JPEG),
        _ours("ofa", mean=m.MIG_OFA, max=m.MIG_OFA),
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
            "process_sm",  # in a MIG instance: of the instance, since 1/7 of a GPU may be all of it
            mean=(m.CONTAINER_INSTANCE_SM_MEAN, m.CONTAINER_INSTANCE_SM),
            max=(m.CONTAINER_INSTANCE_SM_MAX, m.CONTAINER_INSTANCE_SM),
            p95=(m.CONTAINER_INSTANCE_SM_MEAN, m.CONTAINER_INSTANCE_SM),
            samples=m.CONTAINER_INSTANCE_SM,
        ),
        _ours(
            "process_sm",
            mean=(m.CONTAINER_SM_MEAN, m.CONTAINER_SM),
            max=(m.CONTAINER_SM_MAX, m.CONTAINER_SM),
            p95=(m.CONTAINER_SM_MEAN, m.CONTAINER_SM),
            samples=m.CONTAINER_SM,
        ),
        _ours("process_sm_error", mean=m.CONTAINER_SM_ERROR),
        _ours("mem_used", high=MOST_MEMORY, mean=m.CONTAINER_MEMORY_USED),
        _ours("mem_total", high=MOST_MEMORY, max=m.CONTAINER_MEMORY_TOTAL),
        _ours("power", high=MOST_POWER, mean=m.CONTAINER_POWER),  # its part of the GPU's
        _ours("cpu", high=_MOST_CORES, mean=m.CONTAINER_CPU, max=m.CONTAINER_CPU),
    ),
)
GROUPS: Final = (DCGM, GPUS, INSTANCES, CONTAINERS)
