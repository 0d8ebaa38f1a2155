"""What was seen of a fleet in a window of time, and what is concluded from it: score, status, verdict, with evidence.

A reading is a set of tracks: one for each GPU, MIG instance or tenant of one that a source has numbers of. None is
"not measured" throughout; a conclusion that would need what was not measured is `unknown`.
"""

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
    "sm_active",  # ratio of SMs that were busy: profiling metrics
    "engine_active",  # ratio of time in which the graphics or compute engine was busy: profiling metrics
    "process_sm",  # ratio of the GPU's SM time that the tenant's own processes had
    "encoder",  # ratio of time in which video was encoded: work that no other signal shows
    "decoder",
    "jpeg",  # ratio of time in which pictures were decoded, and likewise for optical flow
    "ofa",
    "pcie_in",  # bytes a second
    "pcie_out",
    "energy",  # watts, as the energy counter shows them: all of the time, not only at the moments of scrapes
]
Signal: TypeAlias = Literal["sm_active", "engine_active", "process_sm", "gpu_util"]
SIGNALS: tuple[Signal, ...] = ("sm_active", "engine_active", "process_sm", "gpu_util")  # best first

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
]
USE_CLASSES: tuple[UseClass, ...] = get_args(UseClass)
Schema: TypeAlias = Literal["vgpuscope", "dcgm"]


class Window(Struct, frozen=True, kw_only=True, dict=True):
    """The time that is judged, and how often a sample was to be expected in it."""

    begin: UnixTime
    end: UnixTime
    interval: Seconds  # between two samples of one series

    @cached_property
    def seconds(self) -> Seconds:
        return self.end - self.begin

    @cached_property
    def expected(self) -> int:
        """Samples that a series has if none is missing."""
        return max(1, round(self.seconds / self.interval))


class Hole(NamedTuple):
    """A stretch of the window in which at least one sample is missing; the verdict decides which are too long."""

    begin: UnixTime
    end: UnixTime


class Stat(Struct, frozen=True, kw_only=True, gc=False):
    """One quantity over the window. Samples that cannot be true are not part of it; they are counted as dropped."""

    mean: float | None = None
    max: float | None = None
    p95: float | None = None
    samples: int = 0
    dropped: int = 0
    holes: tuple[Hole, ...] | None = None  # None: not known; (): seen throughout, from begin to end


class Tenant(Struct, frozen=True, kw_only=True, gc=False):
    """Who has a GPU or a part of it."""

    namespace: str
    pod: str
    container: str = ""  # "": the source does not tell, or all of the pod's
    pod_uid: PodUID = ""


class Track(Struct, frozen=True, kw_only=True, gc=False):
    """What a source saw in the window of one GPU or MIG instance, as long as one tenant had it.

    `own`: the numbers are the tenant's own part. Otherwise they are the whole device's, and the tenant is one of those
    who had it meanwhile, or None where the source does not say who did.
    """

    schema: Schema
    gpu_id: DeviceUUID  # the physical GPU, whole
    mig: str = ""  # the MIG instance: its UUID, or GI-<number> where only that is known
    profile: str = ""
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
    health: str = ""  # as the exporter says: ok, lost, …; "": it does not
    xids: tuple[int, ...] = ()  # XIDs of the window, ascending
    state: str = ""  # of a tenant's container, as our agent says: not-started, running, …; "": not known


class Fault(Struct, frozen=True, kw_only=True):
    """A part of a reading that is missing, and why: a query that failed, a target that could not be scraped.

    `terms` are those that could not be read, of the tracks of `schema`, or of all. `own`: of tenants' own numbers alone
    (True), of devices alone (False), or of both. A fault without terms takes nothing from any verdict.
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
    since: UnixTime | None = None  # of the last answer, where it does not answer now
    reason: str = ""


class Reading(Struct, frozen=True, kw_only=True):
    """One look at the fleet."""

    window: Window
    tracks: tuple[Track, ...] = ()
    schemas: tuple[Schema, ...] = ()
    source: str = ""  # what it was read from, without secrets
    requests: int = 0
    faults: tuple[Fault, ...] = ()  # not empty: the reading is partial
    targets: tuple[Target, ...] = ()  # those that are expected to answer, as far as the source knows

    @property
    def partial(self) -> bool:
        return bool(self.faults)


# ── what is concluded ────────────────────────────────────────────────────────────────────────────────────────────


class ScoreTerm(Struct, frozen=True, gc=False):
    """One term of a score. `value` None: it was not measured, and its weight went to the others."""

    name: Literal["gpu_util", "mem_copy", "mem_used", "power"]
    weight: float  # as configured, normalised to a sum of 1
    value: Ratio | None = None
    points: float | None = None  # what it adds to the score, after re-weighting
    reference: str = (
        ""  # what it was held against: "limit 400 W (metric)", "300 W (table: NVIDIA A100…)", "250 W (default)"
    )


class Score(Struct, frozen=True, kw_only=True, gc=False):
    """How much a GPU is used, 0-100, by the configured weights; None: no signal of work was measured."""

    value: float | None
    terms: tuple[ScoreTerm, ...] = ()
    confidence: Ratio = 0.0  # the share of all weight that was measured, times coverage


class Evidence(Struct, frozen=True, kw_only=True, gc=False):
    """What a verdict rests on, so that a person can follow it. `reasons` are codes; views turn them into sentences."""

    reasons: tuple[str, ...] = ()  # VERDICT_… codes, the deciding one first
    signal: Signal | None = None  # the best one present, by which it was judged
    signal_mean: Ratio | None = None
    signal_max: Ratio | None = None
    signal_p95: Ratio | None = None
    coverage: Ratio | None = None
    interval: Seconds | None = None  # between two samples of the signal
    hole: Seconds | None = None  # the longest one of the window; 0: none; None: not known
    samples: int = 0
    expected: int = 0
    dropped: int = 0
    freshness: Seconds | None = None  # age of the last sample at the window's end
    window_begin: UnixTime | None = None
    window_end: UnixTime | None = None
    held_since: UnixTime | None = None  # when the present tenant got the GPU, if within the window
    source: str = ""
    schema: Schema | None = None
    held_memory: Ratio | None = None
    threshold: Ratio | None = None  # what shows work, from here on; higher while the GPU was idle before
    min_coverage: Ratio | None = None
    max_age: Seconds | None = None
    other: Term | None = None  # what shows most work beside the signal
    other_max: Ratio | None = None
    power_share: Ratio | None = None  # mean power of the limit below; None for a part of a GPU
    power_limit: str = ""  # "limit 400 W (metric)", "400 W (table: NVIDIA A100…)", "250 W (default)"
    pcie_traffic: float | None = None  # bytes a second, in the direction that has more of them
    steady_for: int = 0  # cycles for which the raw finding has been what the verdict says


class TenantUse(Struct, frozen=True, kw_only=True, gc=False):
    """What one tenant made of a GPU or MIG instance; terms are absent where the source only knows the whole GPU."""

    tenant: Tenant
    own: bool = False
    terms: dict[Term, Stat] = {}
    score: Score = Score(value=None)  # memory as a share of the whole GPU; None without numbers of its own
    status: Status = "unknown"
    memory_limit: Bytes | None = None  # None: none is known
    since: UnixTime | None = None  # None: since before the window
    until: UnixTime | None = None  # None: has it still
    idle_since: UnixTime | None = None  # None: its verdict is not idle
    verdict: Verdict = "unknown"
    use_class: UseClass = "unknown"
    evidence: Evidence = Evidence()
    owner: str = ""  # Deployment/web, Job/train; "": not known


class GpuUse(Struct, frozen=True, kw_only=True, gc=False):
    """One GPU, or one MIG instance of one, with everything concluded about it."""

    gpu_id: DeviceUUID
    mig: str = ""
    profile: str = ""
    gpu_index: str = ""
    hostname: str = ""
    model: str = ""
    terms: dict[Term, Stat] = {}
    score: Score = Score(value=None)
    status: Status = "unknown"
    verdict: Verdict = "unknown"
    use_class: UseClass = "unknown"
    evidence: Evidence = Evidence()
    tenants: tuple[TenantUse, ...] = ()  # who has it now; several: it is shared
    former: tuple[TenantUse, ...] = ()  # who had it earlier in the window
    idle_since: UnixTime | None = None  # None: its verdict is not idle
    last_seen: UnixTime | None = None  # of a GPU that no longer reports: its last sample; None: it reports
    target: str = ""  # the scrape target that reports it
    health: str = ""  # as the exporter says: ok, lost, …; "": it does not
    xids: tuple[int, ...] = ()  # XIDs of the window, ascending
    absent_since: UnixTime | None = None  # since when its own target has answered without it


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
