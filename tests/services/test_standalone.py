"""One GPU server without Kubernetes: the real agent over the stand-in driver, the real analyzer, one command."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environment import bare
from tests.native import build
from tests.native.scenario import Scenario
from tests.ports import free_port
from tests.services.agent.noderoot import WITHIN, RunningAgent
from vgpuscope import config
from vgpuscope.model.errors import ConfigInvalid
from vgpuscope.services import standalone


class Standalone(RunningAgent):
    """The command, and the address of its console."""

    agent = ""

    def json(self, path):
        return json.loads(self.get(path)[2])

    def children(self):
        return [int(pid) for pid in _proc(self.process.pid, f"task/{self.process.pid}/children").split()]


@contextlib.contextmanager
def running(tmp_path, *flags, before=(), **environ):
    nvml = Scenario(tmp_path / "nvml")
    nvml.gpu(0).gpu(1, utilization=0).process(0, os.getpid(), memory=2 << 30).write()
    ports = free_port(), free_port()
    command = [*before, sys.executable, "-m", "vgpuscope", "standalone", "--listen", f"127.0.0.1:{ports[0]}"]
    command += ["--agent-listen", f"127.0.0.1:{ports[1]}", *flags]
    driver = build.environment(build.library_or_skip(), nvml.path)
    log = tmp_path / "log"
    with log.open("w") as out:
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            stdout=out,
            stderr=out,
            env=bare(HOME=str(tmp_path), STATE_DIRECTORY=str(tmp_path / "state"), **driver, **environ),
            start_new_session=True,
        )
    found = Standalone(process, f"http://127.0.0.1:{ports[0]}", log)
    found.agent = f"http://127.0.0.1:{ports[1]}"
    try:
        yield found
    finally:
        process.kill()
        process.wait()


def _proc(pid, name):
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _gone(pids):
    return not any(_proc(pid, "cmdline") for pid in pids)


def test_its_gpus_are_in_the_api_and_the_console_is_served(tmp_path):
    with running(tmp_path) as one:
        one.wait(lambda: one.status("/api/v1/gpus") == 200 and one.json("/api/v1/gpus")["rows"])
        listed = one.json("/api/v1/gpus")["rows"]
        assert len(listed) == 2
        assert all(gpu["verdict"] == "unknown" for gpu in listed)  # no window has passed, and none is made up
        assert b"<!doctype html>" in one.get("/ui/", Accept="text/html")[2].lower()
        health = one.json("/health")
        assert (health["targets_up"], health["targets_down"], health["interval"]) == (1, 0, 15)
        assert (tmp_path / "state" / "history.db").exists()
        agent = RunningAgent(one.process, one.agent, one.log)
        assert agent.page().has("vgpuscope_gpu_memory_total_bytes")

        parts = one.children()
        assert len(parts) == 2
        one.process.send_signal(signal.SIGINT)
        assert one.process.wait(WITHIN) == 0, one.log.read_text()
        assert _gone(parts)
    log = one.log.read_text()
    assert "Traceback" not in log
    for line in ("standalone starts", "agent starts", "analyzer starts", "stopping"):  # one log
        assert line in log, log


def test_a_killed_agent_comes_back_and_the_console_stays_up(tmp_path):
    with running(tmp_path) as one:
        one.wait(lambda: one.status("/api/v1/gpus") == 200 and one.json("/api/v1/gpus")["rows"])
        agent = RunningAgent(one.process, one.agent, one.log)
        one.wait(lambda: agent.status("/readyz") == 200)
        before = one.children()
        pid = next(p for p in before if "agent" in _proc(p, "cmdline").split("\0"))
        os.kill(pid, signal.SIGKILL)
        one.wait(lambda: pid not in one.children() and len(one.children()) == 2)
        one.wait(lambda: agent.status("/readyz") == 200)
        assert one.status("/ui/") == 200
        assert "process ended and is restarted process=agent code=-9" in one.log.read_text()


def test_under_nohup_the_end_of_the_terminal_does_not_end_it(tmp_path):
    with running(tmp_path, "--history", "none", before=("nohup",)) as one:
        one.wait(lambda: one.status("/healthz") == 200)
        ignored = next(line for line in _proc(one.process.pid, "status").splitlines() if line.startswith("SigIgn"))
        assert int(ignored.split()[1], 16) & 1 << (signal.SIGHUP - 1)
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(WITHIN) == 0


def test_if_it_is_killed_nothing_is_left_behind(tmp_path):
    with running(tmp_path, "--history", "none") as one:
        one.wait(lambda: one.status("/healthz") == 200)
        parts = one.children()
        one.process.kill()
        one.process.wait()
    waiting = RunningAgent(subprocess.Popen(["sleep", "60"]), "", one.log)
    try:
        waiting.wait(lambda: _gone(parts))
    finally:
        waiting.process.kill()
        waiting.process.wait()
    assert not (tmp_path / "state").exists()


def test_a_busy_port_ends_it_with_the_reason(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with running(tmp_path, "--listen", f"127.0.0.1:{taken.getsockname()[1]}") as one:
            assert one.process.wait(WITHIN) == 1
    assert "cannot listen on 127.0.0.1" in one.log.read_text()
    assert "process could not start process=analyzer code=1" in one.log.read_text()


# ── settings ─────────────────────────────────────────────────────────────────────────────────────────────────────


def chosen(tmp_path, *, flags=None, **environ):
    loaded = config.load(flags=flags or {}, environ=environ, file=config.NO_FILE)
    return standalone.given_here(loaded, flags or {}, tmp_path)


def test_defaults_of_one_machine_give_way_to_variables_and_flags(tmp_path):
    usual = chosen(tmp_path)
    assert usual["VGPUSCOPE_PROMETHEUS_QUERY_CONDITION"] == "{}"  # GPUs without pods are analysed
    assert usual["VGPUSCOPE_ANALYZER_TARGETS"] == "http://127.0.0.1:9394"
    assert usual["VGPUSCOPE_ANALYZER_HISTORY"] == str(tmp_path / "history.db")
    own = chosen(tmp_path, INTERVAL="60", VGPUSCOPE_AGENT_LISTEN="0.0.0.0:7000")
    assert "VGPUSCOPE_SCHEDULER_INTERVAL" not in own  # the variable reaches the analyzer as it is
    assert own["VGPUSCOPE_ANALYZER_TARGETS"] == "http://127.0.0.1:7000"
    flagged = chosen(tmp_path, flags={"agent.listen": "[::1]:7001"}, VGPUSCOPE_AGENT_LISTEN="0.0.0.0:7000")
    assert flagged["VGPUSCOPE_ANALYZER_TARGETS"] == "http://[::1]:7001"
    assert flagged["VGPUSCOPE_AGENT_LISTEN"] == "[::1]:7001"
    with pytest.raises(ConfigInvalid, match="fixed port"):
        chosen(tmp_path, flags={"agent.listen": "127.0.0.1:0"})


@pytest.mark.parametrize(
    ("environ", "root", "place"),
    [
        ({"STATE_DIRECTORY": "/var/lib/a:/var/lib/b"}, True, "/var/lib/a"),
        ({}, True, "/var/lib/vgpuscope"),
        ({"HOME": "/home/ada"}, False, "/home/ada/.local/state/vgpuscope"),
        ({"HOME": "/home/ada", "XDG_STATE_HOME": "/state"}, False, "/state/vgpuscope"),
    ],
)
def test_where_the_history_is_kept(environ, root, place):
    assert str(standalone.state_directory(environ, root=root)) == place
