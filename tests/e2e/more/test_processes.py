"""Which container a process on a GPU belongs to, by the kernel, in the cases that pods can bring about."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.product import Product
from tests.native.scenario import GIB, gpu_uuid
from tools.cluster import layout
from tools.cluster.cluster import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("tidy")]

SLOT = 0
STATIC = layout.KUBELET / "manifests" / "static.yaml"  # the kubelet's staticPodPath
# a child that can be killed without the container's end
PARENT = "sleep 86400 & wait; exec sleep 86400"
# a new process ten times a second, until one has the pid that is wanted
BREEDER = "while [ ! -e /tmp/enough ]; do sleep 86400 & sleep 0.1; done; wait"


@pytest.fixture
def tidy(product: Product) -> Iterator[None]:
    product.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}})
    yield
    product.cluster.kubectl("-n", "ml", "delete", "pods", "--all", "--grace-period=1", "--timeout=120s")
    product.with_gpus()


def test_a_pod_that_shares_the_pids_of_the_node(product: Product) -> None:
    product.run(_pod("host-pids", hostPID=True))
    _computes(product, product.container("host-pids").pid)
    _holder_is(product, "host-pids", "main")


def test_pods_that_share_the_pids_of_their_containers(product: Product) -> None:
    """The pod's processes see each other; each belongs to its own container."""
    product.run(_pod("shared-pids", shareProcessNamespace=True, names=("first", "second")))
    _computes(product, product.container("shared-pids", "second").pid)
    _holder_is(product, "shared-pids", "second")


def test_an_ephemeral_container_is_a_container_of_its_pod(product: Product) -> None:
    product.run(_pod("debugged"))
    words = ("debug", "debugged", "-c", "debugger", "--image", layout.WORK_IMAGE, "--image-pull-policy=Never")
    product.cluster.kubectl("-n", "ml", *words, "--", "sleep", "86400")
    names = product.wait("the debugger", lambda: _containers(product, "debugged") & {"debugger"})
    assert names == {"debugger"}
    _computes(product, product.container("debugged", "debugger").pid)
    _holder_is(product, "debugged", "debugger")


def test_a_static_pod_has_the_name_that_the_api_server_shows(product: Product) -> None:
    """The kubelet runs it from a file, under another UID than the API server's mirror of it has."""
    STATIC.parent.mkdir(exist_ok=True)
    part = STATIC.parent.with_name("static.part")
    part.write_text(json.dumps(_pod("static")))  # JSON is YAML
    part.rename(STATIC)
    name = f"static-{layout.NODE}"
    try:
        product.wait("the static pod", lambda: _containers(product, name))
        product.wait("its mirror", lambda: not _missing(product, name))
        _computes(product, product.container(name).pid)
        _holder_is(product, name, "main")
    finally:
        STATIC.unlink()
    product.wait("the static pod is gone", lambda: not _containers(product, name))


def test_after_a_restart_of_a_container_its_new_process_is_the_holder(product: Product) -> None:
    product.run(_pod("restarts"))
    old = product.container("restarts").pid
    _computes(product, old)
    _holder_is(product, "restarts", "main")
    os.kill(Cluster.node_pids()[old], signal.SIGKILL)
    new = product.wait("a new process", lambda: _pid_other_than(product, "restarts", old))
    _computes(product, new)
    _holder_is(product, "restarts", "main")
    (status,) = product.pod("restarts")["status"]["containerStatuses"]
    assert status["restartCount"] == 1


def test_a_pid_that_was_given_again_belongs_to_its_new_process(product: Product) -> None:
    """The list of the driver has one pid all the time, and the kernel gives it to another pod's process."""
    product.run(_pod("old", command=PARENT))
    product.run(_pod("new", command=BREEDER))
    parent = product.container("old").pid
    child = product.wait("its child", lambda: _pids_of(product, "old") - {parent}).pop()
    _computes(product, child)
    _holder_is(product, "old", "main")
    os.kill(Cluster.node_pids()[child], signal.SIGKILL)
    product.wait("the child is gone", lambda: child not in Cluster.node_pids())
    # the kernel gives pids in order: the process that is made next in the node gets this one
    first = Cluster.node_pids()[1]
    again = ["nsenter", "--target", str(first), "--pid", "sh", "-c", f"echo {child - 1} >/proc/sys/kernel/ns_last_pid"]

    def given_again() -> bool:
        subprocess.run(again, check=True)
        return child in _pids_of(product, "new")

    product.wait("a process of the other pod has it", given_again)
    product.inside("new", "touch", "/tmp/enough")
    _holder_is(product, "new", "main")


def _computes(product: Product, pid: int) -> None:
    """From now on, this process of the node is the only one that the driver lists."""
    product.driver.empty(SLOT).gpu(SLOT, memory_used=3 * GIB).process(SLOT, pid, memory=3 * GIB).write()


def _holder_is(product: Product, pod: str, container: str) -> None:
    """The agent shows the memory as this container's, and nobody else's, with the pod's UID at the API server."""
    name = "vgpuscope_container_memory_used_bytes"
    wanted = [("ml", pod, container, 3 * GIB)]

    def holders() -> list[Any]:
        samples = product.samples("agent", 9394, name, gpu_uuid=gpu_uuid(SLOT))
        return [s for s in samples if s.value]

    def is_so() -> bool:
        keys = ("namespace", "pod", "container")
        return [(*(s.labels[key] for key in keys), s.value) for s in holders()] == wanted

    product.wait(f"{pod}/{container} is the holder", is_so)
    assert {s.labels["pod_uid"] for s in holders()} == {product.pod(pod)["metadata"]["uid"]}


def _pids_of(product: Product, pod: str) -> set[int]:
    """The pids of a pod's processes, as the node counts them, by their cgroups."""
    uid = product.pod(pod)["metadata"]["uid"]
    pids = set()
    for pid, here in Cluster.node_pids().items():
        try:
            text = Path(f"/proc/{here}/cgroup").read_text()
            name = Path(f"/proc/{here}/comm").read_text().strip()
        except OSError:
            continue
        if uid in text and name in {"sh", "sleep", "busybox"}:
            pids.add(pid)
    return pids


def _containers(product: Product, pod: str) -> set[str]:
    return {c.name for c in product.containers() if (c.namespace, c.pod) == ("ml", pod)}


def _pid_other_than(product: Product, pod: str, old: int) -> int:
    return next((c.pid for c in product.containers() if (c.namespace, c.pod) == ("ml", pod) and c.pid != old), 0)


def _missing(product: Product, pod: str) -> bool:
    return product.cluster.kubectl("-n", "ml", "get", "pod", pod, check=False).returncode != 0


def _pod(name: str, *, names: tuple[str, ...] = ("main",), command: str = "exec sleep 86400", **spec: Any) -> Any:
    image = {"image": layout.WORK_IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", command]}
    containers = [{"name": container, **image} for container in names]
    made = {"containers": containers, "terminationGracePeriodSeconds": 1, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ml"}, "spec": made}
