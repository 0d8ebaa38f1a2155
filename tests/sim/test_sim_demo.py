"""The demo as people run it: a process that starts in seconds, says where to look, and leaves nothing behind."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.audit.command import audited
from tests.audit.known import unknown
from tests.needed import needed
from tests.ports import free_port
from tests.sim.demorun import END, alive, eventually, page, short, started
from vgpuscope import cli
from vgpuscope.sim import demo, processes, screen
from vgpuscope.sim.news import NewsEvent
from vgpuscope.sources.clients.agent import AGENT
from vgpuscope.sources.clients.cluster import CLUSTER

__all__ = ["short", "started"]  # fixtures


def test_it_starts_shows_every_mode_and_ends_cleanly_on_ctrl_c(started):
    running = started()
    printed = running.until(END)
    assert "\x1b" not in printed
    assert len(running.urls) == 6

    def modes():
        held = [line for url in running.urls for line in page(url).splitlines() if "vgpuscope_container_info{" in line]
        return {found[1] for line in held if (found := re.search(r'mode="([^"]*)"', line))}

    eventually(lambda: modes() >= {"hami", "exclusive", "mig", "mps", "time-slicing", "unallocated"})
    for words in ("\nvgpuscope_cluster_", "\nhami_", "\nnodeGPU", 'pod="bind-failed-0"'):
        eventually(lambda words=words: words in page(running.urls[5]))
    root, agents = running.root, running.children()
    assert root.is_dir()
    assert f"  KUBECONFIG={root}/kubeconfig kubectl get pods -A" in printed
    assert (root / "kubeconfig").stat().st_mode & 0o777 == 0o600
    assert len(agents) >= 8
    assert running.end(signal.SIGINT) == 0
    assert not root.exists()
    assert not any(alive(pid) for pid in agents)
    eventually(lambda: running.ended)
    assert "Traceback" not in running._printed
    with pytest.raises(urllib.error.URLError):
        page(running.urls[0])


CLASSES = {"busy", "busy-unproductive", "low", "idle", "idle-held", "idle-preparing", "unknown"}


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
    # the demo looks every few seconds for what to tell: a shorter time of grace could be over between two looks
    settle(settings, grace="15s", min_pod_age="1s", confirmations="1")
    told = running.until("research/notebook-carol would lose its GPU now (dry run)", 300)
    assert "research/notebook-carol is confirmed idle: its grace period runs" in told
    assert not stopped.exists()

    settle(settings, dry_run="false")
    running.until("research/notebook-carol loses its GPU", 300)
    running.until("research/notebook-carol is gone, and its GPU is free", 300)
    names = stopped.read_text().split()
    assert "research/notebook-carol" in names
    assert not any(name.startswith(("ml-team/", "serving/")) for name in names)  # these work, or are protected
    log = json.loads(page(f"{running.analyzer}/api/v1/audit?limit=1000"))["entries"]
    calls = [entry for entry in log if entry["what"] == "call_delivered" and entry["pod"] == "notebook-carol"]
    assert len(calls) == 1


def test_what_the_analyzer_scaled_is_restored_by_the_command_and_each_notice_is_shown(started, short):
    running = started("--directory", str(short / "demo"), "--window-minutes", "0.5", "--live-reclaim", "scale")
    running.until(END)
    settle(short / "demo" / "settings.yaml", grace="5s", min_pod_age="1s", confirmations="1")
    running.until("Idle GPUs will be taken back", 300)
    running.until("research/hami-mig-0 is gone, and its GPU is free", 300)
    assert "research/hami-mig-0" not in held(running)
    assert cli.main(["reclaim", "restore", "research/hami-mig-0", "--url", running.analyzer]) == 0
    running.until("research/hami-mig-0 was put back", 300)
    eventually(lambda: "research/hami-mig-0" in held(running), 300)


def held(running) -> set[str]:
    """The pods that have a GPU, as the cluster exporter sees them."""
    workloads = json.loads(page(f"{running.analyzer}/api/v1/workloads"))["rows"]
    return {f"{row['namespace']}/{row['pod']}" for row in workloads if row["gpus"]}


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
def test_the_guide_has_the_commands_as_the_demo_prints_them(capsys):
    guide = (Path(__file__).parents[2] / "docs" / "demo.md").read_text()
    printed = page_of(capsys, ports=(9394, 9395, 31993, 8080, 8081))
    commands = re.compile(r"^  vgpuscope (\w+) +([a-z ]{5}.*)$", re.MULTILINE)
    assert commands.findall(guide) == commands.findall(printed) != []


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
        taken.bind(("127.0.0.1", free_port()))  # those that the kernel gives have neighbours, which may be taken, too
        taken.listen()
        running = started("--port", str(taken.getsockname()[1]))
        running.until(END)
        assert len(set(running.urls)) == 6
        assert f"Other ports than usual: {taken.getsockname()[1]} is taken." in running._printed
        victim = next(p for p in running.children() if b"sick-e" in Path(f"/proc/{p}/cmdline").read_bytes())
        os.kill(victim, signal.SIGKILL)
        running.until("the agent of sick-e ended with code -9")
        assert "hami-a" in page(running.urls[0])
        agents = [word for url in running.urls[:5] for word in ("--agent", url.removesuffix("/metrics"))]
        report = audited("--analyzer", running.analyzer, "--cluster", running.urls[5].removesuffix("/metrics"), *agents)
        assert [one["answered"] for one in report["asked"]].count(False) == 1
        assert unknown(report["differences"]) == []
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
        (lambda tmp: tmp / ("long" * 40), "too long for Unix sockets"),
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
