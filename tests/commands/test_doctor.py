"""`vgpuscope doctor` as people run it: exit codes, both languages, 80 columns, JSON, and an archive without secrets."""

import json
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from tests.contract.doctorworld import World, agent_route, analyzer_route, cluster_route, kube_route, serving
from vgpuscope import cli
from vgpuscope.commands.actions.language import language_of
from vgpuscope.logic.doctor.chain import CHAIN
from vgpuscope.model.errors import error_types
from vgpuscope.views.doctor.words import CHECK_WORDS, FACT_NAMES, REASONS, STAGE_NAMES

SECRETS = ("tok3n-of-the-caller", "hunter2-password", "sk-planted-0123456789abcdef", "env-secret-value-42")


class Served:
    """A healthy world behind HTTP, which a test can change, and the arguments that name its parts."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.world = World(0.0)
        self._agent = stack.enter_context(serving(agent_route(self.world)))
        self._cluster = stack.enter_context(serving(cluster_route(self.world)))
        self._analyzer = stack.enter_context(serving(analyzer_route(self.world)))
        kube = stack.enter_context(serving(kube_route(self.world)))
        self.kubeconfig = path / "kubeconfig"
        self.kubeconfig.write_text(
            f"current-context: c\nclusters: [{{name: c, cluster: {{server: '{kube}'}}}}]\n"
            "contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: t}}]\n"
        )

    def arguments(self, *more: str) -> list[str]:
        named = ["--agent", self._agent, "--cluster", self._cluster, "--analyzer", self._analyzer]
        return ["doctor", *named, "--kubeconfig", str(self.kubeconfig), *more]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VGPUSCOPE_AGENT_HOOK_PATH", str(tmp_path / "vgpu"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.delenv("LC_ALL", raising=False)
    with ExitStack() as stack:
        yield Served(tmp_path, stack)


def run(capfd: pytest.CaptureFixture[str], arguments: list[str]) -> tuple[int, str]:
    code = cli.main(arguments)
    return code, capfd.readouterr().out


def test_nothing_found_is_0_a_warning_is_1_a_failure_is_2(served: Served, capfd: pytest.CaptureFixture[str]):
    assert run(capfd, served.arguments())[0] == 0
    served.world.analyzer["/health"]["leader"] = False
    code, out = run(capfd, served.arguments())
    assert (code, "NOT_LEADER" in out) == (1, True)
    served.world.analyzer["/health"] |= {"history": False, "failing": ["store: HISTORY_DOWN"]}
    code, out = run(capfd, served.arguments())
    assert (code, "HISTORY_DOWN" in out) == (2, True)


def test_if_nothing_can_be_looked_at_the_exit_code_is_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    for name in ("KUBECONFIG", "PROM_URL", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("VGPUSCOPE_AGENT_HOOK_PATH", str(tmp_path / "vgpu"))
    monkeypatch.setattr("vgpuscope.services.doctor.finding.default_url", lambda _: "http://127.0.0.1:1")
    monkeypatch.setattr("vgpuscope.sources.doctor.local._SIGNS", ())
    monkeypatch.setattr("vgpuscope.terminal.printing.paper_width", lambda: 80)
    for language, sentence in (("en", "Name your services:"), ("zh", "请指定服务的地址：")):
        code, out = run(capfd, ["doctor", "--lang", language])
        assert code == 3
        assert sentence in out.replace("\n", " " if language == "en" else "")
        assert "--analyzer" in out
        assert "✓" not in out
        assert max(cell_len(line) for line in out.splitlines()) <= 80
    code, out = run(capfd, ["doctor", "--json"])
    report = json.loads(out)
    assert {row["state"] for row in report["services"]} == {"not-configured"}
    assert code == 3
    assert report["counts"] == {"fail": 0, "warn": 0, "pass": 0, "skipped": len(CHAIN)}
    assert all(one["cause"]["en"] and one["cause"]["zh"] for one in report["findings"])


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_report_fits_80_columns_and_speaks_one_language(
    served: Served, capfd: pytest.CaptureFixture[str], language: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("vgpuscope.terminal.printing.paper_width", lambda: 80)
    served.world.kube["denied"] = {"list events"}
    served.world.kube["pods"][0]["status"]["containerStatuses"][0]["ready"] = False
    _, out = run(capfd, served.arguments("--lang", language, "--all"))
    assert max(cell_len(line) for line in out.splitlines()) <= 80
    found, fix = {"en": ("Cause: ", "Fix: "), "zh": ("原因：", "处理：")}[language]
    assert found in out
    assert fix in out
    assert ("Cause" in out) == (language == "en")
    assert "RIGHTS_MISSING" in out
    assert "$ kubectl auth can-i" in out


def test_json_has_everything_that_a_program_needs(served: Served, capfd: pytest.CaptureFixture[str]):
    served.world.kube["denied"] = {"list events"}
    code, out = run(capfd, served.arguments("--json"))
    report: dict[str, Any] = json.loads(out)
    finding = next(one for one in report["findings"] if one["code"] == "RIGHTS_MISSING")
    assert code == 2
    assert (report["status"], report["place"]) == ("fail", "outside")
    assert finding["status"] == "fail"
    assert finding["examples"] == ["vgpuscope/vgpuscope-cluster: list events"]
    assert finding["numbers"] == {"count": 1}
    assert finding["commands"]
    assert [stage["stage"] for stage in report["stages"]] == list(STAGE_NAMES)


def test_an_archive_has_the_answers_and_no_secret(
    served: Served, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    token, password, key, variable = SECRETS
    monkeypatch.setenv("VGPUSCOPE_TOKEN", token)
    monkeypatch.setenv("SOME_API_KEY", variable)
    monkeypatch.setenv("VGPUSCOPE_PROMETHEUS_PASSWORD", password)
    served.world.analyzer["/health"]["error"] = {
        "code": "QUERY_FAILED",
        "message": f"http://reader:{password}@prometheus refused Bearer {token}; api_key={key}; {variable}",
    }
    served.world.analyzer["/health"]["prometheus_connected"] = False
    path = tmp_path / "report.tar.gz"
    run(
        capfd,
        served.arguments("--bundle", str(path), "--json", "--prometheus", f"http://reader:{password}@127.0.0.1:1"),
    )
    assert path.stat().st_mode & 0o077 == 0
    with tarfile.open(path) as archive:
        files = {one.name.rpartition("/")[2]: archive.extractfile(one).read().decode() for one in archive.getmembers()}
    assert set(files) == {"report.json", "version.json", "settings.txt", "health.json", "agent-0.prom"}
    assert "QUERY_FAILED" in files["health.json"]
    assert "prometheus.url" in files["settings.txt"]
    for name, text in files.items():
        for secret in SECRETS:
            assert secret not in text, (name, secret)


def test_an_archive_that_cannot_be_written_is_an_error_with_its_reason(
    served: Served, capfd: pytest.CaptureFixture[str]
):
    code = cli.main(served.arguments("--bundle", "/no/such/directory/x.tar.gz"))
    assert code == 2
    assert "--bundle" in capfd.readouterr().err


def test_a_service_that_hangs_takes_only_its_own_facts(served: Served, capfd: pytest.CaptureFixture[str]):
    import threading

    hold = threading.Event()
    served.world.cluster = _Hanging(hold)
    code, out = run(capfd, served.arguments("--json", "--deadline", "8"))
    hold.set()
    report = json.loads(out)
    statuses = {one["code"]: one["status"] for one in report["findings"]}
    assert code == 2
    assert statuses["CLUSTER_EXPORTER_MISSING"] == "fail"
    assert statuses["HISTORY_DOWN"] == "pass"
    assert report["seconds"] < 30  # the service never answers: the deadline of 8 s ended it


class _Hanging(dict):
    """An answer that does not come."""

    def __init__(self, hold: Any) -> None:
        super().__init__(nodes=[], watch={})
        self._hold = hold

    def get(self, *_: object) -> object:
        self._hold.wait(30)
        return "cluster exporter"


@pytest.mark.parametrize(
    ("chosen", "environ", "language"),
    [
        (None, {}, "en"),
        (None, {"LANG": "zh_CN.UTF-8"}, "zh"),
        (None, {"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "en"),
        ("en", {"LANG": "zh_CN.UTF-8"}, "en"),
        ("zh", {"LANG": "de_DE.UTF-8"}, "zh"),
    ],
)
def test_the_language_is_the_chosen_one_or_that_of_the_locale(
    chosen: str | None, environ: dict[str, str], language: str
):
    assert language_of(chosen, environ) == language


def test_every_check_has_its_words_in_both_languages():
    assert {link.code for link in CHAIN} == set(CHECK_WORDS)
    texts = [words for said in CHECK_WORDS.values() for words in said[:3]] + [*FACT_NAMES.values(), *REASONS.values()]
    for words in texts:
        assert words.en
        assert words.zh
        assert words.en.count("{") >= words.zh.count("{") > -1
    assert all(said.fix.en[0].isupper() or said.fix.en[0] in "`/pd" for said in CHECK_WORDS.values())
    assert len({said.title.en for said in CHECK_WORDS.values()}) == len(CHECK_WORDS)


def test_codes_of_errors_and_of_doctor_mean_the_same_where_they_are_equal():
    equal = {kind.code for kind in error_types()} & set(CHECK_WORDS)
    known = {"DRIVER_FAILED", "DRIVER_HUNG", "REGIONS_UNREADABLE", "PODRESOURCES_DOWN", "HISTORY_DOWN", "NOT_LEADER"}
    known |= {"CGROUPS_ABSENT", "CGROUPS_UNREADABLE", "CGROUPS_UNKNOWN"}
    assert equal == known
