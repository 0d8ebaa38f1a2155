"""`make release`: what it makes, in which order, when it refuses, and that it pushes nothing."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chart.helmrun import CHART, helm, template
from tests.paths import REPOSITORY
from tools.release import __main__ as steps
from tools.release import artifacts
from vgpuscope.version import __version__

DIGEST = "sha256:" + "0123456789abcdef" * 4
DATED = "# Changelog\n\n## 0.2.0 (2027-01-31)\n\nWhat it does.\n\n## 0.1.0 (2026-12-24)\n\nThe first.\n"


def run(checkout: Path, *words: str) -> str:
    return subprocess.run(words, cwd=checkout, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Sources of version 0.2.0, in which `make` and `tools/image` write down how they are called."""
    for name, text in (
        ("CHANGELOG.md", DATED),
        ("Dockerfile", "ARG VERSION=0.2.0\n"),
        ("charts/vgpuscope/Chart.yaml", "name: vgpuscope\nversion: 0.2.0\nappVersion: 0.2.0\n"),
        ("requirements/run.txt", "a==1\n"),
        ("requirements/build.txt", "b==1\n"),
        ("web/package-lock.json", "{}\n"),
        ("Makefile", "licences audit:\n\t@echo make $@ >>calls\n\t@test ! -e vulnerable\n"),
        ("tools/image", '#!/bin/sh\necho "image $*" >>calls\necho layers >dist/vgpuscope-image.oci.tar\n'),
        (".gitignore", "calls\ndist/\nvulnerable\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "tools/image").chmod(0o755)
    run(tmp_path, "git", "init", "-q")
    for key, value in (("user.name", "a"), ("user.email", "a@example.com")):
        run(tmp_path, "git", "config", key, value)
    run(tmp_path, "git", "add", ".")
    run(tmp_path, "git", "commit", "-qm", "0.2.0")
    return tmp_path


@pytest.fixture(autouse=True)
def bases(monkeypatch):
    for name in steps.BASES:
        monkeypatch.setenv(name, f"example.com/{name.lower()}:1@{DIGEST}")


@pytest.fixture
def quick(monkeypatch):
    """The files of a release without building them."""

    def build(root: Path, directory: Path, *, version: str) -> None:
        directory.mkdir(exist_ok=True)
        for name in artifacts.names(version):
            (directory / name).write_text(name)

    monkeypatch.setattr(artifacts, "build", build)


def calls(checkout: Path) -> list[str]:
    return (checkout / "calls").read_text().splitlines() if (checkout / "calls").exists() else []


def test_a_dry_run_makes_every_file_and_leaves_nothing_behind():
    before = run(REPOSITORY, "git", "status", "--porcelain"), run(REPOSITORY, "git", "tag")
    out = run(REPOSITORY, sys.executable, "-m", "tools.release", "--dry-run")
    for name in artifacts.names(__version__):
        assert re.search(rf"^[0-9a-f]{{64}}  {re.escape(name)}$", out, re.MULTILINE), name
    assert "dry run" in out
    assert (run(REPOSITORY, "git", "status", "--porcelain"), run(REPOSITORY, "git", "tag")) == before


def test_a_release_is_audited_then_built_then_tagged_and_not_pushed(checkout, quick):
    assert steps.release(checkout, "0.2.0") == 0
    first, second, image = calls(checkout)
    assert (first, second) == ("make licences", "make audit")
    assert image == "image build " + " ".join(f"example.com/{name.lower()}:1@{DIGEST}" for name in steps.BASES)
    assert run(checkout, "git", "tag", "--points-at", "HEAD") == "v0.2.0\n"
    assert artifacts.faults(checkout / "dist", version="0.2.0") == []
    assert "vgpuscope-image.oci.tar" in (checkout / "dist" / artifacts.SUMS).read_text()
    assert (checkout / "dist/NOTES.md").read_text() == "What it does.\n"


def test_a_vulnerability_ends_the_release(checkout, quick):
    (checkout / "vulnerable").touch()
    assert steps.release(checkout, "0.2.0") == 1
    assert not [call for call in calls(checkout) if call.startswith("image")]
    assert run(checkout, "git", "tag") == ""


def test_a_release_that_is_made_again_keeps_its_tag(checkout, quick):
    run(checkout, "git", "tag", "v0.2.0")  # as the workflow finds it
    assert steps.release(checkout, "0.2.0") == 0


def change(checkout: Path) -> None:
    (checkout / "Dockerfile").write_text("ARG VERSION=0.2.0\n# more\n")


def tag_another(checkout: Path) -> None:
    run(checkout, "git", "tag", "v0.2.0")
    run(checkout, "git", "commit", "-q", "--allow-empty", "-m", "more")


def undated(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text(DATED.replace("2027-01-31", "not released yet"))
    run(checkout, "git", "commit", "-qam", "x")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [(change, "has changes"), (tag_another, "tag of another commit"), (undated, "has no date")],
    ids=["changes", "tag", "date"],
)
def test_what_is_not_ready_is_not_released(checkout, quick, capsys, spoil, reason):
    spoil(checkout)
    assert steps.release(checkout, "0.2.0") == 2
    assert reason in capsys.readouterr().err
    assert calls(checkout) == []


def test_bases_of_the_image_have_to_be_named(checkout, monkeypatch):
    monkeypatch.delenv("NODE_IMAGE")
    assert steps.unready(checkout, "0.2.0") == ["NODE_IMAGE is not named: RELEASING.md has an example"]


def test_sources_of_two_versions_are_refused(checkout):
    assert steps.contradictions(checkout, "0.2.0") == []
    found = steps.contradictions(checkout, "0.3.0")
    assert len(found) == 3
    assert {text.split()[0] for text in found} == {"CHANGELOG.md", "the", "Dockerfile"}


@pytest.mark.parametrize("name", artifacts.names("0.2.0"))
def test_a_file_that_is_missing_or_changed_is_noticed(checkout, quick, name):
    directory = checkout / "dist"
    artifacts.build(checkout, directory, version="0.2.0")
    artifacts.seal(checkout, directory, version="0.2.0")
    (directory / name).write_text("other")
    assert artifacts.faults(directory, version="0.2.0") == [f"{name} is not what SHA256SUMS says"]
    (directory / name).unlink()
    assert artifacts.faults(directory, version="0.2.0") == [f"{name} is missing"]


def test_the_provenance_names_every_file_the_commit_and_the_locks(checkout, quick):
    directory = checkout / "dist"
    artifacts.build(checkout, directory, version="0.2.0")
    artifacts.seal(checkout, directory, version="0.2.0")
    made = json.loads((directory / artifacts.PROVENANCE).read_text())
    assert {subject["name"] for subject in made["subject"]} == {*artifacts.names("0.2.0")} - {artifacts.PROVENANCE}
    dependencies = made["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert dependencies[0]["digest"] == {"gitCommit": run(checkout, "git", "rev-parse", "HEAD").strip()}
    assert [one["uri"] for one in dependencies[1:]] == [f"file:{name}" for name in artifacts._LOCKS]


def test_the_chart_is_packed_the_same_each_time():
    assert artifacts.chart(CHART, epoch=1767225600) == artifacts.chart(CHART, epoch=1767225600)


@pytest.mark.real
def test_helm_installs_the_packed_chart_as_it_installs_the_folder(tmp_path):
    path = tmp_path / f"vgpuscope-{__version__}.tgz"
    path.write_bytes(artifacts.chart(CHART, epoch=1767225600))
    shown = helm("show", "chart", str(path))
    assert f"version: {__version__}" in shown.stdout, shown.stderr
    assert template(chart=path) == template()


def test_every_step_is_documented():
    text = (REPOSITORY / "RELEASING.md").read_text()
    for word in ("DRY_RUN=1", *steps.BASES, "make image", "make sign", "git push origin v", "src/vgpuscope/version.py"):
        assert word in text
    for name in artifacts.names(__version__):
        assert name.replace(__version__, "X.Y.Z") in text
