"""The cluster exporter as a process, beside a real API server: after every storm its page is that of a fresh list."""

import pytest

from tests.contract.clusterrun import (
    MIB,
    agrees_with_a_fresh_list,
    exporter,
    holder,
    of_devices,
    promtool_check,
    quota,
    registered,
)
from tests.controlplane import ApiError, node, pod
from vgpuscope.catalog import cluster as m

pytestmark = pytest.mark.real


@pytest.fixture
def cluster(empty_cluster):
    empty_cluster.create(registered("gpu-1", "GPU-a", "GPU-b"))
    empty_cluster.create(registered("gpu-2", "GPU-c"))
    return empty_cluster


def test_what_was_given_is_shown_under_every_name(cluster, tmp_path):
    cluster.create(holder("train", "gpu-1", "GPU-a"))
    with exporter(cluster.kubeconfig, tmp_path) as running:
        page = running.until(lambda page: page.has(m.HOLDER_MEMORY.name, pod="train"))
    assert page.one(m.HOLDER_MEMORY.name, pod="train", container="main", gpu_uuid="GPU-a") == 8000 * MIB
    assert page.one("hami_gpu_memory_allocated_bytes", device_uuid="GPU-a", device_cores="100") == 8000 * MIB
    assert page.one("GPUDeviceMemoryLimit", deviceuuid="GPU-c", nodeid="gpu-2", zone="vGPU") == 81920 * MIB
    assert page.one("nodeGPUOverview", deviceuuid="GPU-a", sharedcontainers="1", devicememorylimit="81920") > 0
    assert page.one("vGPUCoreAllocated", podname="train", containeridx="0") == 30
    assert page.one("hami_node_gpu_memory_allocated_ratio", device_uuid="GPU-a") == pytest.approx(8000 / 81920)


def test_pods_that_come_change_and_go_leave_no_ghosts(cluster, tmp_path):
    with exporter(cluster.kubeconfig, tmp_path) as running:
        cluster.create_all(holder(f"p{i}", "gpu-1", "GPU-a", memory=100 + i) for i in range(40))
        running.until(lambda page: page.one(m.DEVICE_SLOTS_USED.name, gpu_uuid="GPU-a") == 40)
        for i in range(0, 40, 2):
            cluster.delete("pods", f"p{i}", namespace="ml")
        cluster.patch("pods", "p1", {"status": {"phase": "Succeeded"}}, namespace="ml", subresource="status")
        agrees_with_a_fresh_list(running, cluster.kubeconfig, tmp_path)
        assert running.page().one(m.DEVICE_SLOTS_USED.name, gpu_uuid="GPU-a") == 19


def test_a_restart_of_the_api_server_is_survived(cluster, tmp_path):
    cluster.create(holder("before", "gpu-1", "GPU-a"))
    with exporter(cluster.kubeconfig, tmp_path) as running:
        running.until(lambda page: page.has(m.HOLDER_MEMORY.name, pod="before"))
        cluster.restart_apiserver()
        cluster.create(holder("after", "gpu-2", "GPU-c"))
        running.until(lambda page: page.has(m.HOLDER_MEMORY.name, pod="after"))
        agrees_with_a_fresh_list(running, cluster.kubeconfig, tmp_path)


def test_a_history_that_was_compacted_is_listed_anew(cluster, tmp_path):
    with exporter(cluster.kubeconfig, tmp_path) as running:
        running.until(lambda page: page.has(m.DEVICE_INFO.name))
        cluster.stop_apiserver()
        cluster.start_apiserver()
        for i in range(5):
            cluster.create(holder(f"p{i}", "gpu-1", "GPU-a"))
        cluster.compact()
        agrees_with_a_fresh_list(running, cluster.kubeconfig, tmp_path)


def test_a_kind_we_may_not_see_is_named_and_the_rest_works(cluster, tmp_path):
    limited = cluster.user("limited", {"nodes": ["list", "watch"], "pods": ["list", "watch"]})
    cluster.create(holder("train", "gpu-1", "GPU-a"))
    with exporter(limited, tmp_path) as running:
        page = running.until(lambda page: page.has(m.HOLDER_MEMORY.name, pod="train"))
        running.until(lambda page: page.one(m.WATCH_UP.name, kind="pods") == 1)
        assert page.one(m.WATCH_UP.name, kind="resourcequotas") == 0
        running.wait(lambda: "resourcequotas" in running.log.read_text())


def test_quotas_are_shown_with_what_is_used_of_them(cluster, tmp_path):
    cluster.create(holder("train", "gpu-1", "GPU-a", memory=4000))
    cluster.create(quota("ml", gpumem="10000"))
    with exporter(cluster.kubeconfig, tmp_path) as running:
        page = running.until(lambda page: page.has(m.QUOTA_LIMIT.name))
        used = page.named(m.QUOTA_USED.name, namespace="ml")
        assert (4000.0 in [value for _, value in used], page.one(m.QUOTA_LIMIT.name, namespace="ml")) == (True, 10000)
        assert page.has("QuotaUsed", quotanamespace="ml", limit="10000")


def test_a_malformed_annotation_costs_only_its_node(cluster, tmp_path):
    broken = registered("gpu-9", "GPU-z")
    broken["metadata"]["annotations"]["hami.io/node-nvidia-register"] = "x" * 200_000
    cluster.create(broken)
    with exporter(cluster.kubeconfig, tmp_path) as running:
        page = running.until(lambda page: page.one(m.WATCH_FAULTS.name, kind="nodes") == 1)
        assert {labels["node"] for labels, _ in page.named(m.DEVICE_INFO.name)} == {"gpu-1", "gpu-2"}
        running.wait(lambda: "gpu-9" in running.log.read_text())


def test_as_much_noise_as_an_api_server_takes_costs_only_its_objects(cluster, tmp_path):
    cluster.create(holder("train", "gpu-1", "GPU-a"))
    with exporter(cluster.kubeconfig, tmp_path) as running:
        before = of_devices(running.page())
        noise = "x" * (256 * 1024 - 100)  # of all annotations together
        noisy = holder("noisy", "gpu-1", "GPU-a")
        noisy["metadata"]["annotations"] = {"hami.io/vgpu-devices-allocated": noise}
        cluster.create(noisy)
        with pytest.raises(ApiError, match="quantities must match"):  # only a broken server has such a quota
            cluster.create(quota("ml", gpumem="plenty"))
        page = running.until(lambda page: page.one(m.WATCH_FAULTS.name, kind="pods") == 1)
        said = {
            key: value for key, value in of_devices(page).items() if "_finding" not in key[0]
        }  # noisy has no GPU yet
        assert said == before | {(m.WATCH_FAULTS.name, (("kind", "pods"),)): 1}
        good = {"hami.io/vgpu-devices-allocated": "GPU-b,NVIDIA,500,5:;"}
        cluster.patch("pods", "noisy", {"metadata": {"annotations": good}}, namespace="ml")
        page = running.until(lambda page: page.one(m.WATCH_FAULTS.name, kind="pods") == 0)
        agrees_with_a_fresh_list(running, cluster.kubeconfig, tmp_path)
        assert running.page().one(m.HOLDER_MEMORY.name, pod="noisy") == 500 * MIB


def test_promtool_finds_nothing_to_complain_about_in_our_own_names(cluster, tmp_path):
    cluster.create(holder("train", "gpu-1", "GPU-a"))
    with exporter(cluster.kubeconfig, tmp_path, "--families", "native") as running:
        running.until(lambda page: page.has(m.HOLDER_MEMORY.name))
        page = running.get()[2].decode()
    assert promtool_check(page) == (0, "")


def test_gpus_of_a_node_without_hami_are_counted_from_what_the_real_scheduler_placed_there(cluster, tmp_path):
    plain = node("plain", capacity={"nvidia.com/gpu": "4", "nvidia.com/mig-1g.10gb": "7"})
    plain["metadata"]["labels"] = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}
    cluster.create(plain)
    slots = registered("slots", "GPU-s")
    slots |= {"status": node("slots", capacity={"nvidia.com/gpu": "10"})["status"], "spec": {"unschedulable": True}}
    cluster.create(slots)
    with cluster.scheduler(), exporter(cluster.kubeconfig, tmp_path) as running:
        cluster.create(pod("train", limits={"nvidia.com/gpu": "3"}))
        page = running.until(lambda page: page.has(m.OFFER_REQUESTED.name) and counted(page, m.OFFER_REQUESTED) == 3)
        assert (counted(page, m.OFFERED), counted(page, m.OFFER_ALLOCATABLE), counted(page, m.OFFER_FREE)) == (4, 4, 1)
        assert page.one(m.OFFERED.name, resource="nvidia.com/mig-1g.10gb", profile="1g.10gb", mode="mig") == 7
        assert {labels["node"] for labels, _ in page.named(m.OFFERED.name)} == {"plain"}
        assert not [key for key in page if "plain" in dict(key[1]).values() and not key[0].startswith("vgpuscope_")]
        cluster.delete("pods", "train", namespace="ml")
        running.until(lambda page: counted(page, m.OFFER_FREE) == 4)


def counted(page, metric):
    return page.one(metric.name, node="plain", resource="nvidia.com/gpu", type="NVIDIA-H100-80GB-HBM3")
