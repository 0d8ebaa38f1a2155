"""Every metric of the analyzer: gpu-oour's metrics under their names, and ours for what those do not cover."""

from vgpuscope.catalog.limits import FLEET_OMISSIONS
from vgpuscope.catalog.metric import Labels, Metric, Scope, Type, build_info, described, loop_restarts, same
from vgpuscope.model.analysis import STATUSES, USE_CLASSES, VERDICTS
from vgpuscope.model.opinion import TOKEN_KINDS
from vgpuscope.model.reclaim import BRAKES, STATES

FAMILIES: tuple[str, ...] = ("native", "gpu-oour")

GPU = same("gpu_id", "mig", "pod", "namespace", "hostname")
SUBJECT = same("gpu_id", "mig", "hostname")
TENANT = same("gpu_id", "mig", "hostname", "namespace", "pod", "container")
GPU_POD = same("gpu_id", "mig", "hostname", "namespace", "pod", "owner")
GROUP = same("namespace")
ASKED = same("gpu_id", "mig", "pod", "namespace")


def _oour(
    scope: Scope,
    labels: Labels,
    name: str,
    help: str,
    *extra: str,
    unit: str = "",
    type: Type = "gauge",
    each: int | None = 1,
) -> Metric:
    return described(scope, labels, name, help, unit, type=type, extra=extra, each=each, family="gpu-oour")


def _ours(
    scope: Scope,
    labels: Labels,
    name: str,
    help: str,
    *extra: str,
    unit: str = "",
    each: int | None = 1,
    part: str = "analyzer",
) -> Metric:
    return described(scope, labels, f"vgpuscope_{part}_{name}", help, unit, extra=extra, each=each)


# ── GPUs, under gpu-oour's names: means over the window, absent if nothing was measured ──────────────────────────
# A GPU shared by pods has one series for each pod, with the pod's own numbers, so that sums by namespace are right.
SCORE = _oour(
    "gpu-of-pod",
    (*GPU, ("model", "model")),
    "gpu_utilization_score",
    "Score of the GPU, 0-100; on a shared GPU the score of each pod. Absent if no signal of work was measured.",
    "status",
)
CORE = _oour(
    "gpu-of-pod", GPU, "gpu_core_utilization", "Mean GPU utilisation, percent; on a shared GPU the part of each pod."
)
MEMORY_USED = _oour(
    "gpu-of-pod", GPU, "gpu_memory_used_mb", "Mean memory in use, MiB; on a shared GPU the memory of each pod."
)
MEMORY_PERCENT = _oour(
    "gpu-of-pod", GPU, "gpu_memory_usage_percent", "Memory in use, percent of the memory of the GPU."
)
MEMORY_TOTAL = _oour(
    "gpu-of-pod",
    (*GPU, ("model", "model")),
    "gpu_memory_total_mb",
    "Memory of the GPU, MiB; on a shared GPU the memory limit of each pod, absent without a limit.",
)
POWER = _oour("gpu-of-pod", GPU, "gpu_power_usage_watts", "Mean power draw; absent on a shared GPU.", unit="watts")
MEMORY_COPY = _oour("gpu-of-pod", GPU, "gpu_memory_copy_utilization", "Mean memory traffic, percent of time.")
SM_CLOCK = _oour("gpu-of-pod", GPU, "gpu_sm_clock_mhz", "Mean SM clock, MHz.")

# ── the fleet ────────────────────────────────────────────────────────────────────────────────────────────────────
TOTAL = _oour("fleet", (), "gpu_total_count", "GPUs and MIG instances; a GPU divided by MIG counts as its instances.")
LOW = _oour("fleet", (), "gpu_low_utilization_count", "GPUs and MIG instances whose score is below the threshold.")
IDLE = _oour("fleet", (), "gpu_idle_count", "GPUs and MIG instances whose status is idle.")
AVERAGE = _oour("fleet", (), "gpu_average_score", "Mean score of the GPUs and MIG instances that have one.")
STATUS_COUNT = _oour("fleet", (), "gpu_status_count", "GPUs and MIG instances by status.", "status", each=len(STATUSES))
NAMESPACE_COUNT = _oour(
    "group",
    GROUP,
    "gpu_namespace_count",
    "GPUs and MIG instances held by pods of the namespace; a shared GPU counts in the namespace of each tenant.",
)
NAMESPACE_AVERAGE = _oour(
    "group",
    GROUP,
    "gpu_namespace_average_score",
    "Mean score over the namespace's own GPUs and over its pods on shared GPUs.",
)
ANALYSES = _oour("fleet", (), "gpu_analysis_total", "Analyses that ended, successful or failed.", type="counter")
ANALYSIS_ERRORS = _oour(
    "fleet", (), "gpu_analysis_errors_total", "Analyses that failed completely or in part.", type="counter"
)
ANALYSIS_SECONDS = _oour(
    "fleet", (), "gpu_analysis_duration_seconds", "Duration of an analysis.", unit="seconds", type="histogram"
)
SERVICE_INFO = _oour(
    "fleet",
    (),
    "gpu_monitor_service_info",
    "The settings in effect; always 1.",
    "version",
    "threshold",
    "interval",
    "ai_enabled",
)

# ── the opinion of a language model: of each pod of a GPU that it was asked about ────────────────────────────────
AI_CONFIDENCE = _oour(
    "opinion",
    ASKED,
    "gpu_ai_analysis_confidence",
    "Confidence of the language model in its opinion on the pod, 0-1. Absent without an opinion.",
    "ai_status",
)
AI_SCORE = _oour(
    "opinion",
    ASKED,
    "gpu_ai_adjusted_score",
    "Score of the pod as the language model estimates it, 0-100. It changes no other score.",
)

# ── whole GPUs, shared or not ────────────────────────────────────────────────────────────────────────────────────
GPU_SCORE = _ours("subject", SUBJECT, "gpu_score", "Score of the whole GPU, 0-100.")
GPU_UTIL = _ours("subject", SUBJECT, "gpu_utilization_ratio", "Mean utilisation of the whole GPU, 0-1.", unit="ratio")
GPU_TRAFFIC = _ours(
    "subject",
    SUBJECT,
    "gpu_memory_traffic_ratio",
    "Mean share of time in which memory of the GPU was read or written, 0-1.",
    unit="ratio",
)
GPU_MEMORY_USED = _ours(
    "subject", SUBJECT, "gpu_memory_used_bytes", "Mean memory in use on the whole GPU.", unit="bytes"
)
GPU_MEMORY_TOTAL = _ours("subject", SUBJECT, "gpu_memory_total_bytes", "Memory of the GPU.", unit="bytes")
GPU_POWER = _ours("subject", SUBJECT, "gpu_power_watts", "Mean power draw of the whole GPU.", unit="watts")
GPU_CLOCK = _ours("subject", SUBJECT, "gpu_sm_clock_hertz", "Mean SM clock of the GPU.", unit="hertz")

# ── verdicts ─────────────────────────────────────────────────────────────────────────────────────────────────────
VERDICT = _ours(
    "subject", SUBJECT, "verdict", "Verdict on the GPU: 1 for the current one, 0 for the others.", "verdict", each=3
)
USE_CLASS = _ours("subject", SUBJECT, "class_info", "Class of the GPU; always 1.", "class")
COVERAGE = _ours(
    "subject",
    SUBJECT,
    "coverage_ratio",
    "Coverage: samples of the deciding signal divided by the samples expected in the window, 0-1.",
    unit="ratio",
)
CONFIDENCE = _ours(
    "subject",
    SUBJECT,
    "confidence_ratio",
    "Confidence in the score: the part of its weight that was measured, times coverage, 0-1.",
    unit="ratio",
)
AGE = _ours(
    "subject", SUBJECT, "sample_age_seconds", "Age of the last sample at the time of the analysis.", unit="seconds"
)
TENANTS = _ours("subject", SUBJECT, "tenants", "Tenants of the GPU.")
TENANT_VERDICT = _ours(
    "tenant",
    TENANT,
    "tenant_verdict",
    "Verdict on the tenant, 1 for the current one; absent if the tenant's own use is not measured.",
    "verdict",
)
TENANT_CLASS = _ours(
    "gpupod",
    GPU_POD,
    "tenant_class_info",
    "Class of a pod on the GPU, over all its containers there; always 1.",
    "class",
)
TENANT_IDLE = _ours(
    "gpupod",
    GPU_POD,
    "tenant_idle_seconds",
    "How long the verdict on the pod on this GPU has been idle; 0 if it is in_use, absent if it is unknown.",
    unit="seconds",
)
GPUS = _ours("fleet", (), "gpus", "GPUs and MIG instances by verdict.", "verdict", each=len(VERDICTS))
CLASSES = _ours("fleet", (), "class_gpus", "GPUs and MIG instances by class.", "class", each=len(USE_CLASSES))
TENANT_CLASSES = _ours("fleet", (), "class_tenants", "Tenants by class.", "class", each=len(USE_CLASSES))
DROPPED = _ours("fleet", (), "dropped_samples_total", "Samples with impossible values that were dropped.")
FAULTS = _ours("fleet", (), "faults", "Parts of the last analysis that failed, by code.", "code", each=None)
WITHOUT_SERIES = _ours(
    "fleet",
    (),
    "without_series",
    "GPUs and tenants that the last analysis ignored because a limit is reached, by reason. The log names the targets.",
    "reason",
    each=len(FLEET_OMISSIONS),
)
REQUESTS = _ours("fleet", (), "requests", "Requests of the last analysis to its source.")
LAST_SUCCESS = _ours(
    "fleet", (), "last_success_timestamp_seconds", "Start time of the last successful analysis.", unit="seconds"
)
LEADER = _ours("fleet", (), "leader", "1 if this replica is the leader, which analyses and writes results.")
ERRORS = _ours("fleet", (), "errors_total", "Errors by code; docs/errors.md explains each.", "code", each=None)
TARGETS = _ours(
    "fleet",
    (),
    "targets",
    "Expected scrape targets by state, up or down; absent if the source does not know its targets.",
    "state",
    each=2,
)
UNSAVED = _ours("fleet", (), "unsaved_results", "Analyses that wait in memory because the store of results is down.")
FOLLOWER_FAILURES = _ours(
    "fleet",
    (),
    "follower_failures_total",
    "Failures of what follows from an analysis (page, log, store), by follower; errors and missed deadlines.",
    "follower",
    each=None,
)
RECLAIM_WORKLOADS = _ours(
    "fleet",
    (),
    "workloads",
    "Workloads that looked idle, by the state of their case. A dry run ends in would_act, where nothing is done.",
    "state",
    each=len(STATES),
    part="reclaim",
)
RECLAIM_HELD = _ours(
    "fleet",
    (),
    "held_workloads",
    "Cases that a brake holds back now, by brake; a case with several brakes counts for each of them.",
    "brake",
    each=len(BRAKES),
    part="reclaim",
)
RECLAIM_ACTIONS = _ours(
    "fleet",
    (),
    "actions_total",
    "Actions that take GPUs back, by outcome: success, failure, or dry_run for what would have been done.",
    "action",
    "outcome",
    each=None,
    part="reclaim",
)
RECLAIM_HELD_BACK = _ours(
    "fleet",
    (),
    "held_back_total",
    "How often a brake began to hold a case back.",
    "brake",
    each=None,
    part="reclaim",
)
AI_REQUESTS = _ours(
    "fleet",
    (),
    "requests_total",
    "Requests to the language model, by outcome.",
    "provider",
    "outcome",
    each=None,
    part="ai",
)
AI_TOKENS = _ours(
    "fleet",
    (),
    "tokens_total",
    "Tokens that the language model counted, by kind: input or output.",
    "kind",
    each=len(TOKEN_KINDS),
    part="ai",
)
AI_COST = _ours(
    "fleet",
    (),
    "cost_total",
    "Cost of these tokens by ai.price_input and ai.price_output, in their currency; absent without a price.",
    part="ai",
)
AI_SECONDS = described(
    "fleet",
    (),
    "vgpuscope_ai_seconds",
    "Duration of a request to the language model.",
    "seconds",
    type="histogram",
)
RECLAIM_NOTICES = _ours(
    "fleet",
    (),
    "notices_total",
    "Notices, by channel and outcome: success, or failure for each attempt that the service did not take.",
    "channel",
    "outcome",
    each=None,
    part="reclaim",
)
RECLAIM_CHANNEL_WORKS = _ours(
    "fleet",
    (),
    "channel_works",
    "1 if a channel's service accepted the last message, 0 if it did not; absent before the first message.",
    "channel",
    each=None,
    part="reclaim",
)
CONTROL_CALLBACKS = _ours(
    "fleet",
    (),
    "callbacks_total",
    "Reports of low GPUs to the control service, by outcome: success, failure for each attempt that the service did "
    "not take, or given_up after 24 hours.",
    "outcome",
    each=None,
    part="control",
)
CONTROL_WAITING = _ours(
    "fleet",
    (),
    "callbacks_waiting",
    "Reports of low GPUs that the control service has not accepted yet. Absent if none are sent to it.",
    part="control",
)
RECLAIM_BRAKE_ON = _ours(
    "fleet",
    (),
    "brake_on",
    "1 if this brake holds every workload back, 0 if not. Absent in a dry run, and while another replica leads.",
    "brake",
    each=None,
    part="reclaim",
)
LOOP_RESTARTS = loop_restarts("fleet")
BUILD_INFO = build_info("fleet")

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
