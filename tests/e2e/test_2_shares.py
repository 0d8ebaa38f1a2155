"""The plugin and the extender together: what pods ask for is what their containers get, by kubelet and containerd."""

from typing import Any

import pytest

from tests.e2e.product import MIG_SLOT, SHARES, Product, gpu_pod
from tests.native.scenario import gpu_uuid, mig_uuid
from tools.cluster import layout

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("no_pods_left")]

GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
WHOLE = {gpu_uuid(slot) for slot in (0, 1, 2)}


def test_all_pods_are_ready_and_none_was_restarted(scheduling: Product) -> None:
    pods = scheduling.pods()
    services = {pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in pods}
    assert services == {"agent", "analyzer", "cluster", "extender", "plugin"}
    restarts = {c["name"]: c["restartCount"] for pod in pods for c in pod["status"]["containerStatuses"]}
    assert set(restarts.values()) == {0}, restarts


def test_the_kubelet_has_ten_shares_of_each_gpu_and_one_of_each_instance(scheduling: Product) -> None:
    assert scheduling.allocatable() == SHARES


def test_a_share_has_its_gpu_its_limits_and_its_directory(scheduling: Product) -> None:
    scheduling.run(gpu_pod("share", containers={"main": {GPU: 1, MEMORY: 8000, CORES: 30}}))
    values = scheduling.environment("share")
    gpu = values["NVIDIA_VISIBLE_DEVICES"]
    assert gpu in WHOLE
    assert (values["CUDA_DEVICE_MEMORY_LIMIT_0"], values["CUDA_DEVICE_SM_LIMIT"]) == ("8000m", "30")
    uid = scheduling.pod("share")["metadata"]["uid"]
    mounts = {line.split()[1] for line in scheduling.inside("share", "cat", "/proc/mounts").splitlines()}
    assert {"/usr/local/vgpu", "/usr/local/vgpu/libvgpu.so", "/etc/ld.so.preload", "/tmp/vgpulock"} <= mounts
    assert (layout.HOOK / "containers" / f"{uid}_main").stat().st_mode & 0o7777 == 0o777
    region = values["CUDA_DEVICE_MEMORY_SHARED_CACHE"]
    scheduling.inside("share", "touch", region)
    assert (layout.HOOK / "containers" / f"{uid}_main" / region.rpartition("/")[2]).exists()
    (held,) = scheduling.pod_resources()["share", "main"]
    assert held.startswith(gpu), "the id that the kubelet wrote down is of the same GPU"
    assert scheduling.checkpoint()[uid, "main"] == [held]


def test_events_of_a_pod_name_its_gpu(scheduling: Product) -> None:
    """The extender's event counts GPUs and memory, the plugin's names the GPU that the container has."""
    scheduling.run(gpu_pod("noted", containers={"main": {GPU: 1, MEMORY: 8000}}))
    slot = next(s for s in range(3) if gpu_uuid(s) == scheduling.environment("noted")["NVIDIA_VISIBLE_DEVICES"])
    note = scheduling.wait("the event of the plugin", lambda: scheduling.events("noted").get("DeviceAllocated"))
    assert note == f"Allocated GPU-{slot} on {layout.NODE}"
    scheduled = scheduling.wait("the event of the extender", lambda: _placed(scheduling, "noted"))
    assert f"Successfully assigned ml/noted to {layout.NODE}\nGPU: 1/4, Memory: 8000MB\n" in scheduled


def test_two_containers_have_a_share_each_and_the_one_between_them_none(scheduling: Product) -> None:
    containers: dict[str, dict[str, object]] = {
        "first": {GPU: 1, MEMORY: 2000},
        "plain": {"cpu": "10m"},
        "second": {GPU: 1, MEMORY: 3000},
    }
    scheduling.run(gpu_pod("two", containers=containers))
    limits = {name: _limits(scheduling.environment("two", name)) for name in containers}
    assert limits == {"first": ["2000m"], "plain": [], "second": ["3000m"]}
    assert "NVIDIA_VISIBLE_DEVICES" not in scheduling.environment("two", "plain")


def test_an_init_container_has_its_own_limit_and_gives_it_back(scheduling: Product) -> None:
    pod = gpu_pod("init", containers={"main": {GPU: 1, MEMORY: 2000}}, init={"prepare": {GPU: 1, MEMORY: 30000}})
    pod["spec"]["initContainers"][0]["command"] = ["env"]
    scheduling.run(pod)
    log = scheduling.cluster.kubectl("-n", "ml", "logs", "init", "-c", "prepare").stdout.splitlines()
    assert "CUDA_DEVICE_MEMORY_LIMIT_0=30000m" in log
    assert _limits(scheduling.environment("init")) == ["2000m"]


def test_a_sidecar_keeps_its_share(scheduling: Product) -> None:
    pod = gpu_pod("sidecar", containers={"main": {GPU: 1, MEMORY: 2000}}, init={"side": {GPU: 1, MEMORY: 1500}})
    pod["spec"]["initContainers"][0] |= {"command": ["sleep", "86400"], "restartPolicy": "Always"}
    scheduling.run(pod)
    assert _limits(scheduling.environment("sidecar", "side")) == ["1500m"]
    assert _limits(scheduling.environment("sidecar")) == ["2000m"]
    held = scheduling.pod_resources()
    assert len({*held["sidecar", "side"], *held["sidecar", "main"]}) == 2


def test_a_whole_gpu_has_all_its_memory(scheduling: Product) -> None:
    scheduling.run(gpu_pod("whole", containers={"main": {GPU: 1}}))
    assert _limits(scheduling.environment("whole")) == [f"{40 * 1024}m"]


def test_two_gpus_of_one_container_are_different_ones(scheduling: Product) -> None:
    scheduling.run(gpu_pod("pair", containers={"main": {GPU: 2, MEMORY: 5000}}))
    values = scheduling.environment("pair")
    gpus = values["NVIDIA_VISIBLE_DEVICES"].split(",")
    assert len(set(gpus)) == 2
    assert set(gpus) <= WHOLE
    assert _limits(values) == ["5000m", "5000m"]


def test_a_mig_instance_is_given_whole(scheduling: Product) -> None:
    pod = gpu_pod("mig", containers={"main": {GPU: 1, MEMORY: 4000}}, annotations={"nvidia.com/vgpu-mode": "mig"})
    scheduling.run(pod)
    values = scheduling.environment("mig")
    assert values["NVIDIA_VISIBLE_DEVICES"] in {mig_uuid(MIG_SLOT, 0), mig_uuid(MIG_SLOT, 1)}
    assert scheduling.pod_resources()["mig", "main"] == [values["NVIDIA_VISIBLE_DEVICES"]]


def test_too_much_memory_leaves_the_pod_pending_with_a_reason(scheduling: Product) -> None:
    scheduling.run(gpu_pod("big", containers={"main": {GPU: 1, MEMORY: 80000}}), ready=False)
    message = scheduling.wait("an event", lambda: scheduling.events("big").get("FailedScheduling"))
    assert "80000" in message, "what was asked for"
    assert str(40 * 1024) in message, "what a GPU has"
    assert scheduling.pod("big")["status"]["phase"] == "Pending"
    assert ("big", "main") not in scheduling.pod_resources()


def test_what_a_pod_gives_back_the_next_one_gets(scheduling: Product) -> None:
    """All memory of all three GPUs is taken; the fourth pod starts when one of them ends."""
    for name in ("a", "b", "c"):
        scheduling.run(gpu_pod(name, containers={"main": {GPU: 1}}))
    scheduling.run(gpu_pod("d", containers={"main": {GPU: 1, MEMORY: 1000}}), ready=False)
    scheduling.wait("an event", lambda: "FailedScheduling" in scheduling.events("d"))
    scheduling.remove("b")
    scheduling.wait("the waiting pod", lambda: scheduling.is_ready("d"))


def test_twelve_pods_at_once_get_what_each_asked_for(scheduling: Product) -> None:
    """Amounts differ, so that a share in the wrong container is seen."""
    pods = [gpu_pod(f"burst-{n}", containers={"main": {GPU: n % 2 + 1, MEMORY: 500 + n}}) for n in range(12)]
    scheduling.cluster.apply(*pods)
    scheduling.wait("twelve pods", lambda: all(scheduling.is_ready(pod["metadata"]["name"]) for pod in pods))
    limits = {n: _limits(scheduling.environment(f"burst-{n}")) for n in range(12)}
    assert limits == {n: [f"{500 + n}m"] * (n % 2 + 1) for n in range(12)}


def _placed(product: Product, pod: str) -> str:
    """The extender's `Scheduled`, beside that of kube-scheduler."""
    notes = (item["message"] for item in product.all_events(pod) if item["reason"] == "Scheduled")
    return next((note for note in notes if "GPU" in note), "")


def _limits(values: dict[str, str]) -> list[Any]:
    return [value for name, value in sorted(values.items()) if name.startswith("CUDA_DEVICE_MEMORY_LIMIT_")]
