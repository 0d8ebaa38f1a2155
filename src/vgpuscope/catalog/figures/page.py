"""Figures that the console makes of the numbers of an answer: shares, counts of what it lists, sums of a chart."""

from vgpuscope.catalog.figure import Figure, row

FIGURES: tuple[Figure, ...] = (
    row("list.rows", "rows", "count", "now", console="every list"),
    row("list.rows_found", "rows", "count", "now", condition="found", console="every list"),
    row("list.rows_by_value", "rows", "count", "now", condition="by_value", console="filters of every list"),
    row("fleet.use_before", "gpus", "use", "day_ago", "ratio", condition="measured", console="overview"),
    row("fleet.idle_gpu_hours_day_before", "tenants", "idle_gpu_hours", "day_ago", "gpu_hours", console="overview"),
    row(
        "fleet.in_use_with_idle",
        "gpus_or_instances",
        "count",
        "now",
        condition="in_use_with_idle",
        console="overview: map",
    ),
    row(
        "fleet.group_by_class",
        "gpus_or_instances",
        "count",
        "now",
        condition="of_group_by_class",
        console="overview: map",
    ),
    row("fleet.memory_idle", "tenants", "memory_held", "now", "bytes", condition="idle", console="idle"),
    row("fleet.gpus_with_idle", "gpus", "count", "now", condition="with_idle", console="idle"),
    row("workload.gpus_or_instances", "gpus_or_instances", "count", "now", condition="held", console="workloads"),
    row("workload.memory_max_share", "tenants", "memory_limit_share", "window_peak", "ratio", console="workload"),
    row("gpu.memory_ledger_share", "one", "memory_ledger_share", "now", "ratio", console="gpu: memory"),
    row("gpu.mig_instances", "mig_instances", "count", "now", console="gpu: MIG"),
    row("tenant.last_kernel", "one", "kernel_age", "now", "seconds", console="workload, gpu: tenants"),
    row("pod.processes", "processes", "count", "now", console="workload: processes"),
    row("node.host_memory_used", "one", "node_memory_used", "now", "bytes", console="node: beside the GPUs"),
    row("chart.energy_sum", "one", "energy", "integral", "joules", console="charts of power"),
    row("decision.gpus", "gpus_or_instances", "count", "once", condition="allocated", console="scheduling: decisions"),
    row("decision.times", "decisions", "count", "now", condition="equal", console="scheduling: decisions"),
)
