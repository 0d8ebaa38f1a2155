"""The plugin is killed or stopped while the kubelet waits for its answer: nothing is lost, and nothing given twice."""

import json
import os
import signal
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.e2e.more.workloads import ML, deployment, is_ready, running_pods
from tests.e2e.product import NAMESPACE, SHARES, Product, gpu_pod
from tools.cluster import layout
from tools.cluster.cluster import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("no_pods_left")]

GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:vgpuscope-plugin"


class Moment(NamedTuple):
    """A request of the plugin that the API server has just answered; `number`: the how manieth for this pod."""

    verb: str
    path: str
    number: int = 1


MOMENTS = {
    "it has read the pods": Moment("list", "/api/v1/pods"),
    "it has emptied the pod's assignment": Moment("patch", "/api/v1/namespaces/ml/pods/"),
    "it has written the pod's phase": Moment("patch", "/api/v1/namespaces/ml/pods/", 2),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_plugin_that_is_killed_gives_nothing_away(scheduling: Product, moment: str) -> None:
    """The pod's owner gets a pod with the right share in the end, and no share stays with the first one."""
    audit = _audit(MOMENTS[moment])
    scheduling.cluster.apply(ML, deployment("killed", containers={"main": {GPU: 1, MEMORY: 1234}}))
    scheduling.wait(moment, lambda: next(audit, False))
    _signal(scheduling, signal.SIGKILL)
    scheduling.wait("the owner has a pod", lambda: is_ready(scheduling, "killed"), within=400)
    _everything_fits(scheduling, {"killed": 1234})


def test_a_plugin_that_is_stopped_for_a_while_gives_one_share_to_one_pod(scheduling: Product) -> None:
    """The kubelet waits for its answer; meanwhile a second pod arrives."""
    audit = _audit(MOMENTS["it has read the pods"])
    scheduling.cluster.apply(ML, deployment("first", containers={"main": {GPU: 1, MEMORY: 1111}}))
    scheduling.wait("it is asked", lambda: next(audit, False))
    _signal(scheduling, signal.SIGSTOP)
    try:
        scheduling.cluster.apply(deployment("second", containers={"main": {GPU: 1, MEMORY: 2222}}))
        scheduling.wait("the second pod", lambda: _bound_or_waiting(scheduling, "second"))
    finally:
        _signal(scheduling, signal.SIGCONT)
    amounts = {"first": 1111, "second": 2222}
    scheduling.wait("both", lambda: all(is_ready(scheduling, name) for name in amounts), within=400)
    _everything_fits(scheduling, amounts)


def _audit(moment: Moment) -> Iterator[bool]:
    """Looks at new lines of the API server's audit log; true when the plugin's request has been answered."""
    with layout.AUDIT.open() as log:
        log.seek(0, os.SEEK_END)
        line, bound, number = "", False, 0
        while True:
            line += log.readline()
            if not line.endswith("\n"):  # nothing more, or half a line
                yield False
                continue
            event, line = json.loads(line), ""
            bound = bound or event.get("objectRef", {}).get("subresource") == "binding"
            names = event["user"].get("username"), event["verb"]
            if bound and names == (ACCOUNT, moment.verb) and event["requestURI"].startswith(moment.path):
                number += 1
                if number >= moment.number:
                    yield True


def _signal(product: Product, number: int) -> None:
    plugin = next(c for c in product.containers() if (c.namespace, c.name) == (NAMESPACE, "plugin"))
    os.kill(Cluster.node_pids()[plugin.pid], number)


def _bound_or_waiting(product: Product, name: str) -> bool:
    """It was placed, or the node is locked for the first pod."""
    pods: list[Any] = product.cluster.get("pods", "-n", "ml", "-l", f"app={name}")
    return bool(pods) and bool(pods[0]["spec"].get("nodeName") or pods[0]["status"].get("conditions"))


def _everything_fits(product: Product, amounts: dict[str, int]) -> None:
    """The containers have what they asked for, the kubelet has given nothing else away, and all else is free."""
    for name, amount in amounts.items():
        (pod,) = running_pods(product, name)
        assert product.environment(pod)["CUDA_DEVICE_MEMORY_LIMIT_0"] == f"{amount}m"
    product.wait("only they hold devices", lambda: len(product.pod_resources()) == len(amounts))
    product.wait("all shares are offered again", lambda: product.allocatable() == SHARES)
    product.wait("the node is not locked", lambda: "hami.io/mutex.lock" not in _notes(product))
    for name in ("a", "b"):  # two whole GPUs are left
        product.run(gpu_pod(name))
    assert len(product.pod_resources()) == len(amounts) + 2


def _notes(product: Product) -> dict[str, str]:
    notes: dict[str, str] = product.cluster.get("node", layout.NODE)["metadata"]["annotations"]
    return notes
