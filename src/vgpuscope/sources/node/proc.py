"""Which pod and container a host process belongs to, from the kernel's /proc.

A process that the driver goes on listing is nearly always the same one as a second ago: its pid would have to be given
to another process of the same GPU in between. So a known process is looked up only at every fifth look as long as the
driver lists it without a break, and then it is recognised by its file: the kernel makes a file of its own for each
process, with a number and a time that never come again. To read a process' `stat` costs the kernel much more than that,
and is done at every tenth look. Processes that the driver does not list are read at every look: that a file is there
says nothing of zombies.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple, TypeAlias

from vgpuscope.formats import kernel_text
from vgpuscope.formats.cgroup import owners_of
from vgpuscope.model.errors import SourceDown
from vgpuscope.model.pod import ProcessOwner
from vgpuscope.model.quantity import Pid

_STAT_LENGTH = 1024  # 50 numbers and a name of at most 64 bytes
_CGROUP_LENGTH = 65536
_STATUS_LENGTH = 4096
_ARGUMENTS_LENGTH = 4096
_START_TIME = 19  # field 22 of stat, counted from the state behind the name
_ENDED = (b"Z", b"X")
_READ_EVERY = 10  # looks, a multiple of the next: so late may a new name or a listed zombie be noticed
_LOOK_EVERY = 5  # looks: so late may it be noticed that a listed process ended, or that its pid is another's
_SETTLED_NS = 1_000_000_000  # file systems count in ticks: two changes within one leave the same time stamp

_Stamp: TypeAlias = tuple[int, int, int]


class Proc:
    """The processes below one proc root: the host's, when the agent shares its pid namespace or mounts its /proc."""

    def __init__(
        self,
        root: str = "/proc",
        *,
        command_line: Callable[[bytes], str] | None = None,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`command_line` makes the text of a command line from its bytes; without it, none is read."""
        self._root = root
        self._command_line = command_line
        self._clock_ns = clock_ns
        self._known: dict[Pid, ProcessOwner] = {}
        self._stamps: dict[Pid, _Stamp] = {}  # of the file that each of them was read from
        self._listed: frozenset[Pid] = frozenset()  # by the driver, at the last look
        self._looks = 0

    def owners(self, pids: Iterable[Pid], *, listed: Collection[Pid] = ()) -> dict[Pid, ProcessOwner]:
        """The owner of each of these processes that exists; zombies do not. `listed`: those on the driver's lists."""
        _require(self._root)
        self._looks += 1
        settled = self._clock_ns() - _SETTLED_NS
        trusted = self._trusted(listed)
        owners = {pid: self._known[pid] for pid in trusted}
        stamps = {pid: self._stamps[pid] for pid in trusted}
        for pid in set(pids) - trusted:
            known, known_stamp = self._known.get(pid), self._stamps.get(pid)
            path = f"{self._root}/{pid}/stat"
            stamp = _stamp(path)  # before the content: what changes in between has another stamp at the next look
            if stamp is None:
                continue
            same = known is not None and stamp == known_stamp
            if same or max(stamp[1:]) < settled:
                stamps[pid] = stamp
            recognised = same and pid in listed and (self._looks + pid) % _READ_EVERY
            owner = known if recognised else self._owner(pid, path)
            if owner is not None:
                owners[pid] = owner
        self._known, self._stamps, self._listed = owners, stamps, frozenset(listed)
        return owners

    def _trusted(self, listed: Collection[Pid]) -> set[Pid]:
        """Processes that need no look this time: known, and listed by the driver then and now."""
        there = self._listed.intersection(listed)
        return {p for p in there if (self._looks + p) % _LOOK_EVERY and p in self._stamps and p in self._known}

    def _owner(self, pid: Pid, path: str) -> ProcessOwner | None:
        now = _stat(path)
        if now is None:
            return None
        known = self._known.get(pid)
        if known and now == (known.start_time, known.command):
            return known
        cgroup = _read(f"{self._root}/{pid}/cgroup", _CGROUP_LENGTH)
        again = _stat(path)  # it may have ended meanwhile, and its pid be another's by now
        if cgroup is None or again is None or again.start_time != now.start_time:
            return None
        *outer, (pod_uid, container_id) = owners_of(cgroup.decode(errors="replace"))
        arguments = _read(f"{self._root}/{pid}/cmdline", _ARGUMENTS_LENGTH) if self._command_line else None
        return ProcessOwner(
            pid=pid,
            start_time=now.start_time,
            pod_uid=pod_uid,
            container_id=container_id,
            command=now.command,
            uid=_uid(f"{self._root}/{pid}/status"),
            command_line=self._command_line(arguments) if self._command_line and arguments else None,
            outer=tuple((pod, container) for pod, container in outer if pod),
        )


class _Stat(NamedTuple):
    start_time: int
    command: str


def _require(root: str) -> None:
    if os.access(root, os.R_OK | os.X_OK) and os.path.isdir(root):
        return
    what = "cannot be read" if os.path.lexists(root) else "does not exist"
    raise SourceDown(
        f"the proc root {root} {what}",
        hint="Set --proc-root to the directory where the host's /proc is mounted, or run with hostPID: true.",
    )


def _stamp(path: str) -> _Stamp | None:
    """What tells this file from any other that has had its name; None when there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns, status.st_mtime_ns


def _stat(path: str) -> _Stat | None:
    """Start time and name of a living process; None when there is none."""
    line = _read(path, _STAT_LENGTH) or b""
    # A process may give itself any name, also one with blanks and parentheses: only the last one ends it.
    begin, end = line.find(b"("), line.rfind(b")")
    fields = line[end + 2 :].split(b" ", _START_TIME + 1)
    if begin < 0 or len(fields) <= _START_TIME or fields[0] in _ENDED or not fields[_START_TIME].isdigit():
        return None
    return _Stat(int(fields[_START_TIME]), line[begin + 1 : end].decode(errors="replace"))


def _uid(path: str) -> int | None:
    """The effective user of a process; None when the file does not say."""
    try:
        return kernel_text.status_uid(_read(path, _STATUS_LENGTH) or b"")
    except kernel_text.Malformed:
        return None


def _read(path: str, length: int) -> bytes | None:
    """The first bytes of a file; None when the process has ended or is hidden from us."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(file, length)
    except OSError:
        return None
    finally:
        os.close(file)
