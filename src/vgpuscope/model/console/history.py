"""Charts: columns of numbers over time."""

from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from vgpuscope.model.console.overview import GpuClass
from vgpuscope.model.console.parts import Part
from vgpuscope.model.quantity import Seconds

ClassGroup: TypeAlias = Literal["none", "namespace", "node", "owner", "model"]
ChartSource: TypeAlias = Literal["prometheus", "analyses", "hours", "days", "none"]
Quantity: TypeAlias = Literal[
    "use",
    "use_max",
    "cores_allocated",
    "memory_used",
    "memory_max",
    "memory_allocated",
    "score",
    "power",
    "power_max",
    "energy",
]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
Unit: TypeAlias = Literal["ratio", "bytes", "score", "watts", "joules"]
UNITS: dict[Quantity, Unit] = {
    "use": "ratio",
    "use_max": "ratio",
    "cores_allocated": "ratio",
    "memory_used": "bytes",
    "memory_max": "bytes",
    "memory_allocated": "bytes",
    "score": "score",
    "power": "watts",
    "power_max": "watts",
    "energy": "joules",
}


class ClassColumn(Struct, frozen=True, kw_only=True):
    """One class of one group: GPUs at each time."""

    group: str | None  # null: all
    use_class: GpuClass
    gpus: tuple[float | None, ...]  # mean over the analysed time of the step; null: nothing was analysed


class ClassHistory(Struct, frozen=True, kw_only=True):
    """How many GPUs were in which class, step by step."""

    begin: str
    end: str
    step_seconds: Seconds
    source: ChartSource
    group_by: ClassGroup
    times: tuple[int, ...]  # Unix seconds, the beginning of each step
    columns: tuple[ClassColumn, ...]
    groups_left_out: int  # groups beyond the limit, added up as "others"
    parts: tuple[Part, ...]


class SeriesColumn(Struct, frozen=True, kw_only=True):
    """One quantity at each time."""

    quantity: Quantity
    unit: Unit
    values: tuple[float | None, ...]
    # for how long a value was measured in each step, of a mean over GPUs in GPU-seconds: the weight of the value in the
    # mean of several steps. Empty: not known, from PromQL
    seconds: tuple[Seconds, ...] = ()
    promql: str | None = None  # the query that it is from


class SeriesHistory(Struct, frozen=True, kw_only=True):
    """The course of one GPU, node, pod, owner or namespace, or of the fleet."""

    begin: str
    end: str
    step_seconds: Seconds
    source: ChartSource
    times: tuple[int, ...]
    columns: tuple[SeriesColumn, ...]
    parts: tuple[Part, ...]
