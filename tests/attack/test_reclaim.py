"""A tenant writes owners, names, labels and annotations of its own objects, and wants reclaim to stop, or to act for
it: on others' objects, or with the analyzer's rights."""

import logging

import pytest

from tests.attack.apiserver import Cluster, Object
from vgpuscope.config import Config
from vgpuscope.config.kube import KubeConfig
from vgpuscope.config.reclaim import ReclaimConfig
from vgpuscope.model.reclaim import Workload
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
