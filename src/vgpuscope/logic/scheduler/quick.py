"""The check of one container against one node without choosing GPUs: as fit_pod decides, at a tenth of its cost.

The order in which GPUs are tried does not matter to the last container: it fits if enough GPUs pass the checks, and the
reasons are counted GPU by GPU. That is not so for GPUs in MIG mode, for NUMA binding, and for a quota that allows some
of the GPUs but not all; such cases are left to fit_pod.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from msgspec.structs import replace

from vgpuscope.knowledge.hami_reasons import (
    CORES_EXHAUSTED,
    CORES_SHORT,
    EXCLUSIVE_CONFLICT,
    MEMORY_SHORT,
    QUOTA_NOT_FIT,
    SLOTS_EXHAUSTED,
    TOO_FEW_FIT,
    TOO_FEW_GPUS,
    TYPE_MISMATCH,
    UUID_MISMATCH,
)
from vgpuscope.logic.scheduler.node_fit import NodeRefusal
from vgpuscope.logic.scheduler.node_info import NodeInfo, Row, UniformGpus
from vgpuscope.logic.scheduler.rules import Rules
from vgpuscope.logic.scheduler.state import NamespaceQuota
from vgpuscope.model.placement import ContainerAsk, PlacementRequest

_LEAST = -(2**63)  # less than is free on any GPU, over-allocated ones included


class QuickCheck:
    """The quick check of one request, prepared once for all nodes."""

    __slots__ = ("_asks", "_pair", "_room", "_rules", "_together")

    def __init__(self, request: PlacementRequest, rules: Rules, room: NamespaceQuota) -> None:
        self._asks, self._rules, self._room = request.asks, rules, room
        self._together = None if len(request.asks) == 1 or rules.mutex else _together(request)
        self._pair = _pair(request, rules)

    def check(self, node_info: NodeInfo) -> NodeRefusal | bool | None:
        """Whether the pod fits on the node, or why not; None: only fit_pod can tell."""
        over = _over_quota(self._asks, self._room, node_info) if self._room.limited else False
        if node_info.mig or over is None:
            return None
        if self._rules.numa_bind:
            single = len(self._asks) == 1 and not over
            return True if single and _on_one_numa(node_info, self._asks[0], self._rules) else None
        if self._together is not None and not over and _roomy(node_info, self._together, self._rules):
            return True
        short = _second_short(node_info, *self._pair, self._rules) if self._pair is not None and not over else None
        return short or self._one_by_one(node_info, over_quota=over)

    def _one_by_one(self, node_info: NodeInfo, *, over_quota: bool) -> NodeRefusal | bool | None:
        """Each container on what the ones before it leave, as long as the order of the GPUs is the node's own."""
        rows: Sequence[Row] = node_info.rows
        alike = node_info.alike
        for ask in self._asks:
            found = _check(rows, alike, ask, self._rules, over_quota=over_quota)
            if found is not None:
                if over_quota:
                    found.quota = (_wanted(ask, node_info.least_memory), min(ask.cores, 100))
                return found
            if ask.init or ask is self._asks[-1]:
                continue
            if rows is not node_info.rows or self._rules.topology:
                return None
            rows = _after(node_info, ask, self._rules)
            alike = _bounds_after(alike, rows, ask) if alike is not None else None
        return True


def _over_quota(asks: Sequence[ContainerAsk], room: NamespaceQuota, node_info: NodeInfo) -> bool | None:
    """Whether the quota refuses every GPU (True) or none (False); None: that depends on the GPU."""
    memory = sum(ask.count * _wanted(ask, node_info.most_memory) for ask in asks)
    if room.fits(memory, sum(ask.count * min(ask.cores, 100) for ask in asks)):
        return False
    first = asks[0]
    if len(asks) > 1 or (first.memory is None and node_info.least_memory != node_info.most_memory):
        return None
    return None if room.fits(_wanted(first, node_info.least_memory), min(first.cores, 100)) else True


def _wanted(ask: ContainerAsk, total: int) -> int:
    """MiB of a GPU with that much memory."""
    return ask.memory if ask.memory is not None else total * (100 if ask.percentage is None else ask.percentage) // 100


def _after(node_info: NodeInfo, ask: ContainerAsk, rules: Rules) -> list[Row]:
    """The node's GPUs after a container that fits has got its share."""
    rows, cores = list(node_info.rows), min(ask.cores, 100)
    taken = _taken(node_info, ask, rules)
    assert taken is not None, "the container fits"
    for at in taken:
        lost, kind, uuid, used, slots, total, free, all_cores, free_cores, numa = rows[at]
        free -= _wanted(ask, total)
        rows[at] = (lost, kind, uuid, used + 1, slots, total, free, all_cores, free_cores - cores, numa)
    return rows


def _taken(node_info: NodeInfo, ask: ContainerAsk, rules: Rules) -> list[int] | None:
    """The positions of the GPUs that a container gets; None: it does not fit."""
    one, rows = ask if ask.count == 1 else _once(ask), node_info.rows
    taken: list[int] = []
    for at in node_info.order(rules.order_key, rules.ordered):
        if _check((rows[at],), None, one, rules, over_quota=False) is None:
            taken.append(at)
            if len(taken) == ask.count:
                return taken
    return None


def _bounds_after(alike: UniformGpus, rows: Sequence[Row], ask: ContainerAsk) -> UniformGpus:
    """Bounds that hold whichever GPUs the container got; the emptiest GPU is exact, since messages name it."""
    free = tuple([row[6] for row in rows])
    return UniformGpus(
        alike.kind,
        alike.memory,
        alike.spare_slots - 1,
        max(free),
        alike.least_free - _wanted(ask, alike.memory),
        alike.least_cores - min(ask.cores, 100),
        free,
    )


@lru_cache(maxsize=16)
def _once(ask: ContainerAsk) -> ContainerAsk:
    return replace(ask, count=1)


def _check(
    rows: Sequence[Row], alike: UniformGpus | None, ask: ContainerAsk, rules: Rules, *, over_quota: bool
) -> NodeRefusal | None:
    """None: enough GPUs of the node pass."""
    need, cores = ask.count, min(ask.cores, 100)
    if need > len(rows):
        return _all(ask, TOO_FEW_GPUS, 1, total=len(rows))
    if alike is not None and rules.any_uuid and not rules.mutex:
        known = _by_bounds(alike, ask, rules, total=len(rows), over_quota=over_quota)
        if known is not False:
            return known
    memory, percentage = ask.memory, 100 if ask.percentage is None else ask.percentage
    any_kind, any_uuid, mutex, alone = rules.any_kind, rules.any_uuid, rules.mutex, cores == 100
    fitting, best, best_wanted, best_cores = 0, _LEAST, 0, _LEAST
    reasons: list[str] = []
    for lost, kind, uuid, used, slots, total, free, all_cores, free_cores, _ in rows:
        if lost:
            reasons.append(lost)
        elif not any_kind and not rules.allows_kind(kind):
            reasons.append(TYPE_MISMATCH)
        elif not any_uuid and not rules.allows_uuid(uuid):
            reasons.append(UUID_MISMATCH)
        elif used >= slots:
            reasons.append(SLOTS_EXHAUSTED)
        elif mutex and used:
            reasons.append(EXCLUSIVE_CONFLICT)
        elif over_quota:
            reasons.append(QUOTA_NOT_FIT)
        elif free < (wanted := total * percentage // 100 if memory is None else memory):
            reasons.append(MEMORY_SHORT)
            if free > best or (free == best and wanted < best_wanted):
                best, best_wanted = free, wanted
        elif free_cores < cores:
            reasons.append(CORES_SHORT)
            best_cores = max(best_cores, free_cores)
        elif alone and used and all_cores == 100:
            reasons.append(EXCLUSIVE_CONFLICT)
        elif not cores and not free_cores and all_cores:
            reasons.append(CORES_EXHAUSTED)
        else:
            fitting += 1
            if fitting == need:
                return None
    return _refusal(ask, reasons, fitting=fitting, memory=(best, best_wanted), cores=best_cores, total=len(rows))


def _by_bounds(
    alike: UniformGpus, ask: ContainerAsk, rules: Rules, *, total: int, over_quota: bool
) -> NodeRefusal | Literal[False] | None:
    """The same from the bounds of a node with equal GPUs, if they decide; False: they do not."""
    if not rules.any_kind and not rules.allows_kind(alike.kind):
        return _all(ask, TYPE_MISMATCH, total, total=total)
    if alike.spare_slots <= 0:
        return False
    if over_quota:
        return _all(ask, QUOTA_NOT_FIT, total, total=total)
    wanted = ask.memory
    if wanted is None:
        wanted = alike.memory * (100 if ask.percentage is None else ask.percentage) // 100
    if alike.most_free < wanted:
        return _short(ask, alike.most_free, wanted, total=total)
    roomy = alike.least_free >= wanted and alike.least_cores >= (ask.cores or 1) and ask.cores < 100
    return None if roomy else False


def _all(ask: ContainerAsk, reason: str, count: int, *, total: int) -> NodeRefusal:
    made = NodeRefusal(ask, total)
    made.counts[reason] = count
    return made


def _short(ask: ContainerAsk, free: int, wanted: int, *, total: int) -> NodeRefusal:
    """Every GPU has too little memory; `free` is that of the emptiest."""
    made = _all(ask, MEMORY_SHORT, total, total=total)
    made.memory = (free, wanted)
    return made


def _refusal(
    ask: ContainerAsk, reasons: list[str], *, fitting: int, memory: tuple[int, int], cores: int, total: int
) -> NodeRefusal:
    made = NodeRefusal(ask, total)
    for reason in reasons:
        made.counts[reason] = made.counts.get(reason, 0) + 1
    if fitting:
        made.counts[TOO_FEW_FIT] = made.fitting = fitting
    if MEMORY_SHORT in made.counts:
        made.memory = memory
    if CORES_SHORT in made.counts:
        made.cores = cores
    return made


def _on_one_numa(node_info: NodeInfo, ask: ContainerAsk, rules: Rules) -> bool:
    """Whether one NUMA node surely has enough GPUs: each passes every check, and they are tried one after the other."""
    if rules.mutex:
        return False
    memory, percentage = ask.memory, 100 if ask.percentage is None else ask.percentage
    fitting: dict[int, int] = {}
    for lost, kind, uuid, used, slots, total, free, _, free_cores, numa in node_info.rows:
        if lost or used >= slots or free_cores < (ask.cores or 1) or (ask.cores >= 100 and used):
            continue
        if free < (total * percentage // 100 if memory is None else memory):
            continue
        if (rules.any_kind or rules.allows_kind(kind)) and (rules.any_uuid or rules.allows_uuid(uuid)):
            fitting[numa] = fitting.get(numa, 0) + 1
    return max(fitting.values(), default=0) >= ask.count


# --- several containers -----------------------------------------------------------------------------------------------


def _pair(request: PlacementRequest, rules: Rules) -> tuple[ContainerAsk, ContainerAsk] | None:
    """The first two containers, if the second runs beside the first, and both may have any GPU; None: not so."""
    asks, any_gpu = request.asks, rules.any_kind and rules.any_uuid and not rules.mutex and not rules.topology
    return (asks[0], asks[1]) if any_gpu and len(asks) > 1 and not asks[0].init else None


def _second_short(node_info: NodeInfo, first: ContainerAsk, second: ContainerAsk, rules: Rules) -> NodeRefusal | None:
    """Why the second container does not fit, if it wants more memory than any GPU has free even before the first.

    None: the first does not fit, or the second has to be checked beside it.
    """
    alike, total = node_info.alike, len(node_info.rows)
    if alike is None or alike.spare_slots < 2 or second.count > total:
        return None
    wanted = _wanted(second, alike.memory)
    if alike.most_free >= wanted:
        return None
    taken = _taken(node_info, first, rules)
    if taken is None:
        return None
    free, less = list(alike.free), _wanted(first, alike.memory)
    for at in taken:
        free[at] -= less
    return _short(second, max(free), wanted, total=total)


def _together(request: PlacementRequest) -> ContainerAsk | None:
    """A request that is at least as hard as all containers on the same GPUs at once; None: there is no such request."""
    asks = request.asks
    cores = sum(ask.cores for ask in asks)
    count = max(ask.count for ask in asks)
    if cores >= 100:
        return None
    if all(ask.memory is not None for ask in asks):
        memory = sum(ask.memory or 0 for ask in asks)
        return ContainerAsk(index=len(asks), name="", count=count, memory=memory, cores=cores)
    if all(ask.memory is None for ask in asks):
        percentage = sum(100 if ask.percentage is None else ask.percentage for ask in asks)
        return ContainerAsk(index=len(asks), name="", count=count, percentage=percentage, cores=cores)
    return None


def _roomy(node_info: NodeInfo, ask: ContainerAsk, rules: Rules) -> bool:
    """Whether so many GPUs have room for all containers that any choice works; `index` is their number."""
    fitting, memory, percentage = 0, ask.memory, ask.percentage or 0
    if node_info.alike is not None and node_info.alike.most_free < (memory or 0):
        return False
    for lost, kind, uuid, used, slots, total, free, _, free_cores, _ in node_info.rows:
        if lost or used + ask.index > slots or free_cores <= ask.cores:
            continue
        if free < (total * percentage // 100 if memory is None else memory):
            continue
        if (rules.any_kind or rules.allows_kind(kind)) and (rules.any_uuid or rules.allows_uuid(uuid)):
            fitting += 1
            if fitting == ask.count:
                return True
    return False
