"""GPUs are freed and given back in a real cluster, with no other rights than those that the chart grants.

The judges are the API server and the controllers of Kubernetes: pods end because a Deployment has no replicas, and come
back because it has some again.
"""

import asyncio
import time
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tests.chart.audit import granted, requests, used
from tests.chart.cluster import Cluster, Object
from tests.chart.reclaiming import NODE, SCALE, Hand, Workloads, hand, mark, prepared, reference
from tests.controlplane import until
from tests.http.serving import until as waited
from tests.services.analyzer.analyzing import IDLE, TOKEN, StubSource, reading, running, track
from tests.services.analyzer.controlling import BEARER, EAGER, analysed
from vgpuscope.model.analysis import Tenant
from vgpuscope.model.errors import CallFailed, CaseUnfit
from vgpuscope.model.reclaim import Call, Workload
from vgpuscope.services.analyzer.reclaim.calls import ClusterChange
from vgpuscope.sinks.kube.reclaimer import ChangeReason
from vgpuscope.store.engine.engine import open_engine

pytestmark = pytest.mark.real
RELEASE, HOME = "vgpuscope", "reclaim-home"
ACCOUNT = f"{RELEASE}-analyzer"


@pytest.fixture(scope="module")
def installed(cluster: Cluster):
    prepared(cluster)
    objects = cluster.install(RELEASE, HOME, SCALE)
    with cluster.running():
        yield objects


@pytest.fixture
def workloads(cluster: Cluster, installed, request):
    name = f"t{abs(hash(request.node.name)) % 10**8}"
    made = Workloads(cluster, name)
    yield made
    for plural in ("apps/v1/deployments", "apps/v1/statefulsets", "apps/v1/replicasets", "batch/v1/jobs", "v1/pods"):
        version, _, kind = plural.rpartition("/")
        root = "apis" if "/" in version else "api"
        cluster.call(
            "DELETE", f"/{root}/{version}/namespaces/{name}/{kind}", params={"propagationPolicy": "Background"}
        )


@pytest.fixture
async def taker(cluster: Cluster, workloads: Workloads, tmp_path: Path):
    engine = open_engine(str(tmp_path / "store.db"))
    assert engine is not None
    async with hand(workloads, cluster.kubeconfig(ACCOUNT, HOME), engine, now=time.time()) as one:
        yield one
    await engine.close()


async def gone(taker: Hand) -> None:
    """All pods have ended, and an analysis has seen it."""
    await asyncio.to_thread(taker.workloads.until_pods, 0)
    await asyncio.to_thread(until, lambda: not taker.workloads.cluster.all("v1/pods", taker.workloads.namespace))
    await taker.window()


async def test_a_deployment_is_scaled_to_zero_and_back(taker: Hand, workloads: Workloads):
    web = workloads.deployment("web", replicas=2)
    workloads.until_pods(2)
    await taker.delivered()
    now = workloads.now(web)
    assert now["spec"]["replicas"] == 0
    assert mark(now)["before"] == {"spec replicas": 2}
    await gone(taker)
    assert {case.state for case in taker.machine.cases.values()} == {"verified"}
    assert {event["reason"] for event in workloads.events()} == {"GpuReclaimed"}
    assert {event["regarding"]["name"] for event in workloads.events()} == {"web"}

    case = taker.case()
    assert (await taker.machine.case_actions.restore(case.id, "ops")).state == "restored"
    now = workloads.now(web)
    assert (now["spec"]["replicas"], mark(now)) == (2, None)
    assert {case.state for case in taker.machine.cases.values()} == {"restored"}
    workloads.until_pods(2)
    assert {event["reason"] for event in workloads.events()} == {"GpuReclaimed", "GpuRestored"}


async def test_an_owner_of_a_kind_that_is_not_to_be_changed_is_held_back_before_any_call(
    taker: Hand, workloads: Workloads
):
    """The chart gives no right to change it, so a call would be refused: the case says so before."""
    web = workloads.deployment("web")
    workloads.until_pods(1)
    taker.config = replace(taker.config, kube=replace(taker.config.kube, kinds=("Job", "Pod")))
    await taker.delivered()
    assert (workloads.now(web)["spec"]["replicas"], await taker.calls()) == (1, [])
    assert taker.case().held_by == ("no_action",)


async def test_two_calls_for_one_owner_keep_the_number_that_was_there_first(taker: Hand, workloads: Workloads):
    web = workloads.deployment("web", replicas=2)
    workloads.until_pods(2)
    await taker.decided()
    [first, second] = await taker.calls()
    target, _ = await taker.stopped(_why(first))
    for call in (second, first):
        await taker.kube._reclaimer().stop(target, _why(call), now=taker.now)
    assert mark(workloads.now(web))["before"] == {"spec replicas": 2}
    assert mark(workloads.now(web))["key"] == first.key
    assert len(workloads.events()) == 2, "one for each call"


async def test_a_call_that_is_repeated_after_a_crash_changes_nothing(taker: Hand, workloads: Workloads):
    """The process dies after the change and before it is recorded; meanwhile somebody scales up again."""
    web = workloads.deployment("web")
    workloads.until_pods(1)
    await taker.decided()
    [call] = await taker.calls()
    known, first = await taker.stopped(_why(call))
    workloads.patch(web, {"spec": {"replicas": 3}})
    again = await taker.kube._reclaimer().stop(known, _why(call), now=taker.now + 1)
    assert again == first
    assert workloads.now(web)["spec"]["replicas"] == 3
    assert len(workloads.events()) == 1


async def test_what_somebody_changed_since_is_not_put_back(taker: Hand, workloads: Workloads):
    web = workloads.deployment("web")
    workloads.until_pods(1)
    await taker.delivered()
    await gone(taker)
    workloads.patch(web, {"spec": {"replicas": 5}})
    with pytest.raises(CaseUnfit, match="replicas 5"):
        await taker.machine.case_actions.restore(taker.case().id, "ops")
    assert workloads.now(web)["spec"]["replicas"] == 5
    workloads.patch(web, {"spec": {"replicas": 0}, "metadata": {"annotations": {"vgpuscope.io/reclaimed": None}}})
    with pytest.raises(CaseUnfit, match="no mark"):
        await taker.machine.case_actions.restore(taker.case().id, "ops")
    assert workloads.now(web)["spec"]["replicas"] == 0


async def test_an_owner_with_one_busy_pod_keeps_all_of_them(taker: Hand, workloads: Workloads):
    web = workloads.deployment("web", replicas=3)
    names = [pod["metadata"]["name"] for pod in workloads.until_pods(3)]
    taker.busy = {names[0]}
    await taker.delivered()
    assert workloads.now(web)["spec"]["replicas"] == 3
    assert all(taker.case(name).held_by == ("owner_in_use",) for name in names[1:])


async def test_a_pod_that_works_again_before_the_call_keeps_the_others(taker: Hand, workloads: Workloads):
    web = workloads.deployment("web", replicas=2)
    names = [pod["metadata"]["name"] for pod in workloads.until_pods(2)]
    await taker.decided()
    taker.busy = {names[0]}
    taker.now += 61  # the call looks again
    await taker.machine.deliveries.due()
    assert workloads.now(web)["spec"]["replicas"] == 2
    assert {taker.case(name).state for name in names} == {"released"}


async def test_a_new_pod_of_the_owner_holds_the_call_back(taker: Hand, workloads: Workloads):
    """Somebody scales up between the decision and the call: the new pod proves nothing yet."""
    web = workloads.deployment("web")
    workloads.until_pods(1)
    await taker.decided()
    workloads.patch(web, {"spec": {"replicas": 2}})
    workloads.until_pods(2)
    await taker.machine.deliveries.due()
    assert workloads.now(web)["spec"]["replicas"] == 2


async def test_a_change_after_the_look_makes_the_server_refuse(taker: Hand, workloads: Workloads):
    """The version of the owner is older than the list of its pods, so nothing slips in between."""
    notebook = workloads.make("Notebook", "alice", {}, api_version="kubeflow.org/v1")  # no controller touches it here
    workloads.stateful("alice", by=notebook)
    workloads.until_pods(1)
    await taker.decided()
    [call] = await taker.calls()
    await taker.kube.learn([taker.case().workload], fresh=True, seen=())
    workloads.patch(notebook, {"metadata": {"annotations": {"somebody": "was here"}}})
    with pytest.raises(CallFailed, match="409"):
        await taker.kube.scale(call, now=taker.now)
    assert "kubeflow-resource-stopped" not in workloads.now(notebook)["metadata"]["annotations"]


async def test_a_stateful_set(taker: Hand, workloads: Workloads):
    db = workloads.stateful("db", replicas=2)
    workloads.until_pods(2)
    await taker.delivered()
    assert workloads.now(db)["spec"]["replicas"] == 0
    await gone(taker)
    await taker.machine.case_actions.restore(taker.case().id, "ops")
    assert workloads.now(db)["spec"]["replicas"] == 2


async def test_a_replica_set_without_a_deployment(taker: Hand, workloads: Workloads):
    labels = {"app": "rs"}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": workloads.template(labels)}
    rs = workloads.make("ReplicaSet", "rs", spec)
    workloads.until_pods(1)
    await taker.delivered()
    assert workloads.now(rs)["spec"]["replicas"] == 0
    await gone(taker)
    await taker.machine.case_actions.restore(taker.case().id, "ops")
    assert workloads.now(rs)["spec"]["replicas"] == 1


async def test_a_job_is_suspended_and_resumed(taker: Hand, workloads: Workloads):
    job = workloads.job("train", parallelism=2)
    workloads.until_pods(2)
    await taker.delivered()
    assert workloads.now(job)["spec"]["suspend"] is True
    await gone(taker)
    await taker.machine.case_actions.restore(taker.case().id, "ops")
    assert workloads.now(job)["spec"]["suspend"] is False
    workloads.until_pods(2)


async def test_a_notebook_is_stopped_by_its_annotation(taker: Hand, workloads: Workloads):
    """The notebook's own controller is not here; only the annotation that it obeys is looked at."""
    notebook = workloads.make("Notebook", "alice", {}, api_version="kubeflow.org/v1")
    workloads.stateful("alice", by=notebook)
    workloads.until_pods(1)
    await taker.delivered()
    assert "kubeflow-resource-stopped" in workloads.now(notebook)["metadata"]["annotations"]
    assert mark(workloads.now(notebook))["before"] == {"metadata annotations kubeflow-resource-stopped": None}
    await taker.machine.case_actions.restore(taker.case().id, "ops")
    assert "kubeflow-resource-stopped" not in workloads.now(notebook)["metadata"]["annotations"]


async def test_an_inference_service(taker: Hand, workloads: Workloads):
    spec = {"predictor": {"minReplicas": 1, "model": {"modelFormat": {"name": "vllm"}}}}
    service = workloads.make("InferenceService", "llama", spec, api_version="serving.kserve.io/v1beta1")
    deployment = workloads.deployment("llama-predictor", by=service)
    workloads.until_pods(1)
    await taker.delivered()
    now = workloads.now(service)
    assert now["spec"]["predictor"] == spec["predictor"] | {"minReplicas": 0}
    assert now["metadata"]["annotations"]["serving.kserve.io/stop"] == "true"
    assert workloads.now(deployment)["spec"]["replicas"] == 1, "its own controller scales it"
    await taker.machine.case_actions.restore(taker.case().id, "ops")
    now = workloads.now(service)
    assert now["spec"] == spec
    assert "serving.kserve.io/stop" not in now["metadata"]["annotations"]


async def test_a_pod_without_an_owner_is_evicted_and_cannot_be_put_back(taker: Hand, workloads: Workloads):
    workloads.pod("alone")
    workloads.until_pods(1)
    await taker.delivered()
    await gone(taker)
    assert taker.case().state == "verified"
    assert [event["reason"] for event in workloads.events()] == ["GpuReclaimed"]
    with pytest.raises(CaseUnfit, match="nothing can be restored"):
        await taker.machine.case_actions.restore(taker.case().id, "ops")


async def test_a_disruption_budget_holds_an_eviction_back_until_it_allows_it(taker: Hand, workloads: Workloads):
    workloads.pod("alone")
    workloads.until_pods(1)
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "alone"}}}
    budget = workloads.make("PodDisruptionBudget", "keep", spec, api_version="policy/v1")
    # a pod that does not run yet is evicted in any case
    until(lambda: workloads.now(budget).get("status", {}).get("currentHealthy") == 1)
    await taker.delivered()
    [call] = await taker.calls()
    assert (call.status, call.attempts) == ("waiting", 1)
    assert "429" in call.error
    assert len(workloads.pods()) == 1
    path = f"{workloads.cluster.path(budget)}/keep"
    workloads.cluster.call("DELETE", path)
    taker.now += 2
    await taker.machine.deliveries.due()
    [call] = await taker.calls()
    assert call.status == "delivered"
    await gone(taker)


async def test_a_pod_of_the_same_name_is_another_one(taker: Hand, workloads: Workloads):
    workloads.pod("alone")
    workloads.until_pods(1)
    await taker.decided()
    [call] = await taker.calls()
    path = f"/api/v1/namespaces/{workloads.namespace}/pods/alone"
    target = taker.case().target
    assert target is not None
    workloads.cluster.call("DELETE", path, params={"gracePeriodSeconds": "0"})
    until(lambda: not workloads.pods())
    new = workloads.pod("alone")
    await taker.machine.deliveries.due()
    assert not taker.kube.known(taker.case().workload).pod.read
    assert workloads.now(new)["metadata"]["uid"] == new["metadata"]["uid"]
    with pytest.raises(CallFailed, match="another pod"):  # and if it had been asked, the server would have refused it
        await taker.kube._reclaimer().stop(target, _why(call), now=taker.now)
    assert "deletionTimestamp" not in workloads.now(new)["metadata"]


async def test_a_missing_right_fails_visibly_and_says_what_to_do(taker: Hand, workloads: Workloads, cluster: Cluster):
    """The account of a dry run may read, and nothing else."""
    home = "reclaim-dry"
    if not cluster.get({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": home}}):
        cluster.install(RELEASE, home, {"config": {"reclaim": {"action": "scale"}}})
    web = workloads.deployment("web")
    workloads.until_pods(1)
    analyzer = replace(taker.config.analyzer, kubeconfig=cluster.kubeconfig(ACCOUNT, home))
    taker.config = replace(taker.config, analyzer=analyzer)
    taker.restart()
    await taker.delivered()
    [call] = await taker.calls()
    assert (call.status, taker.case().state, taker.case().reason) == ("failed", "failed", "call_refused")
    assert "403" in call.error
    assert "config.reclaim.action" in call.error
    assert workloads.now(web)["spec"]["replicas"] == 1


@pytest.mark.parametrize("level", ["pod", "owner", "namespace"])
async def test_never_counts_at_every_level(taker: Hand, workloads: Workloads, level: str):
    web = workloads.deployment("web")
    [pod] = workloads.until_pods(1)
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": workloads.namespace}}
    objects = {"pod": pod | {"apiVersion": "v1", "kind": "Pod"}, "owner": web, "namespace": space}
    for name, item in objects.items():
        said = "never" if name == level else "auto"
        workloads.patch(item, {"metadata": {"annotations": {"vgpuscope.io/reclaim": said}}})
    await taker.delivered()
    assert (taker.case().state, taker.case().reason) == ("exempt", "annotation")
    assert workloads.now(web)["spec"]["replicas"] == 1
    workloads.patch(objects[level], {"metadata": {"annotations": {"vgpuscope.io/reclaim": "auto"}}})
    await taker.delivered()
    assert workloads.now(web)["spec"]["replicas"] == 0


async def test_an_owner_that_nobody_knows_is_left_alone(taker: Hand, workloads: Workloads):
    ray = workloads.make("RayCluster", "ray", {}, api_version="ray.io/v1")
    web = workloads.deployment("head", by=ray)
    workloads.until_pods(1)
    await taker.delivered()
    assert taker.case().held_by == ("no_action",)
    assert workloads.now(web)["spec"]["replicas"] == 1


async def test_a_pod_cannot_stop_an_owner_that_is_not_its_own(taker: Hand, workloads: Workloads):
    """Somebody who may create pods, and nothing else, names the ReplicaSet of a service without GPUs as the owner."""
    labels = {"app": "api"}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": workloads.template(labels, devices=0)}
    api = workloads.make("Deployment", "api", spec)
    workloads.until_pods(1)
    [rs] = workloads.cluster.all("apps/v1/replicasets", workloads.namespace)
    rs |= {"apiVersion": "apps/v1", "kind": "ReplicaSet"}
    selected = rs["spec"]["selector"]["matchLabels"]
    forged = workloads.pod("api-forged", labels=selected, ownerReferences=[reference(rs)])
    await taker.kube.learn([_workload(forged)], fresh=True, seen=())
    assert taker.kube.known(_workload(forged)).pod.target is None
    await taker.delivered()
    assert workloads.now(api)["spec"]["replicas"] == 1


async def test_what_keda_would_scale_back_is_left_alone(taker: Hand, workloads: Workloads):
    web = workloads.deployment("web")
    workloads.until_pods(1)
    spec = {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}
    labels = {"scaledobject.keda.sh/name": "web"}
    workloads.make("HorizontalPodAutoscaler", "keda-hpa-web", spec, api_version="autoscaling/v2", labels=labels)
    await taker.delivered()
    assert taker.case().held_by == ("no_action",)
    assert workloads.now(web)["spec"]["replicas"] == 1


async def test_nobody_acts_while_the_api_server_is_down(taker: Hand, workloads: Workloads):
    web = workloads.deployment("web")
    workloads.until_pods(1)
    good = taker.config
    taker.config = replace(good, analyzer=replace(good.analyzer, kubeconfig=_of_nobody(good.analyzer.kubeconfig)))
    await taker.delivered()
    assert (taker.kube.state, taker.kube.fault != "") == ("down", True)
    assert "kube_unreachable" in taker.case().held_by
    taker.config = good
    await taker.delivered()
    assert taker.kube.fault == ""
    assert workloads.now(web)["spec"]["replicas"] == 0


async def test_a_young_pod_and_a_protected_class_hold_back(taker: Hand, workloads: Workloads):
    workloads.deployment("web")
    workloads.until_pods(1)
    taker.change(min_pod_age=86400.0)
    await taker.delivered()
    assert taker.case().held_by == ("pod_age",)


async def test_the_analyzer_frees_a_gpu_and_an_operator_gives_it_back(workloads: Workloads, cluster: Cluster, tmp_path):
    """The whole service with its API; the source is a stub that shows the pod idle."""
    web = workloads.deployment("web")
    [pod] = workloads.until_pods(1)
    who = Tenant(namespace=workloads.namespace, pod=pod["metadata"]["name"], pod_uid=pod["metadata"]["uid"])
    source = StubSource(reading(track(0), replace(track(1, util=IDLE, tenant=who), hostname=NODE)))
    live = EAGER | {
        "analyzer.history": str(tmp_path / "h.db"),
        "analyzer.kubeconfig": cluster.kubeconfig(ACCOUNT, HOME),
        "control.enabled": True,
        "control.dry_run": False,
        "reclaim.action": "scale",
    }
    async with running(source, environ={"VGPUSCOPE_API_TOKEN": TOKEN}, **live) as one:
        await one.analysed()
        await waited(lambda: one.analyzer._replica.leads)
        for _ in range(3):
            await analysed(one)
        await waited(lambda: one.analyzer.reclaim.counts.actions["scale", "success"])
        assert workloads.now(web)["spec"]["replicas"] == 0
        [case] = (await one.json("/api/v1/reclaim"))["cases"]
        assert (case["state"], case["target"], case["restorable"]) == ("acting", "Deployment/web", True)
        assert 'vgpuscope_reclaim_actions_total{action="scale",outcome="success"} 1' in await one.metrics()
        done = await one.client.post(f"/api/v1/reclaim/{case['id']}/restore", headers=BEARER)
        assert (done.status_code, done.json()["state"], done.json()["by"]) == (200, "restored", "token")
        assert workloads.now(web)["spec"]["replicas"] == 1
        log = (await one.json("/api/v1/audit"))["entries"]
        assert [entry["what"] for entry in log[:2]] == ["call_delivered", "restore_asked"]


async def test_rights_in_some_namespaces_are_rights_in_these_only(taker: Hand, workloads: Workloads, cluster: Cluster):
    home, other = "reclaim-some", Workloads(cluster, f"{workloads.namespace}-other")
    cluster.install(RELEASE, home, SCALE | {"analyzer": {"reclaimNamespaces": [workloads.namespace]}})
    analyzer = replace(taker.config.analyzer, kubeconfig=cluster.kubeconfig(ACCOUNT, home))
    taker.config = replace(taker.config, analyzer=analyzer)
    taker.restart()
    web = workloads.deployment("web")
    workloads.until_pods(1)
    await taker.delivered()
    assert workloads.now(web)["spec"]["replicas"] == 0
    pod = other.pod("alone")
    await taker.kube.learn([_workload(pod)], fresh=True, seen=())
    known = taker.kube.known(_workload(pod))
    assert (known.pod.read, taker.kube.state) == (False, "ok")
    assert "403" in known.signals[0].detail


def test_no_right_deletes_anything(cluster: Cluster, installed):
    """After all tests: what the account asked for was allowed, but for owners that are nobody's."""
    rights = granted(installed, ACCOUNT)
    assert {right.verb for right in rights} == {"get", "list", "patch", "create"}
    assert {right.resource for right in rights if right.verb == "create"} == {"pods/eviction", "events"}
    asked = requests(cluster.audit_log, ACCOUNT, HOME)
    assert [one for one in asked if one.code in {401, 403}] == []
    assert {right for right in rights if right.verb in {"patch", "create"} and not used(right, asked)} == set()


def _of_nobody(kubeconfig: str | None) -> str:
    """The same kubeconfig with an address at which nobody answers."""
    assert kubeconfig is not None
    config = msgspec.json.decode(Path(kubeconfig).read_bytes())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    broken = Path(kubeconfig).with_suffix(".broken")
    broken.write_bytes(msgspec.json.encode(config))
    return str(broken)


def _workload(pod: Object) -> Workload:
    meta = pod["metadata"]
    return Workload(uid=meta["uid"], namespace=meta["namespace"], pod=meta["name"])


def _why(call: Call) -> ChangeReason:
    order = msgspec.json.decode(call.body, type=ClusterChange)
    return ChangeReason(call.key, order.namespace, order.pod, order.pod_uid, order.secret)
