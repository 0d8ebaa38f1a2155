"""Who has a GPU is said by annotations, and whoever may change an object may write annotations: not these.

The policies of the chart in a real API server, with real service accounts. A pod that the scheduler has assigned stays
the tenant's in all other respects.
"""

from collections.abc import Iterator

import pytest

from tests.attack.policies import BOTH, EXTENDER, FORGED, PLUGIN, Caller, policies, refused, rendered, tenant
from tests.controlplane import ApiError, ControlPlane, Object, node, pod, until
from vgpuscope.knowledge.holder_keys import LABELS
from vgpuscope.knowledge.vendors import BY_ALLOCATED, BY_TO_ALLOCATE, NVIDIA

pytestmark = [pytest.mark.attack, pytest.mark.real]

WRITES = {"pods": ["get", "list", "create", "patch", "update", "delete"], "pods/status": ["patch"]}
OURS = {
    "pods": ["get", "create", "patch"],
    "nodes": ["get", "patch"],
    "pods/binding": ["create"],
    "pods/status": ["patch"],
}
ASSIGNMENT = {
    **FORGED,
    "hami.io/vgpu-devices-to-allocate": "GPU-a,NVIDIA,1,0:;",
    "hami.io/vgpu-time": "1700000000",
    "vgpuscope.io/assignment-seal": "x",
}
KEYS = sorted(
    {*BY_ALLOCATED, *BY_TO_ALLOCATE}
    | {"hami.io/vgpu-node", "hami.io/vgpu-time", "hami.io/bind-phase", "hami.io/bind-time"}
    | {"hami.io/vgpu-mig-allocations", "4pd.io/vgpu-node", "4pd.io/vgpu-time", "4pd.io/bind-phase"}
    | {"vgpuscope.io/assignment-seal", "vgpuscope.io/scheduler-epoch", "vgpuscope.io/retry"}
    # of a vendor that HAMi may get, and of a release that nobody remembers
    | {
        "hami.io/kunlun-allocated",
        "hami.io/newchip-devices-allocated",
        "hami.io/newchip-devices-to-allocate",
        "4pd.io/anything",
    }
)
NODE_KEYS = [*NVIDIA.registers, "hami.io/node-nvidia-score", "hami.io/mutex.lock", "hami.io/node-handshake"]
NODE_KEYS += ["4pd.io/node-handshake", "vgpuscope.io/gpu-faults"]
POD = "namespaces/ml/pods"


@pytest.fixture
def guarded(empty_cluster: ControlPlane) -> Iterator[ControlPlane]:
    """Node n1, pod `mine` of a tenant, and the policies."""
    empty_cluster.create(node("n1"))
    empty_cluster.create(node("n2"))
    empty_cluster.create(pod("mine", limits={"nvidia.com/gpu": "1"}))
    with policies(empty_cluster):
        yield empty_cluster


@pytest.fixture
def stranger(guarded: ControlPlane) -> Caller:
    rights = {
        "pods/binding": ["create"],
        "bindings": ["create"],
        "nodes": ["patch", "create"],
        "nodes/status": ["patch"],
    }
    return tenant(guarded, "stranger", WRITES | rights)


def denied(request: object, *said: str) -> str:
    """The refusal of an admission policy."""
    with pytest.raises(ApiError) as error:
        request()  # type: ignore[operator]
    assert error.value.status == 403, error.value
    assert "ValidatingAdmissionPolicy" in str(error.value)
    for words in said:
        assert words in str(error.value)
    return str(error.value)


def test_no_key_of_an_assignment_is_written_by_who_creates_pods(stranger):
    for number, key in enumerate(KEYS):
        item = pod(f"forged-{number}", annotations={key: "n1"})
        denied(lambda item=item: stranger.create(item), "stranger", key)
    for key in sorted(LABELS):
        labelled = pod("labelled", node="n1")
        labelled["metadata"]["labels"] = {key: "n2"}
        denied(lambda labelled=labelled: stranger.create(labelled), key)
    assert not refused(stranger, pod("honest", annotations={"hami.io/gpu-scheduler-policy": "spread"}))


def test_neither_a_patch_nor_the_status_nor_a_binding_writes_one(stranger, guarded):
    extender = tenant(guarded, EXTENDER, OURS)
    for key in KEYS:
        denied(lambda key=key: stranger.annotate(f"{POD}/mine", **{key: "n1"}), key)
    denied(lambda: stranger.annotate(f"{POD}/mine/status", **FORGED), "hami.io/vgpu")
    denied(lambda: stranger.bind("mine", "n1", FORGED), "hami.io/vgpu")
    target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    meta = {"name": "mine", "namespace": "ml", "annotations": FORGED}
    old = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
    path = "/api/v1/namespaces/ml/bindings"  # the older way to say it
    denied(lambda: guarded.call("POST", path, old, token=stranger.token), "hami.io/vgpu")
    extender.patch(f"{POD}/mine", {"metadata": {"annotations": ASSIGNMENT, "labels": {"hami.io/vgpu-node": "n1"}}})
    denied(lambda: stranger.patch(f"{POD}/mine", {"metadata": {"labels": {"hami.io/vgpu-node": None}}}), "vgpu-node")
    for change in ("GPU-b,NVIDIA,9,9:;", None):  # rewritten, and emptied so that its GPU is given twice
        notes = {"hami.io/vgpu-devices-allocated": change}
        denied(lambda notes=notes: stranger.annotate(f"{POD}/mine", **notes), "vgpu-devices-allocated")
    kept = guarded.get("pods", "mine", namespace="ml")
    assert kept["metadata"]["annotations"] == ASSIGNMENT


def test_an_assigned_pod_is_its_tenants_in_all_other_respects(stranger, guarded):
    tenant(guarded, EXTENDER, OURS).annotate(f"{POD}/mine", **ASSIGNMENT)
    changed = stranger.patch(f"{POD}/mine", {"metadata": {"labels": {"app": "x"}, "annotations": {"note": "hello"}}})
    assert changed["metadata"]["labels"] == {"app": "x"}
    stranger.patch(f"{POD}/mine", {"spec": {"activeDeadlineSeconds": 60}})
    stranger.patch(f"{POD}/mine/status", {"status": {"phase": "Running"}})
    stranger.delete(f"{POD}/mine")
    assert guarded.list("pods", namespace="ml", fieldSelector="metadata.name=mine") == []


def test_what_schedulers_and_device_plugins_write_of_nodes_is_written_by_nobody_else(stranger, guarded):
    for key in NODE_KEYS:
        denied(lambda key=key: stranger.annotate("nodes/n1", **{key: "[]"}), key)
    denied(lambda: stranger.annotate("nodes/n1/status", **{NODE_KEYS[0]: "[]"}), NODE_KEYS[0])
    new = {"apiVersion": "v1", **node("n3", annotations={NODE_KEYS[0]: "[]"})}
    denied(lambda: guarded.call("POST", "/api/v1/nodes", new, token=stranger.token), NODE_KEYS[0])
    stranger.annotate("nodes/n1", note="hello")
    tenant(guarded, PLUGIN, OURS).annotate("nodes/n1", **dict.fromkeys(NODE_KEYS, "[]"))
    guarded.patch(
        "nodes", "n1", {"metadata": {"annotations": {"vgpuscope.io/gpu-faults": None}}}
    )  # by an administrator


def test_scheduler_and_device_plugin_do_their_work(guarded):
    extender, plugin = tenant(guarded, EXTENDER, OURS), tenant(guarded, PLUGIN, OURS)
    extender.patch(f"{POD}/mine", {"metadata": {"annotations": ASSIGNMENT, "labels": {"hami.io/vgpu-node": "n1"}}})
    extender.annotate("nodes/n1", **{"hami.io/mutex.lock": "2026-11-17T08:00:00Z,ml,mine"})
    extender.bind("mine", "n1", {"hami.io/bind-phase": "allocating", "hami.io/bind-time": "1700000000"})
    extender.patch(f"{POD}/mine/status", {"status": {"message": "by kube-scheduler, which has the same account"}})
    plugin.annotate(f"{POD}/mine", **{"hami.io/vgpu-devices-to-allocate": ";", "hami.io/bind-phase": "success"})
    plugin.annotate("nodes/n1", **{"hami.io/mutex.lock": None})
    found = guarded.get("pods", "mine", namespace="ml")
    assert found["spec"]["nodeName"] == "n1"
    assert found["metadata"]["annotations"]["hami.io/bind-phase"] == "success"


@pytest.mark.parametrize("account", [EXTENDER, PLUGIN])
def test_a_stolen_token_of_ours_changes_nothing_but_our_annotations(guarded, account):
    thief = tenant(guarded, account, OURS)
    (container,) = guarded.get("pods", "mine", namespace="ml")["spec"]["containers"]
    image: Object = {"spec": {"containers": [container | {"image": "evil"}]}}
    denied(lambda: thief.patch(f"{POD}/mine", image), "spec")
    denied(lambda: thief.patch(f"{POD}/mine", {"metadata": {"labels": {"app": "web"}}}), "label")
    denied(lambda: thief.annotate(f"{POD}/mine", note="x"), "note")
    denied(lambda: thief.patch(f"{POD}/mine", {"metadata": {"finalizers": ["a.b/c"]}}), "finalizers")
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u"}
    denied(lambda: thief.patch(f"{POD}/mine", {"metadata": {"ownerReferences": [owner]}}), "owners")
    denied(lambda: thief.annotate(f"{POD}/mine/status", note="x"), "note")
    denied(lambda: thief.patch("nodes/n1", {"spec": {"unschedulable": True}}), "spec")
    denied(lambda: thief.patch("nodes/n1", {"metadata": {"labels": {"zone": "x"}}}), "label")
    denied(lambda: thief.create(pod("another")), "creates no pods")
    assert guarded.get("pods", "mine", namespace="ml")["spec"]["containers"][0]["image"] == "none"


def test_a_device_plugin_gives_itself_no_share_and_writes_nothing_of_another_node(guarded):
    guarded.patch("pods", "mine", {"metadata": {"annotations": ASSIGNMENT}}, namespace="ml")
    tenant(guarded, EXTENDER, OURS).bind("mine", "n2", {})
    tenant(guarded, PLUGIN, OURS)
    guarded.create({"kind": "Pod", **_pod_of_the_plugin("n1")})
    thief = Caller(guarded, _bound_token(guarded, PLUGIN, "plugin-n1"))
    served = {"hami.io/bind-phase": "success"}
    denied(lambda: thief.annotate(f"{POD}/mine", **served), "nothing of another")
    denied(lambda: thief.annotate("nodes/n2", **{"hami.io/mutex.lock": "x"}), "nothing of another")
    thief.annotate("nodes/n1", **{"hami.io/mutex.lock": "x"})
    guarded.create(pod("here", node="n1"))
    thief.annotate(f"{POD}/here", **served)
    denied(lambda: thief.annotate(f"{POD}/here", **FORGED), "vgpu-devices-allocated")


def _pod_of_the_plugin(name: str) -> Object:
    item = pod("plugin-n1", node=name, namespace="default", serviceAccountName=PLUGIN)
    return {"metadata": item["metadata"], "spec": item["spec"]}


def _bound_token(cluster: ControlPlane, account: str, name: str) -> str:
    """The token that a kubelet mounts into this pod: it says on which node the pod is."""
    uid = cluster.get("pods", name, namespace="default")["metadata"]["uid"]
    spec = {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid}}
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    path = f"/api/v1/namespaces/default/serviceaccounts/{account}/token"
    return cluster.call("POST", path, asked)["status"]["token"]


def test_with_hamis_scheduler_its_accounts_are_named_in_the_values(empty_cluster):
    hami = tenant(empty_cluster, "hami-scheduler", WRITES)
    stranger = tenant(empty_cluster, "stranger", WRITES)
    user = "system:serviceaccount:default:hami-scheduler"
    for number, named in enumerate(({"accounts": ["default/hami-scheduler"]}, {"users": [user]})):
        with policies(empty_cluster, {"admission": {"enabled": True, **named}}):
            assert refused(stranger, pod("forged", annotations=FORGED))
            assert not refused(hami, pod(f"assigned-{number}", annotations=FORGED))
    elsewhere = Caller(empty_cluster, token_of(empty_cluster, "restore", "backup"))
    with policies(empty_cluster, {"admission": {"enabled": True, "groups": ["system:serviceaccounts:backup"]}}):
        assert not refused(elsewhere, pod("restored", annotations=FORGED))
    with policies(empty_cluster):
        assert refused(hami, pod("again", annotations=FORGED))


def token_of(cluster: ControlPlane, account: str, namespace: str) -> str:
    """The token of a service account of another namespace; everybody there may create pods."""
    cluster.create({"kind": "ServiceAccount", "metadata": {"name": account, "namespace": namespace}})
    tenant(cluster, "pods-of-all", {"pods": ["create"]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "pods-of-all"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": f"system:serviceaccounts:{namespace}"}
    cluster.create(
        {"kind": "ClusterRoleBinding", "metadata": {"name": account}, "roleRef": role, "subjects": [subject]}
    )
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    token: str = cluster.call("POST", path, asked)["status"]["token"]
    probe = {"verb": "create", "resource": "pods", "namespace": "ml"}
    review: Object = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    review["spec"] = {"resourceAttributes": probe}
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    until(lambda: cluster.call("POST", reviews, review, token=token)["status"]["allowed"])
    return token


def test_the_policies_are_there_where_vgpuscope_schedules_and_nowhere_else():
    assert rendered({}) == []
    assert rendered({"admission": {"enabled": False}, **BOTH}) == []
    assert len(rendered({"extender": {"enabled": True}})) == 2  # of the extender's own account, with its binding
    assert len(rendered(BOTH)) == 8
