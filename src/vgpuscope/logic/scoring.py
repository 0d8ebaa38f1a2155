"""How much a card is used, as one number 0-100: weighted means over the window, and the status that follows.

A term that was not measured gives its weight to the others and lowers the confidence; it never counts as 0.
"""

from collections.abc import Mapping
from functools import lru_cache
from math import fsum, inf, isfinite
from typing import Literal, TypeAlias

from msgspec import Struct

from vgpuscope.logic.power_table import factory_limit
from vgpuscope.model.analysis import Score, ScoreTerm, Stat, Status, Term
from vgpuscope.model.quantity import Bytes, Ratio, Watts

ScoreName: TypeAlias = Literal["gpu_util", "mem_copy", "mem_used", "power"]
DEFAULT_POWER: Watts = 250.0
_ROUNDING = 1e-6  # a mean of ones may end a little above 1


class Weights(Struct, frozen=True, kw_only=True):
    """What each term weighs; only their proportions count."""

    gpu_util: float = 0.5
    mem_copy: float = 0.2
    mem_used: float = 0.2
    power: float = 0.1

    def __post_init__(self) -> None:
        given = (self.gpu_util, self.mem_copy, self.mem_used, self.power)
        if not all(isfinite(weight) and weight >= 0 for weight in given):
            raise ValueError("a weight must be a number of at least 0")
        if not 0 < sum(given) < inf:
            raise ValueError("at least one weight must be above 0")


class Thresholds(Struct, frozen=True, kw_only=True):
    """The lowest score that is not idle any more, not low any more, and high."""

    idle: float = 10.0
    low: float = 20.0
    high: float = 70.0

    def __post_init__(self) -> None:
        if not 0 <= self.idle <= self.low <= self.high <= 100:
            raise ValueError("thresholds must rise within 0-100: idle, low, high")


def score(
    terms: Mapping[Term, Stat],
    *,
    model: str,
    weights: Weights,
    default_power: Watts = DEFAULT_POWER,
    default_memory: Bytes | None = None,
    expected: int | None = None,
) -> Score:
    """The score with each of its terms; `expected` samples, where known, let thin coverage lower the confidence."""
    memory, memory_reference = _memory(terms, default_memory)
    power, power_reference = _power(terms, model, default_power)
    values = (share(terms.get("gpu_util")), share(terms.get("mem_copy")), memory, power)
    shares, references = normal(weights), ("", "", memory_reference, power_reference)
    present = 1.0 if None not in values else fsum([w for w, v in zip(shares, values, strict=True) if v is not None])
    if present <= 0:  # nothing measured, or only what weighs nothing
        return Score(value=None, terms=_blank(weights))
    parts: list[ScoreTerm] = []
    added: list[float] = []
    seen: list[float] = []
    for name, weight, value, reference in zip(_NAMES, shares, values, references, strict=True):
        if value is None:
            parts.append(ScoreTerm(name=name, weight=weight))
            continue
        points, samples = 100.0 * weight * value / present, terms[name].samples
        added.append(points)
        seen.append(weight * samples / expected if expected and samples < expected else weight)
        parts.append(ScoreTerm(name=name, weight=weight, value=value, points=points, reference=reference))
    return Score(value=fsum(added), terms=tuple(parts), confidence=min(1.0, fsum(seen)))


def status(score: float | None, thresholds: Thresholds) -> Status:
    """Where a score lies; a bound belongs to the upper side."""
    if score is None or not isfinite(score):
        return "unknown"
    score = round(score, 9)  # a sum that should meet a bound may miss it by its last bits
    if score < thresholds.idle:
        return "idle"
    if score < thresholds.low:
        return "low"
    return "normal" if score < thresholds.high else "high"


def measured_value(found: Score, terms: Mapping[Term, Stat]) -> float | None:
    """The score without power, unless the card's own limit was measured: what a table by model cannot move."""
    if _limit(terms) is not None:
        return found.value
    kept = [(term.weight, term.value) for term in found.terms if term.value is not None and term.name != "power"]
    weight = fsum([weight for weight, _ in kept])
    return 100.0 * fsum([w * v for w, v in kept]) / weight if weight > 0 else None


def share(stat: Stat | None) -> Ratio | None:
    """The mean of a ratio over the window, or None where it was not measured or cannot be true."""
    if stat is None or stat.mean is None or not 0 <= stat.mean <= 1 + _ROUNDING:
        return None
    return min(stat.mean, 1.0)


@lru_cache(maxsize=16)
def normal(weights: Weights) -> tuple[float, float, float, float]:
    """The weights with a sum of 1."""
    total = fsum((weights.gpu_util, weights.mem_copy, weights.mem_used, weights.power))
    return (weights.gpu_util / total, weights.mem_copy / total, weights.mem_used / total, weights.power / total)


def memory_share(terms: Mapping[Term, Stat]) -> Ratio | None:
    """How full the memory was, of what the card or the tenant has of it."""
    return _memory(terms, None)[0]


_NAMES: tuple[ScoreName, ...] = ("gpu_util", "mem_copy", "mem_used", "power")


@lru_cache(maxsize=16)
def _blank(weights: Weights) -> tuple[ScoreTerm, ...]:
    return tuple(ScoreTerm(name=name, weight=weight) for name, weight in zip(_NAMES, normal(weights), strict=True))


def _memory(terms: Mapping[Term, Stat], default: Bytes | None) -> tuple[Ratio | None, str]:
    used, total, reference = _amount(terms.get("mem_used")), _amount(terms.get("mem_total")), ""
    if not total and default:
        total, reference = float(default), _memory_default(default)
    return (min(used / total, 1.0), reference) if used is not None and total else (None, "")


@lru_cache(maxsize=16)
def _memory_default(amount: Bytes) -> str:
    return f"{amount / 2**30:.4g} GiB (default)"


def _power(terms: Mapping[Term, Stat], model: str, default: Watts) -> tuple[Ratio | None, str]:
    drawn = _amount(terms.get("power"))
    if drawn is None:
        return None, ""
    measured = _limit(terms)
    limit, reference = (measured, _limit_words(round(measured, 1))) if measured else _assumed(model, default)
    return (min(drawn / limit, 1.0), reference) if limit > 0 else (None, "")


def _limit(terms: Mapping[Term, Stat]) -> Watts | None:
    return _amount(terms.get("power_limit")) or None


@lru_cache(maxsize=4096)
def _limit_words(watts: Watts) -> str:
    return f"limit {watts:g} W (metric)"


@lru_cache(maxsize=1024)
def _assumed(model: str, default: Watts) -> tuple[Watts, str]:
    known = factory_limit(model)
    if known is not None:
        return known, f"{known:g} W (table: {model})"
    return float(default), f"{default:g} W (default)"


def _amount(stat: Stat | None) -> float | None:
    if stat is None or stat.mean is None or not 0 <= stat.mean < inf:
        return None
    return stat.mean
