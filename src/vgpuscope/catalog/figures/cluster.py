"""Figures of the cluster: what is registered, allocated and free, which pods wait, and what the extender decides."""

from vgpuscope.catalog.figure import Condition, Figure, row

_LEVELS = ("cluster_node_", "cluster_type_", "cluster_")  # the same metrics for a node, a type of GPU and the cluster


def _levels(name: str) -> str:
    return " ".join(f"vgpuscope_{level}{name}" for level in _LEVELS)


_PARTS: tuple[tuple[str, Condition], ...] = (  # of Capacity and FreeCapacity
    ("total", "registered"),
    ("lost", "lost"),
    ("allocated", "allocated"),
    ("free", "free"),
    ("stranded", "stranded"),
    ("mig", "mig_only"),
    ("whole", "whole"),
)
_METRICS = {
    "total.cards": "cards",
    "lost.cards": "lost_cards",
    "lost.memory": "lost_memory_bytes",
    "free.slots": "free_slots",
    "free.memory": "free_memory_bytes",
    "stranded.memory": "stranded_memory_bytes",
    "allocated.memory": "memory_allocated_bytes",
}
_MORE = {"free.slots": " NodeRow.slots_free"}
_COLUMNS = {"total.cards": "nodes.GPUS", "total.memory": "nodes.MEMORY", "free.slots": "nodes.FREE SLOTS"}


def _amounts(part: str, condition: Condition) -> tuple[Figure, ...]:
    """An amount of GPUs, slots, memory and cores."""

    def fields(name: str) -> str:
        shown = f"Capacity.{part}.{name} FreeCapacity.{part}.{name}" if part not in {"mig", "whole"} else ""
        return (shown or f"Capacity.{part}.{name}") + _MORE.get(f"{part}.{name}", "")

    def metrics(name: str) -> str:
        return _levels(_METRICS[f"{part}.{name}"]) if f"{part}.{name}" in _METRICS else ""

    def made(code: str, name: str, quantity: str, unit: str) -> Figure:
        return row(
            f"capacity.{code}_{condition}",
            "gpus",
            quantity,
            "now",
            unit,
            condition=condition,
            fields=fields(name),
            metrics=metrics(name),
            columns=_COLUMNS.get(f"{part}.{name}", ""),
        )

    return (
        made("gpus", "cards", "count", ""),
        row(
            f"capacity.slots_{condition}",
            "slots",
            "count",
            "now",
            condition=condition,
            fields=fields("slots"),
            metrics=metrics("slots"),
            columns=_COLUMNS.get(f"{part}.slots", ""),
        ),
        made("memory", "memory", "memory_of", "bytes"),
        made("cores", "cores", "cores_of", "percent"),
    )


CAPACITY: tuple[Figure, ...] = (
    *(figure for part, condition in _PARTS for figure in _amounts(part, condition)),
    row(
        "capacity.memory_usable",
        "gpus",
        "memory_of",
        "now",
        "bytes",
        condition="usable",
        metrics=_levels("memory_bytes"),
    ),
    row(
        "capacity.largest_memory",
        "one",
        "largest_memory",
        "now",
        "bytes",
        fields="Capacity.largest_memory FreeCapacity.largest_memory NodeRow.largest_memory",
        metrics=_levels("largest_memory_bytes"),
        columns="nodes.LARGEST FIT",
    ),
    row(
        "capacity.largest_cores",
        "one",
        "largest_cores",
        "now",
        "percent",
        fields="Capacity.largest_cores FreeCapacity.largest_cores NodeRow.largest_cores",
        metrics=_levels("largest_cores_ratio"),
    ),
    row(
        "capacity.whole_gpus",
        "one",
        "whole_gpus",
        "now",
        fields="Capacity.whole_cards FreeCapacity.whole_gpus NodeRow.whole_gpus",
        metrics=_levels("whole_cards"),
    ),
    row(
        "capacity.fragmentation",
        "one",
        "fragmentation",
        "now",
        "ratio",
        fields="FreeCapacity.fragmentation NodeRow.fragmentation",
        metrics=_levels("fragmentation_ratio"),
        columns="nodes.FRAGMENTED",
    ),
    row(
        "capacity.findings",
        "findings",
        "count",
        "now",
        fields="NodeRow.findings FindingCount.count",
        metrics="vgpuscope_cluster_findings",
        columns="nodes.FOUND",
    ),
    row(
        "fleet.unplaced_devices",
        "devices",
        "count",
        "now",
        condition="unplaced",
        metrics="vgpuscope_cluster_unplaced_devices",
    ),
)
DEVICE: tuple[Figure, ...] = (
    row(
        "gpu.memory_capacity",
        "one",
        "memory_capacity",
        "now",
        "bytes",
        fields="Allocation.memory_capacity RegisteredDevice.memory",
        metrics="vgpuscope_cluster_gpu_memory_bytes",
    ),
    row(
        "gpu.memory_physical",
        "one",
        "memory_total",
        "now",
        "bytes",
        fields="RegisteredDevice.physical",
        why="by_plugin",
    ),
    row(
        "gpu.memory_allocated",
        "one",
        "memory_allocated",
        "now",
        "bytes",
        fields="Allocation.memory DeviceLedger.memory_allocated",
        metrics="vgpuscope_cluster_gpu_memory_allocated_bytes hami_gpu_memory_allocated_bytes GPUDeviceMemoryAllocated "
        "hami_node_gpu_overview nodeGPUOverview",
        columns="gpus.MEMORY",
    ),
    row(
        "gpu.memory_allocated_ratio",
        "one",
        "memory_allocated_share",
        "now",
        "ratio",
        fields="Allocation.memory_ratio",
        metrics="hami_node_gpu_memory_allocated_ratio",
    ),
    row(
        "gpu.cores_capacity",
        "one",
        "cores_capacity",
        "now",
        "percent",
        fields="Allocation.cores_capacity RegisteredDevice.cores",
        metrics="vgpuscope_cluster_gpu_cores_ratio",
    ),
    row(
        "gpu.cores_allocated",
        "one",
        "cores_allocated",
        "now",
        "percent",
        fields="Allocation.cores DeviceLedger.cores_allocated",
        metrics="vgpuscope_cluster_gpu_cores_allocated_ratio",
        columns="gpus.CORES",
    ),
    row("gpu.cores_allocated_ratio", "one", "cores_allocated_share", "now", "ratio", fields="Allocation.cores_ratio"),
    row(
        "gpu.slots_capacity",
        "slots",
        "count",
        "now",
        condition="registered",
        fields="Allocation.slots_capacity RegisteredDevice.slots",
        metrics="vgpuscope_cluster_gpu_slots",
    ),
    row(
        "gpu.slots_allocated",
        "slots",
        "count",
        "now",
        condition="allocated",
        fields="Allocation.slots DeviceLedger.shared",
        metrics="vgpuscope_cluster_gpu_slots_used",
        columns="gpus.SLOTS",
    ),
    row(
        "gpu.containers",
        "containers",
        "count",
        "now",
        condition="held",
        fields="DeviceLedger.containers",
        metrics="vgpuscope_cluster_gpu_containers",
    ),
    row("gpu.profile_memory", "one", "profile_memory", "now", "bytes", fields="MigProfile.memory"),
    row("gpu.profile_cores", "one", "profile_cores", "now", "percent", fields="MigProfile.cores"),
    row("pod.memory_allocated", "one", "memory_allocated", "now", "bytes", fields="PodShare.memory"),
    row("pod.cores_allocated", "one", "cores_allocated", "now", "percent", fields="PodShare.cores"),
    row(
        "resource.capacity",
        "shares",
        "count",
        "now",
        condition="registered",
        fields="OfferedResource.capacity",
        metrics="vgpuscope_cluster_counted_capacity",
    ),
    row(
        "resource.allocatable",
        "shares",
        "count",
        "now",
        condition="healthy",
        fields="OfferedResource.allocatable",
        metrics="vgpuscope_cluster_counted_allocatable",
    ),
    row(
        "resource.requested",
        "shares",
        "count",
        "now",
        condition="held",
        fields="OfferLedger.requested",
        metrics="vgpuscope_cluster_counted_requested",
    ),
    row(
        "resource.free",
        "shares",
        "count",
        "now",
        condition="free",
        fields="OfferLedger.free",
        metrics="vgpuscope_cluster_counted_free",
    ),
    row(
        "resource.memory",
        "one",
        "memory_total",
        "now",
        "bytes",
        fields="OfferedResource.memory",
        metrics="vgpuscope_cluster_counted_memory_bytes",
    ),
    row("pod.requested_shares", "shares", "count", "now", condition="held", fields="RequestHolder.count"),
)
WAITING: tuple[Figure, ...] = (
    row(
        "fleet.pending_by_reason",
        "pods",
        "count",
        "now",
        condition="by_reason",
        fields="Scheduling.by_code",
        metrics="vgpuscope_cluster_pending_pods",
    ),
    row(
        "fleet.pending_oldest",
        "pods",
        "longest_wait",
        "now",
        "seconds",
        condition="waiting",
        fields="Scheduling.oldest_seconds",
        metrics="vgpuscope_cluster_pending_oldest_seconds",
    ),
    row(
        "fleet.bound",
        "pods",
        "count",
        "since_start",
        condition="bound",
        fields="Scheduling.bound",
    ),
    row("fleet.bind_failures", "attempts", "count", "since_start", condition="failed", fields="Scheduling.failed"),
    row(
        "scheduler.failures",
        "attempts",
        "count",
        "since_start",
        condition="by_code",
        fields="FailureCount.count",
        metrics="vgpuscope_cluster_scheduling_failures_total",
    ),
    row(
        "scheduler.stage_pods",
        "pods",
        "count",
        "since_start",
        fields="StageTimes.count",
    ),
    row("scheduler.stage_mean", "pods", "stage_mean", "since_start", "seconds", fields="StageTimes.mean"),
    row("scheduler.stage_p50", "pods", "stage_p50", "since_start", "seconds", fields="StageTimes.p50"),
    row("scheduler.stage_p95", "pods", "stage_p95", "since_start", "seconds", fields="StageTimes.p95"),
    row("scheduler.stage_p99", "pods", "stage_p99", "since_start", "seconds", fields="StageTimes.p99"),
    row(
        "scheduler.stage",
        "pods",
        "stage",
        "since_start",
        "seconds",
        metrics="vgpuscope_cluster_scheduling_stage_seconds",
    ),
    row(
        "pod.waited",
        "one",
        "waited",
        "now",
        "seconds",
        fields="PendingRow.waited_seconds WorkloadRow.waited_seconds",
        columns="pending.AGE",
    ),
    row(
        "pod.attempts",
        "attempts",
        "count",
        "since_start",
        condition="failed",
        fields="PendingRow.attempts PendingPod.attempts",
        columns="pending.ATTEMPTS",
    ),
    row(
        "pod.requests",
        "one",
        "requested",
        "now",
        fields="PendingRow.requests PendingPod.requests",
    ),
    row("pod.asking", "containers", "count", "now", fields="PendingPod.asking"),
    row("pod.reason_count", "messages", "count", "since_start", fields="ReasonRow.count Said.count"),
    row(
        "pod.reason_nodes",
        "nodes",
        "count",
        "now",
        condition="refused",
        fields="ReasonRow.node_count Reason.node_count",
    ),
)
DECISIONS: tuple[Figure, ...] = (
    row("fleet.decisions", "decisions", "count", "now", condition="kept", fields="DecisionList.total"),
    row(
        "decision.node_score",
        "one",
        "node_score",
        "once",
        fields="DecisionRow.score RankedNode.score DecidedNode.score DecisionBody.score ReplicaPlace.score "
        "NodeVerdict.score",
        columns="why.SCORE, fit.SCORE",
    ),
    row("decision.score_terms", "one", "node_score_term", "once", fields="DecisionRow.terms DecisionBody.terms"),
    row(
        "decision.refused_by_code",
        "nodes",
        "count",
        "once",
        condition="by_code",
        fields="DecisionRow.codes DecisionBody.codes CodeRow.count",
    ),
    row(
        "decision.fitting",
        "nodes",
        "count",
        "once",
        condition="fitting",
        fields="DecisionRow.fitting DecisionBody.fitting",
    ),
    row("decision.nodes_omitted", "nodes", "count", "once", condition="omitted", fields="DecisionBody.nodes_omitted"),
    row("decision.seconds", "one", "duration", "once", "seconds", fields="DecisionRow.seconds DecisionBody.seconds"),
    row("decision.memory", "one", "memory_allocated", "once", "bytes", fields="DecidedGpu.memory ChosenGpu.memory"),
    row("decision.cores", "one", "cores_allocated", "once", "percent", fields="DecidedGpu.cores ChosenGpu.cores"),
    row("decision.age", "one", "decision_age", "now", "seconds", columns="why.AGE"),
    row("pod.decisions", "decisions", "count", "now", columns="why.TIMES"),
    row("pod.asked_gpus", "gpus", "count", "now", condition="expected", fields="AskedGpus.count"),
    row("pod.asked_memory", "one", "asked_memory", "now", "MiB", fields="AskedGpus.memory"),
    row("pod.asked_percentage", "one", "asked_memory_share", "now", "percent", fields="AskedGpus.percentage"),
    row("pod.asked_cores", "one", "asked_cores", "now", "percent", fields="AskedGpus.cores"),
    row("pod.replicas", "pods", "count", "once", condition="expected", fields="FitAnswer.replicas"),
    row("pod.replicas_fitting", "pods", "count", "once", condition="fitting", fields="FitAnswer.fitting"),
    row("node.lacks_memory", "one", "lacking_memory", "once", "MiB", fields="NodeLack.memory"),
    row("node.lacks_cores", "one", "lacking_cores", "once", "percent", fields="NodeLack.cores"),
    row("node.lacks_gpus", "gpus", "count", "once", condition="missing", fields="NodeLack.gpus"),
    row("pod.remedy_value", "one", "remedy", "once", fields="Remedy.value"),
    row("quota.needed", "one", "quota_needed", "once", fields="Remedy.quota"),
)
FIGURES = (*CAPACITY, *DEVICE, *WAITING, *DECISIONS)
