"""The auditor on a demo that runs: nothing contradicts itself, for whoever asks, and when a part is switched off."""

import hashlib
import json
import urllib.error
import urllib.request
from datetime import datetime
from pathlib import Path

import pytest

from tests.audit.command import audited
from tests.audit.known import unknown
from tests.console.processes import Demo, analyzer, answer, eventually, running
from tests.ports import free_port

pytestmark = pytest.mark.xdist_group("console")

TOKEN = "a-token-of-the-audit"


def whole(fleet: Demo) -> list[str]:
    agents = [word for url in fleet.agents for word in ("--agent", url)]
    return ["--analyzer", fleet.analyzer, "--cluster", fleet.cluster, "--extender", fleet.extender, *agents]


@pytest.mark.parametrize("moment", ["now", "later"])
def test_no_number_of_the_demo_contradicts_another_one(fleet: Demo, moment: str) -> None:
    if moment == "later":  # pods have come and gone in the meantime
        shown = _analysed_at(fleet)
        eventually(lambda: _analysed_at(fleet) >= shown + 60)
    assert unknown(audited(*whole(fleet))["differences"]) == []


def test_no_number_contradicts_another_one_for_a_caller_of_one_namespace(fleet: Demo, tmp_path: Path) -> None:
    users = tmp_path / "web.yaml"
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    users.write_text(f"bearer_tokens:\n  - {{name: mine, sha256: {digest}, role: read, namespaces: [research]}}\n")
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"analyzer:\n  web_config_file: {users}\n")
    targets = ",".join(fleet.agents)
    url, file = f"http://127.0.0.1:{free_port()}", tmp_path / "history.db"
    given = ["--targets", targets, "--cluster", fleet.cluster, "--history", str(file), "--config", str(settings)]
    with running("vgpuscope.sim.analyzer", "--listen", url.removeprefix("http://"), *given) as process:
        eventually(lambda: process.ended or _analysed(url))
        assert not process.ended, process.printed
        assert unknown(audited("--analyzer", url, token=TOKEN)["differences"]) == []


def test_no_number_contradicts_another_one_without_the_cluster_exporter(fleet: Demo, tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    given = {"targets": ",".join(fleet.agents), "cluster": "http://127.0.0.1:9", "history": tmp_path / "history.db"}
    with analyzer(listen, **given) as url:  # type: ignore[arg-type]
        assert unknown(audited("--analyzer", url)["differences"]) == []


def _analysed_at(fleet: Demo) -> float:
    """The end of the window of the analysis that is shown."""
    found = answer(f"{fleet.analyzer}/api/v1/overview")
    return datetime.fromisoformat(found["at"]).timestamp() if found else 0.0


def _analysed(url: str) -> bool:
    """Whether the caller of one namespace is shown an analysis with tenants."""
    request = urllib.request.Request(f"{url}/api/v1/overview", headers={"authorization": f"Bearer {TOKEN}"})
    try:
        with urllib.request.urlopen(request, timeout=30) as found:
            return bool(json.load(found)["tenants"])
    except (urllib.error.URLError, OSError):
        return False
