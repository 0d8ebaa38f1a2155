"""What would have to change for a pod to fit: only what is certain from its requests and the free capacity.

A pod's requests are known only as sums over its containers. If it requests several GPUs, the amount on each GPU is
unknown. A GPU that is too small stays so whatever else the pod requires, such as a GPU type. A GPU with room may still
be rejected for such a requirement, so that advice says only that capacity is not the problem.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from vgpuscope.knowledge.vendors import VENDORS, Vendor
from vgpuscope.model.cluster import DeviceLedger, LostReason, NodeLedger
from vgpuscope.model.quantity import MIB, Bytes
from vgpuscope.model.words import NO_WORDS, Words

_GIB = 1 << 30
LOST_ZH: dict[LostReason, str] = {
    "unhealthy": "不健康",
    "cordoned": "已停止调度",
    "kubelet-zero": "kubelet 提供 0 个",
    "node-not-ready": "节点未就绪",
    "node-unschedulable": "节点已停止调度",
}


class _Wish(Struct, frozen=True):
    """The request for one GPU; None: not given, which for memory may mean the whole GPU."""

    memory: Bytes | None
    percentage: int | None  # of the GPU's memory
    cores: int  # percent


class _Gpu(Struct, frozen=True):
    node: str
    one: DeviceLedger


def advice(
    requests: Mapping[str, int], nodes: Iterable[NodeLedger], *, blocker: Words | None = None
) -> tuple[Words, ...]:
    """Sentences that say why the pod fits nowhere, or which GPU has room; empty if neither is certain.

    `blocker` names what keeps the pod pending if capacity is not the problem.
    """
    known = list(nodes)
    lines = [line for vendor in VENDORS for line in _of_vendor(vendor, requests, known)]
    lines = lines or list(_counted(requests, known))
    if blocker is None:
        return tuple(lines)
    cause = Words(f" The blocker is {blocker.en}.", f"阻塞原因是{blocker.zh}。")
    return tuple(line + cause if line.en.startswith(_ROOM.en) else line for line in lines)


_ROOM = Words("Capacity is not the problem: ", "容量不是问题：")


def _counted(requests: Mapping[str, int], nodes: list[NodeLedger]) -> Iterator[Words]:
    """Advice for GPUs that the kubelet only counts; a pod that requests memory or cores needs HAMi."""
    if len(requests) != 1:
        return
    ((resource, count),) = requests.items()
    offers = [(one.free, node.name, one) for node in nodes for one in node.offers if one.offer.resource == resource]
    if not offers:
        return
    free, name, one = max(offers, key=lambda offer: offer[:2])
    if free >= count:
        total = one.offer.capacity
        yield _ROOM + Words(
            f"{name} has {free} of {total} {resource} free.", f"{name} 的 {resource} 空闲 {free} / {total}。"
        )
    elif not any(node.devices for node in nodes):  # otherwise GPUs registered by HAMi may fit
        yield Words(
            f"The pod asks for {count} {resource} on one node; the most that is free is {free} of "
            f"{one.offer.capacity} ({name}): {count - free} missing.",
            f"Pod 在一个节点上申请 {count} 个 {resource}；空闲最多的节点是 {name}，{free} / {one.offer.capacity}，"
            f"缺少 {count - free} 个。",
        )


def _of_vendor(vendor: Vendor, requests: Mapping[str, int], nodes: list[NodeLedger]) -> Iterator[Words]:
    count = requests.get(vendor.count, 0)
    gpus = [_Gpu(node.name, one) for node in nodes for one in node.devices if one.device.vendor == vendor.word]
    if not count or not gpus:
        return
    usable = [gpu for gpu in gpus if gpu.one.lost is None]
    if count > 1:
        yield from _several(count, usable)
    elif vendor.core_unit == "percent" and vendor.memory_counted:
        yield from _single(_wish(vendor, requests), gpus, usable)


def _wish(vendor: Vendor, requests: Mapping[str, int]) -> _Wish:
    memory = requests.get(vendor.memory) if vendor.memory else None
    percentage = requests.get(vendor.memory_percentage) if vendor.memory_percentage else None
    return _Wish(
        memory=memory * vendor.memory_unit if memory and vendor.memory_unit else None,
        percentage=percentage if percentage and not memory else None,
        cores=min(100, requests.get(vendor.core, 0)) if vendor.core else 0,
    )


def _several(count: int, usable: list[_Gpu]) -> Iterator[Words]:
    """Advice for several GPUs: each one takes a slot, and all GPUs of a pod are on one node."""
    slots: dict[str, int] = {}
    for gpu in usable:
        slots[gpu.node] = slots.get(gpu.node, 0) + gpu.one.slots_free
    best = max(slots, key=lambda node: (slots[node], node), default=None)
    if best is None:
        yield Words(
            f"The pod asks for {count} GPUs on one node; no GPU is in service.",
            f"Pod 在一个节点上申请 {count} 张 GPU；没有可用的 GPU。",
        )
    elif slots[best] < count:
        yield Words(
            f"The pod asks for {count} GPUs on one node; no node has more than {slots[best]} free slots ({best}).",
            f"Pod 在一个节点上申请 {count} 张 GPU；没有节点的空闲份数超过 {slots[best]}（{best}）。",
        )


def _single(wish: _Wish, gpus: list[_Gpu], usable: list[_Gpu]) -> Iterator[Words]:
    short = list(_too_small(wish, [gpu for gpu in usable if gpu.one.slots_free]))
    yield from short
    roomy = [gpu for gpu in usable if _has_room(gpu.one, wish)]
    if roomy and not short:
        gpu = roomy[0]
        memory, cores, scaled = f"{gpu.one.memory_free / _GIB:.1f} GiB", min(100, gpu.one.cores_free), _scaled(gpu)
        yield _ROOM + Words(
            f"{_named(gpu)} has a free slot, {memory}{scaled.en} and {cores}% of its cores free.",
            f"{_named(gpu)} 有空闲份数，空闲显存 {memory}{scaled.zh}，空闲算力 {cores}%。",
        )
    for gpu in [gpu for gpu in gpus if gpu.one.lost and _has_room(gpu.one, wish)][:3] if not roomy else ():
        yield Words(
            f"{_named(gpu)} would have room, but accepts no pods: {gpu.one.lost}.",
            f"{_named(gpu)} 的容量足够，但不接受 Pod：{LOST_ZH.get(gpu.one.lost or 'cordoned', gpu.one.lost)}。",
        )


def _too_small(wish: _Wish, usable: list[_Gpu]) -> Iterator[Words]:
    """One sentence for each resource of which no GPU has enough.

    For a MIG GPU the free amount is an upper bound.
    """
    if not usable:
        yield Words("No GPU in service has a free slot.", "可用的 GPU 都没有空闲份数。")
        return
    if wish.memory is not None:
        most = max(usable, key=lambda gpu: gpu.one.memory_free)
        if most.one.memory_free < wish.memory:
            asked, free, missing = _sizes(wish.memory, most.one.memory_free)
            scaled, name = _scaled(most), _named(most)
            yield Words(
                f"The pod asks for {asked} of one GPU; the largest free piece is {free}{scaled.en} ({name}): "
                f"{missing} missing.",
                f"Pod 在一张 GPU 上申请 {asked}；最大的空闲显存是 {name} 的 {free}{scaled.zh}，缺少 {missing}。",
            )
    if wish.cores:
        most = max(usable, key=lambda gpu: _cores(gpu.one))
        if _cores(most.one) < wish.cores:
            most_free = _cores(most.one)
            missing = f"{wish.cores - most_free}%"
            yield Words(
                f"The pod asks for {wish.cores}% of a GPU's cores; no GPU gives more than {most_free}% "
                f"({_named(most)}): {missing} missing.",
                f"Pod 申请一张 GPU 的 {wish.cores}% 算力；GPU 最多能提供 {most_free}%（{_named(most)}），"
                f"缺少 {missing}。",
            ) + (_ALONE if wish.cores == 100 else NO_WORDS)


_ALONE = Words(" A request for all cores needs a GPU without tenants.", "申请全部算力需要一张没有租户的 GPU。")


def _has_room(one: DeviceLedger, wish: _Wish) -> bool:
    """Whether the request surely fits: False if it names no memory or if MIG placement decides."""
    if wish.memory is None and wish.percentage is None:
        return False
    memory = wish.memory if wish.memory is not None else -(-one.device.memory * (wish.percentage or 0) // 100)
    cores = one.device.cores and not one.cores_free
    fits = one.memory_free >= memory and _cores(one) >= wish.cores and not cores
    return one.device.mode != "mig" and one.slots_free > 0 and fits


def _cores(one: DeviceLedger) -> int:
    """The largest request for cores that the GPU accepts: 100 % needs a GPU without tenants."""
    alone = one.device.cores != 100 or not one.shared
    return min(one.cores_free, 100 if alone else 99)


def _named(gpu: _Gpu) -> str:
    return f"{gpu.node} GPU {gpu.one.device.index}"


def _scaled(gpu: _Gpu) -> Words:
    """The memory scaling, which explains why more memory can be free than the GPU has."""
    scaling = gpu.one.device.memory_scaling
    return Words(f" with memory scaling ×{scaling:.3g}", f"（显存超分 ×{scaling:.3g}）") if scaling else NO_WORDS


def _sizes(one: Bytes, other: Bytes) -> tuple[str, str, str]:
    """Both amounts and their difference, in a unit in which the two amounts look different."""
    amounts = (one, other, one - other)
    big = [f"{amount / _GIB:.1f} GiB" for amount in amounts]
    first, second, rest = big if big[0] != big[1] else [f"{amount / MIB:g} MiB" for amount in amounts]
    return first, second, rest
