"""The wrapper around runc of `make e2e`: which containers get the stand-in driver."""

import json
import os
import shutil
import subprocess

import pytest

from tests.needed import needed
from tests.paths import REPOSITORY

WRAPPER = REPOSITORY / "tools" / "cluster" / "nvidia-container-runtime"


@pytest.fixture
def created(tmp_path):
    """The specification that runc gets for a container with these variables."""
    needed("jq", package="jq")
    (tmp_path / "bin").mkdir()
    shutil.copy(WRAPPER, tmp_path / "bin")
    runc = tmp_path / "bin" / "runc"
    runc.write_text('#!/bin/sh\necho "$@"\n')
    runc.chmod(0o755)

    def create(*environ):
        spec = {"process": {"env": list(environ)}, "mounts": []}
        (tmp_path / "config.json").write_text(json.dumps(spec))
        words = [tmp_path / "bin" / WRAPPER.name, "--root", "/r", "create", "--bundle", tmp_path, "name"]
        path = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
        done = subprocess.run(words, env=path, capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["--root", "/r", "create", "--bundle", str(tmp_path), "name"]
        return json.loads((tmp_path / "config.json").read_text())

    return create


@pytest.mark.parametrize("devices", ["all", "GPU-0", "GPU-0,GPU-1"])
def test_a_container_with_devices_gets_the_driver(created, devices):
    spec = created(f"NVIDIA_VISIBLE_DEVICES={devices}")
    assert [mount["destination"].rpartition("/")[2] for mount in spec["mounts"]] == ["libnvidia-ml.so.1", "fakenvml"]
    assert "FAKENVML_STATE=/run/fakenvml/state" in spec["process"]["env"]


@pytest.mark.parametrize("environ", [(), ("NVIDIA_VISIBLE_DEVICES=",), ("NVIDIA_VISIBLE_DEVICES=void",), ("A=all",)])
def test_other_containers_stay_as_they_are(created, environ):
    assert created(*environ) == {"process": {"env": list(environ)}, "mounts": []}
