"""The words of `vgpuscope results`, in English and Chinese."""

from collections.abc import Mapping

from vgpuscope.model.analysis import Status, UseClass, Verdict
from vgpuscope.model.words import Language
from vgpuscope.views.languages import Pair, one_of

TEXTS: Mapping[str, Pair] = {
    "no_tenant_of": (
        "No GPU has a tenant of namespace {namespace}.",
        "没有 GPU 的租户属于命名空间 {namespace}。",
    ),
    # below a GPU
    "health": ("health: {state}", "健康：{state}"),
    "unseen": ("no samples for {time}", "已 {time}没有采样"),
    # sums
    "gpu": ("GPU", "张 GPU"),
    "node": ("node", "个节点"),
    "instance": ("instance", "个实例"),
    "rows": ("GPU or MIG instance", "个 GPU 或 MIG 实例"),
    "tenant": ("tenant", "个租户"),
    "on_nodes": ("{gpus} on {nodes}", "{nodes}上的 {gpus}"),
    "divided": (
        "{gpus} on {nodes}, {n} cut by MIG into {instances}.",
        "{nodes}上的 {gpus}，{n} 张被 MIG 切分为 {instances}。",
    ),
    "counted": ("{what}: {verdicts}.", "{what}：{verdicts}。"),
    "verdicts": (
        "{in_use} in use, {idle} idle{remark}, {unknown} unknown",
        "{in_use} 个使用中，{idle} 个空闲{remark}，{unknown} 个未知",
    ),
    "holds": ("{n} holds memory", "{n} 个占用显存"),
    "hold": ("{n} hold memory", "{n} 个占用显存"),
    "prepares": ("{n} prepares data", "{n} 个准备数据"),
    "prepare": ("{n} prepare data", "{n} 个准备数据"),
    "remark": (" ({remarks})", "（{remarks}）"),
    # below a list of low GPUs and tenants
    "is_low": ("{what} is idle or below {limit}.", "{what}空闲或评分低于 {limit}。"),
    "are_low": ("{what} are idle or below {limit}.", "{what}空闲或评分低于 {limit}。"),
    "are_low_parts": ("{n} are idle or below {limit}: {parts}.", "{n} 项空闲或评分低于 {limit}：{parts}。"),
    "are_low_some": ("{n} are idle or below {limit}.", "{n} 项空闲或评分低于 {limit}。"),
    "no_low_gpu": ("No GPU is below {limit}.", "没有评分低于 {limit} 的 GPU。"),
    "no_low_rows": ("No GPU or MIG instance is below {limit}.", "没有评分低于 {limit} 的 GPU 或 MIG 实例。"),
    "no_low_tenant": ("No tenant is below {limit}.", "没有评分低于 {limit} 的租户。"),
    "analysed": ("{gpus} analysed, {unknown} unknown.", "已分析 {gpus}，{unknown} 个未知。"),
    "analysed_tenants": (
        "{gpus} analysed, {unknown} unknown; {tenants}, {tenants_unknown} unknown.",
        "已分析 {gpus}，{unknown} 个未知；{tenants}，{tenants_unknown} 个未知。",
    ),
    "comma": (", ", "，"),
    # instead of a list
    "no_analysis": ("No analysis yet: the analyzer has no results.", "尚无分析：分析器没有结果。"),
    "no_gpu": (
        "No GPU found by the analysis of {time} in {source}.",
        "{time} 的分析在{source}中没有发现 GPU。",
    ),
    "its_source": ("its source", "其数据源"),
    # the state of the analyzer
    "stale": ("Stale since {time}: {reason}", "自 {time} 起已过期：{reason}"),
    "target_down": (
        "{down} of {all} scrape targets does not answer: {names}",
        "{all} 个抓取目标中有 {down} 个没有应答：{names}",
    ),
    "targets_down": (
        "{down} of {all} scrape targets do not answer: {names}",
        "{all} 个抓取目标中有 {down} 个没有应答：{names}",
    ),
    "more_targets": (" and {n} more", "，另有 {n} 个"),
    "reason": ("{name} ({reason})", "{name}（{reason}）"),
}
VERDICTS: Mapping[Verdict, Pair] = {
    "in_use": ("in use", "使用中"),
    "idle": ("idle", "确认空闲"),
    "unknown": ("unknown", "未知"),
}
STATUSES: Mapping[Status, Pair] = {
    "idle": ("idle", "空闲区间"),
    "low": ("low", "偏低区间"),
    "normal": ("normal", "正常区间"),
    "high": ("high", "偏高区间"),
    "unknown": ("unknown", "区间未知"),
}
CLASSES: Mapping[UseClass, Pair] = {
    "busy": ("busy", "繁忙"),
    "busy-unproductive": ("busy-unproductive", "繁忙但低效"),
    "low": ("low", "低使用率"),
    "idle": ("idle", "空闲"),
    "idle-held": ("idle-held", "空闲占显存"),
    "idle-preparing": ("idle-preparing", "空闲，准备数据"),
    "unknown": ("unknown", "未知"),
    "stalled": ("stalled", "疑似停滞"),
    "not-started": ("not-started", "未启动"),
}


def word(name: str, language: Language, /, **values: object) -> str:
    """The text; values are put into its braces."""
    return one_of(TEXTS[name], language).format(**values)


def amount(number: int, name: str, language: Language) -> str:
    """rows → 2 GPUs or MIG instances, 2 个 GPU 或 MIG 实例."""
    text = word(name, language)
    if language == "en" and number != 1:
        text = f"{text.replace('GPU or', 'GPUs or')}s"
    return f"{number} {text}"
