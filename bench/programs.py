"""The programs under test, each in its own process, and their use of resources as the kernel reports it."""

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.world import World
from tests.ports import free_port

BIN = Path(sys.executable).parent
NVITOP = BIN / "nvitop-exporter"
_START_WITHIN = 120.0  # seconds


@dataclass(frozen=True)
class Program:
    """One running server."""

    name: str
    pid: int
    port: int
    start_seconds: float  # until it answered

    def cpu_seconds(self) -> float:
        """User and system time of all its living threads, to the nanosecond."""
        tasks = Path(f"/proc/{self.pid}/task")
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9

    def process_seconds(self) -> float:
        """User and system time of the process, to 10 ms; unlike `cpu_seconds`, with threads that have ended."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def busy_seconds(self) -> float:
        """The same plus the time in which it was ready to run, but waited for a CPU."""
        tasks = Path(f"/proc/{self.pid}/task")
        return sum(sum(map(int, (task / "schedstat").read_text().split()[:2])) for task in tasks.iterdir()) / 1e9

    def resident_bytes(self) -> int:
        """VmRSS."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024

    def most_resident_bytes(self) -> int:
        """VmHWM: the highest resident memory so far."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    def page(self) -> bytes:
        """Its current page."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as answer:
            return bytes(answer.read())

    def samples(self) -> int:
        """The number of samples an agent has taken, read without a scrape, because scrapes make it write pages."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/node", timeout=60) as answer:
            return int(json.loads(answer.read())["samples"])

    def value(self, series: str) -> float:
        """The value of the first series with this name."""
        found = re.search(rb"^%b(?:\{[^\n]*\})? (\S+)$" % series.encode(), self.page(), re.MULTILINE)
        assert found, f"{self.name} has no {series}"
        return float(found[1])


@contextmanager
def agent(world: World, *, interval: float = 1.0) -> Iterator[Program]:
    """Our agent, with its defaults; at a shorter interval the window is shorter too, so it holds as many samples."""
    port = free_port()
    command: list[str | Path] = [BIN / "vgpuscope", "agent", "--listen", f"127.0.0.1:{port}", *world.agent_arguments()]
    if interval != 1.0:
        config = world.root / f"agent-{interval}.yaml"
        config.write_text(f"agent:\n  window: {60 * interval}\n")
        command += ["--config", config, "--sample-interval", str(interval)]
    with _running("vgpuscope", command, root=world.root, env=world.environment(), port=port, path="/readyz") as program:
        _until(lambda: b"vgpuscope_container_sm_seconds_total" in program.page(), "the agent shows containers")
        yield program


@contextmanager
def cluster(root: Path, kubeconfig: str) -> Iterator[Program]:
    """Our cluster exporter, with its defaults, when it is ready."""
    port = free_port()
    command: list[str | Path] = [BIN / "vgpuscope", "cluster", "--listen", f"127.0.0.1:{port}"]
    command += ["--kubeconfig", kubeconfig]
    with _running("cluster", command, root=root, env=dict(os.environ), port=port, path="/readyz") as program:
        yield program


@contextmanager
def analyzer(root: Path, prometheus: str) -> Iterator[Program]:
    """Our analyzer, after its first analysis; further analyses run only on request."""
    port = free_port()
    command: list[str | Path] = [BIN / "vgpuscope", "analyzer", "--listen", f"127.0.0.1:{port}"]
    command += ["--prometheus-url", prometheus, "--interval", "3600"]
    env = {**os.environ, "VGPUSCOPE_ANALYZER_RATE_LIMIT": "1000000"}  # because one client sends all requests
    with _running("analyzer", command, root=root, env=env, port=port, path="/readyz") as program:
        yield program


@contextmanager
def console(root: Path, prometheus: str, history: Path) -> Iterator[Program]:
    """Our analyzer with its console and a history, after its first analysis; others are asked for by the bench."""
    port = free_port()
    command: list[str | Path] = [BIN / "vgpuscope", "analyzer", "--listen", f"127.0.0.1:{port}"]
    command += ["--prometheus-url", prometheus, "--history", history, "--interval", "3600"]
    env = {**os.environ, "VGPUSCOPE_ANALYZER_RATE_LIMIT": "1000000"}  # because one client sends all requests
    with _running("analyzer", command, root=root, env=env, port=port, path="/readyz") as program:
        yield program


@contextmanager
def static(root: Path, page: bytes) -> Iterator[Program]:
    """A constant page on the same HTTP stack: the lower bound of a scrape."""
    file = root / "page"
    file.write_bytes(page)
    port = free_port()
    command: list[str | Path] = [sys.executable, "-m", "bench.static_page", file, str(port)]
    with _running("static page", command, root=root, env=dict(os.environ), port=port, path="/healthz") as program:
        yield program


@contextmanager
def nvitop_exporter(world: World) -> Iterator[Program]:
    """nvitop-exporter, as installed."""
    port = free_port()
    command: list[str | Path] = [NVITOP, "--bind-address", "127.0.0.1", "--port", str(port)]
    command += ["--hostname", "bench"]
    env = world.environment()
    with _running("nvitop-exporter", command, root=world.root, env=env, port=port, path="/metrics") as program:
        expected = world.processes
        _until(lambda: program.page().count(b"\nprocess_gpu_memory_MiB{") >= expected, "nvitop-exporter shows everyone")
        yield program


@contextmanager
def _running(
    name: str, command: list[str | Path], *, root: Path, env: dict[str, str], port: int, path: str
) -> Iterator[Program]:
    log = root / f"{name}.{port}.log"
    began = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=env, stdout=out, stderr=out)
    try:
        _until(lambda: _answers(port, path, process, log), f"{name} answers")
        yield Program(name=name, pid=process.pid, port=port, start_seconds=time.monotonic() - began)
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(port: int, path: str, process: "subprocess.Popen[bytes]", log: Path) -> bool:
    if process.poll() is not None:
        raise RuntimeError(f"it ended at once:\n{log.read_text(errors='replace')[-2000:]}")
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return int(answer.status) == 200
    except OSError:
        return False


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _START_WITHIN
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {_START_WITHIN:.0f} s: {what}")
        time.sleep(0.1)


def freeze(program: Program, *, frozen: bool) -> None:
    """Stop a program that is not being measured, or resume it."""
    import signal

    os.kill(program.pid, signal.SIGSTOP if frozen else signal.SIGCONT)
