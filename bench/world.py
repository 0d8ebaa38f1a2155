"""A node for measuring: GPUs of the stand-in driver, HAMi regions, a proc tree and a PodList that all agree.

The processes are real ones that sleep, because other exporters look up pids in the machine's own /proc. The agent under
test has its own proc root, in which the same pids belong to pods.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.native import build
from tests.native.scenario import GIB, NOT_SUPPORTED, Scenario, gpu_uuid
from tests.paths import TESTS
from vgpuscope.sim.regions import DeviceUse, RegionFile

GPUS = 8
PER_CONTAINER = 4  # processes
NODE = "bench"
_MIB = 1 << 20
_NAP = "3600"  # seconds after which a forgotten process ends
_BEGAN = 1_700_000_000
_HOST = TESTS / "fixtures" / "host" / "v2-systemd"
_RECORDED = next((_HOST / "cgroup").rglob("cpu.stat")).parent
_NETWORK = (_HOST / "proc" / "4242" / "net" / "dev").read_text()


@dataclass(frozen=True)
class Tenant:
    """One container with its GPU and its processes."""

    number: int
    slot: int
    pids: tuple[int, ...]

    @property
    def uid(self) -> str:
        """The UID of its pod."""
        return f"{self.number:08x}-1111-4222-8333-{self.number:012x}"

    @property
    def container_id(self) -> str:
        """The container id in the format of the runtime."""
        return f"{self.number:064x}"


@dataclass(frozen=True)
class World:
    """The files and tenants of the node."""

    root: Path
    library: Path
    tenants: tuple[Tenant, ...]

    @property
    def processes(self) -> int:
        """The number of processes on all GPUs."""
        return sum(len(tenant.pids) for tenant in self.tenants)

    def agent_arguments(self) -> list[str]:
        """Arguments that make an agent read this node."""
        return [
            *("--node-name", NODE, "--pods", f"file:{self.root / 'pods.json'}", "--podresources-socket", "none"),
            *("--proc-root", str(self.root / "proc"), "--hook-path", str(self.root / "hook")),
            *("--cgroup-root", str(self.root / "cgroup")),
        ]

    def environment(self) -> dict[str, str]:
        """This process' environment, plus the stand-in driver."""
        return os.environ | build.environment(self.library, self.root / "nvml")


@contextmanager
def world(root: Path, *, processes: int) -> Iterator[World]:
    """A node with that many processes, four to a container, spread over eight GPUs."""
    sleepers = [subprocess.Popen(["sleep", _NAP]) for _ in range(processes)]
    try:
        pids = [sleeper.pid for sleeper in sleepers]
        tenants = tuple(
            Tenant(number=n + 1, slot=n % GPUS, pids=tuple(pids[n * PER_CONTAINER : (n + 1) * PER_CONTAINER]))
            for n in range(processes // PER_CONTAINER)
        )
        made = World(root=root, library=build.library(), tenants=tenants)
        _write_driver(made)
        _write_regions(made)
        _write_proc(made)
        _write_cgroups(made)
        (root / "pods.json").write_text(json.dumps({"apiVersion": "v1", "kind": "PodList", "items": _pods(made)}))
        yield made
    finally:
        for sleeper in sleepers:
            sleeper.kill()
        for sleeper in sleepers:
            sleeper.wait()


def _share(made: World) -> int:
    """The memory that one process has of its GPU, in bytes: all together 64 of 80 GB."""
    return 64 * GIB * GPUS // made.processes // _MIB * _MIB


def _write_driver(made: World) -> None:
    scenario = Scenario(made.root / "nvml")
    for slot in range(GPUS):
        scenario.gpu(slot, memory_used=66 * GIB, utilization=93, fan=40, serial=f"16505220{slot:05d}")
    for tenant in made.tenants:
        for n, pid in enumerate(tenant.pids):
            scenario.process(tenant.slot, pid, memory=_share(made))
            scenario.sample(tenant.slot, pid, sm=n, mem=1, ago=100_000)
    # A real driver lets the XID listener sleep. The stand-in polls a hundred times a second, which must not be
    # measured.
    scenario.fail("nvmlEventSetCreate", NOT_SUPPORTED)
    scenario.write()


def _write_regions(made: World) -> None:
    for tenant in made.tenants:
        directory = made.root / "hook" / "containers" / f"{tenant.uid}_main"
        directory.mkdir(parents=True)
        region = RegionFile(
            directory / "1.cache",
            layout="v1.2",
            uuids=[gpu_uuid(tenant.slot)],
            memory_limits=[10 * GIB],
            sm_limit=30,
            now=_BEGAN,
        )
        inside = range(1, 1 + len(tenant.pids))
        for pid, host_pid in zip(inside, tenant.pids, strict=True):
            region.attach(pid, now=_BEGAN, alive=set(inside))
            use = DeviceUse(context=300 * _MIB, data=_share(made) - 300 * _MIB, driver_used=_share(made), sm=pid)
            region.update(pid, host_pid=host_pid, devices=[use])
        region.close()


def _write_proc(made: World) -> None:
    for tenant in made.tenants:
        pod = f"kubepods-burstable-pod{tenant.uid.replace('-', '_')}.slice"
        cgroup = f"0::/kubepods.slice/kubepods-burstable.slice/{pod}/cri-containerd-{tenant.container_id}.scope\n"
        for pid in tenant.pids:
            directory = made.root / "proc" / str(pid)
            directory.mkdir(parents=True)
            (directory / "stat").write_text(f"{pid} (python3) S 1{' 0' * 17} {pid * 7}{' 0' * 30}\n")
            (directory / "cgroup").write_text(cgroup)
            (directory / "net").mkdir()
            (directory / "net" / "dev").write_text(_NETWORK)
    for name in ("stat", "meminfo", "loadavg"):
        shutil.copy(f"/proc/{name}", made.root / "proc")
    (made.root / "proc" / "1" / "net").mkdir(parents=True)
    shutil.copy("/proc/net/dev", made.root / "proc" / "1" / "net")


def _write_cgroups(made: World) -> None:
    """A cgroup of version 2 for each container, with files as long as the kernel's."""
    root = made.root / "cgroup"
    root.mkdir()
    (root / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    for tenant in made.tenants:
        pod = f"kubepods-burstable-pod{tenant.uid.replace('-', '_')}.slice"
        scope = (
            root / "kubepods.slice" / "kubepods-burstable.slice" / pod / f"cri-containerd-{tenant.container_id}.scope"
        )
        shutil.copytree(_RECORDED, scope)


def _pods(made: World) -> list[dict[str, object]]:
    return [_pod(tenant) for tenant in made.tenants]


def _pod(tenant: Tenant) -> dict[str, object]:
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "10240", "nvidia.com/gpucores": "30"}
    running = {"name": "main", "containerID": f"containerd://{tenant.container_id}", "state": {"running": {}}}
    return {
        "metadata": {
            "name": f"trainer-{tenant.number:04d}-7c9d8b6f5-abcde",
            "namespace": f"team-{tenant.number % 5}",
            "uid": tenant.uid,
            "annotations": {"hami.io/vgpu-devices-allocated": f"{gpu_uuid(tenant.slot)},NVIDIA,10240,30:;"},
        },
        "spec": {"nodeName": NODE, "containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": {"phase": "Running", "containerStatuses": [running]},
    }
