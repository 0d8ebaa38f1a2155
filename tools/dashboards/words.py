"""Texts in both languages, and the words and colours of classes, which are those of the console."""

from typing import Literal, NamedTuple

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")


class Text(NamedTuple):
    """One text in both languages."""

    en: str
    zh: str

    def of(self, language: Language) -> str:
        return self.zh if language == "zh" else self.en


def both(text: "Text | str") -> Text:
    """A text that is the same in both languages: a template of labels, a name."""
    return text if isinstance(text, Text) else Text(text, text)


class Word(NamedTuple):
    """How a value of a label is shown."""

    value: str
    text: Text
    colour: str


GOOD, WARN, BAD, NEUTRAL, QUIET = "#3d8f5f", "#e8a33d", "#c8502b", "#2f6fb7", "#aab2bc"

CLASSES = (
    Word("busy", Text("busy", "繁忙"), "#2f6fb7"),
    Word("busy-unproductive", Text("busy, unproductive", "繁忙但低效"), "#7a5ea8"),
    Word("low", Text("low use", "低使用率"), "#7db7e8"),
    Word("not-started", Text("not started", "未启动"), "#9dc3a8"),
    Word("stalled", Text("stalled", "疑似停滞"), "#a3276d"),
    Word("idle-preparing", Text("idle, prepares data", "空闲，准备数据"), "#14766f"),
    Word("idle-held", Text("idle, holds memory", "空闲占显存"), "#c8502b"),
    Word("idle", Text("idle", "空闲"), "#e8a33d"),
    Word("unknown", Text("unknown", "未知"), "#aab2bc"),
)
VERDICTS = (
    Word("in_use", Text("in use", "使用中"), "#2f6fb7"),
    Word("idle", Text("proven idle", "确认空闲"), "#e8a33d"),
    Word("unknown", Text("unknown", "未知"), "#aab2bc"),
)
STATUSES = (
    Word("high", Text("high range", "偏高区间"), "#2f6fb7"),
    Word("normal", Text("normal range", "正常区间"), "#7db7e8"),
    Word("low", Text("low range", "偏低区间"), "#e8a33d"),
    Word("idle", Text("idle range", "空闲区间"), "#c8502b"),
    Word("unknown", Text("unknown range", "区间未知"), "#aab2bc"),
)
OWNERS = (
    Word("containers", Text("containers", "容器"), "#2f6fb7"),
    Word("system", Text("system", "驱动与系统"), "#7a5ea8"),
    Word("unattributed", Text("unattributed", "未归属"), "#c8502b"),
    Word("free", Text("free", "空闲"), "#aab2bc"),
)
RESULTS = (
    Word("success", Text("bound", "绑定成功"), "#3d8f5f"),
    Word("failure", Text("failed", "失败"), "#c8502b"),
)
YES_NO = (
    Word("1", Text("yes", "是"), GOOD),
    Word("0", Text("no", "否"), BAD),
)
HEALTH = (
    Word("ok", Text("ok", "正常"), GOOD),
    Word("lost", Text("lost", "丢失"), BAD),
    Word("reset-required", Text("reset required", "需要重置"), BAD),
    Word("unresponsive", Text("unresponsive", "无响应"), BAD),
    Word("no-permission", Text("no permission", "无权限"), WARN),
    Word("error", Text("error", "出错"), BAD),
)
WORDS = {
    "class": CLASSES,
    "verdict": VERDICTS,
    "status": STATUSES,
    "owner": OWNERS,
    "result": RESULTS,
    "health": HEALTH,
    "yes": YES_NO,
    "idle_for": (Word("0", Text("in use", "使用中"), "text"),),
}

# Headers of columns and names of variables that several dashboards show.
LABELS = {
    "cluster": Text("Cluster", "集群"),
    "node": Text("Node", "节点"),
    "hostname": Text("Node", "节点"),
    "gpu_uuid": Text("GPU UUID", "GPU UUID"),
    "gpu_id": Text("GPU UUID", "GPU UUID"),
    "device": Text("GPU UUID", "GPU UUID"),
    "gpu_index": Text("Index", "编号"),
    "model": Text("Model", "型号"),
    "mig": Text("MIG instance", "MIG 实例"),
    "mig_uuid": Text("MIG instance", "MIG 实例"),
    "profile": Text("Profile", "规格"),
    "namespace": Text("Namespace", "命名空间"),
    "pod": Text("Pod", "Pod"),
    "container": Text("Container", "容器"),
    "owner": Text("Owner", "所属控制器"),
    "class": Text("Class", "类别"),
    "verdict": Text("Verdict", "判定"),
    "status": Text("Status", "状态"),
    "mode": Text("Mode", "共享方式"),
    "health": Text("Health", "健康"),
    "kind": Text("Kind", "种类"),
    "reason": Text("Reason", "原因"),
    "code": Text("Code", "代码"),
    "source": Text("Source", "数据来源"),
    "resource": Text("Resource", "资源"),
    "type": Text("GPU type", "GPU 型号"),
    "vendor": Text("Vendor", "厂商"),
    "scheduler": Text("Scheduler", "调度器"),
    "xid": Text("XID", "XID"),
    "action": Text("Action", "处置建议"),
    "fatal": Text("Fatal", "致命"),
    "version": Text("Version", "版本"),
}
