"""A tenant writes owners, names, labels and annotations of its own objects, and wants reclaim to stop, or to act for
it: on others' objects, or with the analyzer's rights."""

import json
import logging
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.attack.apiserver import Cluster, Object
from vgpuscope.config import Config
from vgpuscope.config.kube import KubeConfig
from vgpuscope.config.reclaim import ReclaimConfig
from vgpuscope.model.errors import CallRefused
from vgpuscope.model.reclaim import Call, Case, Workload
from vgpuscope.services.analyzer.reclaim.calls import restore_call, scale_call
from vgpuscope.services.analyzer.reclaim.kube import ReclaimKube

pytestmark = pytest.mark.attack
CONFIG = Config(kube=KubeConfig(enabled=True), reclaim=ReclaimConfig(action="scale"))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def kube(cluster):
    reads = ReclaimKube(lambda: CONFIG, connect=cluster.client, clock=lambda: 1000.0)
    yield reads
    await reads.close()


def workload(pod: Object) -> Workload:
    return Workload(uid=pod["metadata"]["uid"], namespace="ml", pod=pod["metadata"]["name"])


def deployment(cluster: Cluster, name: str, *, pods: int = 1, gpus: int = 1) -> list[Object]:
    """A Deployment with its ReplicaSet; its pods."""
    labels = {"app": name}
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    template = {"spec": {"containers": [{"name": "c", "resources": limits}]}}
    spec = {"replicas": pods, "selector": {"matchLabels": labels}, "template": template}
    owner = cluster.add("Deployment", name, spec=spec)
    rs = cluster.add("ReplicaSet", f"{name}-1", by=owner, spec=spec)
    return [cluster.pod(f"{name}-1-{n}", by=rs, labels=labels) for n in range(pods)]


def owned_by(**named: str) -> Object:
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x", "uid": "u-x"} | named
    return {"ownerReferences": [{**ref, "controller": True}]}


ODD = {
    "a percent sign in the owner's name": owned_by(name="a%b"),
    "a slash in the owner's name": owned_by(name="a/b"),
    "an owner's name of 70 kB": owned_by(name="a" * 70_000),
    "a path in the owner's kind": owned_by(kind="../../../api/v1/namespaces/kube-system/secrets"),
    "a path in the owner's version": owned_by(apiVersion="apps/../../api/v1"),
    "a version of 70 kB": owned_by(apiVersion=f"{'a' * 70_000}/v1"),
    "an owner of a group whose server is down": owned_by(apiVersion="broken.example/v1", kind="Thing"),
    "a selector of 70 kB": {},
    "an owner with 1,001 pods": {},
}


def odd_pod(cluster: Cluster, case: str) -> Object:
    if case == "an owner with 1,001 pods":
        return deployment(cluster, "many", pods=1001)[0]
    pod = cluster.pod("odd", **ODD[case])
    if case == "a selector of 70 kB":
        labels = {f"label-{n}": "v" * 60 for n in range(1000)}
        template = {"spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}
        owner = cluster.add("Deployment", "wide", spec={"selector": {"matchLabels": labels}, "template": template})
        pod = cluster.pod("odd", by=owner, labels=labels)
    return pod


@pytest.mark.parametrize("case", ODD)
async def test_an_odd_object_costs_only_itself(cluster, kube, caplog, case):
    [honest] = deployment(cluster, "web")
    odd = odd_pod(cluster, case)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await kube.learn([workload(odd), workload(honest)], fresh=False, seen=())
    known = kube.known(workload(honest))
    assert (kube.state, known.pod.read, known.pod.target.name) == ("ok", True, "web")
    unknown = kube.known(workload(odd))
    assert (unknown.pod.read, unknown.pod.target) == (False, None)
    [signal] = unknown.signals
    assert (signal.name, signal.active) == ("kubernetes", False)
    assert len(signal.detail) < 400
    [said] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert said.fields["pod"] == odd["metadata"]["name"]
    assert len(str(said.fields)) < 1000
    assert not [path for path in cluster.paths if "%" in path or "kube-system" in path or ".." in path]


@pytest.mark.parametrize("name", ["a%b", "../secrets/token", "A" * 300, "", "a b"])
async def test_a_name_that_a_strangers_page_writes_makes_no_request_for_another_object(cluster, kube, name):
    [honest] = deployment(cluster, "web")
    named = Workload(uid="u-1", namespace="ml", pod=name)
    elsewhere = Workload(uid="u-2", namespace=name, pod="web-1-0")
    await kube.learn([named, elsewhere, workload(honest)], fresh=False, seen=())
    assert (kube.state, kube.known(workload(honest)).pod.read) == ("ok", True)
    assert not kube.known(named).pod.read
    assert not kube.known(elsewhere).pod.read
    assert all("web" in path or path.endswith(("/ml", "autoscalers", "/pods")) for path in cluster.paths)


async def test_an_api_server_that_does_not_answer_is_down_for_all(cluster, kube):
    [honest] = deployment(cluster, "web")
    cluster.silent = True
    await kube.learn([workload(honest)], fresh=False, seen=())
    assert (kube.state, kube.known(workload(honest)).pod.read) == ("down", False)


# ── owners ───────────────────────────────────────────────────────────────────────────────────────────────────────────

KUBEFLOW, KSERVE = "kubeflow.org/v1", "serving.kserve.io/v1beta1"
NOTEBOOK_LABEL, KSERVE_LABEL = {"notebook-name": "alice"}, {"serving.kserve.io/inferenceservice": "alice"}


def notebook(cluster: Cluster, *, gpus: int) -> tuple[Object, Object, Object]:
    """A Notebook of Kubeflow, the StatefulSet that its controller made, and its pod."""
    top = cluster.add("Notebook", "alice", api_version=KUBEFLOW)
    return top, *controlled(cluster, "StatefulSet", "alice", top, NOTEBOOK_LABEL, gpus=gpus)


def controlled(
    cluster: Cluster, kind: str, name: str, by: Object, labels: dict[str, str], *, gpus: int
) -> tuple[Object, Object]:
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    template = {"spec": {"containers": [{"name": "c", "resources": limits}]}}
    middle = cluster.add(kind, name, by=by, spec={"selector": {"matchLabels": labels}, "template": template})
    return middle, cluster.pod(f"{name}-0", by=middle, gpus=gpus, labels=labels)


async def target_of(kube: ReclaimKube, pod: Object, *others: Object) -> str | None:
    await kube.learn([workload(pod), *map(workload, others)], fresh=True, seen=())
    assert kube.state == "ok"
    found = kube.known(workload(pod)).pod.target
    return None if found is None else str(found)


async def test_a_notebook_with_a_gpu_is_the_target_of_its_own_pod(cluster, kube):
    *_, pod = notebook(cluster, gpus=1)
    assert await target_of(kube, pod) == "Notebook/alice"


async def test_an_inference_service_is_the_target_through_all_controllers_of_its_own(cluster, kube):
    top = cluster.add("InferenceService", "alice", api_version=KSERVE)
    middle, _ = controlled(cluster, "Deployment", "alice-predictor", top, KSERVE_LABEL, gpus=1)
    rs = cluster.add("ReplicaSet", "alice-predictor-1", by=middle, spec=middle["spec"])
    cluster.objects.pop("/api/v1/namespaces/ml/pods/alice-predictor-0")
    pod = cluster.pod("alice-predictor-1-0", by=rs, labels=KSERVE_LABEL)
    _, transformer = controlled(cluster, "StatefulSet", "alice-transformer", top, KSERVE_LABEL, gpus=0)
    assert await target_of(kube, pod) == "InferenceService/alice"
    assert await target_of(kube, transformer) is None


@pytest.mark.parametrize("kind", ["Notebook", "InferenceService"])
@pytest.mark.parametrize("genuine", [0, 1])
async def test_a_pod_that_names_a_notebook_or_a_service_as_its_owner_does_not_stop_it(cluster, kube, kind, genuine):
    """With `create pods` alone: the reference has the right name and UID, and the label is right."""
    version, labels = {"Notebook": (KUBEFLOW, NOTEBOOK_LABEL), "InferenceService": (KSERVE, KSERVE_LABEL)}[kind]
    top = cluster.add(kind, "alice", api_version=version)
    middle, _ = controlled(cluster, "StatefulSet", "alice", top, labels, gpus=genuine)
    forged = cluster.pod("forged", by=top, labels=labels)
    assert await target_of(kube, forged) is None
    without_gpu = cluster.pod("forged-2", by=middle, labels=labels)
    if not genuine:
        assert await target_of(kube, without_gpu) is None


async def test_a_pod_that_only_carries_the_label_is_no_part_of_the_notebook(cluster, kube):
    *_, pod = notebook(cluster, gpus=1)
    cluster.pod("stranger", labels=NOTEBOOK_LABEL)
    assert await target_of(kube, pod) is None


@pytest.mark.parametrize("wrong", ["uid", "gone"])
async def test_a_chain_that_ends_at_another_object_of_the_name_is_no_proof(cluster, kube, wrong):
    _, middle, pod = notebook(cluster, gpus=1)
    if wrong == "gone":
        del cluster.objects["/apis/kubeflow.org/v1/namespaces/ml/notebooks/alice"]
    else:
        middle["metadata"]["ownerReferences"][0]["uid"] = "uid-of-an-earlier-alice"
    assert await target_of(kube, pod) is None


# ── marks ────────────────────────────────────────────────────────────────────────────────────────────────────────────

RECLAIMED, RESTORED = "vgpuscope.io/reclaimed", "vgpuscope.io/restored"
HOSTILE = {
    "spec template spec serviceAccountName": "admin",
    "spec template spec containers": [{"name": "c", "image": "evil"}],
    "metadata labels team": "other",
}


def web(cluster: Cluster) -> Object:
    return cluster.objects["/apis/apps/v1/namespaces/ml/deployments/web"]


def write_mark(item: Object, name: str, **mark: Any) -> None:
    """As a tenant does it, who may patch its own object; the key of a call is the UID of the pod and its kind."""
    whole = {"at": "2026-11-17T01:00:00Z", "before": {}, "after": {}, "pod": "web-1-0"} | mark
    item["metadata"].setdefault("annotations", {})[name] = json.dumps(whole)


async def looked(cluster: Cluster, kube: ReclaimKube, pod: Object) -> tuple[Case, Call]:
    """The case of a pod, and the call to stop its owner, as they are made after a look."""
    await kube.learn([workload(pod)], fresh=True, seen=())
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    target = kube.known(workload(pod)).pod.target
    case = Case(id=uid, uid=uid, namespace="ml", pod=name, since=0.0, first_idle=0.0, target=target)
    return case, scale_call(case, target, now=1000.0)


async def stopped(cluster: Cluster, kube: ReclaimKube, pod: Object) -> tuple[Case, Call]:
    """After a stop, as the store has its call."""
    case, call = await looked(cluster, kube, pod)
    done = await kube.scale(call, now=1000.0)
    return case, replace(call, status="delivered", result=done.result)


@pytest.mark.parametrize("key", ["uid-Pod-web-1-0/scale", "another"])
@pytest.mark.parametrize("after", [{}, {"spec replicas": 3}])
async def test_a_forged_mark_does_not_keep_a_stop_from_its_work(cluster, kube, caplog, key, after):
    pod, *_ = deployment(cluster, "web", pods=3)
    write_mark(web(cluster), RECLAIMED, key=key, after=after)
    _, call = await stopped(cluster, kube, pod)
    assert web(cluster)["spec"]["replicas"] == 0
    assert msgspec.json.decode(call.result)["before"] == {"spec replicas": 3}
    if key == call.key:
        assert "ignored a mark that this analyzer did not write" in caplog.messages
        assert "ReclaimMarkIgnored" in {event["reason"] for event in cluster.events}


@pytest.mark.parametrize("answered", [True, False])
async def test_a_forged_mark_writes_no_field_of_its_authors_choice(cluster, kube, answered):
    pod, *_ = deployment(cluster, "web", pods=3)
    case, call = await stopped(cluster, kube, pod)
    write_mark(web(cluster), RECLAIMED, key=call.key, before=HOSTILE, after={"spec replicas": 0})
    before = json.loads(json.dumps(web(cluster)["spec"]["template"]))
    if answered:  # the store knows what was there
        await kube.restore(restore_call(case, case.target, [call], number=1, now=2000.0), now=2000.0)
        assert web(cluster)["spec"]["replicas"] == 3
    else:
        lost = replace(call, result="")
        with pytest.raises(CallRefused, match="not ours"):
            await kube.restore(restore_call(case, case.target, [lost], number=1, now=2000.0), now=2000.0)
        assert web(cluster)["spec"]["replicas"] == 0
    assert web(cluster)["spec"]["template"] == before
    assert "labels" not in web(cluster)["metadata"]


async def test_a_signed_mark_gives_back_what_was_there_though_the_answer_of_its_call_was_lost(cluster, kube):
    pod, *_ = deployment(cluster, "web", pods=3)
    case, call = await stopped(cluster, kube, pod)
    await kube.restore(restore_call(case, case.target, [replace(call, result="")], number=1, now=2000.0), now=2000.0)
    assert web(cluster)["spec"]["replicas"] == 3


async def test_a_mark_of_another_object_is_not_ours_on_this_one(cluster, kube):
    pod, *_ = deployment(cluster, "web", pods=3)
    case, call = await stopped(cluster, kube, pod)
    other = replace(case.target, uid="uid-of-a-later-web")
    web(cluster)["metadata"]["uid"] = other.uid
    with pytest.raises(CallRefused, match="not ours"):
        await kube.restore(restore_call(case, other, [replace(call, result="")], number=1, now=2000.0), now=2000.0)


async def test_a_mark_from_before_the_signatures_gives_back_what_the_store_has(cluster, kube):
    pod, *_ = deployment(cluster, "web", pods=3)
    case, call = await stopped(cluster, kube, pod)
    old = msgspec.json.decode(web(cluster)["metadata"]["annotations"][RECLAIMED])
    del old["signature"]
    write_mark(web(cluster), RECLAIMED, **old | {"before": {"spec replicas": 999}})
    body = msgspec.json.decode(call.body)
    del body["secret"]
    unsigned = replace(call, body=msgspec.json.encode(body).decode())
    await kube.restore(restore_call(case, case.target, [unsigned], number=1, now=2000.0), now=2000.0)
    assert web(cluster)["spec"]["replicas"] == 3


async def test_a_forged_mark_does_not_keep_a_restore_from_its_work(cluster, kube):
    pod, *_ = deployment(cluster, "web", pods=3)
    case, call = await stopped(cluster, kube, pod)
    back = restore_call(case, case.target, [call], number=1, now=2000.0)
    write_mark(web(cluster), RESTORED, key=back.key, after={"spec replicas": 3})
    await kube.restore(back, now=2000.0)
    assert web(cluster)["spec"]["replicas"] == 3


@pytest.mark.parametrize("replicas", [-1, 10**12, "3", 2.5, True, [3]])
async def test_only_values_that_the_field_can_have_are_put_back(cluster, kube, replicas):
    pod, *_ = deployment(cluster, "web", pods=3)
    case, call = await stopped(cluster, kube, pod)
    result = msgspec.json.decode(call.result) | {"before": {"spec replicas": replicas}}
    odd = replace(call, result=msgspec.json.encode(result).decode())
    with pytest.raises(CallRefused, match="not put back"):
        await kube.restore(restore_call(case, case.target, [odd], number=1, now=2000.0), now=2000.0)
    assert web(cluster)["spec"]["replicas"] == 0
