"""Cgroup paths of other nodes: a process is moved to where systemd, kind, CRI-O or cgroup v2 would have it.

The kubelet here uses cgroup v1 and the driver cgroupfs. So the kernel moves a real process, and says where it is.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.product import Container, Product
from tests.native.scenario import GIB, gpu_uuid
from tools.cluster import layout, machine

pytestmark = pytest.mark.e2e

AGENT, SLOT, POD, UNIFIED = ("agent", 9394), 2, "moved", "unified"
MEMORY, CPU = "vgpuscope_container_memory_used_bytes", "vgpuscope_host_cpu_seconds_total"
SLICES = "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{slice}.slice"
KIND = "kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod{slice}.slice"
PATHS = {
    "systemd": f"{SLICES}/cri-containerd-{{id}}.scope",
    "systemd-crio": f"{SLICES}/crio-{{id}}.scope",
    "systemd-kind": f"kubelet.slice/{KIND}/cri-containerd-{{id}}.scope",
    "cgroupfs-kind": "kubelet/kubepods/besteffort/pod{uid}/{id}",
    "one-component": f"system.slice/{SLICES.rpartition('/')[2]}:cri-containerd:{{id}}",
}


@pytest.fixture(scope="module")
def usage(product: Product) -> Iterator[dict[str, Path]]:
    """A pod with a container for each layout: by its name the file with the CPU time of the cgroup that it is moved to.

    The driver lists the processes from then on, because the agent reads the cgroup of a process once.
    """
    product.run(_pod(POD, [*PATHS, UNIFIED]))
    old = [group for group in machine.cgroups() if (group / "tasks").exists()]
    files = {}
    for name, path in PATHS.items():
        groups = _moved(product, product.container(POD, name), path, old)
        files[name] = next(group for group in groups if "/cpuacct/" in str(group)) / "cpuacct.usage"
    alone = product.container(POD, UNIFIED)  # leaves version 1, so that only the line of version 2 names its pod
    for group in old:
        (group / "cgroup.procs").write_text(str(product.cluster.node_pids()[alone.pid]))
    _moved(product, alone, PATHS["systemd"], [group for group in machine.cgroups() if group not in old])
    for name in (*PATHS, UNIFIED):
        product.driver.process(SLOT, product.container(POD, name).pid, memory=GIB)
    product.driver.gpu(SLOT, memory_used=len((*PATHS, UNIFIED)) * GIB).write()
    yield files
    product.remove(POD)
    product.driver.empty(SLOT).gpu(SLOT, memory_used=0).write()
    product.wait("no series", lambda: not product.samples(*AGENT, MEMORY, pod=POD))


@pytest.mark.parametrize("name", [*PATHS, UNIFIED])
@pytest.mark.usefixtures("usage")
def test_the_memory_of_a_process_is_its_containers(product: Product, name: str) -> None:
    (used,) = product.wait("the container's memory", lambda: product.samples(*AGENT, MEMORY, pod=POD, container=name))
    assert (used.value, used.labels["namespace"], used.labels["gpu_uuid"]) == (GIB, "ml", gpu_uuid(SLOT))


@pytest.mark.parametrize("name", PATHS)
def test_the_cpu_time_is_that_of_the_cgroup_where_the_process_is(
    product: Product, usage: dict[str, Path], name: str
) -> None:
    """Not what the kubelet's own cgroup of the container has counted."""
    (cpu,) = product.wait("its CPU time", lambda: product.samples(*AGENT, CPU, pod=POD, container=name))
    assert 0 <= cpu.value <= int(usage[name].read_text()) / 1e9


def _moved(product: Product, container: Container, path: str, tops: list[Path]) -> list[Path]:
    """Moves the container's process into a cgroup below each of these; the cgroups. They go with the cluster."""
    pod = product.pod(container.pod)
    ids = {status["name"]: status["containerID"].rpartition("/")[2] for status in pod["status"]["containerStatuses"]}
    uid, process = pod["metadata"]["uid"], product.cluster.node_pids()[container.pid]
    groups = []
    for top in tops:
        group = top
        for name in path.format(uid=uid, slice=uid.replace("-", "_"), id=ids[container.name]).split("/"):
            group /= name
            group.mkdir(exist_ok=True)
            for setting in ("cpuset.cpus", "cpuset.mems"):
                if (group / setting).exists():
                    (group / setting).write_text((top / setting).read_text())
        (group / "cgroup.procs").write_text(str(process))
        groups.append(group)
    assert ids[container.name] in Path(f"/proc/{process}/cgroup").read_text()
    return groups


def _pod(name: str, containers: list[str]) -> dict[str, Any]:
    command = {"image": layout.WORK_IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "86400"]}
    spec = {"containers": [{"name": c, **command} for c in containers], "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ml"}, "spec": spec}
