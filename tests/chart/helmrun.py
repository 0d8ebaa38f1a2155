"""The real Helm, and the chart as it renders it."""

import atexit
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.environment import bare
from tests.paths import REPOSITORY, TESTS

CHART = REPOSITORY / "charts" / "vgpuscope"
CRDS = TESTS / "fixtures" / "crds"
BUILD = REPOSITORY / "tools" / "helm" / "build"
NAMESPACE = "gpu-observability"
RELEASE = "scope"

Object = dict[str, Any]
Values = Mapping[str, Any]


@cache
def program() -> str:
    """Where Helm is; where it was not built a developer's test is skipped, but CI fails."""
    found = subprocess.run([BUILD, "--find"], capture_output=True, text=True, check=False)
    if found.returncode == 0:
        return found.stdout.strip()
    assert os.environ.get("CI") != "true", f"no Helm in CI: {found.stdout.strip()}"
    pytest.skip(found.stdout.strip())


def helm(*words: str, values: Values | None = None) -> subprocess.CompletedProcess:
    """One command; values are given on standard input."""
    given = ["--values", "-"] if values is not None else []
    text = json.dumps(values) if values is not None else ""
    command = [program(), *words, *given]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False, env=_environment())


@cache
def _environment() -> dict[str, str]:
    """Without what the developer has for Helm and kubectl; caches are of this run."""
    home = tempfile.mkdtemp(prefix="vgpuscope-helm-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    return bare(HOME=home)


def template(values: Values | None = None, *flags: str, chart: Path = CHART) -> list[Object]:
    """The objects that the chart renders with these values."""
    return list(documents(_rendered(json.dumps(values or {}), flags, chart)))


@cache  # many tests look at the same objects
def _rendered(values: str, flags: tuple[str, ...], chart: Path) -> str:
    words = ("template", RELEASE, str(chart), "--namespace", NAMESPACE, *flags)
    done = helm(*words, values=json.loads(values))
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(values: Values) -> str:
    """Why Helm refuses the values."""
    done = helm("template", RELEASE, str(CHART), "--namespace", NAMESPACE, values=values)
    assert done.returncode != 0, "the values were accepted"
    return done.stderr


def documents(text: str) -> Iterator[Object]:
    for part in text.split("\n---\n"):
        body = part.removeprefix("---\n")
        if any(line.strip() and not line.startswith("#") for line in body.splitlines()):
            yield msgspec.yaml.decode(body)


def only(objects: list[Object], kind: str, component: str | None = None) -> list[Object]:
    return [
        one
        for one in objects
        if one["kind"] == kind
        and (component is None or one["metadata"]["labels"]["app.kubernetes.io/component"] == component)
    ]


def one(objects: list[Object], kind: str, component: str | None = None) -> Object:
    found = only(objects, kind, component)
    assert len(found) == 1, f"{kind} {component}: {[o['metadata']['name'] for o in found]}"
    return found[0]


def pod_specs(objects: list[Object]) -> dict[str, Object]:
    """The pod template of each component."""
    return {
        o["metadata"]["labels"]["app.kubernetes.io/component"]: o["spec"]["template"]["spec"]
        for o in objects
        if o["kind"] in {"DaemonSet", "Deployment"}
    }
