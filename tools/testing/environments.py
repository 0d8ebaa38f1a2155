"""`python -m tools.testing.environments 3.12 3.11`: virtual environments with locked dependencies, one for each Python.

`.venv` serves the version that it has; another version has its own in `.venv/VERSION`.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements" / "dev.txt"


class PythonMissing(Exception):
    """There is no Python of this version."""


def environment(version: str) -> Path:
    """The Python of an environment of this version, which is made if necessary; raises PythonMissing."""
    if version == "{}.{}".format(*sys.version_info):
        return Path(sys.executable)
    home = ROOT / ".venv" / version
    python, stamp = home / "bin" / "python", home / ".installed"
    newest = max(file.stat().st_mtime for file in (LOCK, ROOT / "pyproject.toml"))
    if not stamp.exists() or stamp.stat().st_mtime < newest:
        found = subprocess.run([ROOT / "tools" / "python", version], stdout=subprocess.PIPE, text=True, check=False)
        if found.returncode:
            raise PythonMissing(f"Python {version} is missing")
        print(f"vgpuscope: setting up .venv/{version} (once, about a minute)", flush=True)
        subprocess.run([found.stdout.strip(), "-m", "venv", "--clear", home], check=True)
        pip = [str(python), "-m", "pip", "install", "--no-compile", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--require-hashes", "--no-deps", "-r", str(LOCK)], check=True)
        subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-e", str(ROOT)], check=True)
        stamp.touch()
    return python


def main() -> int:
    for version in sys.argv[1:]:
        try:
            environment(version)
        except PythonMissing as e:
            print(f"vgpuscope: {e}; the tests do not run on it")
            if os.environ.get("CI") == "true":
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
