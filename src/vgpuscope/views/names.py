"""Chinese names of all codes: status, verdict, class, outcome, why a pod waits and what to do about it, errors.

The English names are in the model, except those of findings and of what makes a GPU unusable. Sentences of evidence are
in `fleet/evidence.py`.
"""

from typing import NamedTuple

from vgpuscope.model.analysis import Status, UseClass, Verdict
from vgpuscope.model.cluster import FindingKind, LostReason
from vgpuscope.model.pending import Outcome
from vgpuscope.model.scheduling_codes import Stage


class ChineseReason(NamedTuple):
    """A reason why a pod waits, in Chinese."""

    meaning: str
    runbook: str


STATUS_NAMES: dict[Status, str] = {
    "idle": "空闲（评分低，且判定为空闲）",
    "low": "低利用率",
    "normal": "正常",
    "high": "高利用率",
    "unknown": "未知",
}
VERDICT_NAMES: dict[Verdict, str] = {"in_use": "使用中", "idle": "空闲（有证据）", "unknown": "未知"}
CLASS_NAMES: dict[UseClass, str] = {
    "busy": "繁忙",
    "busy-unproductive": "繁忙但低效（CUDA kernel 一直在运行，只用到很少的 SM）",
    "low": "使用率偏低",
    "idle": "空闲",
    "idle-held": "空闲但占用显存",
    "unknown": "未知",
    "stalled": "疑似停滞（利用率接近 100%，功耗接近空闲）",
    "not-started": "尚未启动 CUDA",
    "idle-preparing": "GPU 空闲，CPU 在准备数据",
}
OUTCOME_NAMES: dict[Outcome, str] = {
    "waiting": "等待中",
    "scheduled": "已调度",
    "failed": "失败",
    "deleted": "等待期间被删除",
}
STAGE_NAMES: dict[Stage, str] = {
    "admit": "调度器考虑该 Pod 之前",
    "filter": "调度器选择节点时",
    "bind": "把 Pod 绑定到节点时",
    "allocate": "节点分配设备时",
}

REASON_NAMES: dict[str, ChineseReason] = {
    # --- admit --------------------------------------------------------------------------------------------------------
    "SCHED_ADMISSION_DENIED": ChineseReason(
        "API server 或 webhook 拒绝了该 Pod。",
        "消息中写明了 webhook 或规则。"
        "申请 GPU 的 Pod 如果设置了 nodeName 或有特权容器，HAMi 和我们的 webhook 都会拒绝。",
    ),
    "SCHED_QUOTA_EXCEEDED": ChineseReason(
        "Pod 的申请超出了命名空间的 ResourceQuota。",
        "`kubectl describe resourcequota -n NAMESPACE` 显示已用量和上限。结束该命名空间的部分 Pod，或提高配额。",
    ),
    "SCHED_REQUEST_INVALID": ChineseReason(
        "Pod 的设备申请在任何节点上都无法满足。",
        "修正 Pod 的资源申请：每张 GPU 最多 100 的算力，GPU 数量不超过单个 Pod 的上限。",
    ),
    "SCHED_GATED": ChineseReason(
        "Pod 设置了 scheduling gate，调度器暂不考虑它。",
        "`kubectl get pod POD -n NAMESPACE -o yaml` 列出 spec.schedulingGates。由设置它的控制器（例如 Kueue）移除。",
    ),
    "SCHED_NOT_TRIED": ChineseReason(
        "还没有调度器对该 Pod 给出任何结果。",
        "通常几秒内恢复。否则请检查名为 SCHEDULER 的调度器（Pod 的 spec.schedulerName）是否在运行。",
    ),
    "SCHED_QUEUE_QUOTA": ChineseReason(
        "Pod 所在的队列（Volcano、KAI、Kueue）没有剩余配额。",
        "查看队列的配额和用量。等待队列中的任务结束、提高配额，或允许该 Pod 被抢占。",
    ),
    "SCHED_GANG_WAITING": ChineseReason(
        "Pod 所在的组无法同时启动，因此组内的 Pod 都没有被调度。",
        "查看同组其他 Pod 的原因；`kubectl describe podgroup -n NAMESPACE` 显示有多少个放得下。",
    ),
    # --- filter: devices ----------------------------------------------------------------------------------------------
    "SCHED_INSUFFICIENT_GPU_MEMORY": ChineseReason(
        "没有一张 GPU 的空闲显存够该 Pod 使用。",
        "`vgpuscope nodes` 显示还能满足的最大申请。减少显存申请，或腾出一张 GPU。",
    ),
    "SCHED_INSUFFICIENT_GPU_CORES": ChineseReason(
        "没有一张 GPU 的空闲算力够该 Pod 使用。",
        "`vgpuscope gpus` 显示每张 GPU 已分配的资源。减少算力申请，或腾出一张 GPU。",
    ),
    "SCHED_INSUFFICIENT_GPU_COUNT": ChineseReason(
        "单个节点上可分配给该 Pod 的 GPU 数量不足：节点的 GPU 不够，或合适的不够。",
        "`vgpuscope nodes` 显示各节点的 GPU 和空闲份数。减少 GPU 数量：一个 Pod 的 GPU 必须在同一节点上。",
    ),
    "SCHED_SLOTS_EXHAUSTED": ChineseReason(
        "共享这些 GPU 的容器数已达上限。",
        "`vgpuscope gpus` 显示每张 GPU 的持有者。结束一个 Pod，或提高 HAMi 的 deviceSplitCount。",
    ),
    "SCHED_EXCLUSIVE_CONFLICT": ChineseReason(
        "该 Pod 要独占 GPU，而每张 GPU 都在使用；或者 GPU 已被另一个 Pod 或 ResourceClaim 独占。",
        "`vgpuscope gpus` 显示每张 GPU 的持有者，包括 ResourceClaim。如果可以共享，请把算力申请降到 100 以下。",
    ),
    "SCHED_DEVICE_TYPE_MISMATCH": ChineseReason(
        "Pod 按型号选择（或排除）GPU，节点上没有符合的 GPU。",
        "对照 `vgpuscope gpus` 与 Pod 的注解 nvidia.com/use-gputype 和 nvidia.com/nouse-gputype。",
    ),
    "SCHED_DEVICE_UUID_MISMATCH": ChineseReason(
        "Pod 按 UUID 选择（或排除）GPU，没有符合的空闲 GPU。",
        "对照 `vgpuscope gpus` 与 Pod 的注解 nvidia.com/use-gpuuuid 和 nvidia.com/nouse-gpuuuid。",
    ),
    "SCHED_DEVICE_UNHEALTHY": ChineseReason(
        "GPU 被报告为不健康，或有 Pod 占用其上位置未知的 MIG 实例（MIG 位置未知）。",
        "`vgpuscope gpus` 列出这些 GPU。查看节点内核日志中的 XID 和设备插件的日志。"
        "如果位置未知，请把该 GPU 上 Pod 的注解 hami.io/vgpu-mig-allocations 与 `nvidia-smi mig -lgi` 对照；"
        "没有可读位置的 Pod 结束后，该 GPU 恢复使用。",
    ),
    "SCHED_DEVICE_CORDONED": ChineseReason(
        "GPU 已被操作员停止调度。",
        "`vgpuscope gpus` 列出这些 GPU。维护完成后，从节点注解 hami.io/device-cordon 中移除该 GPU。",
    ),
    "SCHED_DEVICE_RULE_MISMATCH": ChineseReason(
        "GPU 不满足 Pod 要求的厂商专有规则，例如服务质量或等级。",
        "消息中有调度器对该规则的命名。请对照 Pod 的注解与厂商文档。",
    ),
    "SCHED_MODE_MISMATCH": ChineseReason(
        "GPU 的共享方式（hami-core、MIG、MPS）与 Pod 的要求不同。",
        "对照 Pod 的注解 nvidia.com/vgpu-mode 与 `vgpuscope gpus` 中的模式。",
    ),
    "SCHED_MIG_INFEASIBLE": ChineseReason(
        "没有该规格的空闲 MIG 实例，或无法放在现有实例旁边。",
        "在节点上运行 `nvidia-smi mig -lgipp` 查看可放置的位置。换一个规格，或腾出一张 GPU。",
    ),
    "SCHED_NUMA_MISMATCH": ChineseReason(
        "同一 NUMA 节点上合适的 GPU 不够，或资源不全。",
        "减少 GPU 数量，或移除 Pod 的 numa-bind 注解；`nvidia-smi topo -m` 显示 NUMA 节点。",
    ),
    "SCHED_LINK_TOPOLOGY": ChineseReason(
        "空闲 GPU 之间的互联方式不满足 Pod 的要求。",
        "`nvidia-smi topo -m` 显示互联方式。减少 GPU 数量，或把拓扑要求改为优先而非必须。",
    ),
    "SCHED_DRA_UNALLOCATABLE": ChineseReason(
        "Pod 的某个 ResourceClaim 不存在或无法分配。",
        "`kubectl get resourceclaims -n NAMESPACE` 显示申请；`kubectl get resourceslices,deviceclasses` 显示可用设备。",
    ),
    "SCHED_NODE_UNREGISTERED": ChineseReason(
        "节点没有向调度器注册设备，或其注册信息无法读取。",
        "`vgpuscope nodes` 列出有 GPU 的节点。在其他节点上检查设备插件的 Pod 和日志。",
    ),
    # --- filter: nodes ------------------------------------------------------------------------------------------------
    "SCHED_NODE_SELECTOR": ChineseReason(
        "Pod 的 nodeSelector 或 nodeAffinity 不允许该节点。",
        "对照 `kubectl describe node NODE` 中的标签与 Pod 的 nodeSelector 和 nodeAffinity。",
    ),
    "SCHED_TAINT": ChineseReason(
        "节点有该 Pod 不容忍的污点。",
        "`kubectl describe node NODE` 列出污点。如果该 Pod 应当运行在此，请添加容忍度。",
    ),
    "SCHED_NODE_UNSCHEDULABLE": ChineseReason(
        "节点已停止调度（cordon）。",
        "维护完成后运行 `kubectl uncordon NODE`。",
    ),
    "SCHED_NODE_NOT_READY": ChineseReason(
        "节点未就绪、不可达，或磁盘、内存、进程 ID 不足。",
        "`kubectl describe node NODE` 显示其状态。请检查该节点的 kubelet。",
    ),
    "SCHED_INSUFFICIENT_CPU": ChineseReason(
        "节点剩余的 CPU 不足（与 GPU 无关）。",
        "`kubectl describe node NODE` 显示已申请的资源。请减少 CPU 申请。",
    ),
    "SCHED_INSUFFICIENT_MEMORY": ChineseReason(
        "节点剩余的内存不足（与 GPU 无关）。",
        "`kubectl describe node NODE` 显示已申请的资源。请减少内存申请。",
    ),
    "SCHED_INSUFFICIENT_STORAGE": ChineseReason(
        "节点剩余的临时存储不足。",
        "`kubectl describe node NODE` 显示已申请的资源。请减少 ephemeral-storage 申请。",
    ),
    "SCHED_INSUFFICIENT_RESOURCE": ChineseReason(
        "节点缺少某种资源，它不是 GPU、CPU、内存或存储。",
        "消息中写明是哪种资源（RDMA、大页等）；`kubectl describe node NODE` 显示节点提供的资源。",
    ),
    "SCHED_TOO_MANY_PODS": ChineseReason(
        "节点上的 Pod 数已达上限。",
        "清理节点上已结束的 Pod，或提高 kubelet 的 maxPods。",
    ),
    "SCHED_PORT_CONFLICT": ChineseReason("Pod 申请的主机端口已被占用。", "换一个 hostPort，或不使用 hostPort。"),
    "SCHED_POD_AFFINITY": ChineseReason(
        "Pod 对其他 Pod 的亲和或反亲和规则不允许该节点。",
        "对照 Pod 的 podAffinity、podAntiAffinity 与节点上的 Pod。",
    ),
    "SCHED_TOPOLOGY_SPREAD": ChineseReason(
        "放置后 Pod 的分布不满足 topologySpreadConstraints。",
        "检查节点是否有约束所用的标签。放宽 skew，或使用 ScheduleAnyway。",
    ),
    "SCHED_VOLUME": ChineseReason(
        "Pod 的某个卷不存在、未绑定，或在该节点上不可用。",
        "`kubectl get pvc -n NAMESPACE` 显示哪些已绑定；`kubectl describe pvc -n NAMESPACE` 显示未绑定的原因。",
    ),
    "SCHED_NO_NODES": ChineseReason(
        "没有可供调度器考虑的节点。",
        "查看 `kubectl get nodes`。如果使用自己的调度器，请检查它配置了哪些节点。",
    ),
    "SCHED_NO_NODE_FITS": ChineseReason(
        "调度器没有找到节点，也没有报告原因。",
        "查看 Pod 的其他事件和调度器日志。HAMi 从 v2.10 起才向 kube-scheduler 报告原因。",
    ),
    "SCHED_NO_EXTENDER": ChineseReason(
        "调度器无法连接其扩展程序（HAMi、vgpu-manager、vgpuscope），或扩展程序无法做出决定，因此没有决定。",
        "调度器会自动重试。若持续出现，请检查扩展程序的 Pod、日志、Service 和证书。",
    ),
    # --- bind and allocate --------------------------------------------------------------------------------------------
    "SCHED_NODE_LOCKED": ChineseReason(
        "节点上正在绑定另一个 Pod，HAMi 同一时间只允许绑定一个。",
        "通常几秒内恢复，最长五分钟。否则请移除注解 hami.io/mutex.lock"
        "（`kubectl annotate node NODE hami.io/mutex.lock-`），并检查该节点的设备插件。",
    ),
    "SCHED_BIND_FAILED": ChineseReason(
        "已找到节点，但无法把 Pod 绑定到该节点。",
        "消息是 API server 或扩展程序的回答。调度器会自动重试。",
    ),
    "SCHED_ALLOCATE_FAILED": ChineseReason(
        "Pod 已绑定到节点，但被节点的 kubelet 或设备插件拒绝。",
        "查看该节点设备插件的日志。删除 Pod 以便重新调度。绕过 HAMi 调度器的 Pod 无法分配设备。",
    ),
    "SCHED_OTHER": ChineseReason(
        "调度器报告了一个还没有代码的原因。",
        "消息是调度器的原文（已截短）。请反馈给我们，以便为它增加代码。",
    ),
}

ERROR_NAMES: dict[str, str] = {
    "INTERNAL": "程序内部错误",
    "CONFIG_INVALID": "配置无效：参数、环境变量或配置项未知，或取值错误",
    "PORT_BUSY": "监听地址已被占用，或当前用户无权使用",
    "POD_UNKNOWN": "未知的 Pod：它没有在等待设备，也没有等待过的记录",
    "ANNOTATION_MALFORMED": "HAMi 写在 Pod 上的注解格式无法识别",
    "QUERY_INVALID": "查询参数未知、类型错误或超出范围",
    "BODY_INVALID": "请求体不是所需的 JSON",
    "SCHED_REQUEST_INVALID": "Pod 的设备申请任何节点都无法满足：数值为负、不是整数或过大",
    "READ_ONLY": "该监听地址只读，不接受修改",
    "LOGIN_FAILED": "令牌错误，或用户名与密码不正确",
    "BODY_TOO_LARGE": "请求体超过该路径的上限，未做任何更改",
    "MEDIA_UNSUPPORTED": "请求体的类型、字符集或压缩方式不受支持：仅接受未压缩的 UTF-8 JSON",
    "FORBIDDEN": "调用者已识别，但其角色或命名空间不允许此操作",
    "PEER_FORBIDDEN": "extender 不接受来自该地址的调度或绑定请求，未做任何更改",
    "EXTENDER_STANDBY": "只有主副本做调度决定，当前副本不是主副本",
    "EXTENDER_NOT_SYNCED": "当前副本是主副本，但尚未重新列出节点、Pod 和配额，暂不做调度决定",
    "NOT_LEADER": "当前副本不是主副本，不做分析，也不接受修改",
    "OBJECT_UNKNOWN": "结果中没有该 GPU、节点、Pod 或命名空间",
    "AI_SDK_ABSENT": "已启用语言模型，但未安装其 SDK",
    "AI_FAILED": "语言模型返回服务器错误",
    "AI_UNREACHABLE": "无法连接语言模型",
    "AI_TIMEOUT": "语言模型未在 ai.timeout 内给出完整回答",
    "AI_RATE_LIMITED": "语言模型限流，或账户余额不足",
    "AI_BUDGET_SPENT": "24 小时内的请求数已达 ai.max_per_day",
    "AI_REJECTED": "语言模型拒绝了请求，例如密钥或模型名称有误",
    "AI_REDIRECTED": "语言模型的地址返回重定向；从不跟随重定向",
    "AI_ANSWER_INVALID": "语言模型的回答不是所要求的 JSON，或数值超出范围",
    "AI_ANSWER_TOO_LARGE": "语言模型的回答超过 256 KiB",
    "CALL_FAILED": "对控制服务的调用、对集群的更改或通知未被接受，将在 24 小时内重试",
    "CALL_REFUSED": "对集群的更改被拒绝，重试也无济于事；未做任何更改",
    "CASE_UNFIT": "该收回任务当前的状态不允许此操作",
    "LINK_INVALID": "通知中的链接不完整、被改动过，或不是用当前密钥签名的；未做任何更改",
    "LINK_EXPIRED": "通知中的链接已过期；未做任何更改",
    "LINK_USED": "通知中的链接已使用过；每个链接只能用一次，这次未做任何更改",
    "BACKTEST_BUSY": "另一个回测正在运行，每个副本同时只运行一个",
    "HISTORY_ABSENT": "分析器未保存结果，没有可回放的历史",
    "FOLLOWER_LATE": "分析后的某个步骤（指标页、日志、存储）未在期限内完成",
    "KUBE_UNWRITTEN": "API server 拒绝了修改，或没有应答",
    "KUBE_CONFLICT": "对象在读取之后已被修改，未做任何更改",
    "KUBE_ABSENT": "要修改的对象已不存在",
    "SCHED_ALLOCATE_FAILED": "设备插件无法为容器分配设备，kubelet 会结束该 Pod",
    "ALLOCATE_POD_UNKNOWN": "kubelet 请求设备，但本节点没有等待已分配设备的 Pod",
    "ALLOCATE_AMBIGUOUS": "该节点上有多个 Pod 可能是 kubelet 所指的那个，因此谁都不会得到别人的设备",
    "ALLOCATE_FORGED": "该 Pod 的分配不是调度器为它作出的",
    "ALLOCATE_COUNT_MISMATCH": "kubelet 请求的设备数与调度器分配给容器的不同",
    "ALLOCATE_DEVICE_UNKNOWN": "调度器分配的 GPU 或 MIG 实例不在本节点上",
    "ALLOCATE_DEVICE_UNHEALTHY": "调度器分配的 GPU 在容器启动前变为不健康",
    "ALLOCATE_DIRECTORY": "无法在节点上创建或删除容器的 region 目录",
    "KUBELET_ABSENT": "没有 kubelet 的注册套接字：kubelet 已停止，或目录没有挂载",
    "KUBELET_DOWN": "kubelet 没有接受设备插件的注册",
    "HISTORY_DOWN": "结果或决定的存储无法读写；分析和调度照常进行",
    "HISTORY_REFUSED": "存储因内容拒绝了一个结果或决定；只有这一条未保存",
    "SOURCE_DOWN": "数据源无法读取；缺少它的数据，其余照常提供",
    "WEB_CONFIG_INVALID": "Web 配置文件（TLS、basic auth、bearer token）无法使用",
    "RATIO_INVALID": "虚拟化比例不是大于 0 的数",
    "DRIVER_ABSENT": "无法加载 libnvidia-ml.so.1：没有驱动，或没有挂载到容器",
    "DRIVER_FAILED": "NVML 对每张 GPU 都返回错误",
    "DRIVER_HUNG": "驱动调用超时没有返回",
    "PROFILING_ABSENT": "本节点没有驱动可读的性能剖析计数器（NVML GPM 需要 Hopper 或更新的 GPU）",
    "PROFILING_OFF": "agent 已停止读取性能剖析计数器：调用没有返回，或干扰了显存查询",
    "PROFILING_UNREADABLE": "--dcgm 指定的 dcgm-exporter 没有返回指标页",
    "PROFILING_FIELDS_MISSING": "--dcgm 指定的 dcgm-exporter 没有性能剖析字段（DCGM_FI_PROF_*）",
    "PROFILING_UNUSABLE": "--dcgm 指定的 dcgm-exporter 有性能剖析字段，但标签、单位或 GPU 与预期不符",
    "PROFILING_NOT_FOUND": "--dcgm auto 在本节点没有找到 dcgm-exporter 的 Pod，或找到不止一个",
    "REGIONS_UNREADABLE": "HAMi 的 region 目录存在，但无法列出",
    "REGIONS_ABSENT": "没有 HAMi 的 region 目录：节点上没有 HAMi，或没有挂载",
    "CGROUPS_ABSENT": "--cgroup-root 处没有 cgroup，因此不知道容器的 CPU、内存和 I/O",
    "CGROUPS_UNREADABLE": "--cgroup-root 的目录存在，但 agent 无权列出",
    "CGROUPS_UNKNOWN": "--cgroup-root 的目录既没有 cgroup v2（cgroup.controllers），也没有 v1 的控制器",
    "CGROUPS_HUNG": "读取容器的 cgroup 超时，暂时不知道它们的 CPU、内存和 I/O",
    "REGION_REFUSED": "region 文件的大小、魔数或版本无法识别",
    "KUBE_UNREADABLE": "无法从 API server、kubelet 或文件读取 Pod 等对象",
    "KUBE_FORBIDDEN": "API server 或 kubelet 拒绝了凭据",
    "PODRESOURCES_ABSENT": "没有 PodResources 套接字：没有 kubelet，或目录没有挂载",
    "PODRESOURCES_DOWN": "kubelet 的 PodResources 套接字没有应答",
    "QUERY_FAILED": "无法连接 Prometheus，或查询返回错误",
    "QUERY_TIMEOUT": "Prometheus 没有在截止时间内回答查询",
    "QUERY_FORBIDDEN": "Prometheus 或其前面的代理拒绝了凭据",
    "PAGE_MALFORMED": "抓取到的页面中有格式错误的行",
    "ANSWER_UNREADABLE": "返回的内容不是 Prometheus HTTP API 的回答",
    "ANSWER_PARTIAL": "Thanos、Mimir 或 VictoriaMetrics 的回答不完整：部分存储没有参与",
    "SAMPLES_REFUSED": "数值不可能的序列太多，无法逐条检查；相应的评分项不计入",
    "WINDOW_TOO_SHORT": "抓取间隔太长，窗口内的样本少于五个，无法判断",
    "LIMIT_REACHED": "抓取目标或整个集群报告的 GPU 或租户超出上限；超出的部分被忽略",
    "METRICS_ABSENT": "PromQL 引擎有应答，但没有分析器要读取的 GPU 指标",
    "UNAUTHORIZED": "缺少凭据，或凭据错误",
    "NOT_FOUND": "该路径不存在",
    "METHOD_NOT_ALLOWED": "该路径不允许这种方法",
    "TOO_MANY_REQUESTS": "超出速率限制",
    "REQUEST_MALFORMED": "请求不是有效的 HTTP/1.1",
    "MISDIRECTED": "此监听地址仅供本机使用，而请求使用了其他主机名",
    "HEADERS_TOO_LARGE": "请求的路径与请求头超过 64 KiB",
    "BUSY": "所有连接都在使用中，仅应答健康检查",
}
FINDING_NAMES: dict[FindingKind, tuple[str, str]] = {
    "ghost": ("Ghost allocation", "幽灵分配"),
    "unallocated-user": ("Pod without an allocation", "未分配却在使用的 Pod"),
    "vanished-device": ("Held GPU is gone", "已分配的 GPU 消失"),
    "node-unknown": ("Node does not exist", "节点不存在"),
    "over-allocated": ("Over-allocated", "超额分配"),
    "kubelet-zero": ("The kubelet offers no GPU", "kubelet 未提供 GPU"),
    "forged-assignment": ("Forged assignment", "伪造的分配"),
}
LOST_NAMES: dict[LostReason, tuple[str, str]] = {
    "unhealthy": ("Unhealthy", "不健康"),
    "cordoned": ("Cordoned", "已停止调度"),
    "kubelet-zero": ("The kubelet offers none", "kubelet 未提供"),
    "node-not-ready": ("The node is not ready", "节点未就绪"),
    "node-unschedulable": ("The node is cordoned", "节点已停止调度"),
}
