"""What extender and device plugin may change of pods and nodes: annotations and labels of HAMi and vgpuscope.

RBAC gives `patch` on whole objects, also to whoever takes a token over. A ValidatingAdmissionPolicy limits it. The
judge is a real API server.
"""

from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any

import pytest

from tests.chart.cluster import Cluster
from tests.controlplane import ApiError, pod, until

pytestmark = pytest.mark.real
HERE, RELEASE, ACCOUNT = "policies", "vgpuscope", "vgpuscope-plugin"
POD, OTHER = f"/api/v1/namespaces/{HERE}/pods/own", f"/api/v1/namespaces/{HERE}/pods/other"
NODE, ELSEWHERE = "/api/v1/nodes/policies-a", "/api/v1/nodes/policies-b"


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Iterator[Cluster]:
    """The policies are the cluster's: they would hold for the accounts of other releases, too."""
    cluster.operators()
    cluster.install(RELEASE, HERE, {"extender": {"enabled": True}, "plugin": {"enabled": True}})
    for name, at in (("own", "policies-a"), ("other", "policies-b")):
        cluster.add_node(at, {"zone": "z"})
        made = pod(name, node=at, namespace=HERE, annotations={"owner": "alice"}, serviceAccountName=ACCOUNT)
        cluster.plane.create(made)
    # another image each time: one that was set before the policies came into force changes nothing
    images = (image(f"probe-{number}") for number in count())
    until(lambda: not any(allowed(cluster, one, POD, next(images)) for one in ("plugin", "extender")))
    yield cluster
    cluster.helm("uninstall", RELEASE, namespace=HERE)


def image(name: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "main", "image": name}]}}


def note(key: str, value: str | None = "x") -> dict[str, Any]:
    return {"metadata": {"annotations": {key: value}}}


def label(key: str, value: str | None = "x") -> dict[str, Any]:
    return {"metadata": {"labels": {key: value}}}


def with_value(change: Any, value: str) -> Any:
    """The same change, with this value for "x"."""
    if isinstance(change, dict):
        return {key: with_value(inner, value) for key, inner in change.items()}
    return value if change == "x" else change


def token(cluster: Cluster, component: str, *, of_pod: bool = False) -> str:
    """Of a service account; with `of_pod` as the kubelet asks for it, for the pod `own`."""
    spec: dict[str, Any] = {}
    if of_pod:
        uid = cluster.call("GET", POD)["metadata"]["uid"]
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": "own", "uid": uid}
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    path = f"/api/v1/namespaces/{HERE}/serviceaccounts/{RELEASE}-{component}/token"
    return cluster.call("POST", path, asked)["status"]["token"]


def allowed(cluster: Cluster, component: str, path: str, change: dict[str, Any], *, of_pod: bool = False) -> bool:
    """Whether the change is accepted; another answer than that of the policy is an error."""
    try:
        cluster.call("PATCH", path, change, token=token(cluster, component, of_pod=of_pod))
    except ApiError as e:
        if "ValidatingAdmissionPolicy" not in str(e):
            raise
        return False
    return True


CHANGES = {
    "an assignment": (POD, note("hami.io/bind-phase"), {"plugin", "extender"}),
    "an assignment that is removed": (POD, note("hami.io/bind-phase", None), {"plugin", "extender"}),
    "a registration": (NODE, note("hami.io/node-nvidia-register"), {"plugin"}),
    "faults": (NODE, note("vgpuscope.io/gpu-faults"), {"plugin"}),
    "the label of an assignment": (POD, label("hami.io/vgpu-node"), {"extender"}),
    "the leader": (POD, label("vgpuscope.io/role"), {"extender"}),
    "an image": (POD, image("x"), set()),
    "someone's annotation": (POD, note("owner", "mallory"), set()),
    "someone's annotation that is removed": (POD, note("owner", None), set()),
    "an annotation that other programs read": (POD, note("cluster-autoscaler.kubernetes.io/safe-to-evict"), set()),
    "a label": (POD, label("app"), set()),
    "a node's label": (NODE, label("zone", None), set()),
    "a node's label of ours": (NODE, label("vgpuscope.io/plugin"), set()),
    "a taint": (NODE, {"spec": {"taints": [{"key": "gpu", "effect": "NoExecute"}]}}, set()),
    "a cordon": (NODE, {"spec": {"unschedulable": True}}, set()),
}


@pytest.mark.parametrize("what", CHANGES)
def test_only_what_the_parts_write_may_be_changed(installed, what):
    """Each account writes its own value: a patch that changes nothing is not refused."""
    path, change, by = CHANGES[what]
    writers = ("plugin", "extender")
    assert {one for one in writers if allowed(installed, one, path, with_value(change, one))} == by


def test_a_plugin_changes_only_its_own_node_and_the_pods_on_it(installed):
    of_a_pod, of_a_node = note("hami.io/bind-phase", "success"), note("vgpuscope.io/gpu-faults", "43")
    may = partial(allowed, installed, "plugin", of_pod=True)
    assert [may(path, of_a_pod) for path in (POD, OTHER)] == [True, False]
    assert [may(path, of_a_node) for path in (NODE, ELSEWHERE)] == [True, False]
    assert allowed(installed, "extender", OTHER, note("hami.io/vgpu-time"))


def test_the_label_of_the_leader_is_written_only_in_the_namespace_of_the_release(installed):
    """Elsewhere a Service of somebody's could select by it."""
    installed.plane.create(pod("theirs", node="policies-a", namespace="policies-elsewhere"))
    theirs = "/api/v1/namespaces/policies-elsewhere/pods/theirs"
    assert not allowed(installed, "extender", theirs, label("vgpuscope.io/role"))
    assert allowed(installed, "extender", theirs, label("hami.io/vgpu-node"))


def test_other_accounts_are_not_concerned(installed):
    installed.call("PATCH", POD, label("team", "vision"))
    assert installed.call("GET", POD)["metadata"]["labels"] == {
        "hami.io/vgpu-node": "extender",
        "vgpuscope.io/role": "extender",
    } | {"team": "vision"}
