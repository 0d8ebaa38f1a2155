"""Numbers that are no figures, with the reason; and metrics that show a state."""

from typing import Literal, TypeAlias

Reason: TypeAlias = Literal[
    "moment",  # a point in time
    "identity",  # the number names something: an index, a position, a process, an XID
    "setting",  # a limit or weight that somebody chose
    "layout",  # how a GPU is divided: slices and placements
    "window",  # how long the means beside it cover
    "weight",  # the number of analyses behind a mean beside it
    "mixed",  # another field says what the number is
    "page",  # where a page ends
]
NOT_FIGURES: dict[Reason, str] = {
    "moment": "Hole.begin Hole.end Evidence.window_begin Evidence.window_end Evidence.held_since Target.since "
    "AuditEntry.at Backtest.begin Backtest.end Backtest.replayed_until BacktestProgress.since BucketSum.time "
    "Episode.at Episode.until Gap.begin Gap.end PastCoverage.first PastCoverage.last ClassHistory.times "
    "SeriesHistory.times DecisionBody.at HistoryPoint.time NodeHost.booted ProcessUse.started PendingList.now "
    "PendingPod.created PendingPod.ended Said.first Said.last Share.idle_since Signal.at NodeSnapshot.at "
    "Vgpu.last_kernel BreakerState.since CaseRow.since CaseRow.next_at CaseRow.idle_since CaseRow.notified_at "
    "CaseRow.acted_at",
    "identity": "HeldInstance.container_index HeldInstance.gpu_instance "
    "HeldInstance.compute_instance RegisteredDevice.index RegisteredDevice.numa AuditEntry.number "
    "Holder.container_index GpuRow.index GpuRow.xids InstanceRow.gpu_instance InstanceRow.compute_instance "
    "TenantRow.priority XidRow.xid ProcessRow.pid ProcessRow.user WorkloadOnGpu.index WorkloadRow.priority "
    "Gpu.index Gpu.minor GpuProcess.pid GpuProcess.gpu_instance GpuProcess.compute_instance MigInstance.index "
    "MigInstance.gpu_instance MigInstance.compute_instance MigInstance.profile_id XidCount.xid ProcessUse.pid "
    "ProcessUse.uid ReplicaPlace.replica ChosenGpu.container ChosenGpu.position MigHolding.index "
    "MigHolding.gpu_instance MigHolding.compute_instance NodeSnapshot.last_xid PodUsage.gpu_index Vgpu.index "
    "Vgpu.priority ResultRow.xids",
    "setting": "Part.low_score "
    "Evidence.threshold Evidence.min_coverage Evidence.max_age ScoreTerm.weight Backtest.busy_within "
    "Backtest.step OfferedResource.replicas SettingRow.minimum SettingRow.maximum Summary.window_minutes "
    "HealthBody.interval InfoConfig.threshold InfoConfig.interval InfoConfig.time_window_min InfoConfig.max_workers "
    "LowBody.threshold PolicyBody.confirmations PolicyBody.min_coverage PolicyBody.grace PolicyBody.min_pod_age "
    "PolicyBody.max_per_hour PolicyBody.max_per_namespace PolicyBody.max_fleet_share PolicyBody.working_hours "
    "NodeSnapshot.ratio",
    "layout": "HeldInstance.start HeldInstance.size MigProfile.slices MigProfile.placements InstanceRow.start "
    "InstanceRow.size MigInstance.slices MigInstance.start MigInstance.size ChosenGpu.start ChosenGpu.size",
    "window": "ClassHistory.step_seconds SeriesHistory.step_seconds PodBeside.seconds NodeBeside.seconds HostUse.over "
    "NodeHost.over Part.window_seconds",
    "weight": "HistoryPoint.scored HistoryPoint.util_samples HistoryPoint.memory_samples HistoryPoint.power_samples "
    "HistoryPoint.allocated_samples HistoryPoint.cores_samples HistoryPoint.coverage_samples "
    "HistoryPoint.score_seconds HistoryPoint.util_seconds HistoryPoint.memory_seconds HistoryPoint.power_seconds "
    "HistoryPoint.allocated_seconds HistoryPoint.cores_seconds HistoryPoint.analysis_seconds HistoryPoint.share "
    "TenantRow.window_share SeriesColumn.seconds",
    "mixed": "AttentionRow.number TimelineEvent.number DoctorFinding.numbers",
    "page": "AuditPage.next_before PendingPod.said_cut",
}
# Gauges that are 1 or 0, or a moment; metrics that end with _info are states, too.
STATES = frozenset(
    {
        "vgpuscope_gpu_health",
        "vgpuscope_gpu_mode",
        "vgpuscope_gpu_throttle_active",
        "vgpuscope_gpu_remap_pending",
        "vgpuscope_gpu_remap_failed",
        "DCGM_FI_DEV_XID_ERRORS",
        "vgpuscope_container_state",
        "vgpuscope_vgpu_priority",
        "vgpuscope_vgpu_blocked",
        "vgpuscope_vgpu_last_kernel_timestamp_seconds",
        "vgpuscope_source_up",
        "vgpuscope_source_absent",
        "vgpuscope_sample_timestamp_seconds",
        "vgpuscope_virtualization_ratio",
        "process_start_time_seconds",
        "vgpuscope_cluster_gpu_healthy",
        "vgpuscope_cluster_gpu_cordoned",
        "vgpuscope_cluster_node_ready",
        "vgpuscope_cluster_node_schedulable",
        "vgpuscope_cluster_watch_up",
        "vgpuscope_analyzer_verdict",
        "vgpuscope_analyzer_tenant_verdict",
        "vgpuscope_analyzer_last_success_timestamp_seconds",
        "vgpuscope_analyzer_leader",
        "vgpuscope_reclaim_channel_works",
        "vgpuscope_reclaim_brake_on",
        "vgpuscope_extender_leader",
        "vgpuscope_extender_cache_synced",
        "vgpuscope_extender_watch_up",
        "vgpuscope_extender_decision_store_up",
        "hami_device_plugin_healthy_status",
        "vgpuscope_plugin_gpu_unhealthy",
        "vgpuscope_plugin_kubelet_up",
        "vgpuscope_plugin_apiserver_up",
        "vgpuscope_plugin_driver_up",
        "vgpuscope_plugin_limits_enforced",
    }
)
