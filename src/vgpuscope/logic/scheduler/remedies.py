"""What would make a pod fit that changes only the pod, its quota or a cordon: a smaller request, a relaxed constraint.

Each remedy is a placement that was made with the change applied, so it is true for the cluster of this moment.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from itertools import combinations

from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.knowledge.vendors import NVIDIA
from vgpuscope.logic.scheduler.node_fit import wanted_memory
from vgpuscope.logic.scheduler.node_info import GpuInfo, NodeInfo
from vgpuscope.logic.scheduler.place import ClusterView, WhatIfCluster, first_place, place_in
from vgpuscope.logic.scheduler.rules import Rules
from vgpuscope.logic.scheduler.state import NamespaceQuota, SchedulerState, assumed_pod, nvidia_sums
from vgpuscope.model.fit import Remedy, RemedySubject
from vgpuscope.model.placement import ContainerAsk, GpuSelection, Placement, PlacementRequest, Policies
from vgpuscope.model.words import Words


def never() -> bool:
    """A search that may take as long as it needs."""
    return False


class UnplacedPod:
    """A pod that does not fit, and the nodes and quotas by which it does not."""

    __slots__ = ("expired", "names", "policies", "request", "rules", "state", "view")

    def __init__(
        self,
        state: SchedulerState,
        view: WhatIfCluster,
        request: PlacementRequest,
        names: Sequence[str],
        policies: Policies,
        *,
        expired: Callable[[], bool] = never,
    ) -> None:
        """`state` has the pods that exist; `view` has earlier replicas, too. `expired`: a search has to end."""
        self.state, self.view, self.request, self.names, self.policies = state, view, request, names, policies
        self.expired = expired
        self.rules = Rules(request.selection, policies)

    def placed(self, request: PlacementRequest | None = None, view: ClusterView | None = None) -> Placement | None:
        """The placement of a changed request, or of the same one in another view; None: it does not fit either."""
        asked = request or self.request
        rules = self.rules if asked.selection == self.request.selection else Rules(asked.selection, self.policies)
        found = place_in(view or self.view, asked, self.names, rules=rules)
        return found if found.node else None

    def fits(self, request: PlacementRequest) -> bool:
        """Whether a changed request fits on some node; stops at the first."""
        rules = Rules(request.selection, self.policies)
        return bool(first_place(self.view, request, self.names, rules=rules).node)


# --- smaller ----------------------------------------------------------------------------------------------------------


def smaller(question: UnplacedPod) -> Iterator[Remedy]:
    """For each amount of each container: the largest with which the pod fits, if everything else stays as it is."""
    for at, ask in enumerate(question.request.asks):
        for amount in _amounts(ask):
            value = _largest(amount, partial(_fits_with, question, at, amount))
            found = question.placed(_with(question, at, amount.change(value))) if value is not None else None
            if value is not None and found is not None:
                yield _smaller(amount.subject, value, ask, found)


class _Amount(Struct, frozen=True):
    """One amount of a request: the range to search, and the request with another amount."""

    subject: RemedySubject
    least: int
    most: int
    change: Callable[[int], ContainerAsk]


def _amounts(ask: ContainerAsk) -> Iterator[_Amount]:
    """The amounts that could be smaller. 0 cores is a request, 0 memory is none."""
    if ask.memory is not None:
        yield _Amount("memory", 1, ask.memory - 1, lambda amount: replace(ask, memory=amount))
    else:
        yield _Amount("percentage", 1, (ask.percentage or 100) - 1, lambda amount: replace(ask, percentage=amount))
    if ask.cores:
        subject: RemedySubject = "exclusive" if ask.cores >= 100 else "cores"
        yield _Amount(subject, 0, ask.cores - 1, lambda amount: replace(ask, cores=amount))
    yield _Amount("count", 1, ask.count - 1, lambda amount: replace(ask, count=amount))


def _fits_with(question: UnplacedPod, at: int, amount: _Amount, value: int) -> bool:
    return question.fits(_with(question, at, amount.change(value)))


def _largest(amount: _Amount, fits: Callable[[int], bool]) -> int | None:
    """The largest amount that fits, by halving; None: not even the least does."""
    low, high = amount.least, amount.most
    if low > high or not fits(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _with(question: UnplacedPod, at: int, ask: ContainerAsk) -> PlacementRequest:
    asks = question.request.asks
    return replace(question.request, asks=(*asks[:at], ask, *asks[at + 1 :]))


_LESS: dict[RemedySubject, Words] = {
    "memory": Words("{} MiB of memory", "的显存申请减到 {} MiB 后"),
    "percentage": Words("{} % of the memory", "的显存申请减到 {} % 后"),
    "cores": Words("{} % of the cores", "的算力申请减到 {} % 后"),
    "exclusive": Words("{} % of the cores instead of a GPU of its own", "不独占 GPU、算力申请减到 {} % 后"),
    "count": Words("{} GPUs", "的 GPU 申请减到 {} 张后"),
}
_ONE_GPU = Words("1 GPU", _LESS["count"].zh.format(1))


def _smaller(subject: RemedySubject, value: int, ask: ContainerAsk, found: Placement) -> Remedy:
    less = _LESS[subject]
    less = _ONE_GPU if subject == "count" and value == 1 else Words(less.en.format(value), less.zh.format(value))
    return Remedy(
        kind="relax" if subject == "exclusive" else "smaller",
        subjects=(subject,),
        container=ask.name,
        value=value,
        node=found.node,
        gpus=found.gpus,
        message=f"With {less.en}, container {ask.name} fits on {found.node}.",
        message_zh=f"容器 {ask.name} {less.zh}，Pod 可调度到 {found.node}。",
    )


# --- relax ------------------------------------------------------------------------------------------------------------


def relaxed(question: UnplacedPod) -> Iterator[Remedy]:
    """Constraints without which the pod fits: each alone, or pairs if none alone is enough."""
    present = _present(question)
    alone = list(_found(question, [(one,) for one in present]))
    yield from alone or _found(question, list(combinations(present, 2)))


def _present(question: UnplacedPod) -> list[RemedySubject]:
    """The constraints that apply to the pod."""
    chosen = question.request.selection
    applies: dict[RemedySubject, bool] = {
        "type": bool(chosen.use_types or chosen.avoid_types),
        "uuid": bool(chosen.use_uuids or chosen.avoid_uuids),
        "mode": bool(chosen.mode),
        "numa-bind": chosen.numa_bind,
        "mutex": question.rules.mutex,
        "quota": question.view.room(question.request.namespace).limited,
        "cordon": any(_cordoned(question.view.node_info(name)) for name in question.names),
    }
    return [subject for subject, here in applies.items() if here]


def _cordoned(node_info: NodeInfo | None) -> bool:
    return node_info is not None and any(gpu.cordoned for gpu in node_info.gpus)


def _found(question: UnplacedPod, groups: Sequence[tuple[RemedySubject, ...]]) -> Iterator[Remedy]:
    for group in groups:
        selection = reduce(lambda chosen, one: _without(chosen, one, question), group, question.request.selection)
        request, cordon = replace(question.request, selection=selection), "cordon" in group
        room = question.view.room(request.namespace)
        found = question.placed(
            request, _Eased(question.view, NamespaceQuota() if "quota" in group else room, cordon=cordon)
        )
        if found is not None and "quota" not in group:
            yield _relaxed(question, group, found, {})
        for limits in (_counted(question, found), _at_most(question)) if found is not None and "quota" in group else ():
            raised = _raised(room, limits)
            found = question.placed(request, _Eased(question.view, raised, cordon=cordon))
            if found is not None:
                yield _relaxed(question, group, found, _changed(room, raised))
                break


def _without(chosen: GpuSelection, subject: RemedySubject, question: UnplacedPod) -> GpuSelection:
    match subject:
        case "type":
            return replace(chosen, use_types=(), avoid_types=())
        case "uuid":
            return replace(chosen, use_uuids=(), avoid_uuids=())
        case "mode":
            return replace(chosen, mode="")
        case "numa-bind":
            return replace(chosen, numa_bind=False)
        case "mutex":
            rest = tuple(name for name in question.rules.gpu_policy if name != "mutex")
            return replace(chosen, gpu_policy=rest or ("spread",))
        case _:
            return chosen


class _Eased:
    """The nodes and quotas with another quota, or with no GPU cordoned."""

    def __init__(self, view: ClusterView, room: NamespaceQuota, *, cordon: bool) -> None:
        self._view, self._room, self._cordon = view, room, cordon

    def node_info(self, name: str) -> NodeInfo | None:
        found = self._view.node_info(name)
        return found.uncordoned() if found is not None and self._cordon and _cordoned(found) else found

    def room(self, _: str) -> NamespaceQuota:
        return self._room


_NAMES: dict[RemedySubject, Words] = {
    "type": Words("its selection of GPU types", " GPU 型号限制"),
    "uuid": Words("its selection of GPU UUIDs", " GPU UUID 限制"),
    "mode": Words("its required mode", "共享方式要求"),
    "numa-bind": Words("its NUMA binding", " NUMA 绑定"),
    "mutex": Words("its mutex policy", " mutex 策略"),
    "quota": Words("the quota of its namespace", "命名空间的配额"),
    "cordon": Words("the cordon of GPUs", " GPU 的停止调度标记"),
}


def _relaxed(
    question: UnplacedPod, group: tuple[RemedySubject, ...], found: Placement, quota: dict[str, int]
) -> Remedy:
    devices = _to_uncordon(question, found) if "cordon" in group else ()
    detail = [f"{resource}={limit}" for resource, limit in quota.items()] + list(devices)
    shown = Words(f" ({', '.join(detail)})", f"（{'、'.join(detail)}）") if detail else Words("", "")
    names = [_NAMES[one] for one in group]
    if group == ("quota",):
        text = Words(
            f"With the quota raised to {', '.join(detail)}, the pod fits",
            f"配额提高到 {'、'.join(detail)} 后，Pod 可调度",
        )
    else:
        text = Words(
            f"Without {' and '.join(one.en for one in names)}{shown.en}, the pod fits",
            f"去掉{'和'.join(one.zh for one in names)}{shown.zh}后，Pod 可调度",
        )
    return Remedy(
        kind="relax",
        subjects=group,
        quota=quota,
        devices=devices,
        node=found.node,
        gpus=found.gpus,
        message=f"{text.en} on {found.node}.",
        message_zh=f"{text.zh}到 {found.node}。",
    )


def _counted(question: UnplacedPod, found: Placement) -> tuple[int, int]:
    """MiB and cores that a placement counts: a MIG instance as requested or by its profile, whichever is more."""
    asks, node_info = {ask.index: ask for ask in question.request.asks}, question.view.node_info(found.node)
    assert node_info is not None, "the pod fitted there"
    gpus = {gpu.id: gpu for gpu in node_info.gpus}
    counted = [
        replace(
            gpu,
            memory=max(gpu.memory, wanted_memory(asks[gpu.container], gpus[gpu.uuid].memory)),
            cores=max(gpu.cores, min(asks[gpu.container].cores, 100)),
        )
        for gpu in found.gpus
    ]
    return nvidia_sums(assumed_pod(question.request, replace(found, gpus=tuple(counted))))


def _at_most(question: UnplacedPod) -> tuple[int, int]:
    """What the pod could count at most, on the largest GPUs: which GPUs it gets can depend on the quota."""
    largest = max((gpu.memory for name in question.names for gpu in _gpus(question, name)), default=0)
    memory = sum(ask.count * (ask.memory if ask.memory is not None else largest) for ask in question.request.asks)
    return max(memory, largest) * _MOST_LINKED, sum(ask.count * 100 for ask in question.request.asks) * _MOST_LINKED


_MOST_LINKED = 16  # GPUs of a node: to compare their links, all of them are first counted against the quota


def _gpus(question: UnplacedPod, name: str) -> Sequence[GpuInfo]:
    node_info = question.view.node_info(name)
    return node_info.gpus if node_info is not None else ()


def _raised(room: NamespaceQuota, more: tuple[int, int]) -> NamespaceQuota:
    """The room with limits that allow so much more."""
    memory, cores = room.memory_used + more[0], room.cores_used + more[1]
    return replace(
        room,
        memory_limit=max(room.memory_limit, memory) if room.memory_limit is not None else None,
        cores_limit=max(room.cores_limit, cores) if room.cores_limit is not None else None,
    )


def _changed(before: NamespaceQuota, after: NamespaceQuota) -> dict[str, int]:
    """The limits that were raised, by resource."""
    limits = {
        NVIDIA.memory: (before.memory_limit, after.memory_limit),
        NVIDIA.core: (before.cores_limit, after.cores_limit),
    }
    return {name: new for name, (old, new) in limits.items() if name and new is not None and new != old}


def _to_uncordon(question: UnplacedPod, found: Placement) -> tuple[str, ...]:
    node_info = question.view.node_info(found.node)
    cordoned = {gpu.id for gpu in node_info.gpus if gpu.cordoned} if node_info is not None else set()
    return tuple(dict.fromkeys(gpu.uuid for gpu in found.gpus if gpu.uuid in cordoned))
