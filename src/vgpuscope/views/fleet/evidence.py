"""The evidence for a verdict in sentences: one for each reason code, with its numbers, in English and Chinese."""

import re
from math import ceil

from vgpuscope.knowledge.gpu_series import DCGM_PROFILING
from vgpuscope.model.analysis import Evidence, Term
from vgpuscope.model.quantity import Ratio, Seconds
from vgpuscope.model.words import Language

LANGUAGES: tuple[Language, ...] = ("en", "zh")

_FIELD = min(DCGM_PROFILING)  # the one that dcgm-exporter collects by default

SENTENCES: dict[str, tuple[str, str]] = {
    "VERDICT_IDLE_NO_WORK": (
        "Idle: no work was seen in {window}. Highest {signal}: {max} (mean {mean}); all other activity stayed below "
        "{threshold}. {coverage} of the window was seen ({samples} of {expected} samples).",
        "空闲：{window}内未检测到计算活动。{signal}最高 {max}（平均 {mean}），其他活动均低于 {threshold}；"
        "窗口覆盖率 {coverage}（{samples}/{expected} 个样本）。",
    ),
    "VERDICT_IDLE_MEMORY_HELD": (
        "Memory is held without computing: {held} of it was in use on average.",
        "占用显存但没有计算：平均占用 {held}。",
    ),
    "VERDICT_IDLE_CPU_BUSY": (
        "The GPU is idle, but its tenant used {cpu}: it may be loading or preparing data.",
        "GPU 空闲，但租户{cpu}：可能正在加载或准备数据。",
    ),
    "VERDICT_IDLE_KEPT": (
        "The last verdict was idle, and stays so until some activity reaches {threshold}.",
        "上次判定为空闲，任一活动达到 {threshold} 之前保持不变。",
    ),
    "VERDICT_IN_USE": (
        "In use: {signal} reached {max} in {window} (mean {mean}; work begins at {threshold}).",
        "使用中：{window}内{signal}最高 {max}（平均 {mean}；达到 {threshold} 即视为工作）。",
    ),
    "VERDICT_KERNELS_RAN": (
        "In use: {signal} was at most {max}, but {other} reached {other_max} in {window}.",
        "使用中：{signal}最高仅 {max}，但{window}内{other}达到 {other_max}。",
    ),
    "VERDICT_MEMORY_TRAFFIC": (
        "In use: {signal} was at most {max}, but memory was read or written up to {other_max} of the time.",
        "使用中：{signal}最高仅 {max}，但显存读写时间占比达到 {other_max}。",
    ),
    "VERDICT_VIDEO_WORK": (
        "In use for video: {signal} was at most {max}, but {other} reached {other_max}.",
        "使用中（视频）：{signal}最高仅 {max}，但{other}达到 {other_max}。",
    ),
    "VERDICT_TENANT_WORKS": (
        "In use: {signal} of the GPU was at most {max}, but a tenant's own processes reached {other_max}.",
        "使用中：整个 GPU 的{signal}最高仅 {max}，但某个租户自身的进程达到 {other_max}。",
    ),
    "VERDICT_FEW_SMS": (
        "Kernels run much of the time, but on few SMs: the GPU is busy and gets little done.",
        "CUDA kernel 长时间运行，但只用到很少的 SM：看似繁忙，产出很低。",
    ),
    "VERDICT_STALLED": (
        "Stalled: kernels ran nearly all of {window}, but the GPU drew only {power} of its power limit on average "
        "(limit used: {power_limit}) and nothing else was active. A collective operation may hang, or a kernel spin.",
        "疑似停滞：{window}内 CUDA kernel 几乎一直在运行，但平均功耗仅为功率上限的 {power}（所用上限：{power_limit}），"
        "且没有其他活动。可能是集合通信挂起或 kernel 空转。",
    ),
    "VERDICT_LOW_SCORE": (
        "Low use: the score is below thresholds.low_utilization.",
        "使用率偏低：评分低于 thresholds.low_utilization。",
    ),
    "VERDICT_NO_SIGNAL": (
        "Unknown: no compute metric was collected in {window}.",
        "无法判断：{window}内没有采集到任何计算指标。",
    ),
    "VERDICT_MIG_NO_SIGNAL": (
        "Unknown: no compute metric of this MIG instance was collected in {window}. GPU utilisation is not defined for "
        "MIG instances, so a value of 0 proves nothing. On Hopper and later the agent measures it; on other GPUs "
        f"dcgm-exporter can: enable its profiling fields ({_FIELD}), and start the agent "
        "with --dcgm auto.",
        "无法判断：{window}内没有采集到该 MIG 实例的计算指标。GPU 利用率对 MIG 实例没有定义，因此数值 0 不能说明空闲。"
        "Hopper 及更新的 GPU 由 agent 直接测量；其他 GPU 可由 dcgm-exporter 提供："
        f"请启用其性能剖析字段（{_FIELD}），"
        "并用 --dcgm auto 启动 agent。",
    ),
    "VERDICT_GPU_LOST": (
        "Unknown: the driver reports that this GPU cannot be used (lost, unresponsive, or waiting for a reset). See "
        "its health and its XIDs.",
        "无法判断：驱动报告该 GPU 不可用（丢失、无响应或等待重置）。详见其健康状态和 XID。",
    ),
    "VERDICT_TARGETS_DISAGREE": (
        "Unknown: one scrape target reports that this GPU worked in {window}, another one that it did not. See which "
        "targets report it.",
        "无法判断：对该 GPU，一个抓取目标上报{window}内有计算，另一个上报没有。请检查是哪些目标在上报它。",
    ),
    "VERDICT_NOT_STARTED": (
        "Not started: the container has the GPU and has not started CUDA yet.",
        "尚未启动：容器已分配到该 GPU，但还没有启动 CUDA。",
    ),
    "VERDICT_NUMBERS_WITHHELD": (
        "The GPU's own numbers are not shown: they cover {window}, and the current tenants have had the GPU for only "
        "{held_for}.",
        "未显示整张 GPU 的数值：这些数值覆盖{window}，而当前租户仅持有其中 {held_for}。",
    ),
    "VERDICT_TENANT_IS_NEW": (
        "The GPU's numbers cover {window}; those of the newest tenant cover its {held_for} on the GPU.",
        "整张 GPU 的数值覆盖{window}；最新租户的数值仅覆盖其持有的 {held_for}。",
    ),
    "VERDICT_NO_AGE": (
        "Unknown: the time of the last sample is not known.",
        "无法判断：不知道最后一个样本的时间。",
    ),
    "VERDICT_STALE": (
        "Unknown: the last sample is {age} away from the end of the window; at most {max_age} is allowed.",
        "无法判断：最后一个样本距窗口结束 {age}，最多允许 {max_age}。",
    ),
    "VERDICT_LOW_COVERAGE": (
        "Unknown: only {coverage} of the window was seen ({samples} of {expected} samples of {signal}); {min_coverage} "
        "is needed.",
        "无法判断：窗口覆盖率仅 {coverage}（{signal}样本 {samples}/{expected}），至少需要 {min_coverage}。",
    ),
    "VERDICT_PCIE_TRAFFIC": (
        "Unknown: no compute was seen ({signal} at most {max}), but {traffic} went over PCIe: a model may be loading.",
        "无法判断：未检测到计算活动（{signal}最高 {max}），但 PCIe 流量达到 {traffic}，可能正在加载模型。",
    ),
    "VERDICT_HOLE": (
        "Unknown: there was no sample for {hole} of the {window} window, and at most {max_age} may be missing: a burst "
        "of work could have gone unseen.",
        "无法判断：{window}窗口中有 {hole}没有样本，最多允许 {max_age}；期间的突发工作可能未被看到。",
    ),
    "VERDICT_WINDOW_TOO_SHORT": (
        "Unknown: samples come every {interval}, so the {window} window holds too few of them. Set "
        "prometheus.time_window_min to at least {window_needed}.",
        "无法判断：样本每 {interval}一个，{window}窗口容纳的样本太少。"
        "请将 prometheus.time_window_min 设为至少 {window_needed}。",
    ),
    "VERDICT_HANDOVER_YOUNG": (
        "Too early: the current tenant has had this GPU for only {held_for} of the {window} window.",
        "为时尚早：当前租户在 {window}的窗口中仅持有该 GPU {held_for}。",
    ),
    "VERDICT_NO_MAX": (
        "Unknown: some activity has no maximum, and a mean alone can hide a burst of work.",
        "无法判断：部分活动没有最大值，仅凭平均值可能掩盖突发工作。",
    ),
    "VERDICT_PARTIAL_READING": (
        "The reading is partial: some of the data could not be read.",
        "读取不完整：部分数据未能读取。",
    ),
    "VERDICT_POWER_DISAGREES": (
        "Unknown: no work was seen ({signal} at most {max}), but the GPU drew {power} of its power limit on average; "
        "limit used: {power_limit}.",
        "无法判断：未检测到计算活动（{signal}最高 {max}），但平均功耗达到功率上限的 {power}；所用上限：{power_limit}。",
    ),
    "VERDICT_SAMPLES_DROPPED": (
        "Samples with impossible values were dropped: {dropped}.",
        "已剔除数值不可能的样本：{dropped} 个。",
    ),
    "VERDICT_SHARED_CARD": (
        "Unknown: the GPU is in use and shared, and only numbers of the whole GPU are known, not of this tenant.",
        "无法判断：该 GPU 正在使用且为共享，只有整个 GPU 的数据，没有该租户自身的数据。",
    ),
    "VERDICT_UNEXPLAINED_WORK": (
        "Unknown: this tenant's own processes reached at most {max}, but the GPU works or draws power as if it did. "
        "The tenants' own numbers do not show which tenant causes it.",
        "无法判断：该租户自身的进程最高 {max}，但 GPU 在工作（或功耗如同工作），而各租户自身的数据无法说明来自谁。",
    ),
    "VERDICT_ENDED": (
        "This tenant had the GPU earlier in the window; its last sample is {age} old.",
        "该租户在窗口早些时候使用过该 GPU，最后一个样本距今 {age}。",
    ),
    "VERDICT_NOT_SEEN": (
        "Unknown: this GPU has not reported for {age}; its last sample came from {source}.",
        "无法判断：该 GPU 已有 {age}没有上报，最后一个样本来自 {source}。",
    ),
    "VERDICT_UNREPORTED": (
        "Unknown: the scheduler lists this GPU, and no exporter reports it.",
        "无法判断：该 GPU 已在调度器注册，但没有 exporter 上报它。",
    ),
    "VERDICT_TARGET_DOWN": (
        "The scrape target does not answer, so it is not known whether the GPU is still there.",
        "抓取目标没有响应，因此不知道该 GPU 是否仍然存在。",
    ),
    "VERDICT_TARGET_WITHOUT_IT": (
        "The scrape target (or another one on its node) answers without this GPU; after a few such analyses the GPU is "
        "removed from the list.",
        "抓取目标（或同一节点上的另一目标）有响应，但不再上报该 GPU；连续几次分析如此之后，该 GPU 将从列表中移除。",
    ),
}

SIGNAL_NAMES: dict[Term, tuple[str, str]] = {
    "gpu_util": ("GPU utilisation", "GPU 利用率"),
    "sm_active": ("SM activity", "SM 活跃度"),
    "engine_active": ("engine activity", "引擎活跃度"),
    "process_sm": ("SM time of the processes", "进程 SM 时间占比"),
    "mem_copy": ("memory traffic", "显存读写"),
    "dram_active": ("memory bandwidth", "显存带宽占用"),
    "encoder": ("the video encoder", "视频编码器"),
    "decoder": ("the video decoder", "视频解码器"),
    "jpeg": ("the JPEG engine", "JPEG 引擎"),
    "ofa": ("the optical flow engine", "光流引擎"),
}
_NOT_KNOWN = ("unknown", "未知")


def sentences(evidence: Evidence, lang: Language) -> tuple[str, ...]:
    """One sentence for each reason, the deciding one first; a code without a sentence is shown itself."""
    which = LANGUAGES.index(lang)
    words = _words(evidence, which)
    return tuple(
        _spaced(SENTENCES[code][which].format_map(words)) if code in SENTENCES else code for code in evidence.reasons
    )


_NARROW = re.compile(r"(?<=[\u4e00-\u9fff])(?=[A-Za-z0-9])|(?<=[A-Za-z0-9%])(?=[\u4e00-\u9fff])")


def _spaced(text: str) -> str:
    """Chinese with a space around Latin words and numbers, also around those that were filled in."""
    return _NARROW.sub(" ", text)


def _words(evidence: Evidence, which: int) -> dict[str, str]:
    begin, end, since = evidence.window_begin, evidence.window_end, evidence.held_since
    not_known = _NOT_KNOWN[which]
    values = {
        "signal": _name(evidence.signal, which),
        "mean": _percent(evidence.signal_mean),
        "max": _percent(evidence.signal_max),
        "threshold": _percent(evidence.threshold),
        "coverage": _percent(evidence.coverage),
        "min_coverage": _percent(evidence.min_coverage),
        "samples": str(evidence.samples),
        "expected": str(max(evidence.expected, evidence.samples)),  # a sample of each end of the window
        "dropped": str(evidence.dropped),
        "age": _span(None if evidence.freshness is None else abs(evidence.freshness), which),
        "max_age": _span(evidence.max_age, which),
        "hole": _span(evidence.hole, which),
        "traffic": None if evidence.pcie_traffic is None else f"{evidence.pcie_traffic / 1e6:.0f} MB/s",
        "interval": _span(evidence.interval, which),
        "window_needed": _span(None if evidence.interval is None else 60 * ceil(evidence.interval / 12), which),
        "window": _span(None if begin is None or end is None else end - begin, which),
        "held_for": _span(None if since is None or end is None else end - since, which),
        "held": _percent(evidence.held_memory),
        "power": _percent(evidence.power_share),
        "power_limit": evidence.power_limit or None,
        "other": _name(evidence.other, which),
        "other_max": _percent(evidence.other_max),
        "cpu": _cpu(evidence, which),
        "source": evidence.source or None,
    }
    return {key: not_known if value is None else value for key, value in values.items()}


def _name(term: Term | None, which: int) -> str | None:
    return SIGNAL_NAMES[term][which] if term in SIGNAL_NAMES else None


def _cpu(evidence: Evidence, which: int) -> str | None:
    """The figure that decided: the highest, with the mean beside it, or the mean if that is as high."""
    mean, most = evidence.cpu, evidence.cpu_max
    if most is None or (mean is not None and mean >= most):
        return None if mean is None else _CPU_MEAN[which].format(mean=_cores(mean))
    beside = "" if mean is None else _CPU_BESIDE[which].format(mean=_cores(mean))
    return _CPU_MAX[which].format(most=_cores(most), beside=beside)


_CPU_MEAN = ("{mean} CPU cores on average", "平均使用了 {mean} 个 CPU 核")
_CPU_MAX = ("up to {most} CPU cores{beside}", "最多使用了 {most} 个 CPU 核{beside}")
_CPU_BESIDE = (" ({mean} on average)", "（平均 {mean} 个）")


def _cores(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def _percent(value: Ratio | None) -> str | None:
    return None if value is None else f"{100 * value:.2f}".rstrip("0").rstrip(".") + " %"


def _span(seconds: Seconds | None, which: int) -> str | None:
    if seconds is None:
        return None
    if seconds < 120:
        return f"{seconds:.0f} " + ("s", "秒")[which]
    if seconds < 2 * 3600:
        return f"{seconds / 60:.1f}".removesuffix(".0") + (" min", " 分钟")[which]
    return f"{seconds / 3600:.1f}".removesuffix(".0") + (" h", " 小时")[which]
