"""The alerts of the HAMi handbook and of its monitoring chapter, word for word, with what is wrong in them."""

# What each file says of itself, before the rules.
HANDBOOK_FAULTS = (
    "GPUMemoryUsageHigh: the join is an error as soon as two exporters or replicas expose GPUDeviceMemoryLimit",
    "  of one GPU. With memory scaling the limit is not the memory of the GPU, so a full GPU never fires. The label nodeid is",
    "  empty before HAMi v2.10. A limit of 0 fires with +Inf.",
    "GPUCoreUtilizationSaturated: one sample of 99 % between scrapes resets it.",
    "ContainerVGPUMemoryNearLimit: HAMi writes 0 for no limit, so every container without a limit fires with +Inf.",
    "ContainerGPUIdle: fires during one long kernel.",
    "ClusterGPUMemoryAllocationHigh: unhealthy and cordoned GPUs are part of the total. All clusters are added up.",
    "GPUOversharing: a container with two slots of a GPU counts twice.",
    "VGPUMonitorDown: knows one job name only.",
)

MONITORING_CHAPTER_FAULTS = (
    "GPUMemoryUsageHigh, GPUNoAvailableMemory: hami_gpu_memory_used_bytes includes memory that the driver",
    "  reserves. An exporter that does not include it fires later.",
    "ScheduleFailureRate: divides failures by successes. If every attempt fails there is no result, so it does not fire.",
)

HANDBOOK = """groups:
  - name: hami-gpu-alerts
    rules:
      # GPU 物理显存使用率超过 90%
      - alert: GPUMemoryUsageHigh
        expr: |
          HostGPUMemoryUsage / on(deviceuuid)
          group_left(devicetype) GPUDeviceMemoryLimit > 0.9
        for: 5m
        labels:
          severity: warning
        annotations:
          summary: "GPU 显存使用率过高"
          description: |
            节点 {{ $labels.nodeid }} 上的 GPU {{ $labels.deviceuuid }}
            ({{ $labels.devicetype }}) 显存使用率超过 90%，
            当前值: {{ $value | humanizePercentage }}

      # GPU 核心利用率持续 100%
      - alert: GPUCoreUtilizationSaturated
        expr: HostCoreUtilization == 100
        for: 15m
        labels:
          severity: warning
        annotations:
          summary: "GPU 核心利用率饱和"
          description: |
            GPU {{ $labels.deviceuuid }} 核心利用率持续 15 分钟保持 100%

      # 容器 vGPU 显存超过限制的 95%
      - alert: ContainerVGPUMemoryNearLimit
        expr: |
          vGPU_device_memory_usage_in_bytes
          / vGPU_device_memory_limit_in_bytes > 0.95
        for: 2m
        labels:
          severity: warning
        annotations:
          summary: "容器 vGPU 显存接近限制"
          description: |
            Pod {{ $labels.podnamespace }}/{{ $labels.podname }}
            容器 {{ $labels.ctrname }} 的 vGPU 显存使用率超过 95%

      # 容器长时间没有 GPU kernel 执行
      - alert: ContainerGPUIdle
        expr: Device_last_kernel_of_container > 1800
        for: 5m
        labels:
          severity: info
        annotations:
          summary: "容器 GPU 长时间空闲"
          description: |
            Pod {{ $labels.podnamespace }}/{{ $labels.podname }}
            容器 {{ $labels.ctrname }} 已超过 30 分钟无 GPU kernel 执行，
            可能存在资源浪费

      # 集群 GPU 显存分配率过高
      - alert: ClusterGPUMemoryAllocationHigh
        expr: |
          sum(GPUDeviceMemoryAllocated)
          / sum(GPUDeviceMemoryLimit) > 0.85
        for: 10m
        labels:
          severity: warning
        annotations:
          summary: "集群 GPU 显存分配率过高"
          description: |
            集群 GPU 显存分配率超过 85%，
            当前值: {{ $value | humanizePercentage }}

      # 单 GPU 上共享容器数过多
      - alert: GPUOversharing
        expr: GPUDeviceSharedNum > 10
        for: 5m
        labels:
          severity: warning
        annotations:
          summary: "GPU 共享容器数过多"
          description: |
            节点 {{ $labels.nodeid }} GPU {{ $labels.deviceuuid }}
            上运行了 {{ $value }} 个容器，可能导致性能下降

      # vGPU Monitor 指标端点不可达
      - alert: VGPUMonitorDown
        expr: up{job="hami-vgpu-monitor"} == 0
        for: 2m
        labels:
          severity: critical
        annotations:
          summary: "vGPU Monitor 不可达"
          description: |
            节点上的 vGPU Monitor 指标采集端点已不可达超过 2 分钟
"""

MONITORING_CHAPTER = """groups:
  - name: hami-gpu
    rules:
      - alert: GPUMemoryUsageHigh
        expr: hami_gpu_memory_used_bytes / hami_gpu_memory_total_bytes > 0.95
        for: 10m
        labels:
          severity: warning
        annotations:
          summary: "GPU memory usage exceeds 95% on {{ $labels.node }}"

      - alert: GPUNoAvailableMemory
        expr: (hami_gpu_memory_total_bytes - hami_gpu_memory_used_bytes) < 1073741824
        for: 5m
        labels:
          severity: critical
        annotations:
          summary: "Less than 1GB GPU memory available on {{ $labels.node }}"

      - alert: ScheduleFailureRate
        expr: rate(hami_scheduler_bind_failure_total[5m]) / rate(hami_scheduler_bind_success_total[5m]) > 0.1
        for: 10m
        labels:
          severity: warning
        annotations:
          summary: "HAMi scheduler failure rate exceeds 10%"
"""
