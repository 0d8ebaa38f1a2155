"""The numbers behind the reasons that schedulers report for a pod: what it requests, what is free, and where.

Schedulers report a reason and nodes; the ledger adds the numbers. If the ledger sees room, the sentence says so: a
scheduler's report is as old as its last attempt.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct, structs

from vgpuscope.knowledge.vendors import BY_RESOURCE, NVIDIA, Vendor, vendor_by_resource
from vgpuscope.logic.cluster.fit import LOST_ZH
from vgpuscope.model.cluster import DeviceLedger, NamespaceLedger, NodeLedger, OfferLedger, QuotaUse
from vgpuscope.model.pending import PendingPod
from vgpuscope.model.quantity import MIB, Bytes
from vgpuscope.model.scheduling_codes import BY_CODE, Code
from vgpuscope.model.words import NO_WORDS, Words

MOST_NODES = 5  # listed for one code
_MOST_DEVICES = 4  # listed for one node
_GIB = 1 << 30


def facts(
    pod: PendingPod,
    names: Iterable[str],
    *,
    node_of: Callable[[str], NodeLedger | None],
    namespace: NamespaceLedger,
) -> dict[str, tuple[Words, ...]]:
    """Sentences with numbers and names for each currently reported code about which the ledger has numbers.

    `names` are the nodes to look at for a reason that names no nodes.
    """
    said = _said_of(pod)
    known = {name for named in said.values() for name in named}  # another reason is reported for these
    others = [name for name in names if name not in known]
    found = {}
    for code, named in said.items():
        make = _MAKERS.get(code)
        if make is None:
            continue
        looked = [node for name in (named or others) if (node := node_of(name)) is not None]
        lines = tuple(make(_Case(pod, _asked(pod), looked, bool(named), namespace)))
        if lines:
            found[code] = lines
    return found


def explain(pod: PendingPod) -> dict[str, Code]:
    """The codes reported for the pod, with its namespace, name, scheduler and nodes filled into the runbook."""
    named = _said_of(pod, current=False)
    codes = {pod.code: (), **named}
    return {code: _filled(BY_CODE[code], pod, nodes) for code, nodes in codes.items() if code in BY_CODE}


def _said_of(pod: PendingPod, *, current: bool = True) -> dict[str, tuple[str, ...]]:
    """By code: the nodes it is reported for, if the report names them."""
    found: dict[str, dict[str, None]] = {}
    for one in pod.said:
        if one.current or not current:
            found.setdefault(one.reason.code, {}).update(dict.fromkeys(one.reason.nodes))
    return {code: tuple(nodes) for code, nodes in found.items()}


# --- runbooks ---------------------------------------------------------------------------------------------------------

_PLACEHOLDERS = re.compile(r"(?: node)? NODE\b|\b(?:NAMESPACE|POD|SCHEDULER)\b")
_FEW = 3  # nodes in a command


def _filled(code: Code, pod: PendingPod, nodes: Sequence[str]) -> Code:
    known = {"NAMESPACE": pod.namespace, "POD": pod.pod, "SCHEDULER": pod.scheduler or "default-scheduler"}

    def name(found: re.Match[str]) -> str:
        word = found[0]
        if not word.endswith("NODE"):
            return known[word]
        if nodes:
            return f"{word.removesuffix(' NODE')} {' '.join(nodes[:_FEW])}"
        return f"{word.removesuffix(' NODE')}s" if word.startswith(" node") else ""

    return structs.replace(code, runbook=_PLACEHOLDERS.sub(name, code.runbook))


# --- requests ---------------------------------------------------------------------------------------------------------


class _Asked(Struct, frozen=True):
    """What a pod requests of each GPU, and how many GPUs; None: not given, or not known from the sums."""

    resource: str  # the requested resource that counts GPUs
    count: int
    vendor: Vendor
    each: bool  # the amounts below are for each GPU
    memory: Bytes | None
    percentage: int | None  # of the GPU's memory
    cores: int | None

    def of(self, one: DeviceLedger) -> Bytes | None:
        """The memory requested on this GPU."""
        if self.memory is None and self.percentage is not None:
            return -(-one.device.memory * self.percentage // 100)
        return self.memory


def _asked(pod: PendingPod) -> _Asked:
    """The request of a pod: requests are sums over containers, so only with one container they apply to each GPU."""
    wanted = pod.requests
    resource = next((name for name in wanted if _counts(name)), "")
    vendor = vendor_by_resource(resource) or NVIDIA
    count = wanted.get(resource, 0)
    each = pod.asking == 1 or count == 1
    memory, share, cores = (
        wanted.get(name) if name and each else None for name in (vendor.memory, vendor.memory_percentage, vendor.core)
    )
    return _Asked(
        resource=resource,
        count=count,
        vendor=vendor,
        each=each,
        memory=memory * vendor.memory_unit if memory and vendor.memory_unit else None,
        percentage=share if not memory else None,
        cores=min(100, cores) if cores and vendor.core_unit == "percent" else None,
    )


def _counts(resource: str) -> bool:
    """Whether one of the resource is one device."""
    vendor = BY_RESOURCE.get(resource)
    return vendor.count == resource if vendor else vendor_by_resource(resource) is not None


class _Case(Struct, frozen=True):
    """One pod and one code."""

    pod: PendingPod
    asked: _Asked
    nodes: Sequence[NodeLedger]  # the nodes named by the reason, or all others
    named: bool
    namespace: NamespaceLedger

    def devices(self, node: NodeLedger) -> list[DeviceLedger]:
        return [one for one in node.devices if one.device.vendor == self.asked.vendor.word]


# --- quotas -----------------------------------------------------------------------------------------------------------


def _quota(case: _Case) -> Iterator[Words]:
    """Exceeded quotas; if no quota is exceeded by our numbers, all quotas that limit the pod's requests."""
    limited = [(one, asked) for one in case.namespace.quotas if one.limit is not None and (asked := _total(case, one))]
    over = [(one, asked) for one, asked in limited if one.used + asked > _limit(one)]
    for one, asked in over or limited:
        unit = " MiB" if one.resource == case.asked.vendor.memory else ""
        name = min(one.limits, key=lambda limit: limit.limit).name
        least = "" if case.asked.each else "at least "
        missing = one.used + asked - _limit(one)
        too_much = Words(f": {missing}{unit} too much.", f"，超出 {missing}{unit}。")
        yield Words(
            f"Quota {name} of namespace {case.namespace.name}: {one.resource} {one.used} of {_limit(one)}{unit} used; "
            f"the pod asks for {least}{asked}{unit}",
            f"命名空间 {case.namespace.name} 的配额 {name}：{one.resource} 已用 {one.used}，上限 {_limit(one)}{unit}；"
            f"Pod {'' if case.asked.each else '至少'}申请 {asked}{unit}",
        ) + (too_much if missing > 0 else _FITS)


def _limit(quota: QuotaUse) -> int:
    return (quota.limit or 0) * quota.factor


def _total(case: _Case, quota: QuotaUse) -> int:
    """How much of the quota all GPUs of the pod need: a container's request applies to each of its GPUs."""
    asked = case.pod.requests.get(quota.resource, 0) * quota.factor
    return asked * case.asked.count if case.asked.each else asked


# --- memory, cores and numbers ----------------------------------------------------------------------------------------


class _Line(Struct, frozen=True):
    """A sentence about a node, and a number that is higher the closer the node comes to the request."""

    text: Words
    best: float = 0.0


_FITS = Words(", which fits now.", "，现在可以满足。")


def _missing(what: str) -> Words:
    return Words(f": {what} missing.", f"，缺少 {what}。")


def _memory(case: _Case) -> Iterator[Words]:
    yield from _each_node(case, _memory_of)


def _memory_of(case: _Case, node: NodeLedger) -> _Line:
    open_ = [one for one in case.devices(node) if not one.lost and one.slots_free]
    if not open_:
        return _Line(_closed(case, node), -1.0)
    best = max(open_, key=lambda one: one.memory_free)
    asked = case.asked.of(best)
    if asked is None:
        free, total = _sizes(best.memory_free, best.device.memory)
        rest = _WHOLE_BY_DEFAULT if case.asked.each else _AMOUNT_UNKNOWN
    else:
        missing = asked - best.memory_free
        free, total, wanted, lacking = _sizes(best.memory_free, best.device.memory, asked, max(0, missing))
        rest = Words(f"the pod asks for {wanted}", f"Pod 申请 {wanted}") + (_missing(lacking) if missing > 0 else _FITS)
    scaling = best.device.memory_scaling
    scaled = Words(f" with memory scaling ×{scaling:.3g}", f"（显存超分 ×{scaling:.3g}）") if scaling else NO_WORDS
    most = Words(
        f"{node.name}: {_gpu(best)} has the most free memory, {free} of {total}",
        f"{node.name}：{_gpu(best)} 的空闲显存最多，{free} / {total}",
    )
    return _Line(most + scaled + Words("; ", "；") + rest, float(best.memory_free))


_WHOLE_BY_DEFAULT = Words(
    "the pod names no amount, so HAMi allocates a whole GPU by default.",
    "Pod 没有写明显存，HAMi 默认分配整张 GPU。",
)
_AMOUNT_UNKNOWN = Words("how much the pod wants on each GPU is unknown.", "Pod 在每张 GPU 上需要多少显存未知。")


def _cores(case: _Case) -> Iterator[Words]:
    if case.asked.cores is not None:
        yield from _each_node(case, _cores_of)


def _cores_of(case: _Case, node: NodeLedger) -> _Line:
    open_ = [one for one in case.devices(node) if not one.lost and one.slots_free]
    if not open_:
        return _Line(_closed(case, node), -1.0)
    best, asked = max(open_, key=lambda one: one.cores_free), case.asked.cores or 0
    alone = asked == 100 and best.device.cores == 100 and best.shared > 0
    missing = asked - min(100, best.cores_free)
    rest = Words(", which needs a GPU without tenants", "，这需要一张没有租户的 GPU") if alone else NO_WORDS
    rest += _missing(f"{missing}%") if missing > 0 else Words(".", "。") if alone else _FITS
    most = Words(
        f"{node.name}: {_gpu(best)} has the most free cores, {best.cores_free}% of {best.device.cores}%; "
        f"the pod asks for {asked}%",
        f"{node.name}：{_gpu(best)} 的空闲算力最多，{best.cores_free}% / {best.device.cores}%；Pod 申请 {asked}%",
    )
    return _Line(most + rest, float(best.cores_free))


def _count(case: _Case) -> Iterator[Words]:
    yield from _each_node(case, _count_of)


def _count_of(case: _Case, node: NodeLedger) -> _Line | None:
    offer = _offer(case, node)
    if offer:
        return _Line(_offered(case, node, offer), float(offer.free))
    devices, asked = case.devices(node), case.asked
    if not devices:
        return _Line(_closed(case, node), -1.0) if case.named else None
    fits = sum(_has_room(one, asked) for one in devices)
    room, verb = _room(asked), "has" if 1 in {fits, len(devices)} else "have"
    text = Words(
        f"{node.name}: {fits} of {_many(len(devices), 'GPU')} {verb} {room.en}; the pod asks for {asked.count}",
        f"{node.name}：{len(devices)} 张 GPU 中有 {fits} 张{room.zh}；Pod 申请 {asked.count} 张",
    )
    lacking = asked.count - fits
    return _Line(
        text + (Words(f": {lacking} missing.", f"，缺少 {lacking} 张。") if lacking > 0 else _FITS), float(fits)
    )


def _room(asked: _Asked) -> Words:
    """What each GPU must have."""
    wants = [Words(_size(asked.memory), f"{_size(asked.memory)} 显存")] if asked.memory is not None else []
    if asked.percentage is not None:
        wants.append(Words(f"{asked.percentage}% of the memory", f"{asked.percentage}% 显存"))
    if asked.cores is not None:
        wants.append(Words(f"{asked.cores}% of the cores", f"{asked.cores}% 算力"))
    if not wants:
        return Words("a free slot", "有空闲份数")
    return Words(f"room for {' and '.join(one.en for one in wants)}", f"能容纳 {'和 '.join(one.zh for one in wants)}")


def _has_room(one: DeviceLedger, asked: _Asked) -> bool:
    memory, cores = asked.of(one) or 0, asked.cores or 0
    alone = cores < 100 or one.device.cores != 100 or not one.shared
    full = bool(one.device.cores) and not one.cores_free
    enough = one.memory_free >= memory and one.cores_free >= cores and not full
    return one.lost is None and one.slots_free > 0 and enough and alone


def _slots(case: _Case) -> Iterator[Words]:
    for node in _with_devices(case):
        devices = case.devices(node)
        used, total = sum(one.shared for one in devices), sum(one.device.slots for one in devices)
        yield Words(
            f"{node.name}: {used} of {total} slots used on {_many(len(devices), 'GPU')}.",
            f"{node.name}：{len(devices)} 张 GPU 共 {total} 份，已用 {used} 份。",
        )


def _exclusive(case: _Case) -> Iterator[Words]:
    for node in _with_devices(case):
        devices = case.devices(node)
        free = sum(not one.shared for one in devices)
        shared = [one for one in devices if one.shared]
        held = _listed(
            [Words(f"{_gpu(one)} has {one.containers}", f"{_gpu(one)} 有 {one.containers} 个") for one in shared]
        )
        verb = "has" if 1 in {free, len(devices)} else "have"
        yield Words(
            f"{node.name}: {free} of {_many(len(devices), 'GPU')} {verb} no tenant{f'; {held.en}' if shared else ''}.",
            f"{node.name}：{len(devices)} 张 GPU 中有 {free} 张没有租户{f'；{held.zh}' if shared else ''}。",
        )


# --- properties of GPUs and nodes -------------------------------------------------------------------------------------


def _types(case: _Case) -> Iterator[Words]:
    for node in _with_devices(case):
        types = dict.fromkeys(one.device.type for one in case.devices(node))
        yield Words(
            f"{node.name}: {', '.join(one or 'no type' for one in types)}.",
            f"{node.name}：{'、'.join(one or '无型号' for one in types)}。",
        )


def _uuids(case: _Case) -> Iterator[Words]:
    for node in _with_devices(case):
        yield _of_node(node, _listed([Words(one.device.id, one.device.id) for one in case.devices(node)]))


def _modes(case: _Case) -> Iterator[Words]:
    for node in _with_devices(case):
        modes = [
            Words(
                f"{_gpu(one)} is {one.device.mode or 'in no mode'}", f"{_gpu(one)} 的模式是 {one.device.mode or '无'}"
            )
            for one in case.devices(node)
        ]
        yield _of_node(node, _listed(modes))


def _of_node(node: NodeLedger, listed: Words) -> Words:
    return Words(f"{node.name}: {listed.en}.", f"{node.name}：{listed.zh}。")


def _unhealthy(case: _Case) -> Iterator[Words]:
    yield from _lost_devices(case, Words("unhealthy", "不健康"))


def _cordoned(case: _Case) -> Iterator[Words]:
    yield from _lost_devices(case, Words("cordoned", "已停止调度"))


def _lost_devices(case: _Case, why: Words) -> Iterator[Words]:
    found = [
        Words(
            f"{node.name}: {_gpu(one)} ({one.device.id}) is {why.en}.",
            f"{node.name}：{_gpu(one)}（{one.device.id}）{why.zh}。",
        )
        for node in case.nodes
        for one in case.devices(node)
        if (one.device.cordoned if why.en == "cordoned" else not one.device.healthy)
    ]
    yield from _at_most(found, "GPU", Words("are out of service too", "也不可用"))


def _mig(case: _Case) -> Iterator[Words]:
    lines = []
    for node in case.nodes:
        offer = _offer(case, node)
        if offer:
            lines.append(_offered(case, node, offer))
        for one in case.devices(node):
            if one.device.mode == "mig":
                held = _many(len(one.instances), "MIG instance")
                free, total = _sizes(one.memory_free, one.device.memory)
                lines.append(
                    Words(
                        f"{node.name}: {_gpu(one)} holds {held}, {free} of {total} free.",
                        f"{node.name}：{_gpu(one)} 有 {len(one.instances)} 个 MIG 实例，空闲 {free} / {total}。",
                    )
                )
    yield from _at_most(lines, "GPU", Words("are not listed", "未列出"))


def _unregistered(case: _Case) -> Iterator[Words]:
    for node in case.nodes[:MOST_NODES] if case.named else ():
        if not case.devices(node):
            yield _closed(case, node)


def _not_ready(case: _Case) -> Iterator[Words]:
    bad = [node.name for node in _of_interest(case) if not node.ready]
    found = [Words(f"{name} is not ready.", f"{name} 未就绪。") for name in bad]
    yield from _at_most(found, "node", Words("are not ready either", "也未就绪"))


def _unschedulable(case: _Case) -> Iterator[Words]:
    closed = [node.name for node in _of_interest(case) if not node.schedulable]
    found = [Words(f"{name} is cordoned.", f"{name} 已停止调度。") for name in closed]
    yield from _at_most(found, "node", Words("are cordoned too", "也已停止调度"))


def _of_interest(case: _Case) -> Iterator[NodeLedger]:
    """The named nodes; if the reason names no nodes, those with GPUs."""
    return (node for node in case.nodes if case.named or node.devices or node.offers)


def _claims(case: _Case) -> Iterator[Words]:
    if case.pod.claims:
        claims = case.pod.claims
        yield Words(f"ResourceClaims of the pod: {', '.join(claims)}.", f"Pod 的 ResourceClaim：{'、'.join(claims)}。")


_MAKERS: dict[str, Callable[[_Case], Iterator[Words]]] = {
    "SCHED_QUOTA_EXCEEDED": _quota,
    "SCHED_INSUFFICIENT_GPU_MEMORY": _memory,
    "SCHED_INSUFFICIENT_GPU_CORES": _cores,
    "SCHED_INSUFFICIENT_GPU_COUNT": _count,
    "SCHED_SLOTS_EXHAUSTED": _slots,
    "SCHED_EXCLUSIVE_CONFLICT": _exclusive,
    "SCHED_DEVICE_TYPE_MISMATCH": _types,
    "SCHED_DEVICE_UUID_MISMATCH": _uuids,
    "SCHED_DEVICE_UNHEALTHY": _unhealthy,
    "SCHED_DEVICE_CORDONED": _cordoned,
    "SCHED_MODE_MISMATCH": _modes,
    "SCHED_MIG_INFEASIBLE": _mig,
    "SCHED_NODE_UNREGISTERED": _unregistered,
    "SCHED_NODE_NOT_READY": _not_ready,
    "SCHED_NODE_UNSCHEDULABLE": _unschedulable,
    "SCHED_DRA_UNALLOCATABLE": _claims,
}


# --- sentences --------------------------------------------------------------------------------------------------------


def _each_node(case: _Case, make: Callable[[_Case, NodeLedger], _Line | None]) -> Iterator[Words]:
    """A sentence for each named node; if no node is named, for those that come closest to the request."""
    nodes = case.nodes if case.named else [node for node in case.nodes if case.devices(node) or _offer(case, node)]
    lines = [line for node in nodes if (line := make(case, node)) is not None]
    if not case.named:
        lines.sort(key=lambda line: -line.best)
    rest = Words("are not listed", "未列出") if case.named else Words("have less", "更少")
    yield from _at_most([line.text for line in lines], "node", rest)


_COUNTED = {"node": "个节点", "GPU": "张 GPU"}


def _at_most(lines: Sequence[Words], what: str, verb: Words) -> Iterator[Words]:
    yield from lines[:MOST_NODES]
    rest = len(lines) - MOST_NODES
    if rest > 0:
        yield Words(
            f"{rest} more {what}{'' if rest == 1 else 's'} {verb.en}.", f"另有 {rest} {_COUNTED[what]}{verb.zh}。"
        )


def _with_devices(case: _Case) -> list[NodeLedger]:
    return [node for node in case.nodes if case.devices(node)][:MOST_NODES]


def _closed(case: _Case, node: NodeLedger) -> Words:
    if case.devices(node):
        return Words(f"{node.name}: no GPU in service has a free slot.", f"{node.name}：可用的 GPU 都没有空闲份数。")
    offered = [f"{one.offer.capacity} {one.offer.resource}" for one in node.offers]
    return Words(
        f"{node.name}: registers no GPU" + (f"; its kubelet offers {', '.join(offered)}." if offered else "."),
        f"{node.name}：没有注册 GPU" + (f"；kubelet 提供 {'、'.join(offered)}。" if offered else "。"),
    )


def _offer(case: _Case, node: NodeLedger) -> OfferLedger | None:
    """The kubelet's counted resource that the pod requests; None if the pod requests memory or cores (needs HAMi)."""
    whole = set(case.pod.requests) <= {case.asked.resource}
    return next((one for one in node.offers if whole and one.offer.resource == case.asked.resource), None)


def _offered(case: _Case, node: NodeLedger, one: OfferLedger) -> Words:
    asked, free, offer = case.asked.count, one.free, one.offer
    lost = Words(f" ({one.lost})", f"（{LOST_ZH[one.lost]}）") if one.lost else NO_WORDS
    text = (
        Words(
            f"{node.name}: {free} of {offer.capacity} {offer.resource} free",
            f"{node.name}：{offer.resource} 空闲 {free} / {offer.capacity}",
        )
        + lost
        + Words(f"; the pod asks for {asked}", f"；Pod 申请 {asked}")
    )
    return text + (_missing(str(asked - free)) if asked > free else _FITS)


def _listed(words: Sequence[Words]) -> Words:
    first, rest = words[:_MOST_DEVICES], len(words) - _MOST_DEVICES
    return Words(
        ", ".join(one.en for one in first) + (f" and {rest} more" if rest > 0 else ""),
        "、".join(one.zh for one in first) + (f" 等 {len(words)} 个" if rest > 0 else ""),
    )


def _gpu(one: DeviceLedger) -> str:
    return f"GPU {one.device.index}"


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _size(amount: Bytes) -> str:
    if not amount:
        return "0"
    return f"{amount / _GIB:.1f} GiB" if amount >= _GIB else f"{amount / MIB:g} MiB"


def _sizes(*amounts: Bytes) -> list[str]:
    """All amounts in a unit in which different amounts look different."""
    texts = [_size(amount) for amount in amounts]
    if len(set(texts)) == len(set(amounts)) and not any(text.startswith("0.0") for text in texts):
        return texts
    return [f"{amount / MIB:g} MiB" if amount else "0" for amount in amounts]
