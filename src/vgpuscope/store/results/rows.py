"""Converts an analysis to the rows that are stored."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from vgpuscope.model.analysis import KERNEL_TIME, Allocated, Analysis, GpuUse, Stat, TenantUse, Term, Window
from vgpuscope.model.quantity import Ratio
from vgpuscope.store.encoding import CLASS_CODES, STATUS_CODES, TIME, VERDICT_CODES, Millis, millis
from vgpuscope.store.results.columns import (
    POWER,
    RATIO,
    SCORE,
    ResultSubject,
    StoredResult,
    SubjectDetails,
)

_STATUS = {word: code for code, word in enumerate(STATUS_CODES)}
_VERDICT = {word: code for code, word in enumerate(VERDICT_CODES)}
_CLASS = {word: code for code, word in enumerate(CLASS_CODES)}
_LONGEST = 8 * 86_400_000  # so that spans ending within one day fit into 32 bits of milliseconds; windows are shorter
_LONGEST_NAME = 512  # bytes; four names together must fit into a row of PostgreSQL's index, at most 2704 bytes
_UNKNOWN_CHARACTER = "\ufffd".encode()
_INT32, _INT64 = 2**31 - 1, 2**63 - 1


class AnalysisPeriod(NamedTuple):
    """The period that an analysis accounts for."""

    begin: Millis
    end: Millis


Named: TypeAlias = tuple[ResultSubject, SubjectDetails, StoredResult]


def span(window: Window, *, before: Millis | None, after: Millis | None) -> AnalysisPeriod:
    """The part of the window that no other analysis accounts for.

    `before` is where the previous analysis ends, `after` where the next one begins.
    """
    end = millis(window.end)
    begin = max(end - _LONGEST, min(end, millis(window.begin)))
    if before is not None:
        begin = max(begin, min(before, end))
    last = end if after is None else min(end, after)
    return AnalysisPeriod(min(begin, last), last) if last > begin else AnalysisPeriod(end, end)


def rows(analysis: Analysis, stands_for: AnalysisPeriod) -> Iterator[Named]:
    """One row for each GPU and MIG instance, and one for each pod that has, or had, a part of it in that period."""
    seen: set[ResultSubject] = set()
    instances = Counter(gpu.gpu_id for gpu in analysis.gpus if gpu.mig)
    drawn = {gpu.gpu_id: power for gpu in analysis.gpus if gpu.mig and (power := _drawn(gpu.terms)).mean is not None}
    for gpu in analysis.gpus:
        name, about = (
            ResultSubject(storable(gpu.gpu_id), storable(gpu.mig)),
            SubjectDetails(storable(gpu.hostname), storable(gpu.model), gpu_instance=storable(gpu.gpu_instance)),
        )
        if name in seen:
            continue  # a duplicate GPU would violate the key and lose the whole analysis
        seen.add(name)
        of_gpu = drawn.get(gpu.gpu_id)
        power = _drawn(gpu.terms)
        if gpu.mig:  # exporters report the power of the whole GPU: an instance has an equal part of it
            power = of_gpu.part(instances[gpu.gpu_id]) if of_gpu else _NOT_MEASURED
        yield name, about, _gpu(gpu, stands_for, power=power)
        yield from _pods(gpu, name, about, stands_for)


class _Drawn(NamedTuple):
    """Power in watts over the window: the mean and the highest sample, and the mean by the counter of energy."""

    mean: float | None = None
    max: float | None = None
    counted: float | None = None  # also covers the time between two samples

    def part(self, instances: int) -> "_Drawn":
        """The part of one of so many MIG instances; the peak of an instance is not known."""
        mean, _, counted = (None if watts is None else watts / instances for watts in self)
        return _Drawn(mean, None, counted)

    def stored(self, seconds: Millis) -> dict[str, int | None]:
        """The columns of power and energy; without a counter, energy is the mean power times the time."""
        energy = self.mean if self.counted is None else self.counted
        return {
            "power": scaled(self.mean, POWER),
            "power_max": scaled(self.max, POWER),
            "energy": None if energy is None else scaled(energy * seconds / TIME, POWER, most=_INT64),
        }


_NOT_MEASURED = _Drawn()


def _drawn(terms: Mapping[Term, Stat]) -> _Drawn:
    sampled, top = _numbers(terms.get("power"))
    counted, _ = _numbers(terms.get("energy"))
    return _Drawn(counted if sampled is None else sampled, top, counted)


def _gpu(gpu: GpuUse, stands_for: AnalysisPeriod, *, power: _Drawn) -> StoredResult:
    """The row of a GPU or MIG instance."""
    memory, seconds = gpu.terms.get("mem_used"), stands_for.end - stands_for.begin
    memory_allocated, cores_allocated = _allocated(gpu.allocated)
    return StoredResult(
        score=scaled(gpu.score.value, SCORE),
        status=_STATUS[gpu.status],
        verdict=_VERDICT[gpu.verdict],
        use_class=_CLASS[gpu.use_class],
        util=scaled(gpu.evidence.signal_mean, RATIO),
        util_max=scaled(gpu.evidence.signal_max, RATIO),
        memory_used=scaled(memory.mean, 1, most=_INT64) if memory else None,
        coverage=scaled(gpu.evidence.coverage, RATIO),
        seconds=seconds,
        held=_held((*gpu.tenants, *gpu.former), stands_for) if gpu.tenants or gpu.former else 0,
        memory_max=scaled(memory.max, 1, most=_INT64) if memory else None,
        memory_allocated=memory_allocated,
        cores_allocated=cores_allocated,
        **power.stored(seconds),
    )


def _allocated(found: Allocated | None) -> tuple[int | None, int | None]:
    return (None, None) if found is None else (scaled(found.memory, 1, most=_INT64), scaled(found.cores, 1))


def _pods(gpu: GpuUse, name: ResultSubject, about: SubjectDetails, stands_for: AnalysisPeriod) -> Iterable[Named]:
    """Rows of tenants by pod: the containers of a pod share one row, also if the pod left and came back."""
    here, gone = _by_pod(gpu.tenants), _by_pod(gpu.former)
    for key in here | gone:
        uses, stays = here.get(key, []), gone.get(key, [])
        held = _held((*uses, *stays), stands_for)
        if key == ("", "") or (not uses and not held):
            continue  # the pod's name is unknown; or it left before this period began, so its time is already stored
        owner = next((storable(use.owner) for use in (*uses, *stays) if use.owner), "")
        alone = len(here) == 1 and bool(uses) and not gone.keys() - here.keys()
        named = name._replace(namespace=key[0], pod=key[1])
        yield named, about._replace(owner=owner), _pod(gpu, uses or stays, alone=alone, held=held)


def _by_pod(uses: Iterable[TenantUse]) -> dict[tuple[str, str], list[TenantUse]]:
    found: dict[tuple[str, str], list[TenantUse]] = {}
    for use in uses:
        found.setdefault((storable(use.tenant.namespace), storable(use.tenant.pod)), []).append(use)
    return found


def _pod(gpu: GpuUse, uses: Sequence[TenantUse], *, alone: bool, held: Millis) -> StoredResult:
    """The row of one pod. The score belongs to the GPU, so a pod gets it only if it was alone on the GPU."""
    chosen = uses[0] if len(uses) == 1 else _least_idle(uses)
    util, util_max = _together(uses, "process_sm")
    memory, memory_max = _together(uses, "mem_used")
    if alone:
        if util is None:
            known = [gpu.terms[term] for term in KERNEL_TIME if term in gpu.terms and gpu.terms[term].mean is not None]
            util, util_max = _numbers(known[0] if known else None)
        if memory is None:
            memory, memory_max = _numbers(gpu.terms.get("mem_used"))
    memory_allocated, cores_allocated = _allocated(next((use.allocated for use in uses if use.allocated), None))
    return StoredResult(
        score=scaled(gpu.score.value, SCORE) if alone else None,
        status=_STATUS[gpu.status if alone else "unknown"],
        verdict=_VERDICT[chosen.verdict],
        use_class=_CLASS[chosen.use_class],
        util=scaled(util, RATIO),
        util_max=scaled(util_max, RATIO),
        memory_used=scaled(memory, 1, most=_INT64),
        memory_max=scaled(memory_max, 1, most=_INT64),
        coverage=scaled(chosen.evidence.coverage, RATIO),
        seconds=held,
        held=held,
        memory_allocated=memory_allocated,
        cores_allocated=cores_allocated,
        share=scaled(_share(gpu, uses), RATIO),
        **_pods_power(gpu, uses, alone=alone).stored(held),
    )


def _share(gpu: GpuUse, uses: Sequence[TenantUse]) -> Ratio | None:
    """The part of the GPU's memory that the pod's limits are; None if the memory or a limit is not known."""
    total, _ = _numbers(gpu.terms.get("mem_total"))
    limits = [use.memory_limit for use in uses if use.memory_limit is not None]
    return min(1.0, sum(limits) / total) if total and len(limits) == len(uses) else None


def _pods_power(gpu: GpuUse, uses: Sequence[TenantUse], *, alone: bool) -> _Drawn:
    """The containers' own parts of the GPU's power together, as far as known; the GPU's, if the pod had it alone."""
    own = [drawn for use in uses if use.own and (drawn := _drawn(use.terms)).mean is not None]
    if own:
        counted = [drawn.counted for drawn in own if drawn.counted is not None]
        tops = [drawn.max for drawn in own if drawn.max is not None]
        mean = sum(drawn.mean or 0.0 for drawn in own)
        peak = max(mean, *tops) if tops else None  # when each has its peak is not known, as in _together
        return _Drawn(mean, peak, sum(counted) if len(counted) == len(own) else None)
    return _drawn(gpu.terms) if alone and not gpu.mig else _NOT_MEASURED


def _least_idle(uses: Sequence[TenantUse]) -> TenantUse:
    """The tenant that decides for its pod: a pod is in use if one container is, and idle only if all are."""
    return min(uses, key=lambda use: ("in_use", "unknown", "idle").index(use.verdict))


def _together(uses: Sequence[TenantUse], term: Term) -> tuple[float | None, float | None]:
    """Mean and peak of a pod's containers together, by their own numbers.

    When each container has its peak is not known: together they reach at least the highest one, and their mean.
    """
    stats = [stat for use in uses if (stat := use.terms.get(term))]
    means = [stat.mean for stat in stats if stat.mean is not None]
    tops = [stat.max for stat in stats if stat.max is not None]
    mean = sum(means) if means else None
    return mean, max((*tops, *(() if mean is None else (mean,))), default=None)


def _numbers(stat: Stat | None) -> tuple[float | None, float | None]:
    return (stat.mean, stat.max) if stat else (None, None)


def _held(uses: Sequence[TenantUse], stands_for: AnalysisPeriod) -> Millis:
    """How long the tenants held the GPU within the period; overlapping times are counted once."""
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


def storable(text: str) -> str:
    """A name in a form that every database accepts: a valid text without NUL that fits into an index."""
    if text.isascii() and len(text) <= _LONGEST_NAME and "\0" not in text:
        return text
    encoded = text.encode(errors="replace").replace(b"\0", _UNKNOWN_CHARACTER)
    if len(encoded) > _LONGEST_NAME:  # the hash keeps different names different
        mark = f"…{hashlib.blake2b(encoded, digest_size=8).hexdigest()}".encode()
        encoded = encoded[: _LONGEST_NAME - len(mark)] + mark
    return encoded.decode(errors="ignore")


def scaled(value: float | None, by: int, *, most: int = _INT32) -> int | None:
    """The number as an integer; None if it was not measured or is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return max(-most, min(most, round(value * by)))
