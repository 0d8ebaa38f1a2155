"""Metrics of the cluster exporter about how scheduling went, as it is seen from outside, and about pods that wait."""

from vgpuscope.catalog.metric import Labels, Metric, Scope, Type, same
from vgpuscope.model.scheduling import BOUNDS, STEPS

SCHEDULER = same("scheduler")
WAITING = same("namespace", "code")
_LINES = len(BOUNDS) + 3  # of a histogram: a bucket for each bound and for infinity, sum and count


def _native(
    scope: Scope, labels: Labels, name: str, type: Type, help: str, *extra: str, each: int | None = None, unit: str = ""
) -> Metric:
    full = f"vgpuscope_cluster_{name}"
    return Metric(
        name=full,
        type=type,
        help=help,
        unit=unit,
        scope=scope,
        labels=labels,
        extra=extra,
        each=1 if not extra else each,
    )


def _handbook(name: str, type: Type, help: str, unit: str = "") -> Metric:
    each = _LINES if type == "histogram" else 1
    return Metric(name=name, type=type, help=help, unit=unit, scope="cluster", labels=(), family="handbook", each=each)


# ── under the handbook's names, all schedulers together ──────────────────────────────────────────────────────────
FILTER_SECONDS = _handbook(
    "hami_scheduler_filter_duration_seconds",
    "histogram",
    "From a pod's creation, or the last attempt before it fitted, to HAMi's choice of a node, in whole seconds: "
    "waiting in the queue is part of it, and so is scoring, which cannot be told apart from outside.",
    "seconds",
)
BIND_SECONDS = _handbook(
    "hami_scheduler_bind_duration_seconds",
    "histogram",
    "From HAMi's choice of a node to the pod's being bound there, in whole seconds: waiting for the node's lock is "
    "part of it.",
    "seconds",
)
BIND_SUCCESS = _handbook(
    "hami_scheduler_bind_success_total",
    "counter",
    "Pods with devices that were bound to a node, by any scheduler, since the exporter started.",
)
BIND_FAILURE = _handbook(
    "hami_scheduler_bind_failure_total",
    "counter",
    "Attempts to bind a pod with devices, or to hand it its devices, that failed since the exporter started.",
)

# ── ours, scheduler by scheduler ─────────────────────────────────────────────────────────────────────────────────
STAGE_SECONDS = _native(
    "scheduler",
    SCHEDULER,
    "scheduling_stage_seconds",
    "histogram",
    "How long a stage took, in whole seconds. filter: creation or last attempt to HAMi's choice of a node; lock: to "
    "HAMi's having the node's lock; bind: from there to the binding; schedule: creation to binding, whoever schedules; "
    "start: binding to the first container's start, pulling images included.",
    "stage",
    each=len(STEPS) * _LINES,
    unit="seconds",
)
BINDS = _native(
    "scheduler",
    SCHEDULER,
    "binds_total",
    "counter",
    "Pods with devices that were bound, and attempts to bind or to hand out devices that failed, since the exporter "
    "started.",
    "result",
    each=2,
)
FAILURES = _native(
    "scheduler",
    SCHEDULER,
    "scheduling_failures_total",
    "counter",
    "Refused attempts to schedule pods with devices, by code; one attempt may have several. docs/scheduling-codes.md "
    "explains each.",
    "code",
)
STAGES_SKIPPED = _native(
    "cluster",
    (),
    "scheduling_stages_skipped_total",
    "counter",
    "Stages that were not counted because they would have ended over a second before they began, or taken over 30 "
    "days: clocks differ, or somebody wrote a time that is none.",
)

# ── pods that wait ───────────────────────────────────────────────────────────────────────────────────────────────
PENDING_PODS = _native(
    "waiting",
    WAITING,
    "pending_pods",
    "gauge",
    "Pods with devices that wait for a node, each under the one reason that counts most; without a namespace, those of "
    "namespaces beyond the first hundreds.",
)
PENDING_OLDEST = _native(
    "waiting",
    WAITING,
    "pending_oldest_seconds",
    "gauge",
    "How long the oldest of them has waited.",
    unit="seconds",
)

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
