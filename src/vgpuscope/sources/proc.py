"""Which pod and container a host process belongs to, from the kernel's /proc."""

import os
from collections.abc import Iterable
from typing import NamedTuple

from vgpuscope.formats.cgroup import owner_of
from vgpuscope.model.errors import SourceDown
from vgpuscope.model.pod import ProcessOwner
from vgpuscope.model.quantity import Pid

_STAT_LENGTH = 1024  # 50 numbers and a name of at most 64 bytes
_CGROUP_LENGTH = 65536
_START_TIME = 19  # field 22 of stat, counted from the state behind the name
_ENDED = (b"Z", b"X")


class Proc:
    """The processes below one proc root: the host's, when the agent shares its pid namespace or mounts its /proc."""

    def __init__(self, root: str = "/proc") -> None:
        self._root = root
        self._known: dict[Pid, ProcessOwner] = {}

    def owners(self, pids: Iterable[Pid]) -> dict[Pid, ProcessOwner]:
        """The owner of each of these processes that exists; zombies do not."""
        _require(self._root)
        found = ((pid, self._owner(pid)) for pid in set(pids))
        self._known = {pid: owner for pid, owner in found if owner}
        return self._known

    def _owner(self, pid: Pid) -> ProcessOwner | None:
        now = _stat(f"{self._root}/{pid}/stat")
        if now is None:
            return None
        known = self._known.get(pid)
        if known and now == (known.start_time, known.command):
            return known
        cgroup = _read(f"{self._root}/{pid}/cgroup", _CGROUP_LENGTH)
        again = _stat(f"{self._root}/{pid}/stat")  # it may have ended meanwhile, and its pid be another's by now
        if cgroup is None or again is None or again.start_time != now.start_time:
            return None
        pod_uid, container_id = owner_of(cgroup.decode(errors="replace"))
        return ProcessOwner(
            pid=pid, start_time=now.start_time, pod_uid=pod_uid, container_id=container_id, command=now.command
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
        hint="Say --proc-root with the directory where the host's /proc is mounted, or run with hostPID: true.",
    )


def _stat(path: str) -> _Stat | None:
    """Start time and name of a living process; None when there is none."""
    line = _read(path, _STAT_LENGTH) or b""
    # A process may give itself any name, also one with blanks and parentheses: only the last one ends it.
    begin, end = line.find(b"("), line.rfind(b")")
    fields = line[end + 2 :].split(b" ", _START_TIME + 1)
    if begin < 0 or len(fields) <= _START_TIME or fields[0] in _ENDED or not fields[_START_TIME].isdigit():
        return None
    return _Stat(int(fields[_START_TIME]), line[begin + 1 : end].decode(errors="replace"))


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
