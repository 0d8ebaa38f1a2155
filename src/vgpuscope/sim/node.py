"""A simulated node as a directory: every file that an agent reads, updated as the simulation advances.

devices.json                                   the driver's state; read through sim.binding
proc/<pid>/{stat,cgroup,…}                     processes
cgroup/…                                       CPU, memory and I/O of the containers
vgpu/containers/<podUID>_<container>/*.cache   HAMi regions
pods.json                                      the pods of the node
pod-resources/kubelet.sock                     the kubelet's PodResources
gpu_allocation.txt                             into how many vGPUs a GPU is divided, where HAMi sets no limit
"""

import os
import shutil
from pathlib import Path
from random import Random

import msgspec
from grpclib.server import Server

from vgpuscope.sim.driver import driver_state
from vgpuscope.sim.hardware import MIB
from vgpuscope.sim.jobs import HOST_PID_DELAY, Life, Process
from vgpuscope.sim.kinds import KindPlan
from vgpuscope.sim.podresources import serve
from vgpuscope.sim.pods import grants, pod_list
from vgpuscope.sim.proctree import CgroupTree, ProcTree
from vgpuscope.sim.regions import DeviceUse, RegionFile
from vgpuscope.sim.world import World

_CONTEXT = 412 * MIB
_FLICKER = 0.06  # share of reads that happen between the watcher's zeroing and refilling of a region
_TIDY_AFTER = 30.0  # seconds; HAMi's monitor removes a directory some time after its pod (5 minutes by default)


class Node:
    """One node. `tick` advances it; `serve` opens its socket."""

    def __init__(self, directory: Path, plan: KindPlan, *, seed: int, now: float) -> None:
        self.directory, self.plan = directory, plan
        self.world = World(plan, seed=seed, now=now)
        self._random = Random(f"{seed}/{plan.name}/files")
        self._regions: dict[str, tuple[RegionFile, dict[int, int]]] = {}  # by pod UID; inner pids by host pid
        self._orphans: list[tuple[float, Path]] = []
        self._pods = b""
        (directory / "pod-resources").mkdir(parents=True)
        if plan.ratio is not None:
            (directory / "gpu_allocation.txt").write_text(f"{plan.ratio}\n")
        self.hook_path.joinpath("containers").mkdir(parents=True)
        self._proc = ProcTree(directory / "proc", runtime=plan.runtime, began=now)
        self._cgroups = CgroupTree(directory / "cgroup", runtime=plan.runtime)
        self._publish()

    @property
    def hook_path(self) -> Path:
        """The directory for the agent's --hook-path."""
        return self.directory / "vgpu"

    @property
    def socket(self) -> Path:
        """The kubelet's PodResources socket."""
        return self.directory / "pod-resources" / "kubelet.sock"

    def tick(self, now: float) -> None:
        """Advances the node until now, and writes its files."""
        self.world.advance(now)
        self._publish()

    async def serve(self) -> Server:
        """Starts the kubelet's PodResources server; the caller closes it."""
        return await serve(self.socket, lambda: grants(self.world))

    def close(self) -> None:
        """Closes its files; they stay on disk."""
        for region, _ in self._regions.values():
            region.close()
        self._regions.clear()

    def _publish(self) -> None:
        world = self.world
        lives = list(world.lives.values())
        self._cgroups.update([life for life in lives if life.phase(world.elapsed) == "Running"], elapsed=world.elapsed)
        self._proc.update([(life, p) for life in lives for p in life.running()], elapsed=world.elapsed)
        for life in world.lives.values():
            if life.job.hami and not life.job.instances:
                self._publish_region(life)
        self._tidy()
        _replace(self.directory / "devices.json", msgspec.json.encode(driver_state(world)))
        pods = msgspec.json.encode(pod_list(world))
        if pods != self._pods:
            self._pods = pods
            _replace(self.directory / "pods.json", pods)

    # HAMi regions

    def _publish_region(self, life: Life) -> None:
        if life.phase(self.world.elapsed) == "Pending":
            return
        self._region_directory(life).mkdir(exist_ok=True)
        running = life.running()
        if life.uid not in self._regions:
            if not running:
                return
            self._regions[life.uid] = self._create(life), {}
        region, known = self._regions[life.uid]
        self._match_slots(life, region, known)
        for process in running:
            self._update_slot(life, region, process)
        if self._random.random() < _FLICKER:
            region.flicker()
        active = any(sm > 0 for p in running for sm in p.sm.values())
        if active:
            region.kernel(self.world.now)
        region.feedback(blocked=life.blocked, enforced=self._contended(life), active=active)

    def _create(self, life: Life) -> RegionFile:
        assert life.job.hami
        hami, gpus = life.job.hami, [self.world.gpus[c] for c in life.job.gpus]
        return RegionFile(
            self._region_directory(life) / life.region_name,
            layout=hami.layout,
            uuids=[gpu.uuid for gpu in gpus],
            memory_limits=[hami.memory * MIB for _ in gpus],
            sm_limit=hami.cores or 100,
            priority=hami.priority,
            now=self._idle_since(life),
        )

    def _idle_since(self, life: Life) -> float:
        """When a container last ran a kernel, as its processes appear: in the past of its job, if it has one."""
        past = life.job.before
        return self.world.now if past is None or life.born > 0 else self.world.began - past.ended

    def _match_slots(self, life: Life, region: RegionFile, known: dict[int, int]) -> None:
        """Matches the slots with the processes; a killed process leaves its slot unchanged."""
        processes = {p.pid: p for p in life.processes}
        for pid in list(known):
            process = processes.get(pid)
            if process is None or process.ended:
                inner = known.pop(pid)
                if process and process.ended == "exit":
                    region.exit(inner)
        for process in life.running():
            if process.pid not in known:
                region.attach(process.inner_pid, now=self._idle_since(life), alive=set(known.values()))
                known[process.pid] = process.inner_pid

    def _update_slot(self, life: Life, region: RegionFile, process: Process) -> None:
        found = self.world.elapsed - process.began >= HOST_PID_DELAY
        devices = []
        for index in life.job.gpus:
            gpu, memory = self.world.gpus[index], process.memory.get(index, 0)
            context = min(_CONTEXT, memory)
            driver_used = self.world.driver_memory(life, process, gpu) if found else 0
            sm = int(process.sm.get(index, 0.0) * 100) if found else 0
            devices.append(DeviceUse(context=context, data=memory - context, driver_used=driver_used, sm=sm))
        region.update(process.inner_pid, host_pid=process.pid if found else 0, devices=devices)

    def _contended(self, life: Life) -> bool:
        """Whether another HAMi container runs on one of its GPUs, so that its SM limit is enforced."""
        others = [o for o in self.world.lives.values() if o is not life and o.job.hami and o.running()]
        return any(set(o.job.gpus) & set(life.job.gpus) for o in others)

    def _tidy(self) -> None:
        for life in self.world.gone:
            if life.uid in self._regions:
                self._regions.pop(life.uid)[0].close()
            if life.job.hami and not life.job.instances:
                self._orphans.append((self.world.now + _TIDY_AFTER, self._region_directory(life)))
        self.world.gone.clear()
        for due, directory in [o for o in self._orphans if o[0] <= self.world.now]:
            shutil.rmtree(directory, ignore_errors=True)
            self._orphans.remove((due, directory))

    def _region_directory(self, life: Life) -> Path:
        return self.hook_path / "containers" / f"{life.uid}_{life.job.container}"


def _replace(path: Path, content: bytes) -> None:
    fresh = path.with_name(f".{path.name}")
    fresh.write_bytes(content)
    os.replace(fresh, path)
