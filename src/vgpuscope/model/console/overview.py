"""The fleet at a glance: figures, classes, what needs attention, and who wastes most."""

from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from vgpuscope.model.analysis import UseClass
from vgpuscope.model.console.parts import Part
from vgpuscope.model.quantity import Bytes, Ratio, Watts

GpuClass: TypeAlias = Literal["unallocated", UseClass]  # unallocated: the verdict is idle, and no pod has the GPU
GPU_CLASSES: tuple[GpuClass, ...] = get_args(GpuClass)
AttentionKind: TypeAlias = Literal[
    "unhealthy",  # health is not ok
    "xid",  # a fatal XID in the window
    "no-data",  # the GPU or its agent does not report
    "over-limit",  # a tenant uses more memory than its limit
    "near-limit",
    "idle-long",  # held and idle for long
    "idle-tenant",  # idle tenant on a GPU that others use
    "stalled",
    "pending-long",
    "finding",  # a contradiction, such as a ghost allocation
    "unattributed",  # memory in use that belongs to no known container
]
ATTENTION_KINDS: tuple[AttentionKind, ...] = get_args(AttentionKind)


class Figures(Struct, frozen=True, kw_only=True):
    """The fleet in figures. Null: not known, or not in the history."""

    gpus: int | None  # physical GPUs
    gpus_unlisted: int | None  # of these, those of which only the number is known: their kubelet offers them
    gpus_divided: int | None  # of these, those that MIG divides
    gpus_healthy: int | None
    gpus_held: int | None  # a pod has the GPU or a part of it
    mig_instances: int | None
    gpus_or_instances: int | None  # a GPU that MIG divides counts as its instances
    idle_held: int | None  # of these, those that a pod has and whose verdict is idle
    unknown: int | None  # of these, those whose verdict is unknown
    tenants_idle: int | None  # tenants whose own verdict is idle
    memory_capacity: Bytes | None
    memory_allocated: Bytes | None
    memory_ratio: Ratio | None
    cores_ratio: Ratio | None
    use: Ratio | None  # mean utilisation over all measured GPUs
    use_held: Ratio | None  # the same over held GPUs
    gpus_measured: int | None  # GPUs behind `use`
    wasted_gpu_hours: float | None  # idle GPU-hours of the last 24 hours
    power: Watts | None
    pending_pods: int | None


class AttentionRow(Struct, frozen=True, kw_only=True):
    """One thing that needs attention."""

    kind: AttentionKind
    code: str | None  # of the verdict, the finding, the scheduler or the source
    node: str | None = None
    gpu_id: str | None = None
    mig: str | None = None
    namespace: str | None = None
    pod: str | None = None
    container: str | None = None
    since: str | None = None
    number: float | None = None  # seconds, bytes, a ratio or a count: see `unit`
    unit: Literal["seconds", "bytes", "ratio", "xid"] | None = None
    message: str | None = None
    message_zh: str | None = None  # the same in Chinese, if it is a sentence


class WasteBy(Struct, frozen=True, kw_only=True):
    """Idle GPU-hours of one namespace in the last 24 hours."""

    namespace: str
    idle_gpu_hours: float
    held_gpu_hours: float
    idle_ratio: Ratio
    pods: int
    gpus: int


class Overview(Struct, frozen=True, kw_only=True):
    """The fleet at a glance."""

    at: str | None
    stale: bool
    nodes: int
    namespaces: int
    tenants: int
    now: Figures
    before: Figures | None  # one day before; null: the history does not reach so far
    by_class: dict[GpuClass, int]  # GPUs or MIG instances; together they are `now.gpus_or_instances`
    tenants_by_class: dict[UseClass, int]
    attention: tuple[AttentionRow, ...]
    attention_total: int
    waste: tuple[WasteBy, ...] | None  # null: no history
    parts: tuple[Part, ...]
