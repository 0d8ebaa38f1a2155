"""`python -m tests.services.agent.soak ROOT CYCLES`: one sampler over a node on which nothing lasts; prints its size.

Pods, processes, region files and MIG instances come and go, each new one under a name that never was before; the
driver is reloaded, processes are killed, a tenant leaves half a region. Runs in a process of its own, so that its
memory is its own.
"""

import asyncio
import gc
import gzip
import http.client
import json
import logging
import os
import random
import shutil
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.blocks import blocks
from tests.native.scenario import GIB, Scenario, gpu_uuid, mig_uuid
from tests.paths import TESTS
from tools.writers.series import most_series
from vgpuscope.catalog import agent as m
from vgpuscope.catalog.metric import DEFAULT_FAMILIES, Metric, Scope
from vgpuscope.formats.kube.pods import decode_pods
from vgpuscope.http import address
from vgpuscope.http.app import App, Readiness
from vgpuscope.http.server import HttpServer
from vgpuscope.services.agent.process import tidy, tune
from vgpuscope.services.agent.sampler import Sampler
from vgpuscope.services.agent.waits import SampleWaits
from vgpuscope.sim.regions import DeviceUse, RegionFile
from vgpuscope.views.exposition.page import ExpositionPage

HOST = TESTS / "fixtures" / "host" / "v2-systemd"
RECORDED = next((HOST / "cgroup").rglob("cpu.stat")).parent
SHARED, MIG = (0, 1), 2  # slots: two GPUs shared through HAMi, one cut into instances
CHANGE_EVERY, LOOK_EVERY, SCRAPE_EVERY = 5, 50, 300  # cycles; so that forms of the page are kept and forgotten
CALM_EVERY, CALM_FOR = 1000, 200  # cycles; then the node is as it was at the beginning, and all that is left is ours
WINDOW = 0.2  # seconds: full after the first hundred cycles
LEAVE_IN_A_WINDOW = 40  # containers, at the most: one in five cycles, none of which is done in a millisecond
_MIB = 1 << 20


def _number(*metrics: Metric) -> int:
    return sum(len(metric.exposed(frozenset(DEFAULT_FAMILIES))) * (metric.each or 0) for metric in metrics)


# What the formula of docs/metrics-agent.md calls "at the most" and a GPU in MIG mode, or a container there, does not
# have: the driver tells how busy neither of them is.
MISSING_ON_A_MIG_GPU = _number(
    *(m.GPU_UTILIZATION, m.GPU_UTILIZATION_MEAN, m.GPU_UTILIZATION_MAX, m.GPU_BUSY, m.GPU_SM_LEDGER),
    *(m.GPU_MEMORY_CONTROLLER, m.GPU_MEMORY_CONTROLLER_MEAN, m.GPU_MEMORY_CONTROLLER_MAX),
    *(m.GPU_ENCODER, m.GPU_DECODER, m.GPU_JPEG, m.GPU_OFA),
)
MISSING_IN_AN_INSTANCE = 1 + _number(  # 1: of the three resources of CONTAINER_METHOD, SM
    m.CONTAINER_SM, m.CONTAINER_SM_MEAN, m.CONTAINER_SM_MAX, m.CONTAINER_SM_SECONDS, m.CONTAINER_SM_ERROR, m.POD_SM
)
MISSING_OF_AN_ABSENT_SOURCE = _number(m.SOURCE_READ_SECONDS, m.SOURCE_AGE_SECONDS)
SOURCES = 10
ABSENT_SOURCES = 4  # the ratio file, profiling counters, a dcgm-exporter and ResourceClaims
SOURCES_WITHOUT_ERROR = SOURCES - 1  # only profiling counters are missed: the driver has none
# no GPU here has profiling counters
_PROFILED = [metric for metric in m.METRICS if any("_PROF_" in alias.name for alias in metric.aliases)]
_OVER_TIME = [metric for metric in m.METRICS if "_active_mean_" in metric.name or "_active_max_" in metric.name]
MISSING_OF_A_GPU = _number(*(metric for metric in (*_PROFILED, *_OVER_TIME) if metric.scope == "gpu"))
MISSING_OF_AN_INSTANCE = (
    _number(*(metric for metric in (*_PROFILED, *_OVER_TIME) if metric.scope == "mig"))
    + _number(m.MIG_DECODER, m.MIG_JPEG, m.MIG_OFA, m.MIG_BUSY)
    + 1  # of the two resources of MIG_METHOD, SM
)
# How much the listener has sent, which the agent's program tells the sampler; here nothing tells it.
MISSING_WITHOUT_A_LISTENER = _number(
    *(m.EXPOSER_BYTES, m.EXPOSER_SCRAPES, m.EXPOSER_LATENCIES, m.EXPOSER_LATENCY_SUM, m.EXPOSER_LATENCY_COUNT)
)
MISSING_OF_A_CONTAINER = _number(
    m.CONTAINER_INSTANCE_SM, m.CONTAINER_INSTANCE_SM_MEAN, m.CONTAINER_INSTANCE_SM_MAX
)  # SM time is not measured in an instance


@dataclass
class Tenant:
    """One pod of one container, with what it has."""

    number: int
    slot: int
    instance: int | None = None
    region: RegionFile | None = None
    processes: dict[int, int] = field(default_factory=dict)  # host pid → pid inside

    @property
    def uid(self) -> str:
        return f"{self.number:08x}-1111-4222-8333-444444444444"

    @property
    def container_id(self) -> str:
        return f"{self.number:064x}"


class World:
    """The node: files for the sampler, and the truth that they were written from."""

    def __init__(self, root: Path) -> None:
        self.root, self.random = root, random.Random(19)
        self.containers, self.proc = root / "containers", root / "proc"
        self.tenants: dict[int, Tenant] = {}
        self.instances: dict[int, str] = {}  # MIG index → UUID
        self.half_written: Path | None = None
        self.counted = False  # a refusal is an error of the sample after the one that met it
        self._numbers = self._pids = 1000
        self._driver = Scenario(root / "nvml")
        self.containers.mkdir()
        shutil.copytree(HOST / "proc", self.proc)
        self.cgroup = root / "cgroup"
        self.cgroup.mkdir()
        shutil.copy(HOST / "cgroup" / "cgroup.controllers", self.cgroup)
        self.sampled: set[int] = set()  # tenants that the last sample saw: only these have a rate of CPU time
        for slot in (*SHARED, MIG):
            self._driver.gpu(slot, memory_used=60 * GIB, utilization=90, fan=40)
        self.calm()

    def change(self) -> None:
        """Something happens on the node."""
        often = (self.arrive, self.arrive, self.leave, self.leave, self.fork, self.fork, self.end)
        self.random.choice((*often, self.kill, self.cut, self.merge, self.refuse, self.reload))()
        self.write()

    def calm(self) -> None:
        """All leave, and as many come as there were at the beginning."""
        for tenant in list(self.tenants.values()):
            self._remove(tenant)
        if self.half_written:
            self.refuse()
        for slot in SHARED:
            self.arrive(slot)
        self.cut()
        self.write()

    # -- what happens ---------------------------------------------------------------------------------------------

    def arrive(self, slot: int | None = None) -> None:
        if slot is None and len(self._shared()) >= 10:
            return
        tenant = self._tenant(self.random.choice(SHARED) if slot is None else slot)
        directory = self.containers / f"{tenant.uid}_main"
        directory.mkdir()
        tenant.region = RegionFile(
            directory / "1.cache",
            layout=self.random.choice(("v1.2", "v1.1", "v1s")),
            uuids=[gpu_uuid(tenant.slot)],
            memory_limits=[4 * GIB],
            sm_limit=50,
            now=1e9,
        )
        self._start(tenant)

    def leave(self) -> None:
        shared = self._shared()
        if len(shared) > 3:
            self._remove(self.random.choice(shared))

    def fork(self) -> None:
        tenant = self.random.choice(list(self.tenants.values()))
        if len(tenant.processes) < 4:
            self._start(tenant)

    def end(self, *, killed: bool = False) -> None:
        tenant = self.random.choice(list(self.tenants.values()))
        if len(tenant.processes) > 1:
            host_pid, pid = self.random.choice(list(tenant.processes.items()))
            if tenant.region and not killed:
                tenant.region.exit(pid)
            self._stop(tenant, host_pid)

    def kill(self) -> None:
        self.end(killed=True)

    def cut(self) -> None:
        index = next((i for i in range(4) if i not in self.instances), None)
        if index is not None:
            tenant = self._tenant(MIG)
            tenant.instance = index
            self.instances[index] = mig_uuid(tenant.number, index)
            self._driver.mig(
                MIG, index, gi=index + 1, uuid=self.instances[index], memory_total=10 * GIB, memory_used=8 * GIB
            )
            self._start(tenant)

    def merge(self) -> None:
        if len(self.instances) > 1:
            self._remove(self.random.choice([t for t in self.tenants.values() if t.instance is not None]))

    def refuse(self) -> None:
        if self.half_written:
            shutil.rmtree(self.half_written)
            self.half_written = None
        else:
            self._numbers += 1
            self.half_written = self.containers / f"{self._numbers:08x}-dead_main"
            self.half_written.mkdir()
            (self.half_written / "1.cache").write_bytes(b"\0" * 100)

    def reload(self) -> None:
        if self.random.random() < 0.05:
            self._driver.reload()

    # -- files ----------------------------------------------------------------------------------------------------

    def write(self) -> None:
        for slot in (*SHARED, MIG):
            self._driver.empty(slot)
        for tenant in self.tenants.values():
            gi = None if tenant.instance is None else tenant.instance + 1
            for host_pid in tenant.processes:
                ci = None if gi is None else 0
                self._driver.process(tenant.slot, host_pid, memory=512 * _MIB, gi=gi, ci=ci)
                self._driver.sample(tenant.slot, host_pid, sm=1)
        self._driver.write()

    def pods(self) -> bytes:
        """The PodList of this moment."""
        return json.dumps({"kind": "PodList", "items": [self._pod(t) for t in self.tenants.values()]}).encode()

    def _pod(self, tenant: Tenant) -> dict:
        gpu = gpu_uuid(tenant.slot)
        notes = {"hami.io/vgpu-devices-allocated": f"{gpu},NVIDIA,4096,50:;"}
        if tenant.instance is not None:
            entry = {"containerIndex": 0, "deviceIndex": 0, "gpuUUID": gpu, "profile": "1g.10gb"}
            entry |= {"migUUID": self.instances[tenant.instance], "gpuInstanceID": tenant.instance + 1}
            entry |= {"computeInstanceID": 0, "placement": {"start": tenant.instance, "size": 1}}
            notes["hami.io/vgpu-mig-allocations"] = json.dumps([entry])
        status = {"name": "main", "containerID": f"containerd://{tenant.container_id}", "state": {"running": {}}}
        return {
            "metadata": {"name": f"pod-{tenant.number}", "namespace": "ml", "uid": tenant.uid, "annotations": notes},
            "spec": {"containers": [{"name": "main"}]},
            "status": {"phase": "Running", "containerStatuses": [status]},
        }

    def _shared(self) -> list[Tenant]:
        return [tenant for tenant in self.tenants.values() if tenant.instance is None]

    def _tenant(self, slot: int) -> Tenant:
        self._numbers += 1
        tenant = self.tenants[self._numbers] = Tenant(self._numbers, slot)
        shutil.copytree(RECORDED, self._cgroup(tenant))
        return tenant

    def _cgroup(self, tenant: Tenant) -> Path:
        pod = self.cgroup / "kubepods.slice" / f"kubepods-pod{tenant.uid.replace('-', '_')}.slice"
        return pod / f"cri-containerd-{tenant.container_id}.scope"

    def _remove(self, tenant: Tenant) -> None:
        for host_pid in list(tenant.processes):
            self._stop(tenant, host_pid)
        if tenant.region:
            tenant.region.close()
            shutil.rmtree(tenant.region.path.parent)
        if tenant.instance is not None:
            self._driver.unmig(MIG, tenant.instance)
            del self.instances[tenant.instance]
        shutil.rmtree(self._cgroup(tenant).parent)
        del self.tenants[tenant.number]

    def _start(self, tenant: Tenant) -> None:
        self._pids += 1
        host_pid, pid = 1 + self._pids % 4_000_000, self._pids % 1000
        tenant.processes[host_pid] = pid
        if tenant.region:
            tenant.region.attach(pid, now=1e9, alive=set(tenant.processes.values()))
            use = DeviceUse(context=100 * _MIB, data=400 * _MIB, driver_used=512 * _MIB, sm=1)
            tenant.region.update(pid, host_pid=host_pid, devices=[use])
        directory = self.proc / str(host_pid)
        directory.mkdir()
        pod = f"kubepods-pod{tenant.uid.replace('-', '_')}.slice"
        (directory / "cgroup").write_text(f"0::/kubepods.slice/{pod}/cri-containerd-{tenant.container_id}.scope\n")
        shutil.copytree(HOST / "proc" / "4242" / "net", directory / "net")
        shutil.copy(HOST / "proc" / "4242" / "status", directory)
        (directory / "stat").write_text(f"{host_pid} (python) S 1{' 0' * 17} {self._pids}{' 0' * 30}\n")

    def _stop(self, tenant: Tenant, host_pid: int) -> None:
        del tenant.processes[host_pid]
        shutil.rmtree(self.proc / str(host_pid))

    # -- the truth ------------------------------------------------------------------------------------------------

    def series(self) -> int:
        """What docs/metrics-agent.md promises for this node."""
        tenants, instances = len(self.tenants), len(self.instances)
        things = {"gpu": len(SHARED) + 1, "mig": instances, "container": tenants, "pod": tenants}
        things |= {"vgpu": tenants - instances, "holding": instances, "host": tenants, "source": SOURCES, "node": 1}
        reasons = bool(self.half_written) + self.counted
        missing = MISSING_ON_A_MIG_GPU + ABSENT_SOURCES * MISSING_OF_AN_ABSENT_SOURCE
        missing += SOURCES_WITHOUT_ERROR * _number(m.SOURCE_ERROR)
        missing += MISSING_IN_AN_INSTANCE * instances + MISSING_OF_A_GPU * things["gpu"]
        missing += MISSING_OF_AN_INSTANCE * instances + MISSING_OF_A_CONTAINER * tenants + MISSING_WITHOUT_A_LISTENER
        return _most(tuple(things.items())) + reasons - missing - len(self.tenants.keys() - self.sampled)


@cache
def _most(things: tuple[tuple[Scope, int], ...]) -> int:
    return most_series(dict(things), m.METRICS, DEFAULT_FAMILIES)


class Web:
    """The agent's own HTTP shell around the newest page, and one client that stays connected."""

    def __init__(self) -> None:
        self.page = ExpositionPage()
        sock = address.bind("127.0.0.1:0")
        self._port = sock.getsockname()[1]
        app = App(title="soak", metrics=lambda: self.page, ready=Readiness)
        threading.Thread(target=lambda: asyncio.run(HttpServer(app, sock=sock).run()), daemon=True).start()
        self._client = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)

    def scrape(self, form: int) -> bytes:
        """The page as it comes, in one of its four forms."""
        accept = ("text/plain", "application/openmetrics-text;version=1.0.0")[form % 2]
        encoding = ("identity", "gzip")[form // 2]
        self._client.request("GET", "/metrics", headers={"Accept": accept, "Accept-Encoding": encoding})
        answer = self._client.getresponse()
        assert answer.status == 200, answer.status
        body = answer.read()
        return gzip.decompress(body) if encoding == "gzip" else body


def run(root: Path, cycles: int) -> Iterator[dict[str, object]]:
    """Looks at what is held, now and then, and in the end what was seen; a wrong page ends it at once."""
    world, web = World(root), Web()
    sampler = Sampler(
        node="soak",
        families=DEFAULT_FAMILIES,
        containers_dir=str(world.containers),
        proc_root=str(world.proc),
        cgroup_root=str(world.cgroup),
        window=WINDOW,
        driver_deadline=30.0,
        # the host is read at every sample, for what is kept between two readings; a busy machine costs no series
        waits=SampleWaits(regions=30.0, profiling=30.0, host=30.0, host_every=0.0),
    )
    sampler.source_health["ratio"].none("not here")
    sampler.grants = ()
    for cycle in range(cycles):
        left = CALM_EVERY - cycle % CALM_EVERY  # cycles before the next look at a calm node
        if cycle % CHANGE_EVERY == 0 and left >= CALM_FOR:
            (world.change if left > CALM_FOR else world.calm)()
            sampler.pods = decode_pods(world.pods()).items
        for source in ("pods", "podresources"):
            sampler.source_health[source].good(0.0)
        sample, web.page = sampler.cycle()
        snapshot = sample.outline
        tidy(snapshot.samples)
        if (got := web.page.series) != (expected := world.series()):
            yield {"wrong": f"cycle {cycle}: {got} series, {expected} expected; sources {snapshot.sources}"}
            return
        if cycle % SCRAPE_EVERY == 0 and (error := _served(web, expected)):
            yield {"wrong": f"cycle {cycle}: {error}"}
            return
        world.counted |= world.half_written is not None
        world.sampled = set(world.tenants)
        if cycle % LOOK_EVERY == CHANGE_EVERY - 1:
            yield {"cycle": cycle, **_resources(world), **_remembered(sampler, world)}
        if left == 1:
            gc.collect()
            yield {"calm": cycle, "blocks": blocks(), **_resources(world)}
    yield {"wrong": None, "corrections": snapshot.tally.corrections, "ended": snapshot.tally.ended}


def _served(web: Web, expected: int) -> str | None:
    """What is wrong with the page over HTTP, in any of its forms."""
    for form in range(4):
        got = sum(not line.startswith(b"#") for line in web.scrape(form).splitlines())
        if got != expected:
            return f"{got} series in form {form}, {expected} expected"
    return None


def _resources(world: World) -> dict[str, int]:
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    regions = sum(1 for tenant in world.tenants.values() if tenant.region)  # the simulator keeps each file open
    fds = len(os.listdir("/proc/self/fd")) - regions
    return {"resident": resident, "fds": fds, "threads": threading.active_count()}


def _remembered(sampler: Sampler, world: World) -> dict[str, int]:
    """How much each memory holds beyond what is on the node now."""
    mind = sampler._tracker
    containers = len(world.tenants)
    processes = sum(len(tenant.processes) for tenant in world.tenants.values())
    # node, sources, GPUs, instances; container, pod, vgpu, host
    rows = 1 + SOURCES + 3 + len(world.instances) + 4 * containers
    return {
        "rows": len(sampler._renderer._last.lines) - rows,
        "owners": len(sampler._proc._known) - processes,
        "stamps": len(sampler._proc._stamps) - processes,
        "accounts": len(mind._accounts.containers) - containers,
        "windows": len(mind._accounts._windows) - 3 * 5 - containers,
        "zeros": len(mind._history.zeros) - processes,
        "regions": len(mind._history.regions) - containers,
        "listings": len(sampler._region_files._choices) - containers - 1,
        "gpus": len(sampler.nvml._gpus) - 3,
        "quiet calls": sum(len(gpu.quiet) for gpu in sampler.nvml._gpus),
        "told": len(sampler._tell._told) - SOURCES - 3 - 1,
        "cgroups": len(sampler._host_reader._cgroups._places)
        + len(sampler._host_reader._cgroups._unfound)
        - containers,
        "cpu": len(sampler._host_reader._accounts._past) - containers,
    }


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    tune()
    for line in run(Path(sys.argv[1]), int(sys.argv[2])):
        print(json.dumps(line), flush=True)  # not kept: it would be what grows
