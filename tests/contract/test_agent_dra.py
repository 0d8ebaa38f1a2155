"""Claims on a node at a real API server: the agent and the cluster exporter name the same holders.

kube-scheduler allocates, and a stand-in kubelet lists what was allocated. The driver is the stand-in NVML, with the
UUIDs that the slices publish.
"""

import copy
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.contract.clusterrun import exporter
from tests.contract.kubeletrun import kubelet, user
from tests.contract.test_cluster_dra import GATES, GPU, give, gpu_class, publish, recorded, wanting
from tests.controlplane import ControlPlane, Object, node, pod, until
from tests.services.agent.noderoot import NodeRoot, RunningAgent
from vgpuscope.catalog import agent as m

pytestmark = pytest.mark.real

NVIDIA, HAMI = "gpu.nvidia.com", "hami-core-gpu.project-hami.io"
RIGHTS = {
    "pods": ["list", "watch"],
    "resourceslices.resource.k8s.io": ["list"],
    "resourceclaims.resource.k8s.io": ["get"],
}
SECOND = "GPU-a7d84b1e-52f0-46c9-8be3-9c7d1e5f2a34"
GIB = 1 << 30


@pytest.fixture
def cluster(control_plane, monkeypatch):
    """A cluster with one node, whose server and scheduler have all features of DRA."""
    names = (*GATES, "DRAExtendedResource")
    gates, run = "--feature-gates=" + ",".join(f"{gate}=true" for gate in names), control_plane._run
    control_plane.reset(gates)
    monkeypatch.setattr(control_plane, "_run", lambda program, *flags: run(program, *flags, gates))
    control_plane.create(node("n1"))
    return control_plane


@pytest.fixture
def root(tmp_path):
    return NodeRoot(tmp_path, "n1")


@contextmanager
def agent(cluster: ControlPlane, root: NodeRoot, rights: dict[str, list[str]] = RIGHTS) -> Iterator[RunningAgent]:
    kubeconfig = cluster.user("agent", rights)
    with (
        kubelet(cluster, root.name) as socket,
        root.agent("--pods", "kube", "--kubeconfig", kubeconfig, "--podresources-socket", socket) as running,
    ):
        yield running


# --- what the two say -------------------------------------------------------------------------------------------------


def at_agent(running: RunningAgent) -> list[Object]:
    found = json.loads(running.get("/api/v1/node")[2])["containers"]
    return [one for one in found if one["allocated"]]


def claims_source(running: RunningAgent) -> Object:
    (found,) = [one for one in json.loads(running.get("/api/v1/node")[2])["sources"] if one["source"] == "claims"]
    return found


def at_cluster(running: RunningAgent) -> Object:
    (found,) = [one for one in json.loads(running.get("/api/v1/nodes")[2]) if one["name"] == "n1"]
    return found


def agents_holders(running: RunningAgent) -> set[tuple[str, str, str, str]]:
    """Namespace, name and UID of the pod, and the GPU."""
    keys = [(one["key"], one["gpu"]) for one in at_agent(running)]
    return {(key["namespace"], key["pod"], key["pod_uid"], gpu) for key, gpu in keys}


def clusters_holders(running: RunningAgent) -> set[tuple[str, str, str, str]]:
    found = at_cluster(running)["holders"]
    return {(one["namespace"], one["pod"], one["pod_uid"], one["device"]) for one in found}


def containers(running: RunningAgent) -> set[tuple[str, str, str, str]]:
    """Pod, container, GPU or MIG instance, and mode."""
    return {
        (one["key"]["pod"], one["key"]["container"], one["mig"] or one["gpu"], one["mode"]) for one in at_agent(running)
    }


def comes_to_show(running: RunningAgent, wanted: set[tuple[str, str, str, str]]) -> None:
    """The GPU of a holder may be known before its instance and its mode."""
    running.wait(lambda: containers(running) == wanted)


def schedule(cluster: ControlPlane, *pods: Object) -> dict[str, list[str]]:
    """The devices that a real scheduler gave, by claim; each pod is bound."""
    with cluster.scheduler():
        cluster.create_all(pods)
        until(lambda: all(one["spec"].get("nodeName") for one in cluster.list("pods", namespace="ml")))
    return {
        claim["metadata"]["name"]: [one["device"] for one in claim["status"]["allocation"]["devices"]["results"]]
        for claim in cluster.list("resourceclaims", namespace="ml")
    }


def agree(of_node: RunningAgent, of_cluster: RunningAgent, *, holders: int) -> None:
    """Both come to name the same holders, and as many as were made."""
    of_node.wait(lambda: len(agents_holders(of_node)) == holders)
    of_node.wait(lambda: agents_holders(of_node) == clusters_holders(of_cluster))


def four_gpus(cluster: ControlPlane) -> list[str]:
    """A slice with four GPUs in the shape that NVIDIA's driver publishes; the UUIDs in the order of the names."""
    (made,) = copy.deepcopy(recorded("nvidia_gpus.json"))
    device = made["spec"]["devices"][0]
    uuids = [f"GPU-0000000{number}-1111-4000-8000-00000000000a" for number in range(4)]
    made["spec"]["devices"] = []
    for number, one in enumerate(uuids):
        other = copy.deepcopy(device)
        other["name"] = f"gpu-{number}"
        other["attributes"]["uuid"]["string"] = one
        other["attributes"]["resource.kubernetes.io/pciBusID"]["string"] = f"0000:1{number}:00.0"
        made["spec"]["devices"].append(other)
    cluster.create(made)
    return uuids


# --- whole GPUs -------------------------------------------------------------------------------------------------------


def test_gpus_of_claims_shared_claims_and_admin_access(cluster, root, tmp_path):
    uuids = four_gpus(cluster)
    for slot, one in enumerate(reversed(uuids)):  # minor numbers that the names do not have
        root.nvml.gpu(slot, uuid=one)
    gpu_class(cluster)
    cluster.namespace("ml")
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    cluster.patch("namespaces", "ml", label)
    look = wanting("look", adminAccess=True)
    exactly = look["spec"]["devices"]["requests"][0]["exactly"]
    exactly |= {"allocationMode": "All"}
    del exactly["count"]
    for claim in (wanting("one"), wanting("shared"), wanting("two", count=2), look):
        cluster.create(claim)
    with exporter(cluster.kubeconfig, tmp_path) as all_nodes, agent(cluster, root) as here:
        given = schedule(
            cluster,
            user("a", main="one"),
            user("b", main="shared"),
            user("c", main="shared", side="shared"),
            user("d", main="two"),
            user("watcher", main="look"),
        )
        assert len(given["look"]) == 4
        agree(here, all_nodes, holders=5)  # a, b, c, and d twice
        uuid_of = {f"gpu-{number}": one for number, one in enumerate(uuids)}
        ((one,), (shared,), two) = ([uuid_of[name] for name in given[claim]] for claim in ("one", "shared", "two"))
        comes_to_show(
            here,
            {
                ("a", "main", one, "exclusive"),
                ("b", "main", shared, "time-slicing"),
                ("c", "main", shared, "time-slicing"),
                ("c", "side", shared, "time-slicing"),
                *(("d", "main", gpu, "exclusive") for gpu in two),
            },
        )
        here.until(lambda page: page.one(m.SOURCE_UP.name, source="claims") == 1)
        cluster.delete("pods", "b", namespace="ml")
        cluster.delete("pods", "a", namespace="ml")
        free = {"status": {"allocation": None, "reservedFor": None}}
        cluster.patch("resourceclaims", "one", free, namespace="ml", subresource="status")
        agree(here, all_nodes, holders=3)


@contextmanager
def two_requests(
    cluster: ControlPlane, root: NodeRoot, tmp_path: Path, **containers: str
) -> Iterator[tuple[RunningAgent, str, str]]:
    """A pod whose claim has two requests: the agent, and the GPU of each request."""
    uuids = four_gpus(cluster)
    for slot, one in enumerate(uuids):
        root.nvml.gpu(slot, uuid=one)
    gpu_class(cluster)
    both = wanting("both")
    requests = both["spec"]["devices"]["requests"]
    requests.append({**copy.deepcopy(requests[0]), "name": "second"})
    cluster.create(both)
    with exporter(cluster.kubeconfig, tmp_path) as all_nodes, agent(cluster, root) as here:
        schedule(cluster, user("a", **containers))
        agree(here, all_nodes, holders=2)
        claim = cluster.get("resourceclaims", "both", namespace="ml")
        results = {one["request"]: one["device"] for one in claim["status"]["allocation"]["devices"]["results"]}
        uuid_of = {f"gpu-{number}": one for number, one in enumerate(uuids)}
        yield here, uuid_of[results["gpu"]], uuid_of[results["second"]]


def test_a_container_has_the_devices_of_its_own_request(cluster, root, tmp_path):
    with two_requests(cluster, root, tmp_path, main="both/gpu", side="both/second") as (here, first, second):
        comes_to_show(here, {("a", "main", first, "exclusive"), ("a", "side", second, "exclusive")})


def test_a_device_of_a_request_that_no_container_uses_is_the_pods(cluster, root, tmp_path):
    with two_requests(cluster, root, tmp_path, main="both/gpu") as (here, first, second):
        comes_to_show(here, {("a", "main", first, "exclusive"), ("a", "", second, "exclusive")})


def test_a_gpu_requested_as_an_extended_resource_and_allocated_by_a_claim(cluster, root, tmp_path):
    uuids = four_gpus(cluster)
    for slot, one in enumerate(uuids):
        root.nvml.gpu(slot, uuid=one)
    selector = {"cel": {"expression": f'device.driver == "{NVIDIA}"'}}
    spec = {"selectors": [selector], "extendedResourceName": "nvidia.com/gpu"}
    cluster.create({"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": spec})
    with exporter(cluster.kubeconfig, tmp_path) as all_nodes, agent(cluster, root) as here:
        schedule(cluster, pod("a", containers=("main", "side"), limits={"nvidia.com/gpu": "1"}))
        agree(here, all_nodes, holders=2)
        (claim,) = cluster.list("resourceclaims", namespace="ml")
        results = {one["request"]: one["device"] for one in claim["status"]["allocation"]["devices"]["results"]}
        status = cluster.get("pods", "a", namespace="ml")["status"]["extendedResourceClaimStatus"]
        uuid_of = {f"gpu-{number}": one for number, one in enumerate(uuids)}
        comes_to_show(
            here,
            {
                ("a", one["containerName"], uuid_of[results[one["requestName"]]], "exclusive")
                for one in status["requestMappings"]
            },
        )


def test_devices_of_a_slice_that_names_a_node_for_each_of_them(cluster, root, tmp_path):
    (made,) = copy.deepcopy(recorded("nvidia_gpus.json"))
    del made["spec"]["nodeName"]
    made["spec"] |= {"perDeviceNodeSelection": True}
    made["spec"]["pool"]["name"] = "rack"
    for device, name in zip(made["spec"]["devices"], ("n2", "n1"), strict=True):
        device["nodeName"] = name
    cluster.create(made)
    uuids = [device["attributes"]["uuid"]["string"] for device in made["spec"]["devices"]]
    root.nvml.gpu(0, uuid=uuids[1])  # by its name, gpu-1, it would be the one with minor number 1
    whole = copy.deepcopy(recorded("claims.json")[0])
    whole["status"]["allocation"]["devices"]["results"][0] |= {"pool": "rack", "device": "gpu-1"}
    cluster.create(whole)
    bound = user("train", main="whole")
    bound["spec"]["nodeName"] = "n1"
    give(cluster, whole, [cluster.create(bound)])
    with exporter(cluster.kubeconfig, tmp_path) as all_nodes, agent(cluster, root) as here:
        agree(here, all_nodes, holders=1)
        comes_to_show(here, {("train", "main", uuids[1], "exclusive")})


# --- MIG --------------------------------------------------------------------------------------------------------------


def test_instances_that_existed_before_the_driver_started(cluster, root, tmp_path):
    publish(cluster, "nvidia_static_mig.json")
    (made,) = recorded("nvidia_static_mig.json")
    root.nvml.gpu(0, uuid=SECOND).gpu(1, uuid=GPU)  # the driver's name says GPU 0
    uuid_of = {one["name"]: one["attributes"]["uuid"]["string"] for one in made["spec"]["devices"]}
    for index, (name, one) in enumerate(uuid_of.items()):
        profile, number, start = name.split("-")[3:6]
        dotted = profile.replace("g", "g.", 1)
        root.nvml.mig(1, index, gi=index + 7, profile=dotted, uuid=one, placed=(int(number), int(start)))
    gpu_class(cluster)
    for name in ("c", "d"):
        cluster.create(wanting(name))
    with exporter(cluster.kubeconfig, tmp_path) as all_nodes, agent(cluster, root) as here:
        given = schedule(cluster, user("a", main="c"), user("b", main="d"), user("e", main="d"))
        agree(here, all_nodes, holders=3)
        comes_to_show(
            here,
            {
                ("a", "main", uuid_of[given["c"][0]], "mig"),
                ("b", "main", uuid_of[given["d"][0]], "mig"),
                ("e", "main", uuid_of[given["d"][0]], "mig"),
            },
        )
        (gpu,) = at_cluster(all_nodes)["devices"]
        assert {one["instance"]["mig"] for one in gpu["instances"]} == {mig for _, _, mig, _ in containers(here)}


def test_instances_that_the_driver_makes_for_a_claim_and_removes_after_it(cluster, root, tmp_path):
    publish(cluster, "nvidia_dynamic_mig.json")
    root.nvml.gpu(0, uuid=SECOND).gpu(1, uuid=GPU, mig_mode=1)
    gpu_class(cluster, type_="mig")
    for name in "cd":
        cluster.create(wanting(name))

    def start_of(claim: str) -> int:
        return int(given[claim][0].rpartition("-")[2])

    def make(index: int, claim: str) -> str:
        """As NVIDIA's driver does when the kubelet prepares the claim."""
        number, start = (int(word) for word in given[claim][0].split("-")[4:])
        one = f"MIG-{uuid.uuid4()}"
        profile = {19: "1g.10gb", 9: "3g.40gb"}[number]
        root.nvml.mig(1, index, gi=index + 3, profile=profile, uuid=one, placed=(number, start)).write()
        return one

    with exporter(cluster.kubeconfig, tmp_path) as all_nodes, agent(cluster, root) as here:
        given = schedule(cluster, user("a", main="c"), user("b", main="d"))
        made = {"a": make(0, "c"), "b": make(1, "d")}
        agree(here, all_nodes, holders=2)
        comes_to_show(here, {(name, "main", mig, "mig") for name, mig in made.items()})
        (gpu,) = at_cluster(all_nodes)["devices"]
        placed = {(one["pod"], one["instance"]["start"]) for one in gpu["instances"]}
        assert placed == {("a", start_of("c")), ("b", start_of("d"))}
        cluster.delete("pods", "a", namespace="ml")
        free = {"status": {"allocation": None, "reservedFor": None}}
        cluster.patch("resourceclaims", "c", free, namespace="ml", subresource="status")
        root.nvml.unmig(1, 0).write()
        agree(here, all_nodes, holders=1)
        comes_to_show(here, {("b", "main", made["b"], "mig")})


# --- HAMi -------------------------------------------------------------------------------------------------------------


def test_shares_by_hamis_driver_and_their_memory(cluster, root, tmp_path):
    publish(cluster, "hami_core.json")
    root.nvml.gpu(0, uuid=SECOND).gpu(1, uuid=GPU)  # the driver's name says GPU 0
    gpu_class(cluster, HAMI)
    for name, memory in {"c": "10Gi", "d": "4Gi", "e": "6Gi"}.items():
        cluster.create(wanting(name, capacity={"requests": {"cores": "20", "memory": memory}}))
    with exporter(cluster.kubeconfig, tmp_path) as all_nodes, agent(cluster, root) as here:
        schedule(cluster, user("a", main="c"), user("b", main="d"), user("f", main="e"), user("g", main="e"))
        agree(here, all_nodes, holders=4)
        limits = {"a": 10 * GIB, "b": 4 * GIB, "f": 6 * GIB, "g": 6 * GIB}
        here.wait(lambda: {one["key"]["pod"]: one["memory_total"] for one in at_agent(here)} == limits)
        counted = {one["pod"]: one["memory"] for one in at_cluster(all_nodes)["holders"]}
        # each of two pods that share a claim may use all of it, and counts with half of it
        assert counted == {"a": 10 * GIB, "b": 4 * GIB, "f": 3 * GIB, "g": 3 * GIB}
        assert {mode for *_, mode in containers(here)} == {"hami"}


# --- what goes wrong --------------------------------------------------------------------------------------------------


def test_a_slice_of_an_older_generation_and_one_of_another_node_are_not_believed(cluster, root, tmp_path):
    (old,) = recorded("nvidia_gpus.json")
    new, far = copy.deepcopy(old), copy.deepcopy(old)
    new["metadata"]["name"], far["metadata"]["name"] = "a-newer", "zz-far"
    new["spec"]["pool"]["generation"] = 2
    uuids = [GPU, SECOND]
    for device, one in zip(new["spec"]["devices"], reversed(uuids), strict=True):
        device["attributes"]["uuid"]["string"] = one
    far["spec"] |= {"nodeName": "n2", "pool": {"name": "n2", "generation": 9, "resourceSliceCount": 1}}
    for one in (old, new, far):
        cluster.create(one)
    for slot, one in enumerate(uuids):
        root.nvml.gpu(slot, uuid=one)
    whole = recorded("claims.json")[0]  # gpu-0
    cluster.create(whole)
    bound = user("train", main="whole")
    bound["spec"]["nodeName"] = "n1"
    give(cluster, whole, [cluster.create(bound)])
    with exporter(cluster.kubeconfig, tmp_path) as all_nodes, agent(cluster, root) as here:
        agree(here, all_nodes, holders=1)
        comes_to_show(here, {("train", "main", SECOND, "exclusive")})


def test_without_the_rights_devices_are_identified_by_their_names_and_the_agent_says_so(cluster, root):
    uuids = four_gpus(cluster)
    for slot, one in enumerate(uuids):
        root.nvml.gpu(slot, uuid=one)
    gpu_class(cluster)
    cluster.create(wanting("c"))
    with agent(cluster, root, {"pods": ["list", "watch"]}) as here:
        given = schedule(cluster, user("a", main="c"))
        name = given["c"][0]
        comes_to_show(here, {("a", "main", uuids[int(name.rpartition("-")[2])], "exclusive")})
        here.wait(lambda: claims_source(here)["code"] == "KUBE_FORBIDDEN")
        state = claims_source(here)
        assert (state["up"], state["absent"]) == (False, False)
        assert "resourceslices" in state["message"]
        assert here.status("/readyz") == 200  # an agent that was updated before its role goes on
