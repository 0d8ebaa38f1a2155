"""The words of the reclaim commands, in English and Chinese."""

from collections.abc import Mapping

from vgpuscope.model.backtest import EpisodeEnd
from vgpuscope.model.reclaim import State
from vgpuscope.model.words import Language

STATES: Mapping[State, tuple[str, str]] = {
    "candidate": ("candidate", "候选"),
    "notified": ("notified", "通知中"),
    "grace": ("grace", "宽限期"),
    "awaiting_approval": ("awaiting approval", "等待批准"),
    "acting": ("acting", "收回中"),
    "would_act": ("would act (dry run)", "会收回（演练）"),
    "verified": ("verified", "已收回"),
    "restored": ("restored", "已恢复"),
    "released": ("released", "已释放"),
    "exempt": ("exempt", "已豁免"),
    "snoozed": ("snoozed", "已推迟"),
    "failed": ("failed", "失败"),
}
ENDS: Mapping[EpisodeEnd, tuple[str, str]] = {
    "false_alarm": ("false alarm", "误报"),
    "busy_later": ("busy later", "之后恢复工作"),
    "ended": ("ended", "已结束"),
    "still_idle": ("still idle", "仍然空闲"),
}
# In English a code is shown as it is: it is short, and what the API, the metrics and the documentation say.
CHINESE_BRAKES: Mapping[str, str] = {  # what holds a case back
    "no_uid": "无 UID",
    "no_history": "未配置存储",
    "protected_namespace": "命名空间受保护",
    "protected_priority": "优先级受保护",
    "annotation_never": "注解禁止",
    "annotation_notify": "注解仅允许通知",
    "pod_age": "Pod 运行时间太短",
    "activity": "GPU 之外有活动",
    "model_veto": "模型反对",
    "model_waiting": "等待模型意见",
    "stop": "已停止",
    "breaker": "熔断器断开",
    "store_down": "存储不可用",
    "not_leader": "不是主副本",
    "holder_unknown": "无法核实 GPU 的持有者",
    "kube_unreachable": "Kubernetes API 无应答",
    "working_hours": "不在允许时段",
    "budget_hour": "每小时额度已用完",
    "budget_namespace": "命名空间额度已用完",
    "budget_fleet": "集群额度已用完",
    "notify_only": "策略仅通知",
    "unconfirmed": "空闲窗口不足",
    "pod_unknown": "Pod 信息未知",
    "activity_unknown": "活动信息未知",
    "no_action": "无可用动作",
    "preparing": "正在准备数据",
    "holds_memory": "占用显存",
    "gpu_in_use": "另一张 GPU 在使用",
    "gpu_unknown": "无法证明空闲",
    "job_untrusted": "采集任务不可信",
    "low_coverage": "采样不足",
    "owner_in_use": "同一所有者的 Pod 在使用",
    "approval": "等待批准",
    "snoozed": "已推迟",
    "exempted": "已豁免",
    "dry_run": "演练",
}
CHINESE_STEPS: Mapping[str, str] = {  # of the audit log
    "moved": "状态改变",
    "held": "被阻止",
    "lifted": "阻止解除",
    "call_delivered": "调用已送达",
    "call_failed": "调用失败",
    "call_cancelled": "调用已取消",
    "notice_delivered": "通知已送达",
    "notice_failed": "通知失败",
    "restore_asked": "已请求恢复",
    "stop": "停止",
    "start": "重新启动",
    "breaker_opened": "熔断器断开",
    "breaker_closed": "熔断器恢复",
    "breaker_reset": "熔断器复位",
}
TEXTS: Mapping[str, tuple[str, str]] = {
    # the state of the machine
    "live": ("Live: GPUs of idle workloads are taken back.", "正式运行：空闲工作负载的 GPU 会被收回。"),
    "dry_run": (
        "Dry run: no GPU is taken. What would have been done is recorded.",
        "演练模式：不收回任何 GPU，只记录本应执行的动作。",
    ),
    "off": (
        "Off: analyzer.history is not set. Without a store no action is taken.",
        "未启用：没有设置 analyzer.history。没有存储就不执行任何动作。",
    ),
    "stopped": ("Stopped by {who}: no action is taken.", "已由 {who} 停止：不执行任何动作。"),
    "breaker": (
        "The circuit breaker is open: {turned} of {of} workloads turned idle at once. No action is taken.",
        "熔断器已断开：{of} 个工作负载中有 {turned} 个同时变为空闲。不执行任何动作。",
    ),
    "empty": ("There is no case.", "没有收回任务。"),
    "more": ("… and {n} more: use --limit {all} or --json.", "……还有 {n} 个：使用 --limit {all} 或 --json。"),
    "is": ("{setting} is {value}", "{setting} 为 {value}"),
    "contains": ("{setting} contains {value}", "{setting} 包含 {value}"),
    "differs": ("{setting} {value} (default {default})", "{setting} {value}（默认 {default}）"),
    "differ": ("Settings that differ from the defaults: {settings}.", "与默认值不同的设置：{settings}。"),
    "done": ("{pod}: {state}", "{pod}：{state}"),
    "window": ("1 window so far", "已计 1 个窗口"),
    "windows": ("{n} windows so far", "已计 {n} 个窗口"),
    "in": ("in {time}", "{time} 后"),
    "now": ("next analysis", "下次分析"),
    "approval": ("needs approval", "需要批准"),
    "no_entry": ("The audit log is empty.", "审计日志为空。"),
    # a back-test
    "span": ("From {begin} to {end}.", "从 {begin} 到 {end}。"),
    "known": (
        "{analyses} analyses cover {ratio} of the time. Nothing is concluded from the rest.",
        "{analyses} 次分析覆盖了 {ratio} 的时间；其余时间不下结论。",
    ),
    "cut": (
        "The time limit ended the replay at {until}. Later times are not included.",
        "回放因时间限制止于 {until}，不含之后的时间。",
    ),
    "changed": ("Changed: {key}: {current} → {proposed}", "变更：{key}：{current} → {proposed}"),
    "f_actions": ("actions", "操作"),
    "f_workloads": ("workloads", "工作负载"),
    "f_won": ("GPU-hours freed", "节省的 GPU 小时"),
    "f_unknown": ("GPU-hours unknown", "未知的 GPU 小时"),
    "f_alarms": ("false alarms (busy again within {time})", "误报（{time}内恢复工作）"),
    "f_later": ("busy again later", "之后恢复工作"),
    "f_ended": ("ended", "自行结束"),
    "f_idle": ("still idle at the end", "到最后仍空闲"),
    "none": ("Nothing would have been taken back.", "不会收回任何 GPU。"),
    "brakes": ("Held back: {brakes}", "阻止：{brakes}"),
    "listed": ("Actions of the {which} policy:", "{which}的操作："),
    "which_current": ("current", "当前策略"),
    "which_proposed": ("proposed", "新策略"),
}


def named(code: str, chinese: Mapping[str, str], language: Language) -> str:
    """A code as people read it. A newer analyzer may send codes that are not known here: they are shown as they are."""
    return chinese.get(code, code) if language == "zh" else code


def word(name: str, language: Language, **values: object) -> str:
    """The text; values are put into its braces."""
    text = TEXTS[name][language == "zh"]
    return text.format(**values) if values else text
