import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vgpuscope.model.errors import SourceDown
from vgpuscope.sources.node.proc import Proc

UID = "6a1c0f3e-5b7d-4e52-9d38-0c9be1f7a2d4"
ID, OTHER_ID = "3f4e8a9b" * 8, "c0ffee11" * 8


def spawn(
    root: Path, pid: int = 100, *, start: int = 5000, name: str = "python", state: str = "S", container=ID
) -> Path:
    """A process as the kernel shows it."""
    home = root / str(pid)
    home.mkdir(exist_ok=True)
    middle = " ".join(str(number) for number in range(4, 22))
    (home / "stat").write_bytes(f"{pid} ({name}) {state} {middle} {start} 23 24 25\n".encode(errors="surrogateescape"))
    (home / "cgroup").write_text(f"0::/kubepods/burstable/pod{UID}/{container}\n")
    return home


def cgroup_reads(monkeypatch) -> list[str]:
    real, read = os.open, []

    def watched(path, *args, **kwargs):
        if str(path).endswith("/cgroup"):
            read.append(path)
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", watched)
    return read


def on_cgroup_read(monkeypatch, act) -> None:
    """Does something the first time a cgroup is read: between the reads of one process."""
    real, pending = os.open, [act]

    def acting(path, *args, **kwargs):
        if str(path).endswith("/cgroup") and pending:
            pending.pop()()
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", acting)


def test_a_process_is_named_by_its_cgroup(tmp_path):
    spawn(tmp_path)
    owner = Proc(str(tmp_path)).owners([100])[100]
    assert (owner.pid, owner.start_time, owner.command) == (100, 5000, "python")
    assert (owner.pod_uid, owner.container_id) == (UID, ID)


def test_a_process_of_the_host_has_neither_pod_nor_container(tmp_path):
    (spawn(tmp_path) / "cgroup").write_text("0::/system.slice/nvidia-persistenced.service\n")
    owner = Proc(str(tmp_path)).owners([100])[100]
    assert (owner.pod_uid, owner.container_id) == (None, None)


def test_only_processes_that_exist_are_told(tmp_path):
    spawn(tmp_path, 100)
    assert Proc(str(tmp_path)).owners([100, 101, 0, -7, 2**40]).keys() == {100}


@pytest.mark.parametrize("state", ["Z", "X"])
def test_a_zombie_counts_as_gone(tmp_path, state):
    spawn(tmp_path, state=state)
    assert Proc(str(tmp_path)).owners([100]) == {}


@pytest.mark.parametrize("name", ["my app", "a) Z (b", ") S 1 2 3", "((", "", "\udcff"])
def test_a_process_may_have_any_name(tmp_path, name):
    spawn(tmp_path, name=name)
    owner = Proc(str(tmp_path)).owners([100])[100]
    assert (owner.start_time, owner.command) == (5000, name.replace("\udcff", "\N{REPLACEMENT CHARACTER}"))


@pytest.mark.parametrize(
    "content", [b"", b"100", b"100 (x", b"100 (x) S 1 2", b"100 (x) S" + b" y" * 40, b")(", b"1 " * 40]
)
def test_half_a_stat_is_no_process(tmp_path, content):
    (spawn(tmp_path) / "stat").write_bytes(content)
    assert Proc(str(tmp_path)).owners([100]) == {}


def test_the_cgroup_of_a_process_is_read_once(tmp_path, monkeypatch):
    spawn(tmp_path)
    proc = Proc(str(tmp_path))
    read = cgroup_reads(monkeypatch)
    assert proc.owners([100]) == proc.owners([100, 100])
    assert len(read) == 1


def test_a_reused_pid_is_another_process(tmp_path):
    proc = Proc(str(tmp_path))
    spawn(tmp_path, start=5000)
    proc.owners([100])
    spawn(tmp_path, start=6000, container=OTHER_ID)
    owner = proc.owners([100])[100]
    assert (owner.start_time, owner.container_id) == (6000, OTHER_ID)


def test_a_process_that_became_another_program_is_read_anew(tmp_path):
    proc = Proc(str(tmp_path))
    spawn(tmp_path, name="runc:[2:INIT]")
    proc.owners([100])
    spawn(tmp_path, name="python", container=OTHER_ID)
    owner = proc.owners([100])[100]
    assert (owner.command, owner.container_id) == ("python", OTHER_ID)


def test_a_process_that_ends_between_two_reads_is_gone(tmp_path, monkeypatch):
    home = spawn(tmp_path)
    on_cgroup_read(monkeypatch, lambda: shutil.rmtree(home))
    assert Proc(str(tmp_path)).owners([100]) == {}


def test_a_pid_reused_between_two_reads_is_told_only_at_the_next(tmp_path, monkeypatch):
    spawn(tmp_path, start=5000)
    on_cgroup_read(monkeypatch, lambda: spawn(tmp_path, start=6000, container=OTHER_ID))
    proc = Proc(str(tmp_path))
    assert proc.owners([100]) == {}
    assert proc.owners([100])[100].container_id == OTHER_ID


def test_a_read_that_fails_because_the_process_ends_is_no_error(tmp_path, monkeypatch):
    spawn(tmp_path)

    def gone(*_):
        raise ProcessLookupError(3, "No such process")

    monkeypatch.setattr(os, "read", gone)
    assert Proc(str(tmp_path)).owners([100]) == {}


# ── processes that the driver lists are recognised without reading them ──────────────────────────────────────────
def later() -> int:
    """A clock by which every file was made long ago."""
    return time.time_ns() + 10**10


def stat_reads(monkeypatch) -> list[str]:
    real, read = os.open, []

    def watched(path, *args, **kwargs):
        if str(path).endswith("/stat"):
            read.append(path)
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", watched)
    return read


def test_a_known_process_of_the_driver_is_read_once_in_ten_looks(tmp_path, monkeypatch):
    spawn(tmp_path)
    proc = Proc(str(tmp_path), clock_ns=later)
    first = proc.owners([100], listed={100})
    read = stat_reads(monkeypatch)
    for _ in range(40):
        assert proc.owners([100], listed={100}) == first
    assert len(read) == 4


def reuse(directory, number):
    home = spawn(directory, start=5000 + number, container=(ID, OTHER_ID)[number % 2])
    os.utime(home / "stat", ns=(number, number))  # as no two files of the kernel's are alike


def seen(proc, *, listed):
    owner = proc.owners([100], listed=listed)[100]
    return owner.start_time, owner.container_id


def test_a_pid_that_is_reused_while_the_driver_goes_on_listing_it_is_another_process_within_five_looks(tmp_path):
    proc = Proc(str(tmp_path), clock_ns=later)
    for number in range(30):
        reuse(tmp_path, number)
        owners = [seen(proc, listed={100}) for _ in range(5)]
        assert owners[-1] == (5000 + number, (ID, OTHER_ID)[number % 2])


def test_a_pid_that_left_the_drivers_list_is_looked_up_at_once_when_it_comes_back(tmp_path):
    proc = Proc(str(tmp_path), clock_ns=later)
    for number in range(30):
        reuse(tmp_path, number)
        proc.owners([], listed=set())
        assert seen(proc, listed={100}) == (5000 + number, (ID, OTHER_ID)[number % 2])


def test_a_pid_that_the_driver_does_not_list_is_looked_up_at_every_look(tmp_path):
    proc = Proc(str(tmp_path), clock_ns=later)
    for number in range(30):
        reuse(tmp_path, number)
        assert seen(proc, listed=set()) == (5000 + number, (ID, OTHER_ID)[number % 2])


def test_a_process_that_ends_is_gone_within_five_looks_though_the_driver_still_lists_it(tmp_path):
    for looks in range(1, 12):
        home = spawn(tmp_path)
        proc = Proc(str(tmp_path), clock_ns=later)
        for _ in range(looks):
            assert proc.owners([100], listed={100}).keys() == {100}
        shutil.rmtree(home)
        assert [proc.owners([100], listed={100}) for _ in range(5)][-1] == {}


def test_a_process_whose_file_was_just_made_is_read_in_full(tmp_path, monkeypatch):
    made = (spawn(tmp_path) / "stat").stat().st_ctime_ns
    proc = Proc(str(tmp_path), clock_ns=lambda: made)
    read = stat_reads(monkeypatch)
    for _ in range(5):
        proc.owners([100], listed={100})
    assert len(read) >= 5


def zombie_after(looks: int, proc: Proc, *, listed: bool) -> list[bool]:
    """Whether a real child is there in each of twenty looks after it was killed, without being waited for."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        of_driver = {child.pid} if listed else set()
        for _ in range(looks):
            assert child.pid in proc.owners([child.pid], listed=of_driver)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        return [child.pid in proc.owners([child.pid], listed=of_driver) for _ in range(20)]


def test_a_zombie_that_the_driver_does_not_list_is_gone_at_once():
    assert zombie_after(5, Proc(clock_ns=later), listed=False) == [False] * 20


def test_a_zombie_that_the_driver_lists_is_gone_within_ten_looks():
    assert True not in zombie_after(5, Proc(clock_ns=later), listed=True)[9:]


def test_a_real_process_that_was_waited_for_is_gone_within_five_looks():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        proc = Proc(clock_ns=later)
        for _ in range(5):
            assert child.pid in proc.owners([child.pid], listed={child.pid})
        child.kill()
        child.wait()
        assert [proc.owners([child.pid], listed={child.pid}) for _ in range(5)][-1] == {}


def test_a_real_process_with_a_new_name_is_called_by_it_within_ten_looks():
    renames = "open('/proc/self/comm', 'w').write('first'); print(flush=True); input()\n"
    renames += "open('/proc/self/comm', 'w').write('second'); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", renames], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        proc = Proc(clock_ns=later)
        child.stdout.readline()
        for _ in range(5):
            assert proc.owners([child.pid], listed={child.pid})[child.pid].command == "first"
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.stdout.readline()
        names = [proc.owners([child.pid], listed={child.pid})[child.pid].command for _ in range(10)]
        assert names[-1] == "second"
        child.kill()


def test_processes_nobody_asks_for_are_forgotten(tmp_path, monkeypatch):
    spawn(tmp_path)
    proc = Proc(str(tmp_path))
    proc.owners([100])
    proc.owners([])
    read = cgroup_reads(monkeypatch)
    proc.owners([100])
    assert len(read) == 1


def test_what_was_told_stays_as_it_was_told(tmp_path):
    spawn(tmp_path)
    proc = Proc(str(tmp_path))
    told = proc.owners([100])
    proc.owners([])
    assert told.keys() == {100}


def test_a_missing_proc_root_says_which_option_names_it(tmp_path):
    with pytest.raises(SourceDown, match="does not exist") as down:
        Proc(str(tmp_path / "nowhere")).owners([])
    assert "--proc-root" in down.value.advice


def test_a_proc_root_that_is_no_directory_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SourceDown, match="cannot be read"):
        Proc(str(tmp_path / "file")).owners([1])


def test_a_proc_root_we_may_not_enter_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(SourceDown, match="cannot be read"):
        Proc(str(tmp_path)).owners([1])


def test_the_kernels_own_proc_is_read():
    owner = Proc().owners([os.getpid()])[os.getpid()]
    assert owner.start_time > 0
    assert owner.command == Path("/proc/self/comm").read_text().rstrip("\n")


def test_a_real_child_that_was_not_waited_for_is_gone():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        proc = Proc()
        assert child.pid in proc.owners([child.pid])
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert proc.owners([child.pid]) == {}


def test_no_file_stays_open(tmp_path):
    spawn(tmp_path)
    proc = Proc(str(tmp_path))
    earlier = len(os.listdir("/proc/self/fd"))
    for pids in ([100], [100, 7], []):
        proc.owners(pids)
    assert len(os.listdir("/proc/self/fd")) == earlier
