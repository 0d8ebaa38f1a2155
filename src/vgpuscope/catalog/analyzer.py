"""Every metric of the analyzer: gpu-oour's by its names, and ours for what it does not say."""

from vgpuscope.catalog.metric import Labels, Metric, Scope, Type, build_info, same

FAMILIES: tuple[str, ...] = ("native", "gpu-oour")

CARD = same("gpu_id", "mig", "pod", "namespace", "hostname")
SUBJECT = same("gpu_id", "mig", "hostname")
TENANT = same("gpu_id", "mig", "hostname", "namespace", "pod", "container")
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


# ── cards, by gpu-oour's names: means over the window, absent where nothing was measured ─────────────────────────
SCORE = _oour(
    "card",
    (*CARD, ("model", "model")),
    "gpu_utilization_score",
    "How much the card is used, 0-100; absent when not one term was measured.",
    "status",
)
CORE = _oour("card", CARD, "gpu_core_utilization", "Mean GPU utilisation, percent.")
MEMORY_USED = _oour("card", CARD, "gpu_memory_used_mb", "Mean memory in use, MiB.")
MEMORY_PERCENT = _oour("card", CARD, "gpu_memory_usage_percent", "Memory in use of all there is, percent.")
MEMORY_TOTAL = _oour("card", (*CARD, ("model", "model")), "gpu_memory_total_mb", "Memory of the card, MiB.")
POWER = _oour("card", CARD, "gpu_power_usage_watts", "Mean power draw.", unit="watts")
MEMORY_COPY = _oour("card", CARD, "gpu_memory_copy_utilization", "Mean memory traffic, percent of time.")
SM_CLOCK = _oour("card", CARD, "gpu_sm_clock_mhz", "Mean SM clock, MHz.")

# ── the fleet ────────────────────────────────────────────────────────────────────────────────────────────────────
TOTAL = _oour("fleet", (), "gpu_total_count", "Cards; of a card in MIG mode, its instances.")
LOW = _oour("fleet", (), "gpu_low_utilization_count", "Cards whose score is below the threshold.")
IDLE = _oour("fleet", (), "gpu_idle_count", "Cards of status idle.")
AVERAGE = _oour("fleet", (), "gpu_average_score", "Mean score of the cards that have one.")
STATUS_COUNT = _oour("fleet", (), "gpu_status_count", "Cards by status.", "status", each=5)
NAMESPACE_COUNT = _oour(
    "group", GROUP, "gpu_namespace_count", "Cards that pods of the namespace have; a shared card is in each of theirs."
)
NAMESPACE_AVERAGE = _oour("group", GROUP, "gpu_namespace_average_score", "Mean score of these cards.")
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
GPUS = _ours("fleet", (), "gpus", "Cards by verdict.", "verdict", each=3)
CLASSES = _ours("fleet", (), "class_gpus", "Cards by class.", "class", each=6)
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
BUILD_INFO = build_info("fleet")

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
