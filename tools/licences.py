"""Checks the licences of everything that the image ships: `python -m tools.licences`.

Python packages are those of requirements/run.txt that are installed here; pip-licenses reads their metadata and the
list of allowed licences in pyproject.toml. The packages of the console state their licence in the lock file.
"""

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from tools.sbom import ROOT, console_packages

_PROGRAM = Path(sys.executable).with_name("pip-licenses")


def allowed() -> frozenset[str]:
    """The licences that pyproject.toml allows."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pip-licenses"]
    return frozenset(name.strip() for name in settings["allow-only"].split(";"))


def python_packages() -> list[str]:
    """The locked packages that are installed here; the others belong to other platforms."""
    locked = re.findall(r"^([\w.-]+)==", (ROOT / "requirements" / "run.txt").read_text(), re.MULTILINE)
    here = {re.sub(r"[-_.]+", "-", one.name).lower() for one in metadata.distributions()}
    return [name for name in locked if name in here]


def refused_in_console() -> list[str]:
    """Packages of the console with a licence that is not allowed."""
    known = allowed()
    return [f"{name} {entry.get('license')}" for name, entry in console_packages() if entry.get("license") not in known]


def main() -> int:
    """1 if a licence is not allowed."""
    names = python_packages()
    done = subprocess.run([_PROGRAM, "--packages", *names, "--format=csv"], capture_output=True, text=True, check=False)
    refused = refused_in_console()
    if done.returncode or refused:
        print(f"licences: not allowed: {done.stderr.strip()} {', '.join(refused)}".rstrip())
        print("licences: read the licence, then add it to tool.pip-licenses in pyproject.toml, or drop the package")
        return 1
    print(f"licences: {len(names)} Python packages and {len(list(console_packages()))} of the console are allowed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
