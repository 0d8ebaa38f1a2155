"""GPUs that are taken back for real: the analyzer with the rights that the chart gives it, and owners of every kind.

All workloads exist from the start, because each of them takes the same minutes to become idle.
"""

import json
import threading
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.e2e.more.workloads import ML, deployment, is_ready, job, stateful_set
from tests.e2e.product import GPUS, NAMESPACE, Product, gpu_pod
from tests.native.scenario import GIB, gpu_uuid
from tools.cluster import layout

pytestmark = pytest.mark.e2e

GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
TOKEN = "a-token-of-this-test"
GRACE = 10
FAST = {
    "prometheus": {"time_window_min": 1},
    "scheduler": {"interval": 15},
    "analyzer": {"scrape_interval": 5},
    "kube": {"enabled": True},
    "control": {"enabled": True, "dry_run": False},
    "reclaim": {
        "action": "scale",
        "confirmations": 1,
        "grace": GRACE,
        "min_pod_age": 30,
        "notify_first": True,
        "include_held": True,
        "max_fleet_share": 1.0,
        "max_per_hour": 100,
        "max_per_namespace": 100,
        "breaker": {"share": 1.0, "least": 100},
    },
}
BUSY = 60  # percent of the SM time


class Inbox:
    """A receiver of notices on this machine, which pods can reach."""

    def __init__(self) -> None:
        self.notices: list[tuple[datetime, str]] = []
        inbox = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                inbox.notices.append((datetime.now().astimezone(), body.decode()))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer((str(layout.HOST_IP), 0), Handler)
        self.url = f"json://{layout.HOST_IP}:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def first(self, name: str) -> datetime | None:
        """When the first notice came that names a workload."""
        return next((at for at, body in self.notices if f"ml/{name}" in body), None)


@pytest.fixture(scope="module")
def inbox(scheduling: Product) -> Iterator[Inbox]:
    inbox = Inbox()
    yield inbox
    inbox.server.shutdown()
    inbox.server.server_close()


@pytest.fixture(scope="module")
def idle(scheduling: Product, inbox: Inbox) -> Iterator[Product]:
    """Reclaim acts, within minutes instead of hours. Nothing computes but one of two pods of a set."""
    kubectl = scheduling.cluster.kubectl
    kubectl(
        "-n", NAMESPACE, "create", "secret", "generic", "vgpuscope-api", f"--from-literal=token={TOKEN}", check=False
    )
    channels = json.dumps([{"name": "owners", "url": inbox.url, "operators": True}])
    words = ("create", "secret", "generic", "channels", "-n", NAMESPACE, f"--from-literal=channels={channels}")
    kubectl("apply", "-f", "-", given=kubectl(*words, "--dry-run=client", "-o", "yaml").stdout)
    variable = {"VGPUSCOPE_NOTIFY_CHANNELS": {"name": "channels", "key": "channels"}}
    scheduling.upgraded(values={"config": FAST, "analyzer": {"secretEnv": variable}})
    scheduling.wait("the analyzer", lambda: scheduling.ready("analyzer", 8080))
    limits: dict[str, Any] = {"containers": {"main": {GPU: 1, MEMORY: 1000}}}
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}
    kept = gpu_pod("kept", **limits)
    kept["metadata"]["labels"] = {"app": "kept"}
    scheduling.cluster.apply(
        ML,
        deployment("notebook", **limits),
        stateful_set("database", **limits),
        stateful_set("mixed", replicas=2, podManagementPolicy="Parallel", **limits),
        job("training", **limits),
        gpu_pod("bare", **limits),
        kept,
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "kept", "namespace": "ml"},
            "spec": budget,
        },
    )
    owned = {"notebook": 1, "database": 1, "mixed": 2, "training": 1}
    scheduling.wait("owned pods", lambda: all(is_ready(scheduling, name, pods) for name, pods in owned.items()))
    scheduling.wait("bare pods", lambda: all(scheduling.is_ready(name) for name in ("bare", "kept")))
    _compute(scheduling, busy="mixed-1")
    yield scheduling
    scheduling.upgraded(values={"config": {"control": {"enabled": False, "dry_run": True}}})
    kinds = "deployments,statefulsets,jobs,pods,poddisruptionbudgets"
    kubectl("-n", "ml", "delete", kinds, "--all", "--grace-period=1", "--timeout=120s")
    scheduling.with_gpus()
    scheduling.wait("the kubelet's records are empty", lambda: not scheduling.pod_resources())


def test_an_idle_deployment_is_scaled_down_and_back(idle: Product) -> None:
    idle.wait("scaled to 0", lambda: _spec(idle, "deployment", "notebook")["replicas"] == 0, within=400)
    idle.wait("the kubelet has the GPU back", lambda: not _holds(idle, "notebook"))
    _restore(idle, "notebook")
    idle.wait("scaled back", lambda: is_ready(idle, "notebook"))


def test_an_idle_stateful_set_is_scaled_down_and_back(idle: Product) -> None:
    idle.wait("scaled to 0", lambda: _spec(idle, "statefulset", "database")["replicas"] == 0, within=400)
    idle.wait("the kubelet has the GPU back", lambda: not _holds(idle, "database"))
    _restore(idle, "database")
    idle.wait("scaled back", lambda: is_ready(idle, "database"))


def test_an_idle_job_is_suspended_and_resumed(idle: Product) -> None:
    idle.wait("suspended", lambda: _spec(idle, "job", "training").get("suspend"), within=400)
    idle.wait("the kubelet has the GPU back", lambda: not _holds(idle, "training"))
    _restore(idle, "training")
    idle.wait("its pod again", lambda: is_ready(idle, "training"))
    assert _spec(idle, "job", "training")["suspend"] is False


def test_a_bare_pod_is_evicted_unless_its_budget_forbids_it(idle: Product) -> None:
    idle.wait("evicted", lambda: not _exists(idle, "bare"), within=400)
    idle.wait("the budget was asked", lambda: _evictions(idle, "kept"), within=200)
    assert {e["responseStatus"]["code"] for e in _evictions(idle, "kept")} == {429}
    assert idle.is_ready("kept")


def test_one_busy_pod_keeps_the_others_of_its_owner(idle: Product) -> None:
    """Everything else was taken meanwhile; nobody has asked to change this set."""
    case = next(case for case in _cases(idle) if case["pod"] == "mixed-0")
    assert case["held_by"] == "owner_in_use"
    assert _spec(idle, "statefulset", "mixed")["replicas"] == 2
    assert not [e for e in idle.audit() if e["verb"] == "patch" and e["objectRef"]["name"] == "mixed"]


@pytest.mark.parametrize("name", ["notebook", "database", "training", "bare"])
def test_the_owner_was_notified_a_grace_period_before(idle: Product, inbox: Inbox, name: str) -> None:
    """When the message came, by the receiver's clock; when the change came, by the API server's audit log."""
    notice = inbox.first(name)
    assert notice is not None, f"no notice names {name}: {inbox.notices}"
    (changed, *_) = (e for e in idle.audit() if _takes(e, name))
    at = datetime.fromisoformat(changed["requestReceivedTimestamp"])
    assert (at - notice).total_seconds() > GRACE


def _compute(product: Product, *, busy: str) -> None:
    """Every container has a process with some memory; the busy one's computes, all others' do not."""
    users: dict[int, int] = {}
    for container in product.containers():
        if container.namespace != "ml":
            continue
        slot = next(s for s in range(GPUS) if gpu_uuid(s) == container.environ["NVIDIA_VISIBLE_DEVICES"])
        users[slot] = users.get(slot, 0) + 1
        sm = BUSY if container.pod == busy else 0
        product.driver.process(slot, container.pid, memory=GIB).sample(slot, container.pid, sm=sm)
        product.driver.gpu(slot, memory_used=users[slot] * GIB)
        if sm:
            product.driver.gpu(slot, utilization=BUSY, power=250_000)
    product.driver.write()


def _restore(product: Product, name: str) -> None:
    """With the processes that are there then, which the driver lists."""
    case = next(case for case in _cases(product) if case["restorable"] and case["pod"].startswith(name))
    address = product.pods("analyzer")[0]["status"]["podIP"]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    url = f"http://{address}:8080/api/v1/reclaim/{case['id']}/restore"
    urllib.request.urlopen(urllib.request.Request(url, method="POST", headers=headers), timeout=30).close()


def _cases(product: Product) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads(product.page("analyzer", 8080, "/api/v1/reclaim"))["cases"]
    return cases


def _spec(product: Product, kind: str, name: str) -> dict[str, Any]:
    spec: dict[str, Any] = product.cluster.get(kind, name, "-n", "ml")["spec"]
    return spec


def _holds(product: Product, name: str) -> bool:
    return any(pod.startswith(name) for pod, _ in product.pod_resources())


def _exists(product: Product, pod: str) -> bool:
    return product.cluster.kubectl("-n", "ml", "get", "pod", pod, check=False).returncode == 0


def _evictions(product: Product, pod: str) -> list[dict[str, Any]]:
    return [e for e in product.audit() if f"/pods/{pod}/eviction" in e["requestURI"]]


def _takes(event: dict[str, Any], name: str) -> bool:
    """The analyzer changes this workload, or evicts this pod."""
    what = event.get("objectRef", {})
    changes = event["verb"] == "patch" or what.get("subresource") == "eviction"
    return bool(changes and what.get("name") == name and event["responseStatus"]["code"] < 300)
