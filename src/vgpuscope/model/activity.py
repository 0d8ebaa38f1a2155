"""What the profiling counters of a GPU or of a GPU instance (MIG) show. None: not measured."""

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from vgpuscope.model.quantity import DeviceUUID, Ratio, UnixTime

ActivitySource = Literal["gpm", "dcgm"]  # the driver itself (Hopper and later), or a dcgm-exporter on the node

# Why a GPU has no profiling values from the driver; "" if it has some.
Blind = Literal[
    "", "unsupported", "no-symbols", "no-permission", "failed", "hung", "disturbs-memory", "no-driver", "no-values"
]

ActivityPlace: TypeAlias = tuple[DeviceUUID, int | None]  # a GPU, or one of its GPU instances by number


class Activity(Struct, frozen=True, kw_only=True):
    """Means over the time since the last reading. Ratios are of the GPU or GPU instance that they are about."""

    engine: Ratio | None = None  # time in which a graphics or compute context was busy
    sm: Ratio | None = None  # SMs that had at least one warp
    occupancy: Ratio | None = None  # resident warps, of the most that there can be
    tensor: Ratio | None = None  # cycles in which a tensor pipe was busy
    fp64: Ratio | None = None
    fp32: Ratio | None = None
    fp16: Ratio | None = None
    dram: Ratio | None = None  # memory bandwidth in use, of the most that there can be
    decoder: Ratio | None = None  # the busiest video decoder; only of GPU instances, likewise the next two
    jpeg: Ratio | None = None
    ofa: Ratio | None = None  # optical flow
    pcie_sent: float | None = None  # bytes per second
    pcie_received: float | None = None
    nvlink_sent: float | None = None
    nvlink_received: float | None = None

    @property
    def busy(self) -> Ratio | None:
        """Share of time with work: that of the engine, else that of the SMs, which is never more."""
        return self.engine if self.engine is not None else self.sm


class DcgmSeries(NamedTuple):
    """What a series of a dcgm-exporter means; with a reason, it is rejected."""

    place: ActivityPlace
    field: str  # of Activity
    high: float  # the highest possible value: 1 for a ratio, otherwise bytes per second
    by_values: bool = False  # the name does not say whether it is 0-1 or 0-100
    reason: str = ""

    @property
    def is_ratio(self) -> bool:
        return self.high == 1.0


class DcgmPage(NamedTuple):
    """The profiling values on one page of a dcgm-exporter, as they are there."""

    samples: list[tuple[DcgmSeries, float]]
    at: UnixTime | None = None  # when the page was requested
    interrupted: bool = False  # the exporter did not answer before, or is another one


class ActivityReading(Struct, frozen=True, kw_only=True):
    """Everything that one source of profiling values reported."""

    source: ActivitySource
    places: Mapping[ActivityPlace, Activity] = {}
    blind: Mapping[DeviceUUID, Blind] = {}  # GPUs without values from the driver, and why
    waiting: frozenset[DeviceUUID] = frozenset()  # GPUs whose first values come with the next reading
    dropped: Mapping[str, int] = {}  # values and series rejected so far, by reason
    rejected: frozenset[str] = frozenset()  # the reasons of this reading alone; only of a dcgm-exporter
