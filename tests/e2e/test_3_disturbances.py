"""What goes away and comes back: kubelet, plugin, its socket, containerd, the API server, the whole node."""

import json
import time
import urllib.request
from typing import Any

import pytest

from tests.e2e.product import NAMESPACE, SHARES, Product, gpu_pod
from tools.cluster import layout
from tools.cluster.cluster import connects

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("no_pods_left")]

GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
PLUGIN = ("plugin", 9396)


def test_a_restart_of_the_kubelet_changes_nothing_for_running_pods(scheduling: Product) -> None:
    scheduling.run(gpu_pod("before", containers={"main": {GPU: 1, MEMORY: 1000}}))
    process, held = scheduling.container("before").pid, scheduling.pod_resources()["before", "main"]
    scheduling.cluster.stop_program("kubelet")
    scheduling.cluster.start_kubelet()
    _offers_everything(scheduling)
    scheduling.run(gpu_pod("after", containers={"main": {GPU: 1, MEMORY: 1000}}))
    assert scheduling.container("before").pid == process
    assert scheduling.pod_resources()["before", "main"] == held
    assert scheduling.pod_resources()["after", "main"] != held


def test_a_new_plugin_takes_over_what_the_old_one_gave(scheduling: Product) -> None:
    scheduling.run(gpu_pod("before", containers={"main": {GPU: 1, MEMORY: 1000}}))
    process, held = scheduling.container("before").pid, scheduling.pod_resources()["before", "main"]
    _replace_plugin(scheduling)
    scheduling.run(gpu_pod("after", containers={"main": {GPU: 1, MEMORY: 1000}}))
    assert scheduling.container("before").pid == process
    assert scheduling.pod_resources()["after", "main"] != held


def test_a_plugin_that_is_asked_to_end_does_so_at_once(scheduling: Product) -> None:
    """Not only when the kubelet kills it: the node has no plugin in the meantime."""
    began = time.monotonic()
    _replace_plugin(scheduling)
    assert time.monotonic() - began < 15


def test_a_plugin_whose_socket_is_removed_registers_again(scheduling: Product) -> None:
    sockets = layout.KUBELET / "device-plugins"
    (socket,) = [path for path in sockets.iterdir() if path.is_socket() and path.name != "kubelet.sock"]
    socket.unlink()
    scheduling.wait("a new socket", socket.exists)
    _offers_everything(scheduling)
    scheduling.run(gpu_pod("after", containers={"main": {GPU: 1, MEMORY: 1000}}))


def test_a_restart_of_containerd_changes_nothing(scheduling: Product) -> None:
    scheduling.run(gpu_pod("before", containers={"main": {GPU: 1, MEMORY: 1000}}))
    process = scheduling.container("before").pid
    scheduling.cluster.stop_program("containerd")
    scheduling.cluster.start_containerd()
    scheduling.run(gpu_pod("after", containers={"main": {GPU: 1, MEMORY: 1000}}))
    assert scheduling.container("before").pid == process
    assert scheduling.pod_resources().keys() == {("before", "main"), ("after", "main")}


def test_without_the_api_server_everything_goes_on_and_later_continues(scheduling: Product) -> None:
    scheduling.run(gpu_pod("before", containers={"main": {GPU: 1, MEMORY: 1000}}))
    restarts = _restarts(scheduling)
    address = scheduling.pods("agent")[0]["status"]["podIP"]
    scheduling.cluster.stop_program("kube-apiserver")
    end = time.monotonic() + 60

    def a_minute_has_passed() -> bool:
        with urllib.request.urlopen(f"http://{address}:9394/metrics", timeout=10) as page:
            assert b'pod="before"' in page.read(), "the agent forgot a container"
        return time.monotonic() > end

    try:
        scheduling.wait("a minute", a_minute_has_passed)
    finally:
        scheduling.cluster.start_apiserver()
    scheduling.wait(
        "API server", lambda: not scheduling.cluster.kubectl("get", "--raw", "/readyz", check=False).returncode
    )
    scheduling.wait(
        "its Service, for which kube-proxy has to come back, too", lambda: connects(str(layout.API_IP), 443), within=300
    )
    scheduling.run(gpu_pod("after", containers={"main": {GPU: 1, MEMORY: 1000}}))
    assert _restarts(scheduling) == restarts


def test_a_pod_that_fails_gives_its_gpu_back(scheduling: Product) -> None:
    failing = gpu_pod("fails", restartPolicy="Never")
    failing["spec"]["containers"][0]["command"] = ["false"]
    _fill(scheduling, "a", "b")
    scheduling.run(failing, ready=False)
    scheduling.wait("the pod failed", lambda: scheduling.pod("fails")["status"]["phase"] == "Failed")
    scheduling.run(gpu_pod("next"))


def test_a_pod_that_is_deleted_by_force_gives_its_gpu_back(scheduling: Product) -> None:
    _fill(scheduling, "a", "b", "c")
    scheduling.forced.add("b")  # the API server forgets it before its container has ended
    scheduling.cluster.kubectl("-n", "ml", "delete", "pod", "b", "--grace-period=0", "--force")
    scheduling.run(gpu_pod("next"))
    scheduling.wait("its container has ended", lambda: "b" not in {c.pod for c in scheduling.containers()})
    scheduling.forced.clear()


def test_pods_of_a_drained_node_start_again_later(scheduling: Product) -> None:
    scheduling.cluster.apply(_deployment("drained"))
    scheduling.wait("the Deployment", lambda: _ready(scheduling, "drained"))
    words = ("--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector=app=drained", "--timeout=120s")
    scheduling.cluster.kubectl("drain", layout.NODE, *words)
    try:
        scheduling.wait("everything is given back", lambda: not scheduling.pod_resources())
    finally:
        scheduling.cluster.kubectl("uncordon", layout.NODE)
    scheduling.wait("the Deployment again", lambda: _ready(scheduling, "drained"))


def test_after_a_restart_of_the_node_the_owners_pods_have_gpus_again(scheduling: Product) -> None:
    """All processes die, and the kubelet's checkpoint stays. Pods that it rejects too early are replaced."""
    scheduling.cluster.apply(_deployment("survivor", replicas=3))
    scheduling.wait("the Deployment", lambda: _ready(scheduling, "survivor", 3))
    scheduling.cluster.restart_node()
    _offers_everything(scheduling, within=400)
    scheduling.wait("the Deployment again", lambda: _ready(scheduling, "survivor", 3), within=400)
    running = {c.pod for c in scheduling.containers() if c.namespace == "ml"}
    assert {pod for pod, _ in scheduling.pod_resources()} == running
    scheduling.wait("all services", lambda: all(_pod_ready(pod) for pod in scheduling.pods()), within=400)


def _offers_everything(product: Product, *, within: float = 180) -> None:
    """The plugin follows the kubelet, and the node has all its shares."""

    def offers() -> bool:
        try:
            return product.ready(*PLUGIN) and product.allocatable() == SHARES
        except (OSError, json.JSONDecodeError):
            return False

    product.wait("all shares are offered", offers, within=within)


def _replace_plugin(product: Product) -> None:
    (old,) = product.pods("plugin")
    product.cluster.kubectl("-n", NAMESPACE, "delete", "pod", old["metadata"]["name"], "--timeout=120s")
    product.wait("a new plugin", lambda: [_pod_ready(pod) for pod in product.pods("plugin")] == [True])
    _offers_everything(product)


def _fill(product: Product, *names: str) -> None:
    for name in names:
        product.run(gpu_pod(name))


def _restarts(product: Product) -> dict[tuple[str, str], int]:
    """Of our own containers: a kube-scheduler ends itself when it loses its lease."""
    statuses = (
        (pod["metadata"]["name"], status) for pod in product.pods() for status in pod["status"]["containerStatuses"]
    )
    return {(pod, s["name"]): s["restartCount"] for pod, s in statuses if s["name"] != "kube-scheduler"}


def _pod_ready(pod: dict[str, Any]) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))


def _ready(product: Product, name: str, replicas: int = 1) -> bool:
    pods = product.cluster.get("pods", "-n", "ml", "-l", f"app={name}", "--field-selector=status.phase=Running")
    return sum(map(_pod_ready, pods)) == replicas


def _deployment(name: str, *, replicas: int = 1) -> dict[str, Any]:
    pod = gpu_pod(name, containers={"main": {GPU: 1, MEMORY: 1000}})
    template = {
        "metadata": {"labels": {"app": name}, "annotations": pod["metadata"]["annotations"]},
        "spec": pod["spec"],
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    meta = {"name": name, "namespace": "ml"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}
