"""The demo as people run it: a process that starts in seconds, says where to look, and leaves nothing behind."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.needed import needed
from tests.ports import free_port
from vgpuscope.sim import demo

END = "Ctrl-C ends everything."


class Running:
    """A demo process, with what it has printed so far."""

    def __init__(self, *arguments: str) -> None:
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "vgpuscope", "demo", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._printed, self._news = "", threading.Condition()
        threading.Thread(target=self._collect, daemon=True).start()

    def until(self, words: str, seconds: float = 120) -> str:
        with self._news:
            assert self._news.wait_for(lambda: words in self._printed or self.ended, seconds), self._printed
            assert words in self._printed, self._printed
            return self._printed

    @property
    def ended(self) -> bool:
        return self.process.stdout.closed

    @property
    def urls(self) -> list[str]:
        return re.findall(r"http://127\.0\.0\.1:\d+/metrics", self._printed.split("a node, live")[0])

    @property
    def root(self) -> Path:
        return Path(re.search(r"ls (\S+)/\*", self._printed)[1])

    def children(self) -> list[int]:
        return [int(p) for p in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()]

    def grandchildren(self) -> list[int]:
        found = (Path(f"/proc/{pid}/task/{pid}/children").read_text().split() for pid in self.children())
        return [int(pid) for pids in found for pid in pids]

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)

    def _collect(self) -> None:
        for line in self.process.stdout:
            with self._news:
                self._printed += line
                self._news.notify_all()
        self.process.stdout.close()
        with self._news:
            self._news.notify_all()


@pytest.fixture
def started():
    running = []

    def start(*arguments):
        running.append(Running("--port", str(free_port()), *arguments))
        return running[-1]

    yield start
    for one in running:
        one.process.kill()
        one.process.wait(60)


@pytest.fixture
def short():
    """A directory whose path leaves room for a socket's name, which pytest's own may not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        yield Path(path)


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()


def eventually(holds, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_it_starts_shows_every_mode_and_ends_cleanly_on_ctrl_c(started):
    running = started()
    printed = running.until(END)
    assert "\x1b" not in printed
    assert len(running.urls) == 7
    held = [line for url in running.urls for line in page(url).splitlines() if "vgpuscope_container_info{" in line]
    for mode in ("hami", "exclusive", "mig", "mps", "time-slicing", "unallocated"):
        assert any(f'mode="{mode}"' in line for line in held), mode
    given = page(running.urls[5])
    for family in ("vgpuscope_cluster_", "hami_", "nodeGPU"):
        assert f"\n{family}" in given, family
    assert 'pod="bind-failed-0"' in given
    root, agents = running.root, running.children()
    assert root.is_dir()
    assert len(agents) >= 7
    assert running.end(signal.SIGINT) == 0
    assert not root.exists()
    assert not any(alive(pid) for pid in agents)
    eventually(lambda: running.ended)
    assert "Traceback" not in running._printed
    with pytest.raises(urllib.error.URLError):
        page(running.urls[0])


CLASSES = {"busy", "busy-unproductive", "low", "idle", "idle-held", "unknown"}


@pytest.mark.parametrize("prometheus", ["0", "1"])
def test_the_analyzer_comes_to_every_status_class_and_verdict(started, monkeypatch, prometheus):
    if prometheus == "1":
        needed("prometheus", package="prometheus")
    monkeypatch.setenv("DEMO_PROMETHEUS", prometheus)
    running = started("--window-minutes", "0.3")
    running.until(END)
    analyzer = running.urls[-1].removesuffix("/metrics")
    seen = {"status": set(), "use_class": set(), "verdict": set()}

    def all_seen():
        for row in json.loads(page(f"{analyzer}/results")):
            for field, values in seen.items():
                values.add(row[field])
        return seen == {
            "status": {"idle", "low", "normal", "high", "unknown"},
            "use_class": CLASSES,
            "verdict": {"in_use", "idle", "unknown"},
        }

    eventually(all_seen, 240)
    eventually(lambda: '"owner":"Deployment/serve-llama"' in page(f"{analyzer}/results"), 240)


def test_a_taken_port_is_no_obstacle_and_a_dead_agent_is_told_of(started):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        running = started("--port", str(taken.getsockname()[1]))
        running.until(END)
        assert len(set(running.urls)) == 7
        victim = next(p for p in running.children() if b"sick-e" in Path(f"/proc/{p}/cmdline").read_bytes())
        os.kill(victim, signal.SIGKILL)
        running.until("the agent of sick-e ended with code -9")
        assert "hami-a" in page(running.urls[0])
        assert running.end(signal.SIGTERM) == 0


def test_nothing_outlives_a_demo_that_was_killed(started, monkeypatch):
    if shutil.which("prometheus") is not None:
        monkeypatch.setenv("DEMO_PROMETHEUS", "1")
    running = started()
    running.until(END)
    agents, root = [*running.children(), *running.grandchildren()], running.root
    running.end(signal.SIGKILL)
    try:
        eventually(lambda: not any(alive(pid) for pid in agents))
    finally:
        subprocess.run(["rm", "-rf", str(root)], check=True)


def test_an_agent_that_cannot_start_gives_its_last_words(monkeypatch, capsys):
    words = "import sys; print('no [luck] today'); sys.exit(3)"
    monkeypatch.setattr(demo, "AGENT", (sys.executable, "-c", words))
    assert demo.main(base_port=free_port()) == 1
    printed = capsys.readouterr().out
    assert "ended with code 3" in printed
    assert "no [luck] today" in printed


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda tmp: (tmp / "mine").touch() or tmp, "is not empty"),
        (lambda tmp: (tmp / "mine").touch() or tmp / "mine", "File exists"),
        (lambda tmp: tmp / ("long" * 40), "too long a path"),
    ],
)
def test_a_directory_that_will_not_do_is_refused_with_the_reason(short, capsys, make, words):
    assert demo.main(directory=str(make(short))) == 1
    assert words in capsys.readouterr().out


def test_nodes_that_can_no_longer_be_written_end_the_demo_with_the_reason(started, short):
    running = started("--directory", str(short / "nodes"))
    running.until(END)
    subprocess.run(["rm", "-rf", str(short / "nodes")], check=True)
    running.until("files cannot be written")
    assert running.process.wait(60) == 1
    eventually(lambda: running.ended)
    assert "Traceback" not in running._printed
