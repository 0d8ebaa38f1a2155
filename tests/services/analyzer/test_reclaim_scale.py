"""The machine scales owners and gives back, over random lives, crashes and faults.

The oracle is the cluster of the test: it knows the number that each owner had, who changed it, and what every pod did
when it was last looked at. The machine sees only analyses and what it reads of the cluster.
"""

from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.logic.reclaim.test_machine import analysis, gpu, tenant
from tests.services.analyzer.lives import LIVE, Lease, Life, act, begun, live
from vgpuscope.config import Config
from vgpuscope.logic.reclaim.brakes import WorkloadFacts
from vgpuscope.model.errors import CallFailed, CallRefused, CaseUnfit, HistoryDown, NotLeader, Unknown
from vgpuscope.model.notices import SignedLink
from vgpuscope.model.reclaim import PodFacts, ReclaimTarget
from vgpuscope.services.analyzer.reclaim.calls import ClusterChange
from vgpuscope.services.analyzer.reclaim.dependencies import CallResult, ReclaimDependencies

OWNERS = {"a": "web", "b": "web", "c": "solo"}
SCALE = replace(LIVE, reclaim=replace(LIVE.reclaim, action="scale"))


@dataclass
class Owner:
    """A Deployment: its replicas, and the mark of who took them."""

    replicas: int
    mark: tuple[str, int] | None = None  # key of the call, and the number before
    given_back: str = ""  # key of the restore
    version: int = 1


@dataclass
class Scaled:
    owner: str
    key: str
    before: int
    ended: dict[str, str]  # the pods that ended, and what the last analysis showed of each


@dataclass
class Cluster(Life):
    """Two pods of one owner, one of another; a change ends all pods of an owner."""

    config: Config = SCALE
    owners: dict[str, Owner] = field(default_factory=lambda: {"web": Owner(2), "solo": Owner(1)})
    scaled: list[Scaled] = field(default_factory=list)
    restored: list[tuple[str, int, int]] = field(default_factory=list)
    api: str = "ok"  # ok, down
    ending: bool = False  # pods that were told to end are still on their GPUs
    read: dict[str, WorkloadFacts] = field(default_factory=dict)
    vetoed: set[tuple[str, str]] = field(default_factory=set)  # pods, each with what speaks against acting

    def given(self, lease: Lease) -> ReclaimDependencies:
        return replace(
            super().given(lease),
            send={"scale": self.scale, "restore": self.give_back},
            facts=lambda workload: self.read.get(workload.uid, WorkloadFacts()),
            learn=(self.learn,),
            kube=lambda: "ok" if self.api != "down" else "down",
        )

    def there(self, pod: str) -> bool:
        return self.owners[OWNERS[pod]].replicas > 0

    def pods(self, owner: str) -> list[str]:
        return [pod for pod, name in OWNERS.items() if name == owner and self.there(pod)]

    async def learn(self, workloads, *, fresh, seen):
        del seen
        for workload in workloads:
            if fresh:
                self.read.pop(workload.uid, None)
            if self.api == "ok":
                self.read[workload.uid] = self._facts(workload)

    def _facts(self, workload) -> WorkloadFacts:
        name = OWNERS[workload.pod]
        if not self.there(workload.pod) or self.uid(workload.pod) != workload.uid:
            return WorkloadFacts()
        target = ReclaimTarget(
            api_version="apps/v1",
            kind="Deployment",
            name=name,
            uid=f"uid-{name}",
            version=str(self.owners[name].version),
        )
        peers = tuple(self.uid(pod) for pod in self.pods(name))
        against = {why for pod, why in self.vetoed if pod == workload.pod}
        facts = PodFacts(
            read=True,
            consent="never" if "annotation" in against else None,
            priority_class="system-node-critical" if "priority" in against else "",
            created=0.0,
            target=target,
            peers=peers,
            reversible=True,
        )
        return WorkloadFacts(pod=facts, activity="activity" in against, model="veto" if "model" in against else "off")

    async def analyse(self) -> None:
        """A pod whose owner has no replicas is gone from its GPU."""
        self.now += 1
        gpus = [
            gpu(n, tenant(pod, self.verdicts[pod], uid=self.uid(pod))) if self.ending or self.there(pod) else gpu(n)
            for n, pod in enumerate(OWNERS)
        ]
        self.shown = {self.uid(pod): self.verdicts[pod] for pod in OWNERS if self.ending or self.there(pod)}
        for machine, _ in self.replicas:
            await self.surviving(machine, machine.ticks.follow(analysis(self.now, *gpus)))

    async def scale(self, call, *, now):
        """As the server does it: the version is checked, and a call that left its mark does nothing."""
        del now
        self.fuse.step()
        order = msgspec.json.decode(call.body, type=ClusterChange)
        owner = self.owners[order.target.name]
        known = self.read.get(order.pod_uid, WorkloadFacts()).pod.target
        if self.control == "refuses" or known is None:
            raise CallFailed("503")
        if not (owner.mark and (owner.mark[0] == call.key or owner.replicas == 0)):
            if known.version != str(owner.version):
                raise CallFailed("409")
            ended = {self.uid(pod): self.shown.get(self.uid(pod), "unseen") for pod in self.pods(order.target.name)}
            self.scaled.append(Scaled(order.target.name, call.key, owner.replicas, ended))
            owner.mark, owner.replicas, owner.given_back = (call.key, owner.replicas), 0, ""
            owner.version += 1
        self.fuse.step()
        if self.control == "lost":
            raise CallFailed("timeout")
        return CallResult("{}")

    async def give_back(self, call, *, now):
        del now
        self.fuse.step()
        order = msgspec.json.decode(call.body, type=ClusterChange)
        owner = self.owners[order.target.name]
        if self.control == "refuses":
            raise CallFailed("503")
        if owner.given_back != call.key:
            if owner.mark is None or owner.mark[0] not in {one.key for one in order.earlier} or owner.replicas:
                raise CallRefused("somebody changed it")
            self.restored.append((order.target.name, owner.mark[1], self.scaled[-1].before if self.scaled else 0))
            owner.replicas, owner.mark, owner.given_back = owner.mark[1], None, call.key
            owner.version += 1
            self.reborn(order.target.name)
        self.fuse.step()
        if self.control == "lost":
            raise CallFailed("timeout")
        return CallResult("{}")

    def reborn(self, owner: str) -> None:
        for pod, name in OWNERS.items():
            if name == owner:
                self.births[pod] += 1

    def somebody_scales(self, owner: str) -> None:
        if self.owners[owner].replicas == 0:
            self.owners[owner].replicas = 2 if owner == "web" else 1
            self.owners[owner].version += 1
            self.reborn(owner)


async def step(cluster: Cluster, what: str, of) -> None:
    if what == "api":
        cluster.api = of
    elif what == "ending":
        cluster.ending = of
    elif what == "soon":  # before another analysis is due
        cluster.now += 2
        await cluster.deliver()
    elif what == "somebody":
        cluster.somebody_scales(of)
    elif what == "veto":
        cluster.vetoed ^= {of}
    elif what == "restore":
        await restore(cluster, of)
    elif what == "reborn":
        cluster.births[of] += 1
        cluster.owners[OWNERS[of]].version += 1
    else:
        await act(cluster, what, of)


async def restore(cluster: Cluster, pod: str) -> None:
    for machine, _ in [one for one in cluster.replicas if one[1].leads][:1]:
        ids = [case.id for case in machine.cases.values() if case.pod == pod and case.restorable]
        if ids:
            with suppress(CaseUnfit, Unknown, HistoryDown, NotLeader):
                await cluster.surviving(machine, machine.case_actions.restore(ids[0], "ops"))


AGAINST = ("annotation", "priority", "activity", "model")
DECIDED = [("idle", "a"), ("idle", "b"), ("refuses", ""), *[("window", "")] * 4, ("ok", "")]
ACTIONS = st.one_of(
    st.tuples(st.just("idle"), st.sampled_from("abc")),
    st.tuples(st.just("window"), st.just("")),
    st.tuples(st.just("window"), st.just("")),
    st.tuples(st.just("window"), st.just("")),
    st.tuples(st.sampled_from(["busy", "unknown", "reborn", "exempt", "restore"]), st.sampled_from("abc")),
    st.tuples(st.just("veto"), st.tuples(st.sampled_from("abc"), st.sampled_from(AGAINST))),
    st.tuples(st.just("somebody"), st.sampled_from(["web", "solo"])),
    st.tuples(st.just("api"), st.sampled_from(["ok", "ok", "down"])),
    st.tuples(
        st.sampled_from(["refuses", "ok", "lost", "down", "up", "swap", "both", "stop", "go", "wait", "soon", "soon"]),
        st.just(""),
    ),
    st.tuples(st.just("stop_elsewhere"), st.just("")),
    st.tuples(st.just("ending"), st.booleans()),
    st.tuples(st.just("kill"), st.integers(0, 8)),
)


async def assert_all_can_be_given_back(cluster: Cluster) -> None:
    """Whatever happened to its case: an owner that still has our mark and no replicas can be restored."""
    taken = {name for name, owner in cluster.owners.items() if owner.mark is not None and owner.replicas == 0}
    cluster.fuse.left, cluster.fuse.down, cluster.control, cluster.api = None, False, "ok", "ok"
    for _, lease in cluster.replicas:
        lease.leads = False
    cluster.replicas = [cluster.start(leads=True)]
    await cluster.analyse()
    machine = cluster.replicas[0][0]
    for name in taken:
        keys = cluster.owners[name].mark
        assert keys is not None
        case = machine.cases[keys[0].removesuffix("/scale")]
        assert case.restorable, f"{case.state} {case.reason}"
        await machine.case_actions.restore(case.id, "ops")
        assert cluster.owners[name].replicas > 0


@given(st.lists(ACTIONS, min_size=10, max_size=45))
@example([*DECIDED, ("veto", ("b", "annotation")), ("soon", "")])
@example([*DECIDED, ("veto", ("b", "priority")), ("window", "")])
@example([*DECIDED, ("veto", ("b", "activity")), ("window", "")])
@example([*DECIDED, ("veto", ("b", "model")), ("window", "")])
@settings(deadline=None, max_examples=60)
def test_no_history_crash_or_fault_ends_a_pod_that_must_not_end(actions):
    async def story(cluster: Cluster) -> None:
        for what, of in actions:
            before = len(cluster.scaled)
            forbidden, stopped, api = set(cluster.forbidden), cluster.stopped, cluster.api
            vetoed = {cluster.uid(pod) for pod, _ in cluster.vetoed}
            await step(cluster, what, of)
            for one in cluster.scaled[before:]:
                assert set(one.ended.values()) == {"idle"}, "ended a pod that was not shown idle"
                assert not one.ended.keys() & forbidden, "ended a pod that somebody excluded"
                assert not one.ended.keys() & vetoed, "ended a pod although something speaks against it"
                assert not stopped, "acted while stopped"
                assert api == "ok", "acted without the Kubernetes API"
                assert one.before > 0, "took what was not there"
        for owner, number, before in cluster.restored:
            assert number == {"web": 2, "solo": 1}[owner], (owner, number, before)
        keys = [one.key for one in cluster.scaled]
        assert len(keys) == len(set(keys)), "one incarnation, two effects"
        await assert_all_can_be_given_back(cluster)

    live(Cluster, story)


@pytest.fixture
async def cluster(tmp_path):
    async with begun(Cluster, tmp_path / "store.db") as one:
        yield one


async def idle(cluster: Cluster, pods: str, windows: int = 4) -> None:
    for pod in pods:
        cluster.verdicts[pod] = "idle"
    for _ in range(windows):
        await cluster.window()


async def test_an_owner_is_scaled_once_for_all_its_pods(cluster):
    await idle(cluster, "ab", windows=8)
    assert [(one.owner, one.before) for one in cluster.scaled] == [("web", 2)]
    machine = cluster.replicas[0][0]
    assert {case.state for case in machine.cases.values()} == {"verified"}


async def test_one_busy_pod_keeps_its_owner(cluster):
    await idle(cluster, "a", windows=8)
    assert cluster.scaled == []
    assert cluster.replicas[0][0].cases["uid-a-0"].held_by == ("owner_in_use",)


async def test_a_group_that_exceeds_a_budget_is_left_whole(cluster):
    cluster.config = replace(SCALE, reclaim=replace(SCALE.reclaim, max_per_hour=1))
    await idle(cluster, "abc", windows=6)
    assert [one.owner for one in cluster.scaled] == ["solo"]
    assert cluster.owners["web"].replicas == 2


async def test_a_restore_gives_back_all_cases_of_the_owner(cluster):
    await idle(cluster, "ab", windows=6)
    machine = cluster.replicas[0][0]
    assert (await machine.case_actions.restore("uid-b-0", "ops")).state == "restored"
    assert (cluster.owners["web"].replicas, machine.cases["uid-a-0"].state) == (2, "restored")
    entries = [one for one in (await machine.audit()).entries if one.what == "restore_asked"]
    assert [one.actor for one in entries] == ["ops"]


async def test_a_restore_works_while_the_machine_is_stopped(cluster):
    await idle(cluster, "c", windows=6)
    machine = cluster.replicas[0][0]
    await machine.case_actions.stop("ops")
    assert (await machine.case_actions.restore("uid-c-0", "ops")).state == "restored"
    assert cluster.owners["solo"].replicas == 1


async def test_a_restore_is_tried_again_until_the_cluster_answers(cluster):
    await idle(cluster, "c", windows=6)
    machine = cluster.replicas[0][0]
    cluster.control = "lost"
    asked = await machine.case_actions.restore("uid-c-0", "ops")
    assert (asked.state, asked.reason) == ("verified", "restoring")
    cluster.control = "ok"
    for _ in range(2):
        await cluster.window()
    assert machine.cases["uid-c-0"].state == "restored"
    assert len(cluster.restored) == 1


async def test_a_restore_that_is_refused_can_be_asked_for_again(cluster):
    await idle(cluster, "c", windows=6)
    machine = cluster.replicas[0][0]
    cluster.owners["solo"].replicas = 7
    for _ in range(2):
        with pytest.raises(CaseUnfit, match="somebody changed it"):
            await machine.case_actions.restore("uid-c-0", "ops")
    assert machine.cases["uid-c-0"].state == "verified"
    cluster.owners["solo"].replicas = 0
    assert (await machine.case_actions.restore("uid-c-0", "ops")).state == "restored"


async def test_what_was_not_taken_cannot_be_restored(cluster):
    """Neither before a decision, nor after it and before the first attempt, nor after an attempt without effect."""
    machine = cluster.replicas[0][0]
    await idle(cluster, "c", windows=1)
    with pytest.raises(CaseUnfit):
        await machine.case_actions.restore("uid-c-0", "ops")
    cluster.control = "refuses"
    while machine.cases["uid-c-0"].state != "acting":
        cluster.now += 600
        await cluster.analyse()
    with pytest.raises(CaseUnfit, match="not changed yet"):
        await machine.case_actions.restore("uid-c-0", "ops")
    assert machine.cases["uid-c-0"].state == "acting"
    await cluster.deliver()
    cluster.control = "ok"
    with pytest.raises(CaseUnfit):
        await machine.case_actions.restore("uid-c-0", "ops")
    assert machine.cases["uid-c-0"].reason == "restore_refused"
    assert cluster.owners["solo"].replicas == 1


async def decided(cluster: Cluster, pods: str) -> None:
    """The call waits, because the cluster refused the first attempt."""
    cluster.control = "refuses"
    await idle(cluster, pods)
    assert {cluster.replicas[0][0].cases[cluster.uid(pod)].state for pod in pods} == {"acting"}
    cluster.control = "ok"


async def test_a_pod_that_is_new_since_the_last_analysis_keeps_its_owner(cluster):
    await decided(cluster, "ab")
    await step(cluster, "reborn", "b")
    await step(cluster, "soon", "")
    assert cluster.scaled == []


async def test_an_annotation_that_is_new_since_the_last_analysis_is_seen(cluster):
    await decided(cluster, "c")
    await step(cluster, "veto", ("c", "annotation"))
    await step(cluster, "soon", "")
    assert cluster.scaled == []


async def test_a_pod_that_works_again_releases_the_others_of_its_owner(cluster):
    await decided(cluster, "ab")
    cluster.verdicts["b"] = "in_use"
    await cluster.window()
    case = cluster.replicas[0][0].cases["uid-a-0"]
    assert (case.state, case.reason) == ("released", "owner_in_use")
    assert cluster.scaled == []


async def test_an_idle_pod_that_somebody_excluded_keeps_its_owner(cluster):
    await idle(cluster, "b", windows=1)
    machine = cluster.replicas[0][0]
    await machine.case_actions.exempt("uid-b-0", "ops")
    await idle(cluster, "ab", windows=6)
    assert cluster.scaled == []
    assert (machine.cases["uid-a-0"].state, machine.cases["uid-a-0"].held_by) == ("grace", ("owner_in_use",))


async def test_nobody_is_asked_to_approve_what_would_not_happen(cluster):
    cluster.config = replace(SCALE, reclaim=replace(SCALE.reclaim, approval=True))
    await idle(cluster, "a", windows=6)
    assert cluster.replicas[0][0].cases["uid-a-0"].state == "grace"


async def test_a_crash_after_any_step_scales_once_and_gives_back_what_was_there(tmp_path):
    for steps in range(45):
        async with begun(Cluster, tmp_path / f"{steps}.db") as cluster:
            cluster.fuse.left = steps
            await idle(cluster, "ab", windows=10)
            assert [(one.owner, one.before) for one in cluster.scaled] == [("web", 2)], steps
            cluster.fuse.left = steps % 9
            await restore(cluster, "a")
            await cluster.window()
            await restore(cluster, "a")
            await cluster.window()
            assert cluster.owners["web"].replicas == 2, steps
            assert len(cluster.restored) == 1, steps


async def test_without_the_kubernetes_api_nobody_acts(cluster):
    cluster.api = "down"
    await idle(cluster, "abc", windows=6)
    assert cluster.scaled == []
    assert "kube_unreachable" in cluster.replicas[0][0].cases["uid-c-0"].held_by


async def test_a_dry_run_scales_nothing_and_says_what(cluster):
    cluster.config = replace(SCALE, control=replace(SCALE.control, dry_run=True))
    await idle(cluster, "ab", windows=6)
    assert cluster.scaled == []
    machine = cluster.replicas[0][0]
    assert machine.counts.actions == {("scale", "dry_run"): 2}
    assert str(machine.cases["uid-a-0"].target) == "Deployment/web"


async def test_a_slow_control_service_does_not_keep_the_cluster_from_being_changed(cluster):
    """control.timeout is that of the control service; changes of the cluster have a time of their own."""
    cluster.config = replace(SCALE, control=replace(SCALE.control, timeout=600.0))
    await idle(cluster, "c", windows=6)
    machine = cluster.replicas[0][0]
    assert (cluster.owners["solo"].replicas, machine.cases["uid-c-0"].state) == (0, "verified")
    assert (await machine.case_actions.restore("uid-c-0", "ops")).state == "restored"


async def taken(cluster: Cluster) -> None:
    """The owner has no replicas, and its pod has not ended yet."""
    cluster.ending = True
    await idle(cluster, "c", windows=3)
    assert (cluster.owners["solo"].replicas, cluster.replicas[0][0].cases["uid-c-0"].state) == (0, "acting")


async def restored(cluster: Cluster) -> None:
    machine = cluster.replicas[0][0]
    assert machine.cases["uid-c-0"].restorable
    case = await machine.case_actions.restore("uid-c-0", "ops")
    assert (case.state, case.restorable, cluster.owners["solo"].replicas) == ("restored", False, 1)


@pytest.mark.parametrize("answer", ["ok", "lost"])
async def test_what_was_taken_can_be_restored_if_the_pod_writes_a_checkpoint_before_it_ends(cluster, answer):
    cluster.control = answer
    await taken(cluster)
    cluster.verdicts["c"] = "in_use"
    await cluster.analyse()
    cluster.control = "ok"
    case = cluster.replicas[0][0].cases["uid-c-0"]
    assert (case.state, case.reason) == ("released", "works_again")
    await restored(cluster)


@pytest.mark.parametrize("decided", ["exempt", "snooze"])
async def test_what_was_taken_can_be_restored_if_its_answer_was_lost_and_somebody_decided_otherwise(cluster, decided):
    cluster.control = "lost"
    await taken(cluster)
    cluster.control = "ok"
    case_actions = cluster.replicas[0][0].case_actions
    if decided == "exempt":
        await case_actions.exempt("uid-c-0", "ops")
    else:
        await case_actions.snooze("uid-c-0", "ops", 3600.0)
    await cluster.analyse()
    await restored(cluster)


async def test_nobody_is_told_that_gpus_are_kept_which_were_taken(cluster):
    await taken(cluster)
    case_actions = cluster.replicas[0][0].case_actions
    links = [SignedLink(case_id="uid-c-0", action=one, expires=10**10, nonce=one * 4) for one in ("keep", "snooze")]
    for link in links:
        with pytest.raises(CaseUnfit, match="already taken"):
            await case_actions.answer(link, seconds=3600.0)
    with pytest.raises(CaseUnfit, match="already taken"):
        await case_actions.exempt("uid-c-0", "ops")
    with pytest.raises(CaseUnfit, match="already taken"):
        await case_actions.snooze("uid-c-0", "ops", 3600.0)
    await restored(cluster)


async def test_until_a_change_is_made_its_owner_can_keep_the_gpus(cluster):
    await decided(cluster, "c")
    link = SignedLink(case_id="uid-c-0", action="keep", expires=10**10, nonce="n" * 12)
    assert (await cluster.replicas[0][0].case_actions.answer(link)).state == "exempt"
    for _ in range(3):
        await cluster.window()
    assert cluster.scaled == []


async def test_a_crash_between_a_change_and_its_record_does_not_lose_what_can_be_restored(tmp_path):
    for steps in range(12):
        async with begun(Cluster, tmp_path / f"{steps}.db") as cluster:
            cluster.ending = True
            cluster.verdicts["c"] = "idle"
            for _ in range(3):
                cluster.now += 600.0
                await cluster.analyse()
            cluster.fuse.left = steps
            await cluster.deliver()
            cluster.fuse.left = None
            cluster.verdicts["c"] = "in_use"
            await cluster.analyse()
            if cluster.owners["solo"].replicas == 0:
                await restored(cluster)


async def test_a_refused_restore_does_not_change_what_a_person_decided(cluster):
    cluster.control = "lost"
    await taken(cluster)
    cluster.control = "ok"
    machine = cluster.replicas[0][0]
    await machine.case_actions.exempt("uid-c-0", "ops")
    cluster.owners["solo"].mark = None
    with pytest.raises(CaseUnfit):
        await machine.case_actions.restore("uid-c-0", "ops")
    case = machine.cases["uid-c-0"]
    assert (case.state, case.reason, case.restorable) == ("exempt", "exempted", True)
