"""One analysis → the moves of all cases: findings, circuit breaker, states, then budgets, cheapest victims first."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.logic.reclaim.brakes import Known, World
from vgpuscope.logic.reclaim.breaker import Breaker, after, remember, turned_idle
from vgpuscope.logic.reclaim.budgets import HOUR, Budgets, Spent
from vgpuscope.logic.reclaim.machine import Seen, Step, Wish, acted, opened, step
from vgpuscope.logic.reclaim.workloads import Held, Present, vanished
from vgpuscope.model.analysis import Analysis, GpuUse
from vgpuscope.model.quantity import DeviceUUID, UnixTime
from vgpuscope.model.reclaim import Brake, Case, Finding, Policy, Workload

Facts = Callable[[Workload], Known]


class Memory(Struct, frozen=True, kw_only=True):
    """What the machine remembers between two analyses, beside its cases."""

    breaker: Breaker = Breaker()
    known: Mapping[str, bool] = {}  # by workload: whether it was idle when something was last known of it


class Move(NamedTuple):
    """A case that changed, and what has to be done about it."""

    before: Case | None
    after: Case
    wish: Wish


class Tick(Struct, frozen=True, kw_only=True):
    """The result of one analysis."""

    memory: Memory
    moves: tuple[Move, ...] = ()
    found: Mapping[str, Finding] = {}
    held_back: tuple[Brake, ...] = ()  # each time a brake began to hold a case


def tick(
    cases: Mapping[str, Case],
    analysis: Analysis,
    memory: Memory,
    *,
    policy: Policy,
    world: World,
    facts: Facts,
    held: Held | None = None,
) -> Tick:
    """All moves that follow from an analysis. `facts` is asked only about workloads with a case."""
    present = Present(analysis.gpus)
    found = {key: present.finding(key, policy, held=held) for key in present}
    breaker = after(
        memory.breaker, turned=turned_idle(memory.known, found), of=len(found), now=world.now, policy=policy
    )
    world = replace(world, breaker=breaker.is_open)
    steps = list(_steps(cases, present, found, analysis, policy=policy, world=world, facts=facts))
    moves = tuple(_settled(steps, cases, analysis, policy=policy, world=world, facts=facts))
    return Tick(
        memory=Memory(breaker=breaker, known=remember(memory.known, found)),
        moves=moves,
        found=found,
        held_back=tuple(_new_brakes(moves)),
    )


def _steps(
    cases: Mapping[str, Case],
    present: Present,
    found: Mapping[str, Finding],
    analysis: Analysis,
    *,
    policy: Policy,
    world: World,
    facts: Facts,
) -> Iterator[tuple[Case | None, Step]]:
    """Every case after this analysis, and a new case for each workload that looks idle for the first time."""
    begin, end = analysis.window.begin, analysis.window.end
    for key, what in found.items():
        case = cases.get(key)
        if case is None and what != "idle":
            continue
        workload = present[key]
        seen = Seen(found=what, begin=begin, end=end, workload=workload)
        now = case or opened(key, seen, world)
        yield case, step(now, seen, facts(workload), policy, world)
    by_id = {gpu.gpu_id: gpu for gpu in analysis.gpus}
    for key, case in cases.items():
        if key not in present:
            seen = Seen(found=_missing(case, by_id), begin=begin, end=end)
            yield case, step(case, seen, facts(case.workload), policy, world)


def _missing(case: Case, gpus: Mapping[DeviceUUID, GpuUse]) -> Finding:
    """A workload that no GPU shows is gone only if all its GPUs are there to show it."""
    return "gone" if vanished(case.gpu_ids, gpus) else "unknown"


def _settled(
    steps: Iterable[tuple[Case | None, Step]],
    cases: Mapping[str, Case],
    analysis: Analysis,
    *,
    policy: Policy,
    world: World,
    facts: Facts,
) -> Iterator[Move]:
    """The moves of all cases; those that want to act go last, cheapest victims first, as far as the budgets reach."""
    wanting: list[tuple[Case | None, Case]] = []
    for before, (case, wish) in steps:
        if wish == "act":
            wanting.append((before, case))
        elif case is not before or wish:
            yield Move(before, case, wish)
    budgets = Budgets(_spent(cases), now=world.now, fleet=len({gpu.gpu_id for gpu in analysis.gpus}))
    for before, case in sorted(wanting, key=lambda pair: _cost(pair[1], facts)):
        over = budgets.exceeded(case.namespace, len(case.gpu_ids), policy)
        if over:
            if case.held_by != over or case is not before:
                yield Move(before, replace(case, held_by=over), "")
            continue
        budgets.spend(Spent(world.now, case.namespace, len(case.gpu_ids)))
        yield Move(before, acted(case, world.now, policy), "act")


def _spent(cases: Mapping[str, Case]) -> Iterator[Spent]:
    """Every decision, also one that was restored or released since; a dry run spends as a real one would."""
    for case in cases.values():
        if case.acted_at is not None:
            yield Spent(case.acted_at, case.namespace, case.acted_gpus)


def forgettable(case: Case, now: UnixTime) -> bool:
    """Whether an ended case no longer counts for a budget."""
    return case.acted_at is None or case.acted_at <= now - HOUR


def _cost(case: Case, facts: Facts) -> tuple[bool, UnixTime, str]:
    """What can be put back costs less than what cannot; then the longest idle time; then the id, for a fixed order."""
    idle = [share.idle_since for share in case.shares if share.idle_since is not None]
    return (not facts(case.workload).pod.reversible, min(idle, default=case.first_idle), case.id)


def _new_brakes(moves: Iterable[Move]) -> Iterator[Brake]:
    for before, case, _ in moves:
        known = before.held_by if before is not None else ()
        yield from (brake for brake in case.held_by if brake not in known)
