"""What was measured of a fleet in a window of time, and the conclusions: score, status, verdict, with evidence.

A reading is a set of tracks. A track has the numbers of one GPU, one MIG instance or one tenant, from one source. None
always means "not measured". A conclusion that needs an unmeasured value is `unknown`.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias, get_args

from msgspec import Struct

from vgpuscope.model.quantity import Bytes, DeviceUUID, PodUID, Ratio, Seconds, UnixTime

Term: TypeAlias = Literal[
    "gpu_util",  # ratio of time with a kernel running
    "mem_copy",  # ratio of time in which memory was read or written
    "mem_used",  # bytes
    "mem_total",  # bytes
    "power",  # watts
    "power_limit",  # watts, enforced on this GPU
    "sm_clock",  # hertz
    "sm_active",  # ratio of SMs that were busy (profiling metric)
    "engine_active",  # ratio of time in which the graphics or compute engine was busy (profiling metric)
    "dram_active",  # ratio of the memory bandwidth that was used (profiling metric); also known of MIG instances
    "process_sm",  # ratio of the GPU's SM time that the tenant's own processes used
    "process_sm_error",  # how far process_sm can be off, as our agent reports it
    "encoder",  # ratio of time in which video was encoded: work that no other signal shows
    "decoder",
    "jpeg",  # ratio of time in which JPEG images were decoded; likewise for optical flow
    "ofa",
    "pcie_in",  # bytes per second
    "pcie_out",
    "energy",  # watts, from the energy counter: it covers all of the time, not only the moments of scrapes
    "cpu",  # cores of its node that the tenant used
]
Signal: TypeAlias = Literal["sm_active", "engine_active", "process_sm", "gpu_util"]
SIGNALS: tuple[Signal, ...] = ("sm_active", "engine_active", "process_sm", "gpu_util")  # best first
# the time in which kernels ran, as process_sm has it of one tenant: SM activity is another quantity, and lower
KERNEL_TIME: tuple[Term, ...] = ("gpu_util", "engine_active")

Status: TypeAlias = Literal["idle", "low", "normal", "high", "unknown"]
STATUSES: tuple[Status, ...] = ("idle", "low", "normal", "high", "unknown")
Verdict: TypeAlias = Literal["in_use", "idle", "unknown"]
VERDICTS: tuple[Verdict, ...] = ("in_use", "idle", "unknown")
UseClass: TypeAlias = Literal[
    "busy",
    "busy-unproductive",  # kernels run nearly all the time, but on few SMs
    "low",
    "idle",
    "idle-held",  # no compute, but memory is held
    "unknown",
    "stalled",  # kernels run all the time, but power is near idle: a hung collective, a spinning kernel
    "not-started",  # the tenant has the GPU and has not started CUDA yet
    "idle-preparing",  # no compute on the GPU, but the tenant's CPUs are busy: data are loaded or prepared
]
USE_CLASSES: tuple[UseClass, ...] = get_args(UseClass)
Schema: TypeAlias = Literal["vgpuscope", "dcgm"]


class Window(Struct, frozen=True, kw_only=True, dict=True):
    """The period that is judged, and the expected sample interval."""

    begin: UnixTime
    end: UnixTime
    interval: Seconds  # between two samples of one series

    @cached_property
    def seconds(self) -> Seconds:
        return self.end - self.begin

    @cached_property
    def expected(self) -> int:
        """The number of samples of a series without gaps."""
        return max(1, round(self.seconds / self.interval))


class Hole(NamedTuple):
    """A gap in the window with at least one missing sample; the verdict decides which gaps are too long."""

    begin: UnixTime
    end: UnixTime


class Stat(Struct, frozen=True, kw_only=True, gc=False):
    """One quantity over the window. Impossible samples are excluded and counted as dropped."""

    mean: float | None = None
    max: float | None = None
    p95: float | None = None
    samples: int = 0
    dropped: int = 0
    holes: tuple[Hole, ...] | None = None  # None: not known; (): no gap from begin to end


class Tenant(Struct, frozen=True, kw_only=True, gc=False):
    """The pod's container that has a GPU or a part of one."""

    namespace: str
    pod: str
    container: str = ""  # "": the source does not report it, or all containers of the pod
    pod_uid: PodUID = ""


class Track(Struct, frozen=True, kw_only=True, gc=False):
    """What a source measured in the window of one GPU or MIG instance, while one tenant had it.

    `own`: the numbers are the tenant's own part. Otherwise the numbers are those of the whole device. Then `tenant` is
    one of the tenants in that time, or None if the source does not report tenants.
    """

    schema: Schema
    gpu_id: DeviceUUID  # the physical GPU, whole
    mig: str = ""  # the MIG instance: its UUID, or GI-<number> where only that is known
    profile: str = ""
    gpu_instance: str = ""  # number of the GPU instance: its compute instances share memory; "": not known
    gpu_index: str = ""
    hostname: str = ""
    model: str = ""
    tenant: Tenant | None = None
    own: bool = False
    terms: dict[Term, Stat] = {}
    first: UnixTime | None = None  # first and last sample in the window
    last: UnixTime | None = None
    interval: Seconds | None = None  # between two samples of this track; None: the window's
    target: str = ""  # the scrape target that it came from
    jobs: tuple[str, ...] = ()  # of Prometheus; (): the analyzer scraped the target itself
    contested: bool = False  # two targets contradict each other
    health: str = ""  # as the exporter reports it: ok, lost, …; "": not reported
    xids: tuple[int, ...] = ()  # XIDs in the window, ascending
    state: str = ""  # of a tenant's container, as our agent reports it: not-started, running, …; "": not known


class Fault(Struct, frozen=True, kw_only=True):
    """A missing part of a reading, and why: a query that failed, a target that could not be scraped.

    `terms` could not be read, for tracks of `schema`, or of all schemas. `own` says which tracks are concerned: only
    tenants' own (True), only devices' (False), or both (None). A fault without terms affects no verdict.
    """

    part: str  # for people
    code: str
    message: str
    terms: tuple[Term, ...] = ()
    schema: Schema | None = None
    own: bool | None = None


class Target(Struct, frozen=True, kw_only=True):
    """One scrape target that is expected to answer."""

    name: str
    up: bool
    since: UnixTime | None = None  # the last successful scrape, if the target does not answer now
    reason: str = ""


class Reading(Struct, frozen=True, kw_only=True):
    """One reading of the whole fleet."""

    window: Window
    tracks: tuple[Track, ...] = ()
    schemas: tuple[Schema, ...] = ()
    source: str = ""  # where it was read from, without secrets
    requests: int = 0
    faults: tuple[Fault, ...] = ()  # not empty: the reading is partial
    targets: tuple[Target, ...] = ()  # the targets that are expected to answer, as far as the source knows
    own: bool = False  # our own scrapes: the target of each track is certain

    @property
    def partial(self) -> bool:
        return bool(self.faults)


# ── what is concluded ────────────────────────────────────────────────────────────────────────────────────────────


class ScoreTerm(Struct, frozen=True, gc=False):
    """One term of a score. `value` None: it was not measured, and its weight went to the other terms."""

    name: Literal["gpu_util", "mem_copy", "mem_used", "power"]
    weight: float  # as configured, normalised to a sum of 1
    value: Ratio | None = None
    points: float | None = None  # what it adds to the score, after re-weighting
    reference: str = (
        ""  # the reference of the value: "limit 400 W (metric)", "300 W (table: NVIDIA A100…)", "250 W (default)"
    )


class Score(Struct, frozen=True, kw_only=True, gc=False):
    """How much a GPU is used, 0-100, by the configured weights; None: no signal of work was measured."""

    value: float | None
    terms: tuple[ScoreTerm, ...] = ()
    # the measured share of all weight, times coverage; less what a tenant's SM time may be off
    confidence: Ratio = 0.0


class Evidence(Struct, frozen=True, kw_only=True, gc=False):
    """The numbers that a verdict rests on. `reasons` are codes; views turn them into sentences."""

    reasons: tuple[str, ...] = ()  # VERDICT_… codes, the deciding one first
    signal: Signal | None = None  # the best available signal, which decided the verdict
    signal_mean: Ratio | None = None
    signal_max: Ratio | None = None
    signal_p95: Ratio | None = None
    coverage: Ratio | None = None
    interval: Seconds | None = None  # between two samples of the signal
    hole: Seconds | None = None  # the longest gap in the window; 0: no gap; None: not known
    samples: int = 0
    expected: int = 0
    dropped: int = 0
    freshness: Seconds | None = None  # age of the last sample at the window's end
    window_begin: UnixTime | None = None
    window_end: UnixTime | None = None
    held_since: UnixTime | None = None  # when the current tenant got the GPU, if within the window
    source: str = ""
    schema: Schema | None = None
    held_memory: Ratio | None = None
    threshold: Ratio | None = None  # values from here on show work; the threshold is higher if the GPU was idle before
    min_coverage: Ratio | None = None
    max_age: Seconds | None = None
    other: Term | None = None  # besides the signal, the term that shows most work
    other_max: Ratio | None = None
    power_share: Ratio | None = None  # mean power divided by the limit below; None for a part of a GPU
    power_limit: str = ""  # "limit 400 W (metric)", "400 W (table: NVIDIA A100…)", "250 W (default)"
    pcie_traffic: float | None = None  # bytes per second, in the busier direction
    cpu: float | None = None  # CPU cores that the tenant used on average; None: not measured
    cpu_max: float | None = None  # and at most; the larger one decides whether it prepares data
    steady_for: int = 0  # cycles for which the raw finding has been the same as the verdict


class Allocated(NamedTuple):
    """What the scheduler has allocated of a GPU."""

    memory: Bytes
    cores: int | None  # percent of one GPU; None: not specified


class RegisteredGpu(Struct, frozen=True, kw_only=True, gc=False):
    """A GPU as it is registered with the scheduler, and the containers that hold it."""

    node: str
    index: int
    model: str
    healthy: bool
    holders: tuple[Tenant, ...] = ()


class Allocations(NamedTuple):
    """What the scheduler has allocated of every GPU that is registered with it."""

    gpus: Mapping[DeviceUUID, Allocated]
    pods: Mapping[tuple[DeviceUUID, str, str], Allocated]  # by GPU, namespace and pod
    registered: Mapping[DeviceUUID, RegisteredGpu] = {}
    uids: Mapping[tuple[str, str, str], PodUID] = {}  # of pods that have a GPU, by node, namespace and name


class TenantUse(Struct, frozen=True, kw_only=True, gc=False):
    """How one tenant used a GPU or MIG instance; terms are missing if the source measures only the whole GPU."""

    tenant: Tenant
    own: bool = False
    terms: dict[Term, Stat] = {}
    score: Score = Score(value=None)  # memory as a share of the whole GPU; None if the tenant has no numbers of its own
    status: Status = "unknown"
    memory_limit: Bytes | None = None  # None: no limit is known
    since: UnixTime | None = None  # None: since before the window
    until: UnixTime | None = None  # None: still has it
    idle_since: UnixTime | None = None  # None: its verdict is not idle
    verdict: Verdict = "unknown"
    use_class: UseClass = "unknown"
    evidence: Evidence = Evidence()
    owner: str = ""  # Deployment/web, Job/train; "": not known
    allocated: Allocated | None = None  # to its pod; None: not known
    partly_seen: bool = False  # its pod was allocated another GPU, too, which does not report


class GpuUse(Struct, frozen=True, kw_only=True, gc=False):
    """One GPU or one MIG instance, with all conclusions about it."""

    gpu_id: DeviceUUID
    mig: str = ""
    profile: str = ""
    gpu_instance: str = ""  # number of the MIG instance's GPU instance; "": not known
    gpu_index: str = ""
    hostname: str = ""
    model: str = ""
    terms: dict[Term, Stat] = {}
    score: Score = Score(value=None)
    status: Status = "unknown"
    verdict: Verdict = "unknown"
    use_class: UseClass = "unknown"
    evidence: Evidence = Evidence()
    tenants: tuple[TenantUse, ...] = ()  # current tenants; more than one: the GPU is shared
    former: tuple[TenantUse, ...] = ()  # tenants from earlier in the window
    idle_since: UnixTime | None = None  # None: its verdict is not idle
    last_seen: UnixTime | None = None  # of a GPU that no longer reports: the time of its last sample; None: it reports
    target: str = ""  # the scrape target that reports it
    jobs: tuple[str, ...] = ()  # of Prometheus, that report it or a tenant of it; (): the analyzer scraped it itself
    health: str = ""  # as the exporter reports it: ok, lost, …; "": not reported
    xids: tuple[int, ...] = ()  # XIDs in the window, ascending
    absent_since: UnixTime | None = None  # since when its own target has answered without this GPU
    allocated: Allocated | None = None  # to all pods together; None: not known
    unreported: bool = False  # only the scheduler knows the GPU: no exporter reports it


class Analysis(Struct, frozen=True, kw_only=True):
    """One analysis of the fleet."""

    number: int
    started: UnixTime
    seconds: Seconds
    window: Window
    gpus: tuple[GpuUse, ...] = ()
    source: str = ""
    schemas: tuple[Schema, ...] = ()
    requests: int = 0
    faults: tuple[Fault, ...] = ()
    targets: tuple[Target, ...] = ()
    omitted: dict[str, int] = {}  # GPUs and tenants beyond a limit, by reason
