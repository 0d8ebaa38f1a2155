"""The alerts of the HAMi handbook and of its monitoring chapter, by their names, without their known faults."""

from tools.alerting.alert import Alert, AlertFile, Cause, Runbook, Text
from tools.alerting.expressions import CONTAINER, GPU, OF_POD, VGPU, per, share
from vgpuscope.model.service import AGENT_PORT

_USED = f"1 - {share(per(GPU, 'vgpuscope_gpu_memory_free_bytes'), per(GPU, 'vgpuscope_gpu_memory_total_bytes'))}"

# Names of the job that scrapes the agent: ours, that of its Service, the handbook's, and those of HAMi's own monitor. A PodMonitor puts its
# namespace and a slash before the name, a release of the chart its own name and a hyphen.
AGENT_JOBS = "(.*[-/])?(vgpuscope-agent|vgpuscope-nodes|hami-vgpu-monitor|hami-monitor|hami-device-plugin-monitor)"

_FULL = (
    Cause(
        Text(
            "One workload takes all memory by design (vLLM and TensorFlow reserve it when they start).",
            "某个工作负载按设计占满显存（vLLM、TensorFlow 启动时即预留）。",
        ),
        Text(
            "Nothing to do on a GPU that it holds alone. On a shared GPU, lower its memory limit or setting.",
            "若独占该 GPU，无需处理；若是共享 GPU，调低它的显存上限或相应参数。",
        ),
    ),
    Cause(
        Text(
            "Memory limits add up to more than the GPU has (HAMi's memory scaling).",
            "各容器的显存上限之和超过 GPU 的物理显存（HAMi 显存超卖）。",
        ),
        Text(
            "Lower `devicememoryscaling`, or move a tenant to another GPU.",
            "调低 `devicememoryscaling`，或把某个租户迁到其他 GPU。",
        ),
    ),
    Cause(
        Text(
            "A process without an allocation holds memory.",
            "没有分配的进程占用着显存。",
        ),
        Text(
            "`vgpuscope top` marks it. End the process, or give its pod an allocation.",
            "`vgpuscope top` 会标出它。结束该进程，或为其 Pod 申请分配。",
        ),
    ),
)

_MEMORY_RUNBOOK = Runbook(
    meaning=Text(
        "Little memory of the GPU is free. The next allocation of a tenant can fail with an out-of-memory error. Two "
        "rules have this name: `source: handbook` fires above 90 % for 5 minutes, `source: monitoring-chapter` above "
        "95 % for 10 minutes. Both compare free memory with the physical memory of the GPU, so memory that the driver "
        "reserves counts as not free.",
        "GPU 的空闲显存所剩无几，租户下一次申请显存可能失败（OOM）。有两条规则同名：`source: handbook` 为超过 90% 持续 5 "
        "分钟，`source: monitoring-chapter` 为超过 95% 持续 10 分钟。两者都用空闲显存与物理显存比较，因此驱动预留的显存不算空闲。",
    ),
    queries=(
        'sort_desc(vgpuscope_container_memory_used_bytes{gpu_uuid="GPU-…"})',
        'vgpuscope_gpu_memory_ledger_bytes{gpu_uuid="GPU-…"}',
    ),
    commands=("vgpuscope top", "vgpuscope gpus"),
    causes=_FULL,
)


def _memory_high(source: str, most: float, wait: str) -> Alert:
    percent = f"{most:.0%}".replace("%", " %")
    return Alert(
        name="GPUMemoryUsageHigh",
        expr=f"{_USED}\n> {most:g}",
        wait=wait,
        severity="warning",
        labels=(("source", source),),
        summary=Text(
            f"GPU memory use is above {percent} on {{{{ $labels.node }}}}",
            "节点 {{ $labels.node }} 的 GPU 显存使用率过高（超过 " + percent.replace(" ", "") + "）",
        ),
        description=Text(
            "{{ $value | humanizePercentage }} of the memory of GPU {{ $labels.gpu_uuid }} on {{ $labels.node }} is not "
            "free.",
            "节点 {{ $labels.node }} 上的 GPU {{ $labels.gpu_uuid }} 有 {{ $value | humanizePercentage }} 的显存不空闲。",
        ),
        runbook=_MEMORY_RUNBOOK,
    )


_ATTEMPTS = per(
    "cluster, scheduler, result", "increase(vgpuscope_cluster_binds_total[30m])"
)  # of each result once, however many replicas of the exporter count it
_FAILED = per("cluster, scheduler, result", 'increase(vgpuscope_cluster_binds_total{result="failure"}[30m])')

_OF_EXTENDER = "and on (cluster, job, instance)\nvgpuscope_extender_leader"  # not the exporter's, which are estimates
_TRULY_FAILED = per("cluster, job, instance", f"increase(hami_scheduler_bind_failure_total[30m])\n{_OF_EXTENDER}")
_TRULY_BOUND = per("cluster, job, instance", f"increase(hami_scheduler_bind_success_total[30m])\n{_OF_EXTENDER}")


def _schedule_failures(*, failed: str, attempts: str, who: str, labels: tuple[tuple[str, str], ...] = ()) -> Alert:
    return Alert(
        name="ScheduleFailureRate",
        expr=f"(\n{failed}\n/\n{attempts}\n) > 0.1\nand\n{attempts} >= 5",
        wait="10m",
        severity="warning",
        labels=labels,
        summary=Text(
            f"More than 10 % of the bindings by {who} fail",
            f"调度器 {who} 的失败率超过 10%",
        ),
        description=Text(
            "{{ $value | humanizePercentage }} of the attempts of "
            + who
            + " to bind pods with GPUs, or to allocate their devices, failed in the last 30 minutes.",
            f"最近 30 分钟内，{who} 绑定 GPU Pod 或分配设备的尝试有 {{{{ $value | humanizePercentage }}}} 失败。",
        ),
        runbook=_FAILURE_RUNBOOK,
    )


_FAILURE_RUNBOOK = Runbook(
    meaning=Text(
        "The share is failures divided by all attempts, over 30 minutes with at least five attempts. Pods "
        "that merely wait for a free GPU are not failures. Two rules have this name: with `source: extender` the attempts "
        "are those that the scheduler extender counted itself, otherwise those that the cluster exporter observed.",
        "失败率为失败次数除以全部尝试次数，统计 30 分钟，且至少有五次尝试。仅仅等待空闲 GPU 的 Pod 不算失败。有两条规则同名："
        "`source: extender` 使用调度器扩展自己的计数，另一条使用集群 exporter 观察到的次数。",
    ),
    queries=(
        "sum by (job, code) (increase(vgpuscope_extender_refusals_total[1h]))",
        "increase(hami_scheduler_bind_failure_total[1h])",
        "sum by (scheduler, code) (increase(vgpuscope_cluster_scheduling_failures_total[1h]))",
        "sum by (scheduler, result) (increase(vgpuscope_cluster_binds_total[1h]))",
    ),
    commands=(
        "vgpuscope pending --all",
        "vgpuscope why NAMESPACE/POD",
        "kubectl logs -n hami-system deployment/hami-scheduler",
    ),
    causes=(
        Cause(
            Text("HAMi's node lock is stuck.", "HAMi 的节点锁未释放。"),
            Text(
                "Remove the annotation `hami.io/mutex.lock` of the node, or wait five minutes.",
                "删除节点的注解 `hami.io/mutex.lock`，或等待五分钟。",
            ),
        ),
        Cause(
            Text("The device plugin on a node rejects allocations.", "节点上的设备插件拒绝分配。"),
            Text("See its log; restart it.", "查看其日志并重启。"),
        ),
        Cause(
            Text("The scheduler lacks the right to bind pods.", "调度器没有绑定 Pod 的权限。"),
            Text("Compare its ClusterRole with HAMi's chart.", "将其 ClusterRole 与 HAMi 的 chart 对比。"),
        ),
    ),
)


FILE = AlertFile(
    name="handbook",
    about=Text(
        "The alerts of the HAMi handbook and of its monitoring chapter, under their names.",
        "HAMi 手册及其监控章节中的告警，名称不变。",
    ),
    alerts=(
        _memory_high("handbook", 0.9, "5m"),
        _memory_high("monitoring-chapter", 0.95, "10m"),
        Alert(
            name="GPUNoAvailableMemory",
            expr=f"{per(GPU, 'vgpuscope_gpu_memory_free_bytes')}\n< 1073741824",
            wait="5m",
            severity="critical",
            summary=Text(
                "Less than 1 GiB of GPU memory is free on {{ $labels.node }}",
                "节点 {{ $labels.node }} 有 GPU 的空闲显存不足 1 GiB",
            ),
            description=Text(
                "GPU {{ $labels.gpu_uuid }} on {{ $labels.node }} has {{ $value | humanize1024 }}B of free memory.",
                "节点 {{ $labels.node }} 上的 GPU {{ $labels.gpu_uuid }} 只剩 {{ $value | humanize1024 }}B 空闲显存。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "The GPU is full. A tenant that asks for more memory gets an out-of-memory error, and a new one "
                    "cannot create its CUDA context.",
                    "GPU 显存已满。再申请显存的租户会遇到 OOM，新的租户连 CUDA 上下文都无法创建。",
                ),
                queries=(
                    'sort_desc(vgpuscope_container_memory_used_bytes{gpu_uuid="GPU-…"})',
                    'vgpuscope_gpu_memory_ledger_bytes{gpu_uuid="GPU-…"}',
                ),
                commands=("vgpuscope top", "vgpuscope gpus"),
                causes=_FULL,
            ),
        ),
        Alert(
            name="GPUCoreUtilizationSaturated",
            expr=f"{per(GPU, 'vgpuscope_gpu_utilization_mean_ratio')}\n>= 0.99",
            wait="15m",
            severity="warning",
            summary=Text(
                "GPU utilisation on {{ $labels.node }} is saturated",
                "节点 {{ $labels.node }} 的 GPU 核心利用率饱和",
            ),
            description=Text(
                "GPU {{ $labels.gpu_uuid }} on {{ $labels.node }} has run kernels without a pause for 15 minutes "
                "({{ $value | humanizePercentage }}).",
                "节点 {{ $labels.node }} 上的 GPU {{ $labels.gpu_uuid }} 已连续 15 分钟不间断运行核函数"
                "（{{ $value | humanizePercentage }}）。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "At least one kernel ran at every moment of 15 minutes. On a GPU with one training job this is the "
                    "wanted state. On a shared GPU the tenants compete for compute.",
                    "15 分钟内每一刻都有核函数在运行。若 GPU 上只有一个训练任务，这正是理想状态；若是共享 GPU，说明租户在争抢算力。",
                ),
                queries=(
                    'sort_desc(vgpuscope_container_sm_mean_ratio{gpu_uuid="GPU-…"})',
                    'vgpuscope_analyzer_class_info{gpu_id="GPU-…"}',
                ),
                commands=("vgpuscope top", "vgpuscope results"),
                causes=(
                    Cause(
                        Text("One job uses its own GPU fully.", "一个任务充分使用自己的 GPU。"),
                        Text(
                            "Nothing to do. Silence the alert for these nodes if they only train.",
                            "无需处理。若这些节点只做训练，可静默此告警。",
                        ),
                    ),
                    Cause(
                        Text("Tenants of a shared GPU compete.", "共享 GPU 上的租户互相争抢。"),
                        Text(
                            "Set `nvidia.com/gpucores` for them, or move one to a GPU that `vgpuscope gpus` shows as "
                            "free.",
                            "为它们设置 `nvidia.com/gpucores`，或把其中一个迁到 `vgpuscope gpus` 显示空闲的 GPU。",
                        ),
                    ),
                    Cause(
                        Text(
                            "Kernels run, but do nothing useful: the class is `stalled` or `busy-unproductive`.",
                            "核函数在运行却没有有效计算：类别为 `stalled` 或 `busy-unproductive`。",
                        ),
                        Text(
                            "See [GPUTenantStalled](GPUTenantStalled.md).",
                            "见 [GPUTenantStalled](GPUTenantStalled.md)。",
                        ),
                    ),
                ),
            ),
        ),
        Alert(
            name="ContainerVGPUMemoryNearLimit",
            expr=share(
                per(VGPU, "vgpuscope_vgpu_memory_used_bytes", *OF_POD),
                per(VGPU, "vgpuscope_vgpu_memory_limit_bytes", *OF_POD),
            )
            + "\n> 0.95",
            wait="2m",
            severity="warning",
            summary=Text(
                "{{ $labels.namespace }}/{{ $labels.pod }} is close to its vGPU memory limit",
                "容器 {{ $labels.namespace }}/{{ $labels.pod }} 的 vGPU 显存接近上限",
            ),
            description=Text(
                "Container {{ $labels.container }} of {{ $labels.namespace }}/{{ $labels.pod }} uses "
                "{{ $value | humanizePercentage }} of its memory limit on GPU {{ $labels.gpu_uuid }} "
                "({{ $labels.node }}).",
                "Pod {{ $labels.namespace }}/{{ $labels.pod }} 的容器 {{ $labels.container }} 在 GPU "
                "{{ $labels.gpu_uuid }}（{{ $labels.node }}）上已使用显存上限的 {{ $value | humanizePercentage }}。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "HAMi's library rejects allocations above the limit, so the container's next allocation can fail. "
                    "The value is HAMi's own accounting, on which the limit is enforced. A container without a limit "
                    "never raises this alert. CUDA contexts can push the value above 100 %.",
                    "HAMi 的库会拒绝超过上限的申请，因此该容器下一次申请显存可能失败。数值取自 HAMi 自己的账目，上限正是据此执行。"
                    "没有上限的容器不会触发此告警。CUDA 上下文可能使数值超过 100%。",
                ),
                queries=(
                    'vgpuscope_vgpu_memory_buffer_bytes{namespace="NS",pod="POD"}',
                    'vgpuscope_vgpu_memory_context_bytes{namespace="NS",pod="POD"}',
                    'deriv(vgpuscope_vgpu_memory_used_bytes{namespace="NS",pod="POD"}[30m])',
                ),
                commands=("vgpuscope top",),
                causes=(
                    Cause(
                        Text("The limit is too low for the workload.", "上限对该工作负载来说太低。"),
                        Text("Raise `nvidia.com/gpumem` of the container.", "调高容器的 `nvidia.com/gpumem`。"),
                    ),
                    Cause(
                        Text("Memory leaks: `deriv` stays above 0.", "显存泄漏：`deriv` 一直大于 0。"),
                        Text("Restart the container, and repair the program.", "重启容器，并修复程序。"),
                    ),
                    Cause(
                        Text(
                            "The framework takes all it can get when it starts.",
                            "框架启动时就占用能拿到的全部显存。",
                        ),
                        Text(
                            "Nothing to do, or lower its setting (vLLM: `gpu_memory_utilization`).",
                            "无需处理，或调低其参数（vLLM：`gpu_memory_utilization`）。",
                        ),
                    ),
                ),
            ),
        ),
        Alert(
            name="ContainerGPUIdle",
            expr="\n".join(
                (
                    f"time() - {per(CONTAINER, 'vgpuscope_vgpu_last_kernel_timestamp_seconds', *OF_POD)} > 1800",
                    "unless",
                    f"{per(CONTAINER, 'max_over_time(vgpuscope_container_sm_max_ratio[30m])', *OF_POD)} > 0",
                )
            ),
            wait="5m",
            severity="info",
            summary=Text(
                "{{ $labels.namespace }}/{{ $labels.pod }} has not used its vGPU for 30 minutes",
                "容器 {{ $labels.namespace }}/{{ $labels.pod }} 的 GPU 长时间空闲",
            ),
            description=Text(
                "Container {{ $labels.container }} of {{ $labels.namespace }}/{{ $labels.pod }} last launched a kernel "
                "on GPU {{ $labels.gpu_uuid }} ({{ $labels.node }}) {{ $value | humanizeDuration }} ago.",
                "Pod {{ $labels.namespace }}/{{ $labels.pod }} 的容器 {{ $labels.container }} 在 GPU "
                "{{ $labels.gpu_uuid }}（{{ $labels.node }}）上距最后一次核函数启动已有 {{ $value | humanizeDuration }}。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "HAMi's library saw no kernel launch in the container for 30 minutes, and the driver reported no SM "
                    "time for it. Long kernels and CUDA graphs do not raise the alert while SM time is measured. A "
                    "container that has never started CUDA has no such time and raises no alert.",
                    "HAMi 的库已 30 分钟没有看到该容器启动核函数，驱动也没有报告它的 SM 时间。只要测得到 SM 时间，长时间运行的核函数和 "
                    "CUDA graph 就不会触发告警。从未启动 CUDA 的容器没有这一时间，也不会触发告警。",
                ),
                queries=(
                    'time() - vgpuscope_vgpu_last_kernel_timestamp_seconds{namespace="NS",pod="POD"}',
                    'vgpuscope_analyzer_tenant_idle_seconds{namespace="NS",pod="POD"}',
                ),
                commands=("vgpuscope results --low", "vgpuscope waste"),
                causes=(
                    Cause(
                        Text("A notebook was left open.", "Notebook 打开后无人使用。"),
                        Text("Ask its owner to stop it.", "请所有者停止它。"),
                    ),
                    Cause(
                        Text("A service gets no requests.", "服务没有收到请求。"),
                        Text(
                            "Scale it down; the pod's own use is a series [for HPA and KEDA](../alerts.md#scale-on-use).",
                            "缩容；Pod 自身的用量是 [HPA 和 KEDA 可用的序列](../../alerts.zh-CN.md#按用量扩缩容)。",
                        ),
                    ),
                ),
            ),
        ),
        Alert(
            name="ClusterGPUMemoryAllocationHigh",
            expr=share(
                per("cluster", "vgpuscope_cluster_memory_allocated_bytes"),
                per("cluster", "vgpuscope_cluster_memory_bytes"),
            )
            + "\n> 0.85",
            wait="10m",
            severity="warning",
            summary=Text(
                "More than 85 % of the cluster's GPU memory is allocated",
                "集群 GPU 显存分配率过高（超过 85%）",
            ),
            description=Text(
                "{{ $value | humanizePercentage }} of the GPU memory that can be allocated is allocated.",
                "可分配的 GPU 显存中已有 {{ $value | humanizePercentage }} 被分配。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "New pods will soon wait for GPUs. Unhealthy and cordoned GPUs and those of nodes that accept no "
                    "pods are not part of the total. With memory scaling, both numbers are scaled.",
                    "新的 Pod 很快就要排队等待 GPU。不健康、被封锁的 GPU 以及不接受 Pod 的节点上的 GPU 不计入总量。启用显存超卖时，两个数都按超卖后计算。",
                ),
                queries=(
                    "vgpuscope_cluster_largest_memory_bytes",
                    "vgpuscope_cluster_lost_memory_bytes",
                    "sum by (namespace) (vgpuscope_cluster_container_memory_allocated_bytes)",
                ),
                commands=("vgpuscope nodes", "vgpuscope waste"),
                causes=(
                    Cause(
                        Text("Idle pods hold memory.", "空闲的 Pod 占着显存。"),
                        Text(
                            "`vgpuscope waste` ranks them. Ask their owners to end them.",
                            "`vgpuscope waste` 会给出排名。请所有者结束它们。",
                        ),
                    ),
                    Cause(
                        Text("GPUs are lost, cordoned or unhealthy.", "有 GPU 丢失、被封锁或不健康。"),
                        Text("Repair them; `vgpuscope nodes` names them.", "修复它们；`vgpuscope nodes` 会列出。"),
                    ),
                    Cause(
                        Text("The cluster is too small.", "集群规模不足。"),
                        Text("Add nodes, or lower quotas.", "增加节点，或收紧配额。"),
                    ),
                ),
            ),
        ),
        Alert(
            name="GPUOversharing",
            expr=f"{per(GPU, 'vgpuscope_cluster_gpu_containers', 'node')}\n> 10",
            wait="5m",
            severity="warning",
            summary=Text(
                "{{ $value }} containers share a GPU of {{ $labels.node }}",
                "节点 {{ $labels.node }} 的 GPU 共享容器数过多（{{ $value }} 个）",
            ),
            description=Text(
                "{{ $value }} containers hold GPU {{ $labels.gpu_uuid }} on {{ $labels.node }}. They compete for compute "
                "and memory bandwidth.",
                "节点 {{ $labels.node }} 的 GPU {{ $labels.gpu_uuid }} 上有 {{ $value }} 个容器，会争抢算力和显存带宽，可能导致性能下降。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "More than ten distinct containers hold the GPU. Containers are counted once, even if they hold "
                    "several slots of it.",
                    "持有该 GPU 的不同容器超过十个。一个容器即使占用多份也只计一次。",
                ),
                queries=(
                    'vgpuscope_cluster_container_memory_allocated_bytes{gpu_uuid="GPU-…"}',
                    'sort_desc(vgpuscope_container_sm_mean_ratio{gpu_uuid="GPU-…"})',
                ),
                commands=("vgpuscope gpus", "vgpuscope top"),
                causes=(
                    Cause(
                        Text("`devicesplitcount` of the node is too high.", "节点的 `devicesplitcount` 过大。"),
                        Text("Lower it. Running pods keep their GPU.", "调低它。运行中的 Pod 仍保留原来的 GPU。"),
                    ),
                    Cause(
                        Text("HAMi's GPU policy is `binpack`.", "HAMi 的 GPU 策略为 `binpack`。"),
                        Text(
                            "Use `spread` for workloads that need steady performance.",
                            "对性能稳定性有要求的工作负载使用 `spread`。",
                        ),
                    ),
                ),
            ),
        ),
        Alert(
            name="VGPUMonitorDown",
            expr=f'max by (cluster, job, instance) (up{{job=~"{AGENT_JOBS}"}}) == 0',
            wait="2m",
            severity="critical",
            summary=Text(
                "The node agent at {{ $labels.instance }} cannot be scraped",
                "vGPU Monitor 不可达：{{ $labels.instance }}",
            ),
            description=Text(
                "Prometheus has not been able to scrape {{ $labels.instance }} (job {{ $labels.job }}) for 2 minutes. The "
                "GPUs of this node are not measured, and their verdicts become unknown.",
                "Prometheus 已有 2 分钟无法抓取 {{ $labels.instance }}（job {{ $labels.job }}）。该节点的 GPU 没有数据，判定会变为 unknown。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "The scrape of a node's exporter fails. The rule knows the agent's job, the handbook's job "
                    "`hami-vgpu-monitor` and the Services of HAMi's own monitor. A job with another name needs its name "
                    "in the expression.",
                    "抓取节点 exporter 失败。规则包含 agent 的 job、手册中的 job `hami-vgpu-monitor` 以及 HAMi 自带 monitor 的 "
                    "Service。若 job 另有名称，需要把它加进表达式。",
                ),
                queries=("up == 0", 'vgpuscope_analyzer_targets{state="down"}'),
                commands=(
                    "kubectl get pods -A -o wide | grep vgpuscope-agent",
                    f"vgpuscope top http://NODE:{AGENT_PORT}",
                ),
                causes=(
                    Cause(
                        Text("The pod is not running.", "Pod 没有运行。"),
                        Text(
                            "`kubectl describe pod` and its log give the reason.",
                            "`kubectl describe pod` 及其日志会给出原因。",
                        ),
                    ),
                    Cause(
                        Text("The node is down.", "节点宕机。"),
                        Text("Repair the node.", "修复节点。"),
                    ),
                    Cause(
                        Text(
                            f"A NetworkPolicy or firewall blocks port {AGENT_PORT}.",
                            f"NetworkPolicy 或防火墙拦截了 {AGENT_PORT} 端口。",
                        ),
                        Text("Allow it from Prometheus.", "放行来自 Prometheus 的访问。"),
                    ),
                    Cause(
                        Text(
                            "The agent requires TLS or a token, and the scrape has none.",
                            "agent 要求 TLS 或令牌，而抓取配置里没有。",
                        ),
                        Text("See [security](../security.md).", "见[安全](../../security.md)。"),
                    ),
                ),
            ),
        ),
        _schedule_failures(
            failed=f"sum by (cluster, scheduler) ({_FAILED})",
            attempts=f"sum by (cluster, scheduler) ({_ATTEMPTS})",
            who="{{ $labels.scheduler }}",
        ),
        _schedule_failures(
            failed=f"sum by (cluster, job) ({_TRULY_FAILED})",
            attempts="\n".join(
                (f"(sum by (cluster, job) ({_TRULY_FAILED})", f"+\nsum by (cluster, job) ({_TRULY_BOUND}))")
            ),
            who="{{ $labels.job }}",
            labels=(("source", "extender"),),
        ),
    ),
)
