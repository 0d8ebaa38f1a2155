"""The questions people already ask HAMi's metrics, asked of ours: a real Prometheus, a real exporter and a real agent.

The cluster, by hand: A and B are GPUs of the node with the agent, C is one of another node; 80 GiB each, but B's
memory is scaled by two, so 160 GiB of it may be given out.

    GPU   given out (MiB)                    to        used (driver)
    A      8192 + 10240 + 61440 =  79872       3 pods    75 GiB
    B                             143360       1 pod     76 GiB
    C      11 x 7168            =  78848      11 pods    nobody looks
    all    302080 of 327680 = 59/64 = 92.1875 %
"""

import subprocess
import time
from math import inf
from typing import Any

import pytest

from tests.contract.clusterrun import MIB, exporter, holder, registered
from tests.contract.test_prometheus import Prometheus
from tests.native.scenario import GIB, gpu_uuid
from tests.needed import needed
from tests.ports import free_port
from tests.services.agent.noderoot import NodeRoot, RunningAgent
from vgpuscope.catalog import cluster as m

pytestmark = pytest.mark.real

HERE, THERE = "gpu-node-1", "gpu-node-2"
A, B, C = gpu_uuid(0), gpu_uuid(1), "GPU-c"
LIMIT = {A: 81920, B: 163840, C: 81920}  # MiB
SHARED = {A: 3, B: 1, C: 11}
CORES = {A: 70, B: 100, C: 55}


def scheduled(cluster):
    """What the device plugins and HAMi's scheduler wrote."""
    cluster.create(registered(HERE, A, B, memory=LIMIT))
    cluster.create(registered(THERE, C, memory=LIMIT, count=20))
    cluster.create(holder("a", HERE, A, memory=8192, cores=20))
    cluster.create(holder("b", HERE, A, memory=10240, cores=30))
    cluster.create(holder("big", HERE, A, memory=61440, cores=20))
    cluster.create(holder("c", HERE, B, memory=143360, cores=100))
    cluster.create_all(holder(f"small-{i}", THERE, C, memory=7168, cores=5) for i in range(11))
    cluster.create(holder("over", THERE, C, memory=2000))
    cluster.patch("pods", "over", {"status": {"phase": "Succeeded"}}, namespace="ml", subresource="status")


BEGAN: list = []  # when the idle ones had been idle for as long as is said of them


def used(path):
    """What the driver and HAMi-core say on the node with the agent; c has no limit."""
    node, now = NodeRoot(path, HERE), time.time()
    BEGAN.append(now)
    node.nvml.gpu(0, memory_used=75 * GIB, memory_reserved=0, utilization=80)
    node.nvml.gpu(1, memory_used=76 * GIB, memory_reserved=0, utilization=100)
    for pid, name, gpu, took, limit, sm, idle in (
        (11, "a", 0, 5 * GIB, 8 * GIB, 20, 0),
        (12, "b", 0, 9984 * MIB, 10 * GIB, 60, 1000),
        (13, "c", 1, 70 * GIB, 0, 100, 4000),
    ):
        uid = node.pod(name)
        node.process(pid, uid)
        node.nvml.process(gpu, pid, memory=took).sample(gpu, pid, sm=sm)
        node.region(uid, "main", gpu_uuid(gpu), limit=limit, p7=(pid, took, sm)).kernel(now - idle)
    return node


@pytest.fixture(scope="module")
def prometheus(control_plane, tmp_path_factory):
    needed("prometheus", package="prometheus")
    control_plane.reset()
    scheduled(control_plane)
    path = tmp_path_factory.mktemp("promql")
    node = used(path)
    with (
        exporter(control_plane.kubeconfig, path) as running,
        node.agent(interval="0.2") as agent,
    ):
        running.until(lambda page: page.one(m.DEVICE_SLOTS_USED.name, gpu_uuid=C) == SHARED[C])
        yield from started(path, running.url, agent.url)


def started(path, scheduler, monitor):
    """Scrapes as the guide says: two jobs, no honor_labels. One monitor more is down."""
    config, port = path / "prometheus.yml", free_port()
    jobs = {"hami-scheduler": [scheduler], "hami-vgpu-monitor": [monitor, DOWN]}
    config.write_text(
        "global: {scrape_interval: 5s, scrape_timeout: 5s}\nscrape_configs:\n"
        + "".join(
            f"- {{job_name: {job}, static_configs: [{{targets: {[url.removeprefix('http://') for url in urls]}}}]}}\n"
            for job, urls in jobs.items()
        )
    )
    log = path / "prometheus.log"
    flags = [f"--config.file={config}", f"--storage.tsdb.path={path / 'tsdb'}"]
    with log.open("w") as out:
        command = ["prometheus", *flags, f"--web.listen-address=127.0.0.1:{port}"]
        process = subprocess.Popen(command, stdout=out, stderr=out)
    server = RunningAgent(process, f"http://127.0.0.1:{port}", log)
    prometheus = Prometheus(server.url)
    try:
        server.wait(lambda: server.status("/-/ready") == 200)
        server.wait(lambda: len(prometheus.ask("up == 1")) == 2 and prometheus.ask("up == 0"))
        yield prometheus
    finally:
        process.terminate()
        process.wait()


DOWN = "127.0.0.1:1"  # nobody listens there

# What the guide recommends for panels and alerts, word for word; by which label the answers are told apart; and they.
GUIDE: dict[str, tuple[str, str | None, Any]] = {
    "the cluster's memory": ("sum(GPUDeviceMemoryLimit)", None, 320 * GIB),
    "the memory given out": ("sum(GPUDeviceMemoryAllocated)", None, 295 * GIB),
    "the share given out": (
        "sum(GPUDeviceMemoryAllocated) / sum(GPUDeviceMemoryLimit) * 100",
        None,
        92.1875,
    ),
    # Misleading where memory is scaled: the limit is what may be given out, not what the GPU has. B is 95 % full.
    "memory used of each card": (
        "HostGPUMemoryUsage / on(deviceuuid) group_left GPUDeviceMemoryLimit * 100",
        "deviceuuid",
        {A: 93.75, B: 47.5},
    ),
    "utilisation of each card": ("HostCoreUtilization", "deviceuuid", {A: 80, B: 100}),
    # Misleading where HAMi set no limit, as for c: its limit is 0, and the share of nothing is infinite.
    "memory used of each container": (
        "vGPU_device_memory_usage_in_bytes / vGPU_device_memory_limit_in_bytes * 100",
        "podname",
        {"a": 62.5, "b": 97.5, "c": inf},
    ),
    "utilisation of each container": (
        "Device_utilization_desc_of_container",
        "podname",
        {"a": 20, "b": 60, "c": 100},
    ),
    "idle containers": ("Device_last_kernel_of_container > 300", "podname", {"b": 1000, "c": 4000}),
    "containers on each card": ("GPUDeviceSharedNum", "deviceuuid", SHARED),
    # Called fragmentation, but it is what containers leave unused of their own limits; of no limit, minus infinity.
    "memory given and not used": (
        """(vGPU_device_memory_limit_in_bytes - vGPU_device_memory_usage_in_bytes)
  / vGPU_device_memory_limit_in_bytes * 100""",
        "podname",
        {"a": 37.5, "b": 2.5, "c": -inf},
    ),
    # Misleading as above: B is 95 % full and silent.
    "GPUMemoryUsageHigh": (
        """HostGPUMemoryUsage / on(deviceuuid)
group_left(devicetype) GPUDeviceMemoryLimit > 0.9""",
        "deviceuuid",
        {A: 0.9375},
    ),
    "GPUCoreUtilizationSaturated": ("HostCoreUtilization == 100", "deviceuuid", {B: 100}),
    # Misleading as above: c, which has no limit, is said to be near it.
    "ContainerVGPUMemoryNearLimit": (
        """vGPU_device_memory_usage_in_bytes
/ vGPU_device_memory_limit_in_bytes > 0.95""",
        "podname",
        {"b": 0.975, "c": inf},
    ),
    "ContainerGPUIdle": ("Device_last_kernel_of_container > 1800", "podname", {"c": 4000}),
    "ClusterGPUMemoryAllocationHigh": (
        """sum(GPUDeviceMemoryAllocated)
/ sum(GPUDeviceMemoryLimit) > 0.85""",
        None,
        0.921875,
    ),
    "GPUOversharing": ("GPUDeviceSharedNum > 10", "deviceuuid", {C: 11}),
    "VGPUMonitorDown": ('up{job="hami-vgpu-monitor"} == 0', "instance", {DOWN: 0}),
}

# The panels of HAMi's own dashboard that show what its scheduler says.
DASHBOARD = {
    "Physical GPUs": ('count(hami_gpu_memory_limit_bytes{node=~"$node"})', None, 3, 1),
    "Total GPU memory": ('sum(hami_gpu_memory_limit_bytes{node=~"$node"})', None, 320 * GIB, 80 * GIB),
    "Allocated GPU memory": ('sum(hami_gpu_memory_allocated_bytes{node=~"$node"})', None, 295 * GIB, 77 * GIB),
    "GPU memory allocated %": (
        '100 * sum(hami_gpu_memory_allocated_bytes{node=~"$node"}) / sum(hami_gpu_memory_limit_bytes{node=~"$node"})',
        None,
        92.1875,
        96.25,
    ),
    "Shared containers": ('sum(hami_gpu_shared_count{node=~"$node"})', None, 15, 11),
    "Host GPU memory used": (
        'hami_host_gpu_memory_used_bytes and on (device_uuid) hami_gpu_memory_limit_bytes{node=~"$node"}',
        "device_uuid",
        {A: 75 * GIB, B: 76 * GIB},
        {},
    ),
    "Host GPU utilization": (
        'hami_host_gpu_utilization_ratio and on (device_uuid) hami_gpu_memory_limit_bytes{node=~"$node"}',
        "device_uuid",
        {A: 80, B: 100},
        {},
    ),
    "GPU memory: allocated": (
        'sum by (node) (hami_gpu_memory_allocated_bytes{node=~"$node"})',
        "node",
        {HERE: 218 * GIB, THERE: 77 * GIB},
        {THERE: 77 * GIB},
    ),
    "GPU memory: limit": (
        'sum by (node) (hami_gpu_memory_limit_bytes{node=~"$node"})',
        "node",
        {HERE: 240 * GIB, THERE: 80 * GIB},
        {THERE: 80 * GIB},
    ),
    # Misleading: 0 to 1, but the dashboard draws it on an axis of 0 to 100, and its README says so too.
    "Node GPU memory allocated ratio": (
        'hami_node_gpu_memory_allocated_ratio{node=~"$node"}',
        "device_uuid",
        {A: 0.975, B: 0.875, C: 0.9625},
        {C: 0.9625},
    ),
    # Called a ratio, and in percent.
    "GPU core allocated ratio": ('hami_gpu_core_allocated_ratio{node=~"$node"}', "device_uuid", CORES, {C: 55}),
    "GPU shared count per device": ('hami_gpu_shared_count{node=~"$node"}', "device_uuid", SHARED, {C: 11}),
}


def answer(prometheus, expression, label):
    """The number, or the numbers by a label that is there and different for each."""
    found = prometheus.ask(expression)
    if label is None:
        assert len(found) == 1, found
        return found[0][1]
    assert len({labels[label] for labels, _ in found}) == len(found), found
    return {labels[label]: value for labels, value in found}


def near(wanted):
    return pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("what", GUIDE)
def test_the_monitoring_guides_expressions_have_the_right_answers(prometheus, what):
    expression, label, wanted = GUIDE[what]
    found = answer(prometheus, expression, label)
    if "last_kernel" in expression:  # seconds go by while we look
        passed = time.time() - BEGAN[-1]
        assert {pod: wanted[pod] - 1 <= idle <= wanted[pod] + passed + 1 for pod, idle in found.items()} == (
            dict.fromkeys(wanted, True)
        )
    else:
        assert found == near(wanted)


@pytest.mark.parametrize("what", DASHBOARD)
def test_hamis_dashboard_shows_the_right_numbers_of_all_nodes_and_of_one(prometheus, what):
    expression, label, of_all, of_one = DASHBOARD[what]
    assert answer(prometheus, expression.replace("$node", ".*"), label) == near(of_all)
    if of_one == {}:
        assert prometheus.ask(expression.replace("$node", THERE)) == []
    else:
        assert answer(prometheus, expression.replace("$node", THERE), label) == near(of_one)


def test_the_dashboards_choice_of_nodes_has_every_node(prometheus):
    found = prometheus.ask("group by (node) (hami_gpu_memory_limit_bytes)")
    assert {labels["node"] for labels, _ in found} == {HERE, THERE}


def test_an_alert_can_name_the_node_and_the_type_of_the_gpu(prometheus):
    """Its text has {{ $labels.nodeid }} and {{ $labels.devicetype }}; the first is empty with HAMi before v2.10."""
    [(labels, _)] = prometheus.ask(GUIDE["GPUMemoryUsageHigh"][0])
    assert (labels["nodeid"], labels["devicetype"]) == (HERE, "NVIDIA A100")


def test_what_is_misleading_about_scaled_memory_is_right_under_our_own_names(prometheus):
    expression = "vgpuscope_gpu_memory_used_bytes / vgpuscope_gpu_memory_total_bytes"
    assert answer(prometheus, expression, "gpu_uuid") == near({A: 0.9375, B: 0.95})


def test_the_scrape_is_healthy(prometheus):
    [(_, took)] = prometheus.ask('scrape_samples_scraped{job="hami-scheduler"}')
    assert took > 0
    assert answer(prometheus, 'up{job="hami-scheduler"}', None) == 1
