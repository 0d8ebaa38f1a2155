"""Workloads as the console shows them: pods, or their owners or namespaces, with all their GPUs together."""

from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from vgpuscope.model.analysis import UseClass, Verdict
from vgpuscope.model.console.gpus import TenantDetail, Use
from vgpuscope.model.console.host_usage import PodBeside
from vgpuscope.model.console.parts import Part
from vgpuscope.model.console.scheduling import PendingRow, ReasonRow
from vgpuscope.model.quantity import Bytes, Seconds, Watts

WorkloadGroup: TypeAlias = Literal["pod", "owner", "namespace"]
WORKLOAD_GROUPS: tuple[WorkloadGroup, ...] = get_args(WorkloadGroup)
WorkloadState: TypeAlias = Literal["running", "pending"]


class WorkloadGpu(Struct, frozen=True, kw_only=True, gc=False):
    """A GPU or MIG instance that a workload has."""

    gpu_id: str
    mig: str | None


class WorkloadRow(Struct, frozen=True, kw_only=True, gc=False):
    """One pod, owner or namespace. Amounts are added up over its containers and GPUs."""

    namespace: str
    pod: str | None  # null: a group of pods
    pod_uid: str | None
    owner: str | None  # null: a group of owners, or not known
    state: WorkloadState
    pods: int
    nodes: tuple[str, ...]
    gpus: tuple[WorkloadGpu, ...]
    tenants: int
    by_class: dict[UseClass, int]  # tenants
    memory_allocated: Bytes | None  # requested, as the scheduler allocated it
    memory_limit: Bytes | None
    memory_used: Bytes | None
    memory_max: Bytes | None
    cores_allocated: int | None
    cores_limit: int | None
    use: Use  # mean over its GPUs; p95 and max of the busiest
    power: Watts | None
    score: float | None
    verdict: Verdict  # in_use if one tenant is, idle only if all are
    use_class: UseClass | None  # null: its tenants differ
    idle_since: str | None
    since: str | None  # when it got its GPUs; of a pending pod, when it was created
    container_state: str | None  # by its agent: not-started, idle, active, unknown; null: its tenants differ
    last_kernel: str | None
    priority: int | None
    blocked: bool | None
    code: str | None  # of a pending pod: why it waits
    waited_seconds: Seconds | None  # when the answer was made; `since` is exact


class WorkloadList(Struct, frozen=True, kw_only=True):
    """A page of workloads."""

    at: str | None
    stale: bool
    group_by: WorkloadGroup
    total: int
    rows: tuple[WorkloadRow, ...]
    parts: tuple[Part, ...]


class WorkloadOnGpu(Struct, frozen=True, kw_only=True):
    """One container of a workload on one GPU, with evidence."""

    gpu_id: str
    mig: str | None
    node: str | None
    index: int | None
    model: str | None
    gpu_class: UseClass  # of the whole GPU, which can be busy while this tenant is idle
    detail: TenantDetail


class WorkloadDetail(Struct, frozen=True, kw_only=True):
    """One pod."""

    at: str | None
    stale: bool
    workload: WorkloadRow
    gpus: tuple[WorkloadOnGpu, ...]
    scheduling: PendingRow | None  # how it waited, or why it waits; null: not recorded
    reasons: tuple[ReasonRow, ...]  # what schedulers reported about it
    parts: tuple[Part, ...]
    beside: PodBeside | None = None  # CPU, memory, I/O, processes; null: it waits, or no agent can tell
