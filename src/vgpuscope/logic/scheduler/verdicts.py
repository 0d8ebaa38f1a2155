"""Why a node was refused: in HAMi's words, as our code, and as a sentence with what was requested and available."""

from functools import lru_cache
from typing import TypeAlias

from vgpuscope.knowledge.hami_reasons import (
    CORDONED,
    CORES_EXHAUSTED,
    CORES_SHORT,
    EXCLUSIVE_CONFLICT,
    HAMI_REASONS,
    HELD_BY_CLAIM,
    MEMORY_SHORT,
    MIG_INFEASIBLE,
    NOT_HEALTHY,
    NUMA_NOT_FIT,
    QUOTA_NOT_FIT,
    SLOTS_EXHAUSTED,
    TOO_FEW_FIT,
    TOO_FEW_GPUS,
    TYPE_MISMATCH,
    UNREGISTERED,
    UUID_MISMATCH,
)
from vgpuscope.knowledge.vendors import NVIDIA
from vgpuscope.logic.scheduler.node_fit import NodeRefusal
from vgpuscope.logic.scheduler.node_info import NodeInfo
from vgpuscope.logic.scheduler.rules import Rules
from vgpuscope.logic.scheduler.state import NamespaceQuota
from vgpuscope.model.placement import ContainerAsk, NodeVerdict
from vgpuscope.model.verdict_words import Sentence, lacking, said
from vgpuscope.model.words import Words

# Of several reasons of one node the code is that of the quota, else the scarce resource of the most GPUs, else the
# first of the rest. Ties go by this order.
_SCARCE = (
    MIG_INFEASIBLE,
    CORES_EXHAUSTED,
    EXCLUSIVE_CONFLICT,
    HELD_BY_CLAIM,
    CORES_SHORT,
    MEMORY_SHORT,
    SLOTS_EXHAUSTED,
)
_REST = (TOO_FEW_GPUS, NUMA_NOT_FIT, TOO_FEW_FIT, UUID_MISMATCH, TYPE_MISMATCH, CORDONED, NOT_HEALTHY)
_RANK = {reason: rank for rank, reason in enumerate((QUOTA_NOT_FIT, *_SCARCE, *_REST))}
_SHOWN = 3  # UUIDs or types in a sentence


def unregistered(name: str, node_info: NodeInfo | None) -> NodeVerdict:
    """The verdict on a node without GPUs for the scheduler."""
    if node_info is None:
        words = said("node-unknown")
    elif not node_info.gpus:
        words = said("node-empty")
    else:
        words = said("node-offers-none", str(NVIDIA.count))
    return NodeVerdict(
        node=name, code=HAMI_REASONS[UNREGISTERED], reason=UNREGISTERED, message=words.en, message_zh=words.zh
    )


def refused(
    node_info: NodeInfo, refusal: NodeRefusal, *, rules: Rules, room: NamespaceQuota, namespace: str
) -> NodeVerdict:
    """The verdict on a node where a container does not fit."""
    reason, code, text = _decided(refusal)
    words, requested, available = _words(reason, node_info, refusal, rules=rules, room=room, namespace=namespace)
    return NodeVerdict(
        node=node_info.name,
        code=code,
        reason=text,
        message=words.en,
        message_zh=words.zh,
        requested=requested,
        available=available,
    )


def _decided(refusal: NodeRefusal) -> tuple[str, str, str]:
    """The reason that decides, its code, and HAMi's text."""
    if len(refusal.counts) == 1:
        (counted,) = refusal.counts.items()
        return _alone(counted, refusal.total)
    reason = primary(refusal.counts)
    return reason, HAMI_REASONS[reason], hami_text(refusal.counts, refusal.total)


@lru_cache(maxsize=1024)  # most nodes are refused for one reason, which applies to all of their GPUs
def _alone(counted: tuple[str, int], total: int) -> tuple[str, str, str]:
    reason = counted[0]
    return reason, HAMI_REASONS[reason], hami_text(dict((counted,)), total)


def primary(counts: dict[str, int]) -> str:
    """The reason that decides the code of a node."""
    if len(counts) == 1:
        return next(iter(counts))
    return min(counts, key=lambda reason: (reason != QUOTA_NOT_FIT, reason not in _SCARCE, *_weight(reason, counts)))


def _weight(reason: str, counts: dict[str, int]) -> tuple[int, int]:
    return (-counts[reason] if reason in _SCARCE else 0, _RANK[reason])


def hami_text(counts: dict[str, int], total: int) -> str:
    """HAMi's text since v2.10: `2/2 CardInsufficientMemory`, several of them sorted."""
    if TOO_FEW_GPUS in counts:
        return TOO_FEW_GPUS
    if len(counts) == 1:
        ((reason, count),) = counts.items()
        return f"{count}/{total} {reason}"
    return ", ".join(sorted([f"{count}/{total} {reason}" for reason, count in counts.items()]))


_Said: TypeAlias = tuple[Words, str, str]  # the message, requested and available


def _words(
    reason: str, node_info: NodeInfo, refusal: NodeRefusal, *, rules: Rules, room: NamespaceQuota, namespace: str
) -> _Said:
    if reason == MEMORY_SHORT:  # first, because most nodes are refused for it
        free, wanted = refusal.memory or (0, 0)
        return _short("memory", f"{wanted}MB", f"{max(free, 0)}MB")
    ask, of = refusal.ask, (str(refusal.counts[reason]), str(refusal.total))
    match reason:
        case "CardInsufficientCore":
            return _short("cores", f"{min(ask.cores, 100)}%", f"{max(refusal.cores or 0, 0)}%")
        case "CardComputeUnitsExhausted":
            return said("cores-exhausted", *of), "0%", "0%"
        case "CardTimeSlicingExhausted":
            return said("slots", *of), "1 slot", "0 slots"
        case "ExclusiveDeviceAllocateConflict":
            return said("exclusive", *of), "idle GPU", "0 idle"
        case "CardHeldByClaim":
            return (
                said("claimed", *of),
                "GPU without a claim",
                f"{refusal.total - refusal.counts[reason]} without a claim",
            )
        case "ResourceQuotaNotFit":
            return _quota(refusal, room, namespace)
        case "CardMigTopologyInfeasible":
            wanted_text = _memory_text(ask)
            return said("mig", wanted_text, *of), wanted_text, "0MB"
        case "NumaNotFit":
            return _short("numa", str(ask.count), str(refusal.fitting))
        case "AllocatedCardsInsufficientRequest":
            return _short("suitable", str(ask.count), str(refusal.fitting))
        case "NodeInsufficientDevice":
            return _short("count", str(ask.count), str(refusal.total))
        case "CardUuidMismatch":
            return _uuid(rules, of)
        case "CardTypeMismatch":
            return _type(node_info, rules)
        case "CardCordoned":
            return said("cordoned", *of), "", ""
        case _:
            unsure = sum(gpu.unsure and gpu.healthy for gpu in node_info.gpus)
            return said("unsure", str(unsure), of[1]) if unsure else said("unhealthy", *of), "", ""


def _short(sentence: Sentence, requested: str, available: str) -> _Said:
    return lacking(sentence, requested, available), requested, available


def _memory_text(ask: ContainerAsk) -> str:
    return f"{ask.memory}MB" if ask.memory is not None else f"{ask.percentage or 100}%"


def _quota(refusal: NodeRefusal, room: NamespaceQuota, namespace: str) -> _Said:
    """The sentence names the namespace only, as the handbook's does; the unit tells which limit is exceeded."""
    memory, cores = refusal.quota or (0, 0)
    if room.memory_limit is not None and room.memory_used + memory > room.memory_limit:
        wanted, left, unit = memory, room.memory_limit - room.memory_used, "MB"
    else:
        wanted, left, unit = cores, (room.cores_limit or 0) - room.cores_used, "%"
    return said("quota", namespace), f"{wanted}{unit}", f"{max(left, 0)}{unit}"


def _uuid(rules: Rules, of: tuple[str, str]) -> _Said:
    chosen = rules.selection
    if chosen.use_uuids:
        wanted = _listed(chosen.use_uuids)
        return said("uuid", wanted, *of), wanted, "other GPUs"
    unwanted = _listed(chosen.avoid_uuids)
    return said("uuid-excluded", unwanted, *of), f"not {unwanted}", "other GPUs"


def _type(node_info: NodeInfo, rules: Rules) -> _Said:
    chosen = rules.selection
    if chosen.mode and any(rules.allows_type(type_) for type_ in node_info.types):
        has = _listed(tuple(sorted({gpu.mode for gpu in node_info.gpus if rules.allows_type(gpu.type)})))
        return _short("mode", chosen.mode, has)
    return _type_words(chosen.use_types, chosen.avoid_types, node_info.types)


@lru_cache(maxsize=256)  # thousands of nodes have few types
def _type_words(use: tuple[str, ...], avoid: tuple[str, ...], types: tuple[str, ...]) -> _Said:
    names = _listed(tuple(name.upper() for name in use or avoid))
    has = _listed(tuple(dict.fromkeys(map(short_type, types))))
    if use:
        return said("type", names, has), names, has
    return said("type-excluded", names, has), f"not {names}", has


def _listed(items: tuple[str, ...]) -> str:
    """The first items, and how many more there are, in signs of both languages."""
    more = f", +{len(items) - _SHOWN}" if len(items) > _SHOWN else ""
    return ", ".join(items[:_SHOWN]) + more


def short_type(type_: str) -> str:
    """The model without the maker: NVIDIA-Tesla T4 is T4."""
    for word in ("NVIDIA-", "NVIDIA ", "Tesla "):
        type_ = type_.removeprefix(word)
    return type_
