"""The reclaim machine with a real store, over random lives of workloads, crashes, faults and two replicas.

The oracle is the world itself: for every moment it knows whether a workload really works, what the control service
received, and what an operator forbade. The machine sees only analyses.
"""

import asyncio

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.logic.reclaim.test_machine import analysis, gpu, tenant
from tests.services.analyzer.lives import LIVE, PODS, WINDOW, Lease, Life, act, begun, live
from vgpuscope.config import Config
from vgpuscope.logic.reclaim.breaker import Breaker
from vgpuscope.logic.reclaim.budgets import HOUR
from vgpuscope.model.errors import HistoryDown, NotLeader
from vgpuscope.services.analyzer.reclaim.reclaim import Reclaim

ACTIONS = st.one_of(
    st.tuples(st.just("idle"), st.sampled_from(PODS)),
    st.tuples(st.just("window"), st.just("")),
    st.tuples(st.just("window"), st.just("")),
    st.tuples(st.just("window"), st.just("")),
    st.tuples(st.sampled_from(["busy", "unknown", "reborn", "exempt"]), st.sampled_from(PODS)),
    st.tuples(
        st.sampled_from(["refuses", "ok", "lost", "down", "up", "swap", "both", "stop", "go", "wait"]),
        st.just(""),
    ),
    st.tuples(st.just("stop_elsewhere"), st.just("")),
    st.tuples(st.just("kill"), st.integers(0, 8)),
)


@given(st.lists(ACTIONS, min_size=10, max_size=45), st.sampled_from([1, 2, 1000]))
@settings(deadline=None, max_examples=60)
def test_no_history_crash_or_fault_takes_a_gpu_that_must_not_be_taken(actions, most):
    async def story(life: Life) -> None:
        life.config = replace(LIVE, reclaim=replace(LIVE.reclaim, max_per_hour=most))
        for what, of in actions:
            before = len(life.received)
            forbidden, stopped = set(life.forbidden), life.stopped
            await act(life, what, of)
            for effect in life.received[before:]:
                assert effect.looked == "idle", "acted on a workload that the last analysis did not show idle"
                assert effect.uid not in forbidden, "acted on an exempt workload"
                assert not stopped, "acted while stopped"
        for effect in life.received:
            hour = {one.uid for one in life.received if effect.at - HOUR < one.at <= effect.at}
            assert len(hour) <= most, "more workloads in an hour than the budget"
            assert effect.key == f"{effect.uid}/GPU-{PODS.index(effect.uid.split('-')[1])}"
        assert len({e.key for e in life.received}) == len({e.uid for e in life.received})

    live(Life, story)


@pytest.fixture
async def life(tmp_path):
    async with begun(Life, tmp_path / "store.db") as one:
        yield one


async def idle_until_acted(life: Life, *, pod: str = "a", windows: int = 4) -> None:
    life.verdicts[pod] = "idle"
    for _ in range(windows):
        await life.window()


async def test_an_idle_workload_is_acted_on_once(life):
    await idle_until_acted(life, windows=8)
    assert [(effect.uid, effect.looked) for effect in life.received] == [("uid-a-0", "idle")]


async def test_a_call_is_tried_again_until_it_is_accepted_with_the_same_key(life):
    life.control = "lost"  # it acts, but the answer is lost
    await idle_until_acted(life)
    assert life.received
    life.control = "ok"
    for _ in range(4):
        await life.window()
    assert len({effect.key for effect in life.received}) == 1
    [call] = await life.store.calls_of("uid-a-0")
    assert (call.status, call.attempts) == ("delivered", len(life.received))


async def test_a_workload_that_works_again_is_not_called_for_any_more(life):
    life.control = "refuses"
    await idle_until_acted(life)
    life.verdicts["a"] = "in_use"
    life.control = "ok"
    for _ in range(3):
        await life.window()
    assert life.received == []
    [call] = await life.store.calls_of("uid-a-0")
    assert call.status == "cancelled"
    [entry] = [one for one in (await life.replicas[0][0].audit()).entries if one.what == "call_cancelled"]
    assert (entry.pod, entry.reason, call.key in entry.detail) == ("a", "works_again", True)


async def test_it_is_looked_at_again_before_a_retry(life):
    """The workload works again between two analyses: the analysis before the retry sees it."""
    life.control = "refuses"
    await idle_until_acted(life)
    life.verdicts["a"] = "in_use"
    life.control = "ok"
    life.now += 400.0
    await life.deliver()
    assert life.received == []


async def test_a_replica_that_lost_the_lease_without_knowing_makes_no_call(life):
    life.control = "refuses"
    await idle_until_acted(life)
    (old, _), (new, lease) = life.replicas
    lease.leads = True
    await new.ticks.follow(analysis(life.now, gpu(0, tenant("a", "idle", uid="uid-a-0"))))
    life.control = "ok"
    life.now += 400.0
    with pytest.raises(NotLeader):
        await old.ticks.follow(analysis(life.now, gpu(0, tenant("a", "idle", uid="uid-a-0"))))
    assert life.received == []


async def test_a_crash_after_any_step_loses_nothing_and_doubles_nothing(tmp_path):
    """The process dies after the n-th step of its life, for every n; then it lives on."""
    for steps in range(40):
        async with begun(Life, tmp_path / f"{steps}.db") as life:
            life.fuse.left = steps
            await idle_until_acted(life, windows=10)
            assert {effect.key for effect in life.received} == {"uid-a-0/GPU-0"}, steps
            [call] = await life.store.calls_of("uid-a-0")
            assert call.status == "delivered", steps


async def test_a_workload_that_worked_while_the_store_was_down_is_released(life):
    life.config = replace(LIVE, reclaim=replace(LIVE.reclaim, confirmations=3))
    await idle_until_acted(life, windows=3)
    assert life.replicas[0][0].cases["uid-a-0"].state == "grace"
    life.fuse.down, life.verdicts["a"] = True, "in_use"
    await life.window()
    life.fuse.down, life.verdicts["a"] = False, "idle"
    await life.window()
    case = life.replicas[0][0].cases["uid-a-0"]
    assert (case.state, case.reason) == ("released", "works_again")
    await life.window()
    assert life.replicas[0][0].cases["uid-a-0"].state == "candidate"


async def test_a_new_leader_counts_from_zero_if_nobody_looked_for_a_while(life):
    """The old leader and the store were down together: nobody remembers what the workload did meanwhile."""
    life.config = replace(LIVE, reclaim=replace(LIVE.reclaim, confirmations=3))
    await idle_until_acted(life, windows=3)
    life.replicas = [life.start(leads=True)]
    life.now += 5 * WINDOW
    await life.window()
    assert life.replicas[0][0].cases["uid-a-0"].confirmations == 1
    assert life.received == []


async def test_after_an_outage_of_the_control_service_the_budget_of_an_hour_holds(life):
    life.config = replace(LIVE, reclaim=replace(LIVE.reclaim, max_per_hour=1))
    life.control = "refuses"
    life.verdicts = dict.fromkeys(PODS, "idle")
    for _ in range(24):
        await life.window()
    life.control = "ok"
    for _ in range(5):
        await life.window()
    assert len(life.received) == 1


CHANGED = {
    "control.dry_run": replace(LIVE, control=replace(LIVE.control, dry_run=True)),
    "control.enabled": replace(LIVE, control=replace(LIVE.control, enabled=False)),
    "reclaim.action": replace(LIVE, reclaim=replace(LIVE.reclaim, action="notify")),
}


@pytest.mark.parametrize("what", CHANGED)
async def test_a_call_that_waits_is_not_made_after_the_policy_forbids_it(life, what):
    life.control = "refuses"
    await idle_until_acted(life)
    life.config, life.control = CHANGED[what], "ok"
    life.now += 400.0
    await life.deliver()
    for _ in range(3):
        await life.window()
    assert life.received == []
    [call] = await life.store.calls_of("uid-a-0")
    assert call.status == "cancelled"


async def seconds_of_deliveries(life: Life, seconds: int) -> int:
    """Rounds of deliveries, one each second; the number of analyses that they asked for."""
    machine, ends = life.replicas[0][0], set()
    for _ in range(seconds):
        life.now += 1
        await machine.deliveries.due()
        ends.add(machine._shared.last_findings.end)
    return len(ends) - 1


async def test_a_call_that_is_stopped_asks_for_no_analysis(life):
    life.control = "refuses"
    await idle_until_acted(life)
    machine, life.control = life.replicas[0][0], "ok"
    await machine.case_actions.stop("ops")
    assert await seconds_of_deliveries(life, 600) == 0
    await machine.case_actions.stop("ops", start=True)
    await seconds_of_deliveries(life, 15)
    assert len(life.received) == 1


async def test_looks_that_a_waiting_call_asks_for_do_not_close_the_breaker(life):
    life.control = "refuses"
    await idle_until_acted(life)
    machine, life.control = life.replicas[0][0], "ok"
    opened = Breaker(open_since=life.now, turned=9, of=10, counted_until=life.now)
    machine._shared.memory = replace(machine._shared.memory, breaker=opened)
    for _ in range(40):  # looks again, 20 s apart
        life.now += 20
        await life.analyse()
    assert machine.breaker.is_open
    assert machine.breaker.calm == 2  # 840 s: two analyses of every 600 s may have been scheduled ones
    assert life.received == []


async def test_a_call_that_fails_for_a_day_is_given_up(life):
    life.control = "refuses"
    life.config = replace(LIVE, reclaim=replace(LIVE.reclaim, confirmations=1))
    await idle_until_acted(life, windows=2)
    machine = life.replicas[0][0]
    for _ in range(30):  # 25 hours
        assert life.received == []
        life.now += 3000.0
        await life.deliver()
    assert machine.cases["uid-a-0"].state == "failed"


async def test_a_control_service_that_is_down_for_hours_is_called_again_when_it_is_back(life):
    """Analyses go on meanwhile; the hour in which the GPUs have to be free begins with the delivery."""
    life.control = "refuses"
    await idle_until_acted(life)
    for _ in range(5 * 6):  # 5 hours
        await life.window()
    machine = life.replicas[0][0]
    assert machine.cases["uid-a-0"].state == "acting"
    life.control = "ok"
    await life.window()
    assert [effect.uid for effect in life.received] == ["uid-a-0"]
    for _ in range(7):  # accepted, and the GPUs stay taken
        await life.window()
    assert (machine.cases["uid-a-0"].state, machine.cases["uid-a-0"].reason) == ("failed", "not_freed")


async def test_a_control_service_that_is_down_for_a_day_is_what_failed(life):
    life.control = "refuses"
    await idle_until_acted(life)
    for _ in range(25 * 6):
        await life.window()
    case = life.replicas[0][0].cases["uid-a-0"]
    assert (case.state, case.reason, life.received) == ("failed", "call_failed", [])


async def test_a_dry_run_calls_nobody_and_counts_what_it_would_have_done(life):
    life.config = replace(LIVE, control=replace(LIVE.control, dry_run=True))
    await idle_until_acted(life, windows=8)
    assert life.received == []
    assert life.replicas[0][0].counts.actions == {("control", "dry_run"): 1}


async def test_the_stop_switch_holds_back_retries_and_survives_a_restart(life):
    life.control = "refuses"
    await idle_until_acted(life)
    await life.replicas[0][0].case_actions.stop("ops")
    life.control = "ok"
    life.replicas[0] = life.start(leads=True)
    for _ in range(3):
        await life.window()
    assert life.received == []
    assert life.replicas[0][0].stopped_by == "ops"
    await life.replicas[0][0].case_actions.stop("ops", start=True)
    for _ in range(2):
        await life.window()
    assert [effect.uid for effect in life.received] == ["uid-a-0"]


async def test_a_stop_takes_effect_before_a_call_that_is_under_way_has_ended(life):
    """Two calls are due. The first hangs; the stop is asked for meanwhile, and the second is not made."""
    hangs, goes_on = asyncio.Event(), asyncio.Event()
    send = life.send

    async def slow(call, *, now):
        hangs.set()
        await goes_on.wait()
        return await send(call, now=now)

    machine = Reclaim(replace(life.given(Lease()), send={"control": slow}))
    life.replicas = [(machine, Lease())]
    life.verdicts |= {"a": "idle", "b": "idle"}
    for _ in range(3):
        life.now += 600.0
        await life.analyse()
    round_ = asyncio.create_task(machine.deliveries.due())
    await hangs.wait()
    stop = asyncio.create_task(machine.case_actions.stop("ops"))
    await asyncio.sleep(0)
    assert machine.stopped_by == "ops"
    goes_on.set()
    await asyncio.gather(round_, stop)
    assert len(life.received) == 1
    assert (await life.store.lead()).stopped_by == "ops"


async def test_a_stop_that_cannot_be_stored_still_holds_here(life):
    await idle_until_acted(life, windows=1)
    machine = life.replicas[0][0]
    life.fuse.down = True
    with pytest.raises(HistoryDown):
        await machine.case_actions.stop("ops")
    life.fuse.down = False
    for _ in range(5):
        await life.window()
    assert (machine.stopped_by, life.received) == ("ops", [])
    await machine.case_actions.stop("ops", start=True)
    for _ in range(2):
        await life.window()
    assert (machine.stopped_by, len(life.received)) == ("", 1)


async def test_a_stop_through_a_replica_that_does_not_lead_holds_for_the_leader_at_once(life):
    life.control = "refuses"
    await idle_until_acted(life)
    (leader, _), (other, _) = life.replicas
    life.control = "ok"
    await other.case_actions.stop("ops")
    life.now += 400.0
    [call] = await life.store.due(life.now, most=10)
    await leader.deliveries.deliver(call, life.store)  # before the leader looked at the store by itself
    assert life.received == []
    await life.window()
    assert (leader.stopped_by, other.stopped_by, life.received) == ("ops", "ops", [])
    with pytest.raises(NotLeader):
        await other.case_actions.stop("ops", start=True)
    await leader.case_actions.stop("ops", start=True)
    for _ in range(2):
        await life.window()
    assert (len(life.received), leader.stopped_by, other.stopped_by) == (1, "", "")


async def test_a_replica_that_does_not_lead_shows_the_switch_and_the_breaker_of_the_leader(life):
    await idle_until_acted(life, windows=1)
    (leader, _), (other, _) = life.replicas
    await leader.case_actions.stop("ops")
    shared = leader._shared
    shared.memory = replace(shared.memory, breaker=Breaker(open_since=life.now, turned=9, of=10))
    await life.window()
    assert (other.stopped_by, other.breaker) == ("ops", leader.breaker)
    assert other.breaker.is_open
    born, _ = life.start(leads=True)  # a new process, before its first analysis
    await born.deliveries.round()
    assert (born.stopped_by, born.breaker.is_open, born.cases.keys()) == ("ops", True, leader.cases.keys())


async def test_a_replica_that_follows_reads_the_cases_when_they_changed(life):
    (leader, _), (other, _) = life.replicas
    await idle_until_acted(life, windows=1)
    life.replicas = [life.replicas[0]]  # the other one analyses nothing
    await other.deliveries.round()
    assert other.cases["uid-a-0"].state == "candidate"
    await leader.case_actions.exempt("uid-a-0", "ops")
    life.now += 10.0
    await other.deliveries.round()
    assert other.cases["uid-a-0"].state == "exempt"


async def test_a_long_stop_ends_no_case(life):
    life.control = "refuses"
    await idle_until_acted(life)
    await life.replicas[0][0].case_actions.stop("ops")
    life.control = "ok"
    for _ in range(3 * 6):  # 3 hours
        await life.window()
    assert life.received == []
    await life.replicas[0][0].case_actions.stop("ops", start=True)
    for _ in range(2):
        await life.window()
    assert [effect.uid for effect in life.received] == ["uid-a-0"]


async def test_only_who_would_act_says_which_brakes_are_on(life):
    await life.window()
    machine, lead = life.replicas[0]
    nothing = dict.fromkeys(("stop", "breaker", "store_down", "holder_unknown", "kube_unreachable"), False)
    assert machine.brakes() == nothing
    shared = machine._shared
    shared.memory = replace(shared.memory, breaker=Breaker(open_since=life.now, turned=9, of=10))
    assert machine.brakes() == nothing | {"breaker": True}
    lead.leads = False
    assert machine.brakes() == {}
    assert machine.brakes(reachable=False) == nothing | {"breaker": True, "store_down": True}
    life.config = replace(LIVE, control=replace(LIVE.control, dry_run=True))
    assert machine.brakes(reachable=False) == {}


async def test_every_step_is_in_the_audit_log(life):
    await idle_until_acted(life)
    page = await life.replicas[0][0].audit()
    steps = [(one.what, one.after or one.reason) for one in reversed(page.entries)]
    assert steps == [("moved", "candidate"), ("moved", "grace"), ("moved", "acting"), ("call_delivered", "")]
    assert all(one.actor == "vgpuscope" and one.pod == "a" for one in page.entries)


@pytest.mark.parametrize("seconds", [5.0, 10.0])
async def test_every_timeout_that_the_settings_allow_is_covered_by_the_lease(life, seconds):
    life.config = msgspec.convert(
        msgspec.to_builtins(replace(LIVE, control=replace(LIVE.control, timeout=seconds))), type=Config
    )
    await idle_until_acted(life)
    assert len(life.received) == 1


async def test_a_call_that_could_outlast_the_lease_fails_and_says_so(life):
    for _, lease in life.replicas:
        lease.renewed = 4.0
    await idle_until_acted(life, windows=6)
    [call] = await life.store.calls_of("uid-a-0")
    assert (life.received, call.status, call.attempts > 1) == ([], "waiting", True)
    assert "lease" in call.error
    assert [one.what for one in (await life.replicas[0][0].audit()).entries].count("call_failed") == call.attempts
    for _, lease in life.replicas:
        lease.renewed = 15.0
    await life.window()
    assert len(life.received) == 1


async def test_a_pod_that_stays_idle_for_weeks_after_a_call_is_not_called_for_again(life):
    life.config = replace(LIVE, scheduler=replace(LIVE.scheduler, interval=3600.0))
    await idle_until_acted(life)
    assert len(life.received) == 1
    for _ in range(15 * 24):
        life.now += 3600.0
        await life.analyse()
        await life.deliver()
    assert len(life.received) == 1
    case = life.replicas[0][0].cases["uid-a-0"]
    assert (case.state, case.reason) == ("failed", "not_freed")


async def test_cases_without_a_workload_take_no_place_among_those_that_are_read(life):
    asked: list[str] = []

    async def learn(workloads, *, fresh, seen):
        del fresh, seen
        asked.extend(one.uid for one in workloads)

    life.replicas = [(Reclaim(replace(life.given(Lease()), learn=(learn,))), Lease())]
    await idle_until_acted(life, windows=3)
    assert "uid-a-0" in asked
    [(machine, _)] = life.replicas
    for _ in range(2):  # its node is gone
        asked.clear()
        life.now += 600.0
        await machine.ticks.follow(analysis(life.now, gpu(1, tenant("b", "in_use", uid="uid-b-0"))))
    assert machine.cases["uid-a-0"].state == "acting"
    assert "uid-a-0" not in asked
