import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cputime import seconds
from tests.logic.cluster.builders import asks
from tests.paths import TESTS
from vgpuscope.formats.kube.objects import (
    decode_cluster_pod_event,
    decode_cluster_pods,
    decode_node_event,
    decode_nodes,
    decode_quota_event,
    decode_quotas,
)
from vgpuscope.knowledge.vendors import VENDORS
from vgpuscope.model.allocation import (
    Assignment,
    HeldInstance,
    NodeState,
    PodState,
    PodTimes,
    QuotaState,
)
from vgpuscope.model.errors import KubeUnreadable
from vgpuscope.model.quantity import MIB

FIXTURES = TESTS / "fixtures/cluster"
ALLOCATED = "hami.io/vgpu-devices-allocated"
MIGS = "hami.io/vgpu-mig-allocations"
A = "GPU-8dcd427f-483b-b48f-d7e5-75fb19a52b76"
B = "GPU-0aa6b97c-d386-26ba-a94a-b9d27c2e3a71"
NOISE = "x;:,[{" * (256 * 1024 // 6)


def listed(kind, *items, **metadata):
    return json.dumps({"kind": f"{kind}List", "metadata": metadata, "items": items}).encode()


def event(type_, item):
    return json.dumps({"type": type_, "object": item}).encode()


def container(name, resources=None, **more):
    return {"name": name, "resources": {"limits": resources or {}}, **more}


def gpu(name="main", count="1", **more):
    return container(name, {"nvidia.com/gpu": count}, **more)


def pod(*containers, name="p", annotations=None, init=(), labels=None, status=None, **metadata):
    named = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "annotations": annotations, "labels": labels}
    return {
        "metadata": named | metadata,
        "spec": {"nodeName": "n1", "containers": list(containers) or [gpu()], "initContainers": list(init) or None},
        "status": status if status is not None else {"phase": "Running"},
    }


def read(item):
    """The one pod, with nothing wrong about it."""
    page = decode_cluster_pods(listed("Pod", item))
    assert page.faults == ()
    (found,) = page.items
    return found


def held(item):
    return [f"{one.container_index} {one.container} {one.device} {one.memory // MIB} {one.cores}" for one in item]


def assigned(text, *containers, init=(), key=ALLOCATED):
    return held(read(pod(*containers, annotations={key: text}, init=init)).assignments)


def wrong(page):
    return [(fault.uid, fault.object) for fault in page.faults]


# --- pods -------------------------------------------------------------------------------------------------------------


def test_a_pod_is_read_whole():
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8k", "nvidia.com/gpucores": 30, "cpu": "4"}
    annotations = {"hami.io/vgpu-node": "n2", ALLOCATED: f"{A},NVIDIA,8000,30:;", "hami.io/bind-phase": "success"}
    assert read(pod(container("main", limits), annotations=annotations)) == PodState(
        uid="uid-p",
        namespace="ml",
        name="p",
        phase="Running",
        node="n1",
        assigned_node="n2",
        init_done=True,
        assignments=(
            Assignment(
                container_index=0,
                container="main",
                init=False,
                vendor="NVIDIA",
                device=A,
                memory=8000 * MIB,
                cores=30,
            ),
        ),
        asks=asks({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 8000, "nvidia.com/gpucores": 30}),
        times=PodTimes(bind_phase="success"),
    )


def test_how_far_a_pod_has_come_is_read_from_all_who_write_it_down():
    notes = {"hami.io/vgpu-time": "1700000003", "hami.io/bind-time": "1700000004", "hami.io/bind-phase": "allocating"}
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2023-11-14T22:13:25Z"}
    states = [
        {"name": "a", "state": {"waiting": {}}, "lastState": {"terminated": {"startedAt": "2023-11-14T22:13:30Z"}}},
        {"name": "b", "state": {"running": {"startedAt": "2023-11-14T22:13:40Z"}}},
        {"name": "c", "state": {"terminated": {"exitCode": 1, "startedAt": "1970-01-01T00:00:00Z"}}},
    ]
    status = {"phase": "Running", "conditions": [scheduled], "containerStatuses": states}
    found = read(pod(annotations=notes, status=status, creationTimestamp="2023-11-14T22:13:20Z"))
    assert found.times == PodTimes(
        created=1700000000,
        filtered=1700000003,
        bind_begun=1700000004,
        bind_phase="allocating",
        scheduled=1700000005,
        started=1700000010,
    )


@pytest.mark.parametrize("text", ["", "soon", "-5", "1e9", "9" * 13, "١٧"])
def test_a_time_that_is_none_is_absent(text):
    found = read(pod(annotations={"hami.io/vgpu-time": text, ALLOCATED: f"{A},NVIDIA,1,1:;"}, creationTimestamp=text))
    assert found.times == PodTimes()


def test_what_a_scheduler_says_of_a_pod_without_a_node_is_kept():
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes" + "x" * 10**5}
    waiting = pod(status={"phase": "Pending", "conditions": [said]})
    assert read(waiting).refusal is None, "it is bound by now"
    waiting["spec"] |= {"nodeName": None, "schedulerName": "hami-scheduler"}
    found = read(waiting)
    assert (found.refusal.reason, found.refusal.message[:9], found.refusal.at) == ("Unschedulable", "0/3 nodes", None)
    assert len(found.refusal.message) == 8192
    assert found.scheduler == "hami-scheduler"


@pytest.mark.parametrize(
    ("owners", "labels", "owner"),
    [
        ([], None, ""),
        ([{"kind": "Node", "name": "n1"}], None, ""),
        ([{"kind": "Job", "name": "train", "controller": True}], None, "Job/train"),
        (
            [{"kind": "ReplicaSet", "name": "web-5d9", "controller": True}],
            {"pod-template-hash": "5d9"},
            "Deployment/web",
        ),
        ([{"kind": "ReplicaSet", "name": "web-5d9", "controller": True}], None, "ReplicaSet/web-5d9"),
    ],
)
def test_a_pods_owner_is_the_nearest_that_people_know(owners, labels, owner):
    assert read(pod(labels=labels, ownerReferences=owners)).owner == owner


def test_claims_are_known_by_the_names_that_the_pod_or_its_status_gives():
    asking = pod(container("main"))
    asking["spec"]["resourceClaims"] = [
        {"name": "own", "resourceClaimName": "shared-gpu"},
        {"name": "made", "resourceClaimTemplateName": "one-gpu"},
        {"name": "not-yet", "resourceClaimTemplateName": "one-gpu"},
    ]
    asking["status"]["resourceClaimStatuses"] = [{"name": "made", "resourceClaimName": "p-made-x7"}]
    asking["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": "p-extended-resources-b2"}
    assert read(asking).claims == ("shared-gpu", "p-made-x7", "p-extended-resources-b2")


def test_hamis_own_decisions_are_read():
    for decision in json.loads((FIXTURES / "hami_scheduler_decisions.json").read_text()):
        asked = decision["input"]
        containers = [container(one["name"], one["limits"]) for one in asked["containers"]]
        annotations = decision["podAnnotationsAfter"]
        page = decode_cluster_pods(listed("Pod", pod(*containers, annotations=annotations)))
        assert page.faults == ()
        if decision["scenario"] == "no_gpu_request":
            assert page.items == ()
            continue
        (found,) = page.items
        words = annotations.get(ALLOCATED, "").replace(";", "").split(":")[:-1]
        expected = [(word.split(",")[0], int(word.split(",")[2]), int(word.split(",")[3])) for word in words]
        assert [(one.device, one.memory // MIB, one.cores) for one in found.assignments] == expected
        wanting = [one["name"] for one in asked["containers"] if one["limits"]]
        assert {one.container for one in found.assignments} == set(wanting if expected else [])
        assert found.assigned_node == annotations.get("hami.io/vgpu-node", "")


def test_a_container_may_have_several_gpus():
    text = f"{A},NVIDIA,40960,0:{B},NVIDIA,40960,0:;"
    assert assigned(text, gpu()) == [f"0 main {A} 40960 0", f"0 main {B} 40960 0"]


def test_each_container_has_its_own_segment():
    text = f"{A},NVIDIA,1000,5:;{B},NVIDIA,1500,5:;"
    assert assigned(text, gpu("a"), gpu("b")) == [f"0 a {A} 1000 5", f"1 b {B} 1500 5"]


def test_a_container_without_a_gpu_has_an_empty_segment():
    assert assigned(f";{A},NVIDIA,2000,10:;", container("side"), gpu()) == [f"1 main {A} 2000 10"]


def test_old_builds_write_an_empty_device_for_a_container_without_a_gpu():
    text = f"{A},NVIDIA,1000,0:;;,,0,0:;"
    assert assigned(text, gpu(), container("b"), container("c")) == [f"0 main {A} 1000 0"]


def test_where_segments_were_left_out_they_belong_to_who_asked():
    text = f"{A},NVIDIA,1000,0:;"
    assert assigned(text, container("side"), gpu()) == [f"1 main {A} 1000 0"]
    assert assigned(text, gpu(), container("side")) == [f"0 main {A} 1000 0"]
    assert assigned(text, container("a"), gpu(), init=[container("i")]) == [f"2 main {A} 1000 0"]


def test_who_asks_only_for_a_part_of_a_gpu_asks_too():
    only = container("main", {"nvidia.com/gpumem": "1k"})
    assert assigned(f"{A},NVIDIA,1000,0:;", container("side"), only) == [f"1 main {A} 1000 0"]
    assert assigned(f"{A},NVIDIA,1000,0:;", only, gpu("counts")) == [f"1 counts {A} 1000 0"]


def test_init_containers_come_first_and_are_marked():
    text = f"{A},NVIDIA,1,0:;{B},NVIDIA,2,0:;"
    found = read(pod(gpu(), init=[gpu("prepare")], annotations={ALLOCATED: text})).assignments
    assert held(found) == [f"0 prepare {A} 1 0", f"1 main {B} 2 0"]
    assert [one.init for one in found] == [True, False]


def test_a_sidecar_lives_with_the_pod():
    side = gpu("side", restartPolicy="Always")
    found = read(pod(gpu(), init=[side], annotations={ALLOCATED: f"{A},NVIDIA,1,0:;{B},NVIDIA,2,0:;"}))
    assert [one.init for one in found.assignments] == [False, False]
    assert (found.init_done, found.requests) == (True, {"nvidia.com/gpu": 2})


def test_segments_beyond_those_who_ask_are_kept_without_a_name_and_told():
    text = f"{A},NVIDIA,1,0:;{B},NVIDIA,2,0:;"
    page = decode_cluster_pods(listed("Pod", pod(gpu(), annotations={ALLOCATED: text})))
    assert held(page.items[0].assignments) == [f"0 main {A} 1 0"]
    assert held(page.items[0].claimed) == [f"1  {B} 2 0"]
    assert wrong(page) == [("uid-p", "Pod/ml/p")]
    assert page.faults[0].reason == f"{ALLOCATED}: 2 containers with devices, but 1 ask for them"


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        (f"{A}[1-0],NVIDIA,10240,0:;", [f"0 main {A} 10240 0"]),
        (f"{A}[0-6],NVIDIA,4864,14:;", [f"0 main {A} 4864 14"]),
        (f"{A}[2-1],NVIDIA,20096,42:{A}[2-0],NVIDIA,20096,42:;", [f"0 main {A} 20096 42"] * 2),
        ("MIG-1f2e3d4c-0000,NVIDIA,4864,0:;", ["0 main MIG-1f2e3d4c-0000 4864 0"]),
    ],
)
def test_old_mig_slots_name_their_gpu(text, devices):
    assert assigned(text, gpu()) == devices


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.word)
def test_the_assignments_of_every_vendor_are_read(vendor):
    text = f"dev-0,{vendor.word},1024,50:;"
    found = read(pod(container("side"), container("main", {vendor.count: 1}), annotations={vendor.allocated[0]: text}))
    (one,) = found.assignments
    assert (one.container_index, one.container, one.vendor, one.device) == (1, "main", vendor.word, "dev-0")
    assert (one.memory, one.cores) == (1024 * MIB if vendor.memory_counted else 0, 50)
    assert found.requests == {vendor.count: 1}


def test_a_pod_may_have_devices_of_two_vendors():
    annotations = {ALLOCATED: f"{A},NVIDIA,1,2:;", "hami.io/dcu-devices-allocated": "DCU-0,DCU,3,4:;"}
    both = read(pod(container("d", {"hygon.com/dcunum": 1}), gpu("n"), annotations=annotations))
    assert held(both.assignments) == [f"1 n {A} 1 2", "0 d DCU-0 3 4"]
    assert [one.vendor for one in both.assignments] == ["NVIDIA", "DCU"]


def test_until_v2_2_one_key_held_all_vendors_and_a_newer_key_replaces_it():
    old = "4pd.io/vgpu-ids-new"
    both = container("main", {"nvidia.com/gpu": "1", "cambricon.com/vmlu": "1"})
    found = read(pod(both, annotations={old: f"{A},NVIDIA,1,2:MLU-1,MLU,3,4:;", "4pd.io/vgpu-node": "n9"}))
    assert [(one.device, one.vendor) for one in found.assignments] == [(A, "NVIDIA"), ("MLU-1", "MLU")]
    assert found.assigned_node == "n9"
    mlu = container("main", {"cambricon.com/vmlu": 1})
    assert assigned("MLU-1,MLU,3,4:;", container("side"), mlu, key=old) == ["1 main MLU-1 3 4"]
    both = read(pod(gpu(), annotations={old: f"{A},NVIDIA,1,2:;", ALLOCATED: f"{B},NVIDIA,1,2:;"}))
    assert [one.device for one in both.assignments] == [B]


@pytest.mark.parametrize("text", ["", ";", ";;", " "])
def test_nothing_given_is_no_assignment(text):
    assert assigned(text, gpu()) == []


CHOSEN = {"containerIndex": 0, "deviceIndex": 0, "gpuUUID": A, "profile": "1g.10gb"} | {
    "placement": {"start": 6, "size": 1}
}
MADE = CHOSEN | {"migUUID": "MIG-1f2e3d4c-0000-1111-2222-333344445555", "gpuInstanceID": 13, "computeInstanceID": 0}


def test_mig_instances_have_their_place_and_later_their_names():
    chosen, made = (read(pod(annotations={MIGS: json.dumps([one])})).instances for one in (CHOSEN, MADE))
    assert chosen == (HeldInstance(container_index=0, device=A, profile="1g.10gb", start=6, size=1),)
    assert made == (
        HeldInstance(
            container_index=0,
            device=A,
            profile="1g.10gb",
            start=6,
            size=1,
            mig="MIG-1f2e3d4c-0000-1111-2222-333344445555",
            gpu_instance=13,
            compute_instance=0,
        ),
    )


def test_a_container_may_hold_several_instances():
    entries = [
        CHOSEN | {"containerIndex": 1, "profile": "3g.40gb", "placement": {"start": 4, "size": 4}},
        CHOSEN | {"containerIndex": 1, "deviceIndex": 1, "profile": "2g.20gb", "placement": {"start": 0, "size": 2}},
    ]
    found = read(pod(annotations={MIGS: json.dumps(entries)})).instances
    assert [(one.container_index, one.profile, one.start, one.size) for one in found] == [
        (1, "3g.40gb", 4, 4),
        (1, "2g.20gb", 0, 2),
    ]


def test_the_label_names_the_node_where_no_annotation_does():
    assert read(pod(labels={"hami.io/vgpu-node": "n7"})).assigned_node == "n7"
    both = pod(labels={"hami.io/vgpu-node": "n7"}, annotations={"hami.io/vgpu-node": "n8"})
    assert read(both).assigned_node == "n8"


def test_a_pod_that_waits_is_pending_and_nowhere():
    waiting = pod(gpu(), status={})
    waiting["spec"]["nodeName"] = None
    assert read(waiting) == PodState(
        uid="uid-p",
        namespace="ml",
        name="p",
        init_done=True,
        asks=asks({"nvidia.com/gpu": 1}),
    )


def test_a_pod_that_is_being_deleted_says_so():
    assert read(pod(deletionTimestamp="2026-11-15T18:24:30Z")).deleting


def ended(code):
    return {"terminated": {"exitCode": code, "reason": "x"}}


@pytest.mark.parametrize(
    ("states", "done"),
    [
        ([], False),
        ([ended(0)], False),
        ([ended(0), ended(0)], True),
        ([ended(0), ended(1)], False),
        ([ended(0), {"running": {}}], False),
        ([ended(0), None], False),
    ],
)
def test_init_is_done_when_every_init_container_has_succeeded(states, done):
    statuses = [{"name": name, "state": state} for name, state in zip("ab", states, strict=False)]
    item = pod(init=[gpu("a"), gpu("b")], status={"phase": "Pending", "initContainerStatuses": statuses})
    assert read(item).init_done is done


def test_a_pod_asks_for_what_it_needs_at_once():
    item = pod(gpu("a", 2), gpu("b", "1"), init=[gpu("i", 4), gpu("j", 1)])
    assert read(item).requests == {"nvidia.com/gpu": 4}
    assert read(pod(gpu("a", 2), gpu("b"), init=[gpu("i")])).requests == {"nvidia.com/gpu": 3}


def test_how_many_containers_ask_is_counted():
    assert read(pod(gpu(), container("sidecar"), init=[gpu("first")])).asking == 2


def test_what_each_container_asks_for_is_known_and_shared_by_equal_pods():
    first, second = (read(pod(gpu("a", 2), container("log"), init=[gpu("i", 4)])) for _ in range(2))
    assert [(one.index, one.name, one.init, one.amounts) for one in first.asks] == [
        (0, "i", True, {"nvidia.com/gpu": 4}),
        (1, "a", False, {"nvidia.com/gpu": 2}),
    ]
    assert all(one is other for one, other in zip(first.asks, second.asks, strict=True))
    alone = [read(pod(container("log"), gpu("a"))) for _ in range(2)]
    assert alone[0].asks is alone[1].asks
    assert alone[0].requests is alone[1].requests


def test_limits_count_before_requests():
    one = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": 2}, "requests": {"nvidia.com/gpu": 1}}}
    requests = {"amd.com/gpu": 1, "cpu": 1, "amd.com/gpumem": 5}
    other = {"name": "d", "resources": {"limits": {"amd.com/gpumem": 7}, "requests": requests}}
    assert read(pod(one, other)).requests == {"nvidia.com/gpu": 2, "amd.com/gpu": 1, "amd.com/gpumem": 7}


PLAIN = pod(
    container("web", {"cpu": "1", "nvidia.com/gpu": "0"}), annotations={"a": "b"}, labels={"app": "web"}, name="web"
)


def test_a_pod_that_has_nothing_to_do_with_devices_is_no_item():
    page = decode_cluster_pods(listed("Pod", PLAIN, pod()))
    assert [found.name for found in page.items] == ["p"]
    found = decode_cluster_pod_event(
        event("MODIFIED", PLAIN | {"metadata": PLAIN["metadata"] | {"resourceVersion": "3"}})
    )
    assert (found.type, found.uid, found.item, found.faults) == ("MODIFIED", "uid-web", None, ())
    assert found.resource_version == "3"


@pytest.mark.parametrize(
    "mark",
    [
        {"annotations": {ALLOCATED: ";"}},
        {"annotations": {"hami.io/vgpu-devices-to-allocate": ";"}},
        {"annotations": {"hami.io/vgpu-node": "n1"}},
        {"annotations": {MIGS: "[]"}},
        {"labels": {"hami.io/vgpu-node": "n1"}},
    ],
)
def test_one_mark_of_hami_makes_it_an_item(mark):
    assert read(pod(container("web"), **mark)).requests == {}


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (ALLOCATED, "nonsense"),
        (ALLOCATED, f"{A},NVIDIA,1000:;"),
        (ALLOCATED, f"{'a' * 300},NVIDIA,1,1:;"),
        (ALLOCATED, NOISE),
        (ALLOCATED, ";" * 256 * 1024),
        (ALLOCATED, f"{A},NVIDIA,1,1:" * 5000),
        ("hami.io/amd-devices-allocated", NOISE),
        (MIGS, NOISE),
        (MIGS, "[" * 256 * 1024),
        (MIGS, json.dumps([CHOSEN, CHOSEN])),
        ("hami.io/vgpu-node", NOISE),
    ],
)
def test_a_bad_annotation_costs_only_itself_and_is_named(key, text):
    good = {ALLOCATED: f"{A},NVIDIA,1,1:;", "hami.io/vgpu-node": "n1", MIGS: json.dumps([CHOSEN])}
    page = decode_cluster_pods(listed("Pod", pod(name="bad", annotations=good | {key: text}), pod(name="good")))
    bad, _ = page.items
    assert wrong(page) == [("uid-bad", "Pod/ml/bad")]
    assert page.faults[0].reason.startswith(f"{key}: ")
    assert len(page.faults[0].reason) < 400
    kept = (
        [ALLOCATED] * len(bad.assignments)
        + [MIGS] * len(bad.instances)
        + ["hami.io/vgpu-node"] * bool(bad.assigned_node)
    )
    assert kept == [one for one in (ALLOCATED, MIGS, "hami.io/vgpu-node") if one != key]


def test_a_request_that_is_no_number_is_named():
    page = decode_cluster_pods(
        listed("Pod", pod(container("c", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1500m"})))
    )
    assert page.items[0].requests == {"nvidia.com/gpu": 1}
    assert page.faults[0].reason == "nvidia.com/gpumem: '1500m' is no whole number of devices"


@pytest.mark.parametrize(
    "bad",
    [
        {"metadata": {"name": "bad", "namespace": "ml", "uid": 3}},
        {"metadata": {"name": "bad", "namespace": "ml"}},
        pod(container("c" * 300)),
        pod(name="n" * 1_000_000),
        pod() | {"spec": {"nodeName": "n" * 1_000_000}},
        7,
        None,
        [],
    ],
    ids=["uid", "no uid", "container", "name", "node", "number", "null", "list"],
)
def test_a_bad_pod_costs_only_itself(bad):
    page = decode_cluster_pods(listed("Pod", bad, pod(name="good")))
    assert [found.name for found in page.items] == ["good"]
    (fault,) = page.faults
    assert fault.object.startswith("Pod/")
    assert len(fault.object) < 600
    assert len(fault.reason) < 400


def test_labels_of_a_million_characters_are_passed_over():
    labels = {"hami.io/vgpu-node": "n1", "big": "x" * 1_000_000, "y" * 1_000_000: "z"}
    assert read(pod(labels=labels)).assigned_node == "n1"
    page = decode_cluster_pods(listed("Pod", pod(labels={"hami.io/vgpu-node": "x" * 1_000_000})))
    assert (page.items[0].assigned_node, wrong(page)) == ("", [("uid-p", "Pod/ml/p")])


def test_noise_is_refused_at_once():
    data = listed("Pod", pod(annotations=dict.fromkeys((ALLOCATED, MIGS, "hami.io/vgpu-node"), NOISE)))
    assert seconds(lambda: decode_cluster_pods(data)) < 0.1


# --- nodes ------------------------------------------------------------------------------------------------------------


def node(name="n1", annotations=None, *, conditions=({"type": "Ready", "status": "True"},), **more):
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "annotations": annotations, "resourceVersion": "5"},
        "spec": {},
        "status": {"conditions": list(conditions), "capacity": {}, "allocatable": {}},
    } | more


REGISTER = "hami.io/node-nvidia-register"


def test_a_node_is_read_with_its_devices():
    amounts = {"cpu": "96", "nvidia.com/gpu": "10", "nvidia.com/mig-1g.5gb": "0", "metax-tech.com/gpu": "1"}
    status = {"conditions": [{"type": "Ready", "status": "True"}], "capacity": amounts, "allocatable": amounts}
    (found,) = decode_nodes(listed("Node", node(annotations={REGISTER: '[{"id":"GPU-a"}]'}, status=status))).items
    assert (found.name, found.ready, found.schedulable) == ("n1", True, True)
    assert [one.id for one in found.devices] == ["GPU-a", "n1-metax-0"]
    assert found.allocatable == {"nvidia.com/gpu": 10, "nvidia.com/mig-1g.5gb": 0, "metax-tech.com/gpu": 1}


def test_the_nodes_label_says_how_much_memory_a_gpu_has_where_its_models_name_does_not():
    def physical(*types, **labels):
        register = json.dumps([{"id": f"GPU-{n}", "devmem": 30720, "type": one} for n, one in enumerate(types)])
        item = node(annotations={REGISTER: register})
        item["metadata"]["labels"] = {f"nvidia.com/gpu.{name}": text for name, text in labels.items()}
        (found,) = decode_nodes(listed("Node", item)).items
        return [one.physical and one.physical // MIB for one in found.devices]

    assert physical("NVIDIA-Tesla T4", memory="15360") == [15360]
    assert physical("NVIDIA-Tesla T4") == [None]
    assert physical("NVIDIA-Tesla T4", memory="much") == [None]
    assert physical("NVIDIA-Tesla T4", "NVIDIA L4", memory="15360") == [None, None]
    assert physical("NVIDIA H200", memory="5120", product="NVIDIA-H200-MIG-1g.18gb") == [None]
    assert physical("NVIDIA A100-SXM4-80GB", memory="40960") == [81920]


def test_a_node_without_devices_is_a_node():
    assert decode_nodes(listed("Node", {"metadata": {"name": "cpu"}})).items == (NodeState(name="cpu"),)


@pytest.mark.parametrize(("status", "ready"), [("True", True), ("False", False), ("Unknown", False), (None, False)])
def test_a_node_is_ready_when_it_says_so(status, ready):
    conditions = [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": status}]
    assert decode_nodes(listed("Node", node(conditions=conditions))).items[0].ready is ready


def test_a_cordoned_node_takes_no_pods():
    assert not decode_nodes(listed("Node", node(spec={"unschedulable": True}))).items[0].schedulable


def test_a_bad_registration_costs_its_vendor_and_is_named():
    bad = {REGISTER: NOISE, "hami.io/node-dcu-register": "DCU-0,4,65536,100,DCU,0,true:"}
    page = decode_nodes(listed("Node", node(annotations=bad), node("n2")))
    assert [[one.id for one in found.devices] for found in page.items] == [["DCU-0"], []]
    assert wrong(page) == [("n1", "Node/n1")]
    assert page.faults[0].reason.startswith(REGISTER)


def test_amounts_that_are_no_numbers_are_named():
    page = decode_nodes(listed("Node", node(status={"allocatable": {"nvidia.com/gpu": "many", "amd.com/gpu": -1}})))
    assert page.items[0].allocatable == {}
    assert wrong(page) == [("n1", "Node/n1")] * 2


def test_a_bad_node_costs_only_itself():
    page = decode_nodes(listed("Node", {"metadata": {"name": "bad"}, "status": 3}, node("good")))
    assert [found.name for found in page.items] == ["good"]
    assert wrong(page) == [("bad", "Node/bad")]


# --- quotas -----------------------------------------------------------------------------------------------------------


def quota(hard, name="q", namespace="team-q"):
    return {"metadata": {"name": name, "namespace": namespace, "uid": "u"}, "spec": {"hard": hard}}


def test_hamis_own_quota_is_read():
    (written,) = json.loads((FIXTURES / "hami_scheduler_inputs.json").read_text())["resourceQuotas"]
    (found,) = decode_quotas(listed("ResourceQuota", quota(written["hard"]))).items
    hard = {"nvidia.com/gpucores": 50, "nvidia.com/gpumem": 10000}
    assert found == QuotaState(namespace="team-q", name="q", hard=hard)


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.word)
def test_quotas_of_every_vendor_limit_memory_and_cores_only(vendor):
    page = decode_quotas(listed("ResourceQuota", quota({f"limits.{name}": "10k" for name in vendor.resources})))
    assert page.faults == ()
    assert [found.hard for found in page.items] == ([dict.fromkeys(vendor.quotas, 10000)] if vendor.quotas else [])


def test_a_limit_of_zero_is_a_limit():
    (found,) = decode_quotas(listed("ResourceQuota", quota({"limits.nvidia.com/gpumem": "0"}))).items
    assert found.hard == {"nvidia.com/gpumem": 0}


@pytest.mark.parametrize("hard", [None, {}, {"pods": "10", "limits.cpu": "a", "requests.nvidia.com/gpumem": "1"}])
def test_a_quota_without_device_limits_is_no_item(hard):
    page = decode_quotas(listed("ResourceQuota", quota(hard)))
    assert (page.items, page.faults) == ((), ())
    assert decode_quota_event(event("MODIFIED", quota(hard))).item is None


@pytest.mark.parametrize("value", ["much", "", "1.5", "-1", -1, True, None, [], {"a": 1}, "9" * 1_000_000])
def test_a_limit_that_is_no_whole_number_is_named_and_the_others_stay(value):
    hard = {"limits.nvidia.com/gpumem": value, "limits.nvidia.com/gpucores": "50"}
    page = decode_quotas(listed("ResourceQuota", quota(hard)))
    assert page.items[0].hard == {"nvidia.com/gpucores": 50}
    assert wrong(page) == [("team-q/q", "ResourceQuota/team-q/q")]
    assert page.faults[0].reason.startswith("limits.nvidia.com/gpumem: ")
    assert len(page.faults[0].reason) < 200


# --- lists and events of all kinds ------------------------------------------------------------------------------------

KINDS: dict[str, tuple[Any, ...]] = {
    "Node": (decode_nodes, decode_node_event, node(), "n1"),
    "Pod": (decode_cluster_pods, decode_cluster_pod_event, pod(resourceVersion="5"), "uid-p"),
    "ResourceQuota": (
        decode_quotas,
        decode_quota_event,
        {"metadata": {"name": "q", "namespace": "ml", "resourceVersion": "5"}}
        | {"spec": {"hard": {"limits.amd.com/gpumem": 1}}},
        "ml/q",
    ),
}
each_kind = pytest.mark.parametrize(("decode", "decode_event", "item", "key"), KINDS.values(), ids=KINDS)


@each_kind
def test_an_event_gives_the_item_that_a_list_gives(decode, decode_event, item, key):
    kind = next(name for name, row in KINDS.items() if row[0] is decode)
    page = decode(listed(kind, item, resourceVersion="7", **{"continue": "abc"}))
    found = decode_event(event("ADDED", item))
    assert (page.items, page.resource_version, page.more) == ((found.item,), "7", "abc")
    assert (found.type, found.uid, found.resource_version) == ("ADDED", key, "5")


@each_kind
def test_a_deleted_object_is_named_by_its_key_whatever_else_it_holds(decode, decode_event, item, key):
    found = decode_event(event("DELETED", item | {"spec": 3}))
    assert (found.type, found.uid, found.item, found.resource_version, found.faults) == ("DELETED", key, None, "5", ())


@each_kind
def test_an_unreadable_object_is_named_by_its_key(decode, decode_event, item, key):
    found = decode_event(event("MODIFIED", item | {"spec": 3}))
    assert (found.uid, found.item, [fault.uid for fault in found.faults]) == (key, None, [key])
    assert found.resource_version == "5"


@each_kind
def test_a_bookmark_moves_only_the_version(decode, decode_event, item, key):
    found = decode_event(event("BOOKMARK", {"metadata": {"resourceVersion": "99"}}))
    assert (found.type, found.uid, found.item, found.resource_version) == ("BOOKMARK", "", None, "99")


@each_kind
def test_an_error_carries_its_status(decode, decode_event, item, key):
    found = decode_event(event("ERROR", {"kind": "Status", "code": 410, "message": "too old"}))
    assert (found.type, found.status, found.message) == ("ERROR", 410, "too old")


@each_kind
@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[]", b'{"items": 3}', b'{"kind": "Status"}', b'{"items": [', b"[" * 10**5]
)
def test_what_is_no_list_is_refused(decode, decode_event, item, key, text):
    with pytest.raises(KubeUnreadable, match="list"):
        decode(text)


@each_kind
@pytest.mark.parametrize(
    "line", [b"", b"{}", b'{"type":"NEW","object":{}}', b'{"type":"ADDED"}', b'{"type":"ADDED","ob']
)
def test_a_line_that_is_no_event_is_refused(decode, decode_event, item, key, line):
    with pytest.raises(KubeUnreadable, match="watch"):
        decode_event(line)


@each_kind
def test_a_list_of_another_kind_is_refused_and_an_item_of_another_kind_passed_over(decode, decode_event, item, key):
    with pytest.raises(KubeUnreadable, match="got ServiceList"):
        decode(listed("Service"))
    assert decode(json.dumps({"kind": "List", "items": [item | {"kind": "Service"}]}).encode()).items == ()


names = ["metadata", "spec", "status", "containers", "name", "uid", "limits", "resources", "annotations", "labels"]
keys = st.sampled_from([*names, "hard", "nvidia.com/gpu", "limits.nvidia.com/gpumem", ALLOCATED, MIGS, REGISTER])
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from([f"{A},NVIDIA,1,2:;", "8k"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)


@given(junk)
def test_any_object_is_read_passed_over_or_named(item):
    for kind, (decode, decode_event, *_) in KINDS.items():
        page = decode(listed(kind, item, KINDS[kind][2]))
        assert 1 <= len(page.items) <= 2
        assert decode_event(event("ADDED", item)).item in {*page.items[:-1], None}


@given(st.binary(max_size=40) | junk.map(lambda item: json.dumps(item).encode()))
def test_any_text_is_read_or_refused(data):
    for decode, decode_event, *_ in KINDS.values():
        for one in (decode, decode_event):
            with contextlib.suppress(KubeUnreadable):
                one(data)


def test_sidecars_are_requested_beside_the_containers_and_an_init_container_instead_of_them():
    found = pod(gpu(), container("log", {"cpu": "1"}), container("b", {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 500}))
    found["spec"]["initContainers"] = [
        container("load", {"nvidia.com/gpu": 4}),
        {**container("side", {"nvidia.com/gpucores": 5}), "restartPolicy": "Always"},
    ]
    told = read(found)
    assert (told.requests, told.asking) == (
        {"nvidia.com/gpucores": 5, "nvidia.com/gpu": 4, "nvidia.com/gpumem": 500},
        4,
    )
