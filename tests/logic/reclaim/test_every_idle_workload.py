"""Every workload with an idle share is a case; a case that does not move names what holds it, with its setting.

The oracle reads the verdicts of the world itself. What a brake means is written here in plain words, once more.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.logic.reclaim.test_machine import LIVE, WINDOW, Player, gpu, tenant
from vgpuscope.logic.reclaim.brakes import WorkloadFacts
from vgpuscope.model.analysis import Evidence, TenantUse
from vgpuscope.model.reclaim import BRAKES, OPEN, STATES, PodFacts, Policy
from vgpuscope.views.reclaim.api import case_row, counted
from vgpuscope.views.reclaim.held_by import counted_brakes

START = 1_790_596_800.0
HELD = "VERDICT_IDLE_MEMORY_HELD"
KINDS = ("idle", "idle", "held", "held", "preparing", "thin", "partly seen", "in_use", "unknown", "absent")


def share(kind: str, name: str, namespace: str, *, uid: bool) -> TenantUse:
    verdict: Any = kind if kind in {"in_use", "unknown"} else "idle"
    classes = {"held": "idle-held", "preparing": "idle-preparing"}
    use = tenant(name, verdict, coverage=0.5 if kind == "thin" else 1.0, use_class=classes.get(kind, ""))
    if kind == "held":
        use = replace(use, evidence=Evidence(coverage=1.0, reasons=(HELD,)))
    made = replace(use.tenant, namespace=namespace, pod_uid=use.tenant.pod_uid if uid else "")
    return replace(use, tenant=made, partly_seen=kind == "partly seen")


PODS = st.lists(
    st.tuples(st.sampled_from(["team", "serving", "kube-system"]), st.booleans(), st.integers(1, 3)),
    min_size=1,
    max_size=6,
)
POLICIES = st.builds(
    lambda dry, held, prep, approval, age, action: replace(
        LIVE,
        dry_run=dry,
        include_held=held,
        include_preparing=prep,
        approval=approval,
        min_pod_age=age,
        action=action,
        protected_namespaces=frozenset({"kube-system"}),
        confirmations=2,
    ),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.0, 1e6]),
    st.sampled_from(["control", "notify"]),
)


@given(PODS, POLICIES, st.data())
@settings(deadline=None, max_examples=150)
def test_every_idle_tenant_is_in_exactly_one_case_which_moves_or_names_what_holds_it(pods, policy, data):
    player = Player(policy=policy, known=WorkloadFacts(pod=PodFacts(created=START - 10.0)))
    for turn in range(data.draw(st.integers(1, 8))):
        rows, idle, number = [], set(), 0
        for at, (namespace, uid, shares) in enumerate(pods):
            for _ in range(shares):
                kind = data.draw(st.sampled_from(KINDS))
                number += 1
                use = share(kind, f"p{at}", namespace, uid=uid)
                rows.append(gpu(number) if kind == "absent" else gpu(number, use))
                if kind != "absent" and use.verdict == "idle":
                    idle.add((namespace, f"p{at}"))
        end = START + turn * WINDOW
        acts = len(player.acts)
        player.see(end, *rows)
        by_pod = [(case.namespace, case.pod) for case in player.cases.values()]
        assert len(by_pod) == len(set(by_pod))
        for pod in idle:
            [case] = [one for one in player.cases.values() if (one.namespace, one.pod) == pod]
            row = case_row(case, policy)
            assert [one.brake for one in row.brakes] == list(row.held_by)
            moves = case.state in {"grace", "acting"} or (case.state == "candidate" and case.confirmations)
            busy = case.state in {"released", "failed"} and case.reason in {"works_again", "not_freed"}
            assert row.held_by or moves or busy, (case.state, case.reason)
        if policy.dry_run:
            assert {case.state for case in player.cases.values()}.isdisjoint({"acting", "verified", "failed"})
        for _, key in player.acts[acts:]:
            assert player.cases[key].namespace != "kube-system"
        cases = list(player.cases.values())
        shown = [case_row(case, policy) for case in cases]
        assert counted_brakes(cases) == {name: sum(name in row.held_by for row in shown) for name in BRAKES}
        assert sum(counted(cases).values()) == len(shown)


WHY = {
    "held": ("holds_memory", "reclaim.include_held", "false"),
    "preparing": ("preparing", "reclaim.include_preparing", "false"),
    "thin": ("low_coverage", "reclaim.min_coverage", "0.95"),
}


@pytest.mark.parametrize("dry", [True, False])
@pytest.mark.parametrize("kind", WHY)
def test_what_the_default_policy_leaves_alone_is_a_case_that_names_the_setting(kind, dry):
    policy = Policy(dry_run=dry)
    player = Player(policy=policy)
    for turn in range(8):
        player.see(START + turn * WINDOW, gpu(1, share(kind, "a", "team", uid=True)))
    [case] = player.cases.values()
    [held] = case_row(case, policy).brakes
    assert (case.state, player.acts, case.confirmations) == ("candidate", [], 0)
    assert (held.brake, held.setting, held.value) == WHY[kind]


@pytest.mark.parametrize(("other", "brake"), [("in_use", "gpu_in_use"), ("unknown", "gpu_unknown")])
def test_an_idle_gpu_of_a_workload_that_is_not_idle_as_a_whole_is_a_case_that_is_never_acted_on(other, brake):
    player = Player()
    for turn in range(8):
        shares = (share("idle", "a", "team", uid=True), share(other, "a", "team", uid=True))
        player.see(START + turn * WINDOW, gpu(1, shares[0]), gpu(2, shares[1]))
    [case] = player.cases.values()
    assert (case.state, case.held_by, player.acts) == ("candidate", (brake,), [])


def test_a_protected_workload_says_so_before_its_windows_are_counted():
    player = Player(policy=replace(LIVE, protected_namespaces=frozenset({"team"})))
    player.idle(1)
    [row] = [case_row(one, player.policy) for one in player.cases.values()]
    [held] = row.brakes
    assert (held.brake, held.setting, held.value) == ("protected_namespace", "reclaim.protected_namespaces", "team")
    assert not row.actionable


def test_a_workload_that_is_left_alone_is_stored_and_counted_once():
    """It would be written to the store, the audit log and the counter again with every analysis."""
    player = Player(policy=Policy())
    for turn in range(8):
        done = player.see(START + turn * WINDOW, gpu(1, share("held", "a", "team", uid=True)))
        assert len(done.moves) == (turn == 0)
    assert player.held_back == ["holds_memory"]


def test_a_workload_whose_memory_is_given_back_counts_from_zero_like_a_new_one():
    """As before, when it had no case: neither the windows nor the age of what was left alone count."""
    player = Player(policy=replace(LIVE, min_pod_age=3.5 * WINDOW), known=WorkloadFacts())
    for turn in range(20):
        player.see(START + turn * WINDOW, gpu(1, share("held", "a", "team", uid=True)))
    for turn in range(20, 24):
        player.see(START + turn * WINDOW, gpu(1, share("idle", "a", "team", uid=True)))
        assert player.acts == []
    player.see(START + 24 * WINDOW, gpu(1, share("idle", "a", "team", uid=True)))
    assert len(player.acts) == 1


def test_what_is_recorded_of_a_case_changes_when_a_setting_begins_or_ends_to_hold_it_and_not_with_each_window():
    player = Player(policy=replace(LIVE, confirmations=9))

    def recorded(kind: str) -> tuple[str, ...]:
        end = player.memory.until or START
        player.see(end + WINDOW, gpu(1, share(kind, "a", "team", uid=True)))
        [case] = player.cases.values()
        return case.recorded

    assert [recorded(kind) for kind in ("held", "held", "idle")] == [("holds_memory",), ("holds_memory",), ()]
    first = recorded("thin")
    assert first == ("low_coverage",)
    assert {recorded(kind) for kind in ("idle", "thin", "idle", "thin", "idle")} == {first}


# ── dry run ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("approval", [True, False])
def test_a_dry_run_ends_in_would_act_and_never_in_a_state_in_which_something_was_done(approval):
    player = Player(policy=replace(LIVE, dry_run=True, approval=approval))
    for turn in range(8):
        player.see(START + turn * WINDOW, gpu(1, tenant("a", "idle")))
        for key, case in player.cases.items():
            if case.state == "awaiting_approval":
                player.cases[key] = replace(case, approved_by="ops", reason="approved")
    [case] = player.cases.values()
    row = case_row(case, player.policy)
    assert (row.state, row.dry_run, row.next_at, row.restorable) == ("would_act", True, None, False)
    assert [(one.brake, one.setting, one.value) for one in row.brakes] == [("dry_run", "control.dry_run", "true")]
    assert case_row(case, replace(player.policy, enabled=False)).brakes[0].setting == "control.enabled"
    player.see(START + 8 * WINDOW, gpu(1))
    assert (player.state(), player.cases["uid-a"].reason) == ("released", "ended")


def test_a_dry_run_that_would_no_longer_act_says_what_holds_it():
    player = Player(policy=replace(LIVE, dry_run=True))
    end = player.idle(5)
    assert player.state() == "would_act"
    player.policy = replace(player.policy, protected_namespaces=frozenset({"team"}))
    player.idle(1, start=end + WINDOW)
    row = case_row(player.cases["uid-a"], player.policy)
    assert (row.state, row.held_by, row.actionable) == ("would_act", ("protected_namespace", "dry_run"), False)


def test_what_could_be_taken_back_are_cases_that_only_wait():
    for state in STATES:
        player = Player()
        player.idle(1)
        [case] = player.cases.values()
        acts = state in OPEN and state != "candidate"
        assert replace(case, state=state).actionable == acts
        assert not replace(case, state=state, held_by=("protected_namespace",)).actionable
        assert replace(case, state=state, held_by=("budget_hour",)).actionable == acts
