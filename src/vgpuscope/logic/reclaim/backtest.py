"""Past analyses → what a policy would have done. Every decision is made by `tick`, which also decides live.

A replay is a dry run. Nothing is taken, so the past shows what the workload did after the action: idle, or busy again.
Time is won only while the workload is known to be idle. A gap in the history proves nothing.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.logic.reclaim import machine
from vgpuscope.logic.reclaim.brakes import TickFacts, WorkloadFacts
from vgpuscope.logic.reclaim.parts import parts
from vgpuscope.logic.reclaim.tick import CaseChange, ReclaimMemory, TickResult, forgettable, tick
from vgpuscope.model.analysis import Analysis, Window
from vgpuscope.model.backtest import (
    BucketSum,
    Episode,
    EpisodeEnd,
    Gap,
    NamespaceSum,
    Outcome,
    PastCoverage,
    Unapplied,
)
from vgpuscope.model.quantity import Ratio, Seconds, UnixTime
from vgpuscope.model.reclaim import Brake, Case, Finding, Policy, Workload

BY = "backtest"  # who approves in a replay
MOST_LISTED = 1000
_MOST_GAPS = 100
_MILLIS_OF_HOUR = 3_600_000
_DAY: Seconds = 86400.0
_PROOF: frozenset[Finding] = frozenset({"idle", "held"})


def step_of(span: Seconds) -> int:
    """The length of one bucket of the series."""
    return 3600 if span <= 2 * _DAY else 86400


class _Running(Struct):
    """An action, and the time after it so far."""

    case: Case
    at: UnixTime
    part: Ratio  # GPUs
    won: Counter[int]  # milliseconds by bucket
    unknown: Counter[int]
    until: UnixTime | None = None
    end: EpisodeEnd = "still_idle"


class Replay:
    """One policy over the past. Analyses are given one by one, oldest first."""

    def __init__(
        self,
        policy: Policy,
        *,
        begin: UnixTime,
        end: UnixTime,
        busy_within: Seconds,
        stop: bool = False,
        interval: Seconds = 0.0,
    ) -> None:
        """`interval`: between two analyses, by which a gap between them is recognised; 0: it is not known."""
        self.policy, self._stop, self._interval = policy, stop, interval
        # Owners are not stored. What is done with an idle pod does not change which pods are idle.
        self._replayed = replace(policy, dry_run=True, action="notify" if policy.action == "notify" else "control")
        self._begin, self._end, self._busy_within = begin, end, busy_within
        self._step = step_of(end - begin)
        self._cases: dict[str, Case] = {}
        self._memory = ReclaimMemory()
        self._open: dict[str, _Running] = {}
        self._done: list[_Running] = []
        self._held_back: list[tuple[str, Brake]] = []  # namespace, brake
        self._reached = begin

    def follow(self, analysis: Analysis) -> None:
        """Move all cases on by one analysis."""
        now = analysis.window.end
        world = TickFacts(now=now, leads=True, stored=True, stop=self._stop, channel=False, interval=self._interval)
        done = tick(self._cases, analysis, self._memory, policy=self._replayed, world=world, facts=_nothing_known)
        self._memory = done.memory
        self._keep(done, now)
        self._account(done, analysis.window)
        self._begin_episodes(done, analysis)
        self._reached = max(self._reached, now)

    def _keep(self, done: TickResult, now: UnixTime) -> None:
        """The cases for the next analysis; a case that awaits approval is approved at once."""
        for move in done.moves:
            case = move.after
            before = move.before.held_by if move.before else ()
            self._held_back += ((case.namespace, brake) for brake in case.held_by if brake not in before)
            if case.state == "awaiting_approval" and not case.approved_by:
                case = machine.approved(case, now, BY) or case
            self._cases[case.id] = case
            if case.state == "released" and case.reason == "ended" and forgettable(case, now):
                del self._cases[case.id]

    def _account(self, done: TickResult, window: Window) -> None:
        """The time since the last analysis, for every action before it."""
        over = dict(_over(done.moves))
        for key in list(self._open):
            running = self._open[key]
            if key in over:
                self._finish(self._open.pop(key), over[key], now=window.end)
            elif done.found.get(key) in _PROOF:
                known = max(self._reached, min(window.begin, window.end))
                self._add(running.unknown, self._reached, known)
                self._add(running.won, known, window.end)
            else:
                self._add(running.unknown, self._reached, window.end)

    def _finish(self, running: _Running, reason: str, *, now: UnixTime) -> None:
        """The workload ended, or is busy again. The time since the last analysis is not won."""
        ended = reason == "ended"
        running.until = self._reached if ended else now
        soon = now - running.at <= self._busy_within
        running.end = "ended" if ended else "false_alarm" if soon else "busy_later"
        self._done.append(running)

    def _begin_episodes(self, done: TickResult, analysis: Analysis) -> None:
        acted = {move.after.id: move.after for move in done.moves if move.wish == "act"}
        if not acted:
            return
        held = parts(analysis.gpus, set(acted))
        for key, case in acted.items():
            self._open[key] = _Running(case, analysis.window.end, held[key], Counter(), Counter())

    def _add(self, times: Counter[int], begin: UnixTime, end: UnixTime) -> None:
        """Add a time to the buckets that it lies in."""
        begin, end = max(begin, self._begin), min(end, self._end)
        while begin < end:
            bucket = int(begin // self._step)
            until = min(end, (bucket + 1) * self._step)
            times[bucket] += round((until - begin) * 1000)
            begin = until

    def close(self, until: UnixTime) -> None:
        """No more analyses: what is open stays idle to the end, and the time without an analysis is unknown."""
        for running in self._open.values():
            self._add(running.unknown, self._reached, until)
        self._done += self._open.values()
        self._open = {}
        self._done.sort(key=lambda one: (-one.at, one.case.id))

    def outcome(self, sees: Collection[str] | None = None) -> Outcome:
        """What the policy would have done to workloads of these namespaces; None: of all."""
        shown = [one for one in self._done if sees is None or one.case.namespace in sees]
        ends = Counter(one.end for one in shown)
        brakes = Counter(brake for namespace, brake in self._held_back if sees is None or namespace in sees)
        return Outcome(
            actions=len(shown),
            workloads=len({one.case.id for one in shown}),
            gpu_hours=sum(_hours(one, one.won) for one in shown),
            unknown_gpu_hours=sum(_hours(one, one.unknown) for one in shown),
            false_alarms=ends["false_alarm"],
            busy_later=ends["busy_later"],
            ended=ends["ended"],
            still_idle=ends["still_idle"],
            held_back=dict(brakes),
            namespaces=_by_namespace(shown),
            series=tuple(self._series(shown)),
            list=tuple(map(_episode, shown[:MOST_LISTED])),
            omitted=max(0, len(shown) - MOST_LISTED),
        )

    def _series(self, shown: Iterable[_Running]) -> Iterator[BucketSum]:
        acted: dict[int, list[_Running]] = {}
        won: dict[int, float] = {}
        unknown: dict[int, float] = {}
        for one in shown:
            acted.setdefault(int(one.at // self._step), []).append(one)
            for into, times in ((won, one.won), (unknown, one.unknown)):
                for at, time in times.items():
                    into[at] = into.get(at, 0.0) + time * one.part / _MILLIS_OF_HOUR
        for bucket in range(int(self._begin // self._step), int((self._end - 0.001) // self._step) + 1):
            here = acted.get(bucket, [])
            yield BucketSum(
                time=float(bucket * self._step),
                actions=len(here),
                gpu_hours=won.get(bucket, 0.0),
                unknown_gpu_hours=unknown.get(bucket, 0.0),
                false_alarms=sum(one.end == "false_alarm" for one in here),
            )


class Comparison:
    """The current policy and, if there is one, a proposed one, over the same analyses."""

    def __init__(self, current: Replay, proposed: Replay | None, *, begin: UnixTime, end: UnixTime) -> None:
        self._current, self._proposed = current, proposed
        self.begin, self.end, self.step = begin, end, step_of(end - begin)
        self._known = KnownTime(begin, end)
        self._until: UnixTime | None = None  # where the replay was cut off

    def follow(self, analysis: Analysis) -> Ratio:
        """One analysis; returns which part of the span is done."""
        self._known.add(analysis.window)
        for replay in self._replays:
            replay.follow(analysis)
        return min(1.0, max(0.0, (analysis.window.end - self.begin) / (self.end - self.begin)))

    def cut(self, until: UnixTime) -> None:
        """End here: the time limit is reached."""
        self._until = until

    def close(self) -> None:
        for replay in self._replays:
            replay.close(self.until)

    @property
    def until(self) -> UnixTime:
        return self.end if self._until is None else self._until

    @property
    def complete(self) -> bool:
        return self._until is None

    @property
    def assumed(self) -> tuple[Unapplied, ...]:
        """What people and notices would have decided, and what is assumed instead."""
        policies = [replay.policy for replay in self._replays]
        rows: tuple[tuple[Unapplied, bool], ...] = (
            ("approval", any(policy.approval for policy in policies)),
            ("notices", any(policy.notify_first for policy in policies)),
            ("scale", any(policy.action == "scale" for policy in policies)),
        )
        return tuple(code for code, applies in rows if applies)

    @property
    def coverage(self) -> PastCoverage:
        return self._known.coverage(self.until)

    def outcomes(self, sees: Collection[str] | None) -> tuple[Outcome, Outcome | None]:
        proposed = self._proposed.outcome(sees) if self._proposed else None
        return self._current.outcome(sees), proposed

    @property
    def _replays(self) -> tuple[Replay, ...]:
        return (self._current,) if self._proposed is None else (self._current, self._proposed)


class KnownTime:
    """Which part of a span the analyses cover; each moment counts once."""

    def __init__(self, begin: UnixTime, end: UnixTime) -> None:
        self._begin, self._end, self._reached = begin, end, begin
        self._known = 0.0
        self._gaps: list[Gap] = []
        self._count = 0
        self._first: UnixTime | None = None
        self._last: UnixTime | None = None

    def add(self, window: Window) -> None:
        begin, end = max(window.begin, self._reached), min(window.end, self._end)
        self._count += 1
        self._first, self._last = window.end if self._first is None else self._first, window.end
        if begin > self._reached:
            self._gaps.append(Gap(begin=self._reached, end=min(begin, self._end)))
        self._known += max(0.0, end - begin)
        self._reached = max(self._reached, end)

    def coverage(self, until: UnixTime) -> PastCoverage:
        """The coverage of the whole span; the replay went on until then."""
        gaps = [*self._gaps, Gap(begin=self._reached, end=until)] if until > self._reached else self._gaps
        seconds = until - self._begin
        return PastCoverage(
            ratio=min(1.0, self._known / seconds) if seconds > 0 else 0.0,
            known_seconds=self._known,
            seconds=seconds,
            analyses=self._count,
            first=self._first,
            last=self._last,
            gaps=tuple(sorted(gaps, key=lambda gap: (gap.begin - gap.end, gap.begin))[:_MOST_GAPS]),
        )


def _nothing_known(_: Workload) -> WorkloadFacts:
    return WorkloadFacts()


def _over(moves: Iterable[CaseChange]) -> Iterator[tuple[str, str]]:
    """The workloads that leave `would_act`, and why."""
    for before, after, _ in moves:
        if before is not None and before.state == "would_act" and after.state != "would_act":
            yield after.id, after.reason


def _hours(one: _Running, times: Mapping[int, int]) -> float:
    return sum(times.values()) * one.part / _MILLIS_OF_HOUR


def _by_namespace(shown: Iterable[_Running]) -> tuple[NamespaceSum, ...]:
    found: dict[str, list[_Running]] = {}
    for one in shown:
        found.setdefault(one.case.namespace, []).append(one)
    sums = [
        NamespaceSum(
            namespace=namespace,
            actions=len(some),
            gpu_hours=sum(_hours(one, one.won) for one in some),
            unknown_gpu_hours=sum(_hours(one, one.unknown) for one in some),
            false_alarms=sum(one.end == "false_alarm" for one in some),
        )
        for namespace, some in found.items()
    ]
    return tuple(sorted(sums, key=lambda one: (-one.gpu_hours, one.namespace)))


def _episode(one: _Running) -> Episode:
    case = one.case
    return Episode(
        at=one.at,
        until=one.until,
        end=one.end,
        namespace=case.namespace,
        pod=case.pod,
        pod_uid=case.uid,
        owner=case.owner or None,
        gpu_ids=case.gpu_ids,
        gpu_hours=_hours(one, one.won),
        unknown_gpu_hours=_hours(one, one.unknown),
    )
