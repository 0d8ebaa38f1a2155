"""The rights that the chart gives are enough, and none is more than that.

Each service runs under the service account that Helm installed. The API server's audit log is the judge: it answers no
request with 403, and every granted verb on every granted kind was used.
"""

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx2
import msgspec
import pytest

from tests.chart.audit import Right, granted, requests, used
from tests.chart.cluster import Cluster, Object, definition
from tests.chart.helmrun import only
from tests.chart.processes import analyzer
from tests.contract.clusterrun import exporter, holder, quota, registered
from tests.contract.extenderrun import LOCK, extender, gpu_pod
from tests.contract.kubeletrun import kubelet, user
from tests.controlplane import until
from tests.paths import REPOSITORY
from tests.services.agent.noderoot import NodeRoot, RunningAgent
from tests.services.plugin.pluginrun import FIRST, assigned, lock, plugin_at
from vgpuscope.catalog import agent as m

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


@contextlib.contextmanager
def claimed(cluster: Cluster) -> Iterator[None]:
    """A pod of the node has its GPU through a ResourceClaim."""
    driver, pool = "gpu.nvidia.com", {"name": NODE, "generation": 1, "resourceSliceCount": 1}
    device = {"name": "gpu-7", "attributes": {"uuid": {"string": UUID}}}
    slices = {"driver": driver, "nodeName": NODE, "pool": pool, "devices": [device]}
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}
    cluster.plane.create({"kind": "ResourceSlice", "metadata": {"name": "rights"}, "spec": slices})
    meta = {"name": "rights", "namespace": "ml"}
    cluster.plane.create({"kind": "ResourceClaim", "metadata": meta, "spec": {"devices": {"requests": [request]}}})
    bound = user("claimant", main="rights")
    bound["spec"]["nodeName"] = NODE
    uid = cluster.plane.create(bound)["metadata"]["uid"]
    result = {"request": "gpu", "driver": driver, "pool": NODE, "device": "gpu-7"}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "claimant", "uid": uid}],
    }
    cluster.plane.patch("resourceclaims", "rights", {"status": status}, namespace="ml", subresource="status")
    try:
        yield
    finally:
        cluster.plane.delete("pods", "claimant", namespace="ml")
        free = {"status": {"allocation": None, "reservedFor": None}}
        cluster.plane.patch("resourceclaims", "rights", free, namespace="ml", subresource="status")
        cluster.plane.delete("resourceclaims", "rights", namespace="ml")
        cluster.plane.delete("resourceslices", "rights")


def test_the_agent(busy, installed, tmp_path):
    root = NodeRoot(tmp_path, NODE)
    root.nvml.gpu(0, uuid=UUID)
    kubeconfig = busy.kubeconfig(f"{RELEASE}-agent", "rights")
    flags = ("--pods", "kube", "--kubeconfig", kubeconfig, "--podresources-socket")
    with claimed(busy), kubelet(busy.plane, NODE) as socket, root.agent(*flags, socket) as agent:
        agent.until(lambda page: page.has(m.GPU_MODE.name, gpu_uuid=UUID, mode="exclusive"))
        agent.wait(lambda: not unused(busy, installed, "agent"))
        assert not counted(agent)
    assert not refused(busy, "agent")


def test_the_cluster_exporter(busy, installed, tmp_path):
    # in a pod, the namespace is that of the service account
    lease = ("--lease-namespace", "rights")
    with exporter(busy.kubeconfig(f"{RELEASE}-cluster", "rights"), tmp_path, *lease) as running:
        tops = {f"ml/{pod}": f"{chain[-1].rpartition('/')[2]}" for pod, chain in CHAINS.items()}
        # other tests may have left pods behind
        running.wait(lambda: tops.items() <= {pod: kind_of(name) for pod, name in owners(running).items()}.items())
        running.wait(lambda: not unused(busy, installed, "cluster"))
        assert not counted(running)
    assert refused(busy, "cluster") == TOPS


def test_the_cluster_exporter_of_two_namespaces(busy, tmp_path):
    here = "rights-of-two"
    busy.namespace("vision")
    values = {"config": {"cluster": {"namespaces": ["ml", "vision"]}}}
    objects = busy.install(RELEASE, here, values)
    kubeconfig = busy.kubeconfig(f"{RELEASE}-cluster", here)
    flags = ("--namespaces", "ml,vision", "--lease-namespace", here)
    with exporter(kubeconfig, tmp_path, *flags) as running:
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


# --- what schedules ---------------------------------------------------------------------------------------------------

SCHEDULING = "rights-of-scheduling"
UNLIMITED, EMPTY = "without-quota", "gpu-2"


@pytest.fixture(scope="module")
def scheduling(busy: Cluster) -> list[Object]:
    busy.namespace(UNLIMITED)
    busy.plane.create(registered(EMPTY, "GPU-empty"))
    return busy.install(RELEASE, SCHEDULING, {"extender": {"enabled": True}, "plugin": {"enabled": True}})


def test_the_extender_and_the_kube_scheduler_in_its_pod(busy, scheduling, tmp_path):
    """Both run under the one account of their pod, with the settings that Helm installed."""
    kubeconfig = busy.kubeconfig(f"{RELEASE}-extender", SCHEDULING)
    (found,) = [o for o in only(scheduling, "ConfigMap") if o["metadata"]["name"] == f"{RELEASE}-kube-scheduler"]
    settings = msgspec.yaml.decode(found["data"]["config.yaml"])
    environ = {"VGPUSCOPE_EXTENDER_SCHEDULER_NAME": settings["profiles"][0]["schedulerName"]}
    flags = ("--lease-namespace", SCHEDULING)
    with extender(kubeconfig, tmp_path, *flags, environ=environ) as running:
        settings["extenders"][0]["urlPrefix"] = running.url
        settings["clientConnection"] = {"kubeconfig": kubeconfig}
        settings |= {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}
        with old_locks(busy), busy.plane.scheduler(settings):
            for name, memory in (("small", 100), ("large", 10**8)):
                pod = gpu_pod(f"rights-{name}", memory=memory)
                pod["metadata"]["namespace"] = UNLIMITED
                pod["spec"]["schedulerName"] = settings["profiles"][0]["schedulerName"]
                busy.plane.create(pod)
            until(lambda: busy.plane.get("pods", "rights-small", namespace=UNLIMITED)["spec"].get("nodeName"))
            bound = busy.plane.get("pods", "rights-small", namespace=UNLIMITED)
            assert bound["metadata"]["annotations"]["hami.io/vgpu-node"] == bound["spec"]["nodeName"]
            gone = {"PodName": "gone", "PodNamespace": UNLIMITED, "PodUID": "gone", "Node": NODE}
            answer = httpx2.post(f"{running.url}/bind", json=gone).json()  # it did not assign this pod, so it looks
            assert "does not exist any more" in answer["Error"]
            # the large pod is refused again and again: its event is patched; a change of a node makes it be tried
            running.wait(lambda: nudged(busy) and not unused(busy, scheduling, "extender", SCHEDULING))
        assert not counted(running)
    assert not refused(busy, "extender", SCHEDULING)


@contextlib.contextmanager
def old_locks(cluster: Cluster) -> Iterator[None]:
    """A lock that nobody holds any more is on every node, so the extender has to read it before it takes it."""
    names = [node["metadata"]["name"] for node in cluster.plane.list("nodes")]
    for name in names:
        locked = {LOCK: "2020-01-01T00:00:00Z,ml,gone"}
        cluster.plane.patch("nodes", name, {"metadata": {"annotations": locked}})
    try:
        yield
    finally:
        for name in names:
            cluster.plane.patch("nodes", name, {"metadata": {"annotations": {LOCK: None}}})


def nudged(cluster: Cluster) -> bool:
    """kube-scheduler tries pods again that did not fit when a node has changed."""
    cluster.plane.patch("nodes", NODE, {"metadata": {"labels": {"turn": uuid.uuid4().hex}}})
    return True


def test_the_device_plugin(busy, scheduling, tmp_path):
    busy.add_node("n1", {})
    with plugin_at(tmp_path, busy.kubeconfig(f"{RELEASE}-plugin", SCHEDULING)) as running:
        until(lambda: running.ready()[0] == 200)
        # two containers of one pod on the same GPU: the second event is equal to the first, so it is not posted again
        made = holder("plugin-served", "n1", FIRST)
        made["metadata"]["annotations"] = assigned(2 * f"{FIRST},NVIDIA,1,0:;")
        made["spec"]["containers"].append(made["spec"]["containers"][0] | {"name": "second"})
        busy.plane.create(made)
        busy.plane.patch("nodes", "n1", {"metadata": {"annotations": lock("plugin-served")}})
        for place in range(2):
            running.kubelet.allocate([f"{FIRST}-{place}"])
        # a lock that a pod has left behind: the plugin looks whether the pod exists
        busy.plane.patch("nodes", "n1", {"metadata": {"annotations": lock("gone")}})
        with contextlib.suppress(grpc.RpcError):
            running.kubelet.allocate([f"{FIRST}-0"])
        until(lambda: not unused(busy, scheduling, "plugin", SCHEDULING))
        assert "KUBE_FORBIDDEN" not in running.log
    assert not refused(busy, "plugin", SCHEDULING)


def test_what_is_not_granted_is_refused_and_would_be_noticed(busy, installed):
    """The judge can say no: the analyzer's account may not list pods."""
    token = msgspec.json.decode(Path(busy.kubeconfig(f"{RELEASE}-analyzer", "rights")).read_bytes())
    with contextlib.suppress(Exception):
        busy.call("GET", "/api/v1/pods", token=token["users"][0]["user"]["token"])
    assert refused(busy, "analyzer") == {"pods"}


def test_what_uninstalling_leaves_is_named_in_the_guide_with_the_command_that_removes_it(busy, scheduling):
    """Last: it takes the roles and accounts of the extender and the plugin away."""
    busy.helm("uninstall", RELEASE, namespace=SCHEDULING)
    left = {one["metadata"]["name"] for one in busy.plane.list("leases", namespace=SCHEDULING)}
    for node in busy.plane.list("nodes"):
        left |= set(node["metadata"].get("annotations", {}))
    for guide in ("install.md", "install.zh-CN.md"):
        text = (REPOSITORY / "docs" / guide).read_text()
        rows = [row for row in text.splitlines() if row.startswith("|") and "kubectl" in row]
        unnamed = {name for name in left if not any(f"`{name}`" in row and row.count(name) > 1 for row in rows)}
        assert not unnamed, guide


def kind_of(name: str) -> str:
    return name.partition("/")[0]


def owners(running: RunningAgent) -> dict[str, str]:
    return msgspec.json.decode(running.get("/api/v1/owners")[2])
