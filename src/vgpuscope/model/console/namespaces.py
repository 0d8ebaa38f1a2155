"""Namespaces as the console shows them: GPUs held, use, quotas and idle hours."""

from msgspec import Struct

from vgpuscope.model.analysis import UseClass, Verdict
from vgpuscope.model.console.gpus import GpuRow
from vgpuscope.model.console.parts import Part
from vgpuscope.model.console.scheduling import PendingRow
from vgpuscope.model.console.workloads import WorkloadRow
from vgpuscope.model.quantity import Bytes, Ratio, Watts


class QuotaRow(Struct, frozen=True, kw_only=True):
    """One quota, in the unit of its resource."""

    resource: str
    used: float
    limit: float | None  # null: no limit
    ratio: Ratio | None


class NamespaceRow(Struct, frozen=True, kw_only=True):
    """One namespace. A shared GPU is counted in the namespace of each of its tenants."""

    name: str
    gpus: int  # physical GPUs of which its pods have all or a part
    gpus_or_instances: int  # a GPU that MIG divides counts as the instances that its pods have
    pods: int
    tenants: int
    by_class: dict[UseClass, int]  # tenants
    by_verdict: dict[Verdict, int]
    memory_allocated: Bytes | None
    memory_limit: Bytes | None
    memory_used: Bytes | None
    cores_allocated: int | None
    use: Ratio | None  # mean of its tenants' own use
    power: Watts | None
    score: float | None
    quotas: tuple[QuotaRow, ...]
    idle_gpu_hours: float | None  # in the last 24 hours; null: no history
    held_gpu_hours: float | None
    pending_pods: int | None


class NamespaceList(Struct, frozen=True, kw_only=True):
    """A page of namespaces."""

    at: str | None
    stale: bool
    total: int
    rows: tuple[NamespaceRow, ...]
    parts: tuple[Part, ...]


class NamespaceDetail(Struct, frozen=True, kw_only=True):
    """One namespace."""

    at: str | None
    stale: bool
    namespace: NamespaceRow
    gpus: tuple[GpuRow, ...]
    workloads: tuple[WorkloadRow, ...]
    pending: tuple[PendingRow, ...]
    parts: tuple[Part, ...]
