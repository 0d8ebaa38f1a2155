"""What the auditor says, in English and Chinese."""

from vgpuscope.model.consistency import Rule, SkipReason
from vgpuscope.views.languages import Pair

RULES: dict[str, Pair] = {  # code of a check → its rule
    "same": (
        "One figure of one thing is the same number in every answer, table, metric and command.",
        "同一对象的同一数字在所有应答、表格、指标和命令中相同。",
    ),
    "rows": (
        "A count, amount or mean is that of the rows in the list it belongs to.",
        "计数、合计或平均值与其列表中的行一致。",
    ),
    "sums": (
        "The fleet is the sum of its nodes, and its tenants are the sum over namespaces.",
        "总体等于各节点之和，租户总数等于各命名空间之和。",
    ),
    "divisions": (
        "The numbers by class, verdict, status, state or reason add up to their total.",
        "按类别、判定、状态或原因划分的数字之和等于总数。",
    ),
    "parts": (
        "A part is never larger than its whole, a share never above 1, a mean never above what p95 and peak allow.",
        "部分不大于整体，占比不超过 1，平均值不超过 p95 与峰值所允许的值。",
    ),
    "narrowed": (
        "A view of one namespace never counts more than the view of everything.",
        "单个命名空间视图的数字不大于全部视图的数字。",
    ),
    "scope": (
        "A view of some namespaces names no other one, and its GPU-hours are those of their pods.",
        "部分命名空间的视图不出现其他命名空间，其 GPU 小时即这些命名空间中 Pod 的 GPU 小时。",
    ),
    "waste-hours": (
        "GPU-hours are held or unallocated; held ones are idle, in use, unknown, or free parts of shared GPUs.",
        "GPU 小时分为占用与未分配；占用的小时分为空闲、使用中、未知与共享 GPU 的空闲部分。",
    ),
    "waste-rows": (
        "The rows of idle GPU-hours add up to the totals above them.",
        "空闲 GPU 小时各行之和等于其上方的总数。",
    ),
    "waste-groups": (
        "The totals do not depend on the grouping, and a group holds no less than its members.",
        "总数与分组方式无关，分组占用的资源不少于其成员。",
    ),
    "steps": (
        "The mean of a long step is that of its short steps, weighted by the time measured, and never above the peak.",
        "长时间步的平均值等于其中各短时间步按测量时长加权的平均值，且不超过峰值。",
    ),
    "energies": (
        "The energy of a step is its mean power times its time, and the sum over the short steps in it.",
        "时间步的能耗等于其平均功率乘以时长，也等于其中各短时间步之和。",
    ),
    "classes": (
        "The GPUs by class of a long step lie between those of the short steps in it. Pods divide the GPU they share.",
        "长时间步中按类别统计的 GPU 数介于其中各短时间步之间；共享 GPU 的各 Pod 按份额计入。",
    ),
    "chart-parts": (
        "In no step of a chart does a namespace, node or pod use more than the fleet, nor do several of them together.",
        "图表的任一时间步中，命名空间、节点或 Pod 的用量及其合计均不超过总体。",
    ),
    "chart-tile": (
        "The classes of a chart add up to the GPUs that the fleet has.",
        "图表各类别之和等于总体的 GPU 数。",
    ),
    "stored": (
        "What is stored of an analysis is what was shown; hours and charts have its time, energy and peaks.",
        "存储的分析结果与所显示的一致；小时数据与图表包含其时长、能耗和峰值。",
    ),
    "seconds": (
        "A stored hour or day never stands for more seconds than it has.",
        "已存储的一小时或一天所代表的秒数不超过其长度。",
    ),
    "fits": (
        "The whole GPUs that a pod can still get include those known only by their number.",
        "Pod 仍可获得的整张 GPU 包括仅知数量的 GPU。",
    ),
    "ruled-out": (
        "What doctor says to be unknown or never found on a GPU is not shown of it elsewhere.",
        "诊断称某 GPU 上未知或不会出现的内容，其他页面也没有显示。",
    ),
    "doctors": (
        "Doctor counts the same on the command line and in the console.",
        "诊断在命令行与控制台中的计数相同。",
    ),
    "attempts": (
        "A pod has no more failed attempts than the scheduler extender has decisions against it.",
        "Pod 失败的尝试次数不超过调度器扩展拒绝它的决定数。",
    ),
    "cases": (
        "Every idle workload has a reclaim case.",
        "每个空闲的工作负载都有一个收回任务。",
    ),
    "low": (
        "What is low has a score below the threshold and a known status, or the verdict idle.",
        "低使用率的条目评分低于阈值且状态已知，或判定为空闲。",
    ),
    "populations": (
        "A list named `gpus` lists each GPU or MIG instance once, unless its definition says otherwise.",
        "名为 `gpus` 的列表对每张 GPU 或 MIG 实例只列一次，除非其定义另有说明。",
    ),
}
REASONS: dict[SkipReason, Pair] = {
    "no-answer": ("no service answered", "没有服务应答"),
    "not-shown": ("the answers do not have these numbers", "应答中没有这些数字"),
    "no-time": ("the time limit was reached", "已到时限"),
    "moving": ("the numbers changed while they were read", "读取期间数字在变化"),
    "no-weights": (
        "Prometheus does not give for how long each value was measured, and a sum is over several nodes",
        "Prometheus 不提供各数值的测量时长，且合计涉及多个节点",
    ),
    "two-sources": (
        "one chart is of Prometheus, the other of stored analyses: other samples in other windows",
        "一个图表来自 Prometheus，另一个来自存储的分析结果：样本与窗口不同",
    ),
    "other-services": (
        "the analyzer asked other services than this command, such as Prometheus in place of agents",
        "分析器与本命令询问的服务不同，例如以 Prometheus 代替代理",
    ),
}
JOINED: dict[Rule, Pair] = {  # between the first and the second number
    "equal": ("must be equal to", "应等于"),
    "at_most": ("must be at most", "应不大于"),
    "sum": ("must be the sum", "应等于其和"),
}
HEAD: Pair = (
    "vgpuscope doctor --audit: {compared} comparisons in {seconds} s, {differences} differences",
    "vgpuscope doctor --audit：{compared} 次比较，用时 {seconds} 秒，{differences} 处不一致",
)
ASKED: Pair = ("Services", "服务")
ANSWERED: Pair = ("answered", "已应答")
SILENT: Pair = ("no answer", "未应答")
TITLES: tuple[Pair, ...] = (("", ""), ("CHECK", "检查"), ("COMPARED", "比较"), ("DIFFER", "不一致"), ("RULE", "规则"))
NOT_CHECKED: Pair = ("not checked: {reason}", "未检查：{reason}")
MOVED: Pair = ("{number} not decided: {reason}", "{number} 项未定：{reason}")
MORE: Pair = ("… and {number} more of the same kind.", "……以及 {number} 处同类不一致。")
NOTHING: Pair = (
    "No two places contradict each other.",
    "没有两处数字相互矛盾。",
)
UNCHECKED: Pair = (
    "Nothing could be compared. Name the services with --analyzer, --cluster and --agent.",
    "没有可以比较的数字。请用 --analyzer、--cluster 和 --agent 指定服务。",
)
AND_MORE: Pair = ("and {number} more", "等，另有 {number} 处")
UNCOMPARED: Pair = ("Not compared", "未比较")
UNREAD: Pair = ("Not read", "未读取")
UNDECIDED: Pair = (
    "{number} differences could not be read again before the time limit; raise --deadline.",
    "{number} 处不一致在到达时限前未能复读；请增大 --deadline。",
)
READ_AGAIN: Pair = (
    "Each difference was read {rounds} times.",
    "每处不一致都读取了 {rounds} 次。",
)
