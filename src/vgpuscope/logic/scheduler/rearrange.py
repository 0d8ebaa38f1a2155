"""What would make a pod fit that changes other pods: the fewest idle pods to end, the fewest pods to move.

The search is bounded; a report says when it was cut. A pod is moved only to GPUs of the type and mode that it has. Its
other constraints are not known here, so a move is advice to check.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import combinations, groupby

from vgpuscope.logic.scheduler.node_fit import NodeRefusal, fit_pod, wanted_memory
from vgpuscope.logic.scheduler.place import WhatIfCluster, first_place, place_in
from vgpuscope.logic.scheduler.remedies import UnplacedPod
from vgpuscope.logic.scheduler.rules import Rules
from vgpuscope.logic.scheduler.state import NamespaceQuota, assumed_pod
from vgpuscope.model.allocation import PodState
from vgpuscope.model.fit import NamedPod, PodMove, Remedy
from vgpuscope.model.placement import ContainerAsk, GpuSelection, Placement, PlacementRequest
from vgpuscope.model.quantity import MIB, PodUID
from vgpuscope.model.words import Words

_MOST_TRIES = 1_500  # sets of pods that are tried before the search is cut, and
_MOST_NODES = 400_000  # nodes that are checked for them: a try looks at all nodes
_MOST_LOOKS = 150_000  # sets that are looked at: most of them free too little memory
_LARGEST_SET = 3  # pods of a set that is searched for; larger sets are found only as what is needed of all
_MOST_REMEDIES = 3  # of each kind: those with the fewest pods
_SHOWN = 5  # pods that a sentence names


class _Search:
    """The sets of pods that are worth a try, until a limit is reached."""

    def __init__(self, question: UnplacedPod) -> None:
        self._question = question
        self._tries = min(_MOST_TRIES, _MOST_NODES // max(len(question.names), 1))
        self._looks, self._late = _MOST_LOOKS, False
        # Only for one container without a quota it is certain that memory has to be free on as many GPUs as it wants.
        simple = len(question.request.asks) == 1 and not question.view.room(question.request.namespace).limited
        self._ask = question.request.asks[0] if simple else None

    @property
    def cut(self) -> bool:
        return self._late or self._tries < 0 or self._looks < 0

    def sets(self, pods: Sequence[PodState], size: int) -> Iterator[tuple[PodState, ...]]:
        """Each set of that size that could free enough memory."""
        held = [_memory(pod) for pod in pods]
        short = self._short(pods[0].place) if pods else {}
        if self.cut or len(pods) < size or not self._enough(short, [_largest(held, size)]):
            return
        for chosen in combinations(range(len(pods)), size):
            self._looks -= 1
            if self._looks < 0:
                return
            if self._enough(short, [held[at] for at in chosen]):
                self._tries -= 1
                self._late = self._question.expired()
                if self._late or self._tries < 0:
                    return
                yield tuple(pods[at] for at in chosen)

    def _short(self, node: str) -> dict[str, int] | None:
        """MiB that each GPU of a node lacks, negative if it has more than enough; None: that decides nothing."""
        ask, node_info = self._ask, self._question.view.node_info(node)
        if ask is None or node_info is None or node_info.mig:
            return None
        return {gpu.id: wanted_memory(ask, gpu.memory) - gpu.memory + gpu.used_memory for gpu in node_info.gpus}

    def _enough(self, short: dict[str, int] | None, freed: list[dict[str, int]]) -> bool:
        if short is None or self._ask is None:
            return True
        fitting = 0
        for uuid, lack in short.items():
            missing = lack
            for shares in freed:
                missing -= shares.get(uuid, 0)
            fitting += missing <= 0
        return fitting >= self._ask.count


def _largest(held: list[dict[str, int]], size: int) -> dict[str, int]:
    """MiB that so many pods could free on each GPU at most."""
    freed: dict[str, list[int]] = {}
    for shares in held:
        for uuid, memory in shares.items():
            freed.setdefault(uuid, []).append(memory)
    return {uuid: sum(sorted(each)[-size:]) for uuid, each in freed.items()}


def _memory(pod: PodState) -> dict[str, int]:
    """MiB that a pod holds of each GPU, at most."""
    found: dict[str, int] = {}
    for one in pod.assignments:
        found[one.device] = found.get(one.device, 0) + one.memory // MIB
    return found


# --- end --------------------------------------------------------------------------------------------------------------


def pods_to_end(question: UnplacedPod, idle: Collection[PodUID]) -> tuple[list[Remedy], bool]:
    """The smallest sets of idle pods whose end makes the pod fit, and whether the search was cut."""
    groups = list(_idle_groups(question, idle))
    search = _Search(question)
    found: dict[frozenset[PodUID], Remedy] = {}
    for size in range(1, _LARGEST_SET + 1):
        for chosen in (one for pods in groups for one in search.sets(pods, size)):
            key = frozenset(pod.uid for pod in chosen)
            remedy = _ended(question, chosen) if key not in found else None
            if remedy is not None:
                found[key] = remedy
                if len(found) == _MOST_REMEDIES:
                    break
        if found or search.cut:
            return _fewest(found.values()), search.cut
    for pods in groups:
        needed = _needed(question, pods) if len(pods) > _LARGEST_SET else ()
        remedy = _ended(question, needed) if needed else None
        if remedy is not None:
            found[frozenset(pod.uid for pod in needed)] = remedy
    return _fewest(found.values()), question.expired()


def _idle_groups(question: UnplacedPod, idle: Collection[PodUID]) -> Iterator[list[PodState]]:
    """The idle pods whose end could help together: those of one node, and of the namespace if a quota limits it."""
    pods = [pod for uid in dict.fromkeys(idle) for pod in question.state.holding(uid) if uid != question.request.uid]
    pods.sort(key=lambda pod: (pod.place, pod.namespace, pod.name, pod.uid))
    request = question.request
    limited = question.view.room(request.namespace).limited
    mates = [pod for pod in pods if limited and pod.namespace == request.namespace]
    names = set(question.names)
    for name, here in groupby(pods, key=lambda pod: pod.place):
        if name in names:
            at_node = list(here)
            yield [*at_node, *(pod for pod in mates if pod.place != name)]
    if mates and not any(pod.place in names for pod in mates):
        yield mates


def _needed(question: UnplacedPod, pods: Sequence[PodState]) -> list[PodState]:
    """Of pods whose end together is enough: those that are needed, dropping one after the other; none if it is not.

    When the time is over, more pods than needed may be left.
    """
    needed = list(pods)
    if question.expired() or _ended(question, needed) is None:
        return []
    for pod in list(needed):
        if question.expired():
            break
        rest = [one for one in needed if one is not pod]
        if _ended(question, rest) is not None:
            needed = rest
    return needed


def _ended(question: UnplacedPod, pods: Sequence[PodState]) -> Remedy | None:
    view = question.view.changed(without=tuple(pod.uid for pod in pods))
    names = {pod.place for pod in pods} & set(question.names)
    if question.view.room(question.request.namespace).limited:
        names = set(question.names)
    found = place_in(view, question.request, sorted(names), rules=question.rules)
    if not found.node:
        return None
    named = [f"{pod.namespace}/{pod.name}" for pod in pods[:_SHOWN]]
    rest, count = len(pods) - len(named), len(pods)
    shown = ", ".join(named) + (f" and {rest} more" if rest else "")
    shown_zh = "、".join(named) + (" 等" if rest else "")
    return Remedy(
        kind="end",
        subjects=("pods",),
        pods=tuple(_named(pod) for pod in pods),
        node=found.node,
        gpus=found.gpus,
        message=f"If {shown} ({count} idle pod{'' if count == 1 else 's'}) ended, the pod would fit on {found.node}.",
        message_zh=f"结束 {shown_zh}（{count} 个空闲 Pod）后，Pod 可调度到 {found.node}。",
    )


def _named(pod: PodState) -> NamedPod:
    return NamedPod(uid=pod.uid, namespace=pod.namespace, name=pod.name, node=pod.place)


def _fewest(found: Iterable[Remedy]) -> list[Remedy]:
    return sorted(found, key=lambda one: (len(one.pods) + len(one.moves), one.node, one.message))[:_MOST_REMEDIES]


# --- move -------------------------------------------------------------------------------------------------------------


def pods_to_move(question: UnplacedPod) -> tuple[list[Remedy], bool]:
    """The smallest sets of pods whose move to other GPUs makes the pod fit, and whether the search was cut."""
    search, rooms = _Search(question), _Rooms(question)
    groups = [pods for name in question.names if (pods := _movable(question, name))]
    for size in range(1, _LARGEST_SET + 1):
        found: list[Remedy] = []
        for chosen in (one for pods in groups for one in search.sets(pods, size)):
            remedy = _moved(question, chosen, rooms)
            if remedy is not None:
                found.append(remedy)
                if len(found) == _MOST_REMEDIES:
                    break
        if found or search.cut:
            return _fewest(found), search.cut
    return [], False


def _movable(question: UnplacedPod, name: str) -> list[PodState]:
    """The pods on a node that could be started again elsewhere: with equal shares, and without MIG instances."""
    node_info = question.view.node_info(name)
    if node_info is None or not node_info.usable:
        return []
    found = [pod for uid in question.state.holders(name) for pod in question.state.holding(uid)]
    known = {gpu.id for gpu in node_info.gpus}
    return [
        pod
        for pod in found
        if pod.place == name
        and pod.uid != question.request.uid
        and not pod.deleting
        and not pod.instances
        and not pod.claims  # their devices are on this node
        and len(question.state.holding(pod.uid)) == 1
        and all(one.device in known for one in pod.assignments)
        and _asks(pod) is not None
    ]


class _Rooms:
    """The nodes with room for a pod: found once for pods with equal requests and GPUs of equal kinds.

    A move makes room on the node that the pod leaves, and nowhere else. So no other node has to be looked at. Quotas
    are left to the placement itself.
    """

    def __init__(self, question: UnplacedPod) -> None:
        self._question = question
        self._known: dict[object, frozenset[str]] = {}

    def names(self, pod: PodState) -> list[str]:
        """The nodes with room for the pod, and its own, in the order of the candidates."""
        request, kinds = _request_of(pod), _kinds_of(self._question, pod)
        key = (request.asks, kinds)
        if key not in self._known:
            rules = Rules(GpuSelection(), self._question.policies, kinds=kinds)
            self._known[key] = frozenset(name for name in self._question.names if self._fits(name, request, rules))
        known = self._known[key]
        return [name for name in self._question.names if name in known or name == pod.place]

    def _fits(self, name: str, request: PlacementRequest, rules: Rules) -> bool:
        node_info = self._question.view.node_info(name)
        return (
            node_info is not None
            and node_info.usable
            and not isinstance(fit_pod(node_info, request, rules, NamespaceQuota()), NodeRefusal)
        )


def _moved(question: UnplacedPod, pods: Sequence[PodState], rooms: _Rooms) -> Remedy | None:
    name = pods[0].place
    left = question.view.changed(without=tuple(pod.uid for pod in pods))
    here = place_in(left, question.request, [name], rules=question.rules)
    if not here.node:
        return None
    return _arranged(question, left, pods, here, rooms)


def _arranged(
    question: UnplacedPod, left: WhatIfCluster, pods: Sequence[PodState], here: Placement, rooms: _Rooms
) -> Remedy | None:
    """The waiting pod first, then the moved pods wherever they fit; and then the waiting pod still has to fit."""
    view, moved = left.changed(also=(assumed_pod(question.request, here),)), left
    avoid = tuple(gpu.uuid for gpu in here.gpus) if question.rules.mutex else ()
    moves: list[PodMove] = []
    for pod in pods:
        found = _placed_again(question, view, pod, rooms.names(pod), avoid=avoid)
        if found is None or _stays(pod, found):
            return None
        moves.append(PodMove(pod=_named(pod), node=found.node, gpus=found.gpus))
        held = assumed_pod(_request_of(pod), found)
        view, moved = view.changed(also=(held,)), moved.changed(also=(held,))
    there = place_in(moved, question.request, [here.node], rules=question.rules)
    return _move_remedy(moves, there) if there.node else None


def _placed_again(
    question: UnplacedPod, view: WhatIfCluster, pod: PodState, names: Sequence[str], *, avoid: tuple[str, ...]
) -> Placement | None:
    """Where a pod could be started again, on GPUs of the kinds that it has."""
    rules = Rules(GpuSelection(avoid_uuids=avoid), question.policies, kinds=_kinds_of(question, pod))
    found = first_place(view, _request_of(pod), names, rules=rules)
    return found if found.node else None


def _kinds_of(question: UnplacedPod, pod: PodState) -> frozenset[tuple[str, str]]:
    """The types and modes of the GPUs that a pod holds."""
    old = question.state.node_info(pod.place)
    assert old is not None, "only pods on known nodes are moved"
    holds = {one.device for one in pod.assignments}
    return frozenset((gpu.type, gpu.mode) for gpu in old.gpus if gpu.id in holds)


def _stays(pod: PodState, found: Placement) -> bool:
    return {one.device for one in pod.assignments} == {gpu.uuid for gpu in found.gpus}


def _request_of(pod: PodState) -> PlacementRequest:
    asks = _asks(pod)
    assert asks is not None, "only such pods are moved"
    return PlacementRequest(
        uid=pod.uid, namespace=pod.namespace, name=pod.name, containers=1 + max(ask.index for ask in asks), asks=asks
    )


def _asks(pod: PodState) -> tuple[ContainerAsk, ...] | None:
    """What a pod asked for, from what it was assigned; None if a container has unequal shares."""
    held = sorted(pod.assignments, key=lambda one: one.container_index)
    asks = []
    for index, shares in groupby(held, key=lambda one: one.container_index):
        same = list(shares)
        first = same[0]
        if len({(one.memory, one.cores) for one in same}) != 1 or len({one.device for one in same}) != len(same):
            return None
        asks.append(
            ContainerAsk(
                index=index,
                name=first.container,
                init=first.init,
                count=len(same),
                memory=first.memory // MIB,
                cores=first.cores,
            )
        )
    return tuple(asks) or None


def _move_remedy(moves: Sequence[PodMove], found: Placement) -> Remedy:
    targets = [(f"{one.pod.namespace}/{one.pod.name}", _target(one)) for one in moves]
    shown = ", ".join(f"{name} to {target.en}" for name, target in targets)
    shown_zh = "、".join(f"{name} 移到{target.zh}" for name, target in targets)
    return Remedy(
        kind="move",
        subjects=("pods",),
        moves=tuple(moves),
        node=found.node,
        gpus=found.gpus,
        message=f"After moving {shown}, the pod would fit on {found.node}. {_CHECK.en}",
        message_zh=f"将 {shown_zh} 后，Pod 可调度到 {found.node}。{_CHECK.zh}",
    )


_CHECK = Words("Check first what else a moved pod requires.", "请先确认被迁移的 Pod 的其他约束。")


def _target(move: PodMove) -> Words:
    if move.node != move.pod.node:
        return Words(move.node, f" {move.node}")
    gpus = dict.fromkeys(gpu.uuid for gpu in move.gpus)
    named = ", ".join(gpus)
    return Words(f"{named} of the same node", f"同节点的 {named}")
