"""The words of `vgpuscope why` and `vgpuscope fit`, in English and Chinese."""

from collections.abc import Mapping

from vgpuscope.model.decision_answers import IdleState
from vgpuscope.model.errors import RequestInvalid
from vgpuscope.model.fit import RemedyKind
from vgpuscope.model.placement import DecisionOutcome
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.words import Language
from vgpuscope.views.languages import Pair, lasting, one_of

OUTCOMES: Mapping[DecisionOutcome, Pair] = {
    "assigned": ("assigned", "已指派"),
    "bound": ("bound", "已绑定"),
    "refused": ("refused", "被拒绝"),
    "failed": ("failed", "失败"),
}
REMEDIES: Mapping[RemedyKind, Pair] = {
    "smaller": ("ask less", "减少申请"),
    "relax": ("relax", "放宽约束"),
    "end": ("end idle", "结束空闲"),
    "move": ("move pods", "迁移"),
}
IDLE: Mapping[IdleState, Pair] = {
    "ok": ("", ""),
    "absent": (
        "Idle workloads are not known to the extender: set extender.analyzer_url.",
        "调度器扩展不知道哪些工作负载空闲：请设置 extender.analyzer_url。",
    ),
    "stale": (
        "Idle workloads are not named: the analysis that the extender knows is old ({reason}).",
        "未列出空闲工作负载：调度器扩展得到的分析结果已过期（{reason}）。",
    ),
    "down": (
        "Idle workloads are not named: the extender gets no answer from the analyzer ({reason}).",
        "未列出空闲工作负载：分析器没有回应调度器扩展（{reason}）。",
    ),
}
TEXTS: Mapping[str, Pair] = {
    # the last decision
    "assigned": ("was assigned to {node} {ago}", "{ago}被指派到 {node}"),
    "bound": ("was bound to {node} {ago}", "{ago}绑定到 {node}"),
    "refused": ("was refused {ago}", "{ago}被拒绝"),
    "refused_by_all": ("was refused by all nodes {ago}", "{ago}被所有节点拒绝"),
    "failed": ("could not be bound {ago}", "{ago}绑定失败"),
    "undecided": ("could not be decided {ago}", "{ago}未能做出决定"),
    "failed_at": ("could not be bound to {node} {ago}", "{ago}绑定到 {node} 失败"),
    "again": (", {nth} time in a row", "，连续第 {n} 次"),
    "ago": ("{time} ago", " {time}前"),
    "fits_now": (
        "It would fit now, on {node}: kube-scheduler tries again soon.",
        "现在可以调度到 {node}：kube-scheduler 很快会重试。",
    ),
    # names of facts
    "asks": ("asks for", "申请"),
    "gpus": ("GPUs", "GPU"),
    "score": ("score", "得分"),
    "policy": ("policy", "策略"),
    "also": ("also fit", "其他可用"),
    "nodes": ("nodes", "节点"),
    "decided": ("decided", "决定"),
    "uid": ("uid", "uid"),
    "meaning": ("meaning", "含义"),
    "verdict": ("verdict", "结论"),
    "verdicts": ("verdicts", "结论"),
    "to_do": ("what to do", "处理方法"),
    # what was asked
    "one_gpu": ("1 GPU with {memory}{cores}", "1 张 GPU，{memory}{cores}"),
    "some_gpus": ("{n} GPUs, each with {memory}{cores}", "{n} 张 GPU，每张 {memory}{cores}"),
    "memory": ("{n} MiB", "{n} MiB"),
    "percentage": ("{n} % of the memory", "{n} % 显存"),
    "whole": ("all memory", "全部显存"),
    "and_cores": (" and {n} % of the cores", "、{n} % 算力"),
    "container": ("{what} (container {name})", "{what}（容器 {name}）"),
    "init": ("{what} (init container {name})", "{what}（init 容器 {name}）"),
    # facts
    "gpu": ("{uuid}: {memory} MiB", "{uuid}：{memory} MiB"),
    "gpu_cores": ("{uuid}: {memory} MiB, {cores} % of the cores", "{uuid}：{memory} MiB，{cores} % 算力"),
    "of_30": ("{score} of 30", "{score}（满载为 30）"),
    "term_slots": ("slots", "份数"),
    "term_cores": ("cores", "算力"),
    "term_memory": ("memory", "显存"),
    "policies": ("{node} for nodes, {gpu} for GPUs", "节点 {node}，GPU {gpu}"),
    "counts": ("{refused} refused, {fit} fit", "{refused} 个拒绝，{fit} 个可用"),
    "no_nodes": ("none was asked about", "没有候选节点"),
    "took": ("{ago}, in {time}", "{ago}，用时 {time}"),
    "one_node": ("1 node", "1 个节点"),
    "some_nodes": ("{n} nodes", "{n} 个节点"),
    "and_more": (" and {n} more", " 等 {n} 个"),
    "said": ("{nodes}: {message}", "{nodes}：{message}"),
    "amounts": (
        "{said}: requested {requested}, available {available}",
        "{said}：申请 {requested}，可用 {available}",
    ),
    "more_node": ("and 1 more node; --json prints all", "另有 1 个节点；--json 列出全部"),
    "more_nodes": ("and {n} more nodes; --json prints all", "另有 {n} 个节点；--json 列出全部"),
    "more": ("and {n} more; --json prints all", "另有 {n} 个；--json 列出全部"),
    # earlier decisions
    "earlier": ("earlier decisions", "更早的决定"),
    "code_at": ("{code} ({nodes})", "{code}（{nodes}）"),
    # whether a pod would fit
    "pod": ("pod", "pod"),
    "no_gpu": ("requests no NVIDIA GPU", "没有申请 NVIDIA GPU"),
    "fits": ("fits", "可以调度"),
    "fits_all": ("fits: all {n} replicas", "可以调度：{n} 个副本全部放得下"),
    "fits_partly": ("fits partly: {n} of {all} replicas", "部分可以调度：{all} 个副本中放得下 {n} 个"),
    "fits_so_far": ("fits at least {n} of {all} replicas", "{all} 个副本中至少放得下 {n} 个"),
    "fits_not": ("does not fit", "无法调度"),
    "code_on": ("{code} on {nodes}", "{code}：{nodes}"),
    "fits_on": ("fits", "可用"),
    "no_node": ("there is no node", "没有节点"),
    "nearest": ("nearest nodes", "最接近的节点"),
    "lack_cores": ("{n} % of the cores", "{n} % 算力"),
    "lack_gpu": ("1 GPU", "1 张 GPU"),
    "lack_gpus": ("{n} GPUs", "{n} 张 GPU"),
    "help": ("what would make it fit", "怎样才能调度"),
    "help_next": ("what would make replica {n} fit", "怎样才能调度第 {n} 个副本"),
    "no_remedy": (
        "No single change helps: not a smaller request, nor fewer constraints, nor ending or moving pods.",
        "任何单项改动都不够：无论是减少申请、放宽约束，还是结束或迁移 Pod。",
    ),
    "cut": (
        "The search for pods to end or move was stopped at its limit; there may be more.",
        "查找可结束或可迁移的 Pod 时达到了上限，可能还有其他办法。",
    ),
    "untried": (
        "The time limit was reached: the other {n} replicas were not tried.",
        "已到时间上限：其余 {n} 个副本没有尝试。",
    ),
    # errors
    "unknown": (
        "the extender at {url} has decided nothing about {pod} in the last day",
        "最近一天内，{url} 的调度器扩展对 {pod} 没有做出任何决定",
    ),
    "no_template": ("{file}: no pod and no template of pods", "{file}：没有 Pod，也没有 Pod 模板"),
    "not_json": (
        "{pod}: a value contains itself, or is not JSON",
        "{pod}：某个值引用了自身，或不是 JSON 数据",
    ),
    "give_pods": (
        "Give one or more Pods, Deployments, StatefulSets, Jobs, CronJobs or DaemonSets.",
        "请给出一个或多个 Pod、Deployment、StatefulSet、Job、CronJob 或 DaemonSet。",
    ),
    "check_file": (
        "`kubectl apply --dry-run=client -f {file}` checks the file.",
        "可用 `kubectl apply --dry-run=client -f {file}` 检查该文件。",
    ),
    "correct": (RequestInvalid.hint, "请修正 Pod 的资源或注解：应为整数，每张 GPU 的显存和算力不超过 100 %。"),
    "meant": ("Did you mean {name}?", "是否指 {name}？"),
    "ask_pending": (
        "`vgpuscope pending {pod}` prints what other schedulers report.",
        "`vgpuscope pending {pod}` 显示其他调度器报告的原因。",
    ),
}


def word(name: str, language: Language, /, **values: object) -> str:
    """The text; values are put into its braces."""
    return one_of(TEXTS[name], language).format(**values)


def many(name: str, count: int, language: Language) -> str:
    """`1 node`, `2 nodes`: the text of one is `one_node` or `more_node`, of several `some_nodes` or `more_nodes`."""
    return word(_SEVERAL[name], language, n=count) if count != 1 else word(name, language)


_SEVERAL = {"one_node": "some_nodes", "more_node": "more_nodes", "lack_gpu": "lack_gpus"}


def ago(seconds: Seconds, language: Language) -> str:
    """How long ago something was."""
    return word("ago", language, time=lasting(seconds, language))
