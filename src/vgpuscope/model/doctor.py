"""What doctor looks at, and what it says: facts that may be missing with a reason, and one judgement for each check."""

from typing import Literal, TypeAlias, TypeVar, get_args

from msgspec import Struct

from vgpuscope.model.console.facts import ClusterFacts
from vgpuscope.model.quantity import Ratio, Seconds, UnixTime
from vgpuscope.model.words import Words

T = TypeVar("T")

Status: TypeAlias = Literal["pass", "warn", "fail", "skipped"]
StageStatus: TypeAlias = Literal["pass", "warn", "fail", "partial", "skipped"]
Stage: TypeAlias = Literal[
    "driver",
    "regions",
    "agent",
    "scrape",
    "labels",
    "units",
    "freshness",
    "rights",
    "scheduler",
    "analyzer",
    "history",
]
STAGES: tuple[Stage, ...] = get_args(Stage)
Place: TypeAlias = Literal["node", "outside", "analyzer"]  # where doctor runs

# ── facts ────────────────────────────────────────────────────────────────────────────────────────────────────────

FactName: TypeAlias = Literal[
    "driver",
    "regions",
    "processes",
    "podresources",
    "agent",
    "cluster",
    "prometheus",
    "series",
    "kubernetes",
    "extender",
    "plugin",
    "analyzer",
    "history",
    "model",
    "channels",
    "control",
    "reclaim",
    "rights",
]
Reason: TypeAlias = Literal[
    "not-given",  # no address was given, and nothing answers at the default one
    "no-answer",  # nothing answers in time
    "refused",  # the credentials are rejected
    "wrong-service",  # something else answers there
    "unreadable",  # the answer has another form
    "not-here",  # this machine has no such thing
    "no-data",  # it answers, but has nothing to judge
    "elsewhere",  # only known in another place: on the node, or with another argument
    "unreachable",  # it is in the cluster, and this machine cannot reach its address
    "not-allowed",  # the credentials of this caller do not suffice to know
    "internal",  # the check itself failed
]


ServiceCode: TypeAlias = Literal[
    "analyzer", "cluster", "extender", "agent", "plugin", "prometheus", "kubernetes", "exporter", "target"
]
SERVICES: tuple[ServiceCode, ...] = get_args(ServiceCode)
ServiceState: TypeAlias = Literal[
    "answered", "no-answer", "refused", "wrong-service", "unreadable", "not-asked", "not-configured"
]
FoundBy: TypeAlias = Literal["flag", "settings", "demo", "default", "cluster", "analyzer", "prometheus", "self", "none"]
NOT_OURS: frozenset[ServiceCode] = frozenset({"prometheus", "kubernetes"})


class AskedService(Struct, frozen=True, kw_only=True):
    """A service that was asked, or is not configured, and how its address was found.

    `exporter`: a scrape target that is not ours. `target`: a scrape target that has never answered.
    """

    service: ServiceCode
    state: ServiceState
    found_by: FoundBy
    name: str = ""  # the node of an agent or device plugin
    url: str = ""
    by_analyzer: bool = False  # the analyzer asked, not this caller
    detail: str = ""  # the error in its own words


class Missing(Struct, frozen=True, kw_only=True, tag="missing"):
    """A fact that could not be had, and why. A check that needs it is skipped, never passed."""

    fact: FactName
    reason: Reason
    code: str = ""  # of our error, if there was one
    detail: str = ""  # the error in its own words
    place: str = ""  # where it was looked for
    name: str = ""  # the node, if several of one kind were asked


class Absent(Exception):
    """Raised where a check needs a fact that is missing."""

    def __init__(self, missing: Missing) -> None:
        super().__init__(missing.detail)
        self.missing = missing


def known(fact: T | Missing) -> T:
    """The fact; Absent if it is missing."""
    if isinstance(fact, Missing):
        raise Absent(fact)
    return fact


class DriverFacts(Struct, frozen=True, kw_only=True, tag="driver"):
    """The driver of this machine."""

    gpus: int
    version: str | None = None
    unhealthy: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()  # processes that the driver lists


class RegionFacts(Struct, frozen=True, kw_only=True, tag="regions"):
    """HAMi's regions of this machine."""

    directory: str
    containers: int
    without_file: tuple[str, ...] = ()  # containers without a region file
    refused: tuple[str, ...] = ()  # file: reason


class ProcessFacts(Struct, frozen=True, kw_only=True, tag="processes"):
    """The processes of this machine, as they can be seen here."""

    root: str
    seen: int  # of the processes that the driver lists
    listed: int


class AgentFacts(Struct, frozen=True, kw_only=True):
    """One agent that was asked itself."""

    url: str
    node: str
    version: str | None = None
    sample_age: Seconds | None = None
    clock_offset: Seconds = 0.0  # how far its clock is ahead of ours
    faults: tuple[tuple[str, str, str], ...] = ()  # sources without values that are needed: source, code, message
    unused: frozenset[str] = frozenset()  # sources that are not configured, or that nothing on the node needs


class SeriesValue(Struct, frozen=True, kw_only=True):
    """One series with a value: on a page, or in Prometheus."""

    name: str
    labels: dict[str, str]
    value: float

    @property
    def job(self) -> str:
        return self.labels.get("job", "")


class SeriesFacts(Struct, frozen=True, kw_only=True, tag="series"):
    """The series about GPUs, or a part of them."""

    now: tuple[SeriesValue, ...]
    whole: bool = True  # of the whole fleet; False: of the agents that were named
    gpus: int = 0  # GPUs that were looked at
    all_gpus: int = 0  # GPUs that there are
    flapping: tuple[str, ...] | None = None  # GPUs whose series change between two sets of labels; None: not known here
    origin: str = ""


class Job(Struct, frozen=True, kw_only=True):
    """One job of Prometheus that scrapes GPUs, or should."""

    name: str
    up: int
    down: int
    interval: Seconds | None = None  # None: too few scrapes to tell
    examples: tuple[str, ...] = ()  # targets that are down
    age: Seconds | None = None  # of the oldest last sample of a target that is up


class PrometheusFacts(Struct, frozen=True, kw_only=True, tag="prometheus"):
    """What a Prometheus has and scrapes."""

    url: str
    targets: int  # of all jobs
    jobs: tuple[Job, ...]  # those with GPU series now or in the last hour, or named after a GPU exporter
    names: dict[str, int]  # GPU metrics that have series now, and how many
    condition: str = ""  # query_condition of the analyzer
    matched: int | None = None  # series that fulfil the condition; None: there is no condition
    unmatched: int = 0  # series without the condition
    unknown_names: tuple[tuple[str, str], ...] | None = None  # rule, GPU metric without series; None: not known


class KubeNode(Struct, frozen=True, kw_only=True):
    """A node with GPUs."""

    name: str
    ready: bool
    labels: dict[str, str] = {}
    taints: tuple[str, ...] = ()
    offered: int = 0  # GPUs in status.allocatable
    registered: bool | None = None  # with HAMi; None: no node of this cluster is


class ComponentPod(Struct, frozen=True, kw_only=True):
    """A pod of ours or of HAMi."""

    namespace: str
    name: str
    node: str
    component: str
    ready: bool
    account: str = ""  # its service account
    ours: bool = False  # a pod of vgpuscope
    restarts: int = 0
    ended_by: str = ""  # why its container ended last: OOMKilled, Error
    waiting: str = ""  # why it does not run: CrashLoopBackOff, ImagePullBackOff


class ServiceEndpoint(Struct, frozen=True, kw_only=True):
    """An address of one of our services, as the API server knows it. Not ready ones are listed, too."""

    component: str
    url: str
    node: str = ""


class KubeFacts(Struct, frozen=True, kw_only=True, tag="kubernetes"):
    """What the API server says to this caller. None: the caller has no permission to know."""

    denied: tuple[str, ...] | None = ()  # what accounts of our services may not do: "vgpuscope-cluster: list events"
    judged: int = 0  # permissions of our services that were reviewed
    nodes: tuple[KubeNode, ...] | None = ()
    pods: tuple[ComponentPod, ...] | None = ()
    ended: tuple[tuple[str, str], ...] | None = ()  # namespace and name of pods that have ended
    refused: tuple[str, ...] = ()  # requests of this caller that were rejected: "list nodes"


class ReclaimFacts(Struct, frozen=True, kw_only=True):
    """What an analyzer says of its reclaim."""

    live: bool  # it should act: control.enabled, and no dry run
    stored: bool  # there is a store, without which nothing is done
    kube: Literal["none", "ok", "down"]  # the Kubernetes API: not configured, answers, does not answer
    stopped_by: str = ""
    turned: int | None = None  # of this many workloads that turned idle at once, the breaker opened; None: it is closed
    of: int = 0


class ChannelFacts(Struct, frozen=True, kw_only=True):
    """One channel for notices."""

    name: str
    used: bool  # there was a message, or it cannot be used
    error: str = ""  # why the last message was not taken


class AnalyzerFacts(Struct, frozen=True, kw_only=True, tag="analyzer"):
    """What an analyzer says of itself."""

    url: str
    version: str | None = None
    interval: Seconds | None = None
    window: Seconds | None = None
    condition: str = ""
    source_up: bool = True
    error_code: str = ""
    error: str = ""
    analysed: bool = False  # there was at least one analysis
    old: bool = False
    leader: bool = True
    stored: bool | None = None  # the store of results answers; None: results are not stored
    failing: tuple[str, ...] = ()
    targets_down: int | None = None
    targets_up: int | None = None
    down: tuple[str, ...] = ()  # some targets that do not answer
    gpus: int | None = None
    unknown: int | None = None
    unproductive: frozenset[str] = frozenset()  # GPUs whose result has the class busy-unproductive
    clock_offset: Seconds = 0.0
    asks_model: bool = False  # a language model is asked
    model_error: str = ""  # code with which it failed last
    reports_low: bool | None = None  # low GPUs are reported to a control service; None: not known
    control_error: str = ""  # code with which the last report failed
    channels: tuple[ChannelFacts, ...] | None = None  # None: not known
    reclaim: ReclaimFacts | None = None  # None: not known

    @property
    def unknown_ratio(self) -> Ratio | None:
        return None if not self.gpus or self.unknown is None else self.unknown / self.gpus


class ExtenderFacts(Struct, frozen=True, kw_only=True, tag="extender"):
    """What a scheduler extender says of itself."""

    url: str
    missing: tuple[str, ...] = ()  # why it is not ready, in its own words; empty: it is ready
    leader: bool | None = None  # None: its page does not say
    filters: float | None = None  # filter requests since it started; None: its page does not say


class DoctorFacts(Struct, frozen=True, kw_only=True):
    """All that was found out."""

    at: UnixTime
    place: Place
    driver: DriverFacts | Missing
    regions: RegionFacts | Missing
    processes: ProcessFacts | Missing
    podresources: int | Missing  # devices that the kubelet lists
    agents: tuple[AgentFacts, ...] | Missing  # those that answered; missing if none did
    cluster: ClusterFacts | Missing
    prometheus: PrometheusFacts | Missing
    series: SeriesFacts | Missing
    kubernetes: KubeFacts | Missing
    analyzer: AnalyzerFacts | Missing
    extender: ExtenderFacts | Missing = Missing(fact="extender", reason="not-given")
    plugins: SeriesFacts | Missing = Missing(fact="plugin", reason="not-given")  # pages of device plugins
    silent: tuple[Missing, ...] = ()  # agents and device plugins without a usable answer, one by one
    services: tuple[AskedService, ...] = ()


# ── judgements ───────────────────────────────────────────────────────────────────────────────────────────────────


class ObjectNames(Struct, frozen=True, kw_only=True):
    """What commands call an object that a finding names; "" for what is not known."""

    node: str = ""
    gpu: str = ""  # its UUID, by which nvidia-smi knows it too
    namespace: str = ""
    pod: str = ""


class CheckOutcome(Struct, frozen=True, kw_only=True):
    """What one check found."""

    status: Status
    numbers: dict[str, float | str] = {}  # that the texts and the evidence name
    examples: tuple[str, ...] = ()
    names: ObjectNames = ObjectNames()  # of the first example
    missing: Missing | None = None  # why the check was skipped


class Check(Struct, frozen=True, kw_only=True):
    """One finished check, without its words."""

    code: str
    stage: Stage
    judgement: CheckOutcome


# ── the report ───────────────────────────────────────────────────────────────────────────────────────────────────


class DoctorFinding(Struct, frozen=True, kw_only=True):
    """One check with its words, in both languages.

    pass: looked at, and in order. warn: it works, but numbers can mislead. fail: something is broken. skipped: it could
    not be looked at, and `cause` says why.
    """

    code: str
    stage: Stage
    status: Status
    title: Words  # what is looked at
    cause: Words | None = None
    fix: Words | None = None
    commands: tuple[str, ...] = ()  # to copy
    numbers: dict[str, float | str] = {}
    examples: tuple[str, ...] = ()
    docs: str = ""  # part of the documentation


class NotChecked(Struct, frozen=True, kw_only=True):
    """Why some checks of a stage were skipped, and how many."""

    why: Words
    checks: int


class DoctorStage(Struct, frozen=True, kw_only=True):
    """One link of the chain.

    Its status is that of its worst check. It is partial if nothing is wrong and a quarter or more of its checks could
    not be made, and skipped if none was made.
    """

    stage: Stage
    name: Words
    status: StageStatus
    counts: dict[Status, int] = {}
    not_checked: tuple[NotChecked, ...] = ()  # why its checks were skipped, the most frequent reason first


class DoctorReport(Struct, frozen=True, kw_only=True):
    """Everything that doctor says."""

    at: str
    version: str
    place: Place
    status: Status  # the worst of all checks; skipped: nothing could be looked at
    counts: dict[Status, int]
    seconds: Seconds
    stages: tuple[DoctorStage, ...]
    findings: tuple[DoctorFinding, ...]
    services: tuple[AskedService, ...] = ()  # what was asked, and what is not configured
