"""The table of figures → texts in English and Chinese, made from the codes of each figure."""

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

from vgpuscope.catalog import agent, analyzer, cluster, extender, plugin
from vgpuscope.catalog.figure import Condition, Figure, Population, Subject, TimeBasis
from vgpuscope.catalog.figures import FIGURES, figure_of_metric, figures_of_field
from vgpuscope.catalog.metric import Metric
from vgpuscope.model.console.definitions import Definition, Definitions, MetricDefinition
from vgpuscope.model.words import NO_WORDS, Words
from vgpuscope.views.languages import Pair

# English: with its article. Chinese: where it is counted, and whose value it is.
SUBJECTS: dict[Subject, tuple[str, str, str]] = {
    "fleet": ("the fleet", "可见范围内", "可见范围"),
    "node": ("a node", "节点上", "节点"),
    "namespace": ("a namespace", "命名空间中", "命名空间"),
    "workload": ("a pod, owner or namespace", "Pod、所有者或命名空间中", "Pod、所有者或命名空间"),
    "waste": ("a tenant or group", "租户或分组中", "租户或分组"),
    "gpu": ("a GPU or MIG instance", "GPU 或 MIG 实例上", "GPU 或 MIG 实例"),
    "tenant": ("a tenant", "租户中", "租户"),
    "gpu_pod": (
        "a GPU, or each pod on a shared GPU",
        "GPU（共享时为其上的每个 Pod）上",
        "GPU（共享时为其上的每个 Pod）",
    ),
    "judged": ("a GPU, MIG instance or tenant", "GPU、MIG 实例或租户上", "GPU、MIG 实例或租户"),
    "chart": ("what the chart shows", "图表对象中", "图表对象"),
    "list": ("a list of the console", "控制台的列表中", "控制台的列表"),
    "capacity": ("a node, a GPU type or the cluster", "节点、GPU 型号或集群中", "节点、GPU 型号或集群"),
    "resource": ("a GPU resource of a node", "节点的 GPU 资源中", "节点的 GPU 资源"),
    "quota": ("a quota", "配额中", "配额"),
    "pod": ("a pod", "Pod 中", "Pod"),
    "decision": ("a decision of the extender", "调度器扩展的一次决策中", "调度器扩展的一次决策"),
    "scheduler": ("a scheduler", "调度器中", "调度器"),
    "process": ("a process", "进程中", "进程"),
    "case": ("a reclaim case", "收回任务中", "收回任务"),
    "policy": ("a policy in a back-test", "回测策略中", "回测策略"),
    "preview": ("a preview of changed settings", "设置预览中", "设置预览"),
    "source": ("a source", "来源中", "来源"),
    "service": ("a service of vgpuscope", "vgpuscope 服务中", "vgpuscope 服务"),
}
POPULATIONS: dict[Population, Pair] = {
    "one": ("", ""),
    "gpus": ("physical GPUs", "物理 GPU"),
    "mig_instances": ("MIG instances", "MIG 实例"),
    "gpus_or_instances": ("GPUs and MIG instances", "GPU 与 MIG 实例"),
    "shares": ("GPUs, GPU shares or MIG instances", "GPU、GPU 份额或 MIG 实例"),
    "tenants": ("tenants", "租户"),
    "containers": ("containers", "容器"),
    "pods": ("pods", "Pod"),
    "workloads": ("workloads", "工作负载"),
    "nodes": ("nodes", "节点"),
    "namespaces": ("namespaces", "命名空间"),
    "cases": ("reclaim cases", "收回任务"),
    "actions": ("actions", "动作"),
    "brakes": ("times that a brake began to hold a case back", "制动开始阻止收回任务的次"),
    "decisions": ("decisions", "决策"),
    "attempts": ("attempts", "尝试"),
    "messages": ("messages", "消息"),
    "slots": ("slots", "份"),
    "cpus": ("CPUs", "CPU"),
    "processes": ("processes", "进程"),
    "analyses": ("analyses", "分析"),
    "requests": ("requests", "请求"),
    "samples": ("samples", "样本"),
    "targets": ("scrape targets", "抓取目标"),
    "findings": ("findings", "发现项"),
    "checks": ("checks", "检查项"),
    "errors": ("errors", "错误"),
    "xids": ("XID errors", "XID 错误"),
    "rows": ("rows", "行"),
    "memory_rows": ("remapped rows of GPU memory", "重映射的显存行"),
    "regions": ("HAMi regions", "HAMi region"),
    "devices": ("devices", "设备"),
    "objects": ("Kubernetes objects", "Kubernetes 对象"),
    "files": ("open files", "打开的文件"),
    "events": ("events", "事件"),
}
# English: after the subject. Chinese: before the population.
CONDITIONS: dict[Condition, Pair] = {
    "all": ("", ""),
    "no_fault": ("without a known fault", "没有已知故障的"),
    "healthy": ("with health ok", "健康的"),
    "held": ("held by a pod", "被 Pod 占用的"),
    "idle_held": ("held by a pod, with the verdict idle", "被 Pod 占用且判定为空闲的"),
    "idle": ("with the verdict idle", "判定为空闲的"),
    "unknown": ("with the verdict unknown", "判定为未知的"),
    "low_score": ("with a known status and a score below the threshold", "状态已知且评分低于阈值的"),
    "low_or_idle": (
        "with a known status and a score below the threshold, or the verdict idle",
        "状态已知且评分低于阈值，或判定为空闲的",
    ),
    "low_gpus": (
        "of GPUs and MIG instances with a known status and a score below the threshold, or the verdict idle",
        "状态已知且评分低于阈值、或判定为空闲的 GPU 与 MIG 实例所占的",
    ),
    "low_tenants": (
        "of tenants with a known status and a score below the threshold, or the verdict idle",
        "状态已知且评分低于阈值、或判定为空闲的租户所占的",
    ),
    "idle_status": ("with the status idle", "状态为空闲的"),
    "measured": ("that were measured", "已测量的"),
    "waiting": ("waiting for a node", "等待节点的"),
    "unlisted": ("of which only the number is known, from the kubelet", "仅由 kubelet 得知数量的"),
    "divided": ("divided by MIG", "被 MIG 切分的"),
    "shared": ("with several tenants", "有多个租户的"),
    "of_others": ("in namespaces that the caller does not see", "属于不可见命名空间的"),
    "analysed": ("in the last analysis", "最近一次分析中的"),
    "by_class": ("by class", "按类别统计的"),
    "by_use_class": ("by class of use, held or not", "按使用类别（无论是否被占用）统计的"),
    "by_verdict": ("by verdict", "按判定统计的"),
    "by_status": ("by status", "按状态统计的"),
    "by_state": ("by state", "按状态统计的"),
    "actionable": ("idle and not left alone by the policy", "空闲且策略会处理的"),
    "left_alone": ("idle and left alone by the policy", "空闲但策略不处理的"),
    "left_alone_by_reason": ("idle and left alone by the policy, by reason", "空闲但策略不处理的、按原因统计的"),
    "by_brake": ("by brake", "按阻止原因统计的"),
    "by_code": ("by code", "按代码统计的"),
    "by_reason": ("waiting for a node, by reason", "等待节点的、按原因统计的"),
    "registered": ("registered with the scheduler or the kubelet", "已向调度器或 kubelet 注册的"),
    "usable": ("open to new allocations", "可接受新分配的"),
    "lost": ("closed to new allocations", "不接受新分配的"),
    "allocated": ("allocated", "已分配的"),
    "free": ("free for a request", "可供申请的"),
    "free_on_one": ("free for a request on the node with most of them", "空闲最多的节点上可供申请的"),
    "stranded": ("free, but of use to no request", "空闲但无法满足任何申请的"),
    "over_committed": ("allocated beyond what their GPU registers", "超出所在 GPU 注册量而分配的"),
    "mig_only": ("free if a MIG placement allows it", "空闲但取决于 MIG 布局的"),
    "whole": ("free on GPUs without a holder", "位于无持有者的 GPU 上的空闲"),
    "up": ("that answer", "有应答的"),
    "down": ("that should answer and do not", "应答失败的"),
    "changed": ("that changed", "有变化的"),
    "bound": ("bound to a node", "已绑定到节点的"),
    "failed": ("that failed", "失败的"),
    "failed_by_code": (
        "that failed, by code; one with several codes counts for each",
        "失败的、按代码统计的（有多个代码的计入每个代码）",
    ),
    "not_bound": ("that failed to bind the pod or to allocate its devices", "绑定 Pod 或分配设备失败的"),
    "delivered": ("delivered", "已送达的"),
    "refused": ("refused", "被拒绝的"),
    "orphaned": ("whose pod no longer exists", "Pod 已不存在的"),
    "disputed": ("claimed without an assignment", "未分配却被声明的"),
    "claimed": ("that annotations claim and no pod holds", "仅由注解声称、无人持有的"),
    "labelled": ("that a label of the node counts", "由节点标签计数的"),
    "fitting": ("that fit", "能放下的"),
    "missing": ("missing", "缺少的"),
    "omitted": ("not listed", "未列出的"),
    "dropped": ("dropped as impossible", "因数值不可能而被丢弃的"),
    "expected": ("expected", "应有的"),
    "corrected": ("corrected", "已纠正的"),
    "uncorrected": ("not corrected", "未纠正的"),
    "pcie": ("of PCIe packets, which were sent again", "PCIe 数据包重传的"),
    "idle_windows": ("in a row with the verdict idle", "连续判定为空闲的"),
    "turned_idle": ("that turned idle at once", "同时变为空闲的"),
    "false_alarm": ("after which the workload was soon busy again", "之后工作负载很快恢复工作的"),
    "busy_later": ("after which the workload was busy again later", "之后工作负载较晚恢复工作的"),
    "ended": ("that ended", "已结束的"),
    "still_idle": ("after which the workload stayed idle", "之后工作负载一直空闲的"),
    "needs_attention": ("that need attention", "需要关注的"),
    "unsaved": ("not saved yet", "尚未保存的"),
    "ignored": ("without series because a limit is reached or a device is unknown", "因达到上限或设备未知而没有序列的"),
    "kept": ("kept in the log", "保留在记录中的"),
    "assumed": ("assigned, and not yet confirmed by the watch", "已分配但尚未由 watch 确认的"),
    "unsettled": ("whose assignment must still be cleared", "分配仍需清除的"),
    "queued": ("waiting for their turn", "排队等待的"),
    "unplaced": ("that belong to no single node", "不属于任何单个节点的"),
    "faulty": ("that could not be read completely", "无法完整读取的"),
    "found": ("that match search and filters", "符合搜索与筛选条件的"),
    "by_value": ("by value of a column", "按某列的值统计的"),
    "in_use_with_idle": ("in use, with at least one idle tenant", "使用中但至少有一个租户空闲的"),
    "of_group_by_class": ("by group of the map and class", "按地图分组与类别统计的"),
    "with_idle": ("with at least one idle tenant", "至少有一个租户空闲的"),
    "equal": ("with the same outcome for the same pod", "对同一 Pod 结果相同的"),
}
TIMES: dict[TimeBasis, Pair] = {
    "now": ("now", "当前值"),
    "window_mean": ("mean over the window of the analysis", "分析窗口内的平均值"),
    "window_p95": ("95th percentile of the window of the analysis", "分析窗口内的第 95 百分位数"),
    "window_peak": ("highest sample in the window of the analysis", "分析窗口内的最大值"),
    "window_sum": ("in the window of the analysis", "分析窗口内的数量"),
    "agent_mean": ("mean over the agent's window", "agent 窗口内的平均值"),
    "agent_peak": ("highest sample in the agent's window", "agent 窗口内的最大值"),
    "step_mean": ("mean over one step", "一个时间步内的平均值"),
    "step_peak": ("highest value in one step", "一个时间步内的最大值"),
    "step_low": ("lowest value in one step", "一个时间步内的最小值"),
    "step_integral": ("added up over one step", "一个时间步内的累计值"),
    "integral": ("over the chosen range", "所选时间范围内"),
    "range_mean": ("mean over the analysed time of the chosen range", "所选时间范围内已分析时间的平均值"),
    "day_integral": ("over the last 24 hours", "最近 24 小时内"),
    "day_ago": ("24 hours earlier", "24 小时前的值"),
    "since_start": ("since the process started", "自进程启动起累计"),
    "since_boot": ("since the driver, the container or the node started", "自驱动、容器或节点启动起累计"),
    "once": ("", ""),
}
QUANTITIES: dict[str, Pair] = {
    "score": ("Score, 0 to 100 by the configured weights", "评分（按配置的权重，0 到 100）"),
    "score_lowest": ("Lowest score", "最低评分"),
    "score_highest": ("Highest score", "最高评分"),
    "confidence": ("Measured share of the score's weights, times coverage", "已测量的评分权重占比乘以覆盖率"),
    "coverage": ("Samples of the deciding signal, as a share of those expected", "决定性信号的样本占应有样本的比例"),
    "use": ("Use by the best available signal", "最佳可用信号的使用率"),
    "own_use": ("Own share of the GPU's time", "自身占用 GPU 时间的比例"),
    "own_use_sum": ("Own share of the GPU's time, containers added up", "各容器占用 GPU 时间的比例之和"),
    "busiest_use": ("Own share of the GPU's time, of the busiest tenant", "最繁忙租户自身占用 GPU 时间的比例"),
    "instance_use": ("Own share of the MIG instance's time", "自身占用 MIG 实例时间的比例"),
    "utilization": ("Share of time in which at least one kernel ran", "至少有一个 CUDA kernel 在运行的时间占比"),
    "sm_active": ("Share of SMs that were busy", "繁忙 SM 的占比"),
    "sm_occupancy": ("Resident warps, as a share of the most possible", "驻留 warp 占上限的比例"),
    "engine_active": ("Share of time in which a compute or graphics engine was busy", "计算或图形引擎的繁忙时间占比"),
    "tensor_active": ("Share of cycles of the tensor pipes", "tensor 流水线的周期占比"),
    "fp64_active": ("Share of cycles of the FP64 pipes", "FP64 流水线的周期占比"),
    "fp32_active": ("Share of cycles of the FP32 pipes", "FP32 流水线的周期占比"),
    "fp16_active": ("Share of cycles of the FP16 pipes", "FP16 流水线的周期占比"),
    "dram_active": ("Share of the memory bandwidth in use", "显存带宽使用占比"),
    "memory_traffic": ("Share of time in which GPU memory was read or written", "显存读写的时间占比"),
    "encoder": ("Share of time of the video encoder", "视频编码器的繁忙时间占比"),
    "decoder": ("Share of time of the video decoder", "视频解码器的繁忙时间占比"),
    "jpeg": ("Share of time of the JPEG engine", "JPEG 引擎的繁忙时间占比"),
    "ofa": ("Share of time of the optical flow engine", "光流引擎的繁忙时间占比"),
    "memory_total": ("GPU memory", "显存总量"),
    "memory_used": ("GPU memory in use", "显存使用量"),
    "memory_used_reserved": ("GPU memory in use, with what the driver reserves", "显存使用量（含驱动保留部分）"),
    "memory_free": ("Free GPU memory", "空闲显存"),
    "memory_reserved": ("GPU memory that the driver reserves", "驱动保留的显存"),
    "memory_unattributed": ("GPU memory in use by no known container", "不属于任何已知容器的显存使用量"),
    "memory_used_share": ("GPU memory in use, as a share of the GPU's memory", "显存使用量占总量的比例"),
    "memory_ledger": ("One part of the GPU memory", "显存的一部分"),
    "memory_claimed": (
        "GPU memory that annotations claim and no pod holds",
        "仅由注解声称、无人持有的显存",
    ),
    "memory_requested": (
        "GPU memory of the GPUs and MIG instances that pods request and only the kubelet counts",
        "只由 kubelet 计数、Pod 所申请的 GPU 与 MIG 实例的显存",
    ),
    "memory_counted": (
        "GPU memory of the GPUs and MIG instances that only the kubelet counts",
        "只由 kubelet 计数的 GPU 与 MIG 实例的显存",
    ),
    "gpu_shares": (
        "GPUs by class, each divided among its MIG instances and tenants",
        "按类别统计的 GPU 数，每张按其 MIG 实例和租户分摊",
    ),
    "memory_allocated": ("GPU memory that the scheduler allocated", "调度器分配的显存"),
    "memory_allocated_share": (
        "GPU memory that the scheduler allocated, as a share of what is registered",
        "调度器分配的显存占注册显存的比例",
    ),
    "memory_limit_share": ("GPU memory in use, as a share of the limit", "显存使用量占上限的比例"),
    "memory_ledger_share": ("One part of the GPU memory, as a share of all", "显存的一部分占总量的比例"),
    "kernel_age": ("Time since it last started a CUDA kernel", "距最近一次启动 CUDA kernel 的时间"),
    "memory_capacity": ("GPU memory registered with the scheduler, perhaps scaled", "向调度器注册的显存（可能超分）"),
    "memory_limit": ("GPU memory limit that is enforced", "强制执行的显存上限"),
    "memory_of": ("GPU memory", "显存"),
    "cores_of": ("Compute, 100 for a whole GPU,", "算力（整卡为 100）"),
    "cores_allocated": (
        "Compute that the scheduler allocated, 100 % for a whole GPU",
        "调度器分配的算力（整卡为 100%）",
    ),
    "cores_allocated_share": (
        "Compute that the scheduler allocated, as a share of what is registered",
        "调度器分配的算力占注册算力的比例",
    ),
    "cores_capacity": (
        "Compute registered with the scheduler, 100 % for a whole GPU",
        "向调度器注册的算力（整卡为 100%）",
    ),
    "cores_limit": ("Compute limit that is enforced, 100 % for a whole GPU", "强制执行的算力上限（整卡为 100%）"),
    "profile_memory": ("GPU memory of a MIG profile", "MIG 规格的显存"),
    "profile_cores": ("Compute of a MIG profile, 100 % for a whole GPU", "MIG 规格的算力（整卡为 100%）"),
    "largest_memory": (
        "Most memory of one GPU or MIG instance that a request still gets, registered with HAMi or counted by kubelets",
        "一次申请仍能获得的单张 GPU 或单个 MIG 实例的最大显存（HAMi 注册或 kubelet 计数）",
    ),
    "largest_memory_registered": (
        "Largest request for memory of one GPU registered with HAMi that still fits",
        "HAMi 注册的单张 GPU 上仍能满足的最大显存申请",
    ),
    "memory_free_counted": (
        "GPU memory that new pods can get, of GPUs or MIG instances that kubelets only count",
        "仅由 kubelet 计数的 GPU 或 MIG 实例中新 Pod 可获得的显存",
    ),
    "largest_cores": ("Largest request for compute of one GPU that still fits", "单张 GPU 上仍能满足的最大算力申请"),
    "whole_gpus": (
        "Most whole GPUs that one pod can still get of one resource, registered with HAMi or counted by the kubelet",
        "单个 Pod 仍可获得的同一资源的整卡数量上限（HAMi 注册或 kubelet 计数）",
    ),
    "whole_gpus_registered": (
        "Most whole GPUs registered with HAMi that one pod can still get",
        "单个 Pod 仍可获得的、HAMi 注册的整卡数量上限",
    ),
    "fragmentation": ("Share of the free memory that is on GPUs with a holder", "位于部分已分配 GPU 上的空闲显存占比"),
    "power": ("Power draw", "功耗"),
    "own_power": ("Own part of the GPU's power draw", "GPU 功耗中自身的部分"),
    "power_limit": ("Enforced power limit", "强制执行的功耗上限"),
    "power_limit_max": ("Highest power limit that can be set", "可设置的最高功耗上限"),
    "power_share": ("Power draw, as a share of the power limit", "功耗占功耗上限的比例"),
    "energy": ("Energy", "能耗"),
    "energy_ledger": ("One part of the energy", "能耗的一部分"),
    "busy_seconds": ("Busy time", "繁忙时间"),
    "busy_ledger": ("One part of the busy time", "繁忙时间的一部分"),
    "temperature": ("Core temperature", "核心温度"),
    "memory_temperature": ("Memory temperature", "显存温度"),
    "sm_clock": ("SM clock", "SM 时钟频率"),
    "sm_clock_limit": ("Highest SM clock", "SM 时钟频率上限"),
    "memory_clock": ("Memory clock", "显存时钟频率"),
    "memory_clock_limit": ("Highest memory clock", "显存时钟频率上限"),
    "fan": ("Intended fan speed", "风扇目标转速"),
    "pcie_sent": ("PCIe traffic from the GPU", "GPU 发出的 PCIe 流量"),
    "pcie_received": ("PCIe traffic to the GPU", "GPU 接收的 PCIe 流量"),
    "pcie_traffic": ("PCIe traffic in the busier direction", "较繁忙方向的 PCIe 流量"),
    "nvlink_sent": ("NVLink traffic from the GPU", "GPU 发出的 NVLink 流量"),
    "nvlink_received": ("NVLink traffic to the GPU", "GPU 接收的 NVLink 流量"),
    "gpu_hours": ("GPU-hours that were analysed", "已分析的 GPU 小时"),
    "held_gpu_hours": ("GPU-hours in which a pod held the GPU", "GPU 被 Pod 占用的 GPU 小时"),
    "free_part_gpu_hours": (
        "Held GPU-hours of shared GPUs beyond the shares of their tenants",
        "共享 GPU 的占用 GPU 小时中超出其租户份额的部分",
    ),
    "unallocated_gpu_hours": ("GPU-hours in which no pod held the GPU", "没有 Pod 占用 GPU 的 GPU 小时"),
    "idle_gpu_hours": ("GPU-hours held and idle", "占用且空闲的 GPU 小时"),
    "in_use_gpu_hours": ("GPU-hours held and in use", "占用且使用中的 GPU 小时"),
    "unknown_gpu_hours": ("GPU-hours of which too little is known", "数据不足、无法判定的 GPU 小时"),
    "freed_gpu_hours": (
        "GPU-hours that the policy would have freed, known to be idle",
        "策略本可节省的、已知空闲的 GPU 小时",
    ),
    "idle_share": ("Idle GPU-hours, as a share of the GPU-hours held", "空闲 GPU 小时占持有 GPU 小时的比例"),
    "idle_seconds": ("Time for which the verdict has been idle", "判定为空闲以来的时间"),
    "analysed_seconds": ("Time that the analyses represent", "分析所代表的时间"),
    "held_seconds": ("Time in which a pod held the GPU", "Pod 占用 GPU 的时间"),
    "status_seconds": ("Time by status", "按状态统计的时间"),
    "verdict_seconds": ("Time by verdict", "按判定统计的时间"),
    "class_seconds": ("Time by class", "按类别统计的时间"),
    "sample_age": ("Age of the last sample", "最近样本的年龄"),
    "sample_interval": ("Time between two samples of the deciding signal", "决定性信号两个样本之间的时间"),
    "longest_gap": ("Longest gap between samples of the deciding signal", "决定性信号样本之间的最长间隔"),
    "signal": ("Signal that decided the verdict", "决定判定结果的信号"),
    "other_signal": ("Besides the deciding signal, the term that shows most work", "决定性信号之外最能体现工作的指标"),
    "term": ("Measured term, in its own unit", "一个测量项，按其自身单位"),
    "score_term": ("Term of the score, as a share of its reference", "评分的一项，占其参考值的比例"),
    "score_points": ("Points that a term adds to the score", "一个测量项贡献的评分"),
    "opinion_confidence": ("Confidence of the language model in its opinion", "语言模型对其意见的置信度"),
    "opinion_score": ("Score as the language model estimates it, 0 to 100", "语言模型估计的评分（0 到 100）"),
    "quota_used": (
        "Amount of the resource allocated to pods, in the resource's unit",
        "已分配给 Pod 的资源量（按资源单位）",
    ),
    "quota_limit": ("Lowest limit for the resource, in the resource's unit", "该资源的最低上限（按资源单位）"),
    "quota_share": ("Amount allocated, as a share of the limit", "已分配量占上限的比例"),
    "quota_needed": ("Limit that would be needed, in the resource's unit", "所需的上限（按资源单位）"),
    "waited": ("Waiting time", "等待时间"),
    "longest_wait": ("Longest waiting time", "最长等待时间"),
    "requested": ("Amounts requested, in the resources' own units", "申请量（按资源单位）"),
    "asked_memory": ("Requested memory of each GPU", "每张 GPU 申请的显存"),
    "asked_memory_share": ("Requested share of each GPU's memory", "每张 GPU 申请的显存比例"),
    "asked_cores": ("Requested compute of each GPU", "每张 GPU 申请的算力"),
    "lacking_memory": ("Memory that is missing on the GPU that comes closest", "最接近的 GPU 上缺少的显存"),
    "lacking_cores": ("Compute that is missing on the GPU that comes closest", "最接近的 GPU 上缺少的算力"),
    "remedy": ("Amount with which the pod fits: MiB, percent or GPUs", "能放下的申请量：MiB、百分比或 GPU 数"),
    "stage": ("Duration of a stage of scheduling", "调度阶段的耗时"),
    "stage_mean": ("Mean duration of a stage of scheduling", "调度阶段的平均耗时"),
    "stage_p50": ("Median duration of a stage of scheduling", "调度阶段耗时的中位数"),
    "stage_p95": ("95th percentile of the duration of a stage of scheduling", "调度阶段耗时的第 95 百分位数"),
    "stage_p99": ("99th percentile of the duration of a stage of scheduling", "调度阶段耗时的第 99 百分位数"),
    "node_score": ("Score of the node by the scheduling policy", "按调度策略得出的节点得分"),
    "node_score_term": ("Term of the node's score", "节点得分的一项"),
    "duration": ("Duration", "耗时"),
    "analysis_duration": ("Duration of the last analysis", "最近一次分析的耗时"),
    "read_duration": ("Duration of the last read", "最近一次读取的耗时"),
    "sample_duration": ("Duration of the last sample", "最近一次采样的耗时"),
    "checks_duration": ("Duration of all checks", "全部检查的耗时"),
    "decision_age": ("Time since the decision", "决策距今的时间"),
    "watch_age": ("Time since the last message on a watch", "watch 上最近一条消息距今的时间"),
    "age": ("Age of its values", "其数值的年龄"),
    "lease_age": ("Time since the lease was last renewed", "距上次续约的时间"),
    "memory_error": ("How far the memory in use can be off", "显存使用量的误差上限"),
    "use_error": ("How far the share of the GPU's time can be off", "GPU 时间占比的误差上限"),
    "error_bound": ("How far the figure can be off, in its own unit", "该数字的误差上限，按其自身单位"),
    "hami_memory_used": ("GPU memory in use by HAMi's own accounting", "HAMi 自行统计的显存使用量"),
    "hami_memory_limit": ("HAMi's memory limit", "HAMi 的显存上限"),
    "hami_context": ("GPU memory of CUDA contexts, by HAMi", "CUDA 上下文的显存（HAMi 统计）"),
    "hami_module": ("GPU memory of loaded modules, by HAMi", "已加载模块的显存（HAMi 统计）"),
    "hami_buffer": ("GPU memory that the application allocated, by HAMi", "应用申请的显存（HAMi 统计）"),
    "hami_offset": ("GPU memory that HAMi adds by its own rule", "HAMi 按自身规则附加的显存"),
    "hami_use": ("SM use of its processes by HAMi's library", "HAMi 库统计的进程 SM 使用率"),
    "hami_use_limit": ("HAMi's SM limit", "HAMi 的 SM 上限"),
    "last_kernel_age": ("Time since the last CUDA kernel", "距最近一次 CUDA kernel 的时间"),
    "host_cpu": ("CPU cores in use on the node", "在节点上使用的 CPU 核数"),
    "host_cpu_seconds": ("CPU time on the node", "在节点上使用的 CPU 时间"),
    "host_cpu_limit": ("CPU limit in cores", "CPU 核数上限"),
    "host_periods": ("Periods in which the CPU limit applied", "CPU 上限生效的调度周期数"),
    "host_throttled_periods": ("Periods in which the CPU limit stopped the container", "因 CPU 上限而暂停的调度周期数"),
    "host_throttled_seconds": ("Time for which the CPU limit stopped tasks", "因 CPU 上限而暂停的时间"),
    "host_throttled": ("Share of periods in which the CPU limit stopped it", "因 CPU 上限而暂停的调度周期占比"),
    "host_memory": (
        "Main memory without page cache that the kernel can take back at once",
        "内存使用量（不含可立即回收的页缓存）",
    ),
    "host_memory_cached": ("Main memory with page cache", "内存使用量（含页缓存）"),
    "host_memory_limit": ("Main memory limit", "内存上限"),
    "host_read": (
        "Data read from block devices, not from network file systems",
        "从块设备读取的数据（不含网络文件系统）",
    ),
    "host_written": ("Data written to block devices", "写入块设备的数据"),
    "host_received": ("Data received from the network, without loopback", "从网络接收的数据（不含回环接口）"),
    "host_sent": ("Data sent to the network, without loopback", "发送到网络的数据（不含回环接口）"),
    "node_cpu": ("Share of all CPUs that is neither idle nor waiting for a disk", "既不空闲也不等待磁盘的 CPU 占比"),
    "node_cpu_seconds": ("CPU time by kind, all CPUs together", "按种类统计的 CPU 时间（全部 CPU 合计）"),
    "node_iowait": ("Share of CPU time idle while a task waited for a disk", "CPU 空闲且有任务等待磁盘的时间占比"),
    "node_memory_total": ("Main memory", "内存总量"),
    "node_memory_used": (
        "Main memory that new programs cannot get without swapping",
        "新程序不换页无法获得的内存",
    ),
    "node_memory_available": ("Main memory that new programs can get without swapping", "新程序不换页即可获得的内存"),
    "load": (
        "Mean number of tasks that run, wait for a CPU or wait for a disk, by minutes",
        "正在运行、等待 CPU 或等待磁盘的任务平均数（按分钟）",
    ),
    "resident_memory": ("Resident memory", "常驻内存"),
    "log_bytes": ("Estimated memory of the log", "记录占用的内存（估计）"),
    "sign_of_use": ("Sign of use beyond the GPU, in its own unit", "GPU 之外的使用迹象，按其自身单位"),
    "past_coverage": ("Share of the span that is known", "时间段中已知部分的比例"),
    "known_seconds": ("Time of the span that is known", "时间段中已知部分的时长"),
    "span_seconds": ("Length of the span", "时间段的时长"),
    "progress": ("Share that is done", "已完成的比例"),
}
# How one value is made from many: mean, sum, or by the quantity itself.
_MEANS = {"use", "own_use", "score"}
_OWN = {
    *("score_lowest", "score_highest", "memory_allocated_share", "cores_allocated_share", "idle_share", "busiest_use"),
    *("longest_wait", "stage", "stage_mean", "stage_p50", "stage_p95", "stage_p99", "log_bytes"),
    *("own_use_sum", "duration", "memory_limit_share"),
}
_OF_POPULATION: dict[Population, Words] = {
    "gpus": Words(" A GPU divided by MIG counts once.", "被 MIG 切分的 GPU 只计一次。"),
    "gpus_or_instances": Words(" A GPU divided by MIG counts as its instances.", "被 MIG 切分的 GPU 按其实例计数。"),
    "tenants": Words(" A tenant is a container on a GPU or MIG instance.", "租户是 GPU 或 MIG 实例上的一个容器。"),
}
_PARTS = Words(" All parts add up to the total.", "各部分之和等于总量。")
_BREAKER = Words(" Counted when the circuit breaker opened.", "熔断器断开时的数量。")
_BY_TIME = Words(
    " Each GPU or pod counts for the time in which it was there; instances of a GPU together count as the GPU.",
    "每个 GPU 或 Pod 按其存在的时间加权；同一 GPU 的实例合计为一张 GPU。",
)
_KERNEL_TIME = Words(
    " A kernel on few SMs takes all of the time: beside a GPU's use by SM activity it can be higher. Tenants together "
    "have at most the time in which kernels ran on the GPU.",
    "只占用少量 SM 的 kernel 也计入全部时间：因此可高于以 SM 活跃度衡量的 GPU 使用率。"
    "各租户合计不超过 GPU 上有 kernel 运行的时间。",
)
_AT_ONCE = Words(
    " The sum over its GPUs or pods at the same time: a pod that was there for a sixth of the analysed time counts as "
    "one sixth. Time without an analysis is not counted.",
    "对同一时刻的 GPU 或 Pod 求和：只在六分之一的已分析时间内存在的 Pod 计为六分之一。没有分析的时间不计入。",
)
_OF_ONE = Words(
    " Only of one GPU or of one pod on one GPU: peaks of several need not be at the same moment.",
    "仅限单张 GPU 或单张 GPU 上的单个 Pod：多个对象的峰值不一定同时出现。",
)
_REGISTERED = Words(
    " Of GPUs registered with HAMi: where kubelets only count GPUs, those that are allocated are not known.",
    "仅统计向 HAMi 注册的 GPU：由 kubelet 计数的 GPU 不知道分配了哪一张。",
)
_SINCE = Words(
    " The time before a tenant came, and after it left, does not count: all tenants together can be above the GPU.",
    "租户到来之前和离开之后的时间不计入：各租户之和可超过 GPU 的数值。",
)
_PART_OF_THE_WINDOW = Words(
    " A tenant that was there for a sixth of the window counts as one sixth: together they draw no more than the GPU.",
    "只在六分之一的窗口内存在的租户计为六分之一，因此各租户之和不会超过 GPU 的功率。",
)
_REMARKS: dict[str, Words] = {
    "tenant.power": _SINCE,
    "workload.power": _PART_OF_THE_WINDOW,
    "namespace.power": _PART_OF_THE_WINDOW,
    "tenant.memory_used": _SINCE,
    "workload.memory_used": _SINCE,
    "namespace.memory_used": _SINCE,
    "gpu.memory_ledger": _PARTS,
    "gpu.energy_ledger": _PARTS,
    "gpu.busy_ledger": _PARTS,
    "fleet.turned_idle": _BREAKER,
    "fleet.breaker_workloads": _BREAKER,
    "fleet.waste_rows": Words(" A row is a tenant or a group of tenants.", "一行是一个租户或一组租户。"),
    "judged.steady_for": Words(" All in a row with the same finding.", "这些分析连续得出同一结论。"),
    "node.scaled_ledgers": Words(
        " Rows of a ledger that were scaled down to the total of their GPU.", "指账本中按 GPU 总量按比例缩小的行。"
    ),
    "tenant.host_throttled": Words(" Unknown without a CPU limit.", "没有 CPU 上限时未知。"),
    "tenant.hami_use": Words(" All tenants together can be above 1.", "全部租户合计可超过 1。"),
    "fleet.low_or_idle": Words(
        " A row is a GPU or MIG instance, or a tenant of a shared GPU.", "一行是 GPU 或 MIG 实例，或共享 GPU 上的租户。"
    ),
    "fleet.power": Words(
        " As the drivers report it; a GPU that no exporter reports is not in it.",
        "由驱动上报；没有 exporter 上报的 GPU 不计入。",
    ),
    "gpu.power": Words(
        " The driver measures the whole GPU: for a MIG instance it is the power of its GPU.",
        "驱动只测量整张 GPU：MIG 实例显示的是其所在 GPU 的功耗。",
    ),
    "gpu.power_limit": Words(" For a MIG instance it is the limit of its GPU.", "MIG 实例显示的是其所在 GPU 的上限。"),
    "fleet.gpus_healthy": Words(
        " A GPU that no exporter reports has no known fault.", "没有 exporter 上报的 GPU 视为没有已知故障。"
    ),
    "fleet.memory_allocated": Words(_REGISTERED.en, _REGISTERED.zh),
    "node.memory_allocated": Words(
        _REGISTERED.en + " GPUs out of service count too.", _REGISTERED.zh + "已停止服务的 GPU 也计入。"
    ),
    "gpu.use": Words(" The signal is the one that decided the verdict.", "该信号即决定判定结果的信号。"),
    "namespace.gpus_or_instances": Words(
        " A shared GPU counts in the namespace of each of its tenants.", "共享 GPU 在其每个租户的命名空间中各计一次。"
    ),
    "namespace.gpus": Words(
        " A shared GPU counts in the namespace of each of its tenants.", "共享 GPU 在其每个租户的命名空间中各计一次。"
    ),
    "namespace.low": Words(" One tenant of the namespace there suffices.", "该命名空间有一个这样的租户即计入。"),
    "namespace.idle": Words(" All tenants of the namespace there are idle.", "该命名空间在其上的租户全部空闲才计入。"),
    "workload.memory_max": Words(
        " The peaks of several tenants need not be at the same moment.", "多个租户的峰值不一定同时出现。"
    ),
    "fleet.idle_gpu_hours_day": Words(
        " Tenants of a shared GPU have their shares of its time.", "共享 GPU 的租户按份额计算。"
    ),
    "gpu.memory_allocated_ratio": Words(" Above 100 %: over-committed.", "超过 100% 表示超分。"),
    "fleet.memory_ratio": Words(" Above 100 % with memory scaling.", "启用显存超分时可超过 100%。"),
    "capacity.gpus_registered": Words(
        " Kubelets do not count the GPU of MIG instances: the instances are counted apart.",
        "kubelet 不计 MIG 实例所在的 GPU：实例另行计数。",
    ),
    "capacity.memory_stranded": Words(" Its GPU has no slot or no compute left.", "其所在 GPU 的份数或算力已用尽。"),
    "tenant.use": Words(
        _KERNEL_TIME.en + " Unknown if only the whole GPU is measured.", _KERNEL_TIME.zh + "只能测量整张 GPU 时未知。"
    ),
    "workload.use": _KERNEL_TIME,
    "namespace.use": _KERNEL_TIME,
    "tenant.host_cpu": Words(
        " A busy CPU beside an idle GPU means that data are prepared.", "GPU 空闲而 CPU 繁忙，说明正在准备数据。"
    ),
    "fleet.by_class": Words(
        " An idle GPU that no pod holds has the class unallocated.", "未被 Pod 占用的空闲 GPU 属于“未分配”类别。"
    ),
    "fleet.nodes": Words(" Nodes whose GPUs are known only by number count too.", "仅知道 GPU 数量的节点也计入。"),
    "fleet.namespaces": Words(
        " Namespaces with tenants, waiting pods, quotas, or GPU-hours in the last 24 hours.",
        "包括有租户、等待中的 Pod、配额，或最近 24 小时有 GPU 小时的命名空间。",
    ),
    "chart.by_class": Words(
        " A GPU that was there for half of the analysed time of the step counts as one half. All classes add up to the "
        "GPUs; grouped by namespace or owner, to the GPUs held.",
        "一个时间步的已分析时间内只有一半时间存在的 GPU 计为 0.5。"
        "各类别之和等于 GPU 数；按命名空间或所有者分组时等于被占用的 GPU 数。",
    ),
    "chart.use": Words(
        _BY_TIME.en + " Of pods, it is their own share of the GPU's time.",
        _BY_TIME.zh + "Pod 的使用率为其自身占用 GPU 时间的比例。",
    ),
    "chart.cores_allocated": _BY_TIME,
    "chart.score": _BY_TIME,
    "chart.memory_used": _AT_ONCE,
    "chart.memory_allocated": Words(
        _AT_ONCE.en + " A pod that is assigned and has not run yet is not in it.",
        _AT_ONCE.zh + "已指派而尚未运行的 Pod 不计入。",
    ),
    "chart.power": _AT_ONCE,
    "chart.memory_max": _OF_ONE,
    "chart.power_max": _OF_ONE,
    "chart.use_max": Words(" The highest of its GPUs or pods.", "取其中 GPU 或 Pod 的最大值。"),
    "chart.energy": Words(" Time without an analysis is not counted.", "没有分析的时间不计入。"),
    "waste.memory_held": Words(
        " A pod that was there for a part of that time counts for that part.",
        "只在部分时间存在的 Pod 按该部分时间计入。",
    ),
}


def text_of(figure: Figure) -> Words:
    """The definition in one or two sentences, the subject or what is counted first."""
    subject, where, whose = SUBJECTS[figure.subject]
    population = Words(*POPULATIONS[figure.population])
    condition = Words(*CONDITIONS[figure.condition])
    time = Words(*TIMES[figure.time])
    which = f" {condition.en}" if condition.en else ""
    remark = _REMARKS.get(figure.code, NO_WORDS)
    if figure.quantity == "count":
        current = "当前" if figure.time == "now" else ""
        later = "" if figure.time == "now" else _after("，", time.zh)
        return _spaced(
            Words(
                f"{_first(population.en)} of {subject}{which}{_after(', ', time.en)}.",
                f"{current}{where}{condition.zh}{population.zh}数{later}。",
            )
            + _OF_POPULATION.get(figure.population, NO_WORDS)
            + remark
        )
    quantity = Words(*QUANTITIES[figure.quantity])
    if quantity.en[1].islower():
        quantity = Words(quantity.en[0].lower() + quantity.en[1:], quantity.zh)
    if figure.quantity.endswith("_of"):
        what = Words(f"{quantity.en}{which}", f"{condition.zh}{quantity.zh}")
    elif figure.population == "one" or figure.quantity in _OWN:
        what = quantity
    else:
        mean = figure.quantity in _MEANS
        what = Words(
            f"{quantity.en}, {'averaged' if mean else 'added up'} over its {population.en}{which}",
            f"{quantity.zh}，{'取' if mean else '对'}{condition.zh}{population.zh}{'的平均' if mean else '求和'}",
        )
    text = Words(
        f"{_first(subject)}: {what.en}{_after('; ', time.en)}.", f"{whose}：{what.zh}{_after('，', time.zh)}。"
    )
    return _spaced(text + remark)


def name_of(figure: Figure) -> Words:
    """A short name: what is counted or measured."""
    if figure.quantity != "count":
        return Words(*QUANTITIES[figure.quantity])
    population, condition = POPULATIONS[figure.population], CONDITIONS[figure.condition]
    return _spaced(Words(_first(f"{population[0]} {condition[0]}".strip()), f"{condition[1]}{population[1]}数"))


@cache
def definitions() -> Definitions:
    """Every figure and every metric, for the API."""
    return Definitions(
        definitions=tuple(
            Definition(
                code=figure.code,
                subject=figure.subject,
                population=figure.population,
                condition=figure.condition,
                quantity=figure.quantity,
                unit=figure.unit,
                time=figure.time,
                name=name_of(figure),
                text=text_of(figure),
                fields=figure.fields,
                metrics=figure.metrics,
                columns=figure.columns,
            )
            for figure in FIGURES
        ),
        metrics=tuple(_metrics((agent.METRICS, cluster.METRICS, analyzer.METRICS, extender.METRICS, plugin.METRICS))),
    )


def field_notes(struct: str, field: str) -> dict[str, Any]:
    """What the OpenAPI document says of a field that is a figure; empty for all others."""
    found = figures_of_field(struct, field)
    if not found:
        return {}
    if "" in found:
        return {"description": text_of(found[""]).en, "x-figure": found[""].code}
    lines = [f"{part}: {text_of(figure).en}" for part, figure in found.items()]
    return {"description": "\n".join(lines), "x-figures": {part: figure.code for part, figure in found.items()}}


def _metrics(services: Iterable[Iterable[Metric]]) -> Iterable[MetricDefinition]:
    known = {metric.name: metric for metrics in services for metric in metrics}  # some are exported by several services
    for name, metric in sorted(known.items()):
        figure = figure_of_metric(metric)
        yield MetricDefinition(
            name=name,
            figure=None if figure.code == name else figure.code,
            subject=figure.subject,
            population=figure.population,
            quantity=figure.quantity,
            unit=metric.unit,
            time=figure.time,
        )


def _after(mark: str, text: str) -> str:
    return f"{mark}{text}" if text else ""


def _first(text: str) -> str:
    return text[0].upper() + text[1:]


_LATIN = re.compile(r"(?<=[\u4e00-\u9fff])(?=[A-Za-z0-9])|(?<=[A-Za-z0-9])(?=[\u4e00-\u9fff])")


def _spaced(words: Words) -> Words:
    """A space between Chinese characters and Latin words, as everywhere else."""
    return Words(words.en, _LATIN.sub(" ", words.zh))
