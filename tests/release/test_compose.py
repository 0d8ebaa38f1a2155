"""The compose file and the systemd unit: names, ports, mounts and settings fit the program and the repository."""

import configparser
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.needed import needed
from tests.paths import REPOSITORY
from tests.release.imagebuild import instructions
from vgpuscope import config
from vgpuscope.cli import parser
from vgpuscope.version import __version__

FOLDER = REPOSITORY / "deploy" / "compose"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
OURS = {name: service for name, service in COMPOSE["services"].items() if name in {"agent", "analyzer"}}
GENERATED = ("charts/vgpuscope/dashboards", "charts/vgpuscope/rules")  # made by `make gen`


def image_default(name):
    (found,) = [
        json for instruction, json in instructions((REPOSITORY / "Dockerfile").read_text()) if instruction == name
    ]
    return yaml.safe_load(found)


@pytest.mark.parametrize("name", OURS)
def test_settings_and_commands_are_known_to_the_program(name):
    """An unknown VGPUSCOPE_* variable or a bad value would end the process at its start."""
    service = OURS[name]
    environ = {key: re.sub(r"\$\{\w+:-(.*?)\}", r"\1", str(value)) for key, value in service["environment"].items()}
    loaded = config.load(flags={}, environ=environ, file=config.NO_FILE)
    given = {path for path, origin in loaded.origins.items() if origin.startswith("env")}
    assert len(given) == len(environ)
    words = service.get("command") or image_default("CMD")
    assert parser(words).parse_args(words).command is not None
    assert service["image"].endswith(f"vgpuscope:{__version__}}}")


def test_the_analyzer_scrapes_the_agent_and_shows_gpus_without_pods():
    environ = OURS["analyzer"]["environment"]
    port = config.Config().agent.listen.rpartition(":")[2]
    assert environ["VGPUSCOPE_ANALYZER_TARGETS"] == f"http://agent:{port}"
    assert environ["VGPUSCOPE_PROMETHEUS_QUERY_CONDITION"] == "{}"
    assert f"127.0.0.1:{port}" in OURS["agent"]["healthcheck"]["test"][-1]
    scraped = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    assert [one["static_configs"][0]["targets"] for one in scraped] == [[f"agent:{port}"], ["analyzer:8080"]]
    assert all(one["honor_labels"] for one in scraped)


def test_the_alerts_for_services_that_cannot_be_scraped_know_the_jobs_of_the_trial():
    """They ask for jobs by their names; one that they do not know could be down for ever."""
    rules = "".join(file.read_text() for file in (REPOSITORY / "charts" / "vgpuscope" / "rules").glob("*.yaml"))
    known = re.findall(r'up\{job=~"([^"]*)"', rules)
    jobs = [one["job_name"] for one in yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]]
    assert jobs
    assert [job for job in jobs if not any(re.fullmatch(pattern, job) for pattern in known)] == []


def test_only_the_agent_is_root_and_nothing_of_ours_can_write_but_the_history():
    assert OURS["agent"]["user"] == "0:0"
    assert "user" not in OURS["analyzer"]
    for service in OURS.values():
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert OURS["analyzer"]["volumes"] == [f"history:{image_default('VOLUME')}"]
    published = [port for service in COMPOSE["services"].values() for port in service.get("ports", ())]
    assert all("127.0.0.1" in port for port in published)  # a trial is for this machine only


def test_mounts_exist_and_volumes_are_declared():
    for service in COMPOSE["services"].values():
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            if not source.startswith("."):
                assert source in COMPOSE["volumes"]
            elif not source.endswith(GENERATED):
                assert (FOLDER / source).exists(), source
            else:
                assert (FOLDER / source).resolve().is_relative_to(REPOSITORY / "charts")


def test_everything_else_is_behind_a_profile_and_pinned():
    for name in COMPOSE["services"].keys() - OURS.keys():
        service = COMPOSE["services"][name]
        assert service["profiles"] == ["prometheus"]
        assert re.search(r":-\S+:v?\d+\.\d+\.\d+\}$", service["image"])


@pytest.mark.real
def test_prometheus_accepts_its_configuration(tmp_path):
    needed("promtool", package="prometheus")
    text = (FOLDER / "prometheus.yml").read_text().replace("/etc/prometheus/rules", str(tmp_path))
    (tmp_path / "prometheus.yml").write_text(text)
    done = subprocess.run(["promtool", "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_systemd_unit_starts_a_command_that_exists():
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(Path(REPOSITORY, "deploy", "systemd", "vgpuscope.service"))
    words = unit["Service"]["ExecStart"].split()
    assert parser(words[1:]).parse_args(words[1:]).command is not None
    assert unit["Service"]["StateDirectory"] == "vgpuscope"
