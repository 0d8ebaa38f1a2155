"""One real cluster for all tests of this folder; `make e2e` runs them, and `make test` does not."""

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.e2e.oracle import Oracle
from tests.e2e.product import Product
from tests.native.build import library
from tools.cluster import layout, machine
from tools.cluster.cluster import Cluster
from tools.cluster.progress import say

# tests on the cluster that `make e2e KEEP=1` left: VGPUSCOPE_E2E=attached .venv/bin/python -m pytest tests/e2e
ATTACHED = os.environ.get("VGPUSCOPE_E2E") == "attached"
collect_ignore_glob = [] if os.environ.get("VGPUSCOPE_E2E") else ["test_*.py", "more/test_*.py"]
collect_ignore = ["more"]  # has to be named: `make e2e-more`
KEPT = """
cluster: it stays up. In another shell:
  export KUBECONFIG={config} PATH={kubectl}:{helm}:$PATH
  kubectl get pods -A
  ctr --address {containerd} -n k8s.io containers ls
Logs of all programs are in {logs}. It ends with: make e2e-down
"""


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A cluster with DNS and the product's image; nothing of it may be left afterwards."""
    if ATTACHED:
        yield Cluster()
        return
    before = machine.traces()
    cluster = Cluster()
    try:
        cluster.start(driver=library())
        yield cluster
    finally:
        if os.environ.get("KEEP"):
            cluster.keep()
            places = {"config": layout.KUBECONFIG, "containerd": layout.CONTAINERD, "logs": layout.LOGS}
            say(KEPT.format(kubectl=cluster.control_plane, helm=cluster.helm_program.parent, **places))
        else:
            cluster.stop()
            left = machine.left(before, machine.traces())
            assert not left, f"the cluster left behind: {left}"


@pytest.fixture(scope="session")
def product(cluster: Cluster) -> Product:
    """The chart, installed as README says."""
    product = Product(cluster).with_gpus()
    return product if ATTACHED else product.installed()


@pytest.fixture(scope="session", autouse=True)
def logs_of_this_run() -> None:
    if not ATTACHED and layout.LOGS.exists():
        shutil.rmtree(layout.EARLIER_LOGS, ignore_errors=True)
        layout.LOGS.rename(layout.EARLIER_LOGS)


@pytest.fixture(scope="session")
def scheduling(product: Product) -> Iterator[Product]:
    """The product with extender and plugin; while tests run, no GPU may have more given away than it has."""
    if not (ATTACHED and product.allocatable()):
        product.scheduling()
    with Oracle(product) as oracle:
        yield product
    assert not oracle.faults, oracle.faults[:5]
    assert oracle.looks, "it has looked"


@pytest.fixture
def no_pods_left(scheduling: Product) -> Iterator[None]:
    """After a test the pods of users are gone, and the kubelet has everything back."""
    yield
    scheduling.tidied()
