"""Processes of the demo that tests of the console start, stop and start again."""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.ports import free_port
from tests.waiting import wait_until

PATIENCE = 400.0  # seconds that anything may take on a busy machine; a demo has 300 s for its start


class Demo(NamedTuple):
    """A running demo: the analyzer, and where its agents, its cluster exporter, its extender and its files are."""

    analyzer: str
    agents: tuple[str, ...]
    cluster: str
    extender: str
    root: Path

    @property
    def console(self) -> str:
        return f"{self.analyzer}/ui/"


class Process:
    """One process, which ends at the latest with this one: the pipe to its standard input closes then."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        )
        self.printed = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def ended(self) -> bool:
        return not self._reader.is_alive()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.printed += line


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[Process]:
    process = Process(*arguments)
    try:
        yield process
    finally:
        process.stop()


@contextlib.contextmanager
def demo() -> Iterator[Demo]:
    """A demo whose GPUs have verdicts."""
    with tempfile.TemporaryDirectory(dir="/tmp") as short:  # leaves room for the names of sockets
        root = Path(short) / "demo"
        with running("vgpuscope", "demo", "--port", str(free_port()), "--directory", str(root)) as process:
            eventually(lambda: "Ctrl-C ends everything." in process.printed or process.ended)
            assert "Ctrl-C ends everything." in process.printed, process.printed
            found = Demo(
                analyzer=_address(r"analyzer +(http://127\.0\.0\.1:\d+)/ui/", process.printed),
                agents=tuple(re.findall(r"agent \S+ +(http://127\.0\.0\.1:\d+)/metrics", process.printed)),
                cluster=_address(r"cluster +(http://127\.0\.0\.1:\d+)/metrics", process.printed),
                extender=_address(r"extender +(http://127\.0\.0\.1:\d+)/metrics", process.printed),
                root=root,
            )
            eventually(lambda: _judged(found.analyzer))
            yield found


@contextlib.contextmanager
def analyzer(listen: str, *, targets: str, cluster: str, history: Path, config: Path | None = None) -> Iterator[str]:
    """Another analyzer, which a test can stop without stopping the demo's."""
    arguments: tuple[str, ...] = (
        "--listen",
        listen,
        "--targets",
        targets,
        "--cluster",
        cluster,
        "--history",
        str(history),
    )
    if config is not None:
        arguments = (*arguments, "--config", str(config))
    with running("vgpuscope.sim.analyzer", *arguments):
        address = f"http://{listen}"
        eventually(lambda: answer(f"{address}/api/v1/overview") is not None)
        yield address


@contextlib.contextmanager
def cluster_exporter(kubeconfig: Path, listen: str) -> Iterator[str]:
    with running("vgpuscope.sim.exporter", str(kubeconfig), "--listen", listen):
        eventually(lambda: _answers(f"http://{listen}/metrics"))
        yield f"http://{listen}"


def eventually(holds: Callable[[], bool]) -> None:
    wait_until(holds, within=PATIENCE, every=0.1)


def answer(url: str) -> dict[str, Any] | None:
    """What an API answers; None: it does not, or not yet."""
    try:
        with urllib.request.urlopen(url, timeout=30) as found:
            body: dict[str, Any] = json.load(found)
            return body
    except (urllib.error.URLError, OSError):
        return None


IDLE_POD = "mps-idle"  # idle for as long as the demo runs; in a dry run it stays


def idle_case(fleet: Demo) -> dict[str, Any]:
    """The case of a pod that is always idle, once there is one."""
    eventually(lambda: bool(_cases_of(fleet, IDLE_POD)))
    return _cases_of(fleet, IDLE_POD)[0]


def _cases_of(fleet: Demo, pod: str) -> list[dict[str, Any]]:
    found = answer(f"{fleet.analyzer}/api/v1/reclaim") or {"cases": []}
    return [case for case in found["cases"] if case["pod"] == pod]


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=30):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _judged(address: str) -> bool:
    gpus = answer(f"{address}/api/v1/gpus?fields=verdict")
    return gpus is not None and {"in_use", "idle"} <= {row["verdict"] for row in gpus["rows"]}


def _address(pattern: str, printed: str) -> str:
    found = re.search(pattern, printed)
    assert found, printed
    return found[1]
