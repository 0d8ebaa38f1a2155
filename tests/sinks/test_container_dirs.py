"""The directory of a container on the host, which the plugin makes as root."""

import os
import stat

import pytest

from vgpuscope.model.errors import AllocateDirectory
from vgpuscope.sinks.container_dirs import ContainerDirs, ensure_preload


@pytest.fixture
def dirs(tmp_path):
    return ContainerDirs(str(tmp_path), str(tmp_path / "locks"))


def test_everybody_may_write_whatever_the_umask_is(dirs, tmp_path):
    before = os.umask(0o077)
    try:
        path, region = dirs.create("uid-1", "main")
    finally:
        os.umask(before)
    assert path == str(tmp_path / "containers" / "uid-1_main")
    assert stat.S_IMODE(os.stat(path).st_mode) == stat.S_IMODE((tmp_path / "locks").stat().st_mode) == 0o777
    assert dirs.create("uid-1", "main")[1] != region
    dirs.remove("uid-1", "main")
    assert not os.path.exists(path)
    dirs.remove("uid-1", "main")


def test_a_link_in_place_of_the_locks_is_refused_and_its_target_untouched(dirs, tmp_path):
    target = tmp_path / "secret"
    target.mkdir(mode=0o700)
    (tmp_path / "locks").symlink_to(target)
    with pytest.raises(AllocateDirectory):
        dirs.create("uid-1", "main")
    assert stat.S_IMODE(target.stat().st_mode) == 0o700


def test_links_that_a_tenant_left_are_removed_and_not_followed(dirs, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    path, _ = dirs.create("uid-1", "main")
    os.symlink(precious, os.path.join(path, "link"))
    dirs.create("uid-1", "main")
    assert (precious / "file").exists()
    assert os.listdir(path) == []


@pytest.mark.parametrize(
    ("pod", "container"), [("../x", "main"), ("uid", "../../etc"), ("", "main"), ("a_b", "c"), ("uid", "a/b")]
)
def test_names_that_would_leave_the_directory_are_refused(dirs, tmp_path, pod, container):
    with pytest.raises(AllocateDirectory):
        dirs.create(pod, container)
    assert not (tmp_path / "containers").exists()


def test_a_preload_file_that_is_there_stays(tmp_path):
    file = tmp_path / "ld.so.preload"
    ensure_preload(str(file), "/usr/local/vgpu/libvgpu.so")
    assert file.read_text() == "/usr/local/vgpu/libvgpu.so\n"
    ensure_preload(str(file), "/elsewhere.so")
    assert file.read_text() == "/usr/local/vgpu/libvgpu.so\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
