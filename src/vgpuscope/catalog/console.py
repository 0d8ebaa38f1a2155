"""The agents' metrics that the console shows beside the analysis: a few of every GPU, and all of one."""

from vgpuscope.catalog import agent as m
from vgpuscope.catalog.metric import Metric

# metrics of dcgm-exporter, where there is no agent: their name → the agent's metric
THEIRS: dict[str, Metric] = {
    alias.name: metric for metric in (m.GPU_TEMPERATURE,) for alias in metric.aliases if alias.family == "dcgm"
}
# one-hot metrics: only the series with the value 1 says something
CURRENT = frozenset({m.GPU_MODE.name, m.CONTAINER_STATE.name})
OF_ALL = frozenset(
    metric.name
    for metric in (
        m.GPU_TEMPERATURE,
        m.GPU_MEMORY_LEDGER,
        m.MIG_INFO,
        m.CONTAINER_INFO,
        m.CONTAINER_MEMORY_USED,
        m.CONTAINER_MEMORY_TOTAL,
        m.CONTAINER_POWER,
        m.VGPU_MEMORY_LIMIT,
        m.VGPU_SM_LIMIT,
        m.VGPU_PRIORITY,
        m.VGPU_BLOCKED,
        m.VGPU_LAST_KERNEL,
        m.SOURCE_UP,
        m.SOURCE_ABSENT,
        m.SOURCE_AGE_SECONDS,
        m.SAMPLE_TIME,
        m.BUILD_INFO,
    )
) | frozenset(THEIRS)
OF_ONE = frozenset(
    metric.name
    for metric in (
        m.GPU_INFO,
        m.GPU_PROCESSES,
        m.GPU_MEMORY_TOTAL,
        m.GPU_MEMORY_USED,
        m.GPU_MEMORY_TEMPERATURE,
        m.GPU_SM_CLOCK,
        m.GPU_SM_CLOCK_LIMIT,
        m.GPU_MEMORY_CLOCK,
        m.GPU_MEMORY_CLOCK_LIMIT,
        m.GPU_FAN,
        m.GPU_ENCODER,
        m.GPU_DECODER,
        m.GPU_THROTTLE,
        m.GPU_ECC_CORRECTED,
        m.GPU_ECC_UNCORRECTED,
        m.GPU_REMAPPED_CORRECTED,
        m.GPU_REMAPPED_UNCORRECTED,
        m.GPU_REMAP_PENDING,
        m.GPU_REMAP_FAILED,
        m.GPU_XIDS,
        m.MIG_MEMORY_TOTAL,
        m.MIG_MEMORY_USED,
        m.MIG_MEMORY_LEDGER,
    )
)
