"""Taking back GPUs: the workload that may lose them, its case, and everything that can hold a case back.

A workload is one incarnation of a pod (its UID). A case is what is known of one workload that looked idle: its state,
since when, and what happens next. A case only moves forward on fresh proof; unknown never moves it.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias, get_args

from msgspec import Meta, Struct

from vgpuscope.model.analysis import Status, UseClass, Verdict
from vgpuscope.model.quantity import DeviceUUID, PodUID, Ratio, Seconds, UnixTime

State: TypeAlias = Literal[
    "candidate",  # idle; windows are counted until there are enough
    "notified",  # the owner is being told; the notice is not delivered yet
    "grace",  # the owner was told; the workload keeps its GPUs until the grace period ends
    "awaiting_approval",  # an operator has to agree
    "acting",  # calls are on their way, or the GPUs are not free yet
    "would_act",  # a dry run: GPUs would be taken back now, and nothing is done
    "verified",  # the GPUs are free
    "restored",  # an operator put back what was there
    "released",  # the workload works again, or ended by itself
    "exempt",  # an operator, an owner or an annotation excluded it
    "snoozed",  # an operator or an owner asked for more time
    "failed",  # the calls failed for too long, or the GPUs stayed taken
]
STATES: tuple[State, ...] = get_args(State)
OPEN: frozenset[State] = frozenset(  # may still move
    {"candidate", "notified", "grace", "awaiting_approval", "acting", "would_act"}
)

Brake: TypeAlias = Literal[
    "no_uid",  # the source does not report pod UIDs: a pod of the same name could be hit
    "no_history",  # there is no store, so nothing is remembered
    "protected_namespace",
    "protected_priority",
    "annotation_never",
    "annotation_notify",  # its owner allows notices only
    "pod_age",
    "activity",  # a signal beyond the GPU shows that the workload is in use
    "model_veto",
    "model_waiting",
    "stop",
    "breaker",
    "store_down",
    "not_leader",
    "holder_unknown",  # without the Kubernetes API only metrics say which pod holds the GPU
    "kube_unreachable",
    "working_hours",
    "budget_hour",
    "budget_namespace",
    "budget_fleet",
    "notify_only",  # the policy's action is to notify
    "unconfirmed",  # too few windows in a row prove it idle
    "pod_unknown",  # its pod or its owner could not be read, or the pod of this name is another one
    "activity_unknown",  # a signal beyond the GPU could not be read
    "no_action",  # the policy's action has no way to free this workload
    "preparing",  # its GPUs are idle, but its CPUs are busy: it prepares data
    "holds_memory",  # its processes hold GPU memory, and the policy leaves such workloads alone
    "gpu_in_use",  # another GPU, or another container, of the workload is in use
    "job_untrusted",  # a scrape job reports the GPU that may not speak for GPUs
    "gpu_unknown",  # a GPU of the workload has no proof of idleness in the last window
    "low_coverage",  # the last window has fewer samples than the policy asks for
    "owner_in_use",  # another pod of its owner is not proven idle, or is not due yet
    "approval",  # an operator has to agree first
    "snoozed",  # an operator or its owner asked for more time
    "exempted",  # an operator or its owner excluded it
    "dry_run",  # nothing is done in a dry run
]
BRAKES: tuple[Brake, ...] = get_args(Brake)
DELAYS: frozenset[Brake] = frozenset(  # they pass by themselves, by an operator's word, or when a part answers again
    {
        "approval",
        "breaker",
        "budget_fleet",
        "budget_hour",
        "budget_namespace",
        "dry_run",
        "kube_unreachable",
        "model_waiting",
        "not_leader",
        "stop",
        "store_down",
        "unconfirmed",
        "working_hours",
    }
)

Consent: TypeAlias = Literal["never", "notify", "auto"]
Action: TypeAlias = Literal["control", "scale", "notify"]
Finding: TypeAlias = Literal[
    "idle",
    "held",  # idle, but it holds memory, and the policy leaves such workloads alone
    "preparing",  # its GPUs are idle, its CPUs are not, and the policy leaves such workloads alone
    "partly",  # one of its shares is idle, and another one is in use
    "busy",
    "thin",  # idle, by fewer samples than the policy asks for
    "unproven",  # one of its shares is idle, and nothing is proven of another one
    "unknown",
    "gone",  # fresh data show its GPUs without it
]


class Share(Struct, frozen=True, kw_only=True, gc=False):
    """A GPU or MIG instance that a workload holds, or its part of a shared one; the numbers are the workload's own."""

    gpu_id: DeviceUUID
    mig: str = ""
    hostname: str = ""
    model: str = ""
    score: float | None = None
    status: Status = "unknown"
    verdict: Verdict = "unknown"
    use_class: UseClass = "unknown"
    coverage: Ratio | None = None
    idle_since: UnixTime | None = None
    jobs: tuple[str, ...] = ()  # scrape jobs of Prometheus that report the GPU; (): the analyzer scraped it itself


class Workload(Struct, frozen=True, kw_only=True, gc=False):
    """One incarnation of a pod, with everything it holds."""

    uid: PodUID  # "": the source does not report it
    namespace: str
    pod: str
    owner: str = ""  # Deployment/web, Job/train; "": not known
    shares: tuple[Share, ...] = ()

    @property
    def gpu_ids(self) -> tuple[DeviceUUID, ...]:
        """The physical GPUs, each once."""
        return tuple(dict.fromkeys(share.gpu_id for share in self.shares))


class ReclaimTarget(Struct, frozen=True, kw_only=True, gc=False):
    """The object that is changed to free a workload's GPUs: its owner, or the pod itself."""

    api_version: str
    kind: str
    name: str
    uid: str
    version: str = ""  # its resourceVersion before its pods were listed

    @property
    def group(self) -> str:
        return self.api_version.partition("/")[0] if "/" in self.api_version else ""

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


class Signal(Struct, frozen=True, kw_only=True, gc=False):
    """A sign of use beyond the GPU. It can only keep a workload from being acted on."""

    name: str  # notebook, schedule, or the name of an expression: vllm
    active: bool | None  # None: it could not be read
    at: UnixTime | None = None  # the last sign
    value: float | None = None
    detail: str = ""


class ActivityQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An expression that shows use: above 0 for a pod, or for a queue that a pod serves."""

    name: Annotated[str, Meta(min_length=1, max_length=40)]
    query: Annotated[str, Meta(min_length=1, max_length=4000)]
    by: Literal["pod", "queue"] = "pod"


class PodFacts(Struct, frozen=True, kw_only=True, gc=False):
    """What the Kubernetes API knows of a workload; None: not known."""

    read: bool = False  # the pod with this UID, its owners and its namespace were read

    consent: Consent | None = None  # by annotation of the pod, its owner or its namespace
    idle_grace: Seconds | None = None
    notify: str = ""  # the annotation vgpuscope.io/notify of the pod, its owner or its namespace: who is told
    priority_class: str = ""
    created: UnixTime | None = None
    reversible: bool = False  # its owner can be scaled back
    target: ReclaimTarget | None = None  # what would be changed; None: nothing can be
    peers: tuple[PodUID, ...] = ()  # all pods of the target that have or want GPUs, the workload's own among them


class OpenHours(Struct, frozen=True, kw_only=True):
    """A part of the week in which acting is allowed."""

    days: frozenset[int]  # 0 is Monday
    begin: int  # minutes after midnight
    end: int  # exclusive; not after begin: the part ends on the next day
    tz: str


class Policy(Struct, frozen=True, kw_only=True):
    """When GPUs are taken back, and which workloads are never acted on."""

    action: Action = "control"
    enabled: bool = True
    dry_run: bool = True  # also if it is not enabled
    confirmations: int = 3
    min_coverage: Ratio = 0.95
    include_held: bool = False
    include_preparing: bool = False
    grace: Seconds = 1800.0
    min_pod_age: Seconds = 1800.0
    approval: bool = False
    notify_first: bool = True
    protected_namespaces: frozenset[str] = frozenset({"kube-system"})
    protected_priorities: frozenset[str] = frozenset({"system-cluster-critical", "system-node-critical"})
    evidence_jobs: tuple[str, ...] = ("*",)  # patterns of scrape jobs by whose series GPUs may be taken
    max_per_hour: int = 10
    max_per_namespace: int = 5
    max_fleet_share: Ratio = 0.1
    working_hours: tuple[OpenHours, ...] = ()  # (): at any time
    breaker_share: Ratio = 0.2
    breaker_least: int = 5
    breaker_calm: int = 6  # analyses
    verify_within: Seconds = 3600.0


class Case(Struct, frozen=True, kw_only=True, gc=False):
    """One workload that looked idle, and its state."""

    id: str  # the pod's UID; where that is unknown, a name that no UID has
    uid: PodUID
    namespace: str
    pod: str
    owner: str = ""
    state: State = "candidate"
    since: UnixTime  # in this state
    next_at: UnixTime | None = None  # the state changes at this time at the earliest; None: not by time
    first_idle: UnixTime
    confirmations: int = 0
    counted_until: UnixTime = 0.0  # end of the last window that was counted
    notified_at: UnixTime | None = None
    approved_by: str = ""
    acted_at: UnixTime | None = None
    acted_gpus: int = 0  # physical GPUs that its budget was charged for
    charged_at: UnixTime | None = None  # when its calls could last go out; None: they still can, or there were none
    dry_run: bool = False  # it would have been acted on, and nothing was done
    held_by: tuple[Brake, ...] = ()
    recorded: tuple[Brake, ...] = ()  # the brakes that the audit log names, as the last ones of this case
    reason: str = ""  # a code: why it is in this state
    by: str = ""  # who moved it there: a user, an owner's link; "": the machine
    shares: tuple[Share, ...] = ()  # the evidence of the last window
    signals: tuple[Signal, ...] = ()  # the evidence beyond the GPU
    target: ReclaimTarget | None = None  # what was changed, or would have been
    tried_at: UnixTime | None = None  # the first attempt that may have changed it; None: none, or it was put back
    unseen_since: UnixTime | None = None  # no analysis has shown its workload since then
    taken_at: UnixTime | None = None  # a call was accepted; None: none was, or what was there was put back

    @property
    def workload(self) -> Workload:
        """The workload as the last counted window showed it."""
        return Workload(uid=self.uid, namespace=self.namespace, pod=self.pod, owner=self.owner, shares=self.shares)

    @property
    def gpu_ids(self) -> tuple[DeviceUUID, ...]:
        return tuple(dict.fromkeys(share.gpu_id for share in self.shares))

    @property
    def brakes(self) -> tuple[Brake, ...]:
        """Everything that keeps it from moving on: what holds it back, and what its state waits for."""
        return self.held_by + tuple(brake for brake in self._waits_for() if brake not in self.held_by)

    def _waits_for(self) -> tuple[Brake, ...]:
        if self.state == "awaiting_approval":
            return () if self.approved_by else ("approval",)
        if self.state == "exempt":
            return ("annotation_never",) if self.reason == "annotation" else ("exempted",)
        if self.state == "released":
            return _RELEASED_BY.get(self.reason, ())
        return _WAITS_FOR.get(self.state, ())

    @property
    def actionable(self) -> bool:
        """Whether the policy takes its GPUs, or would take them, as soon as nothing delays it any more."""
        return self.state in OPEN - {"candidate"} and DELAYS.issuperset(self.held_by)

    @property
    def restorable(self) -> bool:
        """Whether something was taken, or may have been, that can be put back, whatever became of the case since."""
        decided = self.acted_at is not None and not self.dry_run and self.state in {"acting", "verified", "failed"}
        return (decided or self.tried_at is not None) and self.target is not None and self.target.kind != "Pod"

    @property
    def taken(self) -> bool:
        """Whether its GPUs are taken: a change of the cluster was made, or the control service has accepted a call."""
        return self.taken_at is not None and (self.target is not None or self.state == "acting")


_WAITS_FOR: Mapping[State, tuple[Brake, ...]] = {"snoozed": ("snoozed",), "would_act": ("dry_run",)}
_RELEASED_BY: Mapping[str, tuple[Brake, ...]] = {"holds_memory": ("holds_memory",), "prepares_data": ("preparing",)}

CallKind: TypeAlias = Literal["control", "scale", "restore", "notice"]
CallStatus: TypeAlias = Literal["waiting", "delivered", "cancelled", "failed"]


class EarlierChange(Struct, frozen=True, kw_only=True, gc=False):
    """A call that may have changed an object, as the store has it: what a restore of the object trusts."""

    key: str
    secret: str = ""  # that signs its mark on the object; "": the call is older than the signatures
    result: str = ""  # JSON: the mark; "": its answer was lost


class Call(Struct, frozen=True, kw_only=True, gc=False):
    """Something to be done outside, kept until it is done. The same key is never sent for two different things."""

    key: str  # the idempotency key
    case_id: str
    kind: CallKind
    gpu_id: DeviceUUID = ""
    body: str = ""  # JSON
    status: CallStatus = "waiting"
    attempts: int = 0
    first_at: UnixTime
    next_at: UnixTime
    error: str = ""
    result: str = ""  # JSON: what it changed, so that it can be put back
