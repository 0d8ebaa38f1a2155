"""The demo as people run it: a process that starts in seconds, says where to look, and leaves nothing behind."""

import asyncio
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
from vgpuscope.sim import demo, processes, screen
from vgpuscope.sim.jobs import HOUR
from vgpuscope.sim.news import NewsEvent
from vgpuscope.sources.clients.agent import AGENT
from vgpuscope.sources.clients.cluster import CLUSTER
from vgpuscope.store.results.history import open_history

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
def started(short):
    running = []

    def start(*arguments):
        running.append(Running("--port", str(free_port()), *arguments))
        return running[-1]

    yield start
    for one in running:
        one.process.send_signal(signal.SIGINT)  # so that its own processes end with it
        try:
            one.process.wait(60)
        finally:
            one.process.kill()


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
    assert len(running.urls) == 6
    held = [line for url in running.urls for line in page(url).splitlines() if "vgpuscope_container_info{" in line]
    for mode in ("hami", "exclusive", "mig", "mps", "time-slicing", "unallocated"):
        assert any(f'mode="{mode}"' in line for line in held), mode
    given = page(running.urls[5])
    for family in ("vgpuscope_cluster_", "hami_", "nodeGPU"):
        assert f"\n{family}" in given, family
    assert 'pod="bind-failed-0"' in given
    root, agents = running.root, running.children()
    assert root.is_dir()
    assert len(agents) >= 8
    assert running.end(signal.SIGINT) == 0
    assert not root.exists()
    assert not any(alive(pid) for pid in agents)
    eventually(lambda: running.ended)
    assert "Traceback" not in running._printed
    with pytest.raises(urllib.error.URLError):
        page(running.urls[0])


def test_pods_are_scheduled_by_the_real_extender_and_run_on_the_gpus_that_it_chose(started, short):
    running = started("--directory", str(short / "demo"))
    running.until(END)

    def decisions(**asked):
        words = "&".join(f"{name}={value}" for name, value in asked.items())
        return json.loads(page(f"{running.extender}/api/v1/decisions?{words}"))

    eventually(lambda: [one for one in decisions(limit=100) if one["outcome"] == "bound"], 240)
    bound = next(one for one in decisions(limit=100) if one["outcome"] == "bound")
    chosen = {device["uuid"] for device in bound["devices"]}

    def here():
        """What the node's kubelet tells the agent of the pod."""
        pods = json.loads((short / "demo" / bound["node"] / "pods.json").read_text())["items"]
        return next((pod for pod in pods if pod["metadata"]["name"] == bound["pod"]), None)

    eventually(lambda: here() is not None)
    notes = here()["metadata"]["annotations"]
    assert notes["hami.io/bind-phase"] == "success"
    assert {part.partition(",")[0] for part in notes["hami.io/vgpu-devices-allocated"].split(":")} - {";"} == chosen
    refused = {one["pod"]: {node["code"] for node in one["nodes"]} for one in decisions(limit=1000)}
    assert "SCHED_QUOTA_EXCEEDED" in refused["sweep-12"]
    assert refused["llm-eval-huge-0"] == {"SCHED_INSUFFICIENT_GPU_MEMORY"}
    assert "SCHED_INSUFFICIENT_GPU_COUNT" in refused["train-octet-0"]
    # measured there, so not estimated here: a sum over both would count every binding twice
    assert re.search(r"^hami_scheduler_bind_success_total [1-9]", page(f"{running.extender}/metrics"), re.MULTILINE)
    eventually(lambda: "\nhami_scheduler_" not in page(running.urls[5]))
    told = subprocess.run(
        [sys.executable, "-m", "vgpuscope", "why", "ml-team/sweep-12", running.extender],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "SCHED_QUOTA_EXCEEDED" in told.stdout


CLASSES = {"busy", "busy-unproductive", "low", "idle", "idle-held", "idle-preparing", "unknown"}
USUAL_PAGE = 24  # lines, of 80 columns


def test_one_screen_has_the_analyzer_first_then_the_agents_and_three_findings(started):
    printed = started().until(END)
    lines = printed.splitlines()
    assert len(lines) <= USUAL_PAGE
    assert max(map(len, lines)) <= 80
    order = [
        next(n for n, line in enumerate(lines) if word in line) for word in ("/ui/", "cluster ", "extender ", "agent")
    ]
    assert order == sorted(order)
    findings = [line for line in lines if line.startswith("  - ")]
    assert len(findings) == 3
    assert "research/notebook-carol has held an idle H100 for 9 h (whole-b, 21 GiB)" in findings[0]
    assert "research/notebook-alice holds 9 GiB of a busy A100, idle for 4 h (hami-a)" in findings[1]
    assert "is pending: " in findings[2]


def test_what_was_idle_at_the_start_is_still_known_to_be_so_for_hours_once_real_scrapes_are_judged(started, short):
    running = started("--directory", str(short / "demo"))
    running.until(END)
    began = time.time()
    rows = json.loads(page(f"{running.analyzer}/api/v1/history?namespace=research&pod=notebook-carol&step=analysis"))
    assert min(row["time"] for row in rows) < began - 23 * HOUR
    assert {row["verdict"] for row in rows if row["time"] > began - 8.5 * HOUR} == {"idle"}
    waste = json.loads(page(f"{running.analyzer}/api/v1/waste?since=24h"))["rows"][0]
    assert (waste["pod"], round(waste["idle_gpu_hours"]), round(waste["in_use_gpu_hours"])) == ("notebook-carol", 9, 15)

    def carol():
        found = asyncio.run(last_analysis(short / "demo" / "history.db"))
        uses = [use for gpu in found.gpus for use in gpu.tenants if use.tenant.pod == "notebook-carol"]
        return found.source, began - uses[0].idle_since

    eventually(lambda: carol()[0].startswith("own scrapes"))
    assert carol()[1] == pytest.approx(9 * HOUR, abs=120)


async def last_analysis(file):
    history = open_history(str(file), keep_results=9e6, keep_hours=9e6, keep_days=9e6)
    try:
        return await history.latest()
    finally:
        await history.close()


def test_events_are_told_as_they_happen(started):
    running = started()
    running.until(END)
    running.until("GPU lost     sick-e GPU 1 (XID 79", 240)
    running.until("pod pending  ", 240)
    assert re.search(r"^\d\d:\d\d:\d\d  GPU lost ", running._printed, re.MULTILINE)


def settle(file: Path, **changes: str) -> None:
    """Change settings of the demo, as an operator would with an editor."""
    text = file.read_text()
    for name, value in changes.items():
        text = re.sub(rf"^  {name}: \S+", f"  {name}: {value}", text, flags=re.MULTILINE)
    file.with_suffix(".new").write_text(text)
    file.with_suffix(".new").replace(file)


def test_an_idle_pod_is_only_recorded_in_a_dry_run_and_loses_its_gpu_once_that_ends(started, short):
    running = started("--directory", str(short / "demo"), "--window-minutes", "0.5")
    running.until(END)
    settings, stopped = short / "demo" / "settings.yaml", short / "demo" / "stopped"
    assert settings.stat().st_mode & 0o077 == 0  # it holds a secret
    settle(settings, grace="2s", min_pod_age="1s", confirmations="1")
    told = running.until("research/notebook-carol would lose its GPU now (dry run)", 300)
    assert "research/notebook-carol is confirmed idle: its grace period runs" in told
    assert not stopped.exists()

    settle(settings, dry_run="false")
    running.until("research/notebook-carol loses its GPU: the control service is called", 300)
    running.until("research/notebook-carol is gone, and its GPU is free", 300)
    names = stopped.read_text().split()
    assert "research/notebook-carol" in names
    assert not any(name.startswith(("ml-team/", "serving/")) for name in names)  # these work, or are protected
    log = json.loads(page(f"{running.analyzer}/api/v1/audit?limit=1000"))["entries"]
    calls = [entry for entry in log if entry["what"] == "call_delivered" and entry["pod"] == "notebook-carol"]
    assert len(calls) == 1


def test_the_demo_is_where_the_commands_look_when_they_are_given_no_address(monkeypatch):
    monkeypatch.setattr(processes, "_ports", lambda wanted: wanted)
    ports = processes.Ports.found(1, AGENT.port)
    assert (ports.agents, ports.exporter) == ((AGENT.port,), CLUSTER.port)
    shown = ("results", "waste", "doctor")
    for command, port in (*((one, ports.analyzer) for one in shown), ("top", ports.agents[0])):
        assert f"http://127.0.0.1:{port}" in help_of(command)
    for command in ("nodes", "gpus", "pending"):
        assert f"http://127.0.0.1:{ports.exporter}" in help_of(command)


def help_of(command):
    return subprocess.run(
        [sys.executable, "-m", "vgpuscope", command, "--help"], capture_output=True, text=True, check=True
    ).stdout


@pytest.fixture
def installed(monkeypatch):
    """Whoever runs the demo has the command on the path."""
    monkeypatch.setattr(screen, "_program", lambda: "vgpuscope")


def page_of(capsys, *, ports, moved=()):
    """What is printed when the processes listen on these ports."""
    names = ["hami-a", "whole-b", "cluster", "analyzer", "extender"]
    children = [
        processes.Child(
            plan=processes.ChildPlan(
                name=name, title="", command=(), port=port, log=Path(), kind="kind", agent=name.endswith(("-a", "-b"))
            ),
            process=None,
        )
        for name, port in zip(names, ports, strict=True)
    ]
    found = processes.Ports((), 0, 0, 0, 0, 0, moved)
    screen.print_page(screen.console(), children, Path("/tmp/demo"), found, ["one finding"])
    return capsys.readouterr().out


@pytest.mark.usefixtures("installed")
def test_commands_need_no_address_on_the_usual_ports(capsys):
    printed = page_of(capsys, ports=(9394, 9395, 31993, 8080, 8081))
    for command in ("results", "waste", "reclaim", "doctor", "top", "nodes"):
        assert re.search(rf"  vgpuscope {command} +[a-z ]+", printed), command
        assert not re.search(rf"  vgpuscope {command} +http", printed), command
    assert "taken" not in printed
    # the extender's usual port is the analyzer's here
    assert "vgpuscope why ml-team/sweep-12 http://127.0.0.1:8081" in printed
    assert "vgpuscope fit -f /tmp/demo/pod.yaml --url http://127.0.0.1:8081" in printed


@pytest.mark.usefixtures("installed")
def test_commands_name_the_address_of_what_had_to_move_and_the_page_says_so(capsys):
    printed = page_of(capsys, ports=(40001, 9395, 31993, 40002, 40003), moved=(9394, 8080))
    assert "Other ports than usual: 9394, 8080 are taken." in printed
    assert "vgpuscope top http://127.0.0.1:40001" in printed
    assert "vgpuscope results http://127.0.0.1:40002" in printed
    assert "vgpuscope doctor --analyzer http://127.0.0.1:40002" in printed
    assert "vgpuscope reclaim --url http://127.0.0.1:40002" in printed
    assert re.search(r"vgpuscope nodes +what is allocated", printed)
    assert max(map(len, printed.splitlines())) <= 80


def test_a_taken_port_is_replaced_and_remembered():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = processes.Ports.found(1, port)
    assert found.agents != (port,)
    assert port in found.moved


def test_an_event_is_one_plain_line_without_a_terminal(capsys):
    screen.print_event(screen.console(), NewsEvent("GPU lost", "sick-e GPU 1 (XID 79, fell off the bus)"))
    assert re.fullmatch(r"\d\d:\d\d:\d\d  GPU lost     sick-e GPU 1 \(XID 79, .*\)\n", capsys.readouterr().out)


@pytest.mark.parametrize("prometheus", ["0", "1"])
def test_the_analyzer_comes_to_every_status_class_and_verdict(started, monkeypatch, prometheus):
    if prometheus == "1":
        needed("prometheus", package="prometheus")
    monkeypatch.setenv("DEMO_PROMETHEUS", prometheus)
    running = started("--window-minutes", "0.3")
    running.until(END)
    analyzer = running.analyzer
    wanted = {
        "status": {"idle", "low", "normal", "high", "unknown"},
        "use_class": CLASSES,
        "verdict": {"in_use", "idle", "unknown"},
    }
    seen: dict[str, set] = {field: set() for field in wanted}

    def all_seen():
        for row in json.loads(page(f"{analyzer}/results")):
            for field, values in seen.items():
                values.update(one[field] for one in (row, *row["tenants"]))
        return all(seen[field] >= values for field, values in wanted.items())

    eventually(all_seen, 240)
    eventually(lambda: '"owner":"Deployment/serve-llama"' in page(f"{analyzer}/results"), 240)


def test_a_taken_port_is_no_obstacle_and_a_dead_agent_is_told_of(started):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        running = started("--port", str(taken.getsockname()[1]))
        running.until(END)
        assert len(set(running.urls)) == 6
        assert f"Other ports than usual: {taken.getsockname()[1]} is taken." in running._printed
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
    monkeypatch.setattr(processes, "AGENT", (sys.executable, "-c", words))
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
    eventually(lambda: subprocess.run(["rm", "-rf", str(short / "nodes")], check=False).returncode == 0)  # it writes on
    running.until("files cannot be written")
    assert running.process.wait(60) == 1
    eventually(lambda: running.ended)
    assert "Traceback" not in running._printed
