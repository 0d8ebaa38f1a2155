"""Every parser of something that another party wrote: any bytes are read, skipped or refused by a declared error."""

import gzip
import json
from typing import Any

import msgspec
import pytest

from tests.formats.hami.wholefile import decode_file
from tests.formats.kubelet_messages import pb
from tests.fuzz import survives
from tests.paths import TESTS
from vgpuscope.formats.cgroup import owners_of
from vgpuscope.formats.hami.annotation import assigned_devices, decode_lock, held_instances, mig_allocations, pod_shares
from vgpuscope.formats.hami.region import decode, identify
from vgpuscope.formats.hami.register import registered_devices
from vgpuscope.formats.kube.api_groups import decode_group_versions
from vgpuscope.formats.kube.dra import decode_claim_event, decode_claims, decode_slice_event, decode_slices
from vgpuscope.formats.kube.endpoints import decode_endpoints
from vgpuscope.formats.kube.events import decode_event_line, decode_events
from vgpuscope.formats.kube.lists import decode_status
from vgpuscope.formats.kube.objects import (
    decode_cluster_pod_event,
    decode_cluster_pods,
    decode_controller,
    decode_node_event,
    decode_nodes,
    decode_quota_event,
    decode_quotas,
)
from vgpuscope.formats.kube.pods import decode_event, decode_pods
from vgpuscope.formats.podresources import WireInvalid, decode_grants
from vgpuscope.formats.scheduler_messages.reasons import condition_reasons, reasons
from vgpuscope.knowledge.vendors import VENDORS
from vgpuscope.model.errors import AnnotationMalformed, KubeUnreadable, RegionRefused
from vgpuscope.model.pod import Container

pytestmark = pytest.mark.attack
FIXTURES = TESTS / "fixtures"


def fixture(name: str) -> Any:
    return json.loads((FIXTURES / name).read_text())


# ── objects of the Kubernetes API ───────────────────────────────────────────────────────────────────────────────────

DECISIONS = fixture("cluster/hami_scheduler_decisions.json")
NODES = [one for one in fixture("cluster/hami_scheduler_inputs.json")["nodes"] if one["annotations"]]
POD: dict[str, Any] = {
    "metadata": {
        "name": "train",
        "namespace": "ml",
        "uid": "uid-1",
        "resourceVersion": "7",
        "creationTimestamp": "2026-11-15T08:00:00Z",
        "labels": {"pod-template-hash": "abc"},
        "annotations": DECISIONS[0]["podAnnotationsAfter"] | DECISIONS[0]["podAnnotationsAfterBind"],
        "ownerReferences": [{"kind": "ReplicaSet", "name": "web-abc", "uid": "r", "controller": True}],
    },
    "spec": {
        "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8k"}}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "whole"}],
    },
    "status": {
        "phase": "Pending",
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/2 nodes are available: 1 CardInsufficientMemory(gpu-1).",
                "lastTransitionTime": "2026-11-15T08:00:00Z",
            }
        ],
        "containerStatuses": [
            {
                "name": "main",
                "containerID": "containerd://ab",
                "state": {"running": {"startedAt": "2026-11-15T08:00:00Z"}},
            }
        ],
    },
}
NODE: dict[str, Any] = {
    "metadata": {
        "name": "node-a",
        "annotations": NODES[0]["annotations"],
        "labels": {"nvidia.com/gpu.memory": "81920"},
    },
    "spec": {"unschedulable": False},
    "status": {
        "capacity": {"nvidia.com/gpu": "20", "huawei.com/Ascend910": "8"},
        "allocatable": {"nvidia.com/gpu": "2e1"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
QUOTA: dict[str, Any] = {
    "metadata": {"name": "gpus", "namespace": "ml"},
    "spec": {"hard": {"limits.nvidia.com/gpumem": "10k", "limits.nvidia.com/gpu": "1500m"}},
}
EVENT: dict[str, Any] = {
    "metadata": {"uid": "e", "name": "train.18", "namespace": "ml", "resourceVersion": "9"},
    "involvedObject": {"kind": "Pod", "namespace": "ml", "name": "train", "uid": "uid-1"},
    "reason": "FilteringFailed",
    "message": "2 nodes CardInsufficientMemory(gpu-1,gpu-2); 1 nodes NodeUnfitPod(gpu-3)",
    "source": {"component": "hami-scheduler"},
    "count": 7,
    "firstTimestamp": "2026-11-15T08:00:00Z",
    "series": {"count": 4, "lastObservedTime": "2026-11-15T08:06:00.500000Z"},
}
SLICE = {
    "metadata": {"name": "s"},
    "addressType": "IPv4",
    "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": True}, "targetRef": {"kind": "Pod", "uid": "u"}}],
    "ports": [{"name": "http", "port": 9394, "appProtocol": "https"}],
}
CLAIMS = [
    {**claim, "metadata": {**claim["metadata"], "uid": claim["metadata"]["name"]}}
    for claim in fixture("dra/claims.json")["items"][:2]
]
KINDS: dict[str, tuple[str, list[Any], Any, Any]] = {
    "pods of a node": ("Pod", [POD], decode_pods, decode_event),
    "pods": ("Pod", [POD], decode_cluster_pods, decode_cluster_pod_event),
    "nodes": ("Node", [NODE], decode_nodes, decode_node_event),
    "quotas": ("ResourceQuota", [QUOTA], decode_quotas, decode_quota_event),
    "events": ("Event", [EVENT], decode_events, decode_event_line),
    "slices": ("ResourceSlice", fixture("dra/nvidia_gpus.json")["items"][:1], decode_slices, decode_slice_event),
    "claims": ("ResourceClaim", CLAIMS, decode_claims, decode_claim_event),
    "endpoints": ("EndpointSlice", [SLICE], decode_endpoints, None),
}


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def expected(found: Any) -> None:
    """A fault by an error that no parser declares is one that we did not think of."""
    assert not [fault for fault in found.faults if fault.reason.startswith("unexpected ")], found.faults


@pytest.mark.parametrize("name", KINDS)
def test_a_list_of_objects(name):
    kind, items, decode, _ = KINDS[name]
    page = compact({"kind": f"{kind}List", "metadata": {"resourceVersion": "7", "continue": "t"}, "items": items})
    assert len(decode(page).items) == len(items)
    survives(lambda data: expected(decode(data)), page, KubeUnreadable, cases=len(KINDS))


@pytest.mark.parametrize("name", [name for name in KINDS if name != "endpoints"])
def test_a_line_of_a_watch(name):
    kind, items, _, decode = KINDS[name]
    line = compact({"type": "MODIFIED", "object": {"kind": kind, **items[0]}})
    assert decode(line).item is not None
    survives(lambda data: expected(decode(data)), line, KubeUnreadable, cases=len(KINDS))


def test_a_status_a_list_of_versions_and_a_controller():
    status = compact({"kind": "Status", "code": 410, "reason": "Gone", "message": "too old"})
    survives(decode_status, status, cases=3)
    survives(lambda data: decode_event(b'{"type":"ERROR","object":' + data + b"}"), status, KubeUnreadable, cases=3)
    groups = compact({"versions": [{"groupVersion": "resource.k8s.io/v1", "version": "v1"}]})
    survives(decode_group_versions, groups, KubeUnreadable, cases=3)
    survives(lambda data: decode_controller(data, uid="uid-1"), compact(POD), ValueError, cases=3)


# ── texts of HAMi and of schedulers ─────────────────────────────────────────────────────────────────────────────────

MIGS = [
    {
        "containerIndex": 0,
        "deviceIndex": 0,
        "gpuUUID": "GPU-a",
        "profile": "1g.10gb",
        "placement": {"start": 0, "size": 1},
        "migUUID": "MIG-a",
        "gpuInstanceID": 7,
        "computeInstanceID": 0,
    }
]
DRS = {"devices": [{"index": "0", "capacity": "6"}], "profiles": {"3g.20gb": {}}}
REGISTERS = {
    "json": NODES[0]["annotations"]["hami.io/node-nvidia-register"].encode(),
    "text": b"GPU-a,10,81920,100,NVIDIA A100,0,true:GPU-b,10,81920,100,NVIDIA A100,0,true,1,hami-core:",
    "metax": compact([{"uuid": "a", "totalDevCount": 4, "totalCompute": 100, "totalVRam": 65536, "healthy": True}]),
    "enflame": compact(DRS),
}
ASSIGNED = DECISIONS[0]["podAnnotationsAfter"]["hami.io/vgpu-devices-allocated"].encode()


def registered(data: bytes) -> None:
    """The text as the register of every vendor; a register that is malformed is reported, and not raised."""
    for vendor in VENDORS:
        if vendor.registers:
            registered_devices({vendor.registers[0]: data.decode("utf-8", "surrogateescape")}, {}, "node-a")


@pytest.mark.parametrize("name", REGISTERS)
def test_a_register_of_devices(name):
    survives(registered, REGISTERS[name], cases=len(REGISTERS))


def assigned(data: bytes) -> None:
    text, containers = data.decode("utf-8", "replace"), [Container(name="main", gpu_request=True)]
    assigned_devices("hami.io/vgpu-devices-allocated", text)
    pod_shares({"hami.io/vgpu-devices-allocated": text}, containers)


def test_an_assignment_of_devices():
    survives(assigned, ASSIGNED + b"GPU-b,NVIDIA,8000,30:;", AnnotationMalformed, cases=3)


def test_instances_of_mig_and_the_lock_of_a_node():
    def read(data: bytes) -> None:
        notes = {"hami.io/vgpu-mig-allocations": data.decode("utf-8", "surrogateescape")}
        mig_allocations(notes)
        held_instances(notes)

    survives(read, compact(MIGS), AnnotationMalformed, cases=3)
    lock = DECISIONS[0]["nodeLockAfterBind"].encode()
    survives(lambda data: decode_lock(data.decode("utf-8", "replace")), lock, AnnotationMalformed, cases=3)


MESSAGES = sorted((FIXTURES / "events").glob("*.json"))


@pytest.mark.parametrize("file", MESSAGES, ids=lambda file: file.stem)
def test_a_message_of_a_scheduler(file):
    said = max(json.loads(file.read_text()), key=lambda one: len(one["message"][:600]))
    component, reason = said.get("component", ""), said.get("reason", "")

    def read(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        reasons(component, reason, text)
        condition_reasons(reason, text)

    survives(read, said["message"][:600].encode(), cases=len(MESSAGES))


# ── what the node says: regions, grants, processes ──────────────────────────────────────────────────────────────────

REGIONS = ("real_v12_single", "real_v0_single", "real_v11_single", "real_v12_multi_gpu")


@pytest.mark.parametrize("name", REGIONS)
def test_a_region_of_a_container(name):
    whole = gzip.decompress((FIXTURES / f"regions/{name}.cache.gz").read_bytes())
    layout = identify(len(whole), whole)
    begin, length = layout.tail
    head = whole[: layout.slots + 2 * layout.slot_size]

    def read(data: bytes) -> None:
        start, end = data[: len(data) - length], data[len(data) - length :]
        found = identify(len(whole), start)
        count = found.process_count(end) if len(end) == length else 0
        decode(found, start + whole[len(start) : found.head_length(count)], end)

    survives(read, head + whole[begin : begin + length], RegionRefused, cases=2 * len(REGIONS))


@pytest.mark.parametrize("name", REGIONS)
def test_a_region_of_another_length(name):
    whole = gzip.decompress((FIXTURES / f"regions/{name}.cache.gz").read_bytes())
    for size in (*range(200), *range(0, len(whole), len(whole) // 97), *range(len(whole) - 50, len(whole) + 3)):
        try:
            decode_file((whole + b"\0\0\0")[:size])
        except RegionRefused:
            continue


def grants() -> bytes:
    """An answer as the kubelet's own code writes it."""
    device = pb.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=["GPU-a", "GPU-b"])
    claim = pb.DynamicResource(
        claim_name="c",
        claim_namespace="ml",
        claim_resources=[pb.ClaimResource(driver_name="gpu.nvidia.com", pool_name="n", device_name="gpu-0")],
    )
    container = pb.ContainerResources(name="main", devices=[device], dynamic_resources=[claim])
    pods = [pb.PodResources(name=f"train-{number}", namespace="ml", containers=[container]) for number in range(3)]
    message: bytes = pb.ListPodResourcesResponse(pod_resources=pods).SerializeToString()
    return message


def test_the_grants_of_a_kubelet():
    assert len(decode_grants(grants())) == 9
    survives(decode_grants, grants(), WireInvalid)


def test_the_cgroup_of_a_process():
    lines = (FIXTURES / "cgroup/samples.tsv").read_text().splitlines()
    samples = [line.split("\t")[1] for line in lines if line and not line.startswith("#")]
    text = "\n".join(samples[:4]).encode()
    survives(lambda data: owners_of(data.decode(errors="replace")), text)


def test_an_example_that_a_parser_does_not_survive_is_shown():
    with pytest.raises(AssertionError, match="a cut at byte 3"):
        survives(lambda data: msgspec.json.decode(data) if data.startswith(b"[1,") else None, b"[1,2]", UnicodeError)
