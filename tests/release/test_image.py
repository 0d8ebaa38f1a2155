"""The image: what the Dockerfile makes, run as `docker run` would, the way gpu-oour documents it."""

import contextlib
import json
import os
import re
import shutil
import stat
import subprocess
import time
from pathlib import Path

import pytest

from tests.paths import REPOSITORY, TESTS
from tests.ports import free_port
from tests.release.conftest import REVISION
from tests.services.agent.noderoot import WITHIN, RunningAgent
from tests.services.analyzer.promstub import SpoilingServer
from tests.services.analyzer.test_analyzer import fleet
from tools.dockerfile import instructions
from vgpuscope.config import Config
from vgpuscope.version import __version__

pytestmark = pytest.mark.xdist_group("image")  # it is built once
CONFIG = TESTS / "fixtures" / "gpu-oour" / "config.yaml"
KEY = "sk-your-key"


def docker_run(image, *command, **environ):
    """Command, environment, directory and user as an engine would start them; command replaces CMD, as there."""
    words = [*image.entrypoint, *(command or image.cmd)]
    kept = {name: image.env[name] for name in image.env if name.isupper() and not name.startswith(("HOME", "PIP_"))}
    words[0] = str(image.root / "opt" / "vgpuscope" / "bin" / words[0])
    return {"args": [*_as_user(image), *words], "env": {**kept, **environ}, "cwd": image.inside(".")}


def _as_user(image):
    """As the image's user. It may read everything, because this Python may be in a home directory; it may not write."""
    if os.geteuid() != 0:
        return []
    user, _, group = image.user.partition(":")
    reading = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
    return ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", *reading]


@contextlib.contextmanager
def container(image, **environ):
    """A running container with gpu-oour's config.yaml at /app/config.yaml; a port of its own, as with -p."""
    port = free_port()
    log = image.root / "log"
    shutil.copy(CONFIG, image.inside("config.yaml"))
    # an engine has a network of its own for 0.0.0.0:8080; here others may use that port
    started = docker_run(image, VGPUSCOPE_ANALYZER_LISTEN=f"127.0.0.1:{port}", **environ)
    with log.open("w") as out:
        process = subprocess.Popen(**started, stdout=out, stderr=out)
    try:
        yield RunningAgent(process, f"http://127.0.0.1:{port}", log)
    finally:
        process.kill()
        process.wait()
        image.inside("config.yaml").unlink()


def _json(running, path):
    return json.loads(running.get(path)[2])


async def test_docker_run_with_the_config_file_and_variables_of_gpu_oour(image):
    import asyncio

    async with SpoilingServer(fleet(now=time.time())) as prometheus:
        model = {"AI_ENABLED": "true", "AI_API_KEY": KEY, "AI_API_URL": "http://127.0.0.1:9/v1"}  # nobody is there
        with container(image, PROM_URL=prometheus.url, THRESHOLD="20", **model) as running:
            await asyncio.to_thread(
                running.wait, lambda: running.status("/results") == 200 and _json(running, "/results")
            )
            found = await asyncio.to_thread(_look, running, image)
        log = running.log.read_text()
    health, about, page, alive, dead = found
    assert (health["status"], health["ai_enabled"], "without_effect" in health) == ("healthy", True, False)
    assert health["history"] is True
    assert about["config"]["threshold"] == 20
    assert b"<!doctype html>" in page.lower()
    assert alive == 0
    assert dead == 1
    assert (image.root / "var/lib/vgpuscope/history.db").exists()
    assert "settings read file=" in log
    assert "app/config.yaml" in log
    assert KEY not in log
    assert "Traceback" not in log


def _look(running, image):
    listen = running.url.removeprefix("http://")
    answers = _json(running, "/health"), _json(running, "/"), running.get("/ui/", Accept="text/html")[2]
    alive = _health_check(image, listen)
    running.process.terminate()
    assert running.process.wait(WITHIN) == 0, running.log.read_text()
    return *answers, alive, _health_check(image, listen)


def _health_check(image, listen):
    """HEALTHCHECK, as an engine runs it: beside the process, with the same environment."""
    closed = f"127.0.0.1:{free_port()}"
    others = {"VGPUSCOPE_AGENT_LISTEN": closed, "VGPUSCOPE_CLUSTER_LISTEN": closed}
    started = docker_run(image, *image.health[1:], VGPUSCOPE_ANALYZER_LISTEN=listen, **others)
    return subprocess.run(**started, capture_output=True, timeout=WITHIN).returncode


def test_what_is_shipped(image):
    packages = next((image.root / "opt/vgpuscope/lib").glob("python*/site-packages"))
    assert (packages / "vgpuscope/http/assets/console/index.html").exists()
    assert list((packages / "vgpuscope/http/assets/console/assets").glob("*.js"))
    assert (packages / f"vgpuscope-{__version__}.dist-info/licenses/LICENSE").exists()
    assert os.access(image.root / "opt/vgpuscope/bin/wget", os.X_OK)  # for commands of the HAMi handbook
    assert not list(packages.glob("pip*"))
    assert not list(packages.glob("hatchling*"))
    assert not [name for name in os.listdir(packages) if name.startswith(("test", "tools", "bench"))]
    assert f'REVISION = "{REVISION}"' in (packages / "vgpuscope/version.py").read_text()
    locked = set(re.findall(r"^([\w.-]+)==", (REPOSITORY / "requirements/run.txt").read_text(), re.MULTILINE))
    names = {_name(path) for path in packages.glob("*.dist-info")}
    assert names - {"vgpuscope"} <= {name.lower().replace("_", "-") for name in locked}


def _name(path):
    return re.match(r"(.+?)-\d", path.name)[1].lower().replace("_", "-").replace(".", "-")


def test_the_user_of_the_image_can_write_the_history_and_nothing_else(image):
    uid = int(image.user.partition(":")[0])
    assert uid != 0
    for path in (image.root / "opt").rglob("*"):
        found = path.lstat()
        assert path.is_symlink() or not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH), path
        assert found.st_uid != uid, path
    if os.geteuid() == 0:
        assert (image.root / "var/lib/vgpuscope").stat().st_uid == uid


def test_what_the_image_declares(image):
    assert image.workdir == "/app"
    assert (image.entrypoint, image.cmd) == (("vgpuscope",), ("analyzer",))
    assert image.volumes == ("/var/lib/vgpuscope",)
    listens = {getattr(Config(), name).listen for name in ("analyzer", "agent", "plugin", "cluster", "extender")}
    assert {f"0.0.0.0:{port}" for port in image.ports} == listens
    assert image.labels["org.opencontainers.image.version"] == __version__
    assert image.labels["org.opencontainers.image.revision"] == REVISION
    assert image.labels["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_base_images_and_requirements_are_pinned():
    text = (REPOSITORY / "Dockerfile").read_text()
    bases = [rest.partition("=")[2] for name, rest in instructions(text)[:2] if name == "ARG"]
    assert len(bases) == 2
    assert all(re.fullmatch(r"\w+:\d+\.\d+\.\d+-[\w-]+", base) for base in bases), bases
    for line in text.splitlines():
        if "pip" in line and " install " in line:
            assert "--require-hashes" in line or "--no-index" in line, line


def test_what_is_locked_is_installed_as_it_is_locked():
    """pip resolves nothing: an old pip took the newest release for `httpx2[http2]`, and refused it beside the lock."""
    files = [REPOSITORY / name for name in ("Makefile", "Dockerfile")]
    files += [
        file for file in (REPOSITORY / "tools").rglob("*") if file.is_file() and file.suffix in ("", ".sh", ".py")
    ]
    installs = [line for file in files for line in file.read_text().splitlines() if "--require-hashes" in line]
    installs = [line for line in installs if "pip-audit" not in line]
    assert len(installs) >= 7
    assert [line for line in installs if "--no-deps" not in line] == []


def test_the_lock_of_the_build_is_part_of_the_developers_lock():
    def locked(name):
        text = (REPOSITORY / "requirements" / name).read_text()
        return dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))

    assert "hatchling" in locked("build.txt")
    assert locked("build.txt").items() <= locked("dev.txt").items()


def test_the_linter_of_dockerfiles_has_nothing_to_say():
    program = Path(shutil.which("hadolint") or REPOSITORY / ".venv/bin/hadolint")
    done = subprocess.run([program, REPOSITORY / "Dockerfile"], capture_output=True, text=True, cwd=REPOSITORY)
    assert (done.returncode, done.stdout) == (0, "")


def test_alive_tells_apart_what_answers_and_what_does_not(image):
    done = subprocess.run(
        **docker_run(image, "alive", f"http://127.0.0.1:{free_port()}"), capture_output=True, text=True, timeout=WITHIN
    )
    assert (done.returncode, done.stdout.startswith("not alive:")) == (1, True)
    assert not done.stderr


def test_uvicorn_is_in_the_image_too(image):
    """`docker run --entrypoint uvicorn IMAGE vgpuscope.asgi:app …`"""
    shown = docker_run(image)
    shown["args"] = [*_as_user(image), str(image.root / "opt/vgpuscope/bin/uvicorn"), "--version"]
    assert "uvicorn" in subprocess.run(**shown, capture_output=True, text=True, timeout=WITHIN).stdout.lower()
