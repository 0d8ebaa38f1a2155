"""Nodes as the console shows them: capacity, allocation and use, and the state of their agents."""

from msgspec import Struct

from vgpuscope.model.cluster import Finding, OfferLedger
from vgpuscope.model.console.gpus import GpuRow
from vgpuscope.model.console.host_usage import NodeBeside
from vgpuscope.model.console.overview import GpuClass
from vgpuscope.model.console.parts import Part
from vgpuscope.model.console.scheduling import CountedCapacity, FreeCapacity
from vgpuscope.model.console.workloads import WorkloadRow
from vgpuscope.model.quantity import Bytes, Ratio, Seconds, Watts


class SourceRow(Struct, frozen=True, kw_only=True):
    """One source of an agent."""

    source: str
    up: bool
    absent: bool | None  # true: not on this node, which is not a fault
    age_seconds: Seconds | None
    code: str | None = None  # why it is down; only in the detail of a node, and only of agents that we scrape ourselves
    message: str | None = None


class AgentRow(Struct, frozen=True, kw_only=True):
    """The agent or exporter of a node."""

    up: bool | None  # null: no agent is known
    target: str | None = None
    version: str | None = None
    age_seconds: Seconds | None = None  # of its last sample
    last_seen: str | None = None  # null: it answers, or never did
    reason: str | None = None
    sources: tuple[SourceRow, ...] = ()


class NodeRow(Struct, frozen=True, kw_only=True):
    """One node."""

    name: str
    known: bool | None  # false: pods have GPUs on it, but the cluster has no such node; null: not known
    ready: bool | None
    schedulable: bool | None
    agent: AgentRow
    gpus: int | None  # physical GPUs; null: only MIG instances are known
    gpus_unlisted: int  # of these, those of which only the number is known: the kubelet offers them
    mig_instances: int
    gpus_or_instances: int  # a GPU that MIG divides counts as its instances
    models: tuple[str, ...]
    memory_total: Bytes | None  # of the GPUs themselves
    memory_capacity: Bytes | None  # as registered, so perhaps scaled
    memory_allocated: Bytes | None
    memory_used: Bytes | None
    cores_capacity: int | None
    cores_allocated: int | None
    slots_capacity: int | None
    slots_allocated: int | None
    slots_free: int | None
    largest_memory: Bytes | None  # of one GPU or MIG instance, registered or counted; null: not known
    largest_cores: int | None  # of registered GPUs
    whole_gpus: int | None  # registered or counted, the most of one resource; null: the node offers no GPUs
    counted: tuple[CountedCapacity, ...]  # GPUs of which the kubelet offers only a number
    counted_memory: Bytes | None  # of all of those; null: there are none, or it is not known
    counted_memory_requested: Bytes | None  # by pods; null: also if pods share them, which is without a limit of memory
    fragmentation: Ratio | None  # of registered GPUs
    use: Ratio | None  # mean utilisation over the GPUs that are measured, each GPU once
    power: Watts | None
    by_class: dict[GpuClass, int]  # GPUs or MIG instances
    tenants: int
    pods: int
    findings: int | None


class NodeList(Struct, frozen=True, kw_only=True):
    """A page of nodes."""

    at: str | None
    stale: bool
    total: int
    rows: tuple[NodeRow, ...]
    parts: tuple[Part, ...]


class NodeDetail(Struct, frozen=True, kw_only=True):
    """One node."""

    at: str | None
    stale: bool
    node: NodeRow
    gpus: tuple[GpuRow, ...]
    workloads: tuple[WorkloadRow, ...]
    types: tuple[FreeCapacity, ...]
    offers: tuple[OfferLedger, ...]  # GPUs that are known only by their number
    findings: tuple[Finding, ...]
    parts: tuple[Part, ...]
    beside: NodeBeside | None = None  # CPU, memory and load; null: no agent can tell
