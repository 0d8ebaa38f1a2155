"""How much a card is used, as one number 0-100: weighted means over the window, and the status that follows.

A term that was not measured gives its weight to the others and lowers the confidence; it never counts as 0.
"""

from collections.abc import Mapping
from functools import lru_cache
from math import fsum, inf, isfinite
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from vgpuscope.logic.power_table import factory_limit
from vgpuscope.model.analysis import Score, ScoreTerm, Stat, Status, Term, Verdict
from vgpuscope.model.quantity import Bytes, Ratio, Watts

ScoreName: TypeAlias = Literal["gpu_util", "mem_copy", "mem_used", "power"]
DEFAULT_POWER: Watts = 250.0
_ONE = 1 + 1e-6  # a mean of ones may end a little above 1
_LAST_BITS = 5e-10  # by which a sum that should meet a bound may miss it


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
    util, copy = share(terms.get("gpu_util")), share(terms.get("mem_copy"))
    memory, memory_reference = _memory(terms, default_memory)
    drawn = power_drawn(terms, model=model, default=default_power)
    power, power_reference = (drawn.share if drawn.share < 1 else 1.0, drawn.reference) if drawn else _UNMEASURED
    shares, values = normal(weights), (util, copy, memory, power)
    points: tuple[float | None, ...]
    if util is None or copy is None or memory is None or power is None:
        present = fsum([w for w, v in zip(shares, values, strict=True) if v is not None])
        if present <= 0:  # nothing measured, or only what weighs nothing
            return Score(value=None, terms=_blank(weights))
        points = tuple([None if v is None else 100.0 * w * v / present for w, v in zip(shares, values, strict=True)])
        value = fsum([found for found in points if found is not None])
    else:
        a, b, c, d = shares
        points = (100.0 * a * util, 100.0 * b * copy, 100.0 * c * memory, 100.0 * d * power)
        value = fsum(points)
    return Score(
        value=value,
        terms=tuple(map(ScoreTerm, _NAMES, shares, values, points, ("", "", memory_reference, power_reference))),
        confidence=_confidence(terms, values, shares, expected),
    )


def _confidence(
    terms: Mapping[Term, Stat], values: tuple[Ratio | None, ...], shares: tuple[float, ...], expected: int | None
) -> Ratio:
    """The share of all weight that was measured, less where samples are missing."""
    if None not in values and not (expected and _thin(terms, expected)):
        return 1.0
    seen = []
    for name, value, weight in zip(_NAMES, values, shares, strict=True):
        if value is not None:
            samples = terms[name].samples
            seen.append(weight * samples / expected if expected and samples < expected else weight)
    return min(1.0, fsum(seen))


def _thin(terms: Mapping[Term, Stat], expected: int) -> bool:
    """Whether a term of a score has fewer samples."""
    for name in _NAMES:  # noqa: SIM110 - any() takes four times as long, for every card
        if terms[name].samples < expected:
            return True
    return False


def status(score: float | None, thresholds: Thresholds) -> Status:
    """Where a score lies; a bound belongs to the upper side."""
    if score is None or not isfinite(score):
        return "unknown"
    score += _LAST_BITS
    if score < thresholds.idle:
        return "idle"
    if score < thresholds.low:
        return "low"
    return "normal" if score < thresholds.high else "high"


def believable(found: Status, verdict: Verdict) -> Status:
    """The status that a score gives, as far as the verdict bears it out: who acts on the status must not be misled.

    `idle` is proven idle; what is in use is at least `low`; of what is unknown nobody may hear that it is little used.
    """
    if verdict == "idle" or found not in {"idle", "low"}:
        return found
    return "low" if verdict == "in_use" else "unknown"


def measured_value(found: Score, terms: Mapping[Term, Stat]) -> float | None:
    """The score without power, unless the card's own limit was measured: what a table by model cannot move."""
    if _limit(terms) is not None:
        return found.value
    weight = points = 0.0
    for term in found.terms:
        if term.value is not None and term.name != "power":
            weight += term.weight
            points += term.weight * term.value
    return 100.0 * points / weight if weight > 0 else None


def share(stat: Stat | None) -> Ratio | None:
    """The mean of a ratio over the window, or None where it was not measured or cannot be true."""
    if stat is None or (mean := stat.mean) is None or not 0 <= mean <= _ONE:
        return None
    return mean if mean < 1 else 1.0


@lru_cache(maxsize=16)
def normal(weights: Weights) -> tuple[float, float, float, float]:
    """The weights with a sum of 1."""
    total = fsum((weights.gpu_util, weights.mem_copy, weights.mem_used, weights.power))
    return (weights.gpu_util / total, weights.mem_copy / total, weights.mem_used / total, weights.power / total)


def memory_share(terms: Mapping[Term, Stat]) -> Ratio | None:
    """How full the memory was, of what the card or the tenant has of it."""
    return _memory(terms, None)[0]


_UNMEASURED: tuple[None, str] = (None, "")
_NAMES: tuple[ScoreName, ...] = ("gpu_util", "mem_copy", "mem_used", "power")


@lru_cache(maxsize=16)
def _blank(weights: Weights) -> tuple[ScoreTerm, ...]:
    return tuple(ScoreTerm(name=name, weight=weight) for name, weight in zip(_NAMES, normal(weights), strict=True))


def _memory(terms: Mapping[Term, Stat], default: Bytes | None) -> tuple[Ratio | None, str]:
    used, total, reference = _amount(terms.get("mem_used")), _amount(terms.get("mem_total")), ""
    if not total and default:
        total, reference = float(default), _memory_default(default)
    if used is None or not total:
        return None, ""
    return (used / total if used < total else 1.0), reference


@lru_cache(maxsize=16)
def _memory_default(amount: Bytes) -> str:
    return f"{amount / 2**30:.4g} GiB (default)"


class Drawn(NamedTuple):
    """Mean power against a limit."""

    share: Ratio
    reference: str  # which limit, and where it is from
    guessed: bool  # neither the card nor the table knows the limit: it is the configured default


def power_drawn(terms: Mapping[Term, Stat], *, model: str, default: Watts) -> Drawn | None:
    """Mean power of the card's own limit, else of its model's, else of the default; None if it was not measured."""
    power = _amount(terms.get("power"))
    if power is None:
        return None
    measured = _limit(terms)
    if measured:
        return Drawn(power / measured, _limit_words(round(measured, 1)), guessed=False)
    limit, reference, guessed = _assumed(model, default)
    return Drawn(power / limit, reference, guessed) if limit > 0 else None


def _limit(terms: Mapping[Term, Stat]) -> Watts | None:
    return _amount(terms.get("power_limit")) or None


@lru_cache(maxsize=4096)
def _limit_words(watts: Watts) -> str:
    return f"limit {watts:g} W (metric)"


@lru_cache(maxsize=1024)
def _assumed(model: str, default: Watts) -> tuple[Watts, str, bool]:
    known = factory_limit(model)
    if known is not None:
        return known, f"{known:g} W (table: {model})", False
    return float(default), f"{default:g} W (default)", True


def _amount(stat: Stat | None) -> float | None:
    if stat is None or (mean := stat.mean) is None or not 0 <= mean < inf:
        return None
    return mean
