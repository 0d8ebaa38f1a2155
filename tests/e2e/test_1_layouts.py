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

AGENT, SLOT = ("agent", 9394), 2
MEMORY, CPU = "vgpuscope_container_memory_used_bytes", "vgpuscope_container_cpu_seconds_total"
SLICES = "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{slice}.slice"
KIND = "kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod{slice}.slice"
PATHS = {
    "systemd": f"{SLICES}/cri-containerd-{{id}}.scope",
    "systemd-crio": f"{SLICES}/crio-{{id}}.scope",
    "systemd-kind": f"kubelet.slice/{KIND}/cri-containerd-{{id}}.scope",
    "cgroupfs-kind": "kubelet/kubepods/besteffort/pod{uid}/{id}",
    "one-component": f"system.slice/{SLICES.rpartition('/')[2]}:cri-containerd:{{id}}",
}


@pytest.fixture
def pod(product: Product) -> Iterator[Container]:
    """A pod whose process is on no GPU yet: the agent reads the cgroup of a process once."""
    product.run(_pod("moved"))
    yield product.container("moved")
    product.remove("moved")
    product.driver.empty(SLOT).gpu(SLOT, memory_used=0).write()
    product.wait("no series", lambda: not product.samples(*AGENT, MEMORY, pod="moved"))


@pytest.mark.parametrize("path", PATHS)
def test_a_process_is_found_in_each_layout_of_version_1(product: Product, pod: Container, path: str) -> None:
    """Its CPU time is that of the cgroup where it is now, and not what the kubelet's cgroup of it has counted."""
    groups = _moved(product, pod, PATHS[path], [group for group in machine.cgroups() if (group / "tasks").exists()])
    usage = next(group for group in groups if "/cpuacct/" in str(group)) / "cpuacct.usage"
    _on_gpu(product, pod)
    (cpu,) = product.wait("its CPU time", lambda: product.samples(*AGENT, CPU, pod="moved"))
    assert cpu.labels["container"] == "main"
    assert 0 <= cpu.value <= int(usage.read_text()) / 1e9


def test_a_process_is_found_by_its_path_in_version_2(product: Product, pod: Container) -> None:
    """It leaves the cgroups of version 1, so that only the line of version 2 names its pod."""
    old = [group for group in machine.cgroups() if (group / "tasks").exists()]
    new = [group for group in machine.cgroups() if group not in old]
    for group in old:
        (group / "cgroup.procs").write_text(str(product.cluster.node_pids()[pod.pid]))
    _moved(product, pod, PATHS["systemd"], new)
    _on_gpu(product, pod)


def _moved(product: Product, pod: Container, path: str, tops: list[Path]) -> list[Path]:
    """Moves the pod's process into a cgroup below each of these; the cgroups. They go with the cluster."""
    found = product.pod(pod.pod)
    uid, full_id = found["metadata"]["uid"], found["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    process = product.cluster.node_pids()[pod.pid]
    groups = []
    for top in tops:
        group = top
        for name in path.format(uid=uid, slice=uid.replace("-", "_"), id=full_id).split("/"):
            group /= name
            group.mkdir(exist_ok=True)
            for setting in ("cpuset.cpus", "cpuset.mems"):
                if (group / setting).exists():
                    (group / setting).write_text((top / setting).read_text())
        (group / "cgroup.procs").write_text(str(process))
        groups.append(group)
    assert path.partition("/")[0] in Path(f"/proc/{process}/cgroup").read_text()
    return groups


def _on_gpu(product: Product, pod: Container) -> None:
    """The driver lists the process from now on; its memory must be its container's."""
    product.driver.gpu(SLOT, memory_used=GIB).process(SLOT, pod.pid, memory=GIB).write()
    (used,) = product.wait("the container's memory", lambda: product.samples(*AGENT, MEMORY, pod="moved"))
    assert (used.labels["namespace"], used.labels["container"], used.value) == ("ml", "main", GIB)
    assert used.labels["gpu_uuid"] == gpu_uuid(SLOT)


def _pod(name: str) -> dict[str, Any]:
    command = {"image": layout.WORK_IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "86400"]}
    spec = {"containers": [{"name": "main", **command}], "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ml"}, "spec": spec}
