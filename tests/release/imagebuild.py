"""Does what the Dockerfile says, without a Docker engine: each stage is a directory, each instruction is carried out.

Absolute paths are those inside the stage's directory. The base images are a fresh virtual environment of this Python
and the Node.js of this machine, so what is proven is our part: what is copied, built, installed and started.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.paths import REPOSITORY
from tools.dockerfile import ignored, instructions

TOP = ("src", "opt", "wheels", "app", "var")  # directories of a stage that instructions name by absolute paths


@dataclass
class Stage:
    """One stage: its directory, and the state that instructions leave behind."""

    root: Path
    base: str
    env: dict[str, str]
    workdir: str = "/"
    args: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    user: str = ""
    volumes: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    health: tuple[str, ...] = ()

    def inside(self, path: str) -> Path:
        """A path of the stage as a path of this machine."""
        return self.root / str(Path(self.workdir, path)).lstrip("/")

    def mapped(self, text: str) -> str:
        """Text with the absolute paths that a stage has turned into paths of this machine."""
        return re.sub(rf"(?<![\w./])/(?=(?:{'|'.join(TOP)})(?:/|\b))", f"{self.root}/", text)

    def filled(self, text: str) -> str:
        known = {**self.args, **self.env}
        return re.sub(r"\$\{?(\w+)\}?", lambda m: known.get(m[1], ""), text)


def context(directory: Path) -> Path:
    """What `docker build` would send: the files of the repository that .dockerignore lets through."""
    rules = [line for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    skipped = {".git", ".venv", "node_modules", "__pycache__", ".mypy_cache", ".hypothesis"}
    for folder, names, files in os.walk(REPOSITORY):
        names[:] = [name for name in names if name not in skipped]
        for name in files:
            path = Path(folder, name).relative_to(REPOSITORY)
            if not ignored(str(path), rules):
                target = directory / path
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(REPOSITORY / path, target)
    return directory


def build(directory: Path, **arguments: str) -> Stage:
    """Carries the Dockerfile out in this directory; the last stage."""
    sent = context(directory / "context")
    stages: dict[str, Stage] = {}
    outside: dict[str, str] = {}  # arguments before the first stage
    stage: Stage | None = None
    for name, rest in instructions((REPOSITORY / "Dockerfile").read_text()):
        if name == "FROM":
            image, _, called = rest.partition(" AS ")
            stage = _from(directory / (called or "final"), re.sub(r"\$\{(\w+)\}", lambda m: outside[m[1]], image))
            stages[called or "final"] = stage
        elif stage is None:
            assert name == "ARG", name
            key, _, value = rest.partition("=")
            outside[key] = value
        else:
            _carry_out(stage, name, rest, sent=sent, stages=stages, arguments=arguments)
    assert stage is not None
    return stage


def _from(root: Path, base: str) -> Stage:
    root.mkdir(parents=True)
    kept = {n: v for n, v in os.environ.items() if n in {"PATH", "HOME", "XDG_CACHE_HOME"} or n.startswith("npm_")}
    kept |= {n: v for n, v in os.environ.items() if n.upper().endswith("_PROXY") or n.startswith(("PIP_", "SSL_"))}
    if base.startswith("python:"):
        python = root.parent / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", python], check=True)
        kept["PATH"] = f"{python / 'bin'}:{kept['PATH']}"
    return Stage(root, base, kept)


def _carry_out(stage: Stage, name: str, rest: str, *, sent: Path, stages: dict[str, Stage], arguments: dict) -> None:
    match name:
        case "ARG":
            key, _, value = rest.partition("=")
            stage.args[key] = arguments.get(key, value)
        case "WORKDIR":
            stage.workdir = rest
            stage.inside(rest).mkdir(parents=True, exist_ok=True)
        case "COPY":
            _copy(stage, rest.split(), sent=sent, stages=stages)
        case "ENV":
            for word in rest.split():
                key, _, value = word.partition("=")
                stage.env[key] = stage.mapped(stage.filled(value))
        case "RUN":
            _run(stage, rest)
        case "LABEL":
            stage.labels |= {k: stage.filled(v) for k, v in re.findall(r'(\S+)="([^"]*)"', rest)}
        case "USER":
            stage.user = rest
        case "VOLUME":
            stage.volumes = tuple(rest.split())
        case "EXPOSE":
            stage.ports = tuple(map(int, rest.split()))
        case "ENTRYPOINT":
            stage.entrypoint = tuple(json.loads(rest))
        case "CMD":
            stage.cmd = tuple(json.loads(rest))
        case "HEALTHCHECK":
            stage.health = tuple(json.loads(rest.partition(" CMD ")[2]))
        case _:
            raise NotImplementedError(name)


def _copy(stage: Stage, words: list[str], *, sent: Path, stages: dict[str, Stage]) -> None:
    source = sent
    if words[0].startswith("--from="):
        other = stages[words.pop(0).removeprefix("--from=")]
        source = other.root
    *names, target = words
    to = stage.inside(target)
    for name in names:
        found = source / name.lstrip("/")
        assert found.exists(), f"COPY {name}: it is not in the context; see .dockerignore"
        if found.is_dir():
            shutil.copytree(found, to, dirs_exist_ok=True, symlinks=True)
        else:
            into = to / found.name if target.endswith("/") or len(names) > 1 else to
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(found, into)
    if source is not sent:
        _move_scripts(to / "bin", str(source), str(stage.root))


def _move_scripts(scripts: Path, before: str, after: str) -> None:
    """In an image, the environment has the same path in both stages; here, its scripts must learn the new one."""
    for script in scripts.glob("*") if scripts.is_dir() else ():
        if script.is_file() and not script.is_symlink() and script.read_bytes()[:2] == b"#!":
            script.write_text(script.read_text().replace(before, after))


def _run(stage: Stage, rest: str) -> None:
    if rest.startswith("npm ci") and _packages_are_here():
        stage.inside("node_modules").symlink_to(REPOSITORY / "web" / "node_modules")
        return
    command = stage.mapped(rest)
    if os.geteuid() != 0:  # only root can give files away
        command = re.sub(r"-[og] \d+ ", "", command)
    settings = {**stage.args, **stage.env}
    settings.pop("PIP_NO_CACHE_DIR", None)  # a cache changes nothing but the time
    done = subprocess.run(
        ["/bin/sh", "-ec", command], cwd=stage.inside("."), env=settings, capture_output=True, text=True
    )
    assert done.returncode == 0, f"RUN {rest}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


def _packages_are_here() -> bool:
    """Whether `npm ci` ran here for this very lock file."""
    stamp = REPOSITORY / "web" / "node_modules" / ".installed"
    return stamp.exists() and stamp.stat().st_mtime >= (REPOSITORY / "web" / "package-lock.json").stat().st_mtime
