"""Pod Security: which pods each level lets in, as docs/install.md says, and a restricted pod with a share."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.product import Product, gpu_pod

pytestmark = pytest.mark.e2e

LEVELS = ("restricted", "baseline", "privileged")
RESTRICTED = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.fixture(scope="module", autouse=True)
def levels(scheduling: Product) -> Iterator[None]:
    """A namespace of each level, named after it."""
    for level in LEVELS:
        labels = {"pod-security.kubernetes.io/enforce": level}
        meta = {"name": level, "labels": labels}
        scheduling.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    yield
    scheduling.cluster.kubectl("delete", "namespace", *LEVELS, "--timeout=120s")


@pytest.mark.parametrize("level", LEVELS)
def test_agent_and_plugin_need_privileged_and_the_others_pass_restricted(scheduling: Product, level: str) -> None:
    """The pods that the controllers made, tried in a namespace of that level."""
    admitted = {pod["metadata"]["labels"]["app.kubernetes.io/component"]: False for pod in scheduling.pods()}
    for pod in scheduling.pods():
        done = scheduling.cluster.kubectl(
            "create", "--dry-run=server", "-f", "-", check=False, given=json.dumps(_copy(pod, level))
        )
        assert not done.returncode or "violates PodSecurity" in done.stderr, done.stderr
        admitted[pod["metadata"]["labels"]["app.kubernetes.io/component"]] = not done.returncode
    needy = dict.fromkeys(("agent", "plugin"), level == "privileged")
    assert admitted == {**dict.fromkeys(("analyzer", "cluster", "extender"), True), **needy}


def test_a_restricted_pod_has_its_share_and_can_write_its_region(scheduling: Product) -> None:
    """What the plugin mounts is no volume of the pod, and its directory is open to any user."""
    pod = gpu_pod("share", containers={"main": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 2000}})
    pod["metadata"]["namespace"] = "restricted"
    pod["spec"]["containers"][0]["securityContext"] = RESTRICTED
    scheduling.cluster.apply(pod)
    words = ("-n", "restricted", "wait", "--for=condition=Ready", "pod/share", "--timeout=180s")
    scheduling.cluster.kubectl(*words)
    inside = ("-n", "restricted", "exec", "share", "--", "sh", "-c")
    script = 'touch "$CUDA_DEVICE_MEMORY_SHARED_CACHE" && echo "$CUDA_DEVICE_MEMORY_LIMIT_0 $(cat /proc/self/status)"'
    answer = scheduling.cluster.kubectl(*inside, script).stdout
    assert answer.startswith("2000m ")
    assert "Uid:\t65532" in answer
    scheduling.cluster.kubectl("-n", "restricted", "delete", "pod", "share", "--timeout=120s")


def _copy(pod: dict[str, Any], namespace: str) -> dict[str, Any]:
    """The pod as its controller created it, without what the API server added."""
    spec = {
        key: value
        for key, value in pod["spec"].items()
        if key not in {"nodeName", "serviceAccountName", "serviceAccount"}
    }
    mounted = [v["name"] for v in spec.get("volumes", ()) if v["name"].startswith("kube-api-access-")]
    spec["volumes"] = [v for v in spec.get("volumes", ()) if v["name"] not in mounted]
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        container["volumeMounts"] = [m for m in container.get("volumeMounts", ()) if m["name"] not in mounted]
    meta = {"name": pod["metadata"]["name"], "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
