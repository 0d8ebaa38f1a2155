"""Runs the demo in a process of its own, for tests that look at it from outside."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.waiting import wait_until

END = "Ctrl-C ends everything."


class Running:
    """A demo process, with what it has printed so far."""

    start: tuple[float, float]  # between which times it started, for who waited for that

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "vgpuscope", "demo", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        )
        self._printed, self._news = "", threading.Condition()
        threading.Thread(target=self._collect, daemon=True).start()

    def until(self, words: str, seconds: float = 300) -> str:
        with self._news:
            assert self._news.wait_for(lambda: words in self._printed or self.ended, seconds), self._printed
            assert words in self._printed, self._printed
            return self._printed

    @property
    def ended(self) -> bool:
        return self.process.stdout.closed

    @property
    def urls(self) -> list[str]:
        """Of the agents, and of the cluster exporter."""
        return re.findall(r"agent \S+ +(http://127\.0\.0\.1:\d+/metrics)", self._printed) + re.findall(
            r"cluster +(http://127\.0\.0\.1:\d+/metrics)", self._printed
        )

    @property
    def analyzer(self) -> str:
        return re.search(r"analyzer +(http://127\.0\.0\.1:\d+)/ui/", self._printed)[1]

    @property
    def extender(self) -> str:
        return re.search(r"extender +(http://127\.0\.0\.1:\d+)/metrics", self._printed)[1]

    @property
    def root(self) -> Path:
        return Path(re.search(r"KUBECONFIG=(\S+)/kubeconfig", self._printed)[1])

    def children(self) -> list[int]:
        return [int(p) for p in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()]

    def grandchildren(self) -> list[int]:
        found = (Path(f"/proc/{pid}/task/{pid}/children").read_text().split() for pid in self.children())
        return [int(pid) for pids in found for pid in pids]

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(120)

    def stop(self) -> None:
        """By SIGINT, so that its own processes end with it."""
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(120)
        finally:
            self.process.kill()

    def _collect(self) -> None:
        for line in self.process.stdout:
            with self._news:
                self._printed += line
                self._news.notify_all()
        self.process.stdout.close()
        with self._news:
            self._news.notify_all()


@pytest.fixture
def started(short):
    running = []

    def start(*arguments):
        running.append(Running("--port", str(free_port()), *arguments))
        return running[-1]

    yield start
    for one in running:
        one.stop()


@pytest.fixture
def short():
    with temporary() as path:
        yield path


@contextmanager
def temporary() -> Iterator[Path]:
    """A directory whose path leaves room for a socket's name, which pytest's own may not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        yield Path(path)


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()


def eventually(holds, seconds: float = 60) -> None:
    wait_until(holds, within=seconds, every=0.05)


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
