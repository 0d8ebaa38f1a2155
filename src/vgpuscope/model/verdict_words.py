"""Why a node was refused, or a pod was not bound: every sentence in both languages, with values in its braces."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, TypeAlias

from vgpuscope.model.words import Words

Sentence: TypeAlias = Literal[
    # the GPUs of a node
    "memory",
    "cores",
    "cores-exhausted",
    "slots",
    "exclusive",
    "claimed",
    "quota",
    "mig",
    "numa",
    "suitable",
    "count",
    "uuid",
    "uuid-excluded",
    "type",
    "type-excluded",
    "mode",
    "cordoned",
    "unhealthy",
    "unsure",
    "node-unknown",
    "node-empty",
    "node-offers-none",
    # the request of a pod
    "undecodable",
    "too-many-containers",
    "too-many-gpus",
    "not-whole",
    "negative",
    "too-large",
    "annotation-long",
    "weights",
    # binding
    "bind-timeout",
    "bind-gone",
    "bind-replaced",
    "bind-ended",
    "bind-elsewhere",
    "bind-unassigned",
    "bind-assigned-elsewhere",
    "bind-unsealed",
    "bind-node-unknown",
    "bind-not-held",
    "bind-gpu-unknown",
    "bind-over-memory",
    "bind-over-slots",
    "bind-over-cores",
    "bind-over-slices",
    "bind-claimed",
    "bind-unsure",
    "locked-by",
    "locked-old",
    "locked",
]

# The English ones of a node's GPUs are those of the HAMi handbook, as far as it has them.
SENTENCES: Mapping[Sentence, Words] = {
    "memory": Words(
        "GPU memory insufficient (requested {0}, available {1})",
        "GPU 显存不足（申请 {0}，可用 {1}）",
    ),
    "cores": Words(
        "GPU cores insufficient (requested {0}, available {1})",
        "GPU 算力不足（申请 {0}，可用 {1}）",
    ),
    "cores-exhausted": Words(
        "GPU cores insufficient (all cores of {0} of {1} GPUs are allocated)",
        "GPU 算力不足（{1} 张 GPU 中 {0} 张的算力已全部分配）",
    ),
    "slots": Words(
        "GPU slots exhausted (every slot of {0} of {1} GPUs is in use)",
        "GPU 份数用尽（{1} 张 GPU 中 {0} 张的份数已全部占用）",
    ),
    "exclusive": Words(
        "GPU in use (requested an idle GPU, {0} of {1} GPUs are in use)",
        "GPU 已被占用（申请未被占用的 GPU，{1} 张 GPU 中 {0} 张已被占用）",
    ),
    "claimed": Words(
        "GPU held by a ResourceClaim ({0} of {1} GPUs)",
        "GPU 已被 ResourceClaim 占用（{1} 张 GPU 中 {0} 张）",
    ),
    "quota": Words(
        "quota exceeded (namespace {0})",
        "超出配额（命名空间 {0}）",
    ),
    "mig": Words(
        "no MIG placement (requested {0}, no free profile on {1} of {2} GPUs)",
        "没有可放置的 MIG 实例（申请 {0}，{2} 张 GPU 中 {1} 张没有空闲规格）",
    ),
    "numa": Words(
        "GPUs on one NUMA node insufficient (requested {0}, available {1})",
        "同一 NUMA 节点上的 GPU 不足（申请 {0} 张，可用 {1} 张）",
    ),
    "suitable": Words(
        "suitable GPUs insufficient (requested {0}, available {1})",
        "合适的 GPU 不足（申请 {0} 张，可用 {1} 张）",
    ),
    "count": Words(
        "GPUs insufficient (requested {0}, available {1})",
        "GPU 数量不足（申请 {0} 张，节点有 {1} 张）",
    ),
    "uuid": Words(
        "device UUID mismatch (requested {0}, {1} of {2} GPUs do not match)",
        "GPU UUID 不符（要求 {0}，{2} 张 GPU 中 {1} 张不符）",
    ),
    "uuid-excluded": Words(
        "device UUID mismatch (requested not {0}, {1} of {2} GPUs do not match)",
        "GPU UUID 不符（要求排除 {0}，{2} 张 GPU 中 {1} 张不符）",
    ),
    "type": Words(
        "device type mismatch (requested {0}, has {1})",
        "GPU 型号不符（要求 {0}，节点有 {1}）",
    ),
    "type-excluded": Words(
        "device type mismatch (requested not {0}, has {1})",
        "GPU 型号不符（要求排除 {0}，节点有 {1}）",
    ),
    "mode": Words(
        "device mode mismatch (requested {0}, has {1})",
        "GPU 共享方式不符（要求 {0}，节点有 {1}）",
    ),
    "cordoned": Words("GPU cordoned ({0} of {1} GPUs)", "GPU 已停止调度（{1} 张 GPU 中 {0} 张）"),
    "unhealthy": Words("GPU unhealthy ({0} of {1} GPUs)", "GPU 不健康（{1} 张 GPU 中 {0} 张）"),
    "unsure": Words(
        "MIG placements unknown (pods hold instances at unknown places of {0} of {1} GPUs)",
        "MIG 位置未知（{1} 张 GPU 中 {0} 张上有 Pod 占用位置未知的实例）",
    ),
    "node-unknown": Words("the node is unknown", "未知的节点"),
    "node-empty": Words("the node has no registered GPU", "节点没有注册 GPU"),
    "node-offers-none": Words("the kubelet of the node offers 0 {0}", "节点的 kubelet 提供的 {0} 为 0"),
    "undecodable": Words("the pod cannot be decoded: {0}", "无法解析该 Pod：{0}"),
    "too-many-containers": Words(
        "the pod has {0} containers, at most {1} are supported", "该 Pod 有 {0} 个容器，最多支持 {1} 个"
    ),
    "too-many-gpus": Words(
        "{0}: the pod requests {1} GPUs, at most {2} are possible", "{0}：该 Pod 申请 {1} 张 GPU，最多 {2} 张"
    ),
    "not-whole": Words("container {0}: {1} is {2}, which is not a whole number", "容器 {0}：{1} 的值为 {2}，不是整数"),
    "negative": Words("container {0}: {1} is {2}, which is negative", "容器 {0}：{1} 的值为 {2}，是负数"),
    "too-large": Words("container {0}: {1} is {2}, the most is {3}", "容器 {0}：{1} 的值为 {2}，最大为 {3}"),
    "annotation-long": Words("annotation {0} has more than {1} characters", "注解 {0} 超过 {1} 个字符"),
    "weights": Words(
        "annotation {0} is {1}, it must be slot=<n>,core=<n>,memory=<n> with one greater than 0",
        "注解 {0} 的值为 {1}，应为 slot=<n>,core=<n>,memory=<n>，且至少一个大于 0",
    ),
    "bind-timeout": Words("not bound within {0} s", "{0} 秒内未完成绑定"),
    "bind-gone": Words("the pod does not exist any more", "该 Pod 已不存在"),
    "bind-replaced": Words("another pod has this name now", "该名称现在属于另一个 Pod"),
    "bind-ended": Words("the pod is being deleted, or has ended", "该 Pod 正在被删除，或已结束"),
    "bind-elsewhere": Words("the pod is already bound to {0}", "该 Pod 已绑定到 {0}"),
    "bind-unassigned": Words("the pod has no assignment of GPUs on {0}", "该 Pod 在 {0} 上没有 GPU 指派"),
    "bind-assigned-elsewhere": Words(
        "the pod has no assignment of GPUs on {0}; it has one on {1}",
        "该 Pod 在 {0} 上没有 GPU 指派；它被指派到 {1}",
    ),
    "bind-unsealed": Words(
        "the assignment of GPUs on {0} is not one that this scheduler made", "{0} 上的 GPU 指派不是本调度器作出的"
    ),
    "bind-node-unknown": Words(
        "the assignment does not fit any more: node {0} is unknown", "指派已失效：未知的节点 {0}"
    ),
    "bind-not-held": Words(
        "the assignment does not fit any more: its GPUs are not held", "指派已失效：其 GPU 已不再保留"
    ),
    "bind-gpu-unknown": Words(
        "the assignment does not fit any more: {0} is not registered any more", "指派已失效：{0} 已不再注册"
    ),
    "bind-over-memory": Words(
        "the assignment does not fit any more: {0}MB of {1} are allocated, it has {2}MB",
        "指派已放不下：{1} 已分配 {0}MB，总共 {2}MB",
    ),
    "bind-over-slots": Words(
        "the assignment does not fit any more: {0} slots of {1} are allocated, it has {2} slots",
        "指派已放不下：{1} 已分配 {0} 份，总共 {2} 份",
    ),
    "bind-over-cores": Words(
        "the assignment does not fit any more: {0}% of cores of {1} are allocated, it has {2}% of cores",
        "指派已放不下：{1} 已分配 {0}% 的算力，总共 {2}%",
    ),
    "bind-over-slices": Words(
        "the assignment does not fit any more: {0} memory slices of {1} are allocated, it has {2} memory slices",
        "指派已放不下：{1} 已分配 {0} 个显存切片，总共 {2} 个",
    ),
    "bind-claimed": Words(
        "the assignment does not fit any more: a ResourceClaim holds {0}",
        "指派已失效：{0} 已被 ResourceClaim 占用",
    ),
    "bind-unsure": Words(
        "the assignment does not fit any more: a pod holds MIG instances at unknown places of {0}",
        "指派已失效：有 Pod 在 {0} 上占用位置未知的 MIG 实例",
    ),
    "locked-by": Words("node {0} has been locked by {1}", "节点 {0} 已被 {1} 锁定"),
    "locked-old": Words(
        "node {0} has been locked by a pod that the lock does not name", "节点 {0} 已被锁定，锁中没有 Pod 的名称"
    ),
    "locked": Words(
        "node {0} has been locked: other pods are being bound to it", "节点 {0} 已被锁定：正在绑定其他 Pod"
    ),
}


@lru_cache(maxsize=4096)  # thousands of nodes have few sentences
def said(sentence: Sentence, *values: str) -> Words:
    """A sentence with its values, in both languages."""
    words = SENTENCES[sentence]
    return Words(words.en.format(*values), words.zh.format(*values))


def lacking(sentence: Sentence, requested: str, available: str) -> Words:
    """A sentence about an amount that is too small. All nodes share what is requested; what is available differs."""
    en, en_end, zh, zh_end = _around(sentence, requested)
    return Words(f"{en}{available}{en_end}", f"{zh}{available}{zh_end}")


_AVAILABLE = "\0"  # in place of the amount


@lru_cache(maxsize=256)
def _around(sentence: Sentence, requested: str) -> tuple[str, str, str, str]:
    """What stands before and after the amount that is available, in both languages."""
    words = said(sentence, requested, _AVAILABLE)
    (en, _, en_end), (zh, _, zh_end) = words.en.partition(_AVAILABLE), words.zh.partition(_AVAILABLE)
    return en, en_end, zh, zh_end
