"""Every metric of the scheduler extender: its decisions, its queue, its cache and its lease."""

from msgspec.structs import replace

from vgpuscope.catalog import scheduling
from vgpuscope.catalog.metric import Metric, Type, build_info, described, loop_restarts, same

# A filter over 1,000 nodes takes milliseconds, a binding waits for the API server.
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LINES = len(BOUNDS) + 3  # series of a histogram: a bucket for each bound and for infinity, sum and count
KIND = same("kind")


def _measured(metric: Metric) -> Metric:
    """A metric of the handbook that the cluster exporter can only estimate."""
    return replace(metric, scope="extender", each=_LINES if metric.type == "histogram" else 1)


def _own(name: str, type: Type, help: str, *extra: str, unit: str = "", each: int | None = 1) -> Metric:
    return described("extender", (), f"vgpuscope_extender_{name}", help, unit, type=type, extra=extra, each=each)


def _watch(name: str, type: Type, help: str, unit: str = "") -> Metric:
    return described("extender-kind", KIND, f"vgpuscope_extender_{name}", help, unit, type=type)


# ── under the handbook's names ───────────────────────────────────────────────────────────────────────────────────
FILTER_SECONDS = _measured(scheduling.FILTER_SECONDS)
SCORE_SECONDS = described(
    "extender",
    (),
    "hami_scheduler_score_duration_seconds",
    "Time that a filter request took to rank the nodes that fit; a part of the filter's duration.",
    "seconds",
    type="histogram",
    family="handbook",
    each=_LINES,
)
BIND_SECONDS = _measured(scheduling.BIND_SECONDS)
BIND_SUCCESS = _measured(scheduling.BIND_SUCCESS)
BIND_FAILURE = _measured(scheduling.BIND_FAILURE)

# ── decisions ────────────────────────────────────────────────────────────────────────────────────────────────────
REQUESTS = _own(
    "requests_total",
    "counter",
    "Requests of kube-scheduler and of the API server, by verb and outcome: ok, refused (a code of "
    "docs/scheduling-codes.md) or error (a code of docs/errors.md).",
    "verb",
    "outcome",
    each=12,
)
REFUSALS = _own(
    "refusals_total",
    "counter",
    "Refused pods, by verb and by the code that most nodes had; docs/scheduling-codes.md explains each.",
    "verb",
    "code",
    each=None,
)
NODE_REFUSALS = _own(
    "node_refusals_total", "counter", "Nodes that filter requests refused, by code.", "code", each=None
)
QUEUE = _own("queue_length", "gauge", "Decisions that wait for their turn: one is made at a time.")
QUEUE_SECONDS = _own(
    "queue_wait_seconds", "histogram", "Time that a decision waited for its turn.", unit="seconds", each=_LINES
)
ASSUMED = _own("assumed_pods", "gauge", "Pods whose assignment was written, but has not come back by the watch yet.")
UNSETTLED = _own(
    "unsettled_pods",
    "gauge",
    "Pods whose assignment must still be cleared, because the API server did not answer. Their GPUs stay allocated.",
)

# ── the lease ────────────────────────────────────────────────────────────────────────────────────────────────────
LEADER = _own("leader", "gauge", "1 if this replica leads, and so decides.")
LEASE_AGE = _own("lease_age_seconds", "gauge", "Time since the lease was last seen to be renewed.", unit="seconds")
LEASE_TRANSITIONS = _own("lease_transitions_total", "counter", "How often the lease changed its holder.")

# ── the cache, and the extender itself ───────────────────────────────────────────────────────────────────────────
CACHE_AGE = _own(
    "cache_age_seconds",
    "gauge",
    "Time since the last message of the API server on the watch that is silent for longest; a watch is silent for up "
    "to a minute.",
    unit="seconds",
)
SYNCED = _own("cache_synced", "gauge", "1 if nodes, pods, quotas, slices and claims are listed and watched.")
WATCH_UP = _watch("watch_up", "gauge", "1 if the kind is listed and watched without an error.")
WATCH_OBJECTS = _watch("watch_objects", "gauge", "Known objects of the kind.")
WATCH_FAULTS = _watch("object_faults", "gauge", "Objects that could not be read completely.")
EVENTS_POSTED = _own("events_posted_total", "counter", "Events that were written on pods.")
EVENTS_DROPPED = _own(
    "events_dropped_total", "counter", "Events that were not written: too many waited, or the API server rejected them."
)
DECISIONS_KEPT = _own("decisions_kept", "gauge", "Decisions in the log that /api/v1/decisions shows.")
DECISIONS_BYTES = _own("decisions_bytes", "gauge", "Estimated memory of the log of decisions.", unit="bytes")
DECISIONS_DROPPED = _own(
    "decisions_dropped_total", "counter", "Decisions that left the log before a day had passed, because it was full."
)
DECISIONS_UNSAVED = _own(
    "decisions_unsaved", "gauge", "Decisions that wait to be saved; absent without extender.state."
)
DECISIONS_LOST = _own(
    "decisions_lost_total",
    "counter",
    "Decisions that were never saved, because too many waited or the database rejected them; absent without "
    "extender.state.",
)
DECISION_STORE_UP = _own(
    "decision_store_up", "gauge", "1 if the store of decisions answers; absent without extender.state."
)
ERRORS = _own("errors_total", "counter", "Errors by code; docs/errors.md explains each.", "code", each=None)
LOOP_RESTARTS = loop_restarts("extender")
BUILD_INFO = build_info("extender")

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
