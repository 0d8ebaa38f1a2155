"""The command and the console give one answer: the same checks of the same facts, on a demo that loses its parts.

The truth is what an operator compares: the command's JSON beside the API behind the console's page, and the verdicts
of `/api/v1/gpus` beside the check that says which verdicts cannot be found.
"""

import json
import os
import signal
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console.processes import PATIENCE, eventually
from tests.ports import free_port
from tests.sim.demorun import END, Running, alive, temporary
from vgpuscope import cli

pytestmark = pytest.mark.xdist_group("one doctor")

Report = dict[str, Any]
AGENTS = {"hami-a", "whole-b", "mig-c", "slice-d", "sick-e"}


@pytest.fixture(scope="module")
def runtime() -> Iterator[Path]:
    with temporary() as path:
        yield path


@pytest.fixture(scope="module")
def demo(runtime: Path) -> Iterator[Running]:
    """A demo of a user with a runtime directory of its own, so that other demos of the machine are not found."""
    with pytest.MonkeyPatch.context() as patch, temporary() as short:
        patch.setenv("XDG_RUNTIME_DIR", str(runtime))
        patch.setenv("XDG_CACHE_HOME", str(runtime / "cache"))
        patch.delenv("DEMO_PROMETHEUS", raising=False)
        running = Running("--port", str(free_port()), "--directory", str(short / "demo"))
        try:
            running.until(END, PATIENCE)
            yield running
        finally:
            running.stop()


@pytest.fixture
def doctor(
    runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, Report]]:
    """Runs the command on a machine without GPUs, on which nothing answers at a default port."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("XDG_CACHE_HOME", str(runtime / "cache"))
    monkeypatch.setenv("VGPUSCOPE_AGENT_HOOK_PATH", str(tmp_path / "vgpu"))
    for name in ("KUBECONFIG", "PROM_URL", "VGPUSCOPE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for module in ("services.doctor.finding", "commands.actions.doctor"):
        monkeypatch.setattr(f"vgpuscope.{module}.default_url", lambda _: "http://127.0.0.1:1", raising=False)
    monkeypatch.setattr("vgpuscope.sources.doctor.local._SIGNS", ())

    def run(*arguments: str) -> tuple[int, Report]:
        capfd.readouterr()
        code = cli.main(["doctor", "--json", "--deadline", "120", *arguments])
        return code, json.loads(capfd.readouterr().out)

    return run


def fetched(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return json.load(answer)


def told(report: Report) -> dict[str, tuple[Any, ...]]:
    """What a report says of each check."""
    return {
        one["code"]: (one["status"], one["cause"], tuple(one["examples"]), one["numbers"]) for one in report["findings"]
    }


def both(demo: Running, run: Callable[..., tuple[int, Report]], *arguments: str) -> tuple[Report, Report]:
    """The reports of the command and of the console on the same collection: the console's did not change meanwhile."""
    found: list[tuple[Report, Report]] = []

    def compared() -> bool:
        before = fetched(f"{demo.analyzer}/api/v1/doctor")
        _, mine = run(*arguments)
        after = fetched(f"{demo.analyzer}/api/v1/doctor")
        if before["at"] == after["at"]:
            found.append((mine, after))
        return bool(found)

    eventually(compared)
    return found[0]


def states(report: Report) -> dict[tuple[str, str], str]:
    return {(row["service"], row["name"]): row["state"] for row in report["services"]}


def listening(demo: Running, url: str) -> int:
    """The process of the demo that listens at an address."""
    port = url.removesuffix("/metrics").rpartition(":")[2]
    lines = {pid: Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in demo.children()}
    return next(
        pid
        for pid, words in lines.items()
        if "--listen" in words and f"127.0.0.1:{port}" == words[words.index("--listen") + 1]
    )


def killed(demo: Running, url: str) -> None:
    pid = listening(demo, url)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not alive(pid))


def named_services(demo: Running) -> tuple[str, ...]:
    agents = [word for url in demo.urls[:5] for word in ("--agent", url.removesuffix("/metrics"))]
    return ("--analyzer", demo.analyzer, *agents, "--cluster", demo.urls[5], "--extender", demo.extender)


@pytest.mark.parametrize("way", ["found", "analyzer named", "all named"])
def test_the_command_says_of_every_check_what_the_console_says(demo, doctor, way: str):
    arguments = {"found": (), "analyzer named": ("--analyzer", demo.analyzer), "all named": named_services(demo)}[way]

    def same() -> bool:
        mine, console = both(demo, doctor, *arguments)
        if way == "all named":  # two collections, a moment apart: what changes by itself may differ once
            return {code: words[0] for code, words in told(mine).items()} == {
                code: words[0] for code, words in told(console).items()
            }
        assert told(mine) == told(console)
        return True

    eventually(same)


def test_the_demo_is_found_with_all_its_agents_and_its_extender(demo, doctor):
    eventually(lambda: set(states(doctor()[1]).values()) <= {"answered", "not-configured"})
    _, report = doctor()
    found = states(report)
    assert {name for service, name in found if service == "agent"} == AGENTS
    assert {found[(service, "")] for service in ("analyzer", "cluster", "extender")} == {"answered"}
    assert {found[(service, "")] for service in ("plugin", "prometheus", "kubernetes")} == {"not-configured"}
    assert next(row for row in report["services"] if row["service"] == "analyzer")["found_by"] == "demo"


def test_the_verdict_that_a_check_rules_out_is_not_among_the_results(demo, doctor):
    def unproductive() -> set[str]:
        rows = fetched(f"{demo.analyzer}/results")
        return {row["gpu_id"] for row in rows if "busy-unproductive" in json.dumps(row)}

    eventually(lambda: bool(unproductive()))
    for report in both(demo, doctor):
        ruled_out = next(one for one in report["findings"] if one["code"] == "GPM_UNSUPPORTED")
        assert ruled_out["status"] == "warn"
        assert not [text for text in ruled_out["examples"] if any(gpu in text for gpu in unproductive())]


def test_parts_that_are_killed_are_named_by_both(demo, doctor):
    killed(demo, demo.urls[1])
    killed(demo, demo.extender)

    def seen() -> bool:
        found = states(fetched(f"{demo.analyzer}/api/v1/doctor"))
        return found[("agent", "whole-b")] == found[("extender", "")] == "no-answer"

    eventually(seen)
    mine, console = both(demo, doctor)
    assert told(mine) == told(console)
    assert states(mine) == states(console)
    found = {one["code"]: one for one in mine["findings"]}
    assert {found["AGENT_DOWN"]["status"], found["EXTENDER_DOWN"]["status"]} == {"fail"}
    assert "(whole-b)" in found["AGENT_DOWN"]["cause"]["en"]
    assert states(mine)[("agent", "hami-a")] == "answered"


def test_without_the_analyzer_the_others_are_still_found(demo, doctor):
    killed(demo, demo.analyzer)
    code, report = doctor()
    found, checks = states(report), {one["code"]: one for one in report["findings"]}
    assert code == 2
    assert found[("analyzer", "")] == "no-answer"
    assert (found[("agent", "hami-a")], found[("agent", "whole-b")]) == ("answered", "no-answer")
    assert checks["ANALYZER_DOWN"]["status"] == "fail"
    # an exporter that was not looked at may measure these GPUs: nothing is claimed
    assert checks["GPM_UNSUPPORTED"]["status"] == "skipped"


def test_after_the_demo_there_is_nothing_to_look_at(demo, doctor, runtime):
    assert demo.end(signal.SIGINT) == 0
    assert not list(runtime.rglob("*.json"))
    code, report = doctor()
    assert code == 3
    assert set(states(report).values()) == {"not-configured"}
