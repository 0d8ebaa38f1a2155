import gzip
import json
import os
import shutil
import socket
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from tests.formats.hami.wholefile import decode_file
from tests.paths import TESTS
from vgpuscope.model.errors import RegionsAbsent, RegionsUnreadable
from vgpuscope.sources.node.regions import Regions

FIXTURES = TESTS / "fixtures"
LIVE = gzip.decompress((FIXTURES / "regions/real_v12_single.cache.gz").read_bytes())
HUGE = gzip.decompress((FIXTURES / "regions/own_procnum_huge.cache.gz").read_bytes())
NAME = "7f0c.cache"


@pytest.fixture
def containers(tmp_path):
    root = tmp_path / "containers"
    root.mkdir()
    return root


def put(root: Path, directory: str = "uid-1_main", data: bytes | None = LIVE, name: str = NAME) -> Path:
    path = root / directory / name
    path.parent.mkdir(exist_ok=True)
    if data is not None:
        path.write_bytes(data)
    return path


def reasons(root: Path) -> dict[str, str]:
    reading = Regions(str(root)).read()
    assert reading.containers == ()
    return {str(Path(refusal.path).relative_to(root)): refusal.reason for refusal in reading.refusals}


def later() -> int:
    """A clock by which every directory is settled, so that what was listed may be remembered."""
    return time.time_ns() + 10**10


def test_a_region_belongs_to_the_container_its_directory_names(containers):
    put(containers, "uid-1_main")
    (one,) = Regions(str(containers)).read().containers
    assert (one.pod_uid, one.container, one.region) == ("uid-1", "main", decode_file(LIVE))


def test_every_recorded_file_is_taken_or_refused_as_it_should_be(containers):
    taken, refused = {}, {}
    for said in sorted((FIXTURES / "regions").glob("*.json")):
        data = gzip.decompress(said.with_suffix(".cache.gz").read_bytes())
        put(containers, f"{said.stem.replace('_', '-')}_main", data)
        strict = json.loads(said.read_text())["strict"]
        if "error" in strict:
            refused[f"{said.stem.replace('_', '-')}_main/{NAME}"] = strict["error"]
        else:
            taken[said.stem.replace("_", "-")] = decode_file(data)
    reading = Regions(str(containers)).read()
    assert {one.pod_uid: one.region for one in reading.containers} == taken
    assert {str(Path(one.path).relative_to(containers)): one.reason for one in reading.refusals} == refused


def test_more_slots_than_the_first_read_holds_are_read_too(containers):
    put(containers, data=HUGE)
    (one,) = Regions(str(containers)).read().containers
    assert one.region.slots[1023].pid == 99


def test_a_directory_without_a_region_is_a_container_that_has_not_begun(containers):
    put(containers, name="libvgpu.so", data=b"")
    put(containers, name="notes.txt", data=b"x")
    (one,) = Regions(str(containers)).read().containers
    assert (one.container, one.region) == ("main", None)


def test_the_first_underscore_parts_pod_and_container(containers):
    put(containers, "uid_a_b")
    (one,) = Regions(str(containers)).read().containers
    assert (one.pod_uid, one.container) == ("uid", "a_b")


@pytest.mark.parametrize("name", ["nounderscore", "_main", "uid_"])
def test_a_directory_that_names_no_container_is_refused(containers, name):
    put(containers, name)
    assert reasons(containers) == {name: "bad_name"}


def test_files_beside_the_directories_are_ignored(containers):
    (containers / "uid-1_main").write_bytes(LIVE)
    assert Regions(str(containers)).read() == Regions(str(containers / ".")).read()
    assert Regions(str(containers)).read().containers == ()


def test_the_first_cache_file_by_name_is_the_region(containers):
    put(containers, name="b.cache", data=HUGE)
    put(containers, name="a.cache")
    put(containers, name="unrelated", data=b"x")
    (one,) = Regions(str(containers)).read().containers
    assert one.region == decode_file(LIVE)


def test_a_file_of_the_library_is_never_the_region(containers):
    put(containers, name="a-libvgpu.so.cache", data=HUGE)
    put(containers, name="b.cache")
    (one,) = Regions(str(containers)).read().containers
    assert one.region == decode_file(LIVE)


def test_three_files_of_hamis_kind_are_too_many(containers):
    for name in ("a.cache", "b.cache", "libvgpu.so"):
        put(containers, name=name)
    assert reasons(containers) == {"uid-1_main": "too_many_files"}


def test_a_directory_that_a_tenant_filled_is_not_listed_to_its_end(containers):
    put(containers)
    for number in range(1200):
        put(containers, name=f"junk{number}", data=b"")
    assert reasons(containers) == {"uid-1_main": "too_many_files"}


@pytest.mark.parametrize("kind", ["link", "pipe", "socket", "directory"])
def test_what_is_not_a_file_is_never_opened(containers, tmp_path, monkeypatch, kind):
    make(kind, put(containers, data=None), tmp_path)
    opened = []
    before(monkeypatch, "open", lambda path, *_: opened.append(path))
    assert reasons(containers) == {"uid-1_main": "not_a_file"}
    assert opened == []


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_what_takes_the_files_place_after_the_listing_is_refused_without_waiting(
    containers, tmp_path, monkeypatch, kind
):
    file = put(containers)

    def swap(path, *_):
        file.unlink()
        make(kind, file, tmp_path)

    before(monkeypatch, "open", swap)
    assert reasons(containers) == {f"uid-1_main/{NAME}": "not_a_file"}


def make(kind: str, path: Path, elsewhere: Path) -> None:
    match kind:
        case "link":
            (elsewhere / "secret").write_bytes(LIVE)
            path.symlink_to(elsewhere / "secret")
        case "pipe":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "socket":
            here = os.getcwd()
            os.chdir(path.parent)  # the address of a socket is short
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(path.name)
            os.chdir(here)


def before(monkeypatch, call: str, act) -> None:
    """Does something the first time a system call of ours is made, as a tenant might."""
    real, pending = getattr(os, call), [act]

    def acting(*args, **kwargs):
        if pending:
            pending.pop()(*args)
        return real(*args, **kwargs)

    monkeypatch.setattr(os, call, acting)


def test_a_file_cut_while_it_is_read_is_refused(containers, monkeypatch):
    file = put(containers)
    before(monkeypatch, "pread", lambda *_: os.truncate(file, 3000))
    assert reasons(containers) == {f"uid-1_main/{NAME}": "too_small"}


def test_what_vanishes_while_we_look_is_no_error(containers, monkeypatch):
    put(containers, "uid-1_main")
    put(containers, "uid-2_main")
    before(monkeypatch, "open", lambda *_: shutil.rmtree(containers / "uid-1_main"))
    reading = Regions(str(containers)).read()
    assert [one.pod_uid for one in reading.containers] == ["uid-2"]
    assert reading.refusals == ()


def test_a_directory_that_vanishes_before_it_is_listed_is_no_error(containers, monkeypatch):
    directory = put(containers, data=None).parent
    scandir = os.scandir

    def vanishing(path):
        if path == str(directory):
            directory.rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", vanishing)
    reading = Regions(str(containers)).read()
    assert (reading.containers, reading.refusals) == ((), ())


@pytest.mark.parametrize("error", [PermissionError(13, "no"), OSError(5, "I/O error"), BlockingIOError(11, "leased")])
def test_a_file_that_cannot_be_read_is_refused_and_the_others_are_not(containers, monkeypatch, error):
    put(containers, "uid-1_main")
    put(containers, "uid-2_main")

    def refuse(*_):
        raise error

    before(monkeypatch, "open", refuse)
    reading = Regions(str(containers)).read()
    assert [one.pod_uid for one in reading.containers] == ["uid-2"]
    assert [one.reason for one in reading.refusals] == ["unreadable"]


def test_a_missing_containers_directory_means_no_hami_here(tmp_path):
    with pytest.raises(RegionsAbsent, match="nowhere"):
        Regions(str(tmp_path / "nowhere")).read()


def test_a_containers_directory_that_cannot_be_listed_is_a_fault(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RegionsUnreadable, match="cannot list"):
        Regions(str(tmp_path / "file")).read()


def test_a_region_being_written_is_read_once_more(containers, monkeypatch):
    file = put(containers, data=with_seqlock(7))
    reads = counted(monkeypatch, "pread", lambda number: file.write_bytes(with_seqlock(8)) if number == 2 else None)
    (one,) = Regions(str(containers)).read().containers
    assert (one.region.writing, len(reads)) == (False, 4)


def test_a_process_killed_while_it_wrote_costs_one_more_read_only(containers, monkeypatch):
    put(containers, data=with_seqlock(7))
    reads = counted(monkeypatch, "pread", lambda number: None)
    (one,) = Regions(str(containers)).read().containers
    assert (one.region.writing, len(reads)) == (True, 4)


def with_seqlock(value: int) -> bytes:
    return LIVE[: 1856 + 1936] + struct.pack("<Q", value) + LIVE[1856 + 1944 :]


def counted(monkeypatch, call: str, after) -> list[tuple[Any, ...]]:
    real, calls = getattr(os, call), []

    def counting(*args, **kwargs):
        answer = real(*args, **kwargs)
        calls.append(args)
        after(len(calls))
        return answer

    monkeypatch.setattr(os, call, counting)
    return calls


def test_a_cycle_reads_a_few_kilobytes_of_each_file(containers, monkeypatch):
    put(containers)
    reads = counted(monkeypatch, "pread", lambda number: None)
    Regions(str(containers)).read()
    assert sum(length for _, length, _ in reads) < 20_000


def test_an_unchanged_directory_is_not_listed_again(containers, monkeypatch):
    put(containers)
    regions = Regions(str(containers), clock_ns=later)
    first = regions.read()
    listed = counted(monkeypatch, "scandir", lambda number: None)
    assert regions.read() == first
    assert listed == [(str(containers),)]


def test_a_directory_changed_a_moment_ago_is_listed_again(containers, monkeypatch):
    changed = put(containers).parent.stat().st_ctime_ns
    regions = Regions(str(containers), clock_ns=lambda: changed)
    regions.read()
    listed = counted(monkeypatch, "scandir", lambda number: None)
    regions.read()
    assert len(listed) == 2


def test_a_file_that_appears_later_is_found(containers):
    put(containers, data=None)
    regions = Regions(str(containers), clock_ns=later)
    assert regions.read().containers[0].region is None
    put(containers)
    assert regions.read().containers[0].region == decode_file(LIVE)


def test_new_numbers_in_a_file_show_at_the_next_read(containers):
    file = put(containers)
    regions = Regions(str(containers), clock_ns=later)
    regions.read()
    with file.open("r+b") as region:
        region.seek(1856 + 1160 + 16)
        region.write(struct.pack("<Q", 88))
    assert regions.read().containers[0].region.slots[0].devices[0].sm == 0.88


def test_names_that_are_not_text_can_still_be_told(containers):
    put(containers).rename(os.fsdecode(os.fsencode(containers / "uid-1_main") + b"/\xff.cache"))
    os.truncate(os.fsdecode(os.fsencode(containers / "uid-1_main") + b"/\xff.cache"), 5)
    os.mkdir(os.fsencode(containers) + b"/uid_\xff")
    told = [(one.path, one.reason) for one in Regions(str(containers)).read().refusals]
    assert told == [
        (f"{containers}/uid-1_main/\N{REPLACEMENT CHARACTER}.cache", "too_small"),
        (f"{containers}/uid_\N{REPLACEMENT CHARACTER}", "bad_name"),
    ]


def test_nothing_below_the_hook_path_is_changed(containers, tmp_path, monkeypatch):
    put(containers, "uid-1_main")
    put(containers, "uid-2_main", data=b"")
    put(containers, "uid-3_main", data=None)
    make("link", put(containers, "uid-4_main", data=None), tmp_path)
    put(containers, "odd")
    earlier = picture(containers)
    flags = counted(monkeypatch, "open", lambda number: None)
    regions = Regions(str(containers))
    regions.read()
    regions.read()
    assert picture(containers) == earlier
    assert len(flags) == 4
    for _, used in flags:
        assert used & os.O_ACCMODE == os.O_RDONLY
        assert used & os.O_NOFOLLOW
        assert used & os.O_NONBLOCK
        assert not used & (os.O_CREAT | os.O_TRUNC)


def picture(root: Path) -> dict[str, tuple[int, ...]]:
    """Everything below a directory with what any change to it would change."""
    return {
        str(path): (status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        for path in [root, *root.rglob("*")]
        for status in [path.lstat()]
    }


def test_no_file_stays_open(containers):
    put(containers, "uid-1_main")
    put(containers, "uid-2_main", data=b"")
    regions = Regions(str(containers))
    regions.read()
    earlier = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        regions.read()
    assert len(os.listdir("/proc/self/fd")) == earlier


def test_what_is_gone_is_forgotten(containers):
    file = put(containers)
    regions = Regions(str(containers), clock_ns=later)
    regions.read()
    shutil.rmtree(file.parent)
    assert regions.read().containers == ()
    assert regions._choices == {}
