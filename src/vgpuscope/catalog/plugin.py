"""Every metric of the device plugin."""

from vgpuscope.catalog.metric import Labels, Metric, Scope, Type, build_info, described, loop_restarts, renamed, same

# Seconds. Most allocations take two requests to the API server.
ALLOCATE_BOUNDS: tuple[float, ...] = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LINES = len(ALLOCATE_BOUNDS) + 3  # a bucket for each bound and for infinity, sum and count
FAMILIES = ("native", "hami", "handbook")  # that its page has
NODE = same("node")
GPU = same("node", "gpu_uuid")


def _native(
    scope: Scope,
    labels: Labels,
    name: str,
    type: Type,
    help: str,
    *extra: str,
    each: int | None = 1,
) -> Metric:
    return described(scope, labels, f"vgpuscope_plugin_{name}", help, "", type=type, extra=extra, each=each)


def _handbook(scope: Scope, labels: Labels, name: str, type: Type, help: str, *, unit: str = "") -> Metric:
    each = _LINES if type == "histogram" else 1
    full = f"hami_device_plugin_{name}"
    return described(scope, labels, full, help, unit, type=type, family="handbook", each=each)


# ── under the handbook's names ───────────────────────────────────────────────────────────────────────────────────
ALLOCATE_SECONDS = _handbook(
    "plugin",
    (),
    "allocate_duration_seconds",
    "histogram",
    "Duration of the kubelet's Allocate calls, failed ones included.",
    unit="seconds",
)
DEVICE_COUNT = _handbook("plugin", (), "device_count", "gauge", "Physical GPUs of this node.")
HEALTHY = _handbook(
    "offered",
    renamed(node="node", device="gpu_uuid"),
    "healthy_status",
    "gauge",
    "1 if the GPU (label device: its UUID) is healthy, else 0.",
)

# ── native ───────────────────────────────────────────────────────────────────────────────────────────────────────
UNHEALTHY = _native(
    "offered",
    GPU,
    "gpu_unhealthy",
    "gauge",
    "Why a GPU is unhealthy, always 1: the driver's state, or xid- and its number. Absent for a healthy GPU.",
    "reason",
)
ALLOCATIONS = _native("plugin", NODE, "allocations_total", "counter", "Containers that got their devices.")
FAILURES = _native(
    "plugin",
    NODE,
    "allocate_failures_total",
    "counter",
    "Allocate calls that failed, by code; docs/errors.md explains each.",
    "code",
    each=None,
)
DIRS_REMOVED = _native(
    "plugin",
    NODE,
    "container_dirs_removed_total",
    "counter",
    "Directories of containers that were removed because their pod is gone.",
)
REGISTRATIONS = _native(
    "plugin",
    NODE,
    "kubelet_registrations_total",
    "counter",
    "Registrations with the kubelet: success, or failure. Each start of the kubelet needs one.",
    "result",
    each=2,
)
KUBELET_UP = _native(
    "plugin", NODE, "kubelet_up", "gauge", "1 if the plugin is registered and the kubelet follows its list of devices."
)
NODE_PATCHES = _native(
    "plugin", NODE, "node_registrations_total", "counter", "Changes of the node's annotation that registers its GPUs."
)
API_UP = _native("plugin", NODE, "apiserver_up", "gauge", "1 if the last request to the API server succeeded.")
DRIVER_UP = _native("plugin", NODE, "driver_up", "gauge", "1 if the driver answered the last time.")
LIMITS = _native(
    "plugin",
    NODE,
    "limits_enforced",
    "gauge",
    "1 if HAMi's library is on the node, so containers get limits; 0: they share GPUs by time only.",
)
MOVES = _native(
    "plugin",
    NODE,
    "feedback_decisions_total",
    "counter",
    "Changes by the priority feedback: block and unblock (a container of a low priority), enforce and release (the SM "
    "limit of a container). Absent unless plugin.feedback is true.",
    "decision",
    each=4,
)
STATES = _native(
    "plugin",
    NODE,
    "feedback_containers",
    "gauge",
    "Containers with a region: all, active (a kernel in the last rounds), blocked (by one of a higher priority), "
    "enforced (the SM limit applies). Absent unless plugin.feedback is true.",
    "state",
    each=4,
)
FEEDBACK_FAILURES = _native(
    "plugin", NODE, "feedback_failures_total", "counter", "Regions that could not be written by the feedback."
)
ERRORS = _native(
    "plugin", (), "errors_total", "counter", "Errors by code; docs/errors.md explains each.", "code", each=None
)
BUILD = build_info("plugin")
LOOP_RESTARTS = loop_restarts("plugin")

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
