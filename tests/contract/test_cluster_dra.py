"""Slices and claims at a real API server, allocated by a real kube-scheduler, read as the exporter reads them."""

import asyncio
import json
import uuid
from typing import Any

import pytest

from tests.contract.clusterrun import exporter
from tests.controlplane import node, pod, until
from tests.paths import TESTS
from vgpuscope.catalog.cluster import UNPLACED
from vgpuscope.formats.kube import dra, objects
from vgpuscope.logic.cluster.state import ClusterState
from vgpuscope.model.cluster_event import (
    ClaimGone,
    ClaimSet,
    NodeGone,
    NodeSet,
    PodGone,
    PodSet,
    SliceGone,
    SliceSet,
)
from vgpuscope.model.quantity import MIB
from vgpuscope.sources.kube import KubeClient, Watch, open_client, served_version

pytestmark = pytest.mark.real

FIXTURES = TESTS / "fixtures/dra"
GROUP = "/apis/resource.k8s.io"
GATES = (
    "DRAConsumableCapacity",
    "DRAPartitionableDevices",
    "DRADeviceTaints",
    "DRAAdminAccess",
)
GPU = "GPU-3f1c5a02-7c1e-4b6a-9d54-0d1f6a2b7c10"


def recorded(name):
    return json.loads((FIXTURES / name).read_text())["items"]


def publish(cluster, *names):
    for name in names:
        for one in recorded(name):
            cluster.create(one)


def gpu_class(cluster, driver="gpu.nvidia.com", type_=""):
    expression = f'device.driver == "{driver}"'
    if type_:
        expression += f' && device.attributes["{driver}"].type == "{type_}"'
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    cluster.create({"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": spec})


def wanting(name, count=1, **more):
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, **more}
    request = {"name": "gpu", "exactly": exactly}
    return {
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"devices": {"requests": [request]}},
    }


def scheduled(cluster, *pods):
    """Until a real scheduler has bound them all."""
    with cluster.scheduler():
        cluster.create_all(pods)
        until(lambda: all(one["spec"].get("nodeName") for one in cluster.list("pods", namespace="ml")))
    return fresh(cluster)


def user(name, claim, **more):
    return pod(name, resourceClaims=[{"name": "gpu", "resourceClaimName": claim}], **more)


def give(cluster, claim, pods=()):
    """As kube-scheduler would, for what it does not do by default."""
    status = json.loads(json.dumps(claim["status"]))
    status["reservedFor"] = [
        {"resource": "pods", "name": one["metadata"]["name"], "uid": one["metadata"]["uid"]} for one in pods
    ]
    name = claim["metadata"]["name"]
    return cluster.patch("resourceclaims", name, {"status": status}, namespace="ml", subresource="status")


EVENTS: dict[str, tuple[Any, Any]] = {
    "node": (NodeSet, NodeGone),
    "pod": (PodSet, PodGone),
    "slice": (SliceSet, SliceGone),
    "claim": (ClaimSet, ClaimGone),
}


class Reader:
    """The four kinds, listed and watched by the exporter's own watch, in the state of a cluster."""

    def __init__(self, kubeconfig):
        self.state = ClusterState()
        self._kubeconfig, self._kinds = kubeconfig, []
        self._kind("/api/v1/nodes", objects.decode_nodes, objects.decode_node_event, "node")
        self._kind("/api/v1/pods", objects.decode_cluster_pods, objects.decode_cluster_pod_event, "pod")
        self._kind(f"{GROUP}/v1/resourceslices", dra.decode_slices, dra.decode_slice_event, "slice")
        self._kind(f"{GROUP}/v1/resourceclaims", dra.decode_claims, dra.decode_claim_event, "claim")

    def _kind(self, path, page, event, kind):
        is_set, is_gone = EVENTS[kind]

        def listed(found):
            for one in found.values():
                keep(one)

        def keep(one):
            self.state.apply(is_set(one))

        def drop(key):
            self.state.apply(is_gone(key))

        self._kinds.append(
            Watch(
                path=path,
                params={},
                decode_page=page,
                decode_event=event,
                key=lambda one: one.name if kind in ("node", "slice") else one.uid,
                on_list=listed,
                on_change=lambda key, one: drop(key) if one is None else keep(one),
            )
        )

    async def until(self, condition, *, act=lambda: None):
        """Watch, act once everything was listed, and go on until the condition holds of the node's ledger."""
        async with open_client(self._kubeconfig) as client, asyncio.timeout(120):
            api = KubeClient(client, timeout=60.0)
            changed, listed = asyncio.Event(), set()
            tasks = [
                asyncio.create_task(one.run(api, lambda n=n: (listed.add(n), changed.set())))
                for n, one in enumerate(self._kinds)
            ]
            try:
                while len(listed) < len(tasks):
                    await self._next(changed, tasks)
                await asyncio.to_thread(act)
                while not ((one := self.state.node("n1")) and condition(one)):
                    await self._next(changed, tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        assert [fault for kind in self._kinds for fault in kind.faults] == []
        return one

    async def _next(self, changed, tasks):
        waiting = asyncio.create_task(changed.wait())
        await asyncio.wait({waiting, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        changed.clear()
        for task in tasks:
            if task.done():
                task.result()


def fresh(cluster):
    """The node's ledger by plain lists."""
    return asyncio.run(Reader(cluster.kubeconfig).until(lambda one: True))


@pytest.fixture
def cluster(empty_cluster):
    empty_cluster.create(node("n1"))
    return empty_cluster


@pytest.fixture
def everything(control_plane, monkeypatch):
    """The same, but server and scheduler also have the features that 1.35 has, but not by default."""
    gates, run = "--feature-gates=" + ",".join(f"{gate}=true" for gate in GATES), control_plane._run
    control_plane.reset(gates)
    monkeypatch.setattr(control_plane, "_run", lambda program, *flags: run(program, *flags, gates))
    control_plane.create(node("n1"))
    return control_plane


async def test_the_version_we_like_best_is_served(cluster):
    async with open_client(cluster.kubeconfig) as client:
        api = KubeClient(client, timeout=60.0)
        assert await served_version(api, "resource.k8s.io", ("v1", "v1beta2", "v1beta1")) == "v1"
        assert await served_version(api, "resource.k8s.io", ("v9",)) is None
        assert await served_version(api, "nobody.example.com", ("v1",)) is None


def test_each_version_of_the_api_says_the_same(cluster):
    cluster.restart_apiserver("--runtime-config=resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true")
    publish(cluster, "nvidia_gpus.json", "amd.json")
    answers = [cluster.call("GET", f"{GROUP}/{version}/resourceslices") for version in ("v1", "v1beta2", "v1beta1")]
    assert "basic" in answers[2]["items"][0]["spec"]["devices"][0]
    new, middle, old = [dra.decode_slices(json.dumps(answer).encode()) for answer in answers]
    assert (len(new.items), new.faults) == (2, ())
    assert new.items == middle.items == old.items


def test_a_gpu_that_a_real_scheduler_gave_is_held_by_its_pod(cluster):
    publish(cluster, "nvidia_gpus.json")
    gpu_class(cluster)
    cluster.create(wanting("c"))

    def act():
        cluster.create(user("train", "c"))

    with cluster.scheduler():
        reader = Reader(cluster.kubeconfig)
        one = asyncio.run(reader.until(lambda one: one.holders, act=act))
    (holder,) = one.holders
    assert (holder.pod, holder.namespace, holder.memory, holder.cores) == ("train", "ml", 81920 * MIB, 100)
    assert holder.device in {found.device.id for found in one.devices}
    assert (one.findings, fresh(cluster)) == ((), one)


def test_pods_that_share_a_claim_share_its_gpu(cluster):
    publish(cluster, "nvidia_gpus.json")
    gpu_class(cluster)
    cluster.create(wanting("c"))
    one = scheduled(cluster, user("a", "c"), user("b", "c"))
    assert [holder.memory for holder in one.holders] == [40960 * MIB] * 2
    assert (one.capacity.allocated.cards, one.findings) == (1, ())


def test_a_storm_of_claims_slices_and_pods_ends_in_what_a_fresh_list_says(cluster):
    publish(cluster, "nvidia_gpus.json")
    reader = Reader(cluster.kubeconfig)
    template = recorded("claims.json")[0]

    def act():
        for round_ in range(6):
            claim = json.loads(json.dumps(template))
            claim["metadata"]["name"] = f"c{round_}"
            claim["status"]["allocation"]["devices"]["results"][0]["device"] = f"gpu-{round_ % 2}"
            cluster.create(claim)
            holder = cluster.create(user(f"p{round_}", f"c{round_}", node="n1"))
            give(cluster, claim, [holder])
            if round_ < 4:
                free = {"status": {"allocation": None, "reservedFor": None}}
                cluster.patch("resourceclaims", f"c{round_}", free, namespace="ml", subresource="status")
            if round_ % 2:
                cluster.delete("pods", f"p{round_}", namespace="ml")
            name = recorded("nvidia_gpus.json")[0]["metadata"]["name"]
            spec = {"pool": {"generation": round_ + 2, "name": "n1", "resourceSliceCount": 1}}
            cluster.patch("resourceslices", name, {"spec": spec})
        cluster.create(pod("last", node="n1", limits={"nvidia.com/gpu": "1"}))

    one = asyncio.run(reader.until(lambda one: {h.pod for h in one.holders} == {"p4", "resourceclaim/c5"}, act=act))
    assert fresh(cluster).holders == one.holders
    assert [found.memory_allocated for found in one.devices] == [81920 * MIB] * 2


def test_what_drivers_publish_is_accepted_and_read(everything):
    for file in ("nvidia_gpus", "nvidia_static_mig", "nvidia_dynamic_mig", "hami_core", "amd"):
        publish(everything, f"{file}.json")
        one = fresh(everything)
        assert (len(one.devices), one.findings) == ({"nvidia_gpus": 2, "amd": 2}.get(file, 1), ())
        assert all(found.device.memory > 40_000 * MIB for found in one.devices)
        for published in everything.list("resourceslices"):
            everything.delete("resourceslices", published["metadata"]["name"])


def test_who_looks_as_an_administrator_and_who_waits_hold_nothing(everything):
    publish(everything, "nvidia_gpus.json")
    look, waiting = recorded("claims.json")[2:]
    everything.patch("namespaces", "ml", {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}})
    everything.create(waiting)
    everything.create(look)
    give(everything, look, [everything.create(user("watcher", "look", node="n1"))])
    one = fresh(everything)
    assert (one.holders, one.capacity.allocated.cards) == ((), 0)


def test_shares_of_a_gpu_are_what_a_real_scheduler_lets_claims_consume(everything):
    publish(everything, "hami_core.json")
    gpu_class(everything, "hami-core-gpu.project-hami.io")
    everything.create(wanting("c", capacity={"requests": {"cores": "50", "memory": "10Gi"}}))
    everything.create(wanting("d", capacity={"requests": {"cores": "20", "memory": "1Gi"}}))
    one = scheduled(everything, user("a", "c"), user("b", "d"))
    assert [(holder.memory // MIB, holder.cores, holder.device) for holder in one.holders] == [
        (10240, 50, GPU),
        (1024, 20, GPU),
    ]
    assert (one.devices[0].slots_free, one.devices[0].memory_free // MIB, one.findings) == (98, 81920 - 11264, ())


def test_instances_that_a_real_scheduler_cuts_out_of_a_gpu_are_parts_of_it(everything):
    publish(everything, "nvidia_dynamic_mig.json")
    gpu_class(everything, type_="mig")
    everything.create(wanting("c", count=2))
    one = scheduled(everything, user("train", "c"))
    (gpu,) = one.devices
    assert (gpu.device.id, gpu.device.mode, gpu.shared, gpu.containers) == (GPU, "mig", 2, 1)
    assert gpu.memory_allocated == sum(holder.memory for holder in one.holders) > 0
    assert len({held.instance.start for held in gpu.instances}) == 2
    assert (one.capacity.whole_cards, one.findings) == (0, ())


def test_a_gpu_whose_driver_left_has_vanished_under_its_holder(cluster):
    publish(cluster, "nvidia_gpus.json")
    other = recorded("nvidia_gpus.json")[0]
    other["metadata"]["name"], other["spec"]["nodeName"] = "other", "n2"
    other["spec"]["pool"]["name"] = "n2"
    cluster.create(other)
    whole = recorded("claims.json")[0]
    cluster.create(whole)
    give(cluster, whole, [cluster.create(user("train", "whole", node="n1"))])
    cluster.delete("resourceslices", recorded("nvidia_gpus.json")[0]["metadata"]["name"])
    one = fresh(cluster)
    assert [(found.kind, found.pod, found.device) for found in one.findings] == [
        ("vanished-device", "train", "gpu.nvidia.com/n1/gpu-0")
    ]


def test_a_claim_whose_pod_is_gone_still_holds_its_gpu(cluster):
    publish(cluster, "nvidia_gpus.json")
    whole = recorded("claims.json")[0]
    cluster.create(whole)
    gone = {"metadata": {"name": "gone", "uid": str(uuid.uuid4())}}
    give(cluster, whole, [gone])
    one = fresh(cluster)
    assert [(holder.pod, holder.memory) for holder in one.holders] == [("resourceclaim/whole", 81920 * MIB)]


def test_devices_on_no_node_in_particular_are_counted(cluster, tmp_path):
    pool = {"name": "anywhere", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "pool": pool, "allNodes": True, "devices": [{"name": "gpu-0"}]}
    with exporter(cluster.kubeconfig, tmp_path) as running:
        assert not running.page().named(UNPLACED.name)  # nobody publishes devices: that is not 0
        cluster.create({"kind": "ResourceSlice", "metadata": {"name": "anywhere"}, "spec": spec})
        running.until(lambda page: page.named(UNPLACED.name) == [({}, 1)])
