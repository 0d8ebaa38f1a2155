"""A node whose pods have a tenth of its CPU: every service starts once, and none is killed while it starts."""

import os
from collections.abc import Iterator

import pytest

from tests.e2e.product import NAMESPACE, Product
from tools.cluster import machine
from tools.cluster.cluster import WITHIN

pytestmark = pytest.mark.e2e

PERIOD = 100_000  # microseconds


@pytest.fixture
def a_tenth(scheduling: Product) -> Iterator[Product]:
    """All pods together, while the test runs; the kubelet, the API server and the tests have the rest."""
    (group,) = (group / "kubepods" for group in machine.cgroups() if group.parent.name == "cpu")
    (group / "cpu.cfs_period_us").write_text(str(PERIOD))
    (group / "cpu.cfs_quota_us").write_text(str(PERIOD * (os.cpu_count() or 1) // 10))
    yield scheduling
    (group / "cpu.cfs_quota_us").write_text("-1")


def test_all_services_start_once_on_a_slow_node(a_tenth: Product) -> None:
    """All at the same time, as after a restart of the node."""
    old = {pod["metadata"]["uid"] for pod in a_tenth.pods()}
    selector = ("-l", "app.kubernetes.io/name=vgpuscope")
    a_tenth.cluster.kubectl("-n", NAMESPACE, "delete", "pods", *selector, "--timeout=300s")

    def ready() -> bool:
        pods = a_tenth.pods()
        statuses = [status for pod in pods for status in pod["status"].get("containerStatuses", [{"ready": False}])]
        return len(pods) == len(old) and all(status["ready"] for status in statuses)

    a_tenth.wait("all services", ready, within=2 * WITHIN)
    assert not old & {pod["metadata"]["uid"] for pod in a_tenth.pods()}
    restarts = {
        (pod["metadata"]["name"], status["name"]): status["restartCount"]
        for pod in a_tenth.pods()
        for status in pod["status"]["containerStatuses"]
    }
    assert set(restarts.values()) == {0}, restarts
