"""Names of GPU series that doctor recognises: those of dcgm-exporter and of HAMi, beside our own in the catalog."""

from collections.abc import Iterable
from typing import Final

from vgpuscope.catalog import agent as m
from vgpuscope.catalog import cluster as c
from vgpuscope.catalog import extender as x
from vgpuscope.catalog import plugin as d
from vgpuscope.catalog.metric import Metric
from vgpuscope.knowledge import dcgm_fields as dcgm

DCGM_UTILIZATION: Final = dcgm.GPU_UTIL.name
# base-unit names of DCGM 4.7; some earlier releases had them with values of 0-100
DCGM_RATIOS: Final = frozenset(field.base_name for field in dcgm.FIELDS if field.is_ratio and field.term)
DCGM_PERCENTS: Final = frozenset(field.name for field in dcgm.FIELDS if field.scale == 100)
DCGM_PROFILING: Final = frozenset({dcgm.ENGINE.name, dcgm.SM.name})
DCGM_POWER: Final = dcgm.POWER.name

_FAMILIES: Final = ("hami", "hami-legacy", "handbook")  # HAMi's names since v2.9, before v2.9, and in its handbook


def _of_hami(*metrics: Metric, families: Iterable[str] = _FAMILIES) -> frozenset[str]:
    """HAMi's name of these metrics in each family. The catalog has them, because our services can serve them."""
    names = {metric.name for metric in metrics if metric.family in families}
    for metric in metrics:
        names |= {
            metric.alias(family).name for family in families if any(one.family == family for one in metric.aliases)
        }
    return frozenset(names)


# names that tell a container's own use
HAMI_CONTAINER_SM: Final = _of_hami(m.VGPU_SM, m.CONTAINER_SM)
HAMI_CONTAINER_MEMORY: Final = _of_hami(m.VGPU_MEMORY_USED, m.CONTAINER_MEMORY_USED)
HAMI_CONTAINER_LIMIT: Final = _of_hami(m.HAMI_VGPU_MEMORY_LIMIT)
HAMI_HOST_SM: Final = _of_hami(m.GPU_UTILIZATION)
HAMI_HOST_MEMORY: Final = _of_hami(m.HOST_MEMORY_USED, families=("hami", "hami-legacy"))
HAMI_ALLOCATED: Final = _of_hami(c.LEGACY_MEMORY_ALLOCATED, c.HAMI_MEMORY_ALLOCATED)
HAMI_RATIOS: Final = frozenset(
    {
        c.DEVICE_MEMORY_SHARE.name,
        *(
            metric.alias("hami").name
            for metric in (
                c.DEVICE_CORES_ALLOCATED,
                c.DEVICE_CORES,
                m.GPU_UTILIZATION,
                m.VGPU_SM,
                m.GPU_MEMORY_CONTROLLER,
                c.HOLDER_CORES,
            )
        ),
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
HAMI_ALLOCATION: Final = _of_hami(c.HOLDER_MEMORY)
HAMI_WHOLE: Final = _of_hami(c.HOLDER_CORES)  # 100: the whole GPU

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
