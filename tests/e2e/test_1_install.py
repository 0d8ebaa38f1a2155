"""The chart as README installs it: agent, cluster exporter, analyzer."""

import json

import pytest

from tests.e2e.product import NAMESPACE, Product
from tests.native.scenario import GIB, gpu_uuid
from tools.cluster import layout

pytestmark = pytest.mark.e2e

AGENT, EXPORTER, ANALYZER = ("agent", 9394), ("cluster", 31993), ("analyzer", 8080)


def test_all_pods_are_ready_and_none_was_restarted(product: Product) -> None:
    pods = product.pods()
    assert sorted(pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in pods) == [
        "agent",
        "analyzer",
        "cluster",
    ]
    for pod in pods:
        for status in pod["status"]["containerStatuses"]:
            assert (status["ready"], status["restartCount"]) == (True, 0), pod["metadata"]["name"]


def test_the_agent_sees_the_gpus_of_the_driver_and_no_others(product: Product) -> None:
    gpus = {sample.labels["gpu_uuid"] for sample in product.samples(*AGENT, "vgpuscope_gpu_info")}
    assert gpus == {gpu_uuid(slot) for slot in range(4)}


def test_a_process_belongs_to_the_container_that_it_runs_in(product: Product) -> None:
    """Of two pods with two containers each, the driver lists the process of one: its memory is that container's."""
    _two_pods(product)
    target = product.container("second", "b")
    product.driver.gpu(0, memory_used=3 * GIB).process(0, target.pid, memory=3 * GIB).write()
    used = product.wait(
        "the container's memory", lambda: product.samples(*AGENT, "vgpuscope_container_memory_used_bytes")
    )
    assert [(s.labels["namespace"], s.labels["pod"], s.labels["container"], s.value) for s in used] == [
        ("ml", "second", "b", 3 * GIB)
    ]
    assert used[0].labels["pod_uid"] == product.pod("second")["metadata"]["uid"]
    assert used[0].labels["gpu_uuid"] == gpu_uuid(0)


def test_a_process_of_the_host_is_no_containers(product: Product) -> None:
    """The kubelet's own pid on a GPU: its memory is the system's."""
    pid = product.cluster.program_pid("kubelet")
    product.driver.gpu(1, memory_used=GIB).process(1, pid, memory=GIB).write()

    def ledger() -> dict[str, float]:
        name = "vgpuscope_gpu_memory_ledger_bytes"
        return {s.labels["owner"]: s.value for s in product.samples(*AGENT, name, gpu_uuid=gpu_uuid(1))}

    product.wait("the ledger of GPU 1", lambda: ledger().get("system") == GIB)
    product.driver.empty(1).gpu(1, memory_used=0).write()


def test_a_container_that_ended_has_no_series_any_more(product: Product) -> None:
    _two_pods(product)
    target, name = product.container("second", "b"), "vgpuscope_container_memory_used_bytes"
    product.driver.gpu(0, memory_used=3 * GIB).process(0, target.pid, memory=3 * GIB).write()
    product.wait("its series", lambda: product.samples(*AGENT, name, pod="second"))
    product.remove("second")
    product.driver.empty(0).gpu(0, memory_used=0).write()
    product.wait("no series", lambda: not product.samples(*AGENT, name, pod="second"))
    product.remove("first")


def test_the_analyzer_finds_the_agent_and_the_exporter(product: Product) -> None:
    """The agent by the endpoints of its Service, the exporter by its name in the cluster's DNS."""
    wanted = {gpu_uuid(slot) for slot in (0, 1, 2)}

    def gpus() -> set[str]:
        return {row["gpu_id"] for row in json.loads(product.page(*ANALYZER, "/api/v1/gpus"))["rows"]}

    product.wait("the analyzer's GPUs", lambda: wanted <= gpus())
    fleet = json.loads(product.page(*ANALYZER, "/api/v1/doctor"))
    states = {service["service"]: service["state"] for service in fleet["services"]}
    assert (states["agent"], states["cluster"]) == ("answered", "answered")


def test_no_request_of_the_product_was_forbidden(product: Product) -> None:
    """Before doctor is run here, which tries out what the caller may do."""
    refused = [e for e in product.audit() if e.get("responseStatus", {}).get("code") == 403]
    assert [(e["user"]["username"], e["verb"], e["requestURI"]) for e in refused] == []


def test_doctor_in_the_cluster_finds_nothing_broken(product: Product) -> None:
    words = ("-n", NAMESPACE, "exec", "deploy/vgpuscope-analyzer", "--", "vgpuscope", "doctor", "--json")
    report = json.loads(product.cluster.kubectl(*words, check=False).stdout)
    assert report["counts"]["fail"] == 0, [f for f in report["findings"] if f["status"] == "fail"]
    assert report["counts"]["pass"] > 30


def _two_pods(product: Product) -> None:
    for name in ("first", "second"):
        product.run(_plain_pod(name))


def _plain_pod(name: str) -> dict:
    command = {"image": layout.WORK_IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "86400"]}
    spec = {"containers": [{"name": "a", **command}, {"name": "b", **command}], "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ml"}, "spec": spec}
