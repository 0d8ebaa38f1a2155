"""Each brake by its row in docs/reclaim.md, whatever the others say.

The oracle states every row in plain words, for one case, without what the product prepares once for all cases.
"""

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.logic.reclaim.brakes import EARLY, LATE, Brakes, TickFacts, WorkloadFacts
from vgpuscope.model.opinion import Stance
from vgpuscope.model.reclaim import Action, Case, Consent, OpenHours, PodFacts, Policy, ReclaimTarget, Share, Signal

MONDAY_NOON = 1_790_596_800.0  # 2026-09-28 12:00 UTC
HOUR = 3600.0
MORNING = OpenHours(days=frozenset({0}), begin=8 * 60, end=11 * 60, tz="UTC")
WHOLE_DAY = OpenHours(days=frozenset({0}), begin=0, end=24 * 60, tz="UTC")
OWNER = ReclaimTarget(api_version="apps/v1", kind="Deployment", name="web", uid="owner-uid")

bools = st.booleans()
policies = st.builds(
    Policy,
    action=st.sampled_from(get_args(Action)),
    evidence_jobs=st.just(("*dcgm*", "vgpuscope*")),
    protected_namespaces=st.sets(st.sampled_from(["team", "kube-system"])).map(frozenset),
    protected_priorities=st.sets(st.sampled_from(["gold", "silver"])).map(frozenset),
    min_pod_age=st.sampled_from([0.0, HOUR, 48 * HOUR]),
    working_hours=st.sampled_from([(), (MORNING,), (WHOLE_DAY,), (MORNING, WHOLE_DAY)]),
)
worlds = st.builds(
    TickFacts,
    now=st.just(MONDAY_NOON),
    leads=bools,
    stored=bools,
    history=bools,
    kube=st.sampled_from(["none", "ok", "down"]),
    stop=bools,
    breaker=bools,
)
pods = st.builds(
    PodFacts,
    read=bools,
    consent=st.sampled_from([None, *get_args(Consent)]),
    priority_class=st.sampled_from(["", "gold", "bronze"]),
    created=st.sampled_from([None, MONDAY_NOON - 2 * HOUR, MONDAY_NOON - 72 * HOUR]),
    target=st.sampled_from([None, OWNER]),
)
signals = st.builds(Signal, name=st.just("vllm"), active=st.sampled_from([True, False, None]))
knowns = st.builds(
    WorkloadFacts,
    pod=pods,
    activity=bools,
    signals=st.lists(signals, max_size=2).map(tuple),
    model=st.sampled_from(get_args(Stance)),
)
shares = st.builds(
    Share,
    gpu_id=st.just("GPU-1"),
    jobs=st.sampled_from([(), ("dcgm-exporter",), ("tenants-page",), ("dcgm-exporter", "tenants-page"), ("",)]),
)
cases = st.builds(
    Case,
    id=st.just("a"),
    uid=st.sampled_from(["", "a"]),
    namespace=st.sampled_from(["team", "other"]),
    pod=st.just("notebook"),
    since=st.just(0.0),
    shares=st.lists(shares, max_size=2).map(tuple),
    first_idle=st.sampled_from([MONDAY_NOON - HOUR / 2, MONDAY_NOON - 72 * HOUR]),
)


def by_the_handbook(case: Case, known: WorkloadFacts, policy: Policy, world: TickFacts) -> set[str]:
    """The brakes that hold the case back."""
    started = known.pod.created if known.pod.created is not None else case.first_idle
    outside_hours = policy.working_hours == (MORNING,)  # the only hours without Monday noon
    holds = {
        "protected_namespace": case.namespace in policy.protected_namespaces,
        "protected_priority": known.pod.priority_class in policy.protected_priorities,
        "job_untrusted": any(set(one.jobs) & {"tenants-page", ""} for one in case.shares),
        "pod_age": world.now - started < policy.min_pod_age,
        "model_veto": known.model == "veto",
        "model_waiting": known.model == "waiting",
        "stop": world.stop,
        "breaker": world.breaker,
        "working_hours": outside_hours,
        "no_history": not world.history,
        "store_down": world.history and not world.stored,
        "not_leader": world.history and not world.leads,
        "no_uid": case.uid == "",
        "annotation_never": known.pod.consent == "never",
        "annotation_notify": known.pod.consent == "notify",
        "activity": known.activity or True in [one.active for one in known.signals],
        "activity_unknown": None in [one.active for one in known.signals],
        "holder_unknown": world.kube == "none" and policy.action in {"control", "scale"},
        "kube_unreachable": world.kube == "down",
        "pod_unknown": world.kube == "ok" and not known.pod.read,
        "no_action": policy.action == "scale" and known.pod.target is None,
        "notify_only": policy.action == "notify",
    }
    assert set(holds) == {row.brake for row in EARLY + LATE}
    return {brake for brake, applies in holds.items() if applies}


@given(policies, worlds, st.lists(st.tuples(cases, knowns), min_size=1, max_size=8))
def test_a_brake_holds_just_the_cases_that_its_row_names(policy, world, fleet):
    """One tick has many cases: what one of them is asked must not change what holds another one."""
    brakes = Brakes(policy, world)
    for case, known in fleet:
        held = brakes.early(case, known) + brakes.late(case, known)
        assert len(held) == len(set(held))
        assert set(held) == by_the_handbook(case, known, policy, world)
