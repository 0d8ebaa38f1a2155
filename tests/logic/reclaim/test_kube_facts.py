"""What annotations say together, what is changed for a workload, and how vetoes of several sources add up."""

from itertools import product

import pytest
from msgspec.structs import replace

from tests.logic.reclaim.test_machine import LIVE, OLD, Player, gpu, tenant
from vgpuscope.logic.reclaim.annotations import consent_of, grace_of, notify_of, queues_of, signals_of
from vgpuscope.logic.reclaim.brakes import WorkloadFacts, joined
from vgpuscope.logic.reclaim.targets import chosen, fought_over, peers, reversible
from vgpuscope.model.allocation import Controller
from vgpuscope.model.kube_object import Autoscaler, KubeObject, KubePod, ReclaimAnnotations
from vgpuscope.model.reclaim import Consent, OpenHours, PodFacts, Signal, Workload

NOW = 1_794_877_200.0  # 2026-11-17 01:00 UTC, a Tuesday
WORKLOAD = Workload(uid="u", namespace="ml", pod="p")


def test_never_wins_everywhere_and_otherwise_the_nearest_does():
    """All combinations of four levels, against the rule in its own words."""
    values: tuple[Consent | None, ...] = (None, "never", "notify", "auto")
    for said in product(values, repeat=4):
        heard = [one for one in said if one]
        expected = "never" if "never" in heard else heard[0] if heard else None
        assert consent_of([ReclaimAnnotations(consent=one) for one in said]) == expected


def test_the_nearest_grace_period_counts_and_zero_is_one():
    assert grace_of([ReclaimAnnotations(), ReclaimAnnotations(grace=0.0), ReclaimAnnotations(grace=60.0)]) == 0.0
    assert grace_of([ReclaimAnnotations(), ReclaimAnnotations()]) is None


def test_the_nearest_level_names_who_is_told():
    assert (
        notify_of([ReclaimAnnotations(), ReclaimAnnotations(notify="alice"), ReclaimAnnotations(notify="team")])
        == "alice"
    )
    assert notify_of([ReclaimAnnotations()]) == ""


def test_queues_of_all_levels():
    assert queues_of(
        [ReclaimAnnotations(queues=("a",)), ReclaimAnnotations(), ReclaimAnnotations(queues=("b", "a"))]
    ) == {"a", "b"}


@pytest.mark.parametrize(("ago", "active"), [(0, True), (3599, True), (3600, False), (-600, True)])
def test_a_notebook_that_was_used_recently_is_in_use(ago, active):
    [signal] = signals_of([ReclaimAnnotations(last_activity=NOW - ago)], now=NOW, recent=3600.0)
    assert (signal.name, signal.active, signal.at) == ("notebook", active, NOW - ago)


def test_what_was_restored_is_left_alone_for_a_while():
    [signal] = signals_of([ReclaimAnnotations(), ReclaimAnnotations(restored=NOW - 60)], now=NOW, recent=3600.0)
    assert (signal.name, signal.active) == ("restored", True)


@pytest.mark.parametrize(
    ("begin", "end", "active"), [(0, 1440, True), (9 * 60, 18 * 60, True), (10 * 60, 18 * 60, False)]
)
def test_a_schedule(begin, end, active):
    hours = OpenHours(days=frozenset({1}), begin=begin, end=end, tz="Asia/Shanghai")  # 09:00 there
    [signal] = signals_of([ReclaimAnnotations(schedule=(hours,))], now=NOW, recent=3600.0)
    assert (signal.name, signal.active) == ("schedule", active)


def owner(kind: str, api_version: str, *, selector: str = "app=x", labels=None, devices: bool = True) -> KubeObject:
    return KubeObject(
        api_version=api_version,
        kind=kind,
        name="x",
        uid=f"uid-{kind}",
        selector=selector,
        labels=labels or {},
        wants_devices=devices and bool(selector),
    )


OWNED = KubePod(name="p", uid="u", controller=Controller("apps/v1", "ReplicaSet", "x", "uid-ReplicaSet"))
RS, DEPLOYMENT = owner("ReplicaSet", "apps/v1"), owner("Deployment", "apps/v1")
CHAINS = [
    ((RS,), "ReplicaSet"),
    ((RS, DEPLOYMENT), "Deployment"),
    ((owner("StatefulSet", "apps/v1"),), "StatefulSet"),
    ((owner("Job", "batch/v1"),), "Job"),
    ((owner("Job", "batch/v1"), owner("CronJob", "batch/v1", selector="")), "Job"),
    ((owner("StatefulSet", "apps/v1"), owner("Notebook", "kubeflow.org/v1", selector="")), "Notebook"),
    ((RS, DEPLOYMENT, owner("InferenceService", "serving.kserve.io/v1beta1", selector="")), "InferenceService"),
    ((owner("Job", "batch/v1", labels={"kueue.x-k8s.io/queue-name": "q"}),), None),
    ((owner("Job", "batch/v1"), owner("JobSet", "jobset.x-k8s.io/v1alpha2")), None),
    ((RS, DEPLOYMENT, owner("Rollout", "argoproj.io/v1alpha1")), None),
    ((RS, owner("Deployment", "apps/v1", devices=False)), None),  # a pod that names an owner which is not its own
    ((owner("DaemonSet", "apps/v1"),), None),
    ((owner("Deployment", "example.com/v1"),), None),
    ((owner("CronJob", "batch/v1"),), None),
    ((owner("Deployment", "apps/v1", selector=""),), None),
    ((), None),
]


@pytest.mark.parametrize(("chain", "kind"), CHAINS)
def test_what_is_changed(chain, kind):
    found = chosen(OWNED, chain, complete=True)
    assert (found.target.kind if found else None) == kind
    assert chosen(OWNED, chain, complete=False) is None, "an owner that was not read may be any"
    if found:
        assert found.selector
        assert reversible(found.target)


def test_a_pod_without_an_owner_is_its_own_target_and_cannot_be_put_back():
    found = chosen(KubePod(name="p", uid="u"), (), complete=True)
    assert found is not None
    assert (found.target.kind, found.target.uid, reversible(found.target)) == ("Pod", "u", False)


def test_the_pods_that_count_are_those_with_a_device_or_seen_on_one():
    pods = [
        KubePod(name="a", uid="a", wants_devices=True),
        KubePod(name="b", uid="b"),
        KubePod(name="c", uid="c"),
        KubePod(name="d", uid="d", wants_devices=True, ends=True),
    ]
    assert peers(pods, {"c"}) == ("a", "c")


def test_only_keda_fights_back():
    found = chosen(OWNED, (RS, DEPLOYMENT), complete=True)
    assert found is not None
    plain = Autoscaler(name="h", kind="Deployment", of="x")
    assert not fought_over(found.target, [plain])
    assert fought_over(found.target, [plain, Autoscaler(name="k", kind="Deployment", of="x", keda=True)])
    assert not fought_over(found.target, [Autoscaler(name="k", kind="StatefulSet", of="x", keda=True)])


def test_vetoes_of_several_sources_add_up():
    busy, unread = Signal(name="vllm", active=True), Signal(name="tgi", active=None)
    kube = WorkloadFacts(pod=PodFacts(read=True, priority_class="high"), signals=(busy,))
    facts = joined(lambda _: WorkloadFacts(), lambda _: kube, lambda _: WorkloadFacts(signals=(unread,), model="veto"))
    known = facts(WORKLOAD)
    assert (known.pod, known.signals, known.model) == (kube.pod, (busy, unread), "veto")
    assert (
        joined(lambda _: WorkloadFacts(model="veto"), lambda _: WorkloadFacts(model="agrees"))(WORKLOAD).model == "veto"
    )
    assert joined()(WORKLOAD) == WorkloadFacts()


READ = WorkloadFacts(pod=PodFacts(read=True, created=0.0))


@pytest.mark.parametrize(
    ("known", "brake"),
    [
        (OLD, "pod_unknown"),
        (WorkloadFacts(pod=READ.pod, signals=(Signal(name="vllm", active=True),)), "activity"),
        (WorkloadFacts(pod=READ.pod, signals=(Signal(name="vllm", active=None),)), "activity_unknown"),
        (WorkloadFacts(pod=PodFacts(read=True, created=0.0, consent="notify")), "annotation_notify"),
        (
            WorkloadFacts(pod=PodFacts(read=True, created=0.0, priority_class="system-node-critical")),
            "protected_priority",
        ),
    ],
)
def test_each_brake_holds_alone(known, brake):
    player = Player(policy=LIVE, known=known, world={"kube": "ok"})
    for number in range(1, 8):
        player.see(number * 600.0, gpu(0, tenant("a", "idle")))
    assert player.acts == []
    assert player.cases["uid-a"].held_by == (brake,)
    assert player.cases["uid-a"].signals == known.signals, "the evidence names the sign"
    player.known = READ
    for number in range(8, 12):
        player.see(number * 600.0, gpu(0, tenant("a", "idle")))
    assert len(player.acts) == 1


def test_an_owner_who_asks_for_a_longer_grace_after_the_notice_gets_it():
    player = Player(policy=replace(LIVE, grace=600.0, confirmations=1), known=READ, world={"kube": "ok"})
    player.see(600.0, gpu(0, tenant("a", "idle")))
    assert player.cases["uid-a"].state == "grace"
    player.known = WorkloadFacts(pod=PodFacts(read=True, created=0.0, idle_grace=7200.0))
    for number in range(2, 13):
        player.see(number * 600.0, gpu(0, tenant("a", "idle")))
        assert player.acts == []
    player.see(13 * 600.0, gpu(0, tenant("a", "idle")))
    assert len(player.acts) == 1


def test_an_owner_who_agreed_waits_for_nothing():
    known = WorkloadFacts(pod=PodFacts(read=True, created=0.0, idle_grace=7200.0))
    player = Player(policy=replace(LIVE, confirmations=1), known=known, world={"kube": "ok"})
    player.see(600.0, gpu(0, tenant("a", "idle")))
    agreed = replace(player.cases["uid-a"], reason="owner_agreed", since=1000.0, next_at=1000.0)
    player.cases["uid-a"] = agreed
    player.see(1200.0, gpu(0, tenant("a", "idle")))
    assert len(player.acts) == 1
