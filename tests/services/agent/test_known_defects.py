"""What a former exporter of this kind got wrong, seen in runs of it: each is a law here.

The exporter is k8s-vgpu-monitor (C++), whose metric names the `pod` family keeps.
"""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest
import yaml

from tests.native.scenario import GIB, gpu_uuid
from tests.paths import REPOSITORY
from tests.services.agent.noderoot import NodeRoot, Samples
from vgpuscope.catalog import agent as m
from vgpuscope.sim.podresources import Granted, list_response

REPO = REPOSITORY
A, B = gpu_uuid(0), gpu_uuid(1)


@pytest.fixture
def node(tmp_path):
    made = NodeRoot(tmp_path)
    made.nvml.gpu(0, memory_total=16 * GIB, memory_used=4 * GIB, utilization=50)
    made.nvml.gpu(1, memory_total=80 * GIB, memory_used=2 * GIB, utilization=50)
    return made


def busy(node, pid, pod, *, slot=0, memory=GIB, sm=20, container="main", **more):
    """A pod with a process on a GPU."""
    uid = node.pod(pod, *more.pop("containers", ("main",)), **more)
    node.nvml.process(slot, pid, memory=memory).sample(slot, pid, sm=sm)
    node.process(pid, uid, container)
    return uid


@contextmanager
def kubelet(path, grants):
    """A kubelet's PodResources socket, by Google's own gRPC server."""
    method = grpc.unary_unary_rpc_method_handler(lambda *_: list_response(grants))
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": method}),))
    server.add_insecure_port(f"unix://{path}")
    server.start()
    try:
        yield path
    finally:
        server.stop(0).wait()


def given(pod, *devices, container="main"):
    return [
        Granted(namespace="ml", pod=pod, container=container, resource="nvidia.com/gpu", device_ids=(d,))
        for d in devices
    ]


# 1. the shipped manifest did not name the node
def test_the_shipped_manifest_names_the_node_and_mounts_what_the_agent_reads():
    documents = list(yaml.safe_load_all((REPO / "deploy" / "agent.yaml").read_text()))
    (daemon,) = [d for d in documents if d["kind"] == "DaemonSet"]
    (agent,) = daemon["spec"]["template"]["spec"]["containers"]
    names = {e["name"]: e for e in agent["env"]}
    assert names["NODE_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    assert daemon["spec"]["template"]["spec"]["hostPID"] is True
    mounts = {v["mountPath"]: v for v in agent["volumeMounts"]}
    assert set(mounts) == {"/etc/vgpuscope", "/host/cgroup", "/host/usr/local", "/var/lib/kubelet/pod-resources"}
    assert all(v["readOnly"] for v in mounts.values())
    (role,) = [d for d in documents if d["kind"] == "ClusterRole"]
    assert {(kind, verb) for rule in role["rules"] for kind in rule["resources"] for verb in rule["verbs"]} == {
        ("pods", "list"),
        ("pods", "watch"),
        ("resourceslices", "list"),
        ("resourceclaims", "get"),
    }


# 2. a container that was gone, or had no NVIDIA_VISIBLE_DEVICES, ended the process
def test_a_process_that_is_gone_before_it_can_be_looked_up_ends_nothing(node):
    node.nvml.process(0, 4711, memory=GIB).sample(0, 4711, sm=5)
    busy(node, 12, "train")
    page = Samples.of(node.once())
    assert page.one(m.CONTAINER_MEMORY_USED.name, pod="train") == GIB
    assert page.one(m.GPU_MEMORY_LEDGER.name, gpu_uuid=A, owner="unattributed") == 3 * GIB


# 3. ratios of 0 and 0.5: see test_agent.py


# 4. containerd and CRI-O were not understood
@pytest.mark.parametrize(
    "scope", ["cri-containerd-{id}.scope", "crio-{id}.scope/container", "docker-{id}.scope", "{id}"]
)
def test_every_runtime_is_understood(node, scope):
    uid = busy(node, 12, "train")
    text = (node.proc / "12" / "cgroup").read_text()
    head, _, tail = text.strip().rpartition("/")
    name = tail.removeprefix("cri-containerd-").removesuffix(".scope")
    (node.proc / "12" / "cgroup").write_text(f"{head}/{scope.format(id=name)}\n")
    assert uid
    assert Samples.of(node.once()).one(m.CONTAINER_MEMORY_USED.name, pod="train", container="main") == GIB


# 5. a hanging API server stopped everything, and old values were served as fresh
def test_a_hanging_api_server_costs_the_names_only(node):
    busy(node, 12, "train")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        accepted: list[socket.socket] = []
        threading.Thread(target=lambda: accepted.append(silent.accept()[0]), daemon=True).start()
        kubeconfig = node.path / "kubeconfig"
        kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "c",
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                    "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{silent.getsockname()[1]}"}}],
                    "users": [{"name": "u", "user": {"token": "secret-token-of-the-test"}}],
                }
            )
        )
        with node.agent("--pods", "kube", "--kubeconfig", str(kubeconfig)) as agent:
            first = agent.page()
            assert first.one(m.SOURCE_UP.name, source="pods") == 0
            assert first.one(m.GPU_UTILIZATION.name, gpu_uuid=A) == 0.5
            node.nvml.gpu(0, utilization=70).write()
            agent.until(lambda page: page.one(m.GPU_UTILIZATION.name, gpu_uuid=A) == 0.7)
            assert "secret-token-of-the-test" not in agent.log.read_text()
        for connection in accepted:
            connection.close()


# 6. pods of the same name in two namespaces were one; no namespace, node or UUID
def test_pods_of_one_name_in_two_namespaces_are_two(node):
    busy(node, 12, "train", memory=GIB)
    busy(node, 13, "train", memory=2 * GIB, namespace="other")
    page = Samples.of(node.once("--families", "pod,native"))
    assert page.one("pod_gpu_memory_used", pod="train", namespace="ml", gpu_id="0") == 1024
    assert page.one("pod_gpu_memory_used", pod="train", namespace="other", gpu_id="0") == 2048
    labels = page.named(m.POD_MEMORY_USED.name)[0][0]
    assert {"node", "gpu_uuid", "pod_uid", "namespace"} <= labels.keys()


def test_the_gpu_id_is_the_drivers_index_not_the_pods(node):
    busy(node, 12, "train", slot=1)
    assert Samples.of(node.once("--families", "pod")).one("pod_gpu_memory_used", pod="train", gpu_id="1") == 1024


# 7. NVIDIA_VISIBLE_DEVICES=all showed 0; a GPU given twice halved the memory and doubled the SM use
def test_a_pod_that_sees_all_gpus_without_being_given_one_is_shown(node):
    busy(node, 12, "privileged", sm=30)
    page = Samples.of(node.once("--families", "pod"))
    assert page.one("pod_gpu_sm_util", pod="privileged") == 30
    assert page.one("pod_gpu_memory_used", pod="privileged") == 1024


def test_two_replicas_of_one_gpu_neither_halve_nor_double(node):
    busy(node, 12, "train", memory=GIB, sm=24)
    with kubelet(node.path / "kubelet.sock", given("train", f"{A}::0", f"{A}::1")) as path:
        page = Samples.of(node.once("--families", "pod,native", "--podresources-socket", str(path)))
    assert page.one("pod_gpu_memory_used", pod="train") == 1024
    assert page.one("pod_gpu_sm_util", pod="train") == 24
    assert page.one(m.GPU_MODE.name, gpu_uuid=A, mode="time-slicing") == 1


def test_a_whole_gpu_carries_its_holders_name_and_no_second_series(node):
    busy(node, 12, "train", memory=GIB, sm=45)
    with kubelet(node.path / "kubelet.sock", given("train", A)) as path:
        page = Samples.of(node.once("--families", "all", "--podresources-socket", str(path)))
    ((labels, value),) = page.named("DCGM_FI_DEV_GPU_UTIL", UUID=A)
    assert (labels["pod"], labels["namespace"], value) == ("train", "ml", 50)
    assert page.one(m.SOURCE_UP.name, source="podresources") == 1


def test_a_whole_gpu_of_our_own_plugin_has_its_holder_too(node):
    """With split count 1 our plugin offers `<uuid>-0`, and serves pods that no scheduler of HAMi's kind has placed."""
    busy(node, 12, "train", memory=GIB, sm=45)
    with kubelet(node.path / "kubelet.sock", given("train", f"{A}-0")) as path:
        page = Samples.of(node.once("--families", "all", "--podresources-socket", str(path)))
    ((labels, _),) = page.named("DCGM_FI_DEV_GPU_UTIL", UUID=A)
    assert (labels["pod"], labels["namespace"]) == ("train", "ml")
    assert page.one(m.GPU_MODE.name, gpu_uuid=A, mode="exclusive") == 1


# 8. one lost GPU ended the cycle; GPU 0's total stood for all; SM use above 100; one container per pod
def test_a_lost_gpu_before_the_others_ends_nothing(node):
    busy(node, 12, "train", slot=1)
    node.nvml.lost(0)
    assert Samples.of(node.once("--families", "pod")).one("pod_gpu_memory_used", pod="train", gpu_id="1") == 1024


def test_the_total_is_that_of_the_pods_own_gpu(node):
    busy(node, 12, "small", slot=0)
    busy(node, 13, "large", slot=1)
    page = Samples.of(node.once("--families", "pod", "--ratio", "2"))
    assert page.one("pod_total_gpu_memory", pod="small") == 8192
    assert page.one("pod_total_gpu_memory", pod="large") == 40960


def test_a_pod_never_uses_more_than_its_gpu(node):
    node.nvml.gpu(0, utilization=100)
    busy(node, 12, "train", sm=90)
    busy(node, 13, "other", sm=80)
    page = Samples.of(node.once("--families", "pod", "--ratio", "4"))
    assert sum(value for _, value in page.named("pod_gpu_sm_util")) == pytest.approx(100)


def test_every_container_of_a_pod_counts(node):
    uid = busy(node, 12, "train", containers=("one", "two"), container="one")
    node.nvml.process(0, 13, memory=2 * GIB)
    node.process(13, uid, "two")
    page = Samples.of(node.once())
    assert page.one(m.POD_MEMORY_USED.name, pod="train") == 3 * GIB
    assert page.one(m.CONTAINER_MEMORY_USED.name, container="two") == 2 * GIB
