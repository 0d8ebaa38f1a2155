"""Two schedulers at once: pods of the cluster's own scheduler beside ours, and the second replica of the extender."""

from typing import Any

import pytest

from tests.e2e.more.workloads import ML, deployment, is_ready, running_pods
from tests.e2e.product import NAMESPACE, Product, gpu_pod

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("no_pods_left")]

GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
OURS = {f"ours-{n}": 700 + n for n in range(5)}  # amounts differ, so that a share in the wrong container is seen


def test_pods_that_another_scheduler_placed_get_no_share_of_ours(scheduling: Product) -> None:
    """kube-scheduler counts devices, so it places pods there. Which memory is whose, only ours says."""
    others = [gpu_pod(f"other-{n}", schedulerName="default-scheduler", restartPolicy="Never") for n in range(4)]
    ours = [deployment(name, containers={"main": {GPU: 1, MEMORY: amount}}) for name, amount in OURS.items()]
    scheduling.cluster.apply(ML, *ours[:3], *others, *ours[3:])
    names = [pod["metadata"]["name"] for pod in others]
    scheduling.wait("the others have an end", lambda: all(_phase(scheduling, name) == "Failed" for name in names))
    scheduling.wait("ours run", lambda: all(is_ready(scheduling, name) for name in OURS), within=400)
    for name in names:
        status = scheduling.pod(name)["status"]
        assert status["reason"] == "UnexpectedAdmissionError"
        assert "ALLOCATE_POD_UNKNOWN" in status["message"] or "ALLOCATE_AMBIGUOUS" in status["message"], status
    for name, amount in OURS.items():
        (pod,) = running_pods(scheduling, name)
        assert scheduling.environment(pod)["CUDA_DEVICE_MEMORY_LIMIT_0"] == f"{amount}m"
    assert {pod.rsplit("-", 2)[0] for pod, _ in scheduling.pod_resources()} == set(OURS)


def test_pods_are_placed_while_the_leading_extender_is_replaced(scheduling: Product) -> None:
    """Twelve pods, and the leader's pod is deleted when the first of them runs."""
    amounts = {f"burst-{n}": 500 + n for n in range(12)}
    pods = (gpu_pod(name, containers={"main": {GPU: 1, MEMORY: amount}}) for name, amount in amounts.items())
    scheduling.cluster.apply(ML, *pods)
    old = _leader(scheduling)
    scheduling.wait("the first of them", lambda: any(scheduling.is_ready(name) for name in amounts))
    scheduling.cluster.kubectl("-n", NAMESPACE, "delete", "pod", old, "--wait=false")
    scheduling.wait("all of them", lambda: all(scheduling.is_ready(name) for name in amounts), within=300)
    limits = {name: scheduling.environment(name)["CUDA_DEVICE_MEMORY_LIMIT_0"] for name in amounts}
    assert limits == {name: f"{amount}m" for name, amount in amounts.items()}
    scheduling.wait("another leader", lambda: _leader(scheduling) not in {"", old})


def _leader(product: Product) -> str:
    """The pod that says of itself that it decides; there is one at most."""
    role = "vgpuscope.io/role"
    leaders = [pod for pod in product.pods("extender") if pod["metadata"]["labels"].get(role) == "leader"]
    living = [pod["metadata"]["name"] for pod in leaders if "deletionTimestamp" not in pod["metadata"]]
    assert len(living) <= 1, living
    return living[0] if living else ""


def _phase(product: Product, pod: str) -> Any:
    return product.pod(pod)["status"]["phase"]
