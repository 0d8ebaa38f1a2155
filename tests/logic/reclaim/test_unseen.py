"""Cases of workloads that no analysis shows any more end after some days, and not before."""

import pytest
from msgspec.structs import replace

from tests.logic.reclaim.test_machine import LIVE, analysis, gpu, tenant
from vgpuscope.logic.reclaim.brakes import TickFacts, WorkloadFacts
from vgpuscope.logic.reclaim.tick import ReclaimMemory, tick
from vgpuscope.logic.reclaim.unseen import DAY, forgotten, marked
from vgpuscope.model.reclaim import OPEN, STATES, Case, Share

START = 1_000_000.0
CASE = Case(
    id="uid-a",
    uid="uid-a",
    namespace="team",
    pod="a",
    since=START - DAY,
    first_idle=START - DAY,
    next_at=START,
    reason="exempted",
    shares=(Share(gpu_id="GPU-1"),),
)
POLICY = replace(LIVE, notify_first=True)
OTHER = gpu(2, tenant("b", "in_use"))
ENDED = {"verified", "restored", "released", "failed"}


def live_on(case: Case, *gpus, days: int, start: float = START) -> tuple[Case | None, list]:
    """The case after so many days with one analysis each; None: it was forgotten."""
    cases, wishes, policy = {case.id: case}, [], replace(POLICY, dry_run=case.state == "would_act")
    for day in range(days):
        now = start + day * DAY
        world = TickFacts(now=now, leads=True, stored=True, kube="ok", channel=True)
        done = tick(
            cases, analysis(now, *gpus), ReclaimMemory(), policy=policy, world=world, facts=lambda _: WorkloadFacts()
        )
        done = marked(cases, done, now)
        cases |= {move.after.id: move.after for move in done.moves}
        wishes += [move.wish for move in done.moves if move.after.id == case.id and move.wish]
        for one in forgotten(cases, done, now):
            del cases[one]
    return cases.get(case.id), wishes


@pytest.mark.parametrize("state", sorted(set(STATES) - ENDED))
@pytest.mark.parametrize("gpus", [(gpu(1), OTHER), (OTHER,)], ids=["the pod is gone", "the node is gone"])
def test_no_case_of_a_workload_that_is_gone_stays(state, gpus):
    case, _ = live_on(replace(CASE, state=state), *gpus, days=60)
    assert case is None


@pytest.mark.parametrize("state", sorted({*OPEN, "snoozed"}))
def test_a_case_ends_after_a_week_without_sight_of_its_node_and_not_before(state):
    before, _ = live_on(replace(CASE, state=state), OTHER, days=7)
    assert before is not None
    assert before.state == state
    case, wishes = live_on(replace(CASE, state=state), OTHER, days=9)
    assert case is not None
    assert (case.state, case.reason) == ("released", "ended")
    assert wishes == (["cancel"] if state in {"notified", "acting"} else [])


@pytest.mark.parametrize("gpus", [(gpu(1), OTHER), (OTHER,)])
def test_what_a_person_decided_holds_longer(gpus):
    case, _ = live_on(replace(CASE, state="exempt"), *gpus, days=29)
    assert case is not None
    assert case.state == "exempt"
    postponed = replace(CASE, state="snoozed", next_at=START + 20 * DAY)
    case, _ = live_on(postponed, *gpus, days=19)
    assert case is not None
    assert case.state == "snoozed"


def test_whoever_is_seen_again_is_not_older_for_it():
    case, _ = live_on(replace(CASE, state="exempt"), OTHER, days=25)
    assert case is not None
    seen, _ = live_on(case, gpu(1, tenant("a", "in_use")), OTHER, days=1, start=START + 25 * DAY)
    assert seen == replace(CASE, state="exempt")
    case, _ = live_on(seen, OTHER, days=25, start=START + 26 * DAY)
    assert case is not None
    assert case.state == "exempt"


def test_an_analysis_that_shows_nobody_says_nothing_about_anybody():
    case, _ = live_on(replace(CASE, state="exempt"), days=90)
    assert case == replace(CASE, state="exempt")


@pytest.mark.parametrize("state", sorted(ENDED))
def test_an_ended_case_is_forgotten_a_week_after_its_pod_was_last_seen(state):
    ended = replace(CASE, state=state, acted_at=START - DAY)
    case, _ = live_on(ended, gpu(1, tenant("a", "in_use")), days=60)
    assert case is not None  # the keys of its calls are known as long as its pod is there
    case, _ = live_on(ended, gpu(1), OTHER, days=7)
    assert case is not None
    case, _ = live_on(ended, gpu(1), OTHER, days=9)
    assert case is None
