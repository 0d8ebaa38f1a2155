"""Hundreds of nodes with eight pods each on a real API server: the page is right at first, and after every storm.

Right is what this file adds up by itself, from the objects as they were written and as the API server lists them.
"""

import random
import re
import signal
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.contract.clusterrun import MIB, exporter, holder, quota, registered
from tests.controlplane import until
from vgpuscope.catalog import cluster as m

pytestmark = pytest.mark.real

NODES = [400, pytest.param(1000, marks=pytest.mark.long)]
PODS = 8
GPU = 81920  # MiB
NAMESPACES = [f"team-{i}" for i in range(10)]
STORM = 100  # objects that are created, that are changed and that go
AT_ONCE = 6


def gpus(node):
    return [f"GPU-{node}-{i}" for i in range(2)]


def name_of(number):
    return f"gpu-{number:04d}"


def objects(nodes):
    """Every pod's share is of a size of its own, so that a mistake does not cancel out."""
    for number in range(nodes):
        name = name_of(number)
        yield registered(name, *gpus(name), memory=GPU)
        for place in range(PODS):
            yield pod_of(number, place)
    for namespace in NAMESPACES:
        yield quota(namespace, gpumem="40000000")


def pod_of(number, place, prefix="p"):
    name = name_of(number)
    return holder(
        f"{prefix}-{number}-{place}",
        name,
        gpus(name)[place % 2],
        memory=1000 + number + place,
        cores=5 + place,
        namespace=NAMESPACES[(number + place) % len(NAMESPACES)],
        limits={"nvidia.com/gpu": "1"},
    )


def shares(pod):
    """(uuid, MiB, percent) of each device that a pod was given, read from the text by nobody's code but this."""
    text = pod["metadata"].get("annotations", {}).get("hami.io/vgpu-devices-allocated", "")
    for container in text.split(";"):
        for device in container.split(":"):
            if device:
                uuid, _, mib, percent = device.split(",")
                yield uuid, int(mib), int(percent)


def added_up(nodes, pods, quotas):
    """What the page must say, by name and by what tells its series apart."""
    memory, cores, slots, used = (defaultdict[str, int](int) for _ in range(4))
    for node in nodes:
        for gpu in gpus(node["metadata"]["name"]):
            memory[gpu], cores[gpu], slots[gpu] = 0, 0, 0
    held = {}
    for pod in pods:
        if pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
            continue
        for uuid, mib, percent in shares(pod):
            memory[uuid] += mib * MIB
            cores[uuid] += percent
            slots[uuid] += 1
            used[pod["metadata"]["namespace"]] += mib
            held[pod["metadata"]["namespace"], pod["metadata"]["name"], uuid] = mib * MIB
    return {
        "GPUDeviceMemoryAllocated": dict(memory),
        "GPUDeviceCoreAllocated": {gpu: float(percent) for gpu, percent in cores.items()},
        "GPUDeviceSharedNum": dict(slots),
        "vGPUMemoryAllocated": held,
        m.QUOTA_USED.name: {namespace: used[namespace] for namespace in used},
        m.QUOTA_LIMIT.name: {one["metadata"]["namespace"]: 40_000_000 for one in quotas},
        m.CLUSTER_CAPACITY.cards.name: {(): 2 * len(nodes)},
        m.CLUSTER_CAPACITY.memory.name: {(): 2 * len(nodes) * GPU * MIB},
        m.CLUSTER_CAPACITY.memory_allocated.name: {(): sum(memory.values())},
        m.WATCH_OBJECTS.name: {"nodes": len(nodes), "pods": len(pods), "resourcequotas": len(quotas)},
    }


TOLD_APART_BY = {
    "GPUDeviceMemoryAllocated": ("deviceuuid",),
    "GPUDeviceCoreAllocated": ("deviceuuid",),
    "GPUDeviceSharedNum": ("deviceuuid",),
    "vGPUMemoryAllocated": ("podnamespace", "podname", "deviceuuid"),
    m.QUOTA_USED.name: ("namespace",),
    m.QUOTA_LIMIT.name: ("namespace",),
    m.CLUSTER_CAPACITY.cards.name: (),
    m.CLUSTER_CAPACITY.memory.name: (),
    m.CLUSTER_CAPACITY.memory_allocated.name: (),
    m.WATCH_OBJECTS.name: ("kind",),
}


_LABEL = re.compile(r'(\w+)="([^"]*)"')  # none of the values here needs an escape
_OUR_OWN = ("#", "vgpuscope_cluster_watch_", "vgpuscope_cluster_errors_", "vgpuscope_build", "hami_build")
_SINCE_WE_LOOK = (
    "hami_scheduler_",
    "vgpuscope_cluster_scheduling",
    "vgpuscope_cluster_binds",
    "vgpuscope_cluster_pending_oldest",
)


_ELSEWHERE = re.compile('="nvidia.com/gpucores"|kind="(?:events|resourceslices|resourceclaims)"')  # not added up here


def lines(running):
    """The page; a hundred thousand samples are too many for a parser that can do everything."""
    found = running.get()[2].decode().splitlines()
    assert len(set(found)) == len(found)
    return found


def shown(page):
    """What the page says, in the same shape."""
    found: dict[str, dict] = {name: {} for name in TOLD_APART_BY}
    for line in page:
        name = line[: line.find("{" if "{" in line else " ")]
        if name in found and not _ELSEWHERE.search(line):
            labels = dict(_LABEL.findall(line))
            key = tuple(labels[label] for label in TOLD_APART_BY[name])
            found[name][key[0] if len(key) == 1 else key] = float(line.rpartition(" ")[2])
    return found


def is_right(running, cluster):
    """The page comes to equal what this file makes of a list of the API server, and what a fresh exporter shows."""
    truth = added_up(*(cluster.list(kind) for kind in ("nodes", "pods", "resourcequotas")))
    running.wait(lambda: shown(lines(running)) == truth)
    with exporter(cluster.kubeconfig, running.log.parent) as fresh:
        fresh_page = of_the_cluster(lines(fresh))
    running.wait(lambda: of_the_cluster(lines(running)) == fresh_page)


def of_the_cluster(page):
    return {line for line in page if not line.startswith(_OUR_OWN + _SINCE_WE_LOOK)}


class Storm:
    """Pods and nodes that come, change and go through the API, in any order and several at once."""

    def __init__(self, cluster, seed, nodes):
        self.cluster, self.random, self.seed = cluster, random.Random(seed), seed
        self.nodes = nodes
        self.pods = cluster.list("pods")
        self.random.shuffle(self.pods)

    def works(self):
        made = [lambda i=i: self.come(i) for i in range(STORM)]
        made += [lambda i=i: self.change(self.pods[i], i) for i in range(STORM)]
        made += [lambda i=i: self.go(self.pods[STORM + i]) for i in range(STORM)]
        made += [lambda i=i: self.renew_node(i) for i in range(10)]
        self.random.shuffle(made)
        return made

    def come(self, i):
        self.cluster.create(pod_of(self.random.randrange(self.nodes), i, prefix=f"storm-{self.seed}-{i}"))

    def change(self, pod, i):
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        if i % 2:
            note = {"hami.io/vgpu-devices-allocated": pod["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"]}
            uuid = note["hami.io/vgpu-devices-allocated"].split(",")[0]
            note["hami.io/vgpu-devices-allocated"] = f"{uuid},NVIDIA,{2000 + i},1:;"
            self.cluster.patch("pods", name, {"metadata": {"annotations": note}}, namespace=namespace)
        else:
            ended = {"status": {"phase": "Succeeded" if i % 4 else "Failed"}}
            self.cluster.patch("pods", name, ended, namespace=namespace, subresource="status")

    def go(self, pod):
        self.cluster.delete("pods", pod["metadata"]["name"], namespace=pod["metadata"]["namespace"])

    def renew_node(self, i):
        """It goes and comes back while its pods stay."""
        name = name_of(i * 37 + self.seed)
        self.cluster.delete("nodes", name)
        self.cluster.create(registered(name, *gpus(name), memory=GPU))

    def rage(self, works):
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for done in [pool.submit(work) for work in works]:
                done.result()


@pytest.mark.parametrize("nodes", NODES)
def test_all_nodes_are_right_at_first_and_after_every_storm(empty_cluster, tmp_path, nodes):
    cluster = empty_cluster
    for namespace in NAMESPACES:
        cluster.namespace(namespace)
    seeded = list(objects(nodes))
    cluster.seed(seeded)
    until(lambda: len(cluster.list("pods", resourceVersion="0")) == nodes * PODS)  # the server's memory follows
    of = {kind: [one for one in seeded if one["kind"] == kind] for kind in ("Node", "Pod", "ResourceQuota")}
    with exporter(cluster.kubeconfig, tmp_path) as running:
        first = lines(running)
        assert shown(first) == added_up(of["Node"], of["Pod"], of["ResourceQuota"])
        assert not any(line.startswith(m.FINDINGS.name) for line in first)
        after_a_storm(cluster, running, nodes)
        after_a_storm_in_which_the_api_server_restarts(cluster, running, nodes)
        after_a_storm_that_nobody_remembers(cluster, running, nodes)


def after_a_storm(cluster, running, nodes):
    storm = Storm(cluster, 1, nodes)
    storm.rage(storm.works())
    is_right(running, cluster)
    assert told(running) >= 3 * STORM


def after_a_storm_in_which_the_api_server_restarts(cluster, running, nodes):
    storm = Storm(cluster, 2, nodes)
    works = storm.works()
    storm.rage(works[: len(works) // 2])
    cluster.restart_apiserver()
    storm.rage(works[len(works) // 2 :])
    is_right(running, cluster)


def after_a_storm_that_nobody_remembers(cluster, running, nodes):
    """The exporter stands still and is cut off meanwhile, and the version it had is compacted away: 410, a new list."""
    storm, before = Storm(cluster, 3, nodes), told(running)
    running.process.send_signal(signal.SIGSTOP)
    cluster.restart_apiserver()
    storm.rage(storm.works())
    cluster.compact()
    cluster.restart_apiserver()
    running.process.send_signal(signal.SIGCONT)
    is_right(running, cluster)
    assert told(running) < before + STORM


def told(running):
    """How many changes of pods came one by one, and not by a list."""
    return running.page().one(m.WATCH_EVENTS.name, kind="pods")
