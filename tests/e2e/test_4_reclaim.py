"""GPUs that are taken back for real: the analyzer with the rights that the chart gives it."""

import json
import urllib.request
from typing import Any

import pytest

from tests.e2e.product import NAMESPACE, Product, gpu_pod

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("reclaiming", "no_pods_left")]

GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
TOKEN = "a-token-of-this-test"
FAST: dict[str, Any] = {
    "prometheus": {"time_window_min": 1},
    "scheduler": {"interval": 15},
    "analyzer": {"scrape_interval": 5},
    "kube": {"enabled": True},
    "control": {"enabled": True, "dry_run": False},
    "reclaim": {
        "action": "scale",
        "confirmations": 1,
        "grace": 10,
        "min_pod_age": 30,
        "notify_first": False,
        "include_held": True,
        "max_fleet_share": 1.0,
        "max_per_hour": 100,
        "max_per_namespace": 100,
    },
}


@pytest.fixture(scope="session")
def reclaiming(scheduling: Product) -> Product:
    """Reclaim acts, within two minutes instead of hours."""
    words = ("-n", NAMESPACE, "create", "secret", "generic", "vgpuscope-api", f"--from-literal=token={TOKEN}")
    scheduling.cluster.kubectl(*words, check=False)
    scheduling.upgraded(values={"config": FAST})
    scheduling.wait("the analyzer", lambda: scheduling.ready("analyzer", 8080))
    return scheduling


def test_an_idle_deployment_is_scaled_down_and_back(reclaiming: Product) -> None:
    reclaiming.cluster.apply(_deployment("notebook"))
    reclaiming.wait("its container", lambda: _pod_of(reclaiming, "notebook"))
    reclaiming.holds_idle(_pod_of(reclaiming, "notebook"))
    reclaiming.wait("scaled to 0", lambda: _replicas(reclaiming, "notebook") == 0, within=400)
    reclaiming.wait("the kubelet has the GPU back", lambda: not reclaiming.pod_resources())
    (case,) = [case for case in _cases(reclaiming) if case["restorable"]]
    _post(reclaiming, f"/api/v1/reclaim/{case['id']}/restore")
    reclaiming.wait("scaled back", lambda: _replicas(reclaiming, "notebook") == 1)


def test_a_bare_pod_is_evicted_unless_its_budget_forbids_it(reclaiming: Product) -> None:
    """Two idle pods; one is in a PodDisruptionBudget that allows no disruption."""
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}
    meta = {"name": "kept", "namespace": "ml"}
    reclaiming.cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}},
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": budget},
    )
    kept = gpu_pod("kept", containers={"main": {GPU: 1, MEMORY: 1000}})
    kept["metadata"]["labels"] = {"app": "kept"}
    reclaiming.run(kept)
    reclaiming.run(gpu_pod("bare", containers={"main": {GPU: 1, MEMORY: 1000}}))
    for name in ("kept", "bare"):
        reclaiming.holds_idle(name)
    reclaiming.wait("evicted", lambda: not _exists(reclaiming, "bare"), within=400)
    reclaiming.wait("the budget was asked", lambda: _evictions(reclaiming, "kept"), within=200)
    assert {e["responseStatus"]["code"] for e in _evictions(reclaiming, "kept")} == {429}
    assert reclaiming.is_ready("kept")


def _deployment(name: str) -> dict[str, Any]:
    pod = gpu_pod(name, containers={"main": {GPU: 1, MEMORY: 6000}})
    template = {
        "metadata": {"labels": {"app": name}, "annotations": pod["metadata"]["annotations"]},
        "spec": pod["spec"],
    }
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "ml"}, "spec": spec}


def _pod_of(product: Product, name: str) -> str:
    return next((c.pod for c in product.containers() if c.namespace == "ml" and c.pod.startswith(name)), "")


def _replicas(product: Product, name: str) -> int:
    return int(product.cluster.get("deployment", name, "-n", "ml")["spec"]["replicas"])


def _exists(product: Product, pod: str) -> bool:
    return product.cluster.kubectl("-n", "ml", "get", "pod", pod, check=False).returncode == 0


def _evictions(product: Product, pod: str) -> list[dict[str, Any]]:
    return [e for e in product.audit() if f"/pods/{pod}/eviction" in e["requestURI"]]


def _cases(product: Product) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads(product.page("analyzer", 8080, "/api/v1/reclaim"))["cases"]
    return cases


def _post(product: Product, path: str) -> None:
    address = product.pods("analyzer")[0]["status"]["podIP"]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    request = urllib.request.Request(f"http://{address}:8080{path}", method="POST", headers=headers)
    urllib.request.urlopen(request, timeout=30).close()
