"""Every metric of the analyzer: gpu-oour's by its names, and ours for what it does not say."""

from vgpuscope.catalog.metric import Labels, Metric, Scope, Type, build_info, loop_restarts, same
from vgpuscope.model.analysis import STATUSES, USE_CLASSES, VERDICTS

FAMILIES: tuple[str, ...] = ("native", "gpu-oour")

CARD = same("gpu_id", "mig", "pod", "namespace", "hostname")
SUBJECT = same("gpu_id", "mig", "hostname")
TENANT = same("gpu_id", "mig", "hostname", "namespace", "pod", "container")
GPU_POD = same("gpu_id", "mig", "hostname", "namespace", "pod", "owner")
GROUP = same("namespace")


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
    return Metric(
        name=name,
        type=type,
        help=help,
        unit=unit,
        scope=scope,
        labels=labels,
        extra=extra,
        each=each,
        family="gpu-oour",
    )


def _ours(
    scope: Scope, labels: Labels, name: str, help: str, *extra: str, unit: str = "", each: int | None = 1
) -> Metric:
    kind: Type = "counter" if name.endswith("_total") else "gauge"
    full = f"vgpuscope_analyzer_{name}"
    return Metric(name=full, type=kind, help=help, unit=unit, scope=scope, labels=labels, extra=extra, each=each)


# ── GPUs, by gpu-oour's names: means over the window, absent where nothing was measured ──────────────────────────
# A GPU that pods share has a series for each of them, with the pod's own numbers, so that sums by namespace are right.
SCORE = _oour(
    "card",
    (*CARD, ("model", "model")),
    "gpu_utilization_score",
    "How much the GPU is used, 0-100, or how much of it a pod uses that shares it; absent when not one term was "
    "measured.",
    "status",
)
CORE = _oour(
    "card", CARD, "gpu_core_utilization", "Mean GPU utilisation, percent; of a pod that shares the GPU, its own part."
)
MEMORY_USED = _oour(
    "card", CARD, "gpu_memory_used_mb", "Mean memory in use, MiB; of a pod that shares the GPU, its own."
)
MEMORY_PERCENT = _oour("card", CARD, "gpu_memory_usage_percent", "Memory in use of all memory of the GPU, percent.")
MEMORY_TOTAL = _oour(
    "card",
    (*CARD, ("model", "model")),
    "gpu_memory_total_mb",
    "Memory of the GPU, MiB; of a pod that shares the GPU, its limit, absent without one.",
)
POWER = _oour("card", CARD, "gpu_power_usage_watts", "Mean power draw; absent for pods that share.", unit="watts")
MEMORY_COPY = _oour("card", CARD, "gpu_memory_copy_utilization", "Mean memory traffic, percent of time.")
SM_CLOCK = _oour("card", CARD, "gpu_sm_clock_mhz", "Mean SM clock, MHz.")

# ── the fleet ────────────────────────────────────────────────────────────────────────────────────────────────────
TOTAL = _oour("fleet", (), "gpu_total_count", "GPUs; of a GPU in MIG mode, its instances.")
LOW = _oour("fleet", (), "gpu_low_utilization_count", "GPUs whose score is below the threshold.")
IDLE = _oour("fleet", (), "gpu_idle_count", "GPUs of status idle.")
AVERAGE = _oour("fleet", (), "gpu_average_score", "Mean score of the GPUs that have one.")
STATUS_COUNT = _oour("fleet", (), "gpu_status_count", "GPUs by status.", "status", each=len(STATUSES))
NAMESPACE_COUNT = _oour(
    "group",
    GROUP,
    "gpu_namespace_count",
    "GPUs of the namespace's pods; a shared GPU counts once in the namespace of each of its tenants.",
)
NAMESPACE_AVERAGE = _oour(
    "group",
    GROUP,
    "gpu_namespace_average_score",
    "Mean score of the GPUs that the namespace's pods have alone, and of these pods on shared GPUs.",
)
ANALYSES = _oour("fleet", (), "gpu_analysis_total", "Analyses that came to an end, good or bad.", type="counter")
ANALYSIS_ERRORS = _oour(
    "fleet", (), "gpu_analysis_errors_total", "Analyses that failed, wholly or in a part.", type="counter"
)
ANALYSIS_SECONDS = _oour(
    "fleet", (), "gpu_analysis_duration_seconds", "How long an analysis took.", unit="seconds", type="histogram"
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

# ── GPUs as a whole, however many share them ─────────────────────────────────────────────────────────────────────
GPU_SCORE = _ours("subject", SUBJECT, "gpu_score", "How much the whole GPU is used, 0-100.")
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
    "subject", SUBJECT, "verdict", "1 for what is concluded of the card, 0 for the others.", "verdict", each=3
)
USE_CLASS = _ours("subject", SUBJECT, "class_info", "How the card is used; always 1.", "class")
COVERAGE = _ours(
    "subject",
    SUBJECT,
    "coverage_ratio",
    "Samples of the signal that decides, of those to be expected in the window, 0-1.",
    unit="ratio",
)
CONFIDENCE = _ours(
    "subject",
    SUBJECT,
    "confidence_ratio",
    "Share of the score's weight that was measured, times coverage.",
    unit="ratio",
)
AGE = _ours("subject", SUBJECT, "sample_age_seconds", "Age of the last sample at the analysis.", unit="seconds")
TENANTS = _ours("subject", SUBJECT, "tenants", "Pods or containers that have the card.")
TENANT_VERDICT = _ours(
    "tenant",
    TENANT,
    "tenant_verdict",
    "1 for what is concluded of the tenant's own use, where it is measured.",
    "verdict",
)
TENANT_CLASS = _ours(
    "gpupod",
    GPU_POD,
    "tenant_class_info",
    "How a pod uses its part of the GPU, its containers taken together; always 1.",
    "class",
)
TENANT_IDLE = _ours(
    "gpupod",
    GPU_POD,
    "tenant_idle_seconds",
    "For how long the pod has been idle on this GPU, at the analysis; 0 while it is in use, absent while that is "
    "unknown.",
    unit="seconds",
)
GPUS = _ours("fleet", (), "gpus", "GPUs by verdict.", "verdict", each=len(VERDICTS))
CLASSES = _ours("fleet", (), "class_gpus", "GPUs by class.", "class", each=len(USE_CLASSES))
TENANT_CLASSES = _ours("fleet", (), "class_tenants", "Tenants by class.", "class", each=len(USE_CLASSES))
DROPPED = _ours("fleet", (), "dropped_samples_total", "Samples that could not be true and were left out.")
FAULTS = _ours("fleet", (), "faults", "Parts of the last analysis that failed, by code.", "code", each=None)
REQUESTS = _ours("fleet", (), "requests", "Requests that the last analysis made to its source.")
LAST_SUCCESS = _ours(
    "fleet", (), "last_success_timestamp_seconds", "When the last good analysis began.", unit="seconds"
)
LEADER = _ours("fleet", (), "leader", "1 if this replica is the one that analyses and writes.")
ERRORS = _ours("fleet", (), "errors_total", "Errors by code; docs/errors.md explains each.", "code", each=None)
TARGETS = _ours(
    "fleet",
    (),
    "targets",
    "Scrape targets that are expected to answer, by whether they do; absent if the source does not know its targets.",
    "state",
    each=2,
)
UNSAVED = _ours("fleet", (), "unsaved_results", "Analyses that wait for the store of results to come back.")
FOLLOWER_FAILURES = _ours(
    "fleet",
    (),
    "follower_failures_total",
    "Failures of what follows from an analysis (page, log, store), by follower; errors and missed deadlines.",
    "follower",
    each=None,
)
LOOP_RESTARTS = loop_restarts("fleet")
BUILD_INFO = build_info("fleet")

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
