"""What a release consists of: wheel, sdist and bill of materials, each the same twice; one version; known licences."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.environment import bare
from tests.needed import needed
from tests.paths import REPOSITORY
from tests.release import imagebuild
from tools import licences, sbom
from vgpuscope.version import __version__

EPOCH = "1767225600"
CONSOLE = "vgpuscope/http/assets/console/index.html"
WHEEL, SDIST = f"vgpuscope-{__version__}-py3-none-any.whl", f"vgpuscope-{__version__}.tar.gz"


def sources(directory: Path) -> Path:
    """A copy of what is under version control, and of the built console."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        check=True,
    ).stdout.decode()
    built = REPOSITORY / "src/vgpuscope/http/assets/console"
    assert (built / "index.html").exists(), "make console"
    for name in filter(None, names.split("\0")):
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (REPOSITORY / name).is_file():
            shutil.copy(REPOSITORY / name, target)  # with another time than the original
    shutil.copytree(built, directory / built.relative_to(REPOSITORY))
    return directory


def hatch(directory: Path, *kinds: str, path: str | None = None) -> None:
    """`hatchling build`, without Node.js on the path: the console is there."""
    program = Path(sys.executable).with_name("hatchling")
    done = subprocess.run(
        [program, "build", "-d", directory / "dist", *(word for kind in kinds for word in ("-t", kind))],
        cwd=directory,
        env=bare(SOURCE_DATE_EPOCH=EPOCH) | {"PATH": "/nowhere"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    directory = sources(tmp_path_factory.mktemp("first") / "vgpuscope")
    hatch(directory, "wheel", "sdist")
    return directory / "dist"


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_two_builds_in_two_places_give_the_same_bytes(dist, tmp_path):
    again = sources(tmp_path / "elsewhere")
    os.utime(again / "README.md", (1, 1))
    hatch(again, "wheel", "sdist")
    for name in (WHEEL, SDIST):
        assert digest(again / "dist" / name) == digest(dist / name), name


@pytest.mark.xdist_group("image")
def test_the_console_is_the_same_from_two_builds(image, tmp_path):
    """Built once in the image's stage and once in another place, from the same sources."""
    needed("npm", package="npm")
    first = image.root.parent / "console" / "src" / "src/vgpuscope/http/assets/console"
    web = tmp_path / "web"
    shutil.copytree(REPOSITORY / "web", web, ignore=shutil.ignore_patterns("node_modules"))
    (web / "node_modules").symlink_to(imagebuild.REPOSITORY / "web" / "node_modules")
    done = subprocess.run(["npx", "--no-install", "vite", "build"], cwd=web, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    second = tmp_path / "src/vgpuscope/http/assets/console"
    names = sorted(path.relative_to(first) for path in first.rglob("*") if path.is_file())
    assert len(names) >= 3
    for name in names:
        assert digest(first / name) == digest(second / name), name


def test_the_wheel_has_the_console_the_licences_and_nothing_foreign(dist):
    with zipfile.ZipFile(dist / WHEEL) as wheel:
        names = wheel.namelist()
    assert CONSOLE in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0] for name in names} == {"vgpuscope", f"vgpuscope-{__version__}.dist-info"}


def test_a_wheel_from_the_sdist_is_the_wheel_and_needs_no_node(dist, tmp_path):
    with tarfile.open(dist / SDIST) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # which 3.11.0 to 3.11.3 do not have
        archive.extractall(tmp_path)
    unpacked = tmp_path / f"vgpuscope-{__version__}"
    assert not (unpacked / "web" / "node_modules").exists()
    hatch(unpacked, "wheel")
    assert digest(unpacked / "dist" / WHEEL) == digest(dist / WHEEL)


def test_the_wheel_installs_into_a_clean_environment_as_pipx_does(dist, tmp_path):
    """pipx makes an environment, installs the wheel with its requirements, and links the command."""
    home = tmp_path / "pipx"
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    done = subprocess.run(
        [home / "bin/pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", dist / WHEEL],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "vgpuscope"
    command.symlink_to(home / "bin" / "vgpuscope")
    shown = subprocess.run([command, "--version"], capture_output=True, text=True, env=bare(), cwd=tmp_path)
    assert shown.stdout.strip() == f"vgpuscope {__version__}"
    assert "standalone" in subprocess.run([command], capture_output=True, text=True, env=bare(), cwd=tmp_path).stdout
    (packages,) = (home / "lib").glob("python*/site-packages")
    assert (packages / CONSOLE).exists()


def test_there_is_one_version():
    """version.py has it; everything else that names one follows."""
    dockerfile = (REPOSITORY / "Dockerfile").read_text()
    assert f"ARG VERSION={__version__}\n" in dockerfile
    named = {REPOSITORY / "deploy/compose/compose.yaml", REPOSITORY / "Dockerfile"}
    named |= {path for path in (REPOSITORY / "deploy").glob("*.yaml") if "image: vgpuscope" in path.read_text()}
    for path in named:
        assert set(re.findall(r"\bvgpuscope:(\d+\.[\w.]+)", path.read_text())) == {__version__}, path
    chart = REPOSITORY / "charts/vgpuscope/Chart.yaml"
    if chart.exists():
        about = yaml.safe_load(chart.read_text())
        assert str(about["appVersion"]) == __version__


def test_the_bill_of_materials_lists_what_is_locked_and_is_the_same_twice():
    first = sbom.bill()
    assert sbom.bill() == first
    made = json.loads(first)
    purls = {one["purl"] for one in made["components"]}
    locked = re.findall(r"^([\w.-]+)==([^ ;\\]+)", (REPOSITORY / "requirements/run.txt").read_text(), re.MULTILINE)
    assert {f"pkg:pypi/{name}@{version}" for name, version in locked} <= purls
    bundled = json.loads((REPOSITORY / "web/package.json").read_text())["dependencies"]
    for name, version in bundled.items():
        assert f"pkg:npm/{name.replace('@', '%40')}@{version}" in purls
    assert not [purl for purl in purls if "vitest" in purl or "hatchling" in purl]  # tools are not shipped
    assert made["metadata"]["component"]["version"] == __version__
    assert "://" not in re.sub(r'"\$schema": "[^"]*"', "", json.dumps(made["components"]))


def test_a_licence_that_is_not_allowed_is_found(monkeypatch, capsys):
    assert licences.main() == 0
    monkeypatch.setattr(licences, "console_packages", lambda: [("evil", {"license": "SSPL-1.0"})])
    assert licences.main() == 1
    assert "evil SSPL-1.0" in capsys.readouterr().out


def test_an_audit_without_its_databases_does_not_pass(tmp_path):
    """No answer is not the answer "none known"."""
    shutil.copytree(REPOSITORY / "tools", tmp_path / "tools")
    shutil.copytree(REPOSITORY / "requirements", tmp_path / "requirements")
    program = tmp_path / ".venv/audit/bin/pip-audit"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'ERROR:pip_audit._cli: could not connect' >&2\nexit 1\n")
    program.chmod(0o755)
    done = subprocess.run([tmp_path / "tools/audit"], capture_output=True, text=True, env=bare())
    assert done.returncode == 2
    assert "could not be asked" in done.stderr
    program.write_text("#!/bin/sh\necho 'Found 1 known vulnerability in 1 package'\nexit 1\n")
    done = subprocess.run([tmp_path / "tools/audit"], capture_output=True, text=True, env=bare())
    assert done.returncode in {1, 2}  # 2: the console's part could not be asked
    assert "Found 1 known vulnerability" in done.stdout
