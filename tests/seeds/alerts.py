"""The alerts of the two documents on HAMi, typed from them: name, expression, duration, severity
and summary."""

from typing import NamedTuple


class Alert(NamedTuple):
    """One alert as its document prints it."""

    document: str
    name: str
    expr: str
    wait: str
    severity: str
    summary: str


METRICS, HANDBOOK = "hami-metrics", "hami-handbook"
ALERTS = (
    Alert(
        METRICS,
        "GPUMemoryUsageHigh",
        "HostGPUMemoryUsage / on(deviceuuid) group_left(devicetype) GPUDeviceMemoryLimit > 0.9",
        "5m",
        "warning",
        "GPU 显存使用率过高",
    ),
    Alert(METRICS, "GPUCoreUtilizationSaturated", "HostCoreUtilization == 100", "15m", "warning", "GPU 核心利用率饱和"),
    Alert(
        METRICS,
        "ContainerVGPUMemoryNearLimit",
        "vGPU_device_memory_usage_in_bytes / vGPU_device_memory_limit_in_bytes > 0.95",
        "2m",
        "warning",
        "容器 vGPU 显存接近限制",
    ),
    Alert(METRICS, "ContainerGPUIdle", "Device_last_kernel_of_container > 1800", "5m", "info", "容器 GPU 长时间空闲"),
    Alert(
        METRICS,
        "ClusterGPUMemoryAllocationHigh",
        "sum(GPUDeviceMemoryAllocated) / sum(GPUDeviceMemoryLimit) > 0.85",
        "10m",
        "warning",
        "集群 GPU 显存分配率过高",
    ),
    Alert(METRICS, "GPUOversharing", "GPUDeviceSharedNum > 10", "5m", "warning", "GPU 共享容器数过多"),
    Alert(METRICS, "VGPUMonitorDown", 'up{job="hami-vgpu-monitor"} == 0', "2m", "critical", "vGPU Monitor 不可达"),
    Alert(
        HANDBOOK,
        "GPUMemoryUsageHigh",
        "hami_gpu_memory_used_bytes / hami_gpu_memory_total_bytes > 0.95",
        "10m",
        "warning",
        "GPU memory usage exceeds 95% on {{ $labels.node }}",
    ),
    Alert(
        HANDBOOK,
        "GPUNoAvailableMemory",
        "(hami_gpu_memory_total_bytes - hami_gpu_memory_used_bytes) < 1073741824",
        "5m",
        "critical",
        "Less than 1GB GPU memory available on {{ $labels.node }}",
    ),
    Alert(
        HANDBOOK,
        "ScheduleFailureRate",
        "rate(hami_scheduler_bind_failure_total[5m]) / rate(hami_scheduler_bind_success_total[5m]) > 0.1",
        "10m",
        "warning",
        "HAMi scheduler failure rate exceeds 10%",
    ),
)
