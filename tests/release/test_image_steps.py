"""The release image: bases by digest only, with provenance, and what is signed is named by digest."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.environment import bare
from tests.paths import REPOSITORY

DIGEST = "sha256:" + "0123456789abcdef" * 4
PYTHON, NODE = (
    line.partition("=")[2]
    for name in ("PYTHON_IMAGE", "NODE_IMAGE")
    for line in (REPOSITORY / "Dockerfile").read_text().splitlines()
    if line.startswith(f"ARG {name}=")
)
WORKFLOWS = REPOSITORY / ".github" / "workflows"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A clean checkout with the tool, and programs that write down how they are called."""
    (tmp_path / "tools").mkdir()
    for name in ("tools/image", "Dockerfile"):
        shutil.copy(REPOSITORY / name, tmp_path / name)
    (tmp_path / ".gitignore").write_text("bin/\ndist/\ncalls\n")
    programs = tmp_path / "bin"
    programs.mkdir()
    metadata = f'echo \'{{"containerimage.digest": "{DIGEST}"}}\' > dist/image.json'
    for name, more in (("docker", metadata), ("cosign", "true")):
        (programs / name).write_text(f'#!/bin/sh\necho "{name} $*" >> calls\n{more}\n')
        (programs / name).chmod(0o755)
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-qm", "x"],
    ):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def image(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = f"{checkout / 'bin'}:{os.environ['PATH']}"
    return subprocess.run(
        ["tools/image", *words], cwd=checkout, env=bare() | {"PATH": path}, capture_output=True, text=True, check=False
    )


def calls(checkout: Path) -> list[str]:
    log = checkout / "calls"
    return log.read_text().splitlines() if log.exists() else []


@pytest.mark.parametrize(
    ("python", "node", "word"),
    [
        (PYTHON, f"{NODE}@{DIGEST}", "PYTHON_IMAGE needs a digest"),
        (f"{PYTHON}@{DIGEST}", NODE, "NODE_IMAGE needs a digest"),
        (f"{PYTHON}@sha256:0123", f"{NODE}@{DIGEST}", "PYTHON_IMAGE needs a digest"),
        (f"{PYTHON}@{DIGEST}x", f"{NODE}@{DIGEST}", "PYTHON_IMAGE needs a digest"),
        (f"python:3.99@{DIGEST}", f"{NODE}@{DIGEST}", "PYTHON_IMAGE is python:"),
        (f"{NODE}@{DIGEST}", f"{NODE}@{DIGEST}", "PYTHON_IMAGE is python:"),
    ],
)
def test_a_base_without_the_digest_of_the_tested_tag_builds_nothing(checkout, python, node, word):
    done = image(checkout, "example.com/vgpuscope:0.1.0", python, node)
    assert (done.returncode, calls(checkout)) == (2, [])
    assert word in done.stderr


def test_what_is_not_committed_builds_nothing(checkout):
    (checkout / "Dockerfile").write_text((checkout / "Dockerfile").read_text() + "# more\n")
    done = image(checkout, "example.com/vgpuscope:0.1.0", f"{PYTHON}@{DIGEST}", f"{NODE}@{DIGEST}")
    assert (done.returncode, calls(checkout)) == (2, [])


def test_the_image_has_pinned_bases_and_provenance_and_its_digest_is_signed(checkout):
    assert image(checkout, "sign").returncode == 2  # nothing to sign yet
    mirror = f"mirror.example.com/library/{PYTHON}@{DIGEST}"
    done = image(checkout, "example.com/vgpuscope:0.1.0", mirror, f"{NODE}@{DIGEST}")
    assert done.returncode == 0, done.stderr
    [build] = [call for call in calls(checkout) if call.startswith("docker buildx build")]
    revision = subprocess.run(["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True, check=True)
    for word in (
        "--push",
        "--provenance=mode=max",
        "--sbom=true",
        f"PYTHON_IMAGE={mirror}",
        f"NODE_IMAGE={NODE}@{DIGEST}",
        f"REVISION={revision.stdout.strip()}",
    ):
        assert word in build
    assert (checkout / "dist/image.txt").read_text() == f"example.com/vgpuscope@{DIGEST}\n"
    assert image(checkout, "sign").returncode == 2  # SHA256SUMS is missing
    for name in ("SHA256SUMS", "provenance.json", "vgpuscope.cdx.json"):
        (checkout / "dist" / name).write_text("x")
    assert image(checkout, "sign").returncode == 0
    signed = [call for call in calls(checkout) if call.startswith("cosign")]
    assert [call.split()[1] for call in signed] == ["sign", "attest", "sign-blob", "sign-blob"]
    assert all(call.endswith(f"@{DIGEST}") for call in signed[:2])


def targets_of(file: Path) -> list[str]:
    """The targets of the Makefile that a workflow calls, in order."""
    found = []
    for job in yaml.safe_load(file.read_text())["jobs"].values():
        assert job["timeout-minutes"]
        for step in job["steps"]:
            assert "uses" not in step  # no action of others: only what is in this repository runs
            assert "inputs." not in step["run"]  # an input is text of a person, not of a script
            found += [
                word
                for line in step["run"].splitlines()
                if line.startswith("make ")
                for word in line.split()[1:]
                if "=" not in word
            ]
    return found


def test_workflows_have_few_rights_and_call_targets_that_exist():
    known = {line.partition(":")[0] for line in (REPOSITORY / "Makefile").read_text().splitlines() if ":" in line}
    files = sorted(WORKFLOWS.glob("*.yml"))
    assert [one.name for one in files] == ["check.yml", "dependencies.yml", "nightly.yml", "release.yml"]
    for file in files:
        assert yaml.safe_load(file.read_text())["permissions"] == {"contents": "read"}
        assert set(targets_of(file)) <= known


def test_each_night_dependencies_are_audited_and_attacks_tried():
    assert "schedule" in (WORKFLOWS / "nightly.yml").read_text()
    assert {"audit", "attack", "fuzz", "soak", "audit-worlds"} <= set(targets_of(WORKFLOWS / "nightly.yml"))


def test_a_change_is_checked_on_every_python_that_is_promised_and_its_release_is_tried():
    assert targets_of(WORKFLOWS / "check.yml") == ["check", "release", "test-fast"]
    matrix = yaml.safe_load((WORKFLOWS / "check.yml").read_text())["jobs"]["python"]["strategy"]["matrix"]["version"]
    lowest = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["requires-python"]
    (image,) = re.findall(r"^IMAGE_PYTHON +:= (\S+)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    assert lowest == f">={matrix[0]}"
    assert image in matrix
    numbers = [int(version.removeprefix("3.")) for version in matrix]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))  # no version between them is left out


def test_a_release_is_made_before_it_is_pushed_and_signed_at_the_end():
    assert targets_of(WORKFLOWS / "release.yml") == ["release", "image", "sign"]


def test_an_image_for_the_archive_is_not_pushed(checkout):
    done = image(checkout, "build", "example.com/vgpuscope:0.1.0", f"{PYTHON}@{DIGEST}", f"{NODE}@{DIGEST}")
    assert done.returncode == 0, done.stderr
    [build] = [call for call in calls(checkout) if call.startswith("docker buildx build")]
    assert "type=oci,dest=dist/vgpuscope-image.oci.tar" in build
    assert "--push" not in build
    assert not (checkout / "dist/image.txt").exists()  # there is no digest in a registry that could be signed
