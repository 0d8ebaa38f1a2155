"""CPU, memory, I/O and network of containers, as the kernel counts them: cgroup v1 and v2.

A container is found by the cgroup of one of its processes. One without a process on a GPU, or one that a private cgroup
namespace hides, is found where the kubelet puts it. What was found is kept. What was not is looked for again after
`_AGAIN` rounds; the same holds for files that a cgroup does not have. A value that cannot be had is None and its reason
is counted: it is never 0.
"""

import errno
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Literal, TypeAlias, TypeVar

from msgspec.structs import replace

from vgpuscope.formats import kernel_text as text
from vgpuscope.formats.cgroup import container_paths, is_container, pod_paths
from vgpuscope.model.container_key import ContainerKey
from vgpuscope.model.errors import CgroupsAbsent, CgroupsUnknown, CgroupsUnreadable
from vgpuscope.model.host import CgroupCounts, SoughtContainer
from vgpuscope.model.quantity import Pid

FaultReason: TypeAlias = Literal["not-found", "vanished", "no-file", "unreadable", "malformed", "backwards"]

_File: TypeAlias = tuple[int, int]  # device and inode
T = TypeVar("T")

_AGAIN = 12  # rounds until what was missing is looked for again, and limits are read again
_LENGTH = 16384
_LINE = 2048  # bytes: a shorter read was the last one, because another line would have fitted
_LONGEST = 1 << 20
_UNIFIED = "cgroup.controllers"  # at the root of cgroup v2
_V1 = ("cpuacct", "cpu", "memory", "blkio")
_MICRO, _NANO = 1e-6, 1e-9
_NO_CONTROLLER = (errno.ENOENT, errno.ENOTDIR, errno.EOPNOTSUPP)
_GONE = (errno.ENODEV, errno.ESRCH)


class _Place:
    """The cgroup of a container, and what is known of its files."""

    __slots__ = ("directories", "id", "limits", "missing", "path", "round")

    def __init__(self, path: str, directories: dict[str, str], container_id: str, at: int) -> None:
        self.path = path
        self.directories = directories  # by controller; v2 has one, ""
        self.id = container_id
        self.round = at  # in which it was found
        self.missing: set[str] = set()  # files that it does not have
        self.limits: tuple[float | None, int | None] = (None, None)


class _Gone(Exception):
    """The cgroup was removed: its container has ended."""


class Cgroups:
    """The containers' cgroups below one root, usually the host's /sys/fs/cgroup."""

    def __init__(self, root: str, *, proc_root: str = "/proc") -> None:
        self._root, self._proc = root.rstrip("/"), proc_root
        self._places: dict[ContainerKey, _Place] = {}
        self._unfound: dict[ContainerKey, tuple[str, int]] = {}  # container id, and the round of the last look
        self._round = 0
        self.faults: Counter[str] = Counter()

    def read(self, sought: Collection[SoughtContainer]) -> dict[ContainerKey, CgroupCounts]:
        """What the kernel counted of each of these containers that was found. Without a hierarchy, SourceDown."""
        controllers = self._controllers()
        self._round += 1
        wanted = {one.key for one in sought}
        self._places = {key: place for key, place in self._places.items() if key in wanted}
        self._unfound = {key: last for key, last in self._unfound.items() if key in wanted}
        host_net = self._inode(1)
        found = {}
        for one in sought:
            place = self._place(one, controllers)
            if place is None:
                continue
            try:
                found[one.key] = self._counts(one, place, host_net)
            except _Gone:
                self.faults["vanished"] += 1
                del self._places[one.key]
        return found

    # ── where ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _controllers(self) -> dict[str, str]:
        """The directory of each hierarchy, by controller; {"": root} for cgroup v2."""
        if os.path.exists(f"{self._root}/{_UNIFIED}"):
            return {"": self._root}
        try:
            names = os.listdir(self._root)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise CgroupsAbsent(f"{self._root}: {error.strerror}") from error
        except OSError as error:
            raise CgroupsUnreadable(f"{self._root}: {error.strerror}") from error
        if not names:
            raise CgroupsAbsent(f"{self._root} is empty: nothing is mounted there")
        found = {part: f"{self._root}/{name}" for name in names for part in name.split(",") if part in _V1}
        if not found:
            raise CgroupsUnknown(f"{self._root} has neither {_UNIFIED} nor {', '.join(_V1)}")
        return found

    def _place(self, one: SoughtContainer, controllers: dict[str, str]) -> _Place | None:
        place = self._places.get(one.key)
        if place is not None and place.id == one.container_id:
            if self._round - place.round < _AGAIN:
                return place
            place.round, place.missing = self._round, set()  # its files may have come, and its limits changed
            return place
        last = self._unfound.get(one.key)
        if last is not None and last[0] == one.container_id and self._round - last[1] < _AGAIN:
            return None
        place = self._look(one, controllers)
        if place is None:
            self.faults["not-found"] += 1
            self._unfound[one.key] = (one.container_id, self._round)
            self._places.pop(one.key, None)
            return None
        self._unfound.pop(one.key, None)
        self._places[one.key] = place
        return place

    def _look(self, one: SoughtContainer, controllers: dict[str, str]) -> _Place | None:
        """By a process of the container, else where the kubelet puts it."""
        for pid in one.pids[:2]:  # a process may just have ended
            try:
                paths = container_paths(_bytes(f"{self._proc}/{pid}/cgroup").decode(errors="replace"), one.container_id)
            except OSError:
                continue
            there = {name: top + paths[name] for name, top in controllers.items() if name in paths}
            there = {name: path for name, path in there.items() if os.path.isdir(path)}
            if there:
                return _Place(next(iter(paths.values())), there, one.container_id, self._round)
        if not one.container_id:
            return None
        tops = list(controllers.items())
        for path in (path for uid in one.pod_uids if uid for path in pod_paths(uid)):
            name = _container_below(tops[0][1] + path, one.container_id)
            if name is not None:
                whole = f"{path}/{name}"
                there = {part: top + whole for part, top in tops if os.path.isdir(top + whole)}
                return _Place(whole, there, one.container_id, self._round)
        return None

    # ── what ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _counts(self, one: SoughtContainer, place: _Place, host_net: _File | None) -> CgroupCounts:
        counts = self._unified(place) if "" in place.directories else self._by_controller(place)
        moved = self._network(one, place, host_net)
        return counts if moved is None else replace(counts, received_bytes=moved.inward, sent_bytes=moved.outward)

    def _unified(self, place: _Place) -> CgroupCounts:
        at = place.directories[""]
        usage, periods, throttled, time = self._file(place, f"{at}/cpu.stat", _cpu_v2) or _NONE
        if place.round == self._round:
            cores = self._file(place, f"{at}/cpu.max", text.cpu_max)
            place.limits = cores, self._file(place, f"{at}/memory.max", text.limit)
        moved = self._file(place, f"{at}/io.stat", text.io_stat)
        return CgroupCounts(
            place=place.path,
            cpu_seconds=_scaled(usage, _MICRO),
            cpu_limit=place.limits[0],
            periods=periods,
            throttled_periods=throttled,
            throttled_seconds=_scaled(time, _MICRO),
            memory=self._file(place, f"{at}/memory.current", text.number),
            memory_inactive=self._file(place, f"{at}/memory.stat", _inactive_v2),
            memory_limit=place.limits[1],
            read_bytes=moved.inward if moved else None,
            written_bytes=moved.outward if moved else None,
        )

    def _by_controller(self, place: _Place) -> CgroupCounts:
        periods, throttled, time, _ = self._of(place, "cpu", "cpu.stat", _cpu_v1) or _NONE
        if place.round == self._round:
            period = self._of(place, "cpu", "cpu.cfs_period_us", text.number)
            quota = self._of(place, "cpu", "cpu.cfs_quota_us", text.limit)
            cores = text.cores(quota, period) if period else None
            place.limits = cores, self._of(place, "memory", "memory.limit_in_bytes", text.limit)
        # Without _recursive, what cgroups below did is not counted; kernels before 5.3 have only that.
        moved = self._of(place, "blkio", "blkio.throttle.io_service_bytes_recursive", text.blkio)
        if moved is None:
            moved = self._of(place, "blkio", "blkio.throttle.io_service_bytes", text.blkio)
        return CgroupCounts(
            place=place.path,
            cpu_seconds=_scaled(self._of(place, "cpuacct", "cpuacct.usage", text.number), _NANO),
            cpu_limit=place.limits[0],
            periods=periods,
            throttled_periods=throttled,
            throttled_seconds=_scaled(time, _NANO),
            memory=self._of(place, "memory", "memory.usage_in_bytes", text.number),
            memory_inactive=self._of(place, "memory", "memory.stat", _inactive_v1),
            memory_limit=place.limits[1],
            read_bytes=moved.inward if moved else None,
            written_bytes=moved.outward if moved else None,
        )

    def _of(self, place: _Place, controller: str, name: str, decode: Callable[[bytes], T]) -> T | None:
        """What a file of one controller says (cgroup v1)."""
        directory = place.directories.get(controller)
        if directory is None:
            self._miss(place, controller)
            return None
        return self._file(place, f"{directory}/{name}", decode)

    def _network(self, one: SoughtContainer, place: _Place, host_net: _File | None) -> text.IoBytes | None:
        """Of the container's network namespace; None on the host's network, or where that cannot be told apart."""
        pid = one.pids[0] if one.pids else self._any_process(place)
        if pid is None or host_net is None:
            return None
        try:
            file = os.open(f"{self._proc}/{pid}/net/dev", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None  # the process has ended; the next round has another one
        try:
            status = os.fstat(file)
            # The kernel makes these files once for each network namespace.
            if (status.st_dev, status.st_ino) == host_net:
                return None
            return text.net_dev(_rest(file))
        except OSError:
            return None
        except text.Malformed:
            self.faults["malformed"] += 1
            return None
        finally:
            os.close(file)

    def _any_process(self, place: _Place) -> Pid | None:
        at = next(iter(place.directories.values()))
        for path in (f"{at}/cgroup.procs", f"{at}/container/cgroup.procs"):  # crun puts processes one level below
            try:
                pid = text.first_pid(_bytes(path))
            except (OSError, text.Malformed):
                continue
            if pid is not None:
                return pid
        return None

    def _inode(self, pid: Pid) -> _File | None:
        try:
            status = os.stat(f"{self._proc}/{pid}/net/dev")
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _file(self, place: _Place, path: str, decode: Callable[[bytes], T]) -> T | None:
        """What a file says; None if it is missing, unreadable or malformed, which is counted."""
        if path in place.missing:
            return None
        try:
            return decode(_bytes(path))
        except text.Malformed:
            self.faults["malformed"] += 1
        except OSError as error:
            if error.errno in _GONE or not os.path.isdir(os.path.dirname(path)):
                raise _Gone from None
            self._miss(place, path, "no-file" if error.errno in _NO_CONTROLLER else "unreadable")
        return None

    def _miss(self, place: _Place, what: str, reason: FaultReason = "no-file") -> None:
        if what not in place.missing:
            place.missing.add(what)
            self.faults[reason] += 1


_NONE = (None, None, None, None)


def _cpu_v2(content: bytes) -> tuple[int | None, ...]:
    return text.keyed(content, b"usage_usec", b"nr_periods", b"nr_throttled", b"throttled_usec")


def _cpu_v1(content: bytes) -> tuple[int | None, ...]:
    return (*text.keyed(content, b"nr_periods", b"nr_throttled", b"throttled_time"), None)


def _inactive_v2(content: bytes) -> int | None:
    return text.keyed(content, b"inactive_file")[0]


def _inactive_v1(content: bytes) -> int | None:
    return text.keyed(content, b"total_inactive_file")[0]


def _scaled(count: int | None, scale: float) -> float | None:
    return None if count is None else count * scale


def _container_below(pod: str, container_id: str) -> str | None:
    try:
        names: Iterable[str] = os.listdir(pod)
    except OSError:
        return None
    return next((name for name in names if is_container(name, container_id)), None)


def _bytes(path: str) -> bytes:
    """The content of a file, which the kernel may give in several parts."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _rest(file)
    finally:
        os.close(file)


def _rest(file: int) -> bytes:
    content = part = os.read(file, _LENGTH)
    while len(part) >= _LINE and len(content) < _LONGEST:
        part = os.read(file, _LENGTH)
        content += part
    return content
