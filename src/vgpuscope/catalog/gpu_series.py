"""Names of GPU series that doctor recognises: those of dcgm-exporter and of HAMi, beside our own in the catalog."""

from typing import Final

from vgpuscope.catalog import cluster as c
from vgpuscope.catalog import extender as x
from vgpuscope.catalog import node as m
from vgpuscope.catalog import plugin as d

DCGM_UTILIZATION: Final = "DCGM_FI_DEV_GPU_UTIL"
# base-unit names of DCGM 4.7; some earlier releases had them with values of 0-100
DCGM_RATIOS: Final = frozenset(
    {
        "DCGM_FI_DEV_DEC_UTIL_RATIO",
        "DCGM_FI_DEV_ENC_UTIL_RATIO",
        "DCGM_FI_DEV_GPU_UTIL_RATIO",
        "DCGM_FI_DEV_MEMORY_UTIL_RATIO",
        "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO",
        "DCGM_FI_PROF_SM_UTIL_RATIO",
    }
)
DCGM_PERCENTS: Final = frozenset(
    {DCGM_UTILIZATION, "DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_DEC_UTIL"}
)
DCGM_PROFILING: Final = frozenset({"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_SM_ACTIVE"})
DCGM_POWER: Final = "DCGM_FI_DEV_POWER_USAGE"

# HAMi's names, before and after v2.9, that tell a container's own use
HAMI_CONTAINER_SM: Final = frozenset(
    {
        "Device_utilization_desc_of_container",
        "hami_container_device_utilization_ratio",
        "hami_vgpu_utilization_percent",
    }
)
HAMI_CONTAINER_MEMORY: Final = frozenset(
    {"vGPU_device_memory_usage_in_bytes", "hami_vgpu_memory_used_bytes", "hami_vgpu_memory_usage_bytes"}
)
HAMI_CONTAINER_LIMIT: Final = frozenset({"vGPU_device_memory_limit_in_bytes", "hami_vgpu_memory_limit_bytes"})
HAMI_HOST_SM: Final = frozenset({"HostCoreUtilization", "hami_host_gpu_utilization_ratio"})
HAMI_HOST_MEMORY: Final = frozenset({"HostGPUMemoryUsage", "hami_host_gpu_memory_used_bytes"})
HAMI_ALLOCATED: Final = frozenset({"GPUDeviceMemoryAllocated", "hami_gpu_memory_allocated_bytes"})
HAMI_RATIOS: Final = frozenset(
    {
        "hami_node_gpu_memory_allocated_ratio",
        "hami_gpu_core_allocated_ratio",
        "hami_gpu_core_limit_ratio",
        "hami_host_gpu_utilization_ratio",
        "hami_container_device_utilization_ratio",
        "hami_host_gpu_memory_controller_utilization_ratio",
        "hami_vgpu_core_allocated_ratio",
    }
)
HAMI: Final = (
    HAMI_CONTAINER_SM
    | HAMI_CONTAINER_MEMORY
    | HAMI_CONTAINER_LIMIT
    | HAMI_HOST_SM
    | HAMI_HOST_MEMORY
    | HAMI_ALLOCATED
    | HAMI_RATIOS
)
HAMI_ALLOCATION: Final = frozenset({"vGPUMemoryAllocated", "hami_vgpu_memory_allocated_bytes"})
HAMI_WHOLE: Final = frozenset({"vGPUCoreAllocated", "hami_vgpu_core_allocated_ratio"})  # 100: the whole GPU

OURS: Final = frozenset(
    metric.name
    for metric in (
        m.BUILD_INFO,
        m.SOURCE_UP,
        m.SOURCE_ABSENT,
        m.SOURCE_ERROR,
        m.SAMPLE_TIME,
        m.REGIONS_REFUSED,
        m.REGIONS_ORPHANED,
        m.GPU_UTILIZATION,
        m.GPU_HEALTH,
        m.GPU_MODE,
        m.GPU_PROCESSES,
        m.GPU_INFO,
        m.GPU_PROFILING_INFO,
        m.MIG_INFO,
        m.MIG_ENGINE_ACTIVE,
        m.MIG_SM_ACTIVE,
        m.CONTAINER_STATE,
        m.CONTAINER_SM,
        m.CONTAINER_PROCESSES,
        m.VGPU_MEMORY_USED,
        m.VGPU_MEMORY_LIMIT,
        m.VGPU_SM,
        m.DROPPED,
        c.WATCH_UP,
    )
)
SCHEDULING: Final = frozenset(
    metric.name for metric in (x.LEADER, x.BIND_SUCCESS, d.KUBELET_UP, d.HEALTHY, d.UNHEALTHY, d.LIMITS)
)
DEVICES: Final = frozenset({DCGM_UTILIZATION, m.GPU_UTILIZATION.name, *HAMI_HOST_SM, *DCGM_RATIOS})
LOOKED_AT: Final = frozenset(
    {*OURS, *SCHEDULING, *HAMI, *HAMI_ALLOCATION, *HAMI_WHOLE}
    | {*DCGM_RATIOS, *DCGM_PERCENTS, *DCGM_PROFILING, DCGM_POWER}
)
UUID_LABELS: Final = ("UUID", "gpu_uuid", "device_uuid", "deviceuuid", "exported_UUID")
# how exporters and their jobs are usually named
JOBS: Final = "(?i).*(vgpuscope|dcgm|hami|nvidia|gpu).*"
ANY_GPU_METRIC: Final = "(DCGM_FI_|vgpuscope_|hami_|Device_|vGPU|HostGPU|HostCore|GPUDevice|nodeGPU|gpu_util).*"
REPLICA_LABELS: Final = ("prometheus_replica", "replica", "__replica__")
CLUSTER_LABELS: Final = ("cluster", "cluster_name", "k8s_cluster", "cluster_id")
