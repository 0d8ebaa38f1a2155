"""`vgpuscope doctor --audit` as people run it: exit codes, JSON, both languages."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import structs

from tests.services.audit.served import Served, analyzer
from vgpuscope import cli
from vgpuscope.commands.actions import audit as action
from vgpuscope.services.audit import audit as service
from vgpuscope.services.doctor.asked import ServiceAddress
from vgpuscope.services.doctor.collect import DoctorTargets


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.delenv("LC_ALL", raising=False)
    monkeypatch.setattr(action, "AuditTargets", _without_commands)
    return Served()


def _without_commands(**more: Any) -> service.AuditTargets:
    return service.AuditTargets(**more, commands=False, pause=0.0)


@pytest.fixture
def url(served: Served) -> Iterator[str]:
    with analyzer(served) as address:
        yield address


def run(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = cli.main(["doctor", "--audit", *arguments])
    return code, capfd.readouterr().out


def test_without_a_difference_it_is_0(url: str, capfd: pytest.CaptureFixture[str]):
    code, out = run(capfd, "--analyzer", url)
    assert (code, "No two places contradict each other." in out) == (0, True)


def test_a_difference_is_1_in_text_and_json(served: Served, url: str, capfd: pytest.CaptureFixture[str]):
    served.answers["/api/v1/overview"]["now"]["idle_held"] = 9
    code, out = run(capfd, "--analyzer", url, "--lang", "zh")
    assert (code, "应等于" in out) == (1, True)
    code, out = run(capfd, "--analyzer", url, "--json")
    report = json.loads(out)
    assert code == 1
    assert {"at", "asked", "checks", "differences"} <= report.keys()
    assert report["asked"] == [{"service": "analyzer", "url": url, "answered": True, "message": ""}]
    found = next(one for one in report["differences"] if one["check"] == "rows")
    assert {"check", "subject", "first", "second", "rule", "tolerance"} == found.keys()
    assert {"surface", "path", "figure", "value", "definition"} == found["first"].keys()
    assert found["rule"] == "equal"


def test_silence_is_3(served: Served, capfd: pytest.CaptureFixture[str]):
    code, out = run(capfd, "--analyzer", "http://127.0.0.1:9")
    assert code == 3
    assert "✓" not in out


def test_a_wrong_address_or_time_limit_is_2(served: Served, capfd: pytest.CaptureFixture[str]):
    assert run(capfd, "--analyzer", "ftp://x")[0] == 2
    assert run(capfd, "--analyzer", "http://127.0.0.1:9", "--deadline", "0")[0] == 2


def test_without_addresses_the_services_are_those_that_doctor_finds(
    url: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    async def find(targets: DoctorTargets, environ: object) -> DoctorTargets:
        return structs.replace(targets, analyzer=ServiceAddress(url, found_by="demo"))

    monkeypatch.setattr(action, "find", find)
    code, out = run(capfd, "--json")
    assert code == 0
    assert [(one["url"], one["answered"]) for one in json.loads(out)["asked"]] == [(url, True)]
