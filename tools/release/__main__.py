"""Makes a release up to the push: `python -m tools.release [--dry-run]`; `artifacts` makes only the files in dist/.

A dry run does all that changes nothing outside of a temporary directory. It needs no Docker and no network, so CI does
it for every change.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from tools.release import artifacts
from tools.release.artifacts import git
from vgpuscope.catalog.deprecations import overdue
from vgpuscope.version import __version__

ROOT = Path(__file__).resolve().parents[2]
BASES = ("IMAGE", "PYTHON_IMAGE", "NODE_IMAGE")


def notes(changelog: str, version: str) -> tuple[str, str]:
    """What is in parentheses in the heading of a version, and the section below it; both empty if there is none."""
    found = re.search(rf"^## {re.escape(version)} \(([^)\n]*)\)$(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    return (found[1], found[2].strip() + "\n") if found else ("", "")


def contradictions(root: Path, version: str) -> list[str]:
    """Why no release can be made of these sources, whatever the checkout is like."""
    found = []
    if not notes((root / "CHANGELOG.md").read_text(), version)[1].strip():
        found.append(f"CHANGELOG.md has no section for {version}")
    named = re.findall(r"^(?:version|appVersion): (\S+)$", (root / "charts/vgpuscope/Chart.yaml").read_text(), re.M)
    if named != [version, version]:
        found.append(f"the chart has the versions {' and '.join(named)}, not {version}: make gen")
    if f"ARG VERSION={version}\n" not in (root / "Dockerfile").read_text():
        found.append(f"Dockerfile has another version than {version}")
    found += [f"{row.name} had to be removed: {row.note}" for row in overdue(version, datetime.now(UTC).date())]
    return found


def unready(root: Path, version: str) -> list[str]:
    """What has to be done before these sources are released."""
    found = []
    dated = notes((root / "CHANGELOG.md").read_text(), version)[0]
    if not re.fullmatch(r"20\d\d-\d\d-\d\d", dated):
        found.append(f"the heading of {version} in CHANGELOG.md has no date: ({dated})")
    if git(root, "status", "--porcelain"):
        found.append("the checkout has changes: the tag would not name what is built")
    tagged = git(root, "rev-parse", "--verify", "--quiet", f"v{version}^{{commit}}")
    if tagged and tagged != git(root, "rev-parse", "HEAD"):
        found.append(f"v{version} is the tag of another commit: set the next version in src/vgpuscope/version.py")
    found += [f"{name} is not named: RELEASING.md has an example" for name in BASES if not os.environ.get(name)]
    return found


def rehearse(root: Path, version: str) -> int:
    """The files in a temporary directory, checked; what is still to be done is listed and is no failure."""
    with tempfile.TemporaryDirectory(prefix="vgpuscope-release-") as temporary:
        directory = Path(temporary)
        artifacts.build(root, directory, version=version)
        artifacts.seal(root, directory, version=version)
        wrong = artifacts.faults(directory, version=version)
        sums = (directory / artifacts.SUMS).read_text()
    print(sums, end="")
    for fault in wrong:
        print(f"release: {fault}", file=sys.stderr)
    for reason in unready(root, version):
        print(f"release: before the release: {reason}")
    print(f"release: dry run of {version}: nothing was audited, tagged, built as an image, or left behind")
    return 1 if wrong else 0


def release(root: Path, version: str) -> int:
    """Everything up to the push. Each step that fails ends it; what was made until then is only in dist/."""
    reasons = unready(root, version)
    for reason in reasons:
        print(f"release: {reason}", file=sys.stderr)
    if reasons:
        return 2
    directory = root / "dist"
    if subprocess.run(["make", "licences", "audit"], cwd=root, check=False).returncode:
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    artifacts.build(root, directory, version=version)
    bases = [os.environ[name] for name in BASES]
    if subprocess.run(["tools/image", "build", *bases], cwd=root, check=False).returncode:
        return 1
    artifacts.seal(root, directory, version=version)
    wrong = artifacts.faults(directory, version=version)
    if wrong:
        print("\n".join(f"release: {fault}" for fault in wrong), file=sys.stderr)
        return 1
    (directory / "NOTES.md").write_text(notes((root / "CHANGELOG.md").read_text(), version)[1])
    if not git(root, "tag", "--list", f"v{version}"):
        subprocess.run(["git", "tag", "-a", f"v{version}", "-m", f"vgpuscope {version}"], cwd=root, check=True)
    print((directory / artifacts.SUMS).read_text(), end="")
    print(f"release: {version} is in dist/ and tagged. Nothing was pushed; RELEASING.md says how to push it")
    return 0


def main(argv: list[str]) -> int:
    """One of: the files alone, a dry run, a release."""
    if argv == ["artifacts"]:
        artifacts.build(ROOT, ROOT / "dist", version=__version__)
        artifacts.seal(ROOT, ROOT / "dist", version=__version__)
        print((ROOT / "dist" / artifacts.SUMS).read_text(), end="")
        return 0
    wrong = contradictions(ROOT, __version__)
    for fault in wrong:
        print(f"release: {fault}", file=sys.stderr)
    if wrong:
        return 2
    return rehearse(ROOT, __version__) if argv == ["--dry-run"] else release(ROOT, __version__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
