import contextlib
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.paths import TESTS
from vgpuscope.formats.kube.lists import decode_status
from vgpuscope.formats.kube.pods import decode_event, decode_pods
from vgpuscope.model.errors import KubeUnreadable
from vgpuscope.model.pod import ClaimUse, Container, HamiShare, MigAllocation
from vgpuscope.model.quantity import MIB

NODE = (TESTS / "fixtures/pods/node.json").read_bytes()
GPU = "GPU-8dcd427f-483b-b48f-d7e5-75fb19a52b76"


def pod(name="p", *, annotations=None, limits=None, requests=None, **more):
    container = {"name": "main", "resources": {"limits": limits, "requests": requests}}
    meta = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "annotations": annotations}
    return {"metadata": meta, "spec": {"containers": [container]}, **more}


def listed(*items, **more):
    return json.dumps({"kind": "PodList", "items": items, **more}).encode()


def event(kind, item):
    return json.dumps({"type": kind, "object": item}).encode()


def by_name():
    return {found.name: found for found in decode_pods(NODE).items}


def test_a_list_is_read_whole():
    page = decode_pods(NODE)
    assert [f"{found.namespace}/{found.name} {found.phase}" for found in page.items] == [
        "ml/train-0 Running",
        "kube-system/etcd-node-a Running",
        "ml/mig-0 Pending",
        "ml/done Succeeded",
    ]
    assert (page.resource_version, page.more, page.faults) == ("1000", "", ())


def test_init_containers_come_first_and_ids_lose_their_prefix():
    assert by_name()["train-0"].containers == (
        Container(name="fetch", id="1" * 64, init=True, running=False),
        Container(name="main", id="2" * 64, gpu_request=True, running=True),
        Container(name="sidecar", id="3" * 64, running=False),
    )


@pytest.mark.parametrize(
    ("annotations", "assigned"),
    [
        ({}, False),
        ({"hami.io/vgpu-devices-allocated": "no device at all"}, True),
        ({"hami.io/vgpu-devices-to-allocate": f"{GPU},NVIDIA,1000,10:;"}, True),
        ({"hami.io/metax-devices-allocated": f"{GPU},Metax,1000,10:;"}, False),
    ],
)
def test_a_pod_with_an_unreadable_assignment_is_assigned_too(annotations, assigned):
    (found,) = decode_pods(listed(pod(annotations=annotations))).items
    assert (found.assigned, found.shares) == (assigned, ())


def test_a_sidecar_is_an_init_container_that_restarts_always():
    inits = [{"name": "fetch"}, {"name": "proxy", "restartPolicy": "Always"}]
    made = pod()
    made["spec"]["initContainers"] = inits
    made["spec"]["containers"][0]["restartPolicy"] = "Always"
    (found,) = decode_pods(listed(made)).items
    assert [(one.name, one.init, one.sidecar) for one in found.containers] == [
        ("fetch", True, False),
        ("proxy", True, True),
        ("main", False, False),
    ]


def test_a_container_without_status_is_not_known_to_run():
    (container,) = by_name()["mig-0"].containers
    assert (container.id, container.running) == (None, None)


def test_a_static_pod_is_known_by_its_hash_too():
    assert by_name()["etcd-node-a"].config_hash == "36b6d6be73b1065af369b3985edafa09"
    assert by_name()["train-0"].config_hash is None


def test_hamis_shares_belong_to_the_container_that_got_them():
    assert by_name()["train-0"].shares == (HamiShare(container="main", gpu=GPU, memory=8000 * MIB, cores=30),)


def test_hamis_mig_instances_are_read():
    assert by_name()["mig-0"].migs == (
        MigAllocation(
            container_index=0,
            device_index=0,
            gpu=GPU,
            profile="1g.10gb",
            mig="MIG-1f2e3d4c-0000-1111-2222-333344445555",
            gpu_instance=13,
            compute_instance=0,
        ),
    )


@pytest.mark.parametrize(
    "resource",
    [
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/mig-1g.5gb",
        "nvidia.com/mig-1g.5gb.shared",
        "nvidia.com/gpumem",
        "nvidia.com/gpumem-percentage",
        "nvidia.com/gpucores",
    ],
)
def test_asking_for_any_gpu_resource_is_a_gpu_request(resource):
    for amounts in ({"limits": {resource: "1"}}, {"requests": {resource: 1}}):
        (found,) = decode_pods(listed(pod(**amounts))).items
        assert found.containers[0].gpu_request


@pytest.mark.parametrize("limits", [None, {}, {"cpu": "1"}, {"nvidia.com/gpu": "0"}, {"nvidia.com/gpux": 1}])
def test_asking_for_none_is_no_gpu_request(limits):
    (found,) = decode_pods(listed(pod(limits=limits))).items
    assert not found.containers[0].gpu_request


@pytest.mark.parametrize("key", ["hami.io/vgpu-devices-allocated", "hami.io/vgpu-mig-allocations"])
def test_a_bad_annotation_costs_only_itself(key):
    page = decode_pods(listed(pod("bad", annotations={key: "{nonsense"}, limits={"nvidia.com/gpu": 1}), pod("good")))
    assert [found.name for found in page.items] == ["bad", "good"]
    assert (page.items[0].shares, page.items[0].migs) == ((), ())
    assert [(fault.uid, fault.object) for fault in page.faults] == [("uid-bad", "Pod/ml/bad")]
    assert key in page.faults[0].reason


def test_a_bad_pod_costs_only_itself():
    page = decode_pods(listed({"metadata": {"name": "bad", "uid": 3}}, pod("good"), 7))
    assert [found.name for found in page.items] == ["good"]
    assert ["uid" in fault.reason or "object" in fault.reason for fault in page.faults] == [True, True]


def test_a_page_says_how_to_go_on():
    page = decode_pods(listed(pod(), metadata={"continue": "abc", "resourceVersion": "7"}))
    assert (page.more, page.resource_version) == ("abc", "7")


def test_only_the_pods_of_the_named_node_are_kept():
    assert [found.name for found in decode_pods(NODE, node="node-b").items] == ["done"]


def test_what_kubectl_writes_is_a_list_and_other_kinds_in_it_are_passed_over():
    text = json.dumps({"kind": "List", "items": [pod(kind="Pod"), pod("s", kind="Service")]})
    assert [found.name for found in decode_pods(b"\xef\xbb\xbf" + text.encode()).items] == ["p"]


@pytest.mark.parametrize("text", [b'{"kind":"PodList","items":null,"metadata":null}', b'{"items":[]}'])
def test_an_empty_list_has_no_pods(text):
    assert decode_pods(text).items == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"pods: []", r"byte \d"),
        (b'{"items": [', r"truncated \(after byte 11\)"),
        (b'{"items": []} x', r"byte \d+"),
        (b"[]", "Expected `object`"),
        (b'{"items": 3}', r"\$\.items"),
        (b"{}", "PodList"),
        (b'{"kind": "Pod"}', "PodList, got Pod"),
        (b'{"kind": "\xff"}', "utf-8"),
        (b'{"x":' + b"[" * 100_000, "recursion"),
    ],
)
def test_what_is_no_list_of_pods_is_refused_with_place_and_reason(text, reason):
    with pytest.raises(KubeUnreadable, match=f"^pods.json: .*{reason}"):
        decode_pods(text, origin="pods.json")


@given(st.binary(max_size=40) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_any_text_is_read_or_refused(text):
    data = text if isinstance(text, bytes) else text.encode()
    for decode in (decode_pods, decode_event):
        with contextlib.suppress(KubeUnreadable):
            decode(data)
    assert isinstance(decode_status(data), str)


keys = st.sampled_from(
    ["metadata", "spec", "status", "containers", "name", "uid", "state", "limits", "resources", "containerID", "phase"]
)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)


@given(junk)
def test_any_item_is_a_pod_or_a_fault(item):
    page = decode_pods(listed(item))
    assert len(page.items) + len(page.faults) == 1


def test_an_added_pod_comes_with_its_version():
    item = pod()
    item["metadata"]["resourceVersion"] = "12"
    found = decode_event(event("ADDED", item))
    assert (found.type, found.uid, found.resource_version, found.item.name) == ("ADDED", "uid-p", "12", "p")


def test_a_deleted_pod_is_named_by_its_uid_whatever_else_it_holds():
    found = decode_event(event("DELETED", {"metadata": {"uid": "u", "resourceVersion": "9"}, "spec": 3}))
    assert (found.type, found.uid, found.item, found.resource_version, found.faults) == ("DELETED", "u", None, "9", ())


def test_a_bookmark_moves_only_the_version():
    found = decode_event(event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "99"}, "spec": {}}))
    assert (found.type, found.item, found.resource_version) == ("BOOKMARK", None, "99")


def test_an_error_carries_its_status():
    found = decode_event(event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}))
    assert (found.type, found.status, found.message) == ("ERROR", 410, "too old")


def test_an_event_with_a_bad_pod_names_the_fault():
    found = decode_event(event("MODIFIED", {"metadata": {"uid": "u", "name": "n", "namespace": "ml"}, "spec": 3}))
    assert found.item is None
    assert [(fault.uid, fault.object) for fault in found.faults] == [("u", "Pod/ml/n")]


@pytest.mark.parametrize(
    "line", [b"", b"{}", b'{"type":"NEW","object":{}}', b'{"type":"ADDED"}', b'{"type":"ADDED","ob']
)
def test_a_line_that_is_no_event_is_refused(line):
    with pytest.raises(KubeUnreadable, match=r"^watch of Pods: "):
        decode_event(line)


def test_a_refusal_is_told_in_the_servers_words():
    status = msgspec.json.encode({"kind": "Status", "message": "pods is forbidden", "code": 403})
    assert decode_status(status) == "pods is forbidden"
    assert decode_status(b"Unauthorized\n") == "Unauthorized"


def static_pod(**more):
    """A pod that says it is another's mirror, with what else is said of it."""
    meta: dict = {"name": "p", "namespace": "ml", "uid": "own", **more}
    item = {"metadata": meta, "spec": {"nodeName": "n"}, "status": {}}
    return decode_pods(json.dumps({"kind": "PodList", "items": [item]}).encode()).items[0]


NOTES: dict[str, str] = {"kubernetes.io/config.hash": "victim", "kubernetes.io/config.mirror": "victim"}
BY_NODE = [{"kind": "Node", "name": "n", "controller": True}]


@pytest.mark.attack
@pytest.mark.parametrize(
    "more",
    [
        {"annotations": {"kubernetes.io/config.hash": "victim"}, "ownerReferences": BY_NODE},
        {"annotations": NOTES | {"kubernetes.io/config.mirror": "other"}, "ownerReferences": BY_NODE},
        {"annotations": NOTES},
        {"annotations": NOTES, "ownerReferences": [{"kind": "ReplicaSet", "name": "n", "controller": True}]},
    ],
)
def test_a_pod_does_not_take_anothers_uid_by_an_annotation(more):
    assert static_pod(**more).config_hash is None


def test_a_mirror_pod_that_its_node_owns_is_known_by_its_hash():
    assert static_pod(annotations=NOTES, ownerReferences=BY_NODE).config_hash == "victim"


def test_a_container_uses_claims_by_the_names_that_they_have_at_the_api_server():
    claims = [{"name": "own", "resourceClaimName": "big"}, {"name": "made", "resourceClaimTemplateName": "t"}]
    uses = [{"name": "own", "request": "gpu"}, {"name": "made"}, {"name": "stranger"}]
    item = {
        "metadata": {"uid": "u", "name": "p"},
        "spec": {
            "resourceClaims": [*claims, {"name": "late", "resourceClaimTemplateName": "t"}],
            "containers": [{"name": "a", "resources": {"claims": uses}}, {"name": "b"}],
            "initContainers": [{"name": "i", "resources": {"claims": [{"name": "late"}]}}],
        },
        "status": {"resourceClaimStatuses": [{"name": "made", "resourceClaimName": "p-made-x7k2p"}, {"name": "late"}]},
    }
    (found,) = decode_pods(json.dumps({"kind": "PodList", "items": [item]}).encode()).items
    assert {one.name: one.claims for one in found.containers} == {
        "i": (),
        "a": (ClaimUse("big", "gpu"), ClaimUse("p-made-x7k2p")),
        "b": (),
    }


def test_a_container_uses_the_claim_that_the_scheduler_made_for_its_extended_resource():
    mappings = [
        {"containerName": "a", "resourceName": "nvidia.com/gpu", "requestName": "container-0-request-0"},
        {"containerName": "b", "resourceName": "nvidia.com/gpu", "requestName": "container-1-request-0"},
    ]
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "p-x7k2p", "requestMappings": mappings}}
    item = {
        "metadata": {"uid": "u", "name": "p"},
        "spec": {"containers": [{"name": name} for name in "abc"]},
        "status": status,
    }
    (found,) = decode_pods(listed(item)).items
    assert {one.name: one.claims for one in found.containers} == {
        "a": (ClaimUse("p-x7k2p", "container-0-request-0"),),
        "b": (ClaimUse("p-x7k2p", "container-1-request-0"),),
        "c": (),
    }
