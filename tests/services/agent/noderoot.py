"""A node for the tests of the whole agent: directories and files as a host has them, a stand-in driver, real processes.

node = NodeRoot(tmp_path)
node.nvml.gpu(0)
node.pod("train", "main")
node.process(4242, "train", "main")
with node.agent() as agent:
    agent.until(lambda page: page.has("vgpuscope_gpu_info"))
"""

import gzip
import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families as parse

from tests.environment import bare
from tests.native import build
from tests.native.scenario import Scenario
from tests.paths import TESTS
from tests.ports import free_port
from vgpuscope.sim.regions import DeviceUse, RegionFile

MIB = 1 << 20
WITHIN = 120.0  # seconds: how long a condition may take on a busy machine
_QUIET = ("--podresources-socket", "none")
_PATIENT = """
import argparse, sys
from vgpuscope.commands.agent import COMMAND
from vgpuscope.commands.setting_flags import loaded, settings_file
from vgpuscope.services.agent import process
from vgpuscope.services.agent.waits import SampleWaits

parser = argparse.ArgumentParser()
COMMAND.arguments(parser)
args = parser.parse_args(sys.argv[2:])
config = loaded(args, sections=("agent", "log", "logging")).config
waits = SampleWaits(regions=60.0, profiling=60.0, host=60.0)
sys.exit(process.run(config, once=args.once, file=settings_file(args), waits=waits))
"""  # `vgpuscope agent`, but its one sample has everything also on a busy machine


def container_id(pod: str, container: str) -> str:
    return hashlib.sha256(f"{pod}/{container}".encode()).hexdigest()


class Samples(dict):
    """A page as {(name, labels): value}."""

    @classmethod
    def of(cls, text: str) -> "Samples":
        found = cls()
        for family in parse(text):
            for s in family.samples:
                key = (s.name, tuple(sorted(s.labels.items())))
                assert key not in found, f"twice on the page: {key}"
                found[key] = s.value
        return found

    def named(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        """All series of a name whose labels include these."""
        found = [(dict(key[1]), value) for key, value in self.items() if key[0] == name]
        return [(have, value) for have, value in found if labels.items() <= have.items()]

    def one(self, name: str, **labels: str) -> float:
        """The value of the one series of a name with these labels."""
        found = self.named(name, **labels)
        assert len(found) == 1, f"{name}{labels}: {found}"
        return found[0][1]

    def has(self, name: str, **labels: str) -> bool:
        return bool(self.named(name, **labels))


class NodeRoot:
    """The files of one node."""

    def __init__(self, path: Path, name: str = "gpu-node-1") -> None:
        self.path, self.name = path, name
        self.nvml = Scenario(path / "nvml")
        self.hook, self.proc, self.pods_file = path / "vgpu", path / "proc", path / "pods.json"
        self.cgroup = path / "cgroup"
        (self.hook / "containers").mkdir(parents=True)
        self.proc.mkdir()
        self.cgroup.mkdir()
        (self.cgroup / "cgroup.controllers").write_text("cpu io memory\n")
        self.pods: dict[str, dict] = {}
        self._starts = 1000

    def pod(
        self,
        name: str,
        *containers: str,
        namespace: str = "ml",
        phase: str = "Running",
        uid: str | None = None,
        annotations: dict[str, str] | None = None,
    ) -> str:
        """Adds a pod (or changes it) and returns its UID."""
        names = containers or ("main",)
        uid = uid or f"00000000-0000-4000-8000-{int(container_id(namespace, name)[:12], 16):012x}"
        self.pods[uid] = {
            "metadata": {"name": name, "namespace": namespace, "uid": uid, "annotations": annotations or {}},
            "spec": {"nodeName": self.name, "containers": [{"name": c} for c in names]},
            "status": {
                "phase": phase,
                "containerStatuses": [
                    {"name": c, "containerID": f"containerd://{container_id(uid, c)}", "state": {"running": {}}}
                    for c in names
                ],
            },
        }
        return uid

    def process(self, pid: int, uid: str | None = None, container: str = "main", command: str = "python") -> None:
        """A process of a container, or of the host."""
        self._starts += 1
        where = self.proc / str(pid)
        where.mkdir(exist_ok=True)
        (where / "stat").write_text(f"{pid} ({command}) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {self._starts} 0 0\n")
        slice_ = "/system.slice/some.service"
        if uid is not None:
            pod = f"kubepods-burstable-pod{uid.replace('-', '_')}.slice"
            slice_ = (
                f"/kubepods.slice/kubepods-burstable.slice/{pod}/cri-containerd-{container_id(uid, container)}.scope"
            )
        (where / "cgroup").write_text(f"0::{slice_}\n")

    def beside(
        self, uid: str, container: str = "main", *, cpu: float, memory: int, limit: str = "max", moved: int = 0
    ) -> Path:
        """The cgroup (version 2) of a container that may have no process: CPU in seconds, memory and I/O in bytes."""
        pod = f"kubepods-burstable-pod{uid.replace('-', '_')}.slice"
        scope = f"cri-containerd-{container_id(uid, container)}.scope"
        where = self.cgroup / "kubepods.slice" / "kubepods-burstable.slice" / pod / scope
        where.mkdir(parents=True, exist_ok=True)
        usage = f"usage_usec {round(cpu * 1e6)}\nuser_usec 0\nsystem_usec 0\n"
        (where / "cpu.stat").write_text(f"{usage}nr_periods 90\nnr_throttled 9\nthrottled_usec 1500000\n")
        (where / "cpu.max").write_text("400000 100000\n" if limit != "max" else "max 100000\n")
        (where / "memory.current").write_text(f"{memory}\n")
        (where / "memory.max").write_text(f"{limit}\n")
        (where / "memory.stat").write_text(f"anon 0\nfile 0\ninactive_file {memory // 4}\nactive_file 0\n")
        (where / "io.stat").write_text(f"259:0 rbytes={moved} wbytes={moved // 2} rios=1 wios=1 dbytes=0 dios=0\n")
        return where

    def host(self) -> None:
        """The node-wide files of /proc, as recorded."""
        shutil.copytree(TESTS / "fixtures" / "host" / "v2-systemd" / "proc", self.proc, dirs_exist_ok=True)
        shutil.rmtree(self.proc / "4242")

    def network(self, pid: int) -> None:
        """A process has a network of its own."""
        recorded = TESTS / "fixtures" / "host" / "v2-systemd" / "proc" / "4242" / "net"
        shutil.copytree(recorded, self.proc / str(pid) / "net")

    def end_process(self, pid: int) -> None:
        shutil.rmtree(self.proc / str(pid))

    def region(self, uid: str, container: str, uuid: str, *, limit: int = 0, sm_limit: int = 100, **uses) -> RegionFile:
        """A region with processes: p<container pid>=(host pid, bytes, SM percent); its pod has HAMi's annotation."""
        if uid in self.pods and not self.pods[uid]["metadata"]["annotations"]:
            names = [one["name"] for one in self.pods[uid]["spec"]["containers"]]
            share = f"{uuid},NVIDIA,{limit // MIB},{sm_limit % 100}:"
            given = "".join(f"{share if name == container else ''};" for name in names)
            self.pods[uid]["metadata"]["annotations"] = {"hami.io/vgpu-devices-allocated": given}
        made = RegionFile(
            self.region_dir(uid, container) / "0b1c.cache",
            layout="v1.2",
            uuids=[uuid],
            memory_limits=[limit],
            sm_limit=sm_limit,
            now=1_700_000_000,
        )
        for name, (host_pid, used, sm) in uses.items():
            pid = int(name[1:])
            made.attach(pid, now=1_700_000_000, alive={int(n[1:]) for n in uses})
            made.update(pid, host_pid=host_pid, devices=[DeviceUse(context=0, data=used, driver_used=used, sm=sm)])
        return made

    def region_dir(self, uid: str, container: str) -> Path:
        where = self.hook / "containers" / f"{uid}_{container}"
        where.mkdir(exist_ok=True)
        return where

    def recorded_region(self, uid: str, container: str, packed: Path) -> None:
        (self.region_dir(uid, container) / "recorded.cache").write_bytes(gzip.decompress(packed.read_bytes()))

    def write(self) -> "NodeRoot":
        """Make everything visible."""
        self.nvml.write()
        part = self.pods_file.with_suffix(".part")
        part.write_text(json.dumps({"apiVersion": "v1", "kind": "PodList", "items": list(self.pods.values())}))
        part.replace(self.pods_file)
        return self

    def command(self, *flags: str) -> tuple[list[str], dict[str, str]]:
        """Command line and environment of an agent of this node."""
        self.write()
        where = {
            "--hook-path": self.hook,
            "--proc-root": self.proc,
            "--cgroup-root": self.cgroup,
            "--node-name": self.name,
        }
        fixed = [str(word) for pair in where.items() for word in pair]
        pods = [] if "--pods" in flags else ["--pods", f"file:{self.pods_file}"]
        driver = build.environment(build.library_or_skip(), self.nvml.path)
        environment = bare(HOME=str(self.path), **driver)
        return [sys.executable, "-m", "vgpuscope", "agent", *fixed, *pods, *_QUIET, *flags], environment

    def once(self, *flags: str) -> str:
        """The page of one sample."""
        command, environment = self.command("--once", *flags)
        command[1:3] = ["-c", _PATIENT]
        environment["VGPUSCOPE_AGENT_DRIVER_DEADLINE"] = "60"
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WITHIN, cwd=self.path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def agent(self, *flags: str, interval: str = "0.1", ready: str = "/api/v1/node") -> Iterator["RunningAgent"]:
        """A running agent; it must end by itself, in time and with 0, when told to."""
        port = free_port()
        command, environment = self.command("--listen", f"127.0.0.1:{port}", "--sample-interval", interval, *flags)
        log = self.path / "agent.log"
        with log.open("w") as out:
            process = subprocess.Popen(command, env=environment, stdout=out, stderr=out, cwd=self.path)
        running = RunningAgent(process, f"http://127.0.0.1:{port}", log)
        with running.until_told(ready):  # the first sample was taken
            yield running


class RunningAgent:
    """An agent process and its address."""

    def __init__(self, process: subprocess.Popen, url: str, log: Path) -> None:
        self.process, self.url, self.log = process, url, log

    @contextmanager
    def until_told(self, ready: str) -> Iterator[None]:
        """From the moment when this path answers; it must end by itself, in time and with 0, when told to."""
        try:
            self.wait(lambda: self.status(ready) == 200)
            yield
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(WITHIN) == 0, self.log.read_text()
            assert "Traceback" not in self.log.read_text(), self.log.read_text()
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()

    def get(self, path: str = "/metrics", **headers: str) -> tuple[int, dict[str, str], bytes]:
        request = urllib.request.Request(self.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=WITHIN) as answer:
                return answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), error.read()

    def status(self, path: str) -> int | None:
        try:
            return self.get(path)[0]
        except OSError:
            assert self.process.poll() is None, self.log.read_text()
            return None

    def page(self) -> Samples:
        return Samples.of(self.get()[2].decode())

    def until(self, condition: Callable[[Samples], object]) -> Samples:
        """The first page for which the condition holds."""
        found: list[Samples] = []

        def holds() -> bool:
            found[:] = [self.page()]
            return bool(condition(found[0]))

        self.wait(holds)
        return found[0]

    def wait(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + WITHIN
        while not condition():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, f"did not come true in {WITHIN} s\n{self.log.read_text()}"
            time.sleep(0.02)  # between two looks, not in place of one

    def samples_after(self, count: int) -> Samples:
        """A page that is at least so many samples younger than the one of now."""
        now = self.page().one("vgpuscope_samples_total")
        return self.until(lambda page: page.one("vgpuscope_samples_total") >= now + count)
