"""An analysis → the rows that are stored of it, and stored numbers → points.

Stored numbers are integers: sums of them are exact in every order, so a roll-up is the same however late its parts
come. Scores are kept to 1/1000 of a point, ratios to 1/10000, times to a millisecond.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from vgpuscope.model.analysis import Analysis, GpuUse, Stat, Status, TenantUse, Term, UseClass, Verdict, Window
from vgpuscope.model.history import HistoryPoint, Step
from vgpuscope.model.quantity import UnixTime

# A word is stored as its place in these. Never reorder them; new words go to the end, with a migration.
STATUS_CODES: tuple[Status, ...] = ("idle", "low", "normal", "high", "unknown")
VERDICT_CODES: tuple[Verdict, ...] = ("in_use", "idle", "unknown")
CLASS_CODES: tuple[UseClass, ...] = (
    "busy",
    "busy-unproductive",
    "low",
    "idle",
    "idle-held",
    "unknown",
    "stalled",
    "not-started",
)

_STATUS = {word: code for code, word in enumerate(STATUS_CODES)}
_VERDICT = {word: code for code, word in enumerate(VERDICT_CODES)}
_CLASS = {word: code for code, word in enumerate(CLASS_CODES)}
_SCORE, _RATIO, _TIME = 1000, 10_000, 1000
_LONGEST = 8 * 86_400_000  # so that what ends within one day fits into 32 bits, in milliseconds; windows are shorter
_INT32, _INT64 = 2**31 - 1, 2**63 - 1

Millis: TypeAlias = int
W = TypeVar("W", bound=str)


class Name(NamedTuple):
    """Whom a row is about: a card or MIG instance, or with namespace and pod the part that this pod has of it."""

    gpu_id: str
    mig: str
    namespace: str = ""
    pod: str = ""


class About(NamedTuple):
    """What else is known of it; a later analysis may know more."""

    hostname: str
    model: str
    owner: str = ""


class Row(NamedTuple):
    """What one analysis says of one card or pod, in the order of the table's columns after the two keys."""

    score: int | None
    status: int
    verdict: int
    use_class: int
    util: int | None
    util_max: int | None
    memory_used: int | None
    coverage: int | None
    seconds: Millis
    held: Millis


class Span(NamedTuple):
    """The time that an analysis stands for."""

    begin: Millis
    end: Millis


Named: TypeAlias = tuple[Name, About, Row]


def millis(time: UnixTime) -> Millis:
    return round(time * _TIME)


def span(window: Window, *, before: Millis | None, after: Millis | None) -> Span:
    """The part of the window that no other analysis stands for: `before` where the last one ends, `after` where the
    next one begins."""
    end = millis(window.end)
    begin = max(end - _LONGEST, min(end, millis(window.begin)))
    if before is not None:
        begin = max(begin, min(before, end))
    last = end if after is None else min(end, after)
    return Span(min(begin, last), last) if last > begin else Span(end, end)


def rows(analysis: Analysis, stands_for: Span) -> Iterator[Named]:
    """One row for each card and MIG instance, and one for each pod that has, or had, a part of it in that time."""
    seen: set[tuple[str, str]] = set()
    for gpu in analysis.gpus:
        if (gpu.gpu_id, gpu.mig) in seen:
            continue  # the same card again could not be stored beside it, and would cost the whole analysis
        seen.add((gpu.gpu_id, gpu.mig))
        yield Name(gpu.gpu_id, gpu.mig), About(gpu.hostname, gpu.model), _card(gpu, stands_for)
        yield from _pods(gpu, stands_for)


def _card(gpu: GpuUse, stands_for: Span) -> Row:
    util, memory = gpu.terms.get("gpu_util"), gpu.terms.get("mem_used")
    return Row(
        scaled(gpu.score.value, _SCORE),
        _STATUS[gpu.status],
        _VERDICT[gpu.verdict],
        _CLASS[gpu.use_class],
        scaled(util.mean, _RATIO) if util else None,
        scaled(util.max, _RATIO) if util else None,
        scaled(memory.mean, 1, most=_INT64) if memory else None,
        scaled(gpu.evidence.coverage, _RATIO),
        stands_for.end - stands_for.begin,
        _held((*gpu.tenants, *gpu.former), stands_for) if gpu.tenants or gpu.former else 0,
    )


def _pods(gpu: GpuUse, stands_for: Span) -> Iterable[Named]:
    """Tenants by pod: a pod's containers are one row, and so are its stays if it left and came back."""
    here: dict[tuple[str, str], list[TenantUse]] = {}
    gone: dict[tuple[str, str], list[TenantUse]] = {}
    for use in gpu.tenants:
        here.setdefault((use.tenant.namespace, use.tenant.pod), []).append(use)
    for use in gpu.former:
        gone.setdefault((use.tenant.namespace, use.tenant.pod), []).append(use)
    for key in here | gone:
        uses, stays = here.get(key, []), gone.get(key, [])
        held = _held((*uses, *stays), stands_for)
        if key == ("", "") or (not uses and not held):
            continue  # nobody's name is known; or it left before this analysis' time began, and is counted already
        about = About(gpu.hostname, gpu.model, next((use.owner for use in (*uses, *stays) if use.owner), ""))
        alone = len(here) == 1 and bool(uses) and not gone.keys() - here.keys()
        yield Name(gpu.gpu_id, gpu.mig, *key), about, _pod(gpu, uses or stays, alone=alone, held=held)


def _pod(gpu: GpuUse, uses: Sequence[TenantUse], *, alone: bool, held: Millis) -> Row:
    """The score is the card's, so a pod has it only where it was alone on the card."""
    chosen = uses[0] if len(uses) == 1 else _least_idle(uses)
    util, util_max = _together(uses, _UTIL_TERMS)
    memory, _ = _together(uses, ("mem_used",))
    if alone:
        util, util_max = (util, util_max) if util is not None else _numbers(gpu.terms.get("gpu_util"))
        memory = memory if memory is not None else _numbers(gpu.terms.get("mem_used"))[0]
    return Row(
        scaled(gpu.score.value, _SCORE) if alone else None,
        _STATUS[gpu.status if alone else "unknown"],
        _VERDICT[chosen.verdict],
        _CLASS[chosen.use_class],
        scaled(util, _RATIO),
        scaled(util_max, _RATIO),
        scaled(memory, 1, most=_INT64),
        scaled(chosen.evidence.coverage, _RATIO),
        held,
        held,
    )


def _least_idle(uses: Sequence[TenantUse]) -> TenantUse:
    """A pod works if one of its containers does, and is idle only if all of them are."""
    return min(uses, key=lambda use: ("in_use", "unknown", "idle").index(use.verdict))


_UTIL_TERMS: tuple[Term, ...] = ("process_sm", "gpu_util")  # the first that there is


def _together(uses: Sequence[TenantUse], terms: Sequence[Term]) -> tuple[float | None, float | None]:
    """Mean and max of a pod's containers: their own parts add up, while the card's numbers are the same for each."""
    found = [_numbers(next((stat for term in terms if (stat := use.terms.get(term))), None)) for use in uses]
    if len(found) == 1:
        return found[0]
    means, tops = ([value for value in column if value is not None] for column in zip(*found, strict=True))
    mean = sum(means) if all(use.own for use in uses) else max(means, default=0.0)
    return mean if means else None, max(tops, default=None)


def _numbers(stat: Stat | None) -> tuple[float | None, float | None]:
    return (stat.mean, stat.max) if stat else (None, None)


def _held(uses: Sequence[TenantUse], stands_for: Span) -> Millis:
    """How much of the time somebody had it: overlapping stays count once."""
    if any(use.since is None and use.until is None for use in uses):
        return stands_for.end - stands_for.begin
    stays = sorted(
        (
            stands_for.begin if use.since is None else max(stands_for.begin, millis(use.since)),
            stands_for.end if use.until is None else min(stands_for.end, millis(use.until)),
        )
        for use in uses
    )
    total, reached = 0, stands_for.begin
    for begin, end in stays:
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def scaled(value: float | None, by: int, *, most: int = _INT32) -> int | None:
    """The number as an integer; None when it was not measured or is no number."""
    if value is None or not math.isfinite(value):
        return None
    return max(-most, min(most, round(value * by)))


# ── back to points ───────────────────────────────────────────────────────────────────────────────────────────────


def point_of_row(time: Millis, names: Sequence[str], row: Row) -> HistoryPoint:
    """What one analysis said; `names` are gpu_id, mig, namespace, pod, hostname, model, owner."""
    gpu_id, mig, namespace, pod, hostname, model, owner = names
    seconds = row.seconds / _TIME
    status, verdict, use_class = STATUS_CODES[row.status], VERDICT_CODES[row.verdict], CLASS_CODES[row.use_class]
    score, coverage = _real(row.score, _SCORE), _real(row.coverage, _RATIO)
    return HistoryPoint(
        step="analysis",
        time=time / _TIME,
        gpu_id=gpu_id,
        mig=mig,
        hostname=hostname,
        model=model,
        namespace=namespace,
        pod=pod,
        owner=owner,
        scored=int(score is not None),
        score=score,
        score_min=score,
        score_max=score,
        util_samples=int(row.util is not None),
        util=_real(row.util, _RATIO),
        util_max=_real(row.util_max, _RATIO),
        memory_samples=int(row.memory_used is not None),
        memory_used=row.memory_used,
        memory_max=row.memory_used,
        coverage_samples=int(coverage is not None),
        coverage=coverage,
        seconds=seconds,
        held_seconds=row.held / _TIME,
        by_status={status: seconds},
        by_verdict={verdict: seconds},
        by_class={use_class: seconds},
        status=status,
        verdict=verdict,
        use_class=use_class,
    )


class Sums(NamedTuple):
    """A roll-up as it is stored: the columns of the hours' and days' tables after the two keys."""

    samples: int
    scored: int
    score_sum: int
    score_min: int | None
    score_max: int | None
    util_samples: int
    util_sum: int
    util_max: int | None
    memory_samples: int
    memory_sum: int
    memory_max: int | None
    coverage_samples: int
    coverage_sum: int
    seconds: Millis
    held: Millis
    status_idle: Millis
    status_low: Millis
    status_normal: Millis
    status_high: Millis
    status_unknown: Millis
    verdict_in_use: Millis
    verdict_idle: Millis
    verdict_unknown: Millis
    class_busy: Millis
    class_busy_unproductive: Millis
    class_low: Millis
    class_idle: Millis
    class_idle_held: Millis
    class_unknown: Millis
    class_stalled: Millis
    class_not_started: Millis


LEAST, MOST = {"score_min"}, {"score_max", "util_max", "memory_max"}  # all other columns are sums
_STATUS_AT = Sums._fields.index("status_idle")
_VERDICT_AT = _STATUS_AT + len(STATUS_CODES)
_CLASS_AT = _VERDICT_AT + len(VERDICT_CODES)


def added(one: Sums, other: Sums) -> Sums:
    """Two parts of one roll-up as one."""
    parts: Iterator[Any] = (_joined(field, a, b) for field, a, b in zip(Sums._fields, one, other, strict=True))
    return Sums(*parts)


def _joined(field: str, a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b) if field in LEAST else max(a, b) if field in MOST else a + b


def point_of_sums(step: Step, time: UnixTime, names: Sequence[str], sums: Sums) -> HistoryPoint:
    """What the analyses of an hour or day said together."""
    gpu_id, mig, namespace, pod, hostname, model, owner = names
    memory = _mean(sums.memory_sum, sums.memory_samples, 1)
    return HistoryPoint(
        step=step,
        time=time,
        gpu_id=gpu_id,
        mig=mig,
        hostname=hostname,
        model=model,
        namespace=namespace,
        pod=pod,
        owner=owner,
        samples=sums.samples,
        scored=sums.scored,
        score=_mean(sums.score_sum, sums.scored, _SCORE),
        score_min=_real(sums.score_min, _SCORE),
        score_max=_real(sums.score_max, _SCORE),
        util_samples=sums.util_samples,
        util=_mean(sums.util_sum, sums.util_samples, _RATIO),
        util_max=_real(sums.util_max, _RATIO),
        memory_samples=sums.memory_samples,
        memory_used=None if memory is None else round(memory),
        memory_max=sums.memory_max,
        coverage_samples=sums.coverage_samples,
        coverage=_mean(sums.coverage_sum, sums.coverage_samples, _RATIO),
        seconds=sums.seconds / _TIME,
        held_seconds=sums.held / _TIME,
        by_status=_shares(STATUS_CODES, sums[_STATUS_AT:_VERDICT_AT]),
        by_verdict=_shares(VERDICT_CODES, sums[_VERDICT_AT:_CLASS_AT]),
        by_class=_shares(CLASS_CODES, sums[_CLASS_AT:]),
    )


def _shares(words: Sequence[W], parts: Sequence[int | None]) -> dict[W, float]:
    return {word: part / _TIME for word, part in zip(words, parts, strict=True) if part}


def _real(value: int | None, by: int) -> float | None:
    return None if value is None else value / by


def _mean(total: int, count: int, by: int) -> float | None:
    return total / count / by if count else None
