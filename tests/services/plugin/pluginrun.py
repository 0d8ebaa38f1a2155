"""A whole device plugin as a process, with a test kubelet, a small API server and the stand-in driver."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.native import build
from tests.native.scenario import DRIVER_NOT_LOADED, Scenario, gpu_uuid
from tests.ports import free_port
from tests.standins.kubelet import WITHIN, Kubelet, plugin_directory
from tests.standins.smallapi import SmallApi, small_api

FIRST, SECOND = gpu_uuid(0), gpu_uuid(1)
TO_ALLOCATE, ALLOCATED = "hami.io/vgpu-devices-to-allocate", "hami.io/vgpu-devices-allocated"
LOG = "plugin.log"
REGISTER, LOCK, PHASE = "hami.io/node-nvidia-register", "hami.io/mutex.lock", "hami.io/bind-phase"


def assigned(text: str, *, node: str = "n1", phase: str = "allocating", bound: str = "1700000000") -> dict[str, str]:
    """The annotations of a pod that HAMi's scheduler placed and bound."""
    return {
        "hami.io/vgpu-node": node,
        "hami.io/vgpu-time": bound,
        "hami.io/bind-time": bound,
        PHASE: phase,
        ALLOCATED: text,
        TO_ALLOCATE: text,
    }


def lock(pod: str) -> dict[str, str]:
    return {LOCK: f"2026-11-17T08:00:00Z,ml,{pod}"}


class Running:
    """A plugin with all that is around it."""

    api: SmallApi
    process: "subprocess.Popen[bytes]"

    def __init__(self, path: Path, kubelet: Kubelet, node: Scenario, port: int) -> None:
        self.path, self.kubelet, self.node, self.port = path, kubelet, node, port
        self._log = path / LOG
        self.hook = path / "vgpu"

    @property
    def log(self) -> str:
        return self._log.read_text()

    def page(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=WITHIN) as answer:
            return answer.read().decode()

    def value(self, series: str) -> float | None:
        """The value of a series as the page writes it, labels included."""
        for line in self.page().splitlines():
            name, _, value = line.rpartition(" ")
            if name == series:
                return float(value)
        return None

    def ready(self) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=WITHIN) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def serving(self) -> bool:
        try:
            return self.ready()[0] > 0
        except urllib.error.URLError:  # not yet
            return False

    def registered(self) -> list[dict]:
        return json.loads(self.api.annotations("nodes", "n1").get(REGISTER, "[]"))


@contextmanager
def plugin(path: Path, *flags: str, library: bool = True, driver: bool = True, settings: str = "") -> Iterator[Running]:
    """A node n1 with two GPUs, and its plugin as a process; returns when the kubelet has the devices."""
    with small_api(path) as api:
        api.node("n1")
        with plugin_at(path, api.kubeconfig, *flags, library=library, driver=driver, settings=settings) as running:
            running.api = api
            yield running


@contextmanager
def plugin_at(
    path: Path, kubeconfig: str, *flags: str, library: bool = True, driver: bool = True, settings: str = ""
) -> Iterator[Running]:
    """The same with another API server."""
    stand_in = build.library_or_skip()
    node = Scenario(path / "nvml").gpu(0).gpu(1)
    if not driver:
        node.fail("nvmlInitWithFlags", DRIVER_NOT_LOADED)
    node.write()
    (path / "vgpu").mkdir(exist_ok=True)
    if library:
        (path / "vgpu" / "libvgpu.so").touch()
    (path / "settings.yaml").write_text(f"plugin: {{read_interval: 0.2, {settings}}}")
    port = free_port()
    with plugin_directory() as sockets, Kubelet(sockets) as kubelet, (path / LOG).open("w") as out:
        command = [sys.executable, "-m", "vgpuscope", "plugin", "--config", str(path / "settings.yaml")]
        command += ["--listen", f"127.0.0.1:{port}", "--kubelet-dir", str(sockets)]
        command += ["--node-name", "n1", "--hook-path", str(path / "vgpu"), "--kubeconfig", kubeconfig]
        environment = {**os.environ, **build.environment(stand_in, node.path)}
        process = subprocess.Popen([*command, *flags], stdout=out, stderr=out, env=environment)
        running = Running(path, kubelet, node, port)
        running.process = process
        try:
            kubelet.until(lambda: (kubelet.devices if driver else running.serving()) or process.poll() is not None)
            assert process.poll() is None, running.log
            yield running
        finally:
            node.heal().write()
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()
