"""Hundreds of pods through a real kube-scheduler and our extender, while parts of the cluster fail.

Right is what this file and the stand-in for the device plugins add up by themselves, from the objects as they were
written: no GPU is ever over its memory, cores or slots; a pod that can run is bound; a pod that cannot has its code.
"""

import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest

from tests.contract.clusterrun import quota, registered
from tests.contract.extenderrun import (
    ALLOCATED,
    SHORT_LEASE,
    DevicePlugins,
    decisions,
    extender,
    gpu_pod,
    scheduler,
    start_extender,
)
from tests.contract.service import service
from tests.controlplane import until
from tests.ports import free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.real

GPU = 20000  # MiB
SMALL = (40, 120)
SIZES = [SMALL, pytest.param((1000, 2000), marks=pytest.mark.long)]
WITHIN = {40: 240.0, 1000: 1800.0}  # seconds until all are bound, on a busy machine


def nodes(number) -> Iterator[dict]:
    for at in range(number):
        name = f"gpu-{at:04d}"
        yield registered(name, *(f"GPU-{name}-{gpu}" for gpu in range(2)), memory=GPU, count=40)


def fitting(number, seed=1) -> list[dict]:
    """Pods of many sizes that fit together, wherever they go: all of them need less than half of the cluster."""
    pick = random.Random(seed)
    made = []
    for at in range(number):
        kind = pick.randrange(10)
        if kind == 0:
            made.append(gpu_pod(f"two-{at}", memory=pick.randrange(500, 4000), cores=pick.randrange(0, 20), count=2))
        elif kind == 1:
            made.append(gpu_pod(f"pair-{at}", memory=pick.randrange(500, 2000), containers=("a", "b")))
        else:
            made.append(gpu_pod(f"one-{at}", memory=pick.randrange(500, 6000), cores=pick.randrange(0, 35)))
    return made


def impossible() -> dict[str, tuple[dict, str]]:
    """Pods that never fit, with the code of each."""
    wrong_type = {"nvidia.com/use-gputype": "H200"}
    wrong_gpu = {"nvidia.com/use-gpuuuid": "GPU-of-none"}
    return {
        "huge": (gpu_pod("huge", memory=GPU + 1), "SCHED_INSUFFICIENT_GPU_MEMORY"),
        "many": (gpu_pod("many", memory=100, count=3), "SCHED_INSUFFICIENT_GPU_COUNT"),
        "type": (gpu_pod("type", memory=100, annotations=wrong_type), "SCHED_DEVICE_TYPE_MISMATCH"),
        "uuid": (gpu_pod("uuid", memory=100, annotations=wrong_gpu), "SCHED_DEVICE_UUID_MISMATCH"),
        "quota": (gpu_pod("quota", memory=2000, namespace="poor"), "SCHED_QUOTA_EXCEEDED"),
    }


def prepared(cluster, size):
    cluster.namespace("ml")
    cluster.namespace("poor")
    cluster.create(quota("poor", gpumem="1000"))
    cluster.seed(nodes(size[0]))
    until(lambda: len(cluster.list("nodes", resourceVersion="0")) == size[0])


def all_bound(cluster, number, within):
    """Every pod that can run is bound to the node on which it holds GPUs; how long it took."""
    began = time.monotonic()

    def done() -> bool:
        pods = [
            one for one in cluster.list("pods", namespace="ml") if one["metadata"]["name"][:3] in {"one", "two", "pai"}
        ]
        return len(pods) == number and all(one["spec"].get("nodeName") for one in pods)

    wait_until(done, within=within, every=0.5, why=lambda: waiting(cluster))
    return time.monotonic() - began


def waiting(cluster):
    pods = [one for one in cluster.list("pods") if not one["spec"].get("nodeName")]
    return [(one["metadata"]["name"], one.get("status", {}).get("conditions")) for one in pods][:20]


def right_at_the_end(cluster, plugins, number):
    """From a list of the API server alone."""
    held = {}
    for one in cluster.list("pods"):
        name, text = one["metadata"]["name"], one["metadata"].get("annotations", {}).get(ALLOCATED)
        node = one["spec"].get("nodeName")
        assert bool(node) == bool(text), (name, node, text)
        if node:
            assert len(text.split(";")) - 1 == len(one["spec"]["containers"])
            held[name] = node
    assert len(held) == number
    assert not plugins.wrong, plugins.wrong[:5]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}-nodes")
def test_every_pod_is_bound_within_capacity_or_waits_with_the_right_code(empty_cluster, tmp_path, size):
    cluster = empty_cluster
    prepared(cluster, size)
    with (
        extender(cluster.kubeconfig, tmp_path) as running,
        DevicePlugins(cluster) as plugins,
        scheduler(cluster, running.url),
    ):
        cluster.create_all([one for one, _ in impossible().values()])
        began = time.monotonic()
        cluster.create_all(fitting(size[1]))
        all_bound(cluster, size[1], WITHIN[size[0]])
        took = max(plugins.bound.values()) - began
        print(f"\n{size[1]} pods on {size[0]} nodes: {size[1] / took:.1f} pods bound per second")
        for name, (pod, code) in impossible().items():
            until(partial(refusals, running, name, pod["metadata"]["namespace"]))
            last = refusals(running, name, pod["metadata"]["namespace"])[0]
            assert {one["code"] for one in last["nodes"]} == {code}, name
        right_at_the_end(cluster, plugins, size[1])


def number_ready(extenders):
    """How many replicas are ready: only the leader, so never two."""
    number = sum(one.status("/readyz") == 200 for one in extenders.all)
    assert number <= 1
    return number


def refusals(running, name, namespace):
    return [one for one in decisions(running, name, namespace) if one["outcome"] == "refused"]


class Replicas:
    """Several extenders behind a Service; one can be killed, and another one started."""

    def __init__(self, cluster, path):
        self._cluster, self._path, self.all = cluster, path, []

    def start(self):
        self.all.append(start_extender(self._cluster.kubeconfig, self._path, free_port(), environ=SHORT_LEASE))

    def urls(self):
        return [one.url for one in self.all if one.process.poll() is None]

    def leader(self):
        return next((one for one in self.all if one.process.poll() is None and one.status("/readyz") == 200), None)

    def kill_leader(self):
        until(self.leader)
        leader = self.leader()
        leader.process.send_signal(signal.SIGKILL)
        leader.process.wait()
        return leader


@contextmanager
def replicas(cluster, path, number):
    made = Replicas(cluster, path)
    try:
        for _ in range(number):
            made.start()
        until(made.leader)
        yield made
        assert not any("Traceback" in one.log.read_text() for one in made.all)
    finally:
        for one in made.all:
            if one.process.poll() is None:
                one.process.kill()
                one.process.wait()


def test_killed_leaders_a_paused_one_and_a_killed_api_server_give_no_gpu_away_twice(empty_cluster, tmp_path):
    cluster, (number, pods) = empty_cluster, SMALL
    prepared(cluster, SMALL)
    made = fitting(pods, seed=2)
    with ExitStack() as stack:
        extenders = stack.enter_context(replicas(cluster, tmp_path, 2))
        plugins = stack.enter_context(DevicePlugins(cluster))
        url = stack.enter_context(service(extenders.urls))
        stack.enter_context(scheduler(cluster, url, timeout="5s"))
        until(lambda: number_ready(extenders) == 1)  # a lease that lapsed leaves no leader for a moment
        cluster.create_all(made[:30])
        until(lambda: len(plugins.bound) >= 10, within=WITHIN[number])
        extenders.kill_leader()
        cluster.create_all(made[30:60])
        until(lambda: len(plugins.bound) >= 40, within=WITHIN[number])
        extenders.start()
        paused = extenders.leader() or extenders.all[1]
        paused.process.send_signal(signal.SIGSTOP)  # it holds the lease, and does not know that time passes
        cluster.create_all(made[60:90])
        until(lambda: len(plugins.bound) >= 70, within=WITHIN[number])
        paused.process.send_signal(signal.SIGCONT)
        cluster.create_all(made[90:])
        cluster.restart_apiserver()
        all_bound(cluster, pods, WITHIN[number])
        right_at_the_end(cluster, plugins, pods)


def test_a_bind_that_times_out_gives_no_gpu_away_twice(empty_cluster, tmp_path):
    """kube-scheduler gives up after a second, while the lock of the node is held for longer."""
    cluster = empty_cluster
    prepared(cluster, (2, 0))
    with (
        extender(cluster.kubeconfig, tmp_path) as running,
        DevicePlugins(cluster) as plugins,
        scheduler(cluster, running.url, timeout="1s"),
    ):
        plugins.frozen = True  # the first pod of each node keeps its lock
        made = fitting(12, seed=3)
        cluster.create_all(made)
        running.until(lambda page: page.one("hami_scheduler_bind_failure_total") >= 2)
        plugins.frozen = False
        all_bound(cluster, 12, 240.0)
        right_at_the_end(cluster, plugins, 12)
