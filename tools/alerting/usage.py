"""Alerts on GPUs that are allocated or used in a way that nobody wants."""

from tools.alerting.alert import Alert, AlertFile, Cause, Runbook, Text
from tools.alerting.expressions import GPU, TENANT, per, share

_TENANT_LABELS = ("namespace", "pod")


def _tenants_of_class(name: str) -> str:
    return per(TENANT, f'vgpuscope_analyzer_tenant_class_info{{class="{name}"}}', *_TENANT_LABELS)


_ON_DEVICE = (
    "cluster, gpu_uuid"  # of a join between agent and cluster exporter: a UUID is unique, names of nodes may differ
)

FILE = AlertFile(
    name="usage",
    about=Text(
        "GPUs that are held without work, allocated to pods that are gone, used without an allocation, or waited for.",
        "被占用却没有计算、分配给已消失的 Pod、未经分配而被使用，以及有 Pod 在等待的 GPU。",
    ),
    alerts=(
        Alert(
            name="GPUTenantIdleHeld",
            expr="\n".join(
                (
                    f"{per(TENANT, 'vgpuscope_analyzer_tenant_idle_seconds', *_TENANT_LABELS)} > 3600",
                    "and",
                    _tenants_of_class("idle-held"),
                )
            ),
            wait="0s",
            severity="info",
            summary=Text(
                "{{ $labels.namespace }}/{{ $labels.pod }} has held GPU memory without work for "
                "{{ $value | humanizeDuration }}",
                "{{ $labels.namespace }}/{{ $labels.pod }} 占用 GPU 显存却没有计算，已持续 {{ $value | humanizeDuration }}",
            ),
            description=Text(
                "{{ $labels.namespace }}/{{ $labels.pod }}{{ with $labels.owner }} ({{ . }}){{ end }} holds memory of GPU "
                "{{ $labels.gpu_id }} on {{ $labels.hostname }}. The verdict has been idle for "
                "{{ $value | humanizeDuration }}.",
                "{{ $labels.namespace }}/{{ $labels.pod }}{{ with $labels.owner }}（{{ . }}）{{ else }} {{ end }}占用 "
                "{{ $labels.hostname }} 上 GPU {{ $labels.gpu_id }} 的显存，判定为 idle 已有 {{ $value | humanizeDuration }}。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "The analyzer has proven for an hour that the pod computes nothing on the GPU, and the pod still holds "
                    "memory there. A verdict needs enough samples: a pod that could not be measured is `unknown` and "
                    "raises no alert.",
                    "分析器已在一小时内持续证明该 Pod 在这张 GPU 上没有计算，但它仍占用显存。判定需要足够的采样：测不到的 Pod 判定为 "
                    "`unknown`，不会触发告警。",
                ),
                queries=(
                    "sort_desc(vgpuscope_analyzer_tenant_idle_seconds > 3600)",
                    'vgpuscope_container_memory_used_bytes{namespace="NS",pod="POD"}',
                ),
                commands=("vgpuscope results --low", "vgpuscope waste"),
                causes=(
                    Cause(
                        Text("A notebook was left open.", "Notebook 打开后无人使用。"),
                        Text(
                            "Ask its owner to stop it. `vgpuscope waste` shows what it has cost.",
                            "请所有者停止它。`vgpuscope waste` 会显示它浪费了多少。",
                        ),
                    ),
                    Cause(
                        Text("A model server gets no requests.", "模型服务没有收到请求。"),
                        Text(
                            "Scale it down, for example [on its own use](../alerts.md#scale-on-use).",
                            "缩容，例如[按自身用量](../../alerts.zh-CN.md#按用量扩缩容)。",
                        ),
                    ),
                    Cause(
                        Text("A job waits for data or for another worker.", "任务在等待数据或其他 worker。"),
                        Text("Look at the log of the job.", "查看该任务的日志。"),
                    ),
                ),
            ),
        ),
        Alert(
            name="GPUTenantStalled",
            expr=_tenants_of_class("stalled"),
            wait="15m",
            severity="warning",
            summary=Text(
                "{{ $labels.namespace }}/{{ $labels.pod }} seems to hang on {{ $labels.hostname }}",
                "{{ $labels.namespace }}/{{ $labels.pod }} 在 {{ $labels.hostname }} 上疑似停滞",
            ),
            description=Text(
                "Kernels of {{ $labels.namespace }}/{{ $labels.pod }}{{ with $labels.owner }} ({{ . }}){{ end }} run on GPU "
                "{{ $labels.gpu_id }} all the time, but the GPU draws hardly more power than an idle one.",
                "{{ $labels.namespace }}/{{ $labels.pod }}{{ with $labels.owner }}（{{ . }}）{{ else }} {{ end }}的核函数一直在 GPU "
                "{{ $labels.gpu_id }} 上运行，但功耗接近空闲。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "Utilisation is near 100 % and power is near that of an idle GPU. Real work does not look like this; a "
                    "kernel that spins while it waits does.",
                    "利用率接近 100%，功耗却接近空闲。真正的计算不是这样，自旋等待的核函数才是这样。",
                ),
                queries=(
                    'vgpuscope_gpu_power_mean_watts{gpu_uuid="GPU-…"}',
                    'vgpuscope_gpu_memory_controller_mean_ratio{gpu_uuid="GPU-…"}',
                    'vgpuscope_gpu_xid_errors_total{gpu_uuid="GPU-…"}',
                ),
                commands=("vgpuscope results", "kubectl logs -n NS POD"),
                causes=(
                    Cause(
                        Text(
                            "A collective operation (NCCL) waits for a worker that has died.",
                            "集合通信（NCCL）在等待一个已经死掉的 worker。",
                        ),
                        Text(
                            "Look for the missing worker, and restart the whole job. `NCCL_DEBUG=INFO` names the rank.",
                            "找到缺失的 worker，重启整个任务。`NCCL_DEBUG=INFO` 会给出 rank。",
                        ),
                    ),
                    Cause(
                        Text("A link or GPU of another node failed.", "另一节点的链路或 GPU 出了故障。"),
                        Text("See the XID alerts of the job's other nodes.", "查看该任务其他节点的 XID 告警。"),
                    ),
                    Cause(
                        Text("The program polls on the GPU by design.", "程序按设计在 GPU 上轮询。"),
                        Text("Silence the alert for this pod.", "对该 Pod 静默此告警。"),
                    ),
                ),
            ),
        ),
        Alert(
            name="GPUGhostAllocation",
            expr=per(
                "cluster, node, gpu_uuid, namespace, pod, reason",
                'vgpuscope_cluster_finding_info{kind="ghost"}',
                "node",
                "namespace",
                "pod",
            ),
            wait="10m",
            severity="warning",
            summary=Text(
                "{{ $labels.namespace }}/{{ $labels.pod }} has GPUs that it cannot use ({{ $labels.reason }})",
                "{{ $labels.namespace }}/{{ $labels.pod }} 占着无法使用的 GPU（{{ $labels.reason }}）",
            ),
            description=Text(
                "A GPU{{ with $labels.node }} of {{ . }}{{ end }} is allocated to {{ $labels.namespace }}/"
                "{{ $labels.pod }}, which does not run there. Reason: {{ $labels.reason }}.",
                "{{ with $labels.node }}节点 {{ . }} 的 {{ end }}GPU 分配给了 {{ $labels.namespace }}/{{ $labels.pod }}，"
                "但该 Pod 并未在那里运行。原因：{{ $labels.reason }}。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "The scheduler's records give a GPU to a pod that has ended, was never bound, or runs elsewhere. The "
                    "GPU looks full without a pod. [Findings](../reconciliation.md) explains each reason. At most 32 "
                    "findings of a node have a series of their own; `vgpuscope_cluster_findings` counts all.",
                    "调度器的记录把 GPU 给了一个已结束、从未绑定或运行在别处的 Pod，于是 GPU 看似已满却没有 Pod。各原因见"
                    "[核对结果](../../reconciliation.md)。每个节点最多 32 条有单独的序列，`vgpuscope_cluster_findings` 统计全部。",
                ),
                queries=(
                    'sum by (node, reason) (vgpuscope_cluster_findings{kind="ghost"})',
                    'vgpuscope_cluster_gpu_memory_allocated_bytes{gpu_uuid="GPU-…"}',
                ),
                commands=("vgpuscope nodes", "kubectl describe pod -n NS POD"),
                causes=(
                    Cause(
                        Text(
                            "`ended`: the scheduler missed the end of the pod.",
                            "`ended`：调度器错过了 Pod 的结束。",
                        ),
                        Text(
                            "Delete the pod object. If the GPU stays full, restart HAMi's scheduler.",
                            "删除 Pod 对象。若 GPU 仍显示已满，重启 HAMi 的调度器。",
                        ),
                    ),
                    Cause(
                        Text(
                            "`unknown`, `terminating`: the kubelet of the node does not report.",
                            "`unknown`、`terminating`：节点的 kubelet 没有上报。",
                        ),
                        Text("Repair the node, or force the deletion.", "修复节点，或强制删除 Pod。"),
                    ),
                    Cause(
                        Text(
                            "`unbound`, `elsewhere`, `unused`: a binding failed halfway.",
                            "`unbound`、`elsewhere`、`unused`：绑定中途失败。",
                        ),
                        Text(
                            "Delete the pod or claim; its controller creates a new one.",
                            "删除 Pod 或 claim，其控制器会重新创建。",
                        ),
                    ),
                ),
            ),
        ),
        Alert(
            name="GPUResidualMemory",
            expr="\n".join(
                (
                    f"{per(GPU, 'vgpuscope_gpu_memory_used_bytes')} > 536870912",
                    f"and on ({_ON_DEVICE})",
                    f"{per(_ON_DEVICE, 'vgpuscope_cluster_gpu_slots_used')} == 0",
                )
            ),
            wait="10m",
            severity="warning",
            summary=Text(
                "A GPU of {{ $labels.node }} has memory in use, but the scheduler calls it free",
                "节点 {{ $labels.node }} 的 GPU 有显存占用，调度器却认为它空闲",
            ),
            description=Text(
                "{{ $value | humanize1024 }}B of GPU {{ $labels.gpu_uuid }} on {{ $labels.node }} are in use, and no "
                "container holds it by the scheduler's records. A pod that is placed there finds less memory than it was promised.",
                "节点 {{ $labels.node }} 的 GPU {{ $labels.gpu_uuid }} 已用显存 {{ $value | humanize1024 }}B，而按调度器的记录没有容器持有它。"
                "调度到这里的 Pod 拿不到承诺的显存。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "The driver reports more than 512 MiB in use on a GPU of which no slot is allocated. Memory that the "
                    "driver reserves for its own purposes is not counted.",
                    "驱动报告某张 GPU 已用显存超过 512 MiB，而它没有任何一份被分配。驱动自身预留的显存不计在内。",
                ),
                queries=(
                    'vgpuscope_gpu_memory_ledger_bytes{gpu_uuid="GPU-…"}',
                    'vgpuscope_container_info{gpu_uuid="GPU-…",allocated="false"}',
                ),
                commands=("vgpuscope top", "vgpuscope gpus"),
                causes=(
                    Cause(
                        Text(
                            "A process outlived its pod (ledger row `unattributed`).",
                            "进程在 Pod 结束后仍然存活（账本行 `unattributed`）。",
                        ),
                        Text(
                            "`nvidia-smi` on the node names the process; end it.",
                            "在节点上用 `nvidia-smi` 找到该进程并结束。",
                        ),
                    ),
                    Cause(
                        Text(
                            "A container uses the GPU without an allocation (`NVIDIA_VISIBLE_DEVICES=all`).",
                            "容器未经分配就使用 GPU（`NVIDIA_VISIBLE_DEVICES=all`）。",
                        ),
                        Text(
                            "Give it an allocation, or remove the variable.",
                            "为它申请分配，或去掉该环境变量。",
                        ),
                    ),
                    Cause(
                        Text(
                            "A program on the host uses the GPU (ledger row `system`).",
                            "宿主机程序在使用 GPU（账本行 `system`）。",
                        ),
                        Text(
                            "Move it, or exclude the GPU from the device plugin.", "迁走它，或在设备插件中排除该 GPU。"
                        ),
                    ),
                ),
            ),
        ),
        Alert(
            name="GPUPodPendingTooLong",
            expr=f"{per('cluster, namespace, code', 'vgpuscope_cluster_pending_oldest_seconds', 'namespace')}\n> 1800",
            wait="5m",
            severity="warning",
            summary=Text(
                "A pod{{ with $labels.namespace }} of {{ . }}{{ end }} has waited for a GPU for "
                "{{ $value | humanizeDuration }}",
                "{{ with $labels.namespace }}命名空间 {{ . }} {{ end }}有 Pod 等待 GPU 已 {{ $value | humanizeDuration }}",
            ),
            description=Text(
                "The oldest waiting pod{{ with $labels.namespace }} of {{ . }}{{ end }} with the reason {{ $labels.code }} has waited for "
                "{{ $value | humanizeDuration }}. `vgpuscope pending` names it.",
                "{{ with $labels.namespace }}命名空间 {{ . }} 中{{ end }}因 {{ $labels.code }} 等待的 Pod，最久的已等待 {{ $value | humanizeDuration }}。"
                "`vgpuscope pending` 会给出它的名称。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "A pod with GPUs has had no node for more than half an hour. The label `code` is the main reason.",
                    "申请 GPU 的 Pod 超过半小时没有得到节点。标签 `code` 是主要原因。",
                ),
                queries=(
                    "sort_desc(vgpuscope_cluster_pending_oldest_seconds)",
                    "vgpuscope_cluster_pending_pods",
                    "vgpuscope_cluster_largest_memory_bytes",
                ),
                commands=("vgpuscope pending", "vgpuscope pending NS/POD"),
                causes=(
                    Cause(
                        Text(
                            "No GPU has enough free memory, cores or slots.", "没有 GPU 有足够的空闲显存、算力或份数。"
                        ),
                        Text(
                            "`vgpuscope pending NS/POD` says which request would fit.",
                            "`vgpuscope pending NS/POD` 会说明多大的申请放得下。",
                        ),
                    ),
                    Cause(
                        Text("The quota of the namespace is full.", "命名空间的配额已满。"),
                        Text(
                            "See [GPUQuotaNearlyFull](GPUQuotaNearlyFull.md).",
                            "见 [GPUQuotaNearlyFull](GPUQuotaNearlyFull.md)。",
                        ),
                    ),
                    Cause(
                        Text(
                            "The request can never be met: it asks for more than any GPU has.",
                            "申请永远无法满足：超过任何一张 GPU 的容量。",
                        ),
                        Text("Correct the pod.", "修改 Pod 的申请。"),
                    ),
                    Cause(
                        Text("Batch jobs queue here by design.", "批处理任务按设计在此排队。"),
                        Text("Silence the alert for the namespace.", "对该命名空间静默此告警。"),
                    ),
                ),
            ),
        ),
        Alert(
            name="GPUQuotaNearlyFull",
            expr=share(
                per("cluster, namespace, resource", "vgpuscope_cluster_quota_used", "namespace"),
                per("cluster, namespace, resource", "vgpuscope_cluster_quota_limit", "namespace"),
            )
            + "\n> 0.9",
            wait="10m",
            severity="info",
            summary=Text(
                "{{ $labels.namespace }} has used {{ $value | humanizePercentage }} of its quota of {{ $labels.resource }}",
                "命名空间 {{ $labels.namespace }} 的 {{ $labels.resource }} 配额已用 {{ $value | humanizePercentage }}",
            ),
            description=Text(
                "Pods of {{ $labels.namespace }} hold {{ $value | humanizePercentage }} of the quota of "
                "{{ $labels.resource }}. Further pods may have to wait.",
                "命名空间 {{ $labels.namespace }} 的 Pod 已占用 {{ $labels.resource }} 配额的 {{ $value | humanizePercentage }}，"
                "之后的 Pod 可能要等待。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "More than 90 % of a ResourceQuota for GPUs is in use. A quota of 0 forbids the resource and raises no "
                    "alert.",
                    "GPU 的 ResourceQuota 已用超过 90%。配额为 0 表示禁止使用该资源，不会触发告警。",
                ),
                queries=(
                    'vgpuscope_cluster_quota_limit{namespace="NS"} - vgpuscope_cluster_quota_used{namespace="NS"}',
                    'vgpuscope_analyzer_tenant_idle_seconds{namespace="NS"} > 0',
                ),
                commands=("vgpuscope pending", "vgpuscope waste", "kubectl describe resourcequota -n NS"),
                causes=(
                    Cause(
                        Text("Idle pods of the namespace hold the quota.", "命名空间中空闲的 Pod 占着配额。"),
                        Text("End them; `vgpuscope waste` names them.", "结束它们；`vgpuscope waste` 会列出。"),
                    ),
                    Cause(
                        Text("The team needs more.", "团队确实需要更多。"),
                        Text("Raise the quota.", "调高配额。"),
                    ),
                ),
            ),
        ),
    ),
)
