"""Whether a pod fits on one node, and on which of its GPUs: HAMi's checks in HAMi's order.

Containers are placed one after the other, each on what the containers before it leave. An init container ends before
the app containers start, so it sees only sidecars that were started before it.
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
from vgpuscope.logic.scheduler.node_info import MIG, GpuInfo, NodeInfo, out_of_service, profiles_by_size
from vgpuscope.logic.scheduler.rules import Rules
from vgpuscope.logic.scheduler.state import NamespaceQuota
from vgpuscope.model.allocation import Assignment, MigProfile
from vgpuscope.model.placement import ChosenGpu, ContainerAsk, PlacementRequest
from vgpuscope.model.quantity import MIB, DeviceUUID

_MOST_COMBINATIONS = 20_000  # of GPUs whose links are compared; all 8 of 16 GPUs are 12,870


class NodeRefusal:
    """Why a container does not fit on a node: how many GPUs each reason applies to, and the best of them."""

    __slots__ = ("ask", "cores", "counts", "fitting", "memory", "quota", "total")

    def __init__(self, ask: ContainerAsk, total: int) -> None:
        self.ask = ask
        self.total = total  # GPUs of the node
        self.counts: dict[str, int] = {}
        self.memory: tuple[int, int] | None = None  # most free MiB of a GPU with too little, and what was asked of it
        self.cores: int | None = None  # most free cores of a GPU with too few
        self.quota: tuple[int, int] | None = None  # MiB and cores that the pod would have held
        self.fitting = 0  # GPUs that fit, on one NUMA node if they have to be

    def add(self, reason: str, times: int = 1) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + times


Pick = tuple[int, int, int]  # position of the GPU, MiB, cores


def fit_pod(
    node_info: NodeInfo, request: PlacementRequest, rules: Rules, room: NamespaceQuota
) -> tuple[ChosenGpu, ...] | NodeRefusal:
    """The GPUs of each container, or why the first container that does not fit does not."""
    running = list(node_info.gpus)
    chosen: list[ChosenGpu] = []
    init = frozenset(ask.index for ask in request.asks if ask.init)
    order = node_info.order(rules.order_key, rules.ordered)
    for ask in request.asks:
        quota = _Quota(room, chosen, init) if room.limited else None
        found = _fit_container(running, ask, rules, order=order, links=node_info.links, quota=quota)
        if isinstance(found, NodeRefusal):
            return found
        after = list(running)
        chosen.extend(_allocate(after, ask, found))
        if not ask.init and ask is not request.asks[-1]:
            running, order = after, rules.ordered(after)
    return tuple(chosen)


def _allocate(gpus: list[GpuInfo], ask: ContainerAsk, picks: Sequence[Pick]) -> Iterator[ChosenGpu]:
    """The shares of one container; the GPUs in the list are replaced by what is left of them."""
    for position, (at, memory, cores) in enumerate(picks):
        gpu = gpus[at]
        if gpu.mode != MIG:
            gpus[at] = gpu.plus(memory, cores)
            yield ChosenGpu(container=ask.index, position=position, uuid=gpu.id, memory=memory, cores=cores)
            continue
        found = mig_instance(gpu, memory)
        assert found is not None, "the check found a placement"
        profile, (start, size) = found
        gpus[at] = gpu.plus(profile.memory // MIB, profile.cores, (start, size))
        yield ChosenGpu(
            container=ask.index,
            position=position,
            uuid=gpu.id,
            memory=profile.memory // MIB,
            cores=profile.cores,
            profile=profile.name,
            start=start,
            size=size,
        )


class _Quota:
    """What the pod would hold of its namespace's quota, container by container."""

    __slots__ = ("_before", "_init", "_room")

    def __init__(self, room: NamespaceQuota, before: list[ChosenGpu], init: frozenset[int]) -> None:
        self._room, self._before, self._init = room, before, init

    def exceeded(self, gpus: Sequence[GpuInfo], ask: ContainerAsk, picks: Sequence[Pick]) -> tuple[int, int] | None:
        """What the pod would hold with these GPUs for the next container, if the quota does not allow it."""
        more = [_share(ask.index, gpus[at].id, memory, cores, self._init) for at, memory, cores in picks]
        before = [_share(gpu.container, gpu.uuid, gpu.memory, gpu.cores, self._init) for gpu in self._before]
        held = device_uses_of([*before, *more])
        sums = sum(device_use.memory for device_use in held), sum(device_use.cores for device_use in held)
        return None if self._room.fits(*sums) else sums


def _share(index: int, uuid: DeviceUUID, memory: int, cores: int, init: frozenset[int]) -> Assignment:
    return Assignment(
        container_index=index,
        container="",
        init=index in init,
        vendor=NVIDIA.word,
        device=uuid,
        memory=memory,
        cores=cores,
    )


def _fit_container(
    gpus: Sequence[GpuInfo],
    ask: ContainerAsk,
    rules: Rules,
    *,
    order: Sequence[int],
    links: Mapping[DeviceUUID, Mapping[DeviceUUID, int]],
    quota: _Quota | None,
) -> list[Pick] | NodeRefusal:
    refusal = NodeRefusal(ask, len(gpus))
    mig = rules.allows_mode(MIG) and any(gpu.mode == MIG for gpu in gpus)
    if ask.count > len(gpus) and not mig:
        refusal.add(TOO_FEW_GPUS)
        return refusal
    picks: list[Pick] = []
    enough: list[Pick] | None = None  # an earlier NUMA node that has enough GPUs, if the last one has not
    tentative: dict[int, GpuInfo] = {}  # GPUs in MIG mode with the instances picked so far
    numa = -1
    for at in order:
        gpu = gpus[at]
        while True:
            reason = refused_by_kind(gpu, rules)
            if not reason and rules.numa_bind and gpu.numa != numa:
                if picks and not rules.topology:
                    refusal.add(NUMA_NOT_FIT, len(picks))
                refusal.fitting = max(refusal.fitting, len(picks))
                enough = picks if len(picks) >= ask.count else enough
                picks, numa = [], gpu.numa
                tentative.clear()
            pick = (at, wanted_memory(ask, gpu), min(ask.cores, 100))
            over = partial(quota.exceeded, gpus, ask, [*picks, pick]) if quota is not None else _never
            reason = reason or _refused(gpu, pick, rules, over_quota=over, refusal=refusal)
            found = None
            if not reason and gpu.mode == MIG:
                found = mig_instance(tentative.get(at, gpu), pick[1])
                reason = "" if found else MIG_INFEASIBLE
            if reason:
                refusal.add(reason)
                break
            picks.append(pick)
            if len(picks) == ask.count and not rules.topology:
                return picks
            if found is None:
                break
            profile, placement = found
            tentative[at] = tentative.get(at, gpu).plus(profile.memory // MIB, profile.cores, placement)
    picks = picks if len(picks) >= ask.count or enough is None else enough
    if rules.topology and len(picks) >= ask.count:
        return _linked(picks, ask.count, gpus, links)
    if picks:
        refusal.add(TOO_FEW_FIT, len(picks))
    refusal.fitting = max(refusal.fitting, len(picks))
    return refusal


def _never() -> None:
    """No quota limits the namespace."""


def wanted_memory(ask: ContainerAsk, gpu: GpuInfo) -> int:
    """MiB of one GPU: the amount, or the percentage of this GPU's memory rounded down."""
    if ask.memory is not None:
        return ask.memory
    return gpu.memory * (100 if ask.percentage is None else ask.percentage) // 100


def refused_by_kind(gpu: GpuInfo, rules: Rules) -> str:
    if reason := out_of_service(gpu):
        return reason
    return "" if rules.any_kind or rules.allows_kind((gpu.type, gpu.mode)) else TYPE_MISMATCH


def _refused(
    gpu: GpuInfo, pick: Pick, rules: Rules, *, over_quota: Callable[[], tuple[int, int] | None], refusal: NodeRefusal
) -> str:
    """The first check that this GPU fails; "": none."""
    _, memory, cores = pick
    if not rules.any_uuid and not rules.allows_uuid(gpu.id):
        return UUID_MISMATCH
    if gpu.used >= gpu.slots:
        return SLOTS_EXHAUSTED
    if rules.mutex and gpu.used > 0:
        return EXCLUSIVE_CONFLICT
    over = over_quota()
    if over is not None:
        refusal.quota = min(refusal.quota, over) if refusal.quota else over
        return QUOTA_NOT_FIT
    free = gpu.memory - gpu.used_memory
    if free < memory:
        if refusal.memory is None or (free, -memory) > (refusal.memory[0], -refusal.memory[1]):
            refusal.memory = (free, memory)
        return MEMORY_SHORT
    free_cores = gpu.cores - gpu.used_cores
    if free_cores < cores:
        refusal.cores = free_cores if refusal.cores is None else max(refusal.cores, free_cores)
        return CORES_SHORT
    if gpu.cores == 100 and cores == 100 and gpu.used > 0:
        return EXCLUSIVE_CONFLICT
    if gpu.cores and not free_cores and not cores:
        return CORES_EXHAUSTED
    return ""


# --- MIG --------------------------------------------------------------------------------------------------------------


def mig_instance(gpu: GpuInfo, memory: int) -> tuple[MigProfile, tuple[int, int]] | None:
    """The smallest profile with that much memory and a free placement, and the placement.

    Placements bound what fits on a GPU in MIG mode, not cores: seven 1g instances of 15 % are 105 %.
    """
    if gpu.used >= gpu.slots:
        return None
    free = gpu.memory - gpu.used_memory
    for profile in profiles_by_size(gpu.profiles):
        if memory <= profile.memory // MIB <= free:
            place = _free_placement(profile, gpu.placed)
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


def _linked(
    picks: list[Pick], count: int, gpus: Sequence[GpuInfo], links: Mapping[DeviceUUID, Mapping[DeviceUUID, int]]
) -> list[Pick]:
    """Of all GPUs that fit: the one with the weakest links, or the group with the strongest links among its GPUs."""
    if len(picks) == count:
        return picks

    def link(one: Pick, other: Pick) -> int:
        return links.get(gpus[one[0]].id, {}).get(gpus[other[0]].id, 0)

    if count == 1:
        return [
            min(picks, key=lambda one: sum(link(one, other) for other in picks if gpus[other[0]] is not gpus[one[0]]))
        ]
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
