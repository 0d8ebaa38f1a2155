"""Laws of the reclaim machine, over random histories. The oracle is the history itself, beside the machine.

The machine sees only analyses. The test knows for every minute whether a workload really worked.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from vgpuscope.logic.reclaim.brakes import TickFacts, WorkloadFacts
from vgpuscope.logic.reclaim.budgets import HOUR
from vgpuscope.logic.reclaim.machine import (
    approved,
    attempted,
    exempted,
    may_deliver,
    notified,
    resumed,
    snoozed,
    taken,
)
from vgpuscope.logic.reclaim.tick import ReclaimMemory, tick
from vgpuscope.model.analysis import Analysis, Evidence, GpuUse, Score, Tenant, TenantUse, Window
from vgpuscope.model.reclaim import Case, OpenHours, PodFacts, Policy, ReclaimTarget

MINUTE = 60.0
WINDOW = 600.0


def gpu(number: int, *uses: TenantUse, **more) -> GpuUse:
    return GpuUse(gpu_id=f"GPU-{number}", hostname="node", tenants=uses, **more)


def tenant(name: str, verdict: Any, *, coverage: float = 1.0, use_class: Any = "", uid: str | None = None) -> TenantUse:
    classes: dict[str, Any] = {"idle": "idle", "in_use": "busy", "unknown": "unknown"}
    return TenantUse(
        tenant=Tenant(namespace="team", pod=name, pod_uid=f"uid-{name}" if uid is None else uid),
        own=True,
        score=Score(value=1.0),
        verdict=verdict,
        use_class=use_class or classes[verdict],
        evidence=Evidence(coverage=coverage),
    )


def analysis(end: float, *gpus: GpuUse) -> Analysis:
    return Analysis(
        number=1, started=end, seconds=0.1, window=Window(begin=end - WINDOW, end=end, interval=15.0), gpus=gpus
    )


LIVE = Policy(
    dry_run=False,
    grace=0.0,
    min_pod_age=0.0,
    notify_first=False,
    max_fleet_share=1.0,
    breaker_least=10**6,
    confirmations=3,
)
OLD = WorkloadFacts(pod=PodFacts(created=0.0))
OWNER = ReclaimTarget(api_version="apps/v1", kind="Deployment", name="web", uid="owner-uid")


@dataclass
class Player:
    """Plays analyses to the machine, as the service does, and keeps what happened."""

    policy: Policy = LIVE
    known: WorkloadFacts = OLD
    cases: dict[str, Case] = field(default_factory=dict)
    memory: ReclaimMemory = field(default_factory=ReclaimMemory)
    acts: list[tuple[float, str]] = field(default_factory=list)
    world: dict = field(default_factory=dict)
    held_back: list[str] = field(default_factory=list)

    def see(self, end: float, *gpus: GpuUse, **more):
        world = TickFacts(**{"now": end, "leads": True, "stored": True, **self.world, **more})
        result = tick(
            self.cases, analysis(end, *gpus), self.memory, policy=self.policy, world=world, facts=lambda _: self.known
        )
        self.memory = result.memory
        self.held_back += result.held_back
        for move in result.moves:
            self.cases[move.after.id] = move.after
            if move.wish == "act":
                self.acts.append((end, move.after.id))
        return result

    def idle(self, times: int, *, name: str = "a", start: float = 10_000.0, step: float = WINDOW) -> float:
        """See it idle several times; returns the end of the last window."""
        for turn in range(times):
            self.see(start + turn * step, gpu(1, tenant(name, "idle")))
        return start + (times - 1) * step

    def state(self, name: str = "a") -> str:
        return self.cases[f"uid-{name}"].state


def test_a_workload_is_acted_on_after_three_idle_windows_that_do_not_overlap():
    player = Player()
    player.idle(3)
    assert player.acts == []  # the third window confirms; the grace period of 0 s ends with the next analysis
    player.idle(1, start=10_000.0 + 3 * WINDOW)
    assert [who for _, who in player.acts] == ["uid-a"]


def test_a_veto_of_the_model_is_a_brake_from_the_first_window():
    player = Player(known=replace(OLD, model="veto"))
    player.idle(1)
    assert player.cases["uid-a"].held_by == ("model_veto",)
    player.idle(4)
    assert (player.cases["uid-a"].held_by, player.acts) == (("model_veto",), [])


def test_windows_that_overlap_count_once():
    player = Player()
    player.idle(11, step=MINUTE)  # from the first window's begin to the last one's end: 20 minutes, two windows
    assert player.cases["uid-a"].confirmations == 2


# Mostly idle, or a random history would hardly ever come as far as an act.
LOOKS = st.sampled_from(["idle"] * 12 + ["in_use", "unknown", "thin", "gone", "lost", "other"])


@given(st.lists(LOOKS, min_size=4, max_size=40))
@settings(deadline=None)
def test_an_act_needs_enough_idle_windows_just_before_it(history):
    """Whatever happened before: the last three windows, the present one among them, were idle and well covered."""
    player = Player()
    views = {
        "idle": lambda: [gpu(1, tenant("a", "idle"))],
        "in_use": lambda: [gpu(1, tenant("a", "in_use"))],
        "unknown": lambda: [gpu(1, tenant("a", "unknown"))],
        "thin": lambda: [gpu(1, tenant("a", "idle", coverage=0.94))],
        "gone": lambda: [gpu(1)],
        "lost": list,
        "other": lambda: [gpu(1, tenant("a", "idle", uid="uid-new"))],
    }
    for turn, what in enumerate(history):
        end = 10_000.0 + turn * WINDOW
        player.see(end, *views[what]())
        if (end, "uid-a") in player.acts:
            assert history[max(0, turn - 2) : turn + 1] == ["idle"] * 3
    assert len([who for _, who in player.acts if who == "uid-a"]) <= history.count("idle") // 3


SECOND = {
    "in_use": lambda: [gpu(2, tenant("a", "in_use"))],
    "unknown": lambda: [gpu(2, tenant("a", "unknown"))],
    "unattributed": lambda: [gpu(2)],  # it reports, and nobody knows of whom
    "silent": lambda: [gpu(2, last_seen=1.0)],  # it is still listed
    "lost": list,
}


@given(st.lists(st.sampled_from(sorted(SECOND)), min_size=9, max_size=9))
@settings(deadline=None)
def test_one_busy_unknown_or_missing_share_saves_the_whole_workload(seconds):
    """A pod with two GPUs, of which the second was seen working once. Then it may report nothing at all."""
    player = Player()
    for turn, second in enumerate(["in_use", *seconds]):
        player.see(10_000.0 + turn * WINDOW, gpu(1, tenant("a", "idle")), *SECOND[second]())
    assert player.acts == []


def test_a_pod_that_was_away_with_all_its_gpus_still_has_them_when_one_is_back():
    player = Player()
    player.see(10_000.0, gpu(1, tenant("a", "idle")), gpu(2, tenant("a", "in_use")))
    player.see(10_000.0 + WINDOW, gpu(1, last_seen=10_000.0), gpu(2, last_seen=10_000.0))
    for turn in range(2, 10):
        player.see(10_000.0 + turn * WINDOW, gpu(1, tenant("a", "idle")), gpu(2, last_seen=10_000.0))
    assert player.acts == []


def test_a_pod_with_two_gpus_that_is_gone_is_forgotten():
    player = Player()
    player.see(10_000.0, gpu(1, tenant("a", "idle")), gpu(2, tenant("a", "idle")))
    player.see(10_000.0 + WINDOW, gpu(1), gpu(2))
    assert player.memory.held == {}


def test_a_pod_of_which_an_allocated_gpu_does_not_report_is_unknown():
    player = Player()
    for turn in range(10):
        player.see(10_000.0 + turn * WINDOW, gpu(1, replace(tenant("a", "idle"), partly_seen=True)))
    assert player.acts == []


def test_windows_are_counted_from_zero_after_a_time_in_which_nobody_looked():
    """The analyzer or its store was down for two windows, in which the workload may have worked."""
    player = Player(world={"interval": WINDOW})
    end = player.idle(2)
    player.idle(2, start=end + 3 * WINDOW)
    assert player.cases["uid-a"].confirmations == 2
    assert player.acts == []


@given(st.floats(0, 0.4))
@settings(deadline=None)
def test_an_analysis_that_is_a_little_late_is_no_gap(late):
    player = Player(world={"interval": WINDOW})
    end = player.idle(2)
    player.idle(1, start=end + WINDOW * (1 + late))
    assert player.cases["uid-a"].confirmations == 3


def test_a_window_that_covers_the_time_in_which_nobody_looked_is_no_gap():
    player = Player(world={"interval": MINUTE})
    end = player.idle(1)
    player.idle(1, start=end + WINDOW)
    assert player.cases["uid-a"].confirmations == 2


def test_the_call_carries_the_numbers_of_the_window_in_which_it_was_decided():
    """The windows that confirm may be hours old by then, because a budget held the case back."""
    player = Player(policy=replace(LIVE, max_per_hour=0))
    end = player.idle(6)
    player.policy = LIVE
    player.see(end + WINDOW, gpu(1, replace(tenant("a", "idle"), score=Score(value=9.5)), score=Score(value=9.5)))
    [case] = player.cases.values()
    assert (case.state, case.shares[0].score) == ("acting", 9.5)


def test_an_annotation_counts_as_removed_only_if_the_pod_was_read():
    never = WorkloadFacts(pod=PodFacts(created=0.0, read=True, consent="never"))
    player = Player(known=never, world={"kube": "ok"})
    end = player.idle(1)
    assert player.state() == "exempt"
    player.known = WorkloadFacts(pod=PodFacts())
    end = player.idle(1, start=end + WINDOW)
    assert player.state() == "exempt"
    player.known = WorkloadFacts(pod=PodFacts(created=0.0, read=True))
    player.idle(1, start=end + WINDOW)
    assert player.state() == "candidate"


# ── a decision that waits for its delivery ───────────────────────────────────────────────────────────────────────


def decided(**policy) -> tuple[Player, float]:
    """A case whose call waits, and the time."""
    player = Player(policy=replace(LIVE, **policy))
    end = player.idle(4)
    assert player.state() == "acting"
    return player, end


def holding(player: Player, now: float, **world) -> tuple[str, ...]:
    """What forbids the delivery of its call, by a fresh look that shows it idle."""
    made = TickFacts(**{"now": now, "leads": True, "stored": True, **world})
    return may_deliver(player.cases["uid-a"], "idle", player.known, player.policy, made)


CLOSED = OpenHours(days=frozenset(), begin=0, end=24 * 60, tz="UTC")
CHANGES: dict[str, tuple[dict, WorkloadFacts, tuple[str, ...]]] = {
    "a dry run": ({"dry_run": True}, OLD, ("released",)),
    "another action": ({"action": "scale"}, OLD, ("released",)),
    "notices only": ({"action": "notify"}, OLD, ("released",)),
    "approval": ({"approval": True}, OLD, ("released",)),
    "the owner allows notices only": (
        {},
        WorkloadFacts(pod=PodFacts(created=0.0, consent="notify")),
        ("annotation_notify",),
    ),
    "the owner forbids it": ({}, WorkloadFacts(pod=PodFacts(created=0.0, consent="never")), ("annotation_never",)),
    "the model is asked again": ({}, WorkloadFacts(pod=PodFacts(created=0.0), model="waiting"), ("model_waiting",)),
    "the model objects": ({}, WorkloadFacts(pod=PodFacts(created=0.0), model="veto"), ("model_veto",)),
    "work outside the GPU": ({}, WorkloadFacts(pod=PodFacts(created=0.0), activity=True), ("activity",)),
    "night": ({"working_hours": (CLOSED,)}, OLD, ("working_hours",)),
    "more windows are asked for": ({"confirmations": 9}, OLD, ("unconfirmed",)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_everything_that_would_forbid_a_decision_forbids_its_delivery(what):
    player, end = decided()
    assert holding(player, end) == ()
    policy, player.known, held = CHANGES[what]
    player.policy = replace(player.policy, **policy)
    assert holding(player, end) == held


@pytest.mark.parametrize("what", [name for name, (_, _, held) in CHANGES.items() if held == ("released",)])
def test_a_decision_that_no_longer_fits_the_policy_is_taken_back(what):
    player, end = decided()
    player.policy = replace(player.policy, **CHANGES[what][0])
    [move] = player.see(end + WINDOW, gpu(1, tenant("a", "idle"))).moves
    state = "awaiting_approval" if what == "approval" else "released"
    assert (move.after.state, move.wish) == (state, "cancel")


@pytest.mark.parametrize("what", ["the owner allows notices only", "night", "the model is asked again"])
def test_while_a_brake_holds_a_delivery_the_case_says_so_and_does_not_fail(what):
    player, end = decided()
    policy, player.known, held = CHANGES[what]
    player.policy = replace(player.policy, **policy)
    player.idle(30, start=end + WINDOW)
    assert (player.state(), player.cases["uid-a"].held_by) == ("acting", held)
    player.policy, player.known = LIVE, OLD
    player.idle(1, start=end + 31 * WINDOW)
    assert (player.state(), player.cases["uid-a"].held_by) == ("acting", ())


def test_once_the_owner_was_changed_nothing_holds_the_case_back_while_its_pod_ends():
    """While it is deleted, the API server names nothing that could be changed, and its GPU is measured too shortly."""
    known = replace(OLD, pod=PodFacts(created=0.0, read=True, target=OWNER))
    player = Player(policy=replace(LIVE, action="scale", min_pod_age=0.0), known=known, world={"kube": "ok"})
    end = player.idle(4)
    case = player.cases["uid-a"]
    assert (case.state, case.target) == ("acting", OWNER)
    player.cases["uid-a"] = taken(case, end)
    player.known = replace(OLD, pod=PodFacts(created=0.0, read=True))
    for turn in range(1, 40):
        player.see(end + turn * WINDOW, gpu(1, tenant("a", "unknown")))
        assert (player.state(), player.cases["uid-a"].held_by) == ("acting", ())
    player.see(end + 40 * WINDOW, gpu(1, tenant("a", "idle")))
    assert (player.state(), player.cases["uid-a"].held_by) == ("acting", ())
    player.see(end + 41 * WINDOW + LIVE.verify_within, gpu(1, tenant("a", "idle")))
    assert (player.state(), player.cases["uid-a"].reason) == ("failed", "not_freed")


def test_windows_that_prove_nothing_hold_a_delivery_until_there_are_enough_again():
    player, end = decided()
    player.see(end + WINDOW, gpu(1, tenant("a", "unknown")))
    for turn in range(2, 5):
        assert "unconfirmed" in holding(player, end + turn * WINDOW)
        player.idle(1, start=end + turn * WINDOW)
    assert holding(player, end + 5 * WINDOW) == ()


TAKEN = st.sampled_from(["window"] * 3 + ["deliver", "works"])


@given(st.lists(TAKEN, min_size=20, max_size=80), st.integers(1, 3))
@settings(deadline=None)
def test_no_hour_has_more_deliveries_than_the_budget_however_long_calls_waited(story, most):
    """The oracle counts deliveries. While the control service is down, calls wait; then all go out at once.

    A pod may work again right after its call was delivered.
    """
    player = Player(policy=replace(LIVE, confirmations=1, max_per_hour=most))
    idle, now, delivered = {f"pod-{n}": True for n in range(12)}, 10_000.0, dict[str, float]()
    for what in story:
        now += WINDOW
        player.see(now, *(gpu(n, tenant(one, "idle" if idle[one] else "in_use")) for n, one in enumerate(idle)))
        for case in [one for one in player.cases.values() if one.state == "acting" and what != "window"]:
            delivered[case.id] = now
            idle[case.pod] = what != "works"
            player.cases[case.id] = attempted(case, now, player.policy)
        assert sum(now - HOUR < at for at in delivered.values()) <= most


def test_work_releases_a_case_at_once_and_cancels_what_is_on_its_way():
    player = Player()
    end = player.idle(4)
    assert player.state() == "acting"
    result = player.see(end + WINDOW, gpu(1, tenant("a", "in_use")))
    assert (player.state(), [move.wish for move in result.moves]) == ("released", ["cancel"])


def test_a_workload_is_verified_only_when_fresh_data_show_its_gpu_without_it():
    player = Player()
    end = player.idle(4)
    player.see(end + 60, gpu(1, last_seen=end))  # the GPU no longer reports: that proves nothing
    assert player.state() == "acting"
    player.see(end + 90)  # nor does an analysis without the GPU
    assert player.state() == "acting"
    player.see(end + 120, gpu(1))
    assert player.state() == "verified"


def test_gpus_that_are_not_freed_in_time_end_in_failed():
    player = Player()
    end = player.idle(4)
    player.see(end + LIVE.verify_within, gpu(1, tenant("a", "idle")))
    assert (player.state(), player.cases["uid-a"].reason) == ("failed", "not_freed")


def test_while_data_are_unknown_the_time_in_which_gpus_have_to_be_free_does_not_run():
    player = Player()
    end = player.idle(4)
    assert player.state() == "acting"
    for turn in range(1, 40):
        player.see(end + turn * WINDOW, gpu(1, tenant("a", "unknown")))
    assert player.state() == "acting"
    player.see(end + 40 * WINDOW, gpu(1))
    assert player.state() == "verified"


def test_a_new_pod_of_the_same_name_begins_from_zero():
    player = Player()
    end = player.idle(3)
    player.see(end + WINDOW, gpu(1, tenant("a", "idle", uid="uid-b")))
    assert player.acts == []
    assert player.cases["uid-a"].state == "released"
    assert player.cases["uid-b"].confirmations == 1


def test_a_workload_without_a_uid_is_shown_and_never_acted_on():
    player = Player()
    for turn in range(10):
        player.see(10_000.0 + turn * WINDOW, gpu(1, tenant("a", "idle", uid="")))
    [case] = player.cases.values()
    assert (player.acts, case.state, case.held_by) == ([], "candidate", ("no_uid",))


def test_a_candidate_that_begins_to_hold_memory_is_left_alone_and_counts_from_zero():
    player = Player()
    end = player.idle(2)
    player.see(end + WINDOW, gpu(1, tenant("a", "idle", use_class="idle-held")))
    case = player.cases["uid-a"]
    assert (case.state, case.held_by, case.confirmations) == ("candidate", ("holds_memory",), 0)
    player.idle(3, start=end + 2 * WINDOW)
    assert player.acts == []
    player.idle(1, start=end + 5 * WINDOW)
    assert len(player.acts) == 1


def test_a_case_that_was_decided_and_holds_memory_again_is_released_and_its_calls_are_cancelled():
    player = Player()
    end = player.idle(4)
    assert player.state() == "acting"
    [move] = player.see(end + WINDOW, gpu(1, tenant("a", "idle", use_class="idle-held"))).moves
    assert (move.after.state, move.after.reason, move.wish) == ("released", "holds_memory", "cancel")


def test_a_window_of_doubt_is_counted_from_zero_again():
    player = Player()
    end = player.idle(3)
    player.see(end + WINDOW, gpu(1, tenant("a", "unknown")))
    player.idle(2, start=end + 2 * WINDOW)
    assert player.acts == []
    player.idle(1, start=end + 4 * WINDOW)
    assert len(player.acts) == 1


def test_a_doubtful_window_is_not_acted_on_even_if_enough_windows_were_counted():
    player = Player(policy=replace(LIVE, confirmations=0))
    player.idle(1)
    for turn in range(1, 5):
        player.see(10_000.0 + turn * WINDOW, gpu(1, tenant("a", "unknown")))
    assert player.acts == []


def test_memory_that_is_held_saves_a_workload_unless_the_policy_includes_it():
    for include, acts in ((False, 0), (True, 1)):
        player = Player(policy=replace(LIVE, include_held=include))
        for turn in range(6):
            player.see(10_000.0 + turn * WINDOW, gpu(1, tenant("a", "idle", use_class="idle-held")))
        assert len(player.acts) == acts


BRAKES: dict[str, dict[str, Any]] = {
    "protected_namespace": {"policy": replace(LIVE, protected_namespaces=frozenset({"team"}))},
    "protected_priority": {"known": WorkloadFacts(pod=PodFacts(created=0.0, priority_class="system-node-critical"))},
    "pod_age": {"policy": replace(LIVE, min_pod_age=1e9)},
    "activity": {"known": replace(OLD, activity=True)},
    "model_veto": {"known": replace(OLD, model="veto")},
    "model_waiting": {"known": replace(OLD, model="waiting")},
    "annotation_notify": {"known": WorkloadFacts(pod=PodFacts(created=0.0, consent="notify"))},
    "notify_only": {"policy": replace(LIVE, action="notify")},
    "stop": {"world": {"stop": True}},
    "store_down": {"world": {"stored": False}},
    "not_leader": {"world": {"leads": False}},
    "no_history": {"world": {"history": False}},
    "holder_unknown": {"world": {"kube": "none"}},
    "kube_unreachable": {"world": {"kube": "down"}},
    "budget_hour": {"policy": replace(LIVE, max_per_hour=0)},
    "budget_namespace": {"policy": replace(LIVE, max_per_namespace=0)},
    "budget_fleet": {"policy": replace(LIVE, max_fleet_share=0.99)},
}


def test_each_brake_holds_a_case_back_is_named_and_counted():
    for brake, setting in BRAKES.items():
        player = Player(**setting)
        player.idle(12)
        assert player.acts == [], brake
        assert brake in player.cases["uid-a"].held_by, brake
        assert player.held_back.count(brake) == 1, brake
        freed = Player(cases=player.cases, memory=player.memory)
        freed.idle(4, start=10_000.0 + 12 * WINDOW)
        assert freed.acts, f"{brake} holds for ever"


def test_the_annotation_never_exempts_and_lifting_it_begins_from_zero():
    player = Player(known=WorkloadFacts(pod=PodFacts(created=0.0, consent="never")), world={"kube": "ok"})
    end = player.idle(6)
    assert (player.state(), player.acts) == ("exempt", [])
    player.known = WorkloadFacts(pod=PodFacts(created=0.0, read=True))
    player.idle(1, start=end + WINDOW)
    assert (player.state(), player.cases["uid-a"].confirmations) == ("candidate", 0)


def test_a_dry_run_acts_once_and_when_it_ends_the_case_begins_from_zero():
    player = Player(policy=replace(LIVE, dry_run=True))
    end = player.idle(20)
    assert len(player.acts) == 1
    assert player.cases["uid-a"].dry_run
    player.policy = LIVE
    player.idle(1, start=end + WINDOW)
    assert (player.state(), player.cases["uid-a"].confirmations) == ("candidate", 0)


def test_the_grace_period_begins_when_the_notice_is_delivered():
    player = Player(policy=replace(LIVE, notify_first=True, grace=3600.0))
    end = player.idle(3)
    assert player.state() == "notified"
    player.idle(6, start=end + WINDOW)
    assert player.state() == "notified"  # nobody was told yet
    case = player.cases["uid-a"]
    player.cases["uid-a"] = notified(case, 20_000.0, 3600.0)
    player.idle(1, start=23_599.0)
    assert player.acts == []
    player.idle(1, start=23_600.0)
    assert len(player.acts) == 1


def test_an_owner_sets_his_own_grace_period():
    player = Player(policy=replace(LIVE, grace=1e9), known=WorkloadFacts(pod=PodFacts(created=0.0, idle_grace=0.0)))
    player.idle(4)
    assert len(player.acts) == 1


def test_approval_is_waited_for():
    player = Player(policy=replace(LIVE, approval=True))
    end = player.idle(8)
    assert (player.state(), player.acts) == ("awaiting_approval", [])
    case = approved(player.cases["uid-a"], end, "ops")
    assert case is not None
    player.cases["uid-a"] = case
    player.idle(1, start=end + WINDOW)
    assert len(player.acts) == 1


def test_snoozed_and_exempt_cases_are_left_alone():
    for change, state in (
        (lambda c, n: snoozed(c, n, "me", 1e9), "snoozed"),
        (lambda c, n: exempted(c, n, "me"), "exempt"),
    ):
        player = Player(policy=replace(LIVE, grace=7200.0))
        end = player.idle(3)
        player.cases["uid-a"] = change(player.cases["uid-a"], end)
        player.idle(30, start=end + WINDOW)
        assert (player.state(), player.acts) == (state, [])


def test_an_operator_ends_a_snooze_or_an_exemption_and_the_case_is_proven_idle_from_zero():
    for change in (lambda c, n: snoozed(c, n, "me", 1e9), lambda c, n: exempted(c, n, "me")):
        player = Player(policy=LIVE)
        end = player.idle(2)
        left = change(player.cases["uid-a"], end)
        player.cases["uid-a"] = left
        again = resumed(left, end, "ops")
        assert again is not None
        assert (again.state, again.by, again.confirmations, again.notified_at) == ("candidate", "ops", 0, None)
        player.cases["uid-a"] = again
        end = player.idle(LIVE.confirmations - 1, start=end + WINDOW)
        assert player.acts == []
        player.idle(10, start=end + WINDOW)
        assert len(player.acts) == 1


def test_only_a_snooze_or_a_decision_of_a_person_can_be_ended():
    player = Player(policy=replace(LIVE, grace=7200.0))
    end = player.idle(3)
    assert resumed(player.cases["uid-a"], end, "ops") is None
    excluded = Player(policy=LIVE, known=WorkloadFacts(pod=PodFacts(created=0.0, consent="never")))
    end = excluded.idle(1)
    assert excluded.state() == "exempt"
    assert resumed(excluded.cases["uid-a"], end, "ops") is None


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["x", "y", "z"]), st.integers(1, 3)), min_size=1, max_size=25
    ),
    st.integers(0, 6),
    st.integers(0, 4),
    st.sampled_from([0.0, 0.1, 0.25, 1.0]),
)
@settings(deadline=None)
def test_budgets_are_never_exceeded_in_any_rolling_hour(pods, per_hour, per_namespace, share):
    """Workloads become idle at different times; the oracle counts decisions in every hour that begins with one."""
    policy = replace(LIVE, max_per_hour=per_hour, max_per_namespace=per_namespace, max_fleet_share=share)
    player = Player(policy=policy)
    numbers = iter(range(1000))
    owners = [
        (f"p{n}", begins, namespace, [next(numbers) for _ in range(gpus)])
        for n, (begins, namespace, gpus) in enumerate(pods)
    ]
    fleet = sum(len(gpus) for *_, gpus in owners)
    charged: list[tuple[float, str, int]] = []
    for turn in range(24):
        rows = []
        for name, begins, namespace, gpus in owners:
            verdict = "idle" if turn >= begins else "in_use"
            use = tenant(name, verdict)
            use = replace(use, tenant=replace(use.tenant, namespace=namespace))
            rows += [gpu(one, use) for one in gpus]
        before = len(player.acts)
        player.see(10_000.0 + turn * WINDOW, *rows)
        for at, who in player.acts[before:]:
            _, _, namespace, gpus = next(one for one in owners if f"uid-{one[0]}" == who)
            charged.append((at, namespace, len(gpus)))
    for begin, namespace, _ in charged:
        hour = [one for one in charged if begin <= one[0] < begin + 3600.0]
        assert len(hour) <= per_hour
        assert sum(one[1] == namespace for one in hour) <= per_namespace
        assert sum(one[2] for one in hour) <= share * fleet + 1e-6


def test_a_budget_is_free_again_after_an_hour_and_is_not_given_back_before():
    """The first workload is acted on and then works again: what was spent stays spent for an hour from then on.

    Until then its call could be delivered.
    """
    player = Player(policy=replace(LIVE, max_per_hour=1))
    first = player.idle(4, name="a")
    player.see(first + WINDOW, gpu(1, tenant("a", "in_use")), gpu(2, tenant("b", "idle")))
    for turn in range(2, 8):
        player.see(first + turn * WINDOW, gpu(1, tenant("a", "in_use")), gpu(2, tenant("b", "idle")))
        taken = [who for _, who in player.acts]
        assert taken == (["uid-a"] if turn < 7 else ["uid-a", "uid-b"])


def test_a_fault_that_makes_everybody_idle_opens_the_breaker_and_calm_closes_it():
    player = Player(policy=replace(LIVE, breaker_least=5, breaker_calm=6))
    names = [f"w{n}" for n in range(20)]

    def fleet(verdict: str):
        return [gpu(n, tenant(name, verdict)) for n, name in enumerate(names)]

    player.see(10_000.0, *fleet("in_use"))
    for turn in range(1, 7):
        player.see(10_000.0 + turn * WINDOW, *fleet("idle"))
        assert player.memory.breaker.is_open
        assert player.acts == []
    player.see(10_000.0 + 7 * WINDOW, *fleet("idle"))  # the sixth analysis after it opened
    assert not player.memory.breaker.is_open
    for turn in range(8, 10):
        player.see(10_000.0 + turn * WINDOW, *fleet("idle"))
    assert player.acts


def test_a_detour_through_unknown_does_not_hide_a_fault_from_the_breaker():
    player = Player(policy=replace(LIVE, breaker_least=5))
    names = [f"w{n}" for n in range(20)]
    for turn, verdict in enumerate(["in_use", "unknown", "unknown", "idle"]):
        player.see(10_000.0 + turn * WINDOW, *(gpu(n, tenant(name, verdict)) for n, name in enumerate(names)))
    assert player.memory.breaker.is_open


def test_a_first_analysis_is_no_history_and_does_not_open_the_breaker():
    player = Player(policy=replace(LIVE, breaker_least=5))
    player.see(10_000.0, *(gpu(n, tenant(f"w{n}", "idle")) for n in range(20)))
    assert not player.memory.breaker.is_open


def test_a_case_that_waits_for_its_budget_is_saved_once():
    """It would be written to the store again with every analysis."""
    player = Player(policy=replace(LIVE, max_per_hour=0))
    player.idle(4)
    assert player.cases["uid-a"].held_by == ("budget_hour",)
    later = player.see(20_000.0, gpu(1, tenant("a", "idle")))
    assert later.moves == ()
