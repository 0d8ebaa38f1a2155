"""What a release consists of: wheel, sdist, chart, bill of materials, provenance and checksums.

The same commit gives the same bytes: every file in them has the time of the last commit.
"""

import gzip
import hashlib
import json
import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

from tools import sbom
from tools.project import REPOSITORY_URL

_LOCKS = ("requirements/run.txt", "requirements/build.txt", "web/package-lock.json")
_UNSTAMPED = "1767225600"  # the time of the files of a copy without Git
SUMS, PROVENANCE, BILL = "SHA256SUMS", "provenance.json", "vgpuscope.cdx.json"


def names(version: str) -> tuple[str, ...]:
    """The files that the checksums name; that of the image is there if it was built."""
    return (
        f"vgpuscope-{version}-py3-none-any.whl",
        f"vgpuscope-{version}.tar.gz",
        f"vgpuscope-{version}.tgz",  # the chart, under the name that Helm gives it
        BILL,
        PROVENANCE,
    )


def build(root: Path, directory: Path, *, version: str) -> None:
    """Wheel, sdist, chart and bill of materials."""
    directory.mkdir(parents=True, exist_ok=True)
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or git(root, "log", "-1", "--format=%ct") or _UNSTAMPED
    hatchling = Path(sys.executable).with_name("hatchling")
    subprocess.run(
        [hatchling, "build", "-d", directory], cwd=root, check=True, env=os.environ | {"SOURCE_DATE_EPOCH": epoch}
    )
    (directory / f"vgpuscope-{version}.tgz").write_bytes(chart(root / "charts" / "vgpuscope", epoch=int(epoch)))
    (directory / BILL).write_text(sbom.bill())


def chart(folder: Path, *, epoch: int) -> bytes:
    """The chart as `helm package` makes it, but the same each time."""
    raw = BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        for path in sorted(files, key=lambda path: path.name != "Chart.yaml"):  # Helm writes it first
            about = tarfile.TarInfo(f"{folder.name}/{path.relative_to(folder).as_posix()}")
            about.size, about.mtime, about.mode = path.stat().st_size, epoch, 0o644
            archive.addfile(about, BytesIO(path.read_bytes()))
    packed = BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=epoch) as stream:
        stream.write(raw.getvalue())
    return packed.getvalue()


def seal(root: Path, directory: Path, *, version: str) -> None:
    """The provenance of all files in the directory, and the checksums of all."""
    made = sorted(path for path in directory.iterdir() if path.name.startswith("vgpuscope"))
    statement = provenance(root, [(path.name, _sha256(path)) for path in made], version=version)
    (directory / PROVENANCE).write_text(json.dumps(statement, indent=2, sort_keys=True) + "\n")
    listed = [*made, directory / PROVENANCE]
    (directory / SUMS).write_text("".join(f"{_sha256(path)}  {path.name}\n" for path in listed))


def provenance(root: Path, subjects: list[tuple[str, str]], *, version: str) -> dict[str, Any]:
    """An in-toto statement with the predicate of SLSA v1: from which commit and which locks the files were made."""
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in subjects],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{REPOSITORY_URL}/blob/v{version}/RELEASING.md",
                "externalParameters": {"command": "make release", "version": version},
                "resolvedDependencies": [
                    {"uri": f"git+{REPOSITORY_URL}", "digest": {"gitCommit": git(root, "rev-parse", "HEAD")}},
                    *({"uri": f"file:{name}", "digest": {"sha256": _sha256(root / name)}} for name in _LOCKS),
                ],
            },
            "runDetails": {
                "builder": {"id": os.environ.get("BUILDER") or f"{REPOSITORY_URL}/blob/v{version}/Makefile"}
            },
        },
    }


def faults(directory: Path, *, version: str) -> list[str]:
    """What is wrong with the files of a release: missing ones, and those that are not what the checksums say."""
    missing = [f"{name} is missing" for name in (*names(version), SUMS) if not (directory / name).exists()]
    if missing:
        return missing
    listed = {
        name: sha for sha, _, name in (line.partition("  ") for line in (directory / SUMS).read_text().splitlines())
    }
    unlisted = [f"{name} has no checksum" for name in names(version) if name not in listed]
    changed = [f"{name} is not what {SUMS} says" for name, sha in listed.items() if _sha256(directory / name) != sha]
    return unlisted + changed


def git(root: Path, *words: str) -> str:
    """The output of a command of Git; empty if it fails, as in a copy without a repository."""
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
