"""The product's image, made by carrying the Dockerfile out without a container engine.

A stage is a stack of directories: the base image's, and one for each instruction that changes files, kept by what it
depends on. RUN gets them as its root file system by an overlay mount, in a mount namespace of its own. Python's base
image is a small Debian with this machine's Python; the stage of the console is the console that `make console` built.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from tools.cluster import archive, layout
from tools.cluster.errors import Failed, Lacking
from tools.cluster.progress import say
from tools.dockerfile import ignored, instructions

STORE = layout.CACHE / "cluster-images"
BASE_PACKAGES = (
    *("ca-certificates", "netbase", "tzdata", "libssl3", "libffi8", "libsqlite3-0", "zlib1g", "libbz2-1.0", "liblzma5"),
    *("libreadline8", "libncursesw6", "libexpat1", "libuuid1"),
)
CONSOLE = "src/vgpuscope/http/assets/console"
KEPT_SECONDS = 3600  # layers that no build used for so long are removed: each version of the sources makes some
_PASSED_ON = ("PIP_DEFAULT_TIMEOUT", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
_FROM_HERE = ("/etc/resolv.conf", "/etc/hosts", _AUTHORITIES)


@dataclass(frozen=True)
class Stage:
    """The layers of a stage, lowest first, and what instructions said of it."""

    layers: tuple[Path, ...]
    env: dict[str, str] = field(default_factory=dict)
    args: dict[str, str] = field(default_factory=dict)
    config: dict[str, object] = field(default_factory=dict)
    workdir: str = "/"

    def filled(self, text: str) -> str:
        values = {**self.args, **self.env}
        return re.sub(r"\$\{?(\w+)\}?", lambda match: values.get(match[1], ""), text)


def product(*, revision: str) -> archive.Image:
    """The image of this checkout."""
    STORE.mkdir(parents=True, exist_ok=True)
    arguments = {"REVISION": revision, "BUILD_DATE": archive.CREATED}
    stage = build(layout.REPOSITORY, base=python_base(), arguments=arguments)
    layers = [archive.layer(path / "files", path / "layer.tar") for path in stage.layers]
    name = f"{layout.PRODUCT_REPOSITORY}:{stage.args['VERSION']}"
    _forget_unused()
    return archive.Image(name, layers, config(stage))


def build(repository: Path, *, base: Path, arguments: dict[str, str]) -> Stage:
    """Carries out the Dockerfile of a checkout; the stage that is shipped."""
    stages: dict[str, Stage] = {}
    outside: dict[str, str] = {}
    name, stage = "", None
    for word, rest in instructions((repository / "Dockerfile").read_text()):
        if word == "FROM":
            picture, _, name = rest.partition(" AS ")
            picture = re.sub(r"\$\{(\w+)\}", lambda match: outside[match[1]], picture)
            # Node's stage is not carried out: its result is in the checkout
            stage = None if picture.startswith("node:") else _python_stage(base)
            if stage is not None:
                stages[name] = stage
        elif not stages and name == "" and word == "ARG":
            key, _, value = rest.partition("=")
            outside[key] = value
        elif stage is not None:
            stage = stages[name] = _carried_out(
                stage, word, rest, repository=repository, stages=stages, arguments=arguments
            )
    return stages[""]


def config(stage: Stage) -> dict[str, object]:
    """The image's configuration, as an engine writes it."""
    return {**stage.config, "Env": [f"{key}={value}" for key, value in stage.env.items()], "WorkingDir": stage.workdir}


def _python_stage(base: Path) -> Stage:
    return Stage((base,), {"PATH": "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"})


def _carried_out(
    stage: Stage, word: str, rest: str, *, repository: Path, stages: dict[str, Stage], arguments: dict[str, str]
) -> Stage:
    match word:
        case "ARG":
            key, _, value = rest.partition("=")
            return replace(stage, args={**stage.args, key: arguments.get(key, value)})
        case "ENV":
            pairs = dict(part.split("=", 1) for part in rest.split())
            return replace(stage, env={**stage.env, **{key: stage.filled(value) for key, value in pairs.items()}})
        case "LABEL":
            labels = {key: stage.filled(value) for key, value in re.findall(r'(\S+)="([^"]*)"', rest)}
            return _configured(stage, Labels=labels)
        case "USER":
            return _configured(stage, User=rest)
        case "EXPOSE":
            return _configured(stage, ExposedPorts={f"{port}/tcp": {} for port in rest.split()})
        case "VOLUME":
            return _configured(stage, Volumes={path: {} for path in rest.split()})
        case "ENTRYPOINT":
            return _configured(stage, Entrypoint=json.loads(rest))
        case "CMD":
            return _configured(stage, Cmd=json.loads(rest))
        case "HEALTHCHECK":  # Kubernetes has probes of its own, and the format of OCI has no field for it
            return stage
        case "WORKDIR":
            return replace(_run(stage, f"mkdir -p {rest}"), workdir=rest)
        case "RUN":
            return _run(stage, rest)
        case "COPY":
            return _copy(stage, rest.split(), repository, stages)
        case _:
            raise NotImplementedError(f"instruction {word} of the Dockerfile")


def _configured(stage: Stage, **values: object) -> Stage:
    return replace(stage, config={**stage.config, **values})


def _run(stage: Stage, command: str) -> Stage:
    """The layer that a command adds, run as root in the stage's files."""
    environ = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    environ |= {"PIP_CERT": _AUTHORITIES, **stage.args, **stage.env}
    key = _key([str(path) for path in stage.layers], command, stage.workdir, {**stage.args, **stage.env})
    script = 'cd "$1"; shift; exec "$@"'

    def fill(files: Path, work: Path) -> None:
        lower = ":".join(str(path / "files") for path in reversed(stage.layers))
        root = work / "root"
        (work / "overlay").mkdir()
        root.mkdir()
        mounts = f"mount -t overlay -o lowerdir={lower},upperdir={files},workdir={work}/overlay image {root}\n"
        mounts += f"mount -t proc proc {root}/proc\nmount --rbind /dev {root}/dev\nmount -t tmpfs tmp {root}/tmp\n"
        for path in filter(os.path.exists, _FROM_HERE):
            mounts += f"[ -e {root}{path} ] && mount --bind -o ro {path} {root}{path}\n"
        mounts += f'exec chroot {root} /bin/sh -ec {_quoted(script)} sh "$@"'
        words = ["unshare", "-m", "--propagation", "private", "sh", "-ec", mounts, "sh"]
        inner = [stage.workdir, "/bin/sh", "-ec", command]
        done = subprocess.run([*words, *inner], env=environ, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"RUN {command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")

    say_what = command if len(command) < 60 else f"{command[:57]}…"
    return replace(stage, layers=(*stage.layers, _kept(key, fill, f"RUN {say_what}")))


def _copy(stage: Stage, words: list[str], repository: Path, stages: dict[str, Stage]) -> Stage:
    """The layer that a COPY adds; from the checkout, from the console that was built there, or from another stage."""
    other = words.pop(0).removeprefix("--from=") if words[0].startswith("--from=") else None
    *names, target = words
    to = os.path.join(stage.workdir, target)
    if other is None:
        files = [path for name in names for path in _context(repository, name)]
        content = hashlib.sha256()
        for path in files:
            content.update(f"{path.relative_to(repository)}\0{path.stat().st_mode}\0".encode() + path.read_bytes())
        key = _key("context", names, to, content.hexdigest())
    elif other in stages:
        key = _key([str(path) for path in stages[other].layers], names, to)
    else:
        console = repository / CONSOLE
        if not (console / "index.html").exists():
            raise Lacking("the console is not built: run `make console`")
        files = sorted(path for path in console.rglob("*") if path.is_file())
        key = _key("console", to, [hashlib.sha256(path.read_bytes()).hexdigest() for path in files])

    def fill(new: Path, _work: Path) -> None:
        if other is None:
            for name in names:
                source = repository / name
                into = f"{to}/{source.name}" if source.is_file() and (len(names) > 1 or target.endswith("/")) else to
                for path in _context(repository, name):
                    _install(path, new / os.path.normpath(into).lstrip("/") / path.relative_to(source))
        elif other in stages:
            for layer in stages[other].layers[1:]:  # the base is the same
                for name in names:
                    source = layer / "files" / name.lstrip("/")
                    if source.exists():  # links, because no layer changes once it is filled
                        _linked(source, new / to.lstrip("/"))
        else:
            shutil.copytree(repository / CONSOLE, new / to.lstrip("/"))

    return replace(stage, layers=(*stage.layers, _kept(key, fill, f"COPY {' '.join(names)}")))


def _linked(source: Path, target: Path) -> None:
    """The files of a later layer replace those of an earlier one."""

    def link(file: str, copy: str) -> None:
        Path(copy).unlink(missing_ok=True)
        os.link(file, copy)

    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, copy_function=link)


def _install(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def _context(repository: Path, name: str) -> list[Path]:
    """The files of the checkout that an engine would be sent under this name."""
    rules = [line for line in (repository / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    source = repository / name
    paths = [source] if source.is_file() else sorted(path for path in source.rglob("*") if path.is_file())
    return [path for path in paths if not ignored(str(path.relative_to(repository)), rules)]


def python_name() -> str:
    """The interpreter of the image, as its directories are named."""
    version = re.search(r"PYTHON_IMAGE=python:(\d+\.\d+)", (layout.REPOSITORY / "Dockerfile").read_text())
    assert version is not None
    return f"python{version[1]}"


def python_base() -> Path:
    """The layer in place of the base image: Debian 12, with this machine's Python of the same version in /usr/local."""
    script = layout.REPOSITORY / "tools" / "python"
    short = python_name()
    version = short.removeprefix("python")
    found = subprocess.run([script, version], capture_output=True, text=True, check=False).stdout.strip()
    python = found or (sys.executable if sys.version.startswith(f"{version}.") else "")
    if not python:
        raise Lacking(f"the image needs Python {version}, and this machine has none outside /usr")
    ask = "import sys, platform; print(sys.base_prefix, platform.python_version())"
    prefix, full = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.split()
    if prefix == "/usr":
        raise Lacking(f"the image needs a Python {version} in a directory of its own, and {python} belongs to Debian")

    def fill(files: Path, _work: Path) -> None:
        say("installing a small Debian, once: about a minute")
        words = ["debootstrap", "--variant=minbase", f"--include={','.join(BASE_PACKAGES)}", "bookworm", str(files)]
        done = subprocess.run(
            ["unshare", "-m", "--propagation", "private", *words], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Failed(f"debootstrap: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        for name in (
            "var/cache/apt",
            "var/lib/apt/lists",
            "var/log",
            "usr/share/doc",
            "usr/share/man",
            "usr/share/locale",
        ):
            shutil.rmtree(files / name, ignore_errors=True)
        skip = shutil.ignore_patterns("test", "tests", "idlelib", "*.a", "*.pth", "site-packages", "config-*")
        shutil.copytree(f"{prefix}/lib/{short}", files / "usr/local/lib" / short, symlinks=True, ignore=skip)
        site = files / "usr/local/lib" / short / "site-packages"
        site.mkdir()
        for library in Path(prefix, "lib").glob("libpython*.so*"):
            shutil.copy2(library, files / "usr/local/lib", follow_symlinks=False)
        shutil.copy2(f"{prefix}/bin/{short}", files / "usr/local/bin" / short)
        for name in ("python3", "python"):
            (files / "usr/local/bin" / name).symlink_to(short)
        (files / "usr/local/bin/pip").write_text('#!/bin/sh\nexec /usr/local/bin/python3 -m pip "$@"\n')
        (files / "usr/local/bin/pip").chmod(0o755)
        modules = "import ssl, sqlite3, ctypes, bz2, lzma, readline, uuid"
        for command in (["ldconfig"], ["python3", "-m", "ensurepip"], ["python3", "-c", modules]):
            subprocess.run(["chroot", str(files), *command], check=True, capture_output=True)

    return _kept(_key("base", full, prefix, BASE_PACKAGES), fill, "")


def _kept(key: str, fill: Callable[[Path, Path], None], words: str) -> Path:
    """The directory of a layer, filled once; its files are in `files`."""
    path = STORE / key
    if not path.exists():
        if words:
            say(f"image: {words}")
        part = STORE / f"{key}.part"
        _remove(part)
        (part / "files").mkdir(parents=True)
        work = part / "work"
        work.mkdir()
        fill(part / "files", work)
        _remove(work)
        part.rename(path)
    os.utime(path)
    return path


def _forget_unused() -> None:
    for path in STORE.iterdir():
        if time.time() - path.stat().st_mtime > KEPT_SECONDS:
            _remove(path)


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)


def _key(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
