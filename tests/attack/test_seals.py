"""A seal is of one assignment of one pod: nothing that says who has what can change under it."""

import json

import pytest

from vgpuscope.formats.hami.seal import SEAL, SealKey, Seals
from vgpuscope.formats.kube.allocating import decode_allocating
from vgpuscope.formats.kube.objects import decode_cluster_pods
from vgpuscope.formats.kube.pods import decode_event, decode_pods
from vgpuscope.logic.node.holdings import PodIndex, holdings
from vgpuscope.model.region import ContainerRegion

pytestmark = pytest.mark.attack

SINCE, NEW, OLD = 1780000000.0, "2026-11-17T08:00:00Z", "2026-01-01T00:00:00Z"  # SINCE is between the two
EXACTLY = "2026-05-28T20:26:40Z"  # SINCE
KEYS = Seals([SealKey("k", b"x" * 32, SINCE)])
MIG = "hami.io/vgpu-mig-allocations"
ROW = {"containerIndex": 0, "deviceIndex": 0, "gpuUUID": "GPU-a", "profile": "1g.10gb"}
PLACED = {
    "hami.io/vgpu-node": "n1",
    "hami.io/vgpu-time": "1790000000",
    "hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,3000,30:;",
}


def mig(*, start=0, size=1, **more):
    return {MIG: json.dumps([ROW | {"placement": {"start": start, "size": size}} | more])}


SHARE, INSTANCE = PLACED, PLACED | mig()
CHANGES = {
    "the node": (SHARE, {"hami.io/vgpu-node": "n2"}),
    "the time": (SHARE, {"hami.io/vgpu-time": "1790000001"}),
    "the GPU": (SHARE, {"hami.io/vgpu-devices-allocated": "GPU-b,NVIDIA,3000,30:;"}),
    "the memory": (SHARE, {"hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,3001,30:;"}),
    "the cores": (SHARE, {"hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,3000,31:;"}),
    "one GPU more": (SHARE, {"hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,3000,30:GPU-b,NVIDIA,3000,30:;"}),
    "another container": (SHARE, {"hami.io/vgpu-devices-allocated": ";GPU-a,NVIDIA,3000,30:;"}),
    "an instance where there was none": (SHARE, mig()),
    "no instance any more": (INSTANCE, {MIG: ""}),
    "the profile": (INSTANCE, mig(profile="7g.80gb")),
    "the place": (INSTANCE, mig(start=4)),
    "the size": (INSTANCE, mig(size=8)),
    "the GPU of the instance": (INSTANCE, mig(gpuUUID="GPU-b")),
    "the container of the instance": (INSTANCE, mig(containerIndex=1)),
    "the device of the instance": (INSTANCE, mig(deviceIndex=1)),
    "the same text, split elsewhere": (
        INSTANCE,
        {
            "hami.io/vgpu-time": "1790000000\0GPU-a,NVIDIA,3000,30:;",
            "hami.io/vgpu-devices-allocated": "0,0,GPU-a,1g.10gb,0,1",
            MIG: None,
        },
    ),
}


@pytest.mark.parametrize("bound", [False, True], ids=["assigned", "bound"])
@pytest.mark.parametrize("what", CHANGES)
def test_a_seal_does_not_hold_for_anything_else(what, bound):
    placed, change = CHANGES[what]
    notes = placed | {SEAL: KEYS.seal("uid-p", placed, bound=bound)}
    assert KEYS.holds("uid-p", notes, bound=bound)
    assert not KEYS.holds("uid-p", notes, bound=not bound)
    assert not KEYS.holds("uid-q", notes, bound=bound)
    assert not KEYS.holds("uid-p", {key: text for key, text in (notes | change).items() if text}, bound=bound)


def test_what_the_device_plugin_adds_needs_no_new_seal():
    notes = INSTANCE | {SEAL: KEYS.seal("uid-p", INSTANCE, bound=True)}
    later = {"hami.io/bind-phase": "success", "hami.io/vgpu-devices-to-allocate": ";"}
    assert KEYS.holds("uid-p", notes | later | mig(migUUID="MIG-1", gpuInstanceID=7, computeInstanceID=0), bound=True)


def read(notes, *, created, node="n1", limits=None):
    """The pod as extender and exporter read it, and as the device plugin does."""
    container = {"name": "main", "resources": {"limits": limits or {"nvidia.com/gpu": "1"}}}
    meta = {"name": "p", "namespace": "ml", "uid": "uid-p", "annotations": notes, "creationTimestamp": created}
    spec = {"containers": [container]} | ({"nodeName": node} if node else {})
    data = json.dumps({"kind": "PodList", "items": [{"metadata": meta, "spec": spec}]}).encode()
    (pod,) = decode_cluster_pods(data, seals=KEYS).items
    (asking,) = decode_allocating(data, seals=KEYS).items
    return pod, asking


@pytest.mark.parametrize(("created", "held"), [(OLD, True), (NEW, False), (EXACTLY, False), (None, False)])
def test_only_a_pod_that_is_older_than_all_seals_needs_none(created, held):
    notes = PLACED | {"hami.io/vgpu-devices-to-allocate": PLACED["hami.io/vgpu-devices-allocated"]}
    pod, asking = read(notes, created=created)
    assert (bool(pod.assignments), not asking.forged) == (held, held)
    assert not KEYS.believes("uid-p", notes, bound=False, created=0.0)


def test_a_forged_instance_is_not_held_either():
    forged, _ = read(INSTANCE, created=NEW)
    assert (forged.assignments, forged.instances, len(forged.claimed)) == ((), (), 1)
    sealed, _ = read(INSTANCE | {SEAL: KEYS.seal("uid-p", INSTANCE, bound=True)}, created=NEW)
    assert (len(sealed.assignments), len(sealed.instances), sealed.claimed) == (1, 1, ())


@pytest.mark.parametrize("read_one", [False, True], ids=["list", "watch"])
def test_the_agent_gives_no_gpu_to_who_only_says_that_it_has_one(read_one):
    """With the API server's pods or the kubelet's: both have annotations that the pod's author can write."""

    def seen(notes, *, created=NEW):
        meta = {"name": "p", "namespace": "ml", "uid": "uid-p", "annotations": notes, "creationTimestamp": created}
        asking = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        item = {"metadata": meta, "spec": {"nodeName": "n1", "containers": [asking]}, "status": {"phase": "Running"}}
        if read_one:
            pod = decode_event(json.dumps({"type": "ADDED", "object": item}).encode(), seals=KEYS).item
        else:
            (pod,) = decode_pods(json.dumps({"kind": "PodList", "items": [item]}).encode(), seals=KEYS).items
        index = PodIndex([pod])
        region = ContainerRegion(pod_uid="uid-p", container="main", region=None)
        held = holdings(gpus=[], devices=frozenset({"GPU-a", "GPU-b"}), pod_index=index, grants=(), regions=[region])
        return [one.gpu for one in held.allocations], [(one.key.pod, one.devices, one.example) for one in held.forged]

    sealed = PLACED | {SEAL: KEYS.seal("uid-p", PLACED, bound=True)}
    assert seen(sealed) == (["GPU-a"], [])
    assert seen(PLACED, created=OLD) == (["GPU-a"], [])
    assert seen(PLACED) == ([], [("p", 1, "GPU-a")])
    more = {"hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,3000,30:GPU-b,NVIDIA,9000,0:;"}
    assert seen(sealed | more) == ([], [("p", 2, "GPU-a")])
    assert seen(mig() | PLACED) == ([], [("p", 1, "GPU-a")])
