"""One analysis → the moves of all cases: findings, circuit breaker, states, then budgets, cheapest victims first."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.logic.reclaim.brakes import Brakes, Facts, TickFacts
from vgpuscope.logic.reclaim.breaker import Breaker, after, remember, turned_idle
from vgpuscope.logic.reclaim.budgets import HOUR, Budgets, SpentAction
from vgpuscope.logic.reclaim.machine import CaseStep, Wish, WorkloadFinding, acted, held_back, opened, step
from vgpuscope.logic.reclaim.workloads import WITH_IDLE, Held, HoldingWorkloads, vanished
from vgpuscope.model.analysis import Analysis, GpuUse
from vgpuscope.model.quantity import DeviceUUID, PodUID, Seconds, UnixTime
from vgpuscope.model.reclaim import Brake, Case, Finding, PodFacts, Policy, State


class ReclaimMemory(Struct, frozen=True, kw_only=True):
    """What the machine remembers between two analyses, beside its cases."""

    breaker: Breaker = Breaker()
    known: Mapping[str, bool] = {}  # by workload: whether it was idle when something was last known of it
    held: Held = {}  # of workloads with several GPUs: every GPU or MIG instance that each was seen on
    until: UnixTime | None = None  # end of the last analysis


class CaseChange(NamedTuple):
    """A case that changed, and what has to be done about it."""

    before: Case | None
    after: Case
    wish: Wish


class TickResult(Struct, frozen=True, kw_only=True):
    """The result of one analysis."""

    memory: ReclaimMemory
    moves: tuple[CaseChange, ...] = ()
    found: Mapping[str, Finding] = {}
    held_back: tuple[Brake, ...] = ()  # each time a brake began to hold a case


def tick(
    cases: Mapping[str, Case],
    analysis: Analysis,
    memory: ReclaimMemory,
    *,
    policy: Policy,
    world: TickFacts,
    facts: Facts,
    missed: Mapping[str, Finding] | None = None,
) -> TickResult:
    """All moves that follow from an analysis. `facts` is asked only about workloads with a case.

    `missed`: what earlier analyses found, of which nothing could be stored. It takes the place of a finding of now.
    """
    present = HoldingWorkloads(analysis.gpus)
    held = present.held(memory.held)
    found = {key: present.finding(key, policy, held=held) for key in present}
    found.update((key, what) for key, what in (missed or {}).items() if key in found)
    breaker = after(
        memory.breaker,
        turned=turned_idle(memory.known, found),
        of=len(found),
        now=world.now,
        end=analysis.window.end,
        interval=world.interval,
        policy=policy,
    )
    world = replace(world, breaker=breaker.is_open)
    gap = _is_gap(memory.until, analysis, world.interval)
    steps = _steps(cases, present, found, analysis, gap=gap, brakes=Brakes(policy, world), facts=facts)
    moves = tuple(_settled(steps, cases, present, analysis, policy=policy, world=world))
    known = remember(memory.known, found)
    return TickResult(
        memory=ReclaimMemory(breaker=breaker, known=known, held=held, until=analysis.window.end),
        moves=moves,
        found=found,
        held_back=tuple(_new_brakes(moves)),
    )


def _is_gap(until: UnixTime | None, analysis: Analysis, interval: Seconds) -> bool:
    """Whether an analysis is missing before this one, and its window does not cover the time either.

    The analyzer or the store was down, or another replica led. A workload may have worked meanwhile.
    """
    if until is None or not interval or analysis.window.begin <= until + _LATE:
        return False
    return analysis.window.end - until > interval + max(interval / 2, _LATE)


_LATE: Seconds = 10.0  # an analysis may be so much later than planned, and leave so much time unseen


def _steps(
    cases: Mapping[str, Case],
    present: HoldingWorkloads,
    found: Mapping[str, Finding],
    analysis: Analysis,
    *,
    gap: bool,
    brakes: Brakes,
    facts: Facts,
) -> Iterator[tuple[Case | None, CaseStep, PodFacts]]:
    """Every case after this analysis, and a new case for each workload of which a share is idle for the first time."""
    begin, end = analysis.window.begin, analysis.window.end
    for key, what in found.items():
        case = cases.get(key)
        if case is None and what not in WITH_IDLE:
            continue
        workload = present[key]
        known = facts(workload)
        peers = known.pod.peers
        alone = not peers or all(found.get(uid) == "idle" for uid in peers)
        seen = WorkloadFinding(found=what, begin=begin, end=end, workload=workload, owner_idle=alone, after_gap=gap)
        now = case or opened(key, seen, brakes.world)
        yield case, step(now, seen, known, brakes), known.pod
    by_id = {gpu.gpu_id: gpu for gpu in analysis.gpus}
    for key, case in cases.items():
        if key not in present:
            seen, known = (
                WorkloadFinding(found=_missing(case, by_id), begin=begin, end=end, after_gap=gap),
                facts(case.workload),
            )
            yield case, step(case, seen, known, brakes), known.pod


def _missing(case: Case, gpus: Mapping[DeviceUUID, GpuUse]) -> Finding:
    """A workload that no GPU shows is gone only if all its GPUs are there to show it."""
    return "gone" if vanished(case.gpu_ids, gpus) else "unknown"


def _settled(
    steps: Iterable[tuple[Case | None, CaseStep, PodFacts]],
    cases: Mapping[str, Case],
    present: HoldingWorkloads,
    analysis: Analysis,
    *,
    policy: Policy,
    world: TickFacts,
) -> Iterator[CaseChange]:
    """The moves of all cases; those that want to act go last, cheapest victims first, as far as the budgets reach."""
    wanting: list[_Wanting] = []
    for before, new, pod in steps:
        if new.wish == "act":
            wanting.append(_Wanting(before, new.case, pod))
        elif new.case is not before or new.wish:
            yield CaseChange(before, new.case, new.wish)
    reporting = {gpu.gpu_id for gpu in analysis.gpus if not gpu.unreported}  # a mere registration widens no budget
    budgets = Budgets(_spent(cases, world.now), now=world.now, fleet=len(reporting))
    scales = policy.action == "scale"
    decided = _decided(cases, policy) if scales and wanting else {}
    for group in sorted(_groups(wanting, policy), key=lambda group: min(map(_cost, group))):
        gpus = [len(one.case.gpu_ids) for one in group]
        held = _incomplete(group, decided) if scales else ()
        held = held or budgets.exceeded(group[0].case.namespace, sum(gpus), policy, workloads=len(group))
        if held:
            yield from _held_back(group, held)
            continue
        for one, number in zip(group, gpus, strict=True):
            budgets.spend(SpentAction(world.now, one.case.namespace, number))
            target = one.pod.target if scales else None
            yield CaseChange(one.before, acted(one.case, present[one.case.id], world.now, policy, target), "act")


class _Wanting(NamedTuple):
    """A case that wants to act."""

    before: Case | None
    case: Case
    pod: PodFacts


def _groups(wanting: Iterable[_Wanting], policy: Policy) -> Iterable[list[_Wanting]]:
    """What is decided together: all pods that one change would end. A call for each GPU concerns one pod."""
    groups: dict[str, list[_Wanting]] = {}
    for one in wanting:
        target = one.pod.target if policy.action == "scale" else None
        groups.setdefault(one.case.id if target is None else target.uid, []).append(one)
    return groups.values()


def _decided(cases: Mapping[str, Case], policy: Policy) -> Mapping[str, frozenset[PodUID]]:
    """The pods that were decided on before and are not gone yet, by the UID of their target."""
    found: dict[str, set[PodUID]] = {}
    decided: State = "would_act" if policy.dry_run else "acting"
    for case in cases.values():
        if case.state == decided and case.target is not None:
            found.setdefault(case.target.uid, set()).add(case.uid)
    return {uid: frozenset(pods) for uid, pods in found.items()}


def _incomplete(group: list[_Wanting], decided: Mapping[str, frozenset[PodUID]]) -> tuple[Brake, ...]:
    """A change that ends several pods needs all of them: each is due now, or was decided on before."""
    target = group[0].pod.target
    ready = {one.case.uid for one in group} | decided.get(target.uid if target else "", frozenset())
    return () if {uid for one in group for uid in one.pod.peers} <= ready else ("owner_in_use",)


def _held_back(group: Iterable[_Wanting], brakes: tuple[Brake, ...]) -> Iterator[CaseChange]:
    for before, case, _ in group:
        if case.held_by != brakes or case is not before:
            yield CaseChange(before, held_back(case, brakes), "")


def _spent(cases: Mapping[str, Case], now: UnixTime) -> Iterator[SpentAction]:
    """All decisions, also of cases restored or released since. A dry run spends the budget as a live policy does.

    The calls of a case that acts may be delivered at any time, so it counts as decided now. Otherwise a control service
    that was down for a day would receive the decisions of a day at once.
    """
    for case in cases.values():
        if case.acted_at is not None:
            yield SpentAction(_charged_at(case, case.acted_at, now), case.namespace, case.acted_gpus)


def _charged_at(case: Case, decided: UnixTime, now: UnixTime) -> UnixTime:
    if case.state == "acting":
        return now
    return decided if case.charged_at is None else case.charged_at


def forgettable(case: Case, now: UnixTime) -> bool:
    """Whether an ended case no longer counts for a budget."""
    return case.acted_at is None or _charged_at(case, case.acted_at, now) <= now - HOUR


def _cost(one: _Wanting) -> tuple[bool, UnixTime, str]:
    """What can be put back costs less than what cannot; then the longest idle time; then the id, for a fixed order."""
    case = one.case
    idle = [share.idle_since for share in case.shares if share.idle_since is not None]
    return (not one.pod.reversible, min(idle, default=case.first_idle), case.id)


def _new_brakes(moves: Iterable[CaseChange]) -> Iterator[Brake]:
    for before, case, _ in moves:
        if case.held_by:
            known = before.held_by if before is not None else ()
            yield from (brake for brake in case.held_by if brake not in known)
