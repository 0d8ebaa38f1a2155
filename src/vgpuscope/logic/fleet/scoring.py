"""How much a GPU is used, as one number 0-100: weighted means over the window, and the status that follows.

If a term was not measured, its weight goes to the other terms and the confidence is lower; the term never counts as 0.
Without a signal of work there is no score.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import fsum, inf, isfinite
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.knowledge.power_limits import factory_limit
from vgpuscope.model.analysis import Score, ScoreTerm, Signal, Stat, Status, Term, Verdict
from vgpuscope.model.quantity import Bytes, Ratio, Watts

ScoreName: TypeAlias = Literal["gpu_util", "mem_copy", "mem_used", "power"]
DEFAULT_POWER: Watts = 250.0
WORK: tuple[Signal, ...] = ("gpu_util", "engine_active", "sm_active")  # allowed as a score's utilisation, best first
# GPU utilisation is not defined for a MIG instance, so the profiling metrics take precedence
WORK_OF_INSTANCE: tuple[Signal, ...] = ("engine_active", "sm_active", "gpu_util")
_ONE = 1 + 1e-6  # a mean of ones may end a little above 1


class ScoreWeights(Struct, frozen=True, kw_only=True):
    """The weight of each term; only the proportions matter."""

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
    """The upper bounds of the statuses idle and low, and the lower bound of high."""

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
    weights: ScoreWeights,
    work: Sequence[Signal] = WORK,
    default_power: Watts = DEFAULT_POWER,
    default_memory: Bytes | None = None,
    expected: int | None = None,
) -> Score:
    """The score with each of its terms; `expected` samples, if known, let low coverage reduce the confidence.

    The first signal of `work` that was measured is the utilisation. Without one there is no score: how full or how busy
    the memory is says nothing about how much the GPU computes.
    """
    copy = share(terms.get("mem_copy"))
    util, signal = _utilisation(terms, work)
    memory, memory_reference = _memory(terms, default_memory)
    drawn = power_drawn(terms, model=model, default=default_power)
    power, power_reference = (drawn.share if drawn.share < 1 else 1.0, drawn.reference) if drawn else _UNMEASURED
    shares, values = normal(weights), (util, copy, memory, power)
    references = (_OTHER_SIGNAL[signal], "", memory_reference, power_reference)
    points: tuple[float | None, ...]
    if util is None or copy is None or memory is None or power is None:
        present = fsum([w for w, v in zip(shares, values, strict=True) if v is not None])
        if util is None or present <= 0:  # no signal of work was measured, or only terms of weight 0
            return Score(value=None, terms=tuple(map(ScoreTerm, _NAMES, shares, values, _NO_POINTS, references)))
        points = tuple([None if v is None else 100.0 * w * v / present for w, v in zip(shares, values, strict=True)])
        value = fsum([found for found in points if found is not None])
    else:
        a, b, c, d = shares
        points = (100.0 * a * util, 100.0 * b * copy, 100.0 * c * memory, 100.0 * d * power)
        value = fsum(points)
    return Score(
        value=value,
        terms=tuple(map(ScoreTerm, _NAMES, shares, values, points, references)),
        confidence=_confidence(terms, signal, values, shares, expected),
    )


def tenant_score(
    terms: Mapping[Term, Stat],
    *,
    total: Stat | None,
    weights: ScoreWeights,
    default_memory: Bytes | None,
    expected: int,
) -> Score:
    """A tenant's score, by the SM time of its processes and its memory as a share of the GPU's `total`.

    Memory traffic and power are known for the whole GPU only. How far the SM time can be off reduces the confidence.
    """
    its: dict[Term, Stat] = {name: terms[name] for name in _OF_TENANT_ALONE if name in terms}
    if total is not None:
        its["mem_total"] = total
    found = score(its, model="", weights=weights, work=_OF_TENANT, default_memory=default_memory, expected=expected)
    error = share(terms.get("process_sm_error"))
    if not error or not found.confidence:
        return found
    return replace(found, confidence=max(0.0, found.confidence - normal(weights)[0] * error))


def _utilisation(terms: Mapping[Term, Stat], work: Sequence[Signal]) -> tuple[Ratio | None, Signal]:
    for signal in work:
        value = share(terms.get(signal))
        if value is not None:
            return value, signal
    return None, work[0]


def _confidence(
    terms: Mapping[Term, Stat],
    signal: Signal,
    values: tuple[Ratio | None, ...],
    shares: tuple[float, ...],
    expected: int | None,
) -> Ratio:
    """The share of the total weight that was measured, reduced if samples are missing."""
    names: tuple[Term, ...] = _NAMES if signal == "gpu_util" else (signal, *_NAMES[1:])
    if None not in values and not (expected and _thin(terms, names, expected)):
        return 1.0
    seen = []
    for name, value, weight in zip(names, values, shares, strict=True):
        if value is not None:
            samples = terms[name].samples
            seen.append(weight * samples / expected if expected and samples < expected else weight)
    return min(1.0, fsum(seen))


def _thin(terms: Mapping[Term, Stat], names: Iterable[Term], expected: int) -> bool:
    """Whether a term of a score has fewer samples than expected."""
    for name in names:  # noqa: SIM110 - any() takes four times as long, for every GPU
        if terms[name].samples < expected:
            return True
    return False


def status(score: float | None, thresholds: Thresholds) -> Status:
    """The status of a score as it is shown, with one decimal; a score equal to a bound has the higher status."""
    if score is None or not isfinite(score):
        return "unknown"
    score = round(score, 1)
    if score < thresholds.idle:
        return "idle"
    if score < thresholds.low:
        return "low"
    return "normal" if score < thresholds.high else "high"


def believable(found: Status, verdict: Verdict) -> Status:
    """The status of a score, limited by the verdict, so that actions based on the status are safe.

    `idle` requires verdict idle. A GPU that is in use is at least `low`. If the verdict is unknown, the status is never
    `idle` or `low`.
    """
    if verdict == "idle" or found not in {"idle", "low"}:
        return found
    return "low" if verdict == "in_use" else "unknown"


def measured_value(found: Score, terms: Mapping[Term, Stat]) -> float | None:
    """The score without power, unless the GPU's own limit was measured: the table of models must not affect it."""
    if found.value is None or _limit(terms) is not None:
        return found.value
    weight = points = 0.0
    for term in found.terms:
        if term.value is not None and term.name != "power":
            weight += term.weight
            points += term.weight * term.value
    return 100.0 * points / weight if weight > 0 else None


def share(stat: Stat | None) -> Ratio | None:
    """The mean of a ratio over the window; None if it was not measured or is impossible."""
    if stat is None or (mean := stat.mean) is None or not 0 <= mean <= _ONE:
        return None
    return mean if mean < 1 else 1.0


@lru_cache(maxsize=16)
def normal(weights: ScoreWeights) -> tuple[float, float, float, float]:
    """The weights, scaled to a sum of 1."""
    total = fsum((weights.gpu_util, weights.mem_copy, weights.mem_used, weights.power))
    return (weights.gpu_util / total, weights.mem_copy / total, weights.mem_used / total, weights.power / total)


def memory_share(terms: Mapping[Term, Stat]) -> Ratio | None:
    """Memory in use, as a share of the memory that the GPU or tenant has."""
    return _memory(terms, None)[0]


_UNMEASURED: tuple[None, str] = (None, "")
_NO_POINTS = (None, None, None, None)
_OF_TENANT_ALONE: tuple[Term, ...] = ("process_sm", "mem_used")
_OF_TENANT: tuple[Signal, ...] = ("process_sm",)
_OTHER_SIGNAL: dict[Signal, str] = {  # the source of a score's utilisation, if it is not the GPU's own
    "gpu_util": "",
    "engine_active": "engine activity",
    "sm_active": "SM activity",
    "process_sm": "the tenant's processes",
}
_NAMES: tuple[ScoreName, ...] = ("gpu_util", "mem_copy", "mem_used", "power")


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


class PowerShare(NamedTuple):
    """Mean power as a share of a limit."""

    share: Ratio
    reference: str  # which limit, and its source
    guessed: bool  # the limit is the configured default: neither the GPU nor the table knows it


_MOST_DRAWN = 2.0  # of the limit; no GPU draws more on average


def power_drawn(terms: Mapping[Term, Stat], *, model: str, default: Watts) -> PowerShare | None:
    """Mean power as a share of the GPU's own limit, else its model's, else the default; None if not measured."""
    drawn, counted = _amount(terms.get("power")), _amount(terms.get("energy"))
    measured = _limit(terms)
    limit, reference, guessed = (
        (measured, _limit_words(round(measured, 1)), False) if measured else _assumed(model, default)
    )
    if not limit > 0:
        return None
    if counted is not None and counted > _MOST_DRAWN * limit:  # a counter that was reset, but not to 0
        counted = None
    if drawn is None and counted is None:
        return None
    power = max(drawn or 0.0, counted or 0.0)  # power drawn between two scrapes is only in the counter
    return PowerShare(power / limit, reference, guessed)


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
