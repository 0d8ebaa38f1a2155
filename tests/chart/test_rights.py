"""The rights that the chart gives are enough, and none is more than that.

Each service runs under the service account that Helm installed. The API server's audit log is the judge: it answers no
request with 403, and every granted verb on every granted kind was used.
"""

import contextlib
from pathlib import Path

import msgspec
import pytest

from tests.chart.audit import Right, granted, requests, used
from tests.chart.cluster import Cluster, Object, definition
from tests.chart.helmrun import only
from tests.chart.processes import analyzer
from tests.contract.clusterrun import exporter, holder, quota, registered
from tests.services.agent.noderoot import NodeRoot, RunningAgent

pytestmark = pytest.mark.real
RELEASE, NODE, UUID = "vgpuscope", "gpu-1", "GPU-a"
TEMPLATE: Object = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
SELECTOR = {"matchLabels": {"a": "b"}}
CUSTOM = [
    ("serving.knative.dev", "v1", "Revision", "revisions"),
    ("serving.knative.dev", "v1", "Configuration", "configurations"),
    ("serving.knative.dev", "v1", "Service", "services"),
    ("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"),
    ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets"),
    ("ray.io", "v1", "RayCluster", "rayclusters"),
]
CHAINS = {  # a pod and its owners, from the bottom to the top; the last one exists only as a name
    "llama-0": ("apps/v1/ReplicaSet", "apps/v1/Deployment", "serving.kserve.io/v1beta1/InferenceService"),
    "carol-0": ("apps/v1/StatefulSet", "kubeflow.org/v1/Notebook"),
    "nightly-x": ("batch/v1/Job", "batch/v1/CronJob"),
    "knative-0": (
        "serving.knative.dev/v1/Revision",
        "serving.knative.dev/v1/Configuration",
        "serving.knative.dev/v1/Service",
        "serving.kserve.io/v1beta1/InferenceService",
    ),
    "jobset-0": ("jobset.x-k8s.io/v1alpha2/JobSet", "trainer.kubeflow.org/v1alpha1/TrainJob"),
    "group-0": ("leaderworkerset.x-k8s.io/v1/LeaderWorkerSet", "serving.kserve.io/v1beta1/LLMInferenceService"),
    "ray-0": ("ray.io/v1/RayCluster", "ray.io/v1/RayJob"),
}
# The name of the topmost owner is known from what it owns. Reading it would show whether it has an owner itself, but
# then the role would have to list every kind there is; so the request is refused, once in ten minutes for each kind.
TOPS = {"inferenceservices", "notebooks", "cronjobs", "trainjobs", "llminferenceservices", "rayjobs"}


@pytest.fixture(scope="module")
def busy(cluster: Cluster) -> Cluster:
    """A cluster whose pods have owners of every kind that owners are looked for."""
    cluster.operators()
    cluster.define(definition(*one) for one in CUSTOM)
    cluster.plane.create(registered(NODE, UUID))
    cluster.plane.create(quota("ml", gpumem="10000"))
    for pod, chain in CHAINS.items():
        item = holder(pod, NODE, UUID)
        item["metadata"]["ownerReferences"] = [owner(cluster, pod, chain)]
        cluster.plane.create(item)
    return cluster


def owner(cluster: Cluster, pod: str, chain: tuple[str, ...]) -> Object:
    """A reference to the first of the chain, which is made with all of its owners except the last."""
    version, _, kind = chain[0].rpartition("/")
    name = f"{pod}-{kind.lower()}"
    reference = {"apiVersion": version, "kind": kind, "name": name, "uid": "made-up", "controller": True}
    if len(chain) > 1:
        spec = {"template": TEMPLATE, "selector": SELECTOR, "serviceName": "s"}
        if kind == "Job":
            spec = {"template": {"spec": TEMPLATE["spec"] | {"restartPolicy": "Never"}}}
        elif kind != "StatefulSet":
            del spec["serviceName"]
        meta = {"name": name, "namespace": "ml", "ownerReferences": [owner(cluster, pod, chain[1:])]}
        made = cluster.create({"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec})
        reference["uid"] = made["metadata"]["uid"]
    return reference


@pytest.fixture(scope="module")
def installed(busy: Cluster) -> list[Object]:
    return busy.install(RELEASE, "rights", {})


def unused(cluster: Cluster, objects: list[Object], component: str, namespace: str = "rights") -> set[Right]:
    account = f"{RELEASE}-{component}"
    asked = requests(cluster.audit_log, account, namespace)
    return {right for right in granted(objects, account) if not used(right, asked)}


def refused(cluster: Cluster, component: str, namespace: str = "rights") -> set[str]:
    """The kinds of which something was forbidden."""
    asked = requests(cluster.audit_log, f"{RELEASE}-{component}", namespace)
    assert asked
    return {one.right.resource for one in asked if one.code in {401, 403}}


def counted(running: RunningAgent) -> list[float]:
    """The service's own count of requests that were forbidden."""
    return [v for (name, labels), v in running.page().items() if ("code", "KUBE_FORBIDDEN") in labels and v]


def test_the_agent(busy, installed, tmp_path):
    root = NodeRoot(tmp_path, NODE)
    root.nvml.gpu(0, uuid=UUID)
    kubeconfig = busy.kubeconfig(f"{RELEASE}-agent", "rights")
    with root.agent("--pods", "kube", "--kubeconfig", kubeconfig) as agent:
        agent.until(lambda page: page.has("vgpuscope_gpu_info"))
        agent.wait(lambda: not unused(busy, installed, "agent"))
        assert not counted(agent)
    assert not refused(busy, "agent")


def test_the_cluster_exporter(busy, installed, tmp_path):
    with exporter(busy.kubeconfig(f"{RELEASE}-cluster", "rights"), tmp_path) as running:
        tops = {f"ml/{pod}": f"{chain[-1].rpartition('/')[2]}" for pod, chain in CHAINS.items()}
        running.wait(lambda: {pod: name.partition("/")[0] for pod, name in owners(running).items()} == tops)
        running.wait(lambda: not unused(busy, installed, "cluster"))
        assert not counted(running)
    assert refused(busy, "cluster") == TOPS


def test_the_cluster_exporter_of_two_namespaces(busy, tmp_path):
    here = "rights-of-two"
    busy.namespace("vision")
    values = {"config": {"cluster": {"namespaces": ["ml", "vision"]}}}
    objects = busy.install(RELEASE, here, values)
    kubeconfig = busy.kubeconfig(f"{RELEASE}-cluster", here)
    with exporter(kubeconfig, tmp_path, "--namespaces", "ml,vision") as running:
        running.wait(lambda: len(owners(running)) == len(CHAINS))
        # no pod of "vision" has an owner
        running.wait(
            lambda: {(r.namespace, r.verb) for r in unused(busy, objects, "cluster", here)} <= {("vision", "get")}
        )
        assert not counted(running)
    assert refused(busy, "cluster", here) == TOPS
    asked = requests(busy.audit_log, f"{RELEASE}-cluster", here)
    assert {one.right.resource for one in asked if not one.right.namespace} == {"nodes", "resourceslices"}


def test_the_analyzer(busy, installed, tmp_path):
    (settings,) = [o for o in only(installed, "ConfigMap") if o["metadata"]["name"] == f"{RELEASE}-analyzer"]
    with analyzer(busy.kubeconfig(f"{RELEASE}-analyzer", "rights"), settings, tmp_path) as running:
        running.wait(lambda: not unused(busy, installed, "analyzer"))
        assert not counted(running)
    assert not refused(busy, "analyzer")


def test_what_is_not_granted_is_refused_and_would_be_noticed(busy, installed):
    """The judge can say no: the analyzer's account may not list pods."""
    token = msgspec.json.decode(Path(busy.kubeconfig(f"{RELEASE}-analyzer", "rights")).read_bytes())
    with contextlib.suppress(Exception):
        busy.call("GET", "/api/v1/pods", token=token["users"][0]["user"]["token"])
    assert refused(busy, "analyzer") == {"pods"}


def owners(running: RunningAgent) -> dict[str, str]:
    return msgspec.json.decode(running.get("/api/v1/owners")[2])
