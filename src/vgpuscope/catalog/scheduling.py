"""Metrics of the cluster exporter about scheduling, as observed from outside, and about pods that wait."""

from vgpuscope.catalog.metric import Labels, Metric, Scope, Type, described, same
from vgpuscope.model.scheduling import BOUNDS, STEPS

SCHEDULER = same("scheduler")
WAITING = same("namespace", "code")
_LINES = len(BOUNDS) + 3  # series of a histogram: a bucket for each bound and for infinity, sum and count


def _native(
    scope: Scope, labels: Labels, name: str, type: Type, help: str, *extra: str, each: int | None = None, unit: str = ""
) -> Metric:
    full, series = f"vgpuscope_cluster_{name}", each if extra else 1
    return described(scope, labels, full, help, unit, type=type, extra=extra, each=series)


def _handbook(name: str, type: Type, help: str, unit: str = "") -> Metric:
    each = _LINES if type == "histogram" else 1
    return described("cluster", (), name, help, unit, type=type, family="handbook", each=each)


# ── under the handbook's names, for all schedulers together; vgpuscope extender has the same names ──────────────
FILTER_SECONDS = _handbook(
    "hami_scheduler_filter_duration_seconds",
    "histogram",
    "Time to choose a node. vgpuscope extender: duration of each filter request. Cluster exporter: estimated from the "
    "pod's creation, or its last failed attempt, to HAMi's choice, in whole seconds, with queueing and scoring.",
    "seconds",
)
BIND_SECONDS = _handbook(
    "hami_scheduler_bind_duration_seconds",
    "histogram",
    "Time to bind a pod. vgpuscope extender: duration of each bind request. Cluster exporter: estimated from HAMi's "
    "choice of a node to the binding, in whole seconds, with the wait for the node's lock.",
    "seconds",
)
BIND_SUCCESS = _handbook(
    "hami_scheduler_bind_success_total",
    "counter",
    "Pods that were bound. vgpuscope extender: successful bind requests, also of pods without GPUs. Cluster exporter: "
    "pods with devices that any scheduler bound since the exporter started.",
)
BIND_FAILURE = _handbook(
    "hami_scheduler_bind_failure_total",
    "counter",
    "Failed bindings. vgpuscope extender: failed bind requests, also those of a locked node. Cluster exporter: failed "
    "attempts to bind a pod with devices or to allocate its devices, since the exporter started.",
)

# ── native, by scheduler ─────────────────────────────────────────────────────────────────────────────────────────
STAGE_SECONDS = _native(
    "scheduler",
    SCHEDULER,
    "scheduling_stage_seconds",
    "histogram",
    "Duration of a stage, in whole seconds. filter: creation or last failed attempt to HAMi's choice of a node; lock: "
    "from there until HAMi has the node's lock; bind: from there to the binding; schedule: creation to binding, with "
    "any scheduler; start: binding to the start of the first container, image pull included.",
    "stage",
    each=len(STEPS) * _LINES,
    unit="seconds",
)
BINDS = _native(
    "scheduler",
    SCHEDULER,
    "binds_total",
    "counter",
    "Pods with devices that were bound (success), and failed attempts to bind or to allocate devices (failure), since "
    "the exporter started.",
    "result",
    each=2,
)
FAILURES = _native(
    "scheduler",
    SCHEDULER,
    "scheduling_failures_total",
    "counter",
    "Failed attempts to schedule pods with devices, by code; one attempt can have several codes. "
    "docs/scheduling-codes.md explains each.",
    "code",
)
STAGES_SKIPPED = _native(
    "cluster",
    (),
    "scheduling_stages_skipped_total",
    "counter",
    "Stages that were not counted because they ended more than a second before they began or took more than 30 days: "
    "clocks differ, or an annotation has a wrong time.",
)

# ── pods that wait ───────────────────────────────────────────────────────────────────────────────────────────────
PENDING_PODS = _native(
    "waiting",
    WAITING,
    "pending_pods",
    "gauge",
    "Pods with devices that wait for a node, each under its main reason; the label namespace is absent for pods beyond "
    "the limit of 500 series.",
)
PENDING_OLDEST = _native(
    "waiting",
    WAITING,
    "pending_oldest_seconds",
    "gauge",
    "Waiting time of the oldest of these pods.",
    unit="seconds",
)

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
