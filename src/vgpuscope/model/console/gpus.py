"""GPUs as the console shows them: what the analysis, the cluster exporter and the agents know of each, joined.

Memory is in bytes, shares are ratios 0-1, cores are percent of one GPU, times are ISO 8601 in UTC. Null: not known.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from vgpuscope.model.analysis import Evidence, ScoreTerm, Signal, Stat, Status, Term, UseClass, Verdict
from vgpuscope.model.cluster import LostReason
from vgpuscope.model.console.opinion import OpinionRow
from vgpuscope.model.console.overview import GpuClass
from vgpuscope.model.console.parts import Part
from vgpuscope.model.quantity import Bytes, Celsius, Hertz, Ratio, Watts

Mode: TypeAlias = Literal["exclusive", "hami", "mig", "mps", "time-slicing", "dra", "unallocated", "free"]
LedgerKind: TypeAlias = Literal["container", "system", "unattributed", "free"]


class Use(Struct, frozen=True, kw_only=True, gc=False):
    """One quantity over the window of the analysis."""

    mean: float | None = None
    p95: float | None = None
    max: float | None = None


class Allocation(Struct, frozen=True, kw_only=True, gc=False):
    """How much of a GPU the scheduler has allocated, which can be more than there is."""

    memory: Bytes
    memory_capacity: Bytes  # as registered, so perhaps scaled
    memory_ratio: Ratio | None
    cores: int  # percent
    cores_capacity: int
    cores_ratio: Ratio | None
    slots: int
    slots_capacity: int
    lost: LostReason | None = None  # why nothing new can be placed here


class TenantRow(Struct, frozen=True, kw_only=True, gc=False):
    """One container on one GPU or MIG instance."""

    namespace: str
    pod: str
    pod_uid: str | None = None
    container: str | None = None
    owner: str | None = None
    own_numbers: bool = False  # false: only the whole GPU is measured
    use: Use = Use()  # its own share of the GPU's time
    memory_used: Bytes | None = None  # mean over the window
    memory_max: Bytes | None = None
    memory_limit: Bytes | None = None  # as enforced
    memory_allocated: Bytes | None = None  # by the scheduler
    cores_allocated: int | None = None  # percent; null: not specified
    cores_limit: int | None = None  # percent, as enforced; null: no limit is known
    power: Watts | None = None
    score: float | None = None
    status: Status = "unknown"
    verdict: Verdict = "unknown"
    use_class: UseClass = "unknown"
    confidence: Ratio = 0.0
    coverage: Ratio | None = None
    state: str | None = None  # of the container, by its agent: not-started, idle, active, unknown
    last_kernel: str | None = None
    priority: int | None = None  # 0 high, 1 low
    blocked: bool | None = None  # a container of higher priority stops it
    allocated: bool | None = None  # false: it uses the GPU without an allocation
    since: str | None = None  # when it got the GPU; null: before the window, or not known
    window_share: Ratio = 1.0  # part of the window in which it had the GPU: so much its power weighs in a sum
    idle_since: str | None = None  # null: its verdict is not idle


class Others(Struct, frozen=True, kw_only=True, gc=False):
    """The tenants of other namespaces, together and without names."""

    tenants: int = 0
    memory_used: Bytes | None = None  # null: not known of any of them
    memory_allocated: Bytes | None = None
    cores_allocated: int | None = None


class GpuRow(Struct, frozen=True, kw_only=True, gc=False):
    """One GPU or MIG instance."""

    gpu_id: str
    mig: str | None = None
    profile: str | None = None
    node: str | None = None
    index: int | None = None
    model: str | None = None
    mode: Mode | None = None
    health: str | None = None  # ok, lost, reset-required, …
    xids: tuple[int, ...] = ()  # in the window
    allocation: Allocation | None = None
    shared: bool = False
    held: bool = False  # a pod has it
    signal: Signal | None = None  # the signal that `use` shows, which decided the verdict
    use: Use = Use()
    gpu_util: Use = Use()
    sm_active: Use = Use()
    memory_used: Bytes | None = None  # mean over the window
    memory_max: Bytes | None = None
    memory_total: Bytes | None = None
    memory_unattributed: Bytes | None = None  # used by no known container
    power: Watts | None = None
    power_limit: Watts | None = None
    temperature: Celsius | None = None
    score: float | None = None
    status: Status = "unknown"
    verdict: Verdict = "unknown"
    use_class: UseClass = "unknown"
    reasons: tuple[str, ...] = ()  # codes of the verdict, the deciding one first
    confidence: Ratio = 0.0
    coverage: Ratio | None = None
    idle_since: str | None = None
    last_seen: str | None = None  # null: it reports, or was never seen
    tenants: tuple[TenantRow, ...] = ()
    others: Others | None = None  # null: every tenant is listed


class GpuList(Struct, frozen=True, kw_only=True):
    """A page of GPUs."""

    at: str | None  # the end of the analysed window
    stale: bool
    total: int  # rows on all pages
    rows: tuple[GpuRow, ...]
    parts: tuple[Part, ...]


class LedgerRow(Struct, frozen=True, kw_only=True):
    """One part of a GPU's memory. All rows together are the memory of the GPU."""

    kind: LedgerKind
    memory: Bytes
    namespace: str | None = None
    pod: str | None = None
    container: str | None = None
    memory_limit: Bytes | None = None
    allocated: bool | None = None


class MemoryLedger(Struct, frozen=True, kw_only=True):
    """How the memory of a GPU is divided, by its agent."""

    total: Bytes
    rows: tuple[LedgerRow, ...]


class HolderRow(Struct, frozen=True, kw_only=True):
    """A container that holds a part of the GPU, by the scheduler."""

    namespace: str
    pod: str
    pod_uid: str
    container: str | None
    init: bool
    memory: Bytes
    cores: int | None  # percent; null: not specified


class XidRow(Struct, frozen=True, kw_only=True):
    """One XID that the GPU has reported."""

    xid: int
    count: int | None  # since the agent began to listen; null: seen in the window, not counted
    name: str | None
    action: str
    advice: str
    fatal: bool | None


class Hardware(Struct, frozen=True, kw_only=True):
    """What the driver says of the GPU now."""

    serial: str | None = None
    pci_bus_id: str | None = None
    driver_version: str | None = None
    memory_temperature: Celsius | None = None
    sm_clock: Hertz | None = None
    sm_clock_limit: Hertz | None = None
    memory_clock: Hertz | None = None
    memory_clock_limit: Hertz | None = None
    fan: Ratio | None = None
    encoder: Ratio | None = None
    decoder: Ratio | None = None
    throttle: tuple[str, ...] = ()  # reasons that lower the clocks now
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    remapped_corrected: int | None = None
    remapped_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    processes: int | None = None


class InstanceRow(Struct, frozen=True, kw_only=True):
    """One MIG instance of the GPU."""

    mig: str | None
    profile: str | None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    start: int | None = None  # the first memory slice
    size: int | None = None
    memory_used: Bytes | None = None
    memory_total: Bytes | None = None
    use_class: GpuClass | None = None
    namespace: str | None = None
    pod: str | None = None


class TenantDetail(Struct, frozen=True, kw_only=True):
    """One tenant, with the evidence for its verdict."""

    tenant: TenantRow
    terms: dict[Term, Stat]
    score_terms: tuple[ScoreTerm, ...]
    evidence: Evidence
    why: tuple[str, ...]  # the evidence in sentences
    opinion: OpinionRow | None = None  # of a language model; null: it is not asked


class Query(Struct, frozen=True, kw_only=True):
    """The PromQL of one number."""

    name: str
    promql: str


class GpuDetail(Struct, frozen=True, kw_only=True):
    """One GPU or MIG instance, with the evidence for its verdict."""

    at: str | None
    stale: bool
    gpu: GpuRow
    terms: dict[Term, Stat]
    score_terms: tuple[ScoreTerm, ...]
    evidence: Evidence | None  # null: the analysis has not seen the GPU
    why: tuple[str, ...]
    tenants: tuple[TenantDetail, ...]
    former: tuple[TenantDetail, ...]  # tenants from earlier in the window
    instances: tuple[InstanceRow, ...]  # MIG layout; empty: the GPU is not partitioned
    holders: tuple[HolderRow, ...]
    ledger: MemoryLedger | None
    hardware: Hardware | None
    xids: tuple[XidRow, ...]
    target: str | None  # the scrape target that reports it
    queries: tuple[Query, ...]
    parts: tuple[Part, ...]
    opinion: OpinionRow | None = None  # of a language model; null: it is not asked, or the GPU is shared
