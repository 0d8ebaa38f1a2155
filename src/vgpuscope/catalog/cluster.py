"""Every metric of the cluster exporter: capacity and allocations, as the scheduler and the nodes record them."""

from typing import Unpack

from vgpuscope.catalog import scheduling
from vgpuscope.catalog.limits import CLUSTER_OMISSIONS
from vgpuscope.catalog.metric import (
    Alias,
    Labels,
    Metric,
    MetricOptions,
    Scope,
    build_info,
    described,
    loop_restarts,
    renamed,
    same,
)

DEVICE = same("node", "gpu_uuid")
HOLDER = same("node", "namespace", "pod", "pod_uid", "container", "container_index", "gpu_uuid")
OFFER = same("node", "resource", "type", "mode", "profile")
QUOTA = same("namespace", "resource")
PLACE = same("node")
TYPE = same("vendor", "type")

ZONE = (("zone", "vGPU"),)
HAMI_DEVICE = renamed(node="node", device_uuid="gpu_uuid", device_index="gpu_index", device_type="type")
LEGACY_DEVICE = renamed(nodeid="node", deviceuuid="gpu_uuid", deviceidx="gpu_index", devicetype="type")
# HAMi v2.10 adds up the device use of a pod's containers and reports it as container 0.
HAMI_HOLDER = renamed(namespace="namespace", node="node", pod="pod", device_uuid="gpu_uuid")
LEGACY_HOLDER = renamed(podnamespace="namespace", nodename="node", podname="pod", deviceuuid="gpu_uuid")
# v2.6 and v2.7 said with a label when the name would go
UNTIL_V2_7 = (("containeridx", "0"), ("deprecated_version", "v2.8.0"), *ZONE)


def _native(
    scope: Scope, labels: Labels, name: str, help: str, unit: str, *aliases: Alias, **more: Unpack[MetricOptions]
) -> Metric:
    return described(scope, labels, f"vgpuscope_cluster_{name}", help, unit, *aliases, **more)


def _pair(hami: str, legacy: str, *, scale: float, help: str) -> tuple[Alias, Alias]:
    """A device metric under HAMi's name of v2.10 and under the older one."""
    return (
        Alias(family="hami", name=hami, labels=HAMI_DEVICE, scale=scale, help=help, const=ZONE),
        Alias(family="hami-legacy", name=legacy, labels=LEGACY_DEVICE, scale=scale, help=help, const=ZONE),
    )


def _held(hami: str, legacy: str, *, scale: float, help: str) -> tuple[Alias, Alias]:
    """The same for a pod's part of a device."""
    return (
        Alias(
            family="hami",
            name=hami,
            labels=HAMI_HOLDER,
            scale=scale,
            help=help,
            const=(("container_index", "0"), *ZONE),
            when="as_pod",
        ),
        Alias(
            family="hami-legacy",
            name=legacy,
            labels=LEGACY_HOLDER,
            scale=scale,
            help=help,
            const=(("containeridx", "0"), *ZONE),
            when="as_pod",
        ),
    )


def _until_v2_7(name: str, *, scale: float, help: str) -> Alias:
    """A name of a pod's part of a device that HAMi removed in v2.8."""
    return Alias(
        family="hami-legacy",
        name=name,
        labels=LEGACY_HOLDER,
        scale=scale,
        help=help,
        const=UNTIL_V2_7,
        when="as_pod",
    )


def _theirs(family: str, name: str, help: str, labels: Labels, *extra: str) -> Metric:
    """A metric of HAMi whose labels hold numbers, so it has no native counterpart."""
    return described("device", labels, name, help, "bytes", family=family, extra=extra, const=ZONE)


# ── devices ──────────────────────────────────────────────────────────────────────────────────────────────────────
DEVICE_INFO = _native(
    "device",
    same("node", "gpu_uuid", "gpu_index", "vendor", "type", "mode", "numa"),
    "gpu_info",
    "A device as its device plugin registered it; always 1.",
    "",
)
DEVICE_HEALTHY = _native("device", DEVICE, "gpu_healthy", "1 if the device plugin reports the device as healthy.", "")
DEVICE_CORDONED = _native(
    "device", DEVICE, "gpu_cordoned", "1 if the device is cordoned and accepts no new containers.", ""
)
DEVICE_MEMORY = _native(
    "device",
    DEVICE,
    "gpu_memory_bytes",
    "Memory that can be allocated; with memory scaling more than the GPU has.",
    "bytes",
    *_pair(
        "hami_gpu_memory_limit_bytes",
        "GPUDeviceMemoryLimit",
        scale=1,
        help="Device memory limit for a certain GPU",
    ),
)
DEVICE_MEMORY_ALLOCATED = _native("device", DEVICE, "gpu_memory_allocated_bytes", "Memory allocated.", "bytes")
DEVICE_CORES = _native(
    "device",
    DEVICE,
    "gpu_cores_ratio",
    "Compute that can be allocated, 1 for a whole GPU; above 1 with core scaling.",
    "ratio",
    *_pair(
        "hami_gpu_core_limit_ratio",
        "GPUDeviceCoreLimit",
        scale=100,
        help="Device core limit for a certain GPU (percent)",
    ),
)
DEVICE_CORES_ALLOCATED = _native(
    "device",
    DEVICE,
    "gpu_cores_allocated_ratio",
    "Compute allocated, 1 for a whole GPU.",
    "ratio",
    *_pair(
        "hami_gpu_core_allocated_ratio",
        "GPUDeviceCoreAllocated",
        scale=100,
        help="Device core allocated for a certain GPU (percent)",
    ),
)
DEVICE_SLOTS = _native("device", DEVICE, "gpu_slots", "Maximum number of containers that can share the device.", "")
DEVICE_SLOTS_USED = _native(
    "device",
    DEVICE,
    "gpu_slots_used",
    "Slots in use: one for each allocation of the device to a container.",
    "",
    *_pair(
        "hami_gpu_shared_count",
        "GPUDeviceSharedNum",
        scale=1,
        help="Number of containers sharing this GPU",
    ),
)
DEVICE_CONTAINERS = _native("device", DEVICE, "gpu_containers", "Distinct containers that hold the device.", "")
HAMI_MEMORY_ALLOCATED = _theirs(
    "hami",
    "hami_gpu_memory_allocated_bytes",
    "Device memory allocated for a certain GPU",
    HAMI_DEVICE,
    "device_cores",
)
LEGACY_MEMORY_ALLOCATED = _theirs(
    "hami-legacy",
    "GPUDeviceMemoryAllocated",
    "Device memory allocated for a certain GPU",
    LEGACY_DEVICE,
    "devicecores",
)
HAMI_OVERVIEW = _theirs(
    "hami",
    "hami_node_gpu_overview",
    "GPU overview on a certain node: allocated bytes; device_memory_limit is in MiB, device_cores is the total",
    HAMI_DEVICE,
    "device_cores",
    "device_memory_limit",
)
LEGACY_OVERVIEW = _theirs(
    "hami-legacy",
    "nodeGPUOverview",
    "GPU overview on a certain node: allocated bytes; devicememorylimit is in MiB, devicecores is the total",
    LEGACY_DEVICE,
    "devicecores",
    "sharedcontainers",
    "devicememorylimit",
)
DEVICE_MEMORY_SHARE = described(
    "device",
    HAMI_DEVICE,
    "hami_node_gpu_memory_allocated_ratio",
    "GPU memory allocated on a certain GPU (0-1)",
    "ratio",
    Alias(
        family="hami-legacy",
        name="nodeGPUMemoryPercentage",
        labels=renamed(nodeid="node", deviceuuid="gpu_uuid", deviceidx="gpu_index"),
        help="GPU memory allocated on a certain GPU (0-1)",
        const=ZONE,
    ),
    family="hami",
    const=ZONE,
)
MIG_INSTANCE = described(
    "instance",
    (
        ("node", "node"),
        ("device_uuid", "gpu_uuid"),
        ("device_index", "gpu_index"),
        ("mig_uuid", "mig_uuid"),
        ("profile", "profile"),
        ("gpu_instance_id", "gpu_instance"),
        ("compute_instance_id", "compute_instance"),
        ("placement_start", "start"),
        ("placement_size", "size"),
        ("mig_name", "mig_name"),  # only in HAMi v2.9
    ),
    "hami_node_gpu_mig_instance_info",
    "A MIG instance that a container holds",
    "",
    Alias(
        family="hami-legacy",
        name="nodeGPUMigInstance",
        labels=renamed(nodeid="node", deviceuuid="gpu_uuid", deviceidx="gpu_index", migname="mig_name"),
        help="GPU sharing mode: a MIG instance in use",
        const=ZONE,
        when="mig_name",
    ),
    family="hami",
    const=ZONE,
)

# ── containers ───────────────────────────────────────────────────────────────────────────────────────────────────
HOLDER_MEMORY = _native(
    "holder",
    HOLDER,
    "container_memory_allocated_bytes",
    "Memory of a device allocated to a container.",
    "bytes",
    *_held(
        "hami_vgpu_memory_allocated_bytes",
        "vGPUMemoryAllocated",
        scale=1,
        help="vGPU memory allocated to a pod from a GPU; container_index is always 0",
    ),
    when="as_container",
)
HOLDER_CORES = _native(
    "holder",
    HOLDER,
    "container_cores_allocated_ratio",
    "Compute of a device allocated to a container, 1 for a whole GPU; 0: not specified.",
    "ratio",
    *_held(
        "hami_vgpu_core_allocated_ratio",
        "vGPUCoreAllocated",
        scale=100,
        help="vGPU core allocated to a pod from a GPU (percent); container_index is always 0",
    ),
    _until_v2_7("vGPUCorePercentage", scale=100, help="vGPU core allocated to a pod from a GPU (percent)"),
    when="as_container",
)
LEGACY_HOLDER_MEMORY = described(
    "holder",
    LEGACY_HOLDER,
    "vGPUPodsDeviceAllocated",
    "vGPU memory allocated to a pod from a GPU, in bytes",
    "bytes",
    family="hami-legacy",
    extra=("deviceusedcore",),
    const=UNTIL_V2_7,
    when="as_pod",
)
LEGACY_HOLDER_SHARE = described(
    "holder",
    LEGACY_HOLDER,
    "vGPUMemoryPercentage",
    "vGPU memory allocated to a pod from a GPU, as a share of the GPU's memory (0-1)",
    "ratio",
    family="hami-legacy",
    const=UNTIL_V2_7,
    when="as_pod",
)

# ── GPUs of nodes without HAMi, which the kubelet only counts ────────────────────────────────────────────────────
OFFERED = _native(
    "offer",
    OFFER,
    "counted_capacity",
    "GPUs, GPU shares or MIG instances of a resource on a node that registers no GPU with HAMi or DRA.",
    "",
)
OFFER_ALLOCATABLE = _native(
    "offer", OFFER, "counted_allocatable", "The healthy part of the capacity, as the kubelet reports it.", ""
)
OFFER_REQUESTED = _native(
    "offer", OFFER, "counted_requested", "Amount of the resource requested by pods on the node that have not ended.", ""
)
OFFER_FREE = _native(
    "offer",
    OFFER,
    "counted_free",
    "Amount of the resource that a new pod can get; 0 on a node that accepts no pods.",
    "",
)
OFFER_MEMORY = _native(
    "offer",
    OFFER,
    "counted_memory_bytes",
    "Memory of one GPU or MIG instance of the resource, from the node's label; absent without the label.",
    "bytes",
)

# ── quotas ───────────────────────────────────────────────────────────────────────────────────────────────────────
QUOTA_USED = _native(
    "quota",
    QUOTA,
    "quota_used",
    "Amount of the resource allocated to pods of the namespace, in the unit of the resource.",
    "",
)
QUOTA_LIMIT = _native(
    "quota",
    QUOTA,
    "quota_limit",
    "The lowest quota limit for the resource in the namespace; absent without a quota.",
    "",
    Alias(
        family="hami",
        name="hami_resource_quota_limit",
        labels=renamed(namespace="namespace", quota_name="resource"),
        help="Resource quota limit for a certain device",
        const=ZONE,
    ),
)
HAMI_QUOTA_USED = described(
    "quota",
    renamed(namespace="namespace", quota_name="resource"),
    "hami_resource_quota_used",
    "Resource quota usage for a certain device; the label limit is 0 when there is none",
    "",
    family="hami",
    extra=("limit",),
    const=ZONE,
)
LEGACY_QUOTA_USED = described(
    "quota",
    renamed(quotanamespace="namespace", quotaName="resource"),
    "QuotaUsed",
    "Resource quota usage for a certain device; the label limit is 0 when there is none",
    "",
    family="hami-legacy",
    extra=("limit",),
    const=ZONE,
)

# ── nodes ────────────────────────────────────────────────────────────────────────────────────────────────────────
NODE_READY = _native("place", PLACE, "node_ready", "1 if the node is ready.", "")
NODE_SCHEDULABLE = _native("place", PLACE, "node_schedulable", "1 if the node accepts new pods.", "")


# ── capacity: the same for a node, for all GPUs of a type, and for the cluster ───────────────────────────────────
class CapacityMetrics:
    """The free capacity at one level."""

    def __init__(self, scope: Scope, labels: Labels, level: str) -> None:
        def make(name: str, help: str, unit: str, **more: Unpack[MetricOptions]) -> Metric:
            return _native(scope, labels, f"{level}{name}", help, unit, **more)

        self.cards = make("cards", "Physical GPUs registered with the scheduler.", "")
        self.lost_cards = make(
            "lost_cards", "Physical GPUs that accept no new allocations, by reason.", "", extra=("reason",), each=None
        )
        self.lost_memory = make(
            "lost_memory_bytes",
            "Memory of GPUs that accept no new allocations, by reason.",
            "bytes",
            extra=("reason",),
            each=None,
        )
        self.memory = make("memory_bytes", "Memory of usable GPUs that can be allocated.", "bytes")
        self.memory_allocated = make("memory_allocated_bytes", "Memory of usable GPUs that is allocated.", "bytes")
        self.free_slots = make("free_slots", "Free slots that a request can use.", "")
        self.free_memory = make("free_memory_bytes", "Free memory that a request can use.", "bytes")
        self.stranded_memory = make(
            "stranded_memory_bytes",
            "Free memory that no request can use, because its GPU has no slot or no cores left.",
            "bytes",
        )
        self.largest_memory = make(
            "largest_memory_bytes", "The largest memory request on one GPU that still fits.", "bytes"
        )
        self.largest_cores = make(
            "largest_cores_ratio",
            "The largest compute request on one GPU that still fits, 1 for a whole GPU.",
            "ratio",
        )
        self.whole_cards = make("whole_cards", "The largest number of whole GPUs that one pod can still get.", "")
        self.fragmentation = make(
            "fragmentation_ratio",
            "Share of the free memory that is on GPUs with a holder, 0-1; absent if no memory is free.",
            "ratio",
        )

    def all(self) -> tuple[Metric, ...]:
        """Every metric of the level."""
        return tuple(vars(self).values())


NODE_CAPACITY = CapacityMetrics("place", PLACE, "node_")
TYPE_CAPACITY = CapacityMetrics("type", TYPE, "type_")
CLUSTER_CAPACITY = CapacityMetrics("cluster", (), "")

# ── contradictions ───────────────────────────────────────────────────────────────────────────────────────────────
FINDINGS = _native(
    "place",
    PLACE,
    "findings",
    "Contradictions between scheduler, kubelet and nodes, by kind and reason; docs/reconciliation.md explains each. "
    "The label node is absent for nodes that only annotations name.",
    "",
    extra=("kind", "reason"),
    each=None,
)
FINDING_LABELS = same("node", "kind", "reason", "gpu_uuid", "namespace", "pod", "pod_uid", "resource")
FINDING = _native(
    "finding",
    FINDING_LABELS,
    "finding_info",
    "One finding with the objects it is about; always 1. At most a few for each node. gpu_uuid is a registered device; "
    "/api/v1/nodes also names devices that are not registered.",
    "",
)

CLAIMED_GPUS = _native(
    "finding",
    FINDING_LABELS,
    "claimed_gpus",
    "GPUs that the annotations of a pod name and the pod does not hold, because the scheduler did not give them to it; "
    "for findings of kind forged-assignment. /api/v1/nodes also names the program that wrote them.",
    "",
)
CLAIMED_MEMORY = _native(
    "finding",
    FINDING_LABELS,
    "claimed_memory_bytes",
    "Memory that the annotations of a pod name and the pod does not hold; for findings of kind forged-assignment.",
    "bytes",
)

UNPLACED = _native(
    "cluster",
    (),
    "unplaced_devices",
    "Devices of ResourceSlices that belong to no single node, and so are not counted for any node.",
    "",
)

WITHOUT_SERIES = _native(
    "cluster",
    (),
    "without_series",
    "Allocations, devices, MIG instances and GPU types that have no series, by reason: the node does not register the "
    "device, or a limit is reached. The log names the nodes.",
    "",
    extra=("reason",),
    each=len(CLUSTER_OMISSIONS),
)

# ── the watch, and the exporter itself ───────────────────────────────────────────────────────────────────────────
KIND = same("kind")
WATCH_UP = _native("kind", KIND, "watch_up", "1 if the kind is listed and watched without an error.", "")
WATCH_OBJECTS = _native("kind", KIND, "watch_objects", "Known objects of the kind.", "")
WATCH_EVENTS = _native("kind", KIND, "watch_events_total", "Changes that the watch has received.", "")
WATCH_FAULTS = _native("kind", KIND, "object_faults", "Objects that could not be read completely.", "")
WATCH_AGE = _native(
    "kind", KIND, "watch_age_seconds", "Time since the last message of the API server on this watch.", "seconds"
)
ERRORS = _native(
    "cluster", (), "errors_total", "Errors by code; docs/errors.md explains each.", "", extra=("code",), each=None
)
LOOP_RESTARTS = loop_restarts("cluster")
BUILD_INFO = build_info("cluster")

METRICS: tuple[Metric, ...] = (
    *(value for value in list(globals().values()) if isinstance(value, Metric)),
    *NODE_CAPACITY.all(),
    *TYPE_CAPACITY.all(),
    *CLUSTER_CAPACITY.all(),
    *scheduling.METRICS,
)
