"""HAMi's own scheduler page, recorded, is what our hami and hami-legacy families say of the same nodes and pods.

Nodes, quotas and most pods are those of the recording. The page also has pods of a longer run: these are made from the
page's series per pod. GPU-m0 has three slots in use by two pods, so the larger one holds two equal MIG instances.
"""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from tests.paths import TESTS
from tests.services.agent.noderoot import Samples
from vgpuscope.catalog import cluster as m
from vgpuscope.formats.kube.objects import decode_cluster_pods, decode_nodes, decode_quotas
from vgpuscope.logic.cluster.ledger import ClusterLedger
from vgpuscope.views.cluster.metrics import NodeSamples, namespace_samples
from vgpuscope.views.exposition.sharded import ShardedPage

RECORDED = TESTS / "fixtures" / "scheduler"
PAGE = Samples.of((RECORDED / "hami_scheduler_metrics_legacy_false.prom").read_text())
INPUTS = json.loads((RECORDED / "hami_scheduler_inputs.json").read_text())
DECISIONS = json.loads((RECORDED / "hami_scheduler_decisions.json").read_text())
MIB = 2**20

_DEVICE = {
    "node": "nodeid",
    "device_uuid": "deviceuuid",
    "device_index": "deviceidx",
    "device_type": "devicetype",
    "device_cores": "devicecores",
    "device_memory_limit": "devicememorylimit",
}
_HOLDER = {
    "namespace": "podnamespace",
    "node": "nodename",
    "pod": "podname",
    "container_index": "containeridx",
    "device_uuid": "deviceuuid",
}
UNTIL_V2_7 = {"vGPUPodsDeviceAllocated", "vGPUMemoryPercentage", "vGPUCorePercentage"}
# The legacy name of each metric in HAMi v2.10 and what its labels are called there.
LEGACY = {
    "hami_gpu_memory_limit_bytes": ("GPUDeviceMemoryLimit", _DEVICE),
    "hami_gpu_core_limit_ratio": ("GPUDeviceCoreLimit", _DEVICE),
    "hami_gpu_memory_allocated_bytes": ("GPUDeviceMemoryAllocated", _DEVICE),
    "hami_gpu_shared_count": ("GPUDeviceSharedNum", _DEVICE),
    "hami_gpu_core_allocated_ratio": ("GPUDeviceCoreAllocated", _DEVICE),
    "hami_node_gpu_overview": ("nodeGPUOverview", _DEVICE),
    "hami_node_gpu_memory_allocated_ratio": (
        "nodeGPUMemoryPercentage",
        {name: _DEVICE[name] for name in ("node", "device_uuid", "device_index")},
    ),
    "hami_vgpu_memory_allocated_bytes": ("vGPUMemoryAllocated", _HOLDER),
    "hami_vgpu_core_allocated_ratio": ("vGPUCoreAllocated", _HOLDER),
    "hami_resource_quota_used": (
        "QuotaUsed",
        {"namespace": "quotanamespace", "quota_name": "quotaName", "limit": "limit"},
    ),
}


def listed(kind, items):
    return json.dumps({"kind": f"{kind}List", "apiVersion": "v1", "metadata": {}, "items": items}).encode()


def node(one):
    offered = {"nvidia.com/gpu": str(one["allocatable_nvidia_gpu"])}
    return {
        "metadata": {"name": one["name"], "uid": one["name"], "annotations": one["annotations"]},
        "status": {"capacity": offered, "allocatable": offered},
    }


def quota(one):
    hard = {key: str(value) for key, value in one["hard"].items()}
    return {"metadata": {"name": "quota", "namespace": one["namespace"], "uid": "q"}, "spec": {"hard": hard}}


def recorded_pod(one):
    wanted = one["input"]
    return {
        "metadata": {
            "name": wanted["pod"],
            "namespace": wanted["namespace"],
            "uid": wanted["uid"],
            "annotations": one["podAnnotationsAfter"] or {},
        },
        "spec": {
            "containers": [{"name": c["name"], "resources": {"limits": c["limits"]}} for c in wanted["containers"]]
        },
    }


def pods_of_the_longer_run(known):
    """Pods that only the page knows, each with one container that holds what the page says."""
    held: dict = {}
    for labels, memory in PAGE.named("hami_vgpu_memory_allocated_bytes"):
        key = (labels["namespace"], labels["pod"])
        if key not in known:
            share = {name: labels[name] for name in ("namespace", "pod", "device_uuid")}
            cores = PAGE.one("hami_vgpu_core_allocated_ratio", **share)
            held.setdefault((*key, labels["node"]), []).append((labels["device_uuid"], int(memory) // MIB, int(cores)))
    for (namespace, name, where), found in held.items():
        devices = [(uuid, memory // 2, cores // 2) for uuid, memory, cores in found * 2] if name == "m2" else found
        given = "".join(f"{uuid},NVIDIA,{memory},{cores}:" for uuid, memory, cores in devices) + ";"
        notes = {"hami.io/vgpu-node": where, "hami.io/vgpu-devices-allocated": given}
        limits = {"nvidia.com/gpu": len(devices)}
        yield {
            "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "annotations": notes},
            "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
        }


@pytest.fixture(scope="module")
def ours():
    pods = [recorded_pod(one) for one in DECISIONS]
    known = {(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in pods}
    ledger = ClusterLedger()
    kinds: tuple[tuple[Any, Any, str, Iterable], ...] = (
        (decode_nodes, ledger.set_node, "Node", map(node, INPUTS["nodes"])),
        (decode_quotas, ledger.set_quota, "ResourceQuota", map(quota, INPUTS["resourceQuotas"])),
        (decode_cluster_pods, ledger.set_pod, "Pod", [*pods, *pods_of_the_longer_run(known)]),
    )
    for decode, take, kind, items in kinds:
        page = decode(listed(kind, list(items)))
        assert page.faults == ()
        for found in page.items:
            take(found)
    made, samples = ShardedPage(m.METRICS, ("hami", "hami-legacy")), NodeSamples()
    changes = ledger.changed()
    for name in changes.nodes:
        made.update_rows(name, samples.of(ledger.node(name)))
    for name in changes.namespaces:
        made.update(("namespace", name), namespace_samples(ledger.namespace(name)))
    return Samples.of(made.text().decode())


def under_legacy_names(page):
    """What HAMi v2.10 shows with --legacy-metrics: the same values, and zone stays."""
    found = {}
    for (name, labels), value in page.items():
        if name in LEGACY:
            legacy, renamed = LEGACY[name]
            kept = {renamed[label]: text for label, text in labels if label in renamed}
            found[legacy, tuple(sorted({**kept, "zone": "vGPU"}.items()))] = value
    return found


def without(page, label):
    return {(name, tuple(pair for pair in labels if pair[0] != label)): value for (name, labels), value in page.items()}


def test_every_series_and_value_of_hamis_scheduler_is_ours_under_the_new_names(ours):
    assert len(PAGE) == 156
    found = {key: value for key, value in ours.items() if key[0].startswith("hami_")}
    assert without(found, "mig_name") == dict(PAGE)  # a label of v2.9


def test_every_series_and_value_of_hamis_scheduler_is_ours_under_the_legacy_names(ours):
    legacy = {key: value for key, value in ours.items() if not key[0].startswith("hami_") and key[0] not in UNTIL_V2_7}
    assert len(legacy) == 154
    assert without(legacy, "sharedcontainers") == under_legacy_names(PAGE)  # a label of releases before v2.10


def test_names_that_went_with_v2_8_have_the_values_of_those_that_replaced_them(ours):
    """vGPUMemoryPercentage is the share of the GPU's memory, 0-1; vGPUCorePercentage is 0-100."""
    memory = {labels["device_uuid"]: value for labels, value in PAGE.named("hami_gpu_memory_limit_bytes")}
    for labels, value in PAGE.named("hami_vgpu_memory_allocated_bytes"):
        at = {_HOLDER[name]: labels[name] for name in _HOLDER}
        assert ours.one("vGPUPodsDeviceAllocated", **at) == value
        assert ours.one("vGPUMemoryPercentage", **at) == pytest.approx(value / memory[labels["device_uuid"]])
        assert ours.one("vGPUCorePercentage", **at) == PAGE.one("hami_vgpu_core_allocated_ratio", **labels)
    assert len(ours.named("vGPUCorePercentage")) == len(PAGE.named("hami_vgpu_core_allocated_ratio")) > 0


def test_the_legacy_overview_goes_on_saying_how_many_share_a_gpu(ours):
    shared = {labels["device_uuid"]: value for labels, value in PAGE.named("hami_gpu_shared_count")}
    assert {one["deviceuuid"]: float(one["sharedcontainers"]) for one, _ in ours.named("nodeGPUOverview")} == shared
