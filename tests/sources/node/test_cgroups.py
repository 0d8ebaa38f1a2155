"""Containers beside their GPU, read from trees of both cgroup versions and both drivers."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.paths import TESTS
from vgpuscope.model.container_key import ContainerKey
from vgpuscope.model.errors import CgroupsAbsent, CgroupsUnknown, CgroupsUnreadable
from vgpuscope.model.host import SoughtContainer
from vgpuscope.sources.node import cgroups
from vgpuscope.sources.node.cgroups import Cgroups

GIB = 1 << 30
HOST = TESTS / "fixtures" / "host"
PID = 4242
KEY = ContainerKey(namespace="ml", pod="train", container="main")
UIDS = {
    "v1-cgroupfs": "941dc160-92df-41e7-b27e-507b9d4141fa",
    "v1-systemd": "90d81341-92de-41e7-8cf2-507b9d4141fa",
    "v2-systemd": "2fc932ce-fdcc-454b-97bd-aadfdeb4c340",
    "v2-cgroupfs": "89f4f2cb511c3b0b7e5272cff5ec37bf",
}
IDS = {
    "v1-cgroupfs": "2b4d747eae5ed34775c069d913c81833b67a0148e731a36535c9f3b97ebfb87f",
    "v1-systemd": "2227daf62df6694645fee5df53c1f91271546a9560e8600a525690ae252b7f63",
    "v2-systemd": "aaefb9d8feed2d453b543f6d928cede7a4dbefa6a0ae7c9b990dd234c56e93b9",
    "v2-cgroupfs": "823b5a6d9aaa8da5c0ecda3e7cbcd6729673437965dc600ffcb0a2651960f945",
}
TREES = tuple(IDS)


@pytest.fixture(params=TREES)
def tree(request, tmp_path) -> Path:
    return copied(request.param, tmp_path)


@pytest.fixture
def v2(tmp_path) -> Path:
    return copied("v2-systemd", tmp_path)


@pytest.fixture
def v1(tmp_path) -> Path:
    return copied("v1-systemd", tmp_path)


def copied(name: str, where: Path) -> Path:
    return Path(shutil.copytree(HOST / name, where / name))


def source(tree: Path) -> Cgroups:
    return Cgroups(str(tree / "cgroup"), proc_root=str(tree / "proc"))


def one(tree: Path, *, pids: tuple[int, ...] = (PID,)) -> SoughtContainer:
    uid, container_id = UIDS[tree.name], IDS[tree.name]
    return SoughtContainer(key=KEY, pod_uids=(uid,), container_id=container_id, pids=pids)


def directory(tree: Path, file: str) -> Path:
    return next((tree / "cgroup").rglob(file)).parent


def read(tree: Path, **more):
    return source(tree).read([one(tree, **more)])[KEY]


def test_a_container_is_found_by_its_process_and_by_its_pod_alike(tree):
    by_process, by_pod = read(tree), read(tree, pids=())
    assert by_pod.cpu_seconds == by_process.cpu_seconds is not None
    assert by_pod.memory == by_process.memory is not None
    assert by_pod.place == by_process.place


def test_the_numbers_of_version_2_are_those_in_its_files(v2):
    found = read(v2)
    assert found.cpu_seconds == pytest.approx(183024.551213)
    assert (found.cpu_limit, found.periods, found.throttled_periods) == (8.0, 402311, 1207)
    assert found.throttled_seconds == pytest.approx(98.213344)
    assert (found.memory, found.memory_inactive, found.memory_limit) == (36 * GIB, 20 * GIB, 64 * GIB)
    assert (found.read_bytes, found.written_bytes) == (812345425920 + 4096, 10737418240)
    assert (found.received_bytes, found.sent_bytes) == (98765432101, 1234567890)


def test_the_numbers_of_version_1_are_those_in_its_files(tmp_path):
    found = read(copied("v1-cgroupfs", tmp_path))
    assert found.cpu_seconds == pytest.approx(1.032594989)
    assert (found.cpu_limit, found.periods, found.throttled_periods) == (0.5, 21, 20)
    assert found.throttled_seconds == pytest.approx(0.799975021)
    assert (found.memory, found.memory_limit) == (8638464, 256 << 20)


def test_io_that_this_kernel_does_not_count_is_absent(tmp_path):
    found = read(copied("v1-cgroupfs", tmp_path))
    assert (found.read_bytes, found.written_bytes) == (None, None)


def test_without_limits_there_are_none(v1):
    found = read(v1)
    assert (found.cpu_limit, found.memory_limit) == (None, None)
    assert (found.read_bytes, found.written_bytes) == (812345425920 + 1474560, 10737418240 + 20480)


def test_max_is_no_limit(v2):
    at = directory(v2, "memory.max")
    (at / "memory.max").write_text("max\n")
    (at / "cpu.max").write_text("max 100000\n")
    found = read(v2)
    assert (found.cpu_limit, found.memory_limit) == (None, None)


def test_a_pod_on_the_host_s_network_has_no_network_of_its_own(tree):
    shutil.rmtree(tree / "proc" / str(PID) / "net")
    (tree / "proc" / str(PID) / "net").symlink_to("../1/net")
    found = read(tree)
    assert (found.received_bytes, found.sent_bytes) == (None, None)
    assert found.cpu_seconds is not None


def test_the_kernel_makes_net_dev_once_for_each_network_namespace():
    if subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode:
        pytest.skip("no right to make a network namespace")  # the trees show the rest
    same = subprocess.run(["stat", "-Lc%d:%i", f"/proc/{os.getpid()}/net/dev"], capture_output=True, text=True).stdout
    own = subprocess.run(["stat", "-Lc%d:%i", "/proc/self/net/dev"], capture_output=True, text=True).stdout
    other = subprocess.run(["unshare", "-n", "stat", "-Lc%d:%i", "/proc/self/net/dev"], capture_output=True, text=True)
    assert same == own != other.stdout


def test_a_container_without_a_process_on_a_gpu_has_its_network_from_its_first_process(v2):
    assert read(v2, pids=()).received_bytes == 98765432101


def test_a_cgroup_that_vanishes_is_absent_and_counted(tree):
    cgroups_ = source(tree)
    assert KEY in cgroups_.read([one(tree)])
    shutil.rmtree(tree / "cgroup")
    (tree / "cgroup").mkdir()
    for name in ("memory", "cpuacct"):
        (tree / "cgroup" / name).mkdir()
    assert cgroups_.read([one(tree)]) == {}
    assert cgroups_.faults["vanished"] == 1
    assert cgroups_._places == {}


def test_a_missing_controller_leaves_only_its_own_values_absent(v1):
    shutil.rmtree(v1 / "cgroup" / "memory")
    cgroups_ = source(v1)
    found = cgroups_.read([one(v1)])[KEY]
    assert (found.memory, found.memory_limit, found.memory_inactive) == (None, None, None)
    assert found.cpu_seconds is not None
    counted = cgroups_.faults["no-file"]
    assert counted > 0
    cgroups_.read([one(v1)])
    assert cgroups_.faults["no-file"] == counted, "what is known to be missing is not counted at every round"


def test_a_missing_file_of_version_2_is_absent_and_looked_for_again_later(v2):
    at = directory(v2, "io.stat")
    content = (at / "io.stat").read_bytes()
    (at / "io.stat").unlink()
    cgroups_ = source(v2)
    assert cgroups_.read([one(v2)])[KEY].read_bytes is None
    assert dict(cgroups_.faults) == {"no-file": 1}
    (at / "io.stat").write_bytes(content)
    rounds = [cgroups_.read([one(v2)])[KEY].read_bytes for _ in range(cgroups._AGAIN)]
    assert rounds[-1] == 812345425920 + 4096


@pytest.mark.parametrize("garbage", [b"", b"\n", b"garbage\n", b"-1 -1\n", b"\xff\xfe\0"])
def test_a_malformed_file_is_absent_and_counted(v2, garbage):
    (directory(v2, "memory.current") / "memory.current").write_bytes(garbage)
    cgroups_ = source(v2)
    assert cgroups_.read([one(v2)])[KEY].memory is None
    assert dict(cgroups_.faults) == {"malformed": 1}


def test_a_file_that_is_a_directory_is_unreadable_and_counted(v2):
    at = directory(v2, "memory.current") / "memory.current"
    at.unlink()
    at.mkdir()
    cgroups_ = source(v2)
    assert cgroups_.read([one(v2)])[KEY].memory is None
    assert dict(cgroups_.faults) == {"unreadable": 1}


def test_a_container_of_no_cgroup_is_counted_once_until_it_is_looked_for_again(v2):
    cgroups_ = source(v2)
    lost = SoughtContainer(key=KEY, pod_uids=("none",), container_id="f" * 64)
    for _ in range(cgroups._AGAIN):
        assert cgroups_.read([lost]) == {}
    assert dict(cgroups_.faults) == {"not-found": 1}
    cgroups_.read([lost])
    assert dict(cgroups_.faults) == {"not-found": 2}


def test_a_path_of_a_private_cgroup_namespace_is_found_where_the_kubelet_puts_it(v2):
    file = v2 / "proc" / str(PID) / "cgroup"
    pod, scope = file.read_text().strip().split("/")[-2:]
    file.write_text(f"0::/../../{pod}/{scope}\n")
    assert read(v2).cpu_seconds == pytest.approx(183024.551213)


def test_a_restarted_container_is_looked_for_under_its_new_id(v2):
    cgroups_ = source(v2)
    first = cgroups_.read([one(v2)])[KEY]
    at, uid = directory(v2, "cpu.stat"), UIDS["v2-systemd"]
    at.rename(at.with_name(f"cri-containerd-{'e' * 64}.scope"))
    (v2 / "proc" / str(PID) / "cgroup").unlink()
    again = cgroups_.read([SoughtContainer(key=KEY, pod_uids=(uid,), container_id="e" * 64)])[KEY]
    assert again.place != first.place


def test_what_is_kept_of_containers_goes_with_them(tree):
    cgroups_ = source(tree)
    cgroups_.read([one(tree)])
    cgroups_.read([SoughtContainer(key=KEY, container_id="f" * 64)])
    cgroups_.read([])
    assert not cgroups_._places
    assert not cgroups_._unfound


@pytest.mark.parametrize("make", [lambda path: None, Path.mkdir])
def test_a_root_without_cgroups_is_an_absent_source(tmp_path, make):
    make(tmp_path / "cgroup")
    with pytest.raises(CgroupsAbsent):
        Cgroups(str(tmp_path / "cgroup")).read([])


def test_a_root_that_may_not_be_listed_is_unreadable(tmp_path, monkeypatch):
    def denied(path: str) -> list[str]:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("os.listdir", denied)
    with pytest.raises(CgroupsUnreadable, match="Permission denied"):
        Cgroups(str(tmp_path)).read([])


def test_a_root_of_no_known_version_is_said_to_be_unknown(tmp_path):
    (tmp_path / "kubepods.slice").mkdir()
    with pytest.raises(CgroupsUnknown, match=r"neither cgroup\.controllers nor cpuacct"):
        Cgroups(str(tmp_path)).read([])


def test_a_long_file_is_read_to_its_end(v2):
    at = directory(v2, "io.stat") / "io.stat"
    at.write_text("".join(f"8:{n} rbytes=1 wbytes=2 rios=0 wios=0 dbytes=0 dios=0\n" for n in range(2000)))
    assert (read(v2).read_bytes, read(v2).written_bytes) == (2000, 4000)
