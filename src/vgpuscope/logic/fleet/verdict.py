"""Whether a GPU or a tenant is in use, idle or unknown: the verdict, its class, and its evidence.

Calling a busy GPU idle is the one error that must not happen. A GPU is idle only if all signals were seen for nearly
the whole window, up to now, and none of them shows work or contradicts. Otherwise the verdict is unknown.
"""

from collections.abc import Mapping
from math import inf, isfinite
from typing import NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.logic.fleet.scoring import DEFAULT_POWER, PowerShare, memory_share, power_drawn
from vgpuscope.model.analysis import (
    SIGNALS,
    Evidence,
    Schema,
    Signal,
    Stat,
    Status,
    Term,
    Track,
    UseClass,
    Verdict,
    Window,
)
from vgpuscope.model.quantity import MIB, Bytes, Ratio, Seconds, UnixTime, Watts

# all terms that can show work
ACTIVITY: tuple[Term, ...] = (*SIGNALS, "mem_copy", "dram_active", "encoder", "decoder", "jpeg", "ofa")
_ONE = 1 + 1e-6  # a mean of ones may end a little above 1


class VerdictRules(Struct, frozen=True, kw_only=True):
    """The thresholds for calling a GPU idle, held, unproductive or stalled."""

    min_coverage: Ratio = 0.8
    max_age_intervals: float = 3.0
    idle_enter: Ratio = 0.05  # idle begins when all activity has stayed below this
    idle_leave: Ratio = 0.10  # and ends when some has come up to this
    held_memory: Ratio = 0.05
    held_bytes: Bytes = 512 * MIB  # a CUDA context alone takes some hundred MiB, on large GPUs far below the ratio
    unproductive_util: Ratio = 0.5
    unproductive_sm: Ratio = 0.10
    power_contradiction: Ratio = 0.5  # of the power limit; above it, a GPU without visible work is not called idle
    pcie_contradiction: float = 50e6  # bytes a second; an idle GPU moves only thousands
    stalled_util: Ratio = 0.95  # kernels run all the time,
    stalled_power: Ratio = 0.25  # and the GPU draws hardly more than an idle one
    preparing_cpu: float = 0.25  # cores; a tenant of an idle GPU that uses as much prepares data

    def __post_init__(self) -> None:
        ratios = (
            self.min_coverage,
            self.held_memory,
            self.unproductive_util,
            self.unproductive_sm,
            self.stalled_util,
            self.stalled_power,
        )
        if not all(0 <= ratio <= 1 for ratio in ratios):
            raise ValueError("coverage, held memory and the bounds of unproductive and stalled use are within 0-1")
        if not 0 <= self.idle_enter <= self.idle_leave <= 1:
            raise ValueError("idle_enter and idle_leave must rise within 0-1")
        if not 0 < self.preparing_cpu < inf:
            raise ValueError("preparing_cpu must be above 0")
        if not (0 < self.max_age_intervals < inf and self.held_bytes >= 0 and self.power_contradiction > 0):
            raise ValueError("max_age_intervals and power_contradiction must be above 0, held_bytes not below 0")


class SignalSeen(Struct, frozen=True, gc=False):
    """A signal to judge by, and how well it was observed."""

    name: Signal
    stat: Stat
    coverage: Ratio
    last: UnixTime | None
    schema: Schema
    window: Window  # with the interval of the signal's samples


class _Work(Struct, frozen=True, gc=False):
    """The most active of all activity terms, and whether some term has no maximum."""

    term: Term | None
    most: Ratio
    incomplete: bool


class _Look(NamedTuple):
    """What the window shows, before it is judged."""

    seen: SignalSeen | None
    work: _Work
    drawn: PowerShare | None
    traffic: float  # bytes a second over PCIe
    hole: Seconds | None
    young: bool  # the GPU changed tenants so late that most of the window belongs to the one before
    threshold: Ratio  # activity from which on the GPU is in use


def judge(
    terms: Mapping[Term, Stat],
    *,
    window: Window,
    first: UnixTime | None,
    last: UnixTime | None,
    previous: Verdict | None,
    rules: VerdictRules,
    status: Status,
    schema: Schema,
    model: str = "",
    default_power: Watts = DEFAULT_POWER,
    source: str = "",
    partial: bool = False,
    failed: frozenset[Term] = frozenset(),
    origins: Mapping[Term, Track] = {},
    beside: Ratio | None = None,
    held_since: UnixTime | None = None,
    handed_over: UnixTime | None = None,
    steady: int = 0,
    cpu: float | None = None,
    cpu_max: float | None = None,
) -> tuple[Verdict, UseClass, Evidence]:
    """The verdict, its class and its evidence.

    Power in `terms` is that of the whole GPU. It is compared with the GPU's limit, or that of `model`, or
    `default_power`.
    `failed`: terms that could not be read, as opposed to terms that the GPU does not have.
    `origins`: the tracks of terms that come from another track than `schema`, `first` and `last`.
    `beside`: the highest activity of a tenant's own processes. `handed_over`: when the GPU last changed tenants, if
    that was seen. `steady`: for how many analyses the verdict was `previous`. `cpu` and `cpu_max`: the CPU
    cores that the tenant used, on average and at most; nothing follows if neither was measured.
    """
    seen = best_signal(terms, window=window, first=first, last=last, schema=schema, rules=rules, origins=origins)
    look = _Look(
        seen=seen,
        work=_work(terms, beside),
        drawn=power_drawn(terms, model=model, default=default_power),
        traffic=pcie_traffic(terms),
        hole=longest_hole(seen, since=handed_over) if seen else None,
        young=handed_over is not None and window.end - handed_over < rules.min_coverage * window.seconds,
        threshold=rules.idle_leave if previous == "idle" else rules.idle_enter,
    )
    verdict, reason = (
        _too_little(seen, rules, young=look.young)
        or _at_work(seen, look.work, look.threshold)
        or _in_doubt(look, rules, unread=_unread(terms, failed))
        or _IDLE
    )
    held = memory_share(terms) if verdict == "idle" else None
    holds = verdict == "idle" and _holds(terms, rules, held)
    use_class: UseClass
    if verdict == "in_use":
        use_class = _busy_class(terms, status, look.drawn, window, rules)
    else:
        use_class = idle_class(CpuUse(cpu, cpu_max), holds=holds, rules=rules) if verdict == "idle" else verdict
    base = _base(look, window=window, last=last, schema=schema, rules=rules)
    kept = verdict == "idle" and look.work.most >= rules.idle_enter
    evidence = replace(
        base,
        reasons=_all_reasons(reason, use_class, holds=holds, kept=kept, partial=partial, dropped=base.dropped > 0),
        held_since=held_since,
        source=source,
        held_memory=held,
        cpu=cpu,
        cpu_max=cpu_max,
        steady_for=steady + 1 if verdict == previous else 1,
    )
    return verdict, use_class, evidence


def _base(look: _Look, *, window: Window, last: UnixTime | None, schema: Schema, rules: VerdictRules) -> Evidence:
    """The evidence that every verdict has: what was seen, when and how well."""
    seen, work, drawn = look.seen, look.work, look.drawn
    stat, newest, paced = (seen.stat, seen.last, seen.window) if seen else (_NOTHING, last, window)
    beyond = work.term if seen and work.term != seen.name else None
    return Evidence(
        signal=seen.name if seen else None,
        signal_mean=measured(stat.mean),
        signal_max=measured(stat.max),
        signal_p95=measured(stat.p95),
        coverage=seen.coverage if seen else None,
        interval=paced.interval if seen else None,
        samples=stat.samples,
        expected=paced.expected,
        dropped=stat.dropped,
        freshness=window.end - newest if newest is not None and isfinite(newest) else None,
        window_begin=window.begin,
        window_end=window.end,
        schema=seen.schema if seen else schema,
        min_coverage=rules.min_coverage,
        max_age=allowed_gap(paced, rules),
        hole=look.hole,
        threshold=look.threshold,
        other=beyond,
        other_max=work.most if beyond else None,
        power_share=drawn.share if drawn else None,
        power_limit=drawn.reference if drawn else "",
        pcie_traffic=look.traffic or None,
    )


def _all_reasons(
    deciding: str, use_class: UseClass, *, holds: bool, kept: bool, partial: bool, dropped: bool
) -> tuple[str, ...]:
    """The deciding reason first, then other reasons that a reader should know."""
    reasons = [deciding]
    if use_class in _BY_CLASS:
        reasons.append(_BY_CLASS[use_class])
    if use_class == "idle-preparing" and holds:
        reasons.append(_BY_CLASS["idle-held"])
    if kept:
        reasons.append("VERDICT_IDLE_KEPT")
    if partial and deciding != "VERDICT_PARTIAL_READING":
        reasons.append("VERDICT_PARTIAL_READING")
    if dropped:
        reasons.append("VERDICT_SAMPLES_DROPPED")
    return tuple(reasons)


def best_signal(
    terms: Mapping[Term, Stat],
    *,
    window: Window,
    first: UnixTime | None,
    last: UnixTime | None,
    schema: Schema,
    rules: VerdictRules,
    origins: Mapping[Term, Track] = {},
) -> SignalSeen | None:
    """The best signal that covers the window; if none does, the best signal that exists.

    A worse signal that was seen throughout says more than a better one that was hardly seen. The better one still
    counts as activity.
    """
    thin: SignalSeen | None = None
    for name in SIGNALS:
        stat = terms.get(name)
        if stat is None or (measured(stat.mean) is None and measured(stat.max) is None):
            continue
        track = origins.get(name) if origins else None
        if track:
            there = window_of(track, window)
            covered = coverage(stat, window=there, first=track.first, last=track.last)
            seen = SignalSeen(name, stat, covered, track.last, track.schema, there)
        else:
            covered = coverage(stat, window=window, first=first, last=last)
            seen = SignalSeen(name, stat, covered, last, schema, window)
        if seen.coverage >= rules.min_coverage:
            return seen
        thin = thin or seen
    return thin


def coverage(stat: Stat, *, window: Window, first: UnixTime | None, last: UnixTime | None) -> Ratio:
    """The share of the window that was seen: by its holes if these are known, else by sample count and time span.

    By count alone, a track of half the window would pass if its samples come twice as often as expected.
    """
    begin, end = window.begin, window.end
    if stat.holes is not None:
        unseen = sum([max(0.0, hole.end - hole.begin - window.interval) for hole in stat.holes]) if stat.holes else 0.0
        return max(0.0, 1.0 - unseen / (end - begin)) if end > begin else 0.0
    counted = stat.samples / window.expected
    if first is not None and last is not None and end > begin:
        within = (end if last > end else last) - (begin if first < begin else first)
        spanned = (within + window.interval) / (end - begin)
        counted = min(counted, spanned) if isfinite(spanned) else 0.0
    return 1.0 if counted > 1 else max(0.0, counted)


def longest_hole(seen: SignalSeen, *, since: UnixTime | None) -> Seconds:
    """The longest time without a sample, from `since` on if given; an upper bound if only a count is known."""
    holes, window = seen.stat.holes, seen.window
    begin = window.begin if since is None else since
    if holes is None:
        missing = (window.end - begin) / window.interval - seen.stat.samples
        if seen.stat.samples > _TOO_MANY * window.expected:  # samples come at another pace, so a count proves nothing
            return window.seconds
        return (missing + 1) * window.interval if missing >= 1 else 0.0
    return max([hole.end - max(hole.begin, begin) for hole in holes if hole.end > begin], default=0.0)


def allowed_gap(window: Window, rules: VerdictRules) -> Seconds:
    """How long samples may be missing: a few intervals, but never half the window. A longer gap may hide work."""
    return min(rules.max_age_intervals * window.interval, max(_GAP * window.interval, window.seconds / _GAPS))


def window_of(track: Track, window: Window) -> Window:
    """The window with the track's own interval."""
    interval = track.interval
    if interval is None or not interval > 0 or interval == window.interval:
        return window
    return replace(window, interval=interval)


def too_short(window: Window) -> bool:
    """Whether the window is too short for enough samples, even if none is missed."""
    return window.interval * _FEWEST > window.seconds * _JITTER


def measured(value: float | None) -> Ratio | None:
    """The ratio if it is possible; None for any other value."""
    return value if value is not None and 0 <= value <= _ONE else None


def fresh(last: UnixTime | None, *, window: Window, rules: VerdictRules) -> bool:
    """Whether a track reaches the end of the window; True if its end is unknown or later."""
    return last is None or window.end - last <= allowed_gap(window, rules)


_FEWEST = 5  # a window must be expected to have so many samples
_GAP, _GAPS = 1.5, 4.0  # an allowed gap is at most 1.5 intervals or a quarter of the window, whichever is longer
_TOO_MANY = 1.5  # times as many samples as expected
_JITTER = 1.05  # scrapes every 2 min may be 121 s apart
_Finding: TypeAlias = tuple[Verdict, str]
_IDLE: _Finding = ("idle", "VERDICT_IDLE_NO_WORK")
_NOTHING = Stat()
_BY_CLASS: dict[UseClass, str] = {
    "idle-held": "VERDICT_IDLE_MEMORY_HELD",
    "busy-unproductive": "VERDICT_FEW_SMS",
    "low": "VERDICT_LOW_SCORE",
    "stalled": "VERDICT_STALLED",
    "idle-preparing": "VERDICT_IDLE_CPU_BUSY",
}
_WORK_BESIDE: dict[Term, str] = {
    "mem_copy": "VERDICT_MEMORY_TRAFFIC",
    "dram_active": "VERDICT_MEMORY_TRAFFIC",
    "encoder": "VERDICT_VIDEO_WORK",
    "jpeg": "VERDICT_VIDEO_WORK",
    "ofa": "VERDICT_VIDEO_WORK",
    "decoder": "VERDICT_VIDEO_WORK",
    "process_sm": "VERDICT_TENANT_WORKS",
}


def _too_little(seen: SignalSeen | None, rules: VerdictRules, *, young: bool) -> _Finding | None:
    if seen is None:
        return "unknown", "VERDICT_NO_SIGNAL"
    if seen.last is None:
        return "unknown", "VERDICT_NO_AGE"
    if too_short(seen.window):
        return "unknown", "VERDICT_WINDOW_TOO_SHORT"
    if not fresh(seen.last, window=seen.window, rules=rules):
        return "unknown", "VERDICT_STALE"
    if not seen.coverage >= rules.min_coverage:
        return "unknown", "VERDICT_HANDOVER_YOUNG" if young else "VERDICT_LOW_COVERAGE"
    return None


def _work(terms: Mapping[Term, Stat], beside: Ratio | None) -> _Work:
    most: Ratio = -1.0
    term: Term | None = None
    incomplete = False
    for name in ACTIVITY:
        stat = terms.get(name)
        if stat is None:
            continue
        mean, top = stat.mean, stat.max
        if mean is None or top is None or not (0 <= mean <= _ONE and 0 <= top <= _ONE):
            if mean is None and top is None and stat.p95 is None and not stat.samples:
                continue  # the metric exists, but had no sample
            incomplete = True
            here = highest(stat)
        else:
            here = top if top > mean else mean
            if stat.p95 is not None and here < stat.p95 <= _ONE:
                here = stat.p95
        if here > most:
            most, term = here, name
    if beside is not None and beside > most:
        most, term = beside, "process_sm"
    return _Work(term, most if most > 0 else 0.0, incomplete)


def _at_work(seen: SignalSeen | None, work: _Work, threshold: Ratio) -> _Finding | None:
    if seen is None or work.term is None or work.most < threshold:
        return None
    if highest(seen.stat) >= threshold:
        return "in_use", "VERDICT_IN_USE"
    return "in_use", _WORK_BESIDE.get(work.term, "VERDICT_KERNELS_RAN")


def _unread(terms: Mapping[Term, Stat], failed: frozenset[Term]) -> bool:
    """Whether a term that could show work was not read."""
    return bool(failed) and any(terms.get(name, _NOTHING).mean is None for name in failed.intersection(ACTIVITY))


def _in_doubt(look: _Look, rules: VerdictRules, *, unread: bool) -> _Finding | None:
    """Why a GPU that shows no work cannot be called idle; None if there is no doubt."""
    if look.seen is not None and look.hole is not None and look.hole > allowed_gap(look.seen.window, rules):
        return "unknown", "VERDICT_HOLE"
    if look.work.incomplete:
        return "unknown", "VERDICT_NO_MAX"
    if unread:
        return "unknown", "VERDICT_PARTIAL_READING"
    if look.drawn is not None and look.drawn.share > rules.power_contradiction:
        return "unknown", "VERDICT_POWER_DISAGREES"
    if look.traffic >= rules.pcie_contradiction:
        return "unknown", "VERDICT_PCIE_TRAFFIC"
    return ("unknown", "VERDICT_HANDOVER_YOUNG") if look.young else None


def highest(stat: Stat) -> Ratio:
    """The highest known value of an activity; 0 if none is known."""
    found = 0.0
    for value in (stat.mean, stat.max, stat.p95):
        if value is not None and found < value <= _ONE:
            found = value
    return found


def _busy_class(
    terms: Mapping[Term, Stat], status: Status, drawn: PowerShare | None, window: Window, rules: VerdictRules
) -> UseClass:
    if drawn is not None and drawn.share <= rules.stalled_power and _stalled(terms, drawn, window, rules):
        return "stalled"
    if _unproductive(terms, window, rules):
        return "busy-unproductive"
    return "low" if status in ("idle", "low") else "busy"


def _stalled(terms: Mapping[Term, Stat], drawn: PowerShare, window: Window, rules: VerdictRules) -> bool:
    """Whether kernels ran all the time without progress: a collective that hangs, a kernel that spins.

    A guessed power limit proves nothing: a small GPU at full load draws little of 250 W.
    """
    util = terms.get("gpu_util")
    if drawn.guessed or util is None or (often := measured(util.mean)) is None or often < rules.stalled_util:
        return False
    if not (_throughout(util, window, rules) and _throughout(terms.get("power", _NOTHING), window, rules)):
        return False
    if pcie_traffic(terms) >= rules.pcie_contradiction:
        return False
    return not any(_level(terms.get(name)) >= rules.unproductive_sm for name in _PRODUCTIVE)


_PRODUCTIVE: tuple[Term, ...] = ("sm_active", "mem_copy", "encoder", "decoder")  # low while a kernel only spins


def pcie_traffic(terms: Mapping[Term, Stat]) -> float:
    """Bytes a second over PCIe, in the busier direction; 0 if unknown."""
    found = [stat.mean for name in _TRAFFIC if (stat := terms.get(name)) is not None and stat.mean is not None]
    return max([mean for mean in found if 0 <= mean < inf], default=0.0)


_TRAFFIC: tuple[Term, ...] = ("pcie_in", "pcie_out")


def _level(stat: Stat | None) -> Ratio:
    """The mean; without a mean, the highest known value."""
    if stat is None:
        return 0.0
    mean = measured(stat.mean)
    return mean if mean is not None else highest(stat)


def _throughout(stat: Stat, window: Window, rules: VerdictRules) -> bool:
    """Whether the quantity was measured over the whole window, so that its mean is representative."""
    return not stat.holes and stat.samples >= rules.min_coverage * window.expected


class CpuUse(NamedTuple):
    """The CPU cores that a tenant used in the window, on average and at most; None: not measured."""

    mean: float | None = None
    max: float | None = None

    @property
    def most(self) -> float:
        """The larger one; 0 if neither was measured."""
        return max(self.mean or 0.0, self.max or 0.0)


def idle_class(cpu: CpuUse, *, holds: bool, rules: VerdictRules) -> UseClass:
    """The class of an idle tenant or GPU. Busy CPUs say more than memory that is held: something is being done.

    The highest value counts too: the mean of the window is still low if a data loader has only just begun. The agent's
    values are means themselves, so noise does not reach the threshold.
    """
    if cpu.most >= rules.preparing_cpu:
        return "idle-preparing"
    return "idle-held" if holds else "idle"


def cpu_use(terms: Mapping[Term, Stat]) -> CpuUse:
    """The CPU cores that a tenant used, as far as they were measured."""
    stat = terms.get("cpu", _NOTHING)
    mean, most = (value if value is not None and 0 <= value < inf else None for value in (stat.mean, stat.max))
    return CpuUse(mean, most)


def holds_memory(terms: Mapping[Term, Stat], rules: VerdictRules) -> bool:
    """Whether much memory is in use: more than a process takes that only waits."""
    return _holds(terms, rules, memory_share(terms))


def _holds(terms: Mapping[Term, Stat], rules: VerdictRules, held: Ratio | None) -> bool:
    used = terms.get("mem_used")
    if used is None or used.mean is None or not rules.held_bytes <= used.mean < inf:
        return False
    return held is None or held >= rules.held_memory


def _unproductive(terms: Mapping[Term, Stat], window: Window, rules: VerdictRules) -> bool:
    util, sm = terms.get("gpu_util"), terms.get("sm_active")
    if util is None or sm is None or min(util.samples, sm.samples) < rules.min_coverage * window.expected:
        return False
    often, much = measured(util.mean), measured(sm.mean)
    return often is not None and much is not None and often >= rules.unproductive_util and much < rules.unproductive_sm
