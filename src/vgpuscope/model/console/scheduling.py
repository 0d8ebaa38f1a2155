"""Scheduling as the console shows it: pods that wait, why, and what still fits."""

from msgspec import Struct

from vgpuscope.model.allocation import OfferMode
from vgpuscope.model.cluster import Amount, LostReason
from vgpuscope.model.console.parts import Part
from vgpuscope.model.pending import Outcome
from vgpuscope.model.quantity import Bytes, Ratio, Seconds
from vgpuscope.model.scheduling import Step
from vgpuscope.model.scheduling_codes import Stage
from vgpuscope.model.words import Words


class PendingRow(Struct, frozen=True, kw_only=True):
    """One pod that waits or waited for GPUs."""

    namespace: str
    pod: str
    pod_uid: str
    owner: str | None
    scheduler: str | None
    requests: dict[str, int]  # in the resources' own units
    claims: tuple[str, ...]
    outcome: Outcome
    code: str  # the most important reason
    stage: Stage | None  # null: the code is not known here
    meaning: Words | None
    advice: Words | None  # what to do about it
    fact: Words | None  # the number behind the code
    created: str | None
    ended: str | None  # when the waiting ended
    waited_seconds: Seconds | None
    node: str | None  # where it was scheduled
    attempts: int


class ReasonRow(Struct, frozen=True, kw_only=True):
    """One reason that a scheduler reported for a pod."""

    code: str
    stage: Stage | None
    meaning: Words | None
    advice: Words | None
    detail: str  # the scheduler's own words
    component: str | None
    current: bool  # reported in the latest attempt
    count: int
    first: str | None
    last: str | None
    nodes: tuple[str, ...]
    node_count: int | None
    facts: tuple[Words, ...]  # the numbers behind the code


class StageTimes(Struct, frozen=True, kw_only=True):
    """How long one stage took, since the cluster exporter started. Null: nothing was observed."""

    scheduler: str
    stage: Step
    count: int
    mean: Seconds | None
    p50: Seconds | None
    p95: Seconds | None
    p99: Seconds | None


class FailureCount(Struct, frozen=True, kw_only=True):
    """Failed attempts of one scheduler with one code."""

    scheduler: str
    code: str
    count: int


class FreeCapacity(Struct, frozen=True, kw_only=True):
    """What the GPUs of one type, or all of them, can still take."""

    vendor: str | None  # null: all
    type: str | None
    total: Amount
    lost: dict[LostReason, Amount]
    allocated: Amount
    free: Amount
    stranded: Amount
    mig: Amount  # free, and whether a request gets it depends on a MIG placement
    over: Amount  # allocated beyond what GPUs register: total = lost + allocated - over + free + mig + stranded
    largest_memory: Bytes  # the largest request for one GPU that fits
    largest_cores: int
    whole_gpus: int  # the most whole GPUs that one pod can get, of one resource on one node
    fragmentation: Ratio | None  # share of free memory on partly allocated GPUs; null: no memory is free


class CountedCapacity(Struct, frozen=True, kw_only=True):
    """What is left of one resource of which kubelets offer only a number: GPUs, MIG instances or shares of GPUs."""

    resource: str
    mode: OfferMode
    type: str | None
    profile: str | None  # of MIG instances
    capacity: int  # on all nodes together
    requested: int  # by pods that have not ended
    memory_requested: Bytes | None  # null: not known; shares of a GPU have no limit of memory
    free: int
    free_on_one: int  # on the node with most: what one pod can get
    memory: Bytes | None  # of one GPU or MIG instance; null: not known, or not the same on all nodes
    memory_free: Bytes | None  # null: not known; shares of a GPU have no limit of memory
    whole_gpus: int  # 0: instances or shares


class Scheduling(Struct, frozen=True, kw_only=True):
    """The state of scheduling."""

    pending: tuple[PendingRow, ...]  # longest waiting first
    ended: tuple[PendingRow, ...]  # pods that waited, newest first
    pending_count: int | None  # null: the cluster exporter does not answer
    oldest_seconds: Seconds | None
    by_code: dict[str, int]  # waiting pods
    stages: tuple[StageTimes, ...]
    bound: int | None
    failed: int | None
    failures: tuple[FailureCount, ...]
    capacity: FreeCapacity | None
    types: tuple[FreeCapacity, ...]
    counted: tuple[CountedCapacity, ...]
    parts: tuple[Part, ...]


class PendingDetail(Struct, frozen=True, kw_only=True):
    """Why one pod waits, or waited."""

    pod: PendingRow
    reasons: tuple[ReasonRow, ...]
    changes: tuple[Words, ...]  # what would have to change for it to fit
    parts: tuple[Part, ...]
