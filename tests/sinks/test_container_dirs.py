"""The directory of a container on the host, which the plugin makes as root."""

import os
import stat

import pytest

from vgpuscope.model.errors import AllocateDirectory
from vgpuscope.sinks.container_dirs import ContainerDirs, ensure_preload

NOW = 1_800_000_000.0


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


def made(path, *, age=1000.0):
    path.mkdir(parents=True)
    (path / "region.cache").touch()
    os.utime(path, (NOW - age, NOW - age))
    return path


def test_only_old_directories_of_other_pods_are_removed(dirs, tmp_path):
    root = tmp_path / "containers"
    gone, kept = made(root / "uid-gone_main"), made(root / "uid-kept_main")
    young = made(root / "uid-gone_new", age=10.0)
    assert dirs.old(NOW - 300.0) == ("uid-gone_main", "uid-kept_main")
    assert dirs.remove_others({"uid-kept"}, NOW - 300.0) == (("uid-gone_main",), ())
    assert [path.exists() for path in (gone, kept, young)] == [False, True, True]


@pytest.mark.parametrize("name", ["backup", "_main", "uid_", "uid_a_b", ".hidden_x", "uid_../x", "lost+found"])
def test_a_name_of_another_form_is_never_removed(dirs, tmp_path, name):
    made(tmp_path / "containers" / name.replace("/", "-"))
    assert dirs.old(NOW) == ()
    assert dirs.remove_others((), NOW) == ((), ())
    assert (tmp_path / "containers" / name.replace("/", "-")).exists()


def test_links_and_files_in_place_of_a_directory_stay_and_are_not_followed(dirs, tmp_path):
    precious = made(tmp_path / "precious")
    root = tmp_path / "containers"
    inside = made(root / "uid-1_inside")
    (inside / "link").symlink_to(precious)
    os.utime(inside, (NOW - 1000.0, NOW - 1000.0))
    (root / "uid-1_link").symlink_to(precious)
    os.utime(root / "uid-1_link", (NOW - 1000.0, NOW - 1000.0), follow_symlinks=False)
    (root / "uid-1_file").touch()
    os.utime(root / "uid-1_file", (NOW - 1000.0, NOW - 1000.0))
    assert dirs.remove_others((), NOW - 300.0) == (("uid-1_inside",), ())
    assert (precious / "region.cache").exists()
    assert sorted(path.name for path in root.iterdir()) == ["uid-1_file", "uid-1_link"]


def test_a_link_in_place_of_all_directories_is_refused(dirs, tmp_path):
    made(tmp_path / "elsewhere" / "uid-1_main")
    (tmp_path / "containers").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AllocateDirectory):
        dirs.old(NOW)
    removed, failures = dirs.remove_others((), NOW)
    assert (removed, len(failures)) == ((), 1)
    assert (tmp_path / "elsewhere" / "uid-1_main").exists()


def test_without_containers_nothing_is_old(dirs):
    assert dirs.old(NOW) == ()
