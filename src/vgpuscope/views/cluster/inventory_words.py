"""The words of `vgpuscope nodes` and `vgpuscope gpus`, in English and Chinese."""

from collections.abc import Mapping

from vgpuscope.model.cluster import FindingKind, LostReason
from vgpuscope.model.words import Language
from vgpuscope.views.languages import Pair, one_of
from vgpuscope.views.names import FINDING_NAMES, LOST_NAMES

TEXTS: Mapping[str, Pair] = {
    # states and amounts
    "unknown": ("unknown", "未知"),
    "ready": ("ready", "就绪"),
    "not_ready": ("not ready", "未就绪"),
    "cordoned": (", cordoned", "，已停止调度"),
    "ok": ("ok", "正常"),
    "some_unhealthy": ("{n} unhealthy", "{n} 张不健康"),
    "vanished": ("vanished", "已消失"),
    "nothing": ("nothing", "无"),
    "whole": ("{n} whole", "整卡 {n} 张"),
    "part_of": ("{n} of {all}", "{n}/{all}"),
    "one_instance": (" ({n} instance)", "（{n} 个实例）"),
    "instances": (" ({n} instances)", "（{n} 个实例）"),
    "shares": ("{n} shares", "{n} 份"),
    "shares_of": ("{n} of {all} shares", "{n}/{all} 份"),
    "and": (", ", "，"),
    "because": ("{name} ({reason})", "{name}（{reason}）"),
    # notes
    "about": ("{nodes}: {note}", "{nodes}：{note}"),
    "comma": (", ", "、"),
    "and_more": (" and {n} more", " 等 {all} 个节点"),
    "fragmented": (
        "100% fragmented. Every GPU with free memory already has a tenant, so no whole GPU is free.",
        "碎片率 100%。有空闲显存的 GPU 都已有租户，因此没有整张空闲的 GPU。",
    ),
    "scaled": (
        "memory scaling ×{factor}: up to {most} can be allocated on a GPU that has {physical}, so a request can be "
        "larger than the GPU.",
        "显存超分 ×{factor}：一张 {physical} 的 GPU 最多可分配 {most}，因此一个申请可以大于 GPU 本身。",
    ),
    "counted": (
        "GPUs are counted from capacity and requests. Only the node knows which GPU a pod has.",
        "GPU 按容量和申请计数。只有节点知道 Pod 用的是哪张 GPU。",
    ),
    # without rows
    "no_nodes": ("No nodes: the cluster exporter has found none.", "没有节点：集群 exporter 没有发现节点。"),
    "no_gpus": (
        "No GPUs on {nodes}: none registers a GPU with HAMi, offers nvidia.com/gpu or nvidia.com/mig-*, or has a "
        "ResourceSlice with GPUs.",
        "{nodes}上没有 GPU：没有节点向 HAMi 注册 GPU，没有提供 nvidia.com/gpu 或 nvidia.com/mig-*，"
        "也没有带 GPU 的 ResourceSlice。",
    ),
    "no_gpus_in": ("No pod of namespace {namespace} holds a GPU.", "命名空间 {namespace} 的 Pod 没有占用 GPU。"),
    "one_node": ("1 node", "1 个节点"),
    "some_nodes": ("{n} nodes", "{n} 个节点"),
}
_REASONS: Mapping[str, Pair] = {
    # over-allocated
    "memory": ("memory", "显存"),
    "cores": ("cores", "算力"),
    "slots": ("slots", "份数"),
    # ghost
    "ended": ("pod ended", "Pod 已结束"),
    "unknown": ("kubelet does not report it", "kubelet 未上报"),
    "terminating": ("terminating", "正在终止"),
    "elsewhere": ("pod on another node", "Pod 在其他节点"),
    "unbound": ("never bound", "一直未绑定"),
    "unused": ("used by no pod", "没有 Pod 使用"),
    # forged-assignment
    "unrequested": ("not requested", "未申请"),
    "unsealed": ("not by the scheduler", "非调度器写入"),
}


def word(name: str, language: Language, /, **values: object) -> str:
    """The text; values are put into its braces."""
    return one_of(TEXTS[name], language).format(**values)


def finding(kind: FindingKind, reason: str, count: int, language: Language) -> str:
    """A kind of finding by the name that the console gives it, with its reason; and how many, if more than one."""
    name = _inside(one_of(FINDING_NAMES[kind], language)) + (f" ×{count}" if count > 1 else "")
    if not reason:
        return name
    known = _REASONS.get(reason)
    return word("because", language, name=name, reason=one_of(known, language) if known else reason)


def lost(reason: LostReason, language: Language) -> str:
    """Why a GPU cannot be used, as the console names it."""
    return _inside(one_of(LOST_NAMES[reason], language))


def _inside(name: str) -> str:
    """A name in the middle of a line: `ghost allocation`."""
    return name[:1].lower() + name[1:]
