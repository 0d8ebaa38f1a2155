"""Builds the web console into wheel and sdist. Without Node.js the package is built without it, and /ui/ says why."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_BUILT = "src/vgpuscope/http/assets/console/index.html"


class ConsoleHook(BuildHookInterface[Any]):
    """Runs npm once, if the console is not built yet."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        if version == "editable":
            return  # `make` builds it for an editable installation
        if not (root / _BUILT).exists() and (root / "web" / "package.json").exists():
            _build(root / "web")
        build_data["artifacts"].append("src/vgpuscope/http/assets/console/**")


def _build(web: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        print("vgpuscope: without Node.js the package has no web console", file=sys.stderr)
        return
    for step in (["ci"], ["run", "build"]):
        done = subprocess.run([npm, *step, "--loglevel=error"], cwd=web, check=False)  # noqa: S603
        if done.returncode:
            print(f"vgpuscope: npm {step[0]} failed, so the package has no web console", file=sys.stderr)
            return
