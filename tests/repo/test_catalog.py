"""The table of metrics keeps its own promises."""

import ast
import re
from typing import Any

import pytest

from tests.paths import REPOSITORY
from tools.writers.families import FAMILY_HELP
from tools.writers.limits import CLUSTER_LIMITS, FLEET_LIMITS, NODE_LIMITS
from tools.writers.series import AGENT_SCOPES, ANALYZER_SCOPES, CLUSTER_SCOPES, EXTENDER_SCOPES, PLUGIN_SCOPES
from vgpuscope.catalog import agent, analyzer, cluster, extender, label_sets, limits, plugin

SOURCE = REPOSITORY / "src" / "vgpuscope"
ALL = frozenset(FAMILY_HELP)
ROWS: dict[str, Any] = {
    "gpu": label_sets.GpuLabels,
    "mig": label_sets.MigLabels,
    "container": label_sets.ContainerLabels,
    "pod": label_sets.PodLabels,
    "vgpu": label_sets.VgpuLabels,
    "holding": label_sets.MigHolderLabels,
    "host": label_sets.HostLabels,
    "source": label_sets.SourceLabels,
    "node": label_sets.NodeLabels,
    "device": label_sets.DeviceLabels,
    "instance": label_sets.HeldInstanceLabels,
    "holder": label_sets.HolderLabels,
    "offer": label_sets.OfferedResourceLabels,
    "quota": label_sets.QuotaLabels,
    "place": label_sets.ClusterNodeLabels,
    "type": label_sets.GpuTypeLabels,
    "cluster": label_sets.ClusterLabels,
    "finding": label_sets.FindingLabels,
    "kind": label_sets.WatchedKindLabels,
    "scheduler": label_sets.SchedulerLabels,
    "waiting": label_sets.WaitingPodsLabels,
    "gpu-of-pod": label_sets.GpuOfPodLabels,
    "subject": label_sets.JudgedGpuLabels,
    "tenant": label_sets.TenantLabels,
    "gpupod": label_sets.PodOnGpuLabels,
    "opinion": label_sets.OpinionLabels,
    "group": label_sets.NamespaceLabels,
    "fleet": label_sets.FleetLabels,
    "extender": label_sets.ExtenderLabels,
    "extender-kind": label_sets.WatchedKindLabels,
    "offered": label_sets.OfferedGpuLabels,
    "plugin": label_sets.PluginLabels,
}
METRICS = (*agent.METRICS, *cluster.METRICS, *analyzer.METRICS, *extender.METRICS, *plugin.METRICS)
EXPOSED = [(metric, exposed) for metric in METRICS for exposed in metric.exposed(ALL)]
NAMES = {exposed.name for _, exposed in EXPOSED}


@pytest.mark.parametrize(("metric", "exposed"), EXPOSED, ids=lambda x: getattr(x, "name", ""))
def test_every_label_is_an_attribute_of_the_row_it_is_shown_for(metric, exposed):
    attributes = {attribute for _, attribute in exposed.labels} | ({exposed.when} - {""})
    assert attributes <= set(ROWS[metric.scope]._fields)


@pytest.mark.parametrize(("metric", "exposed"), EXPOSED, ids=lambda x: getattr(x, "name", ""))
def test_labels_and_help_are_well_formed(metric, exposed):
    labels = [label for label, _ in exposed.labels] + [label for label, _ in exposed.const] + list(exposed.extra)
    assert len(labels) == len(set(labels))
    assert all(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", label) for label in labels)
    assert exposed.help


def test_a_name_that_two_metrics_share_has_one_type_and_help():
    seen: dict[str, tuple[str, str]] = {}
    for _, exposed in EXPOSED:
        assert seen.setdefault(exposed.name, (exposed.type, exposed.help)) == (exposed.type, exposed.help)


@pytest.mark.parametrize(
    ("metrics", "scopes"),
    [
        (agent.METRICS, AGENT_SCOPES),
        (cluster.METRICS, CLUSTER_SCOPES),
        (analyzer.METRICS, ANALYZER_SCOPES),
        (extender.METRICS, EXTENDER_SCOPES),
        (plugin.METRICS, PLUGIN_SCOPES),
    ],
    ids=["agent", "cluster", "analyzer", "extender", "plugin"],
)
def test_the_page_of_a_service_counts_the_series_of_every_scope(metrics, scopes):
    assert {metric.scope for metric in metrics} == set(scopes)


def test_our_own_names_are_in_base_units_and_counters_end_in_total():
    for metric in METRICS:
        if metric.family != "native":
            continue
        assert metric.name.startswith(("vgpuscope_", "process_"))
        assert (metric.type == "counter") == metric.name.endswith("_total")
        stem = metric.name.removesuffix("_total")
        assert not metric.unit or stem.endswith(metric.unit) or stem == "vgpuscope_virtualization_ratio"


def test_no_metric_name_is_spelled_outside_the_catalog():
    """A name in code or text of the package would be a second place to change. Names in messages count too."""
    exact = {name for name in NAMES if "_" in name}
    for path in SOURCE.rglob("*.py"):
        if "catalog" in path.parts:
            continue
        for part in ast.walk(ast.parse(path.read_text())):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                found = exact & set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", part.value))
                assert not found, f"{path}:{part.lineno} spells {found}"


SEED_METRICS = {
    "HostGPUMemoryUsage": "deviceidx deviceuuid devicetype",
    "HostCoreUtilization": "deviceidx deviceuuid devicetype",
    "vGPU_device_memory_usage_in_bytes": "podnamespace podname ctrname vdeviceid deviceuuid",
    "vGPU_device_memory_limit_in_bytes": "podnamespace podname ctrname vdeviceid deviceuuid",
    "Device_memory_desc_of_container": "podnamespace podname ctrname vdeviceid deviceuuid context module data offset",
    "Device_utilization_desc_of_container": "podnamespace podname ctrname vdeviceid deviceuuid",
    "Device_last_kernel_of_container": "podnamespace podname ctrname vdeviceid deviceuuid",
    "vGPU_device_memory_context_size_bytes": "podnamespace podname ctrname vdeviceid deviceuuid",
    "vGPU_device_memory_module_size_bytes": "podnamespace podname ctrname vdeviceid deviceuuid",
    "vGPU_device_memory_buffer_size_bytes": "podnamespace podname ctrname vdeviceid deviceuuid",
    "MigInfo": "podnamespace podname ctrname vdeviceid deviceuuid instanceid",
    "hami_build_info": "version revision build_date go_version compiler platform",
    "hami_vgpu_memory_usage_bytes": "pod namespace device container",
    "hami_vgpu_utilization_percent": "pod namespace device container",
    "hami_gpu_memory_total_bytes": "node device",
    "hami_gpu_memory_used_bytes": "node device",
    "pod_gpu_sm_util": "gpu_id pod namespace",
    "pod_gpu_memory_used": "gpu_id pod namespace",
    "pod_total_gpu_memory": "gpu_id pod namespace",
    "hami_host_gpu_memory_used_bytes": "node device_index device_uuid device_type",
    "hami_host_gpu_utilization_ratio": "node device_index device_uuid device_type",
    "hami_host_gpu_memory_controller_utilization_ratio": "device_index device_uuid device_type",
    "hami_vgpu_memory_used_bytes": "namespace pod container vdevice_index device_uuid",
    "hami_vgpu_memory_limit_bytes": "namespace pod container vdevice_index device_uuid",
    "hami_container_device_memory_bytes": "namespace pod container vdevice_index device_uuid",
    "hami_container_device_utilization_ratio": "namespace pod container vdevice_index device_uuid",
    "hami_container_last_kernel_elapsed_seconds": "namespace pod container vdevice_index device_uuid",
    "hami_vgpu_memory_context_bytes": "namespace pod container vdevice_index device_uuid",
    "hami_vgpu_memory_module_bytes": "namespace pod container vdevice_index device_uuid",
    "hami_vgpu_memory_buffer_bytes": "namespace pod container vdevice_index device_uuid",
    "hami_mig_device_info": "namespace pod container vdevice_index device_uuid mig_uuid profile gpu_instance_id "
    "compute_instance_id",
    **dict.fromkeys(
        ("GPUDeviceMemoryLimit", "GPUDeviceCoreLimit", "GPUDeviceCoreAllocated", "GPUDeviceSharedNum"),
        "nodeid deviceuuid deviceidx devicetype",
    ),
    "GPUDeviceMemoryAllocated": "nodeid deviceuuid deviceidx devicecores devicetype",
    "nodeGPUOverview": "nodeid deviceuuid deviceidx devicecores sharedcontainers devicememorylimit devicetype",
    "nodeGPUMemoryPercentage": "nodeid deviceuuid deviceidx",
    "nodeGPUMigInstance": "nodeid deviceuuid deviceidx migname",
    "vGPUMemoryAllocated": "podnamespace nodename podname containeridx deviceuuid",
    "vGPUCoreAllocated": "podnamespace nodename podname containeridx deviceuuid",
    "QuotaUsed": "quotanamespace quotaName limit",
    **dict.fromkeys(
        (
            "hami_gpu_memory_limit_bytes",
            "hami_gpu_core_limit_ratio",
            "hami_gpu_shared_count",
            "hami_gpu_core_allocated_ratio",
            "hami_node_gpu_memory_allocated_ratio",
        ),
        "node device_uuid device_index device_type",
    ),
    "hami_gpu_memory_allocated_bytes": "node device_uuid device_index device_cores device_type",
    "hami_node_gpu_overview": "node device_uuid device_index device_cores device_memory_limit device_type",
    "hami_node_gpu_mig_instance_info": "node device_uuid device_index mig_uuid profile gpu_instance_id "
    "compute_instance_id placement_start placement_size",
    "hami_vgpu_memory_allocated_bytes": "namespace node pod container_index device_uuid",
    "hami_vgpu_core_allocated_ratio": "namespace node pod container_index device_uuid",
    "hami_resource_quota_used": "namespace quota_name limit",
    "hami_resource_quota_limit": "namespace quota_name",
    "hami_scheduler_filter_duration_seconds": "",
    "hami_scheduler_score_duration_seconds": "",
    "hami_scheduler_bind_duration_seconds": "",
    "hami_scheduler_bind_success_total": "",
    "hami_scheduler_bind_failure_total": "",
    "gpu_utilization_score": "gpu_id pod namespace hostname model status",
    "gpu_memory_total_mb": "gpu_id pod namespace hostname model",
    **dict.fromkeys(
        (
            "gpu_core_utilization",
            "gpu_memory_used_mb",
            "gpu_memory_usage_percent",
            "gpu_power_usage_watts",
            "gpu_memory_copy_utilization",
            "gpu_sm_clock_mhz",
        ),
        "gpu_id pod namespace hostname",
    ),
    **dict.fromkeys(("gpu_total_count", "gpu_low_utilization_count", "gpu_idle_count", "gpu_average_score"), ""),
    **dict.fromkeys(("gpu_analysis_total", "gpu_analysis_errors_total", "gpu_analysis_duration_seconds"), ""),
    "gpu_status_count": "status",
    "gpu_namespace_count": "namespace",
    "gpu_namespace_average_score": "namespace",
    "gpu_monitor_service_info": "version threshold interval ai_enabled",
    **dict.fromkeys(
        (
            "DCGM_FI_DEV_GPU_UTIL",
            "DCGM_FI_DEV_MEM_COPY_UTIL",
            "DCGM_FI_DEV_FB_USED",
            "DCGM_FI_DEV_FB_FREE",
            "DCGM_FI_DEV_FB_RESERVED",
            "DCGM_FI_DEV_POWER_USAGE",
            "DCGM_FI_DEV_SM_CLOCK",
            "DCGM_FI_DEV_MEM_CLOCK",
            "DCGM_FI_DEV_GPU_TEMP",
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
            "DCGM_FI_DEV_XID_ERRORS",
            "DCGM_FI_DEV_ENC_UTIL",
            "DCGM_FI_DEV_DEC_UTIL",
        ),
        "gpu UUID pci_bus_id device modelName Hostname namespace pod container",
    ),
}


@pytest.mark.parametrize(("name", "labels"), SEED_METRICS.items())
def test_every_promised_metric_is_there_with_its_labels(name, labels):
    shown = [exposed for _, exposed in EXPOSED if exposed.name == name]
    assert shown
    for exposed in shown:
        there = {label for label, _ in (*exposed.labels, *exposed.const)} | set(exposed.extra)
        assert set(labels.split()) <= there


def test_hamis_families_carry_its_zone_on_all_but_the_build():
    for _, exposed in EXPOSED:
        if exposed.family.startswith("hami") and exposed.name != "hami_build_info":
            assert ("zone", "vGPU") in exposed.const


def test_every_limit_on_series_is_documented_on_one_page():
    declared = {name: one for name, one in vars(limits).items() if isinstance(one, limits.SeriesLimit)}
    documented = [*NODE_LIMITS, *CLUSTER_LIMITS, *FLEET_LIMITS]
    assert sorted(one.what for one in documented) == sorted(one.what for one in declared.values())
