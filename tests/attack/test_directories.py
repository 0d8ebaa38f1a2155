"""A tenant writes into the directory of its container, which root removes when the pod is gone."""

import os
import subprocess
import sys

import pytest
import yaml

from tests.needed import needed
from tests.paths import REPOSITORY
from vgpuscope.sinks.container_dirs import ContainerDirs

pytestmark = pytest.mark.attack
NOW = 1_800_000_000.0
LEVELS = 3 * sys.getrecursionlimit()  # and three times as many as a process may have files open


@pytest.fixture
def dirs(tmp_path):
    yield ContainerDirs(str(tmp_path), str(tmp_path / "locks"))
    subprocess.run(["rm", "-rf", tmp_path / "containers"], check=True)  # pytest cannot remove such trees either


def deep(path: str) -> None:
    """A tree of very many levels; no path is long enough to name the last one."""
    at = os.open(path, os.O_RDONLY)
    for _ in range(LEVELS):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


def test_a_tree_that_is_deeper_than_the_stack_is_removed_and_so_are_those_after_it(dirs, tmp_path):
    for pod in ("uid-1", "uid-2"):
        path, _ = dirs.create(pod, "main")
        if pod == "uid-1":
            deep(path)
        os.utime(path, (NOW - 3600, NOW - 3600))
    removed, failures = dirs.remove_others((), NOW)
    assert (removed, failures) == (("uid-1_main", "uid-2_main"), ())
    assert os.listdir(tmp_path / "containers") == []


def test_a_container_that_left_a_deep_tree_gets_its_new_directory(dirs):
    path, _ = dirs.create("uid-1", "main")
    deep(path)
    dirs.create("uid-1", "main")
    assert os.listdir(path) == []


def test_a_link_in_place_of_a_directory_is_removed_and_its_target_is_not(dirs, tmp_path):
    precious = tmp_path / "precious"
    (precious / "below").mkdir(parents=True)
    path, _ = dirs.create("uid-1", "main")
    os.rmdir(path)
    os.symlink(precious, path)
    dirs.create("uid-1", "main")
    assert (precious / "below").exists()
    assert not os.path.islink(path)


def test_what_an_interrupted_removal_left_is_removed_by_the_next_one(dirs, tmp_path, monkeypatch):
    path, _ = dirs.create("uid-1", "main")
    os.makedirs(os.path.join(path, "a", "b"))
    os.utime(path, (NOW - 3600, NOW - 3600))
    real = os.rmdir

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "rmdir", killed)
    with pytest.raises(KeyboardInterrupt):
        dirs.remove_others((), NOW)
    monkeypatch.setattr(os, "rmdir", real)
    for name in os.listdir(tmp_path / "containers"):
        os.utime(tmp_path / "containers" / name, (NOW - 3600, NOW - 3600))
    dirs.remove_others((), NOW)
    assert os.listdir(tmp_path / "containers") == []


AS_A_TENANT = """
import os, sys
os.setgid(65534); os.setuid(65534)
os.chdir(sys.argv[1])
os.makedirs("closed/inside"); open("closed/file", "w").close(); os.chmod("closed/inside", 0); os.chmod("closed", 0o700)
os.makedirs("sticky/inside"); open("sticky/file", "w").close(); os.chmod("sticky", 0o1777)
"""
AS_THE_PLUGIN = """
import sys
from vgpuscope.sinks.container_dirs import ContainerDirs
print(*ContainerDirs(sys.argv[1], sys.argv[1] + "/locks").remove_others((), 2e9))
"""


def capabilities() -> str:
    """Those that the device plugin's container has by its manifest, as setpriv takes them."""
    objects = yaml.safe_load_all((REPOSITORY / "deploy" / "plugin.yaml").read_text())
    [spec] = [one["spec"]["template"]["spec"] for one in objects if one and one["kind"] == "DaemonSet"]
    found = spec["containers"][0]["securityContext"]["capabilities"]
    assert found["drop"] == ["ALL"]
    return ",".join(["-all", *(f"+{name.lower()}" for name in found.get("add", ()))])


def test_directories_that_are_closed_to_all_but_their_owner_are_removed_with_the_rights_of_the_plugin(tmp_path):
    needed("setpriv", package="util-linux", there=os.geteuid() == 0)
    hook = tmp_path / "hook"
    path, _ = ContainerDirs(str(hook), str(tmp_path / "locks")).create("uid-1", "main")
    for above in (tmp_path, *tmp_path.parents):
        if above.stat().st_uid == os.geteuid() and above.parent != above and not above.stat().st_mode & 1:
            above.chmod(0o711)
    subprocess.run([sys.executable, "-c", AS_A_TENANT, path], check=True)
    os.utime(path, (NOW - 3600, NOW - 3600))
    rights = [f"--bounding-set={capabilities()}", f"--inh-caps={capabilities()}"]
    done = subprocess.run(
        ["setpriv", *rights, sys.executable, "-c", AS_THE_PLUGIN, hook], capture_output=True, text=True, check=True
    )
    for _ in range(5):  # what was moved up is new, and leaves in later rounds of an hour
        if os.listdir(hook / "containers"):
            done = subprocess.run(done.args, capture_output=True, text=True, check=True)
    assert os.listdir(hook / "containers") == [], done.stdout
