"""Upgrade, rollback and removal of the chart while pods hold GPUs."""

import pytest

from tests.e2e.product import NAMESPACE, SHARES, Product, gpu_pod
from tools.cluster import layout

pytestmark = pytest.mark.e2e

GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"


def test_an_upgrade_and_a_rollback_leave_running_pods_alone(scheduling: Product) -> None:
    scheduling.run(gpu_pod("holder", containers={"main": {GPU: 1, MEMORY: 1000}}))
    process, held = scheduling.container("holder").pid, scheduling.pod_resources()["holder", "main"]
    scheduling.upgraded("config.plugin.split_count=5")
    scheduling.wait("five shares of each GPU", lambda: scheduling.allocatable() == SHARES - 15)
    scheduling.cluster.helm("rollback", "vgpuscope", "--namespace", NAMESPACE, "--wait", "--timeout", "10m")
    scheduling.wait("ten shares of each GPU", lambda: scheduling.allocatable() == SHARES)
    assert scheduling.container("holder").pid == process
    assert scheduling.pod_resources()["holder", "main"] == held


def test_helm_uninstall_leaves_what_the_documentation_names_and_no_more(scheduling: Product) -> None:
    """Everything of the API server that names the product, whoever made it, and the directories of the node."""
    scheduling.tidied()
    scheduling.cluster.helm("uninstall", "vgpuscope", "--namespace", NAMESPACE, "--wait", "--timeout", "5m")
    scheduling.wait("no pods", lambda: not scheduling.cluster.get("pods", "-n", NAMESPACE))
    kinds = [line.split()[0] for line in _lines(scheduling, "api-resources", "--verbs=list", "-o", "name")]
    left = set()
    for kind in kinds:
        for name in _lines(scheduling, "get", kind, "-A", "-o", "name", "--ignore-not-found"):
            if "vgpuscope" in name and not name.startswith(("namespace/", "event")):
                left.add(name.split("/", 1)[1] if kind.startswith("leases") else name)
    node = scheduling.cluster.get("node", layout.NODE)["metadata"]["annotations"]
    documented = (layout.REPOSITORY / "docs" / "install.md").read_text().split("## Upgrade and uninstall")[1]
    for name in (*left, *(key for key in node if key.startswith(("hami.io/", "vgpuscope.io/")))):
        assert name in documented, f"{name} stays, and docs/install.md does not say so"


def _lines(product: Product, *words: str) -> list[str]:
    return product.cluster.kubectl(*words).stdout.splitlines()
