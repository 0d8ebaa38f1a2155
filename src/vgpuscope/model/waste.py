"""GPU-hours of a period by their use, and the tenants that left them idle."""

from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from vgpuscope.model.analysis import Verdict
from vgpuscope.model.quantity import Bytes

GroupBy: TypeAlias = Literal["tenant", "namespace", "owner", "node", "model"]
GROUPINGS: tuple[GroupBy, ...] = get_args(GroupBy)


class WasteRow(Struct, frozen=True, kw_only=True):
    """One tenant, or one group of tenants. A name is given if all tenants of the group have the same."""

    namespace: str | None
    pod: str | None
    owner: str | None
    node: str | None
    model: str | None
    gpus: int  # GPUs and MIG instances that they had
    pods: int
    idle_gpu_hours: float
    in_use_gpu_hours: float
    unknown_gpu_hours: float
    held_gpu_hours: float  # these three together
    idle_ratio: float  # idle hours divided by all hours that they held
    memory_held: Bytes | None  # in use on all their GPUs together: mean over the time analysed
    idle_since: str | None  # since when all current tenants of the row are idle; null: not all are
    verdict: Verdict | Literal["ended"]  # now


class Waste(Struct, frozen=True, kw_only=True):
    """How the GPU-hours of a period were used. A MIG instance is a part of a GPU-hour."""

    begin: str
    end: str
    group_by: GroupBy
    history: bool  # whether results are stored at all
    gpu_hours: float  # GPU-hours that were analysed
    held_gpu_hours: float  # of these, the hours in which a pod held the GPU
    unallocated_gpu_hours: float  # the hours in which no pod held the GPU: free, not wasted
    idle_gpu_hours: float  # shares of idle tenants
    in_use_gpu_hours: float
    unknown_gpu_hours: float
    free_part_gpu_hours: float  # of shared GPUs, beyond the shares of their tenants; with these four, the held hours
    count: int  # number of rows on all pages
    rows: list[WasteRow]
