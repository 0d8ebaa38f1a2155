"""What a tenant with rights in its own namespace can do to others, on a real API server, kubelet and controllers.

The tenant is the service account `tenant` of the namespace `ml`. It may create, change and bind pods there.
"""

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.more.workloads import deployment, running_pods
from tests.e2e.product import GPUS, NAMESPACE, Product, gpu_pod
from tests.e2e.test_4_reclaim import FAST, TOKEN
from tests.native.scenario import GIB, gpu_uuid
from tools.cluster import layout
from tools.cluster.errors import Failed

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("no_pods_left")]

GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
ACCOUNT = "system:serviceaccount:ml:tenant"
FORGED = {
    "hami.io/vgpu-node": layout.NODE,
    "hami.io/vgpu-time": "1700000000",
    "hami.io/bind-phase": "allocating",
    "hami.io/vgpu-devices-allocated": f"{gpu_uuid(0)},NVIDIA,40960,100:;",
    "hami.io/vgpu-devices-to-allocate": f"{gpu_uuid(0)},NVIDIA,40960,100:;",
}
RULES = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]},
    {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["get", "patch"]},
    {"apiGroups": [""], "resources": ["pods/binding", "bindings"], "verbs": ["create"]},
    {"apiGroups": ["apps"], "resources": ["deployments", "replicasets"], "verbs": ["*"]},
]


class Tenant:
    """kubectl with the token of the tenant's account."""

    def __init__(self, product: Product, kubeconfig: Path) -> None:
        self._product, self._kubeconfig = product, kubeconfig

    def kubectl(self, *words: str, given: Any = None) -> str:
        """The output; Failed with the API server's words if it refuses."""
        text = None if given is None else json.dumps(given)
        words = ("--kubeconfig", str(self._kubeconfig), "-n", "ml", *words)
        return self._product.cluster.kubectl(*words, given=text).stdout

    def create(self, item: dict[str, Any]) -> None:
        self.kubectl("create", "-f", "-", given=item)

    def patch(self, name: str, annotations: dict[str, str | None], *where: str) -> None:
        change = json.dumps({"metadata": {"annotations": annotations}})
        self.kubectl("patch", "pod", name, "--type=merge", "-p", change, *where)

    def bind(self, name: str, annotations: dict[str, str]) -> None:
        meta = {"name": name, "namespace": "ml", "annotations": annotations}
        target = {"apiVersion": "v1", "kind": "Node", "name": layout.NODE}
        item = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        self.kubectl("create", "--raw", f"/api/v1/namespaces/ml/pods/{name}/binding", "-f", "-", given=item)


@pytest.fixture
def tenant(scheduling: Product, tmp_path: Path) -> Tenant:
    cluster = scheduling.cluster
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}})
    meta = {"name": "tenant", "namespace": "ml"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"}
    cluster.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta, "rules": RULES},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": "ml"}],
        },
    )
    token = cluster.kubectl("-n", "ml", "create", "token", "tenant").stdout.strip()
    config = json.loads(cluster.kubectl("config", "view", "--raw", "-o", "json").stdout)
    config["users"] = [{"name": one["name"], "user": {"token": token}} for one in config["users"]]
    file = tmp_path / "tenant.kubeconfig"
    file.write_text(json.dumps(config))
    return Tenant(scheduling, file)


def denied(request: Any) -> None:
    with pytest.raises(Failed, match="ValidatingAdmissionPolicy") as error:
        request()
    assert ACCOUNT in str(error.value)


@contextmanager
def kubelet_held(product: Product) -> Iterator[None]:
    """The kubelet sees nothing of what happens in the block, and then all of it at once."""
    inside = product.cluster.program_pid("kubelet")
    assert inside is not None
    pid = product.cluster.node_pids()[inside]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def stranger(name: str, amount: int = 1) -> dict[str, Any]:
    """A pod that reaches the node without the scheduler."""
    return gpu_pod(name, containers={"main": {GPU: amount}}, nodeName=layout.NODE, schedulerName="default-scheduler")


def limit(product: Product, pod: str) -> str:
    return product.environment(pod)["CUDA_DEVICE_MEMORY_LIMIT_0"]


def directories() -> set[str]:
    """The UIDs of the pods that have a directory on the node."""
    place = layout.HOOK / "containers"
    return {path.name.rpartition("_")[0] for path in place.iterdir()} if place.exists() else set()


# ── annotations ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_tenant_writes_no_assignment_in_any_way(scheduling: Product, tenant: Tenant) -> None:
    forged = gpu_pod("forged", annotations=FORGED)
    denied(lambda: tenant.create(forged))
    denied(lambda: tenant.create(forged | {"spec": forged["spec"] | {"nodeName": layout.NODE}}))
    labelled = gpu_pod("labelled")
    labelled["metadata"]["labels"] = {"hami.io/webhook": "ignore", "hami.io/vgpu-node": layout.NODE}
    denied(lambda: tenant.create(labelled))
    tenant.create(gpu_pod("own", containers={"main": {GPU: 1, MEMORY: 1000}}))
    scheduling.wait("its own pod", lambda: scheduling.is_ready("own"))
    before = scheduling.pod("own")["metadata"]["annotations"]
    denied(lambda: tenant.patch("own", {"hami.io/vgpu-devices-allocated": FORGED["hami.io/vgpu-devices-allocated"]}))
    denied(lambda: tenant.patch("own", {"hami.io/vgpu-devices-allocated": None}))
    denied(lambda: tenant.patch("own", {"hami.io/bind-phase": "failed"}, "--subresource=status"))
    waiting = gpu_pod("waiting", schedulerName="nobody")
    tenant.create(waiting)
    denied(lambda: tenant.bind("waiting", FORGED))
    assert scheduling.pod("own")["metadata"]["annotations"] == before
    assert limit(scheduling, "own") == "1000m"


def test_a_controller_writes_none_for_a_tenant(scheduling: Product, tenant: Tenant) -> None:
    """The ReplicaSet's controller creates the pods, with rights of its own."""
    item = deployment("forger", containers={"main": {GPU: 1, MEMORY: 6000}})
    item["spec"]["template"]["metadata"]["annotations"] |= FORGED
    tenant.create(item)

    def refusals() -> list[str]:
        events = scheduling.cluster.get("events", "-n", "ml", "--field-selector", "reason=FailedCreate")
        return [one["message"] for one in events if one["involvedObject"]["name"].startswith("forger")]

    scheduling.wait("an event of the ReplicaSet", refusals)
    assert "may not write hami.io/" in refusals()[0]
    assert not [c.pod for c in scheduling.containers() if c.pod.startswith("forger")]


# ── the device plugin ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("first", ["stranger", "victim"])
def test_a_pod_that_reaches_the_node_by_its_name_gets_nothing_of_a_pending_allocation(
    scheduling: Product, tenant: Tenant, first: str
) -> None:
    """Both are on the node when the kubelet looks; it admits them in the order in which they were created."""
    share = gpu_pod("victim", containers={"main": {GPU: 1, MEMORY: 7000}})

    def placed() -> None:
        scheduling.run(share, ready=False)
        scheduling.wait("the victim is bound", lambda: scheduling.pod("victim")["spec"].get("nodeName"))

    with kubelet_held(scheduling):
        if first == "stranger":
            tenant.create(stranger("stranger"))
            scheduling.wait("a later second", lambda: created(scheduling, "stranger") < now(scheduling))
            placed()
        else:
            placed()
            scheduling.wait("a later second", lambda: created(scheduling, "victim") < now(scheduling))
            tenant.create(stranger("stranger"))
        assert scheduling.pod("victim")["metadata"]["annotations"]["hami.io/bind-phase"] == "allocating"
    scheduling.wait("the victim", lambda: scheduling.is_ready("victim"))
    scheduling.wait("the end of the stranger", lambda: scheduling.pod("stranger")["status"]["phase"] == "Failed")
    assert limit(scheduling, "victim") == "7000m"
    assert {name for name, _ in scheduling.pod_resources()} == {"victim"}
    uid = {name: scheduling.pod(name)["metadata"]["uid"] for name in ("victim", "stranger")}
    assert uid["victim"] in directories()
    assert uid["stranger"] not in directories()


def test_many_strangers_at_once_take_nothing_from_those_who_are_scheduled(scheduling: Product, tenant: Tenant) -> None:
    """Amounts differ, so that a share in the wrong container is seen."""
    victims = {f"victim-{number}": 1000 + number for number in range(5)}
    for number, (name, memory) in enumerate(victims.items()):
        tenant.create(stranger(f"stranger-{number}", amount=number % 2 + 1))
        scheduling.run(gpu_pod(name, containers={"main": {GPU: 1, MEMORY: memory}}), ready=False)
    scheduling.wait("the victims", lambda: all(scheduling.is_ready(name) for name in victims))
    assert {name: limit(scheduling, name) for name in victims} == {n: f"{memory}m" for n, memory in victims.items()}
    strangers = [f"stranger-{number}" for number in range(5)]
    scheduling.wait("the strangers", lambda: all(scheduling.pod(n)["status"]["phase"] == "Failed" for n in strangers))
    assert {name for name, _ in scheduling.pod_resources()} == set(victims)


def created(product: Product, pod: str) -> str:
    text: str = product.pod(pod)["metadata"]["creationTimestamp"]
    return text


def now(product: Product) -> str:
    """The API server's clock, in whole seconds like times of creation."""
    probe = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe", "namespace": "ml"}}
    words = ("create", "-f", "-", "--dry-run=server", "-o", "json")
    made = json.loads(product.cluster.kubectl(*words, given=json.dumps(probe)).stdout)
    text: str = made["metadata"]["creationTimestamp"]
    return text


# ── reclaim ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def reclaiming(scheduling: Product) -> Iterator[Product]:
    """Reclaim acts, within minutes instead of hours."""
    words = ("-n", NAMESPACE, "create", "secret", "generic", "vgpuscope-api", f"--from-literal=token={TOKEN}")
    scheduling.cluster.kubectl(*words, check=False)
    scheduling.upgraded(values={"config": FAST})
    scheduling.wait("the analyzer", lambda: scheduling.ready("analyzer", 8080))
    yield scheduling
    scheduling.upgraded(values={"config": {"control": {"enabled": False, "dry_run": True}}})


def compute(product: Product, *busy: str) -> None:
    """Every container has a process with some memory on each of its GPUs; only those of these pods compute."""
    users = dict.fromkeys(range(GPUS), 0)
    for container in product.containers():
        if container.namespace != "ml":
            continue
        for uuid in container.environ["NVIDIA_VISIBLE_DEVICES"].split(","):
            slot = next(slot for slot in users if gpu_uuid(slot) == uuid)
            users[slot] += 1
            sm = 90 if container.pod in busy else 0
            product.driver.process(slot, container.pid, memory=GIB).sample(slot, container.pid, sm=sm)
            product.driver.gpu(slot, memory_used=users[slot] * GIB)
            if sm:
                product.driver.gpu(slot, utilization=sm, power=300_000)
    product.driver.write()


def test_a_pod_that_names_the_deployment_of_another_as_its_owner_does_not_stop_it(
    reclaiming: Product, tenant: Tenant
) -> None:
    """The tenant's idle pod has the right name and UID of it; an idle pod without an owner shows when reclaim acts."""
    reclaiming.cluster.apply(deployment("web", containers={"main": {GPU: 1, MEMORY: 6000}}))
    reclaiming.wait("its pod", lambda: running_pods(reclaiming, "web"))
    (pod,) = running_pods(reclaiming, "web")
    uid = reclaiming.cluster.get("deployment", "web", "-n", "ml")["metadata"]["uid"]
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": uid, "controller": True}
    parasite = gpu_pod("parasite", containers={"main": {GPU: 2, MEMORY: 1000}})
    parasite["metadata"]["ownerReferences"] = [owner]
    tenant.create(parasite)
    reclaiming.run(gpu_pod("bare", containers={"main": {GPU: 1, MEMORY: 1000}}))
    reclaiming.wait("the parasite", lambda: reclaiming.is_ready("parasite"))
    compute(reclaiming, pod)
    reclaiming.wait("the idle pod is evicted", lambda: not is_there(reclaiming, "bare"), within=400)
    assert reclaiming.cluster.get("deployment", "web", "-n", "ml")["spec"]["replicas"] == 1
    assert running_pods(reclaiming, "web") == [pod]


def test_a_pod_of_the_same_name_is_not_taken_for_the_one_that_was_idle(reclaiming: Product) -> None:
    """The idle pod waits for an approval; until that comes, another pod has its name."""
    reclaim: dict[str, Any] = {**FAST["reclaim"], "approval": True}
    approving = {**FAST, "reclaim": reclaim}
    reclaiming.upgraded(values={"config": approving})
    try:
        reclaiming.run(gpu_pod("again", containers={"main": {GPU: 1, MEMORY: 1000}}))
        compute(reclaiming)
        uid = reclaiming.pod("again")["metadata"]["uid"]
        reclaiming.wait("a case", lambda: states(reclaiming).get(uid) == "awaiting_approval", within=400)
        reclaiming.remove("again")
        reclaiming.run(gpu_pod("again", containers={"main": {GPU: 1, MEMORY: 1000}}))
        compute(reclaiming, "again")
        assert approved(reclaiming, uid) in {200, 409}
        reclaiming.wait("the old case ends", lambda: states(reclaiming).get(uid) in {None, "released"}, within=200)
        assert reclaiming.is_ready("again")
        assert not [e for e in reclaiming.audit() if "/pods/again/eviction" in e["requestURI"]]
    finally:
        reclaiming.upgraded(values={"config": FAST})


def is_there(product: Product, pod: str) -> bool:
    return product.cluster.kubectl("-n", "ml", "get", "pod", pod, check=False).returncode == 0


def approved(product: Product, case: str) -> int:
    """The status of the answer."""
    address = product.pods("analyzer")[0]["status"]["podIP"]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    url = f"http://{address}:8080/api/v1/reclaim/{case}/approve"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="POST", headers=headers), timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as e:
        return e.code


def states(product: Product) -> dict[str, str]:
    """The state of each case by the UID of its pod."""
    cases = json.loads(product.page("analyzer", 8080, "/api/v1/reclaim"))["cases"]
    return {case["pod_uid"]: case["state"] for case in cases}
