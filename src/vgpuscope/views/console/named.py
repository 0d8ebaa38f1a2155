"""Short names in English and Chinese of codes that have none elsewhere."""

from vgpuscope.model.analysis import Status, Verdict
from vgpuscope.model.console.gpus import Mode
from vgpuscope.model.console.overview import AttentionKind, GpuClass
from vgpuscope.model.console.parts import PartName, PartState
from vgpuscope.model.console.timeline import EventKind
from vgpuscope.model.device import Health
from vgpuscope.model.pending import Outcome
from vgpuscope.model.scheduling import Step
from vgpuscope.model.scheduling_codes import Stage

Pair = tuple[str, str]  # English, Chinese

CLASSES: dict[GpuClass, Pair] = {
    "unallocated": ("Unallocated", "未分配"),
    "busy": ("Busy", "繁忙"),
    "busy-unproductive": ("Busy, unproductive", "繁忙但低效"),
    "low": ("Low use", "使用率偏低"),
    "idle": ("Idle", "空闲"),
    "idle-held": ("Idle, memory held", "空闲但占用显存"),
    "unknown": ("Unknown", "未知"),
    "stalled": ("Stalled", "疑似停滞"),
    "not-started": ("CUDA not started", "尚未启动 CUDA"),
    "idle-preparing": ("Idle, prepares data", "空闲，在准备数据"),
}
STATUS: dict[Status, str] = {
    "idle": "Idle (low score, and the verdict is idle)",
    "low": "Low",
    "normal": "Normal",
    "high": "High",
    "unknown": "Unknown",
}
VERDICT: dict[Verdict, str] = {"in_use": "In use", "idle": "Idle (proven)", "unknown": "Unknown"}
OUTCOME: dict[Outcome, str] = {
    "waiting": "Waiting",
    "scheduled": "Scheduled",
    "failed": "Failed",
    "deleted": "Deleted while it waited",
}
STAGE: dict[Stage, str] = {
    "admit": "Before a scheduler considers the pod",
    "filter": "While the scheduler looks for a node",
    "bind": "While the pod is bound to a node",
    "allocate": "While the node allocates the devices",
}
REASON: dict[str, Pair] = {
    "VERDICT_UNREPORTED": ("No exporter reports this GPU", "没有 exporter 上报该 GPU"),
    "VERDICT_IDLE_NO_WORK": ("No work in the window", "窗口内没有计算活动"),
    "VERDICT_IDLE_MEMORY_HELD": ("Memory is held without computing", "占用显存但没有计算"),
    "VERDICT_IDLE_CPU_BUSY": ("The CPUs are busy", "CPU 在忙"),
    "VERDICT_IDLE_KEPT": ("Still idle", "保持空闲"),
    "VERDICT_IN_USE": ("Work was seen", "检测到计算活动"),
    "VERDICT_KERNELS_RAN": ("Kernels ran", "有 CUDA kernel 运行"),
    "VERDICT_MEMORY_TRAFFIC": ("Memory was read or written", "有显存读写"),
    "VERDICT_VIDEO_WORK": ("Video work", "视频编解码"),
    "VERDICT_TENANT_WORKS": ("A tenant works", "有租户在计算"),
    "VERDICT_FEW_SMS": ("Few SMs are used", "只用到很少的 SM"),
    "VERDICT_STALLED": ("Stalled", "疑似停滞"),
    "VERDICT_LOW_SCORE": ("The score is low", "评分低"),
    "VERDICT_NO_SIGNAL": ("No compute metric", "没有计算指标"),
    "VERDICT_MIG_NO_SIGNAL": ("No compute metric of this MIG instance", "没有该 MIG 实例的计算指标"),
    "VERDICT_GPU_LOST": ("The GPU cannot be used", "GPU 不可用"),
    "VERDICT_TARGETS_DISAGREE": ("Its scrape targets contradict each other", "抓取目标互相矛盾"),
    "VERDICT_NOT_STARTED": ("CUDA has not started", "尚未启动 CUDA"),
    "VERDICT_NUMBERS_WITHHELD": ("The GPU's numbers cover former tenants", "数值包含之前的租户"),
    "VERDICT_TENANT_IS_NEW": ("A tenant is new", "有新租户"),
    "VERDICT_NO_AGE": ("The time of the last sample is unknown", "不知道最后一个样本的时间"),
    "VERDICT_STALE": ("The last sample is too old", "最后一个样本太旧"),
    "VERDICT_LOW_COVERAGE": ("Too few samples", "样本太少"),
    "VERDICT_PCIE_TRAFFIC": ("PCIe traffic without compute", "没有计算但有 PCIe 流量"),
    "VERDICT_HOLE": ("A gap in the samples", "样本有缺口"),
    "VERDICT_WINDOW_TOO_SHORT": ("The window is too short", "窗口太短"),
    "VERDICT_HANDOVER_YOUNG": ("The tenant is too new", "当前租户持有时间太短"),
    "VERDICT_NO_MAX": ("No maximum was measured", "没有最大值"),
    "VERDICT_PARTIAL_READING": ("A part could not be read", "部分数据未能读取"),
    "VERDICT_POWER_DISAGREES": ("Power contradicts the metric", "功耗与指标矛盾"),
    "VERDICT_SAMPLES_DROPPED": ("Impossible samples were dropped", "丢弃了不可能的样本"),
    "VERDICT_SHARED_CARD": ("Only the whole GPU is measured", "只有整张 GPU 的数值"),
    "VERDICT_UNEXPLAINED_WORK": ("Work of no known tenant", "有无法归属的计算"),
    "VERDICT_ENDED": ("The tenant has ended", "租户已结束"),
    "VERDICT_NOT_SEEN": ("Not seen in the window", "窗口内没有出现"),
    "VERDICT_TARGET_DOWN": ("Its scrape target is down", "抓取目标不可用"),
    "VERDICT_TARGET_WITHOUT_IT": ("Its target no longer reports it", "抓取目标不再上报它"),
}
STEP: dict[Step, Pair] = {
    "filter": ("Choosing a node", "选择节点"),
    "lock": ("Waiting for the node's lock", "等待节点锁"),
    "bind": ("Binding", "绑定"),
    "schedule": ("Creation to binding", "从创建到绑定"),
    "start": ("Binding to start", "从绑定到启动"),
}
ATTENTION: dict[AttentionKind, Pair] = {
    "unhealthy": ("Unhealthy GPU", "GPU 不健康"),
    "xid": ("Fatal XID", "致命 XID"),
    "no-data": ("No data", "没有数据"),
    "over-limit": ("Over its memory limit", "超出显存上限"),
    "near-limit": ("Near its memory limit", "接近显存上限"),
    "idle-long": ("Idle for long", "长时间空闲"),
    "idle-tenant": ("Idle tenant on a busy GPU", "繁忙 GPU 上的空闲租户"),
    "stalled": ("Stalled", "疑似停滞"),
    "pending-long": ("Waiting for long", "长时间等待"),
    "finding": ("Finding", "对账发现"),
    "unattributed": ("Memory of no known container", "未归属的显存"),
}
EVENT: dict[EventKind, Pair] = {
    "verdict": ("Verdict changed", "判定变化"),
    "xid": ("XID", "XID 错误"),
    "health": ("Health changed", "健康状态变化"),
    "target": ("Scrape target up or down", "抓取目标上线或下线"),
    "gpu": ("GPU appeared or went away", "GPU 出现或消失"),
    "scheduling": ("Pod stopped waiting", "Pod 结束等待"),
    "settings": ("Settings changed", "配置变化"),
}
MODE: dict[Mode, Pair] = {
    "exclusive": ("Exclusive", "独占"),
    "hami": ("HAMi vGPU", "HAMi 虚拟 GPU"),
    "mig": ("MIG", "MIG 切分"),
    "mps": ("MPS", "MPS 共享"),
    "time-slicing": ("Time-slicing", "时间片共享"),
    "dra": ("DRA", "DRA 动态分配"),
    "unallocated": ("Used without an allocation", "未分配却在使用"),
    "free": ("Free", "空闲未分配"),
}
HEALTH: dict[Health, Pair] = {
    "ok": ("Healthy", "健康"),
    "lost": ("Lost", "丢失"),
    "reset-required": ("Needs a reset", "需要重置"),
    "unresponsive": ("Does not respond", "无响应"),
    "no-permission": ("No permission", "没有权限"),
    "error": ("Error", "错误"),
}
PART: dict[PartName, Pair] = {
    "analysis": ("Analysis", "分析结果"),
    "cluster": ("Cluster exporter", "集群 exporter"),
    "agents": ("Agents", "节点 agent"),
    "history": ("History", "历史记录"),
    "extender": ("Scheduler extender", "调度器扩展"),
    "prometheus": ("Prometheus", "Prometheus 数据源"),
}
PART_STATE: dict[PartState, Pair] = {
    "ok": ("Current", "正常"),
    "stale": ("Out of date", "已过时"),
    "down": ("Down", "不可用"),
    "absent": ("Not configured", "未配置"),
    "forbidden": ("Credentials rejected", "凭据被拒绝"),
}
HTTP_ERRORS: dict[str, str] = {
    "REQUEST_MALFORMED": "The request is not valid HTTP/1.1.",
    "UNAUTHORIZED": "Credentials are missing or wrong.",
    "NOT_FOUND": "Nothing is served under this path.",
    "METHOD_NOT_ALLOWED": "This method is not allowed for this path.",
    "TOO_MANY_REQUESTS": "The rate limit is exceeded.",
    "MISDIRECTED": "The listener is for this machine, and the request names another host.",
    "HEADERS_TOO_LARGE": "Path and headers of the request are larger than 64 KiB.",
    "BUSY": "All connections are in use; only health checks are answered.",
}
