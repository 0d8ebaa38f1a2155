"""Whether a pod fits on one node, and on which of its GPUs: HAMi's checks in HAMi's order.

Containers are placed one after the other, each on what the containers before it leave. An init container ends before
the app containers start, so it sees only sidecars that were started before it.

`gpu_checks` has the only list of checks. Three things save most of the work on the nodes that are not chosen:

- Whether the last container fits does not depend on the order in which its GPUs are tried, unless GPUs are in MIG mode,
  have to be on one NUMA node, or a quota allows some of them.
- On a node with equal GPUs, all lack the memory that the emptiest lacks.
- If enough GPUs have room for all containers at once, each container fits, whichever GPUs the others get.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from math import comb

from vgpuscope.knowledge.hami_reasons import (
    CORES_EXHAUSTED,
    CORES_SHORT,
    EXCLUSIVE_CONFLICT,
    MEMORY_SHORT,
    MIG_INFEASIBLE,
    NUMA_NOT_FIT,
    QUOTA_NOT_FIT,
    SLOTS_EXHAUSTED,
    TOO_FEW_FIT,
    TOO_FEW_GPUS,
    TYPE_MISMATCH,
    UUID_MISMATCH,
)
from vgpuscope.knowledge.vendors import NVIDIA
from vgpuscope.logic.device_use import device_uses_of
from vgpuscope.logic.scheduler.node_info import MIG, GpuRow, NodeInfo, emptiest_of, profiles_by_size, with_share
from vgpuscope.logic.scheduler.rules import Rules
from vgpuscope.logic.scheduler.state import NamespaceQuota
from vgpuscope.model.allocation import Assignment, MigProfile
from vgpuscope.model.placement import ChosenGpu, ContainerAsk, PlacementRequest
from vgpuscope.model.quantity import MIB, DeviceUUID

_MOST_COMBINATIONS = 20_000  # of GPUs whose links are compared; all 8 of 16 GPUs are 12,870
_OF_ALL_ALIKE = frozenset({TYPE_MISMATCH, QUOTA_NOT_FIT, MEMORY_SHORT})  # if the emptiest of equal GPUs fails by them

Pick = tuple[int, int, int]  # position of the GPU, MiB, cores
GpuChecks = Callable[[Sequence[GpuRow], int], list[str] | None]


class NodeRefusal:
    """Why a container does not fit on a node: how many GPUs each reason applies to, and the best of them."""

    __slots__ = ("ask", "cores", "counts", "fitting", "memory", "quota", "total")

    def __init__(self, ask: ContainerAsk, total: int, counts: dict[str, int]) -> None:
        self.ask, self.total, self.counts = ask, total, counts  # GPUs of the node, and GPUs by reason
        self.memory: tuple[int, int] | None = None  # most free MiB of a GPU with too little, and what was asked of it
        self.cores: int | None = None  # most free cores of a GPU with too few
        self.quota: tuple[int, int] | None = None  # MiB and cores that the pod would have held
        self.fitting = 0  # GPUs that fit, on one NUMA node if they have to be


def wanted_memory(ask: ContainerAsk, total: int) -> int:
    """MiB of a GPU with that much memory: the amount, or the percentage rounded down."""
    if ask.memory is not None:
        return ask.memory
    return total * (100 if ask.percentage is None else ask.percentage) // 100


def gpu_checks(
    ask: ContainerAsk, rules: Rules, *, over_quota: Callable[[DeviceUUID, int], bool] | None = None, beside: int = 0
) -> GpuChecks:
    """HAMi's checks of a GPU, in HAMi's order.

    `over_quota`: whether the quota refuses that much memory of a GPU; None: it refuses none. `beside`: slots of the GPU
    that have to stay free.
    """
    any_kind, allows_kind, any_uuid, allows_uuid = rules.any_kind, rules.allows_kind, rules.any_uuid, rules.allows_uuid
    mutex, cores = rules.mutex, min(ask.cores, 100)
    memory, percentage = ask.memory, 100 if ask.percentage is None else ask.percentage

    def reasons(rows: Sequence[GpuRow], need: int) -> list[str] | None:
        """None: so many of the GPUs pass. Otherwise the check that each GPU fails; "": none."""
        failed: list[str] = []
        for out_of_service, kind, uuid, used, slots, total, free, all_cores, free_cores, _, _, _ in rows:
            wanted = memory if memory is not None else total * percentage // 100
            if out_of_service:
                failed.append(out_of_service)
            elif not any_kind and not allows_kind(kind):
                failed.append(TYPE_MISMATCH)
            elif not any_uuid and not allows_uuid(uuid):
                failed.append(UUID_MISMATCH)
            elif used + beside >= slots:
                failed.append(SLOTS_EXHAUSTED)
            elif mutex and used:
                failed.append(EXCLUSIVE_CONFLICT)
            elif over_quota is not None and over_quota(uuid, wanted):
                failed.append(QUOTA_NOT_FIT)
            elif free < wanted:
                failed.append(MEMORY_SHORT)
            elif free_cores < cores:
                failed.append(CORES_SHORT)
            elif cores == 100 and used and all_cores == 100:
                failed.append(EXCLUSIVE_CONFLICT)
            elif not cores and not free_cores and all_cores:
                failed.append(CORES_EXHAUSTED)
            else:
                need -= 1
                if not need:
                    return None
                failed.append("")
        return failed

    return reasons


def fit_pod(
    node_info: NodeInfo, request: PlacementRequest, rules: Rules, room: NamespaceQuota
) -> tuple[ChosenGpu, ...] | NodeRefusal:
    """The GPUs of each container, or why the first container that does not fit does not."""
    return PodFit(request, rules, room).choose(node_info)


class PodFit:
    """The check of one pod, prepared once for all nodes."""

    __slots__ = (
        "_asks",
        "_at_once",
        "_by_emptiest",
        "_by_order",
        "_earlier",
        "_last",
        "_may_exceed",
        "_room",
        "_rules",
    )

    def __init__(self, request: PlacementRequest, rules: Rules, room: NamespaceQuota) -> None:
        self._asks, self._rules, self._room = request.asks, rules, room
        *self._earlier, self._last = [(ask, gpu_checks(ask, rules)) for ask in request.asks]
        self._by_order = rules.numa_bind or (rules.topology and len(request.asks) > 1)
        self._at_once = _at_once(request.asks, rules)
        self._by_emptiest = rules.any_uuid and not rules.mutex
        self._may_exceed: dict[int, bool] = {}  # by the memory of a node's largest GPU

    def refusal(self, node_info: NodeInfo) -> NodeRefusal | None:
        """Why the pod does not fit on the node; None: it fits."""
        if node_info.mig or self._by_order or (self._room.limited and self._quota_counts(node_info)):
            if self._fits_a_numa_node(node_info):
                return None
            gpus = self.choose(node_info)
            return gpus if isinstance(gpus, NodeRefusal) else None
        rules = self._rules
        rows: Sequence[GpuRow] = node_info.rows
        emptiest = node_info.emptiest if self._by_emptiest else None
        if self._at_once is not None:
            count, memory, checks = self._at_once
            if (emptiest is None or emptiest[6] >= memory) and checks(rows, count) is None:
                return None
        for ask, checks in self._earlier:
            order = node_info.order(rules.order_key, rules.ordered) if rows is node_info.rows else rules.ordered(rows)
            given: list[int] = []
            for at in order:
                if checks((rows[at],), 1) is None:
                    given.append(at)
                    if len(given) == ask.count:
                        break
            else:
                return _lack(ask, checks, rows, emptiest)
            if not ask.init:
                rows = list(rows)
                for at in given:
                    rows[at] = with_share(rows[at], wanted_memory(ask, rows[at][5]), min(ask.cores, 100))
                    if rows[at][3] >= rows[at][4]:  # no free slot
                        emptiest = None
                emptiest = emptiest_of(rows) if emptiest is not None else None
        ask, checks = self._last
        return _lack(ask, checks, rows, emptiest)

    def choose(self, node_info: NodeInfo) -> tuple[ChosenGpu, ...] | NodeRefusal:
        """The GPUs of each container, or why the first container that does not fit does not."""
        rules, rows = self._rules, node_info.rows
        order: Sequence[int] = node_info.order(rules.order_key, rules.ordered)
        init = frozenset(ask.index for ask in self._asks if ask.init)
        limited = self._quota_counts(node_info)
        chosen: list[ChosenGpu] = []
        for ask, checks in (*self._earlier, self._last):
            quota = _QuotaUse(self._room, ask, rows, chosen, init) if limited else None
            emptiest = node_info.emptiest if self._by_emptiest and not chosen else None
            picks = _picks(node_info, ask, rules, checks, rows=rows, order=order, emptiest=emptiest, quota=quota)
            if isinstance(picks, NodeRefusal):
                picks.quota = quota.least if quota is not None else None
                return picks
            if rules.topology:
                picks = linked(picks, ask.count, rows, node_info.links)
            after = list(rows)
            chosen.extend(_allocate(after, ask, picks, node_info))
            if not ask.init and ask is not self._asks[-1]:
                rows, order = tuple(after), rules.ordered(after)
        return tuple(chosen)

    def _fits_a_numa_node(self, node_info: NodeInfo) -> bool:
        """Whether the only container surely fits on one NUMA node: GPUs are tried NUMA node by NUMA node."""
        rules, (ask, checks) = self._rules, self._last
        if self._earlier or not rules.numa_bind or node_info.mig or self._quota_counts(node_info):
            return False
        return any(checks(rows, ask.count) is None for rows in node_info.by_numa)

    def _quota_counts(self, node_info: NodeInfo) -> bool:
        """Whether the quota may refuse a GPU of the node: not if it has room for all containers on the largest one."""
        if not self._room.limited or node_info.mig:  # a MIG instance may have more than was asked for
            return self._room.limited
        largest = node_info.most_memory
        counts = self._may_exceed.get(largest)
        if counts is None:
            memory = sum(ask.count * wanted_memory(ask, largest) for ask in self._asks)
            cores = sum(ask.count * min(ask.cores, 100) for ask in self._asks)
            counts = self._may_exceed[largest] = not self._room.fits(memory, cores)
        return counts


def _lack(ask: ContainerAsk, checks: GpuChecks, rows: Sequence[GpuRow], emptiest: GpuRow | None) -> NodeRefusal | None:
    """Why a container does not fit, whatever the order of the GPUs; None: it fits."""
    if ask.count > len(rows):
        return NodeRefusal(ask, len(rows), {TOO_FEW_GPUS: 1})
    if emptiest is not None:
        failed = checks((emptiest,), 1)
        if failed is None and ask.count == 1:
            return None
        if failed is not None and failed[0] in _OF_ALL_ALIKE:
            return _alike_refusal(ask, len(rows), emptiest, failed[0])
    failed = checks(rows, ask.count)
    return None if failed is None else _refusal(ask, rows, failed, failed.count(""))


def _picks(
    node_info: NodeInfo,
    ask: ContainerAsk,
    rules: Rules,
    checks: GpuChecks,
    *,
    rows: Sequence[GpuRow],
    order: Sequence[int],
    emptiest: GpuRow | None,
    quota: "_QuotaUse | None",
) -> list[Pick] | NodeRefusal:
    """The first GPUs that fit, as many as the container asks for; by topology all that fit.

    `emptiest`: None if it does not decide for all GPUs. `quota`: None if it refuses no GPU of the node.
    """
    need, cores = ask.count, min(ask.cores, 100)
    if need > len(rows) and not (node_info.mig and rules.allows_mode(MIG)):
        return NodeRefusal(ask, len(rows), {TOO_FEW_GPUS: 1})
    picks: list[Pick] = []
    if quota is not None:
        checks = gpu_checks(ask, rules, over_quota=partial(quota.exceeded, picks))
    reasons: list[str] = []
    tentative: dict[int, GpuRow] = {}  # GPUs in MIG mode with the instances picked so far
    numa, split, most = -1, 0, 0  # NUMA binding: the NUMA node, picks on those before it, and the most on one
    enough: list[Pick] | None = None  # of an earlier NUMA node
    for at in order:
        row = rows[at]
        if rules.numa_bind and row[9] != numa and not row[0] and rules.allows_kind(row[1]):
            split, most = split + len(picks), max(most, len(picks))
            enough = picks.copy() if len(picks) >= need else enough
            picks.clear()
            tentative.clear()
            numa = row[9]
        failed = checks((row,), 1)
        while failed is None:
            wanted = wanted_memory(ask, row[5])
            if row[1][1] == MIG:
                left = tentative.get(at, row)
                instance = mig_instance(left, node_info.gpus[at].profiles, wanted)
                if instance is None:
                    failed = [MIG_INFEASIBLE]
                    break
                profile, placement = instance
                tentative[at] = with_share(left, profile.memory // MIB, profile.cores, placement)
            picks.append((at, wanted, cores))
            if len(picks) == need and not rules.topology:
                return picks
            failed = checks((row,), 1) if row[1][1] == MIG else [""]
        reasons += failed
        first = len(reasons) == 1 and not picks
        if first and failed[0] in _OF_ALL_ALIKE and emptiest is not None and checks((emptiest,), 1) == failed:
            return _alike_refusal(ask, len(rows), emptiest, failed[0])
    if len(picks) < need and enough is not None:
        picks = enough
    if rules.topology and len(picks) >= need:
        return picks
    refusal = _refusal(ask, [rows[at] for at in order], reasons, len(picks))
    if split and not rules.topology:
        refusal.counts[NUMA_NOT_FIT] = split
    refusal.fitting = max(most, len(picks))
    return refusal


def _alike_refusal(ask: ContainerAsk, total: int, emptiest: GpuRow, reason: str) -> NodeRefusal:
    """The refusal of a node whose GPUs all fail by the reason of the emptiest."""
    refusal = NodeRefusal(ask, total, {reason: total})
    if reason == MEMORY_SHORT:
        refusal.memory = emptiest[6], wanted_memory(ask, emptiest[5])
    return refusal


def _refusal(ask: ContainerAsk, rows: Sequence[GpuRow], failed: Sequence[str], fitting: int) -> NodeRefusal:
    """The refusal of a node, from the check that each GPU fails."""
    counts: dict[str, int] = {}
    refusal = NodeRefusal(ask, len(rows), counts)
    for row, reason in zip(rows, failed, strict=True):
        if not reason:
            continue
        counts[reason] = counts.get(reason, 0) + 1
        if reason == MEMORY_SHORT and (refusal.memory is None or row[6] >= refusal.memory[0]):
            free, wanted = row[6], wanted_memory(ask, row[5])
            if refusal.memory is None or (free, -wanted) > (refusal.memory[0], -refusal.memory[1]):
                refusal.memory = (free, wanted)
        elif reason == CORES_SHORT:
            refusal.cores = row[8] if refusal.cores is None else max(refusal.cores, row[8])
    if fitting:
        counts[TOO_FEW_FIT] = refusal.fitting = fitting
    return refusal


def _at_once(asks: Sequence[ContainerAsk], rules: Rules) -> tuple[int, int, GpuChecks] | None:
    """How many GPUs with how many MiB free have to pass which checks so that all containers fit; None: not known."""
    cores = sum(ask.cores for ask in asks)
    amounts = [ask.memory for ask in asks if ask.memory is not None]
    if len(asks) == 1 or rules.mutex or rules.numa_bind or cores >= 100 or 0 < len(amounts) < len(asks):
        return None
    all_of_them = ContainerAsk(
        index=0,
        name="",
        count=max(ask.count for ask in asks),
        memory=sum(amounts) if amounts else None,
        percentage=None if amounts else sum(100 if ask.percentage is None else ask.percentage for ask in asks),
        cores=cores + 1,  # a container without cores needs a GPU that has some left
    )
    return all_of_them.count, all_of_them.memory or 0, gpu_checks(all_of_them, rules, beside=len(asks) - 1)


def _allocate(rows: list[GpuRow], ask: ContainerAsk, picks: Sequence[Pick], node_info: NodeInfo) -> Iterator[ChosenGpu]:
    """The shares of one container; the GPUs in the list are replaced by what is left of them."""
    for position, (at, memory, cores) in enumerate(picks):
        row = rows[at]
        uuid = row[2]
        if row[1][1] != MIG:
            rows[at] = with_share(row, memory, cores)
            yield ChosenGpu(container=ask.index, position=position, uuid=uuid, memory=memory, cores=cores)
            continue
        instance = mig_instance(row, node_info.gpus[at].profiles, memory)
        assert instance is not None, "the check found a placement"
        profile, (start, size) = instance
        rows[at] = with_share(row, profile.memory // MIB, profile.cores, (start, size))
        yield ChosenGpu(
            container=ask.index,
            position=position,
            uuid=uuid,
            memory=profile.memory // MIB,
            cores=profile.cores,
            profile=profile.name,
            start=start,
            size=size,
        )


class _QuotaUse:
    """What a pod would hold of its namespace's quota with one more container."""

    __slots__ = ("_ask", "_before", "_init", "_room", "_rows", "least")

    def __init__(
        self,
        room: NamespaceQuota,
        ask: ContainerAsk,
        rows: Sequence[GpuRow],
        before: Sequence[ChosenGpu],
        init: frozenset[int],
    ) -> None:
        self._room, self._ask, self._rows, self._init = room, ask, rows, init
        self._before = [self._share(gpu.container, gpu.uuid, gpu.memory, gpu.cores) for gpu in before]
        self.least: tuple[int, int] | None = None  # MiB and cores: the least with which the quota was exceeded

    def exceeded(self, picks: Sequence[Pick], uuid: DeviceUUID, memory: int) -> bool:
        """Whether the quota refuses that much memory of a GPU, beside the picks for the same container."""
        more = [self._share(self._ask.index, self._rows[at][2], *amounts) for at, *amounts in picks]
        more.append(self._share(self._ask.index, uuid, memory, min(self._ask.cores, 100)))
        uses = device_uses_of([*self._before, *more])
        sums = sum(use.memory for use in uses), sum(use.cores for use in uses)
        if self._room.fits(*sums):
            return False
        self.least = sums if self.least is None else min(self.least, sums)
        return True

    def _share(self, index: int, uuid: DeviceUUID, memory: int, cores: int) -> Assignment:
        return Assignment(
            container_index=index,
            container="",
            init=index in self._init,
            vendor=NVIDIA.word,
            device=uuid,
            memory=memory,
            cores=cores,
        )


# --- MIG --------------------------------------------------------------------------------------------------------------


def mig_instance(
    row: GpuRow, profiles: tuple[MigProfile, ...], memory: int
) -> tuple[MigProfile, tuple[int, int]] | None:
    """The smallest profile with that much memory and a free placement, and the placement.

    Placements bound what fits on a GPU in MIG mode, not cores: seven 1g instances of 15 % are 105 %.
    """
    _, _, _, used, slots, _, free, _, _, _, _, placed = row
    if used >= slots:
        return None
    for profile in profiles_by_size(profiles):
        if memory <= profile.memory // MIB <= free:
            place = _free_placement(profile, placed)
            if place is not None:
                return profile, place
    return None


def _free_placement(profile: MigProfile, placed: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """From the high end for small profiles, so that the low end stays free for large ones."""
    high = profile.name.startswith(("1g.", "3g."))
    for start, size in sorted(profile.placements, key=lambda place: -place[0] if high else place[0]):
        if all(start >= first + length or first >= start + size for first, length in placed):
            return start, size
    return None


# --- topology ---------------------------------------------------------------------------------------------------------


def linked(
    picks: list[Pick], count: int, rows: Sequence[GpuRow], links: Mapping[DeviceUUID, Mapping[DeviceUUID, int]]
) -> list[Pick]:
    """Of all GPUs that fit: the one with the weakest links, or the group with the strongest links among its GPUs."""
    if len(picks) == count:
        return picks

    def link(pick: Pick, other: Pick) -> int:
        return links.get(rows[pick[0]][2], {}).get(rows[other[0]][2], 0)

    if count == 1:
        return [min(picks, key=lambda pick: sum(link(pick, other) for other in picks if other[0] != pick[0]))]
    if comb(len(picks), count) <= _MOST_COMBINATIONS:
        return list(
            max(combinations(picks, count), key=lambda group: sum(link(*pair) for pair in combinations(group, 2)))
        )
    pairs = list(combinations(range(len(picks)), 2))
    group = [*max(pairs, key=lambda pair: link(picks[pair[0]], picks[pair[1]]))]
    while len(group) < count:
        rest = [at for at in range(len(picks)) if at not in group]
        group.append(max(rest, key=lambda at: sum(link(picks[at], picks[other]) for other in group)))
    return [picks[at] for at in sorted(group)]
