"""The words of `vgpuscope pending`, in English and Chinese."""

from collections.abc import Mapping

from vgpuscope.model.errors import PodUnknown
from vgpuscope.model.pending import Outcome
from vgpuscope.model.words import Language
from vgpuscope.views.languages import Pair, one_of

OUTCOMES: Mapping[Outcome, Pair] = {
    "waiting": ("waiting", "等待中"),
    "scheduled": ("scheduled", "已调度"),
    "failed": ("failed", "失败"),
    "deleted": ("deleted", "已删除"),
}
TEXTS: Mapping[str, Pair] = {
    # what became of a pod
    "waiting": ("has waited for {time}", "已等待 {time}"),
    "scheduled": ("was scheduled on {node} {ago}, after {time}", "{ago}被调度到 {node}，等待了 {time}"),
    "failed": ("failed {ago}, before it started", "{ago}失败，尚未启动"),
    "failed_at": ("failed on {node} {ago}, before it started", "{ago}在 {node} 上失败，尚未启动"),
    "deleted": ("was deleted {ago}, after waiting for {time}", "{ago}被删除，等待了 {time}"),
    # names of facts
    "owner": ("owner", "所有者"),
    "scheduler": ("scheduler", "调度器"),
    "asks": ("asks for", "申请"),
    "created": ("created", "创建"),
    "attempts": ("attempts", "尝试"),
    "uid": ("uid", "uid"),
    "meaning": ("meaning", "含义"),
    "numbers": ("numbers", "数据"),
    "to_do": ("what to do", "处理方法"),
    "message": ("message", "消息"),
    "earlier": ("earlier", "更早"),
    "by": ("by", "来源"),
    "nodes": ("nodes", "节点"),
    "capacity": ("capacity", "容量"),
    "reported_earlier": ("reported earlier", "更早的报告"),
    # facts
    "some_failed": ("{n} failed", "失败 {n} 次"),
    "none_failed": ("none reported", "没有报告"),
    "claim": ("claim {name}", "声明 {name}"),
    "one_node": ("1 node: {what}", "1 个节点：{what}"),
    "some_nodes": ("{n} nodes: {what}", "{n} 个节点：{what}"),
    "on_gpus": ("{what} on {gpus} GPUs", "{what}，{gpus} 张 GPU"),
    "at": ("{what} ({nodes})", "{what}（{nodes}）"),
    "more_names": (" and {n} more", "，另有 {n} 个"),
    "number_of_nodes": ("Nodes: {n}.", "节点：{n} 个。"),
    "named_nodes": ("Nodes: {n} ({nodes}).", "节点：{n} 个（{nodes}）。"),
    "one_more": ("1 more reason.", "另有 1 个原因。"),
    "more": ("{n} more reasons.", "另有 {n} 个原因。"),
    "not_stored": ("and {n} more, which are not stored", "另有 {n} 个，未保存"),
    "once": ("{who}, {last}", "{who}，{last}"),
    "times": ("{who}, {n} times, last {last}", "{who}，{n} 次，最近{last}"),
    "times_since": ("{who}, {n} times, first {first}, last {last}", "{who}，{n} 次，最早{first}，最近{last}"),
    "history": ("{code}  {what}, by {who}", "{code}  {what}，来源：{who}"),
    "counted": ("{n}: {nodes}", "{n} 个：{nodes}"),
    "ago": ("{time} ago", " {time}前"),
    "no_time": ("at an unknown time", "时间未知"),
    # of a pod that is not known
    "unknown_pod": (
        "pod {pod} does not wait for GPUs, and did not in the last day",
        "Pod {pod} 没有在等待 GPU，最近一天内也没有",
    ),
    "meant": ("Did you mean {name}?", "是否指 {name}？"),
    "list_all": (PodUnknown.hint, "`vgpuscope pending --all` 列出所有已知的 Pod；立即被调度的 Pod 不在其中。"),
    # of the list
    "nobody": ("No pod waits for GPUs.", "没有 Pod 在等待 GPU。"),
    "nobody_all": (
        "No pod waits for GPUs, or did in the last day.",
        "没有 Pod 在等待 GPU，最近一天内也没有。",
    ),
    "one_namesake": (
        "1 pod of the same name waited earlier; --json prints all.",
        "另有 1 个同名 Pod 更早等待过；--json 列出全部。",
    ),
    "some_namesakes": (
        "{n} pods of the same name waited earlier; --json prints all.",
        "另有 {n} 个同名 Pod 更早等待过；--json 列出全部。",
    ),
}


def word(name: str, language: Language, /, **values: object) -> str:
    """The text; values are put into its braces."""
    return one_of(TEXTS[name], language).format(**values)
