"""Text files of the kernel: those of a cgroup (both versions), and /proc's stat, meminfo, loadavg and net/dev.

    cgroup v2   cpu.stat, memory.stat   one `name number` a line
                cpu.max                 `quota period` in microseconds, quota may be `max`
                memory.max              a number, or `max`
                io.stat                 `major:minor rbytes=… wbytes=… …` for each device
    cgroup v1   cpu.stat, memory.stat   one `name number` a line
                cpu.cfs_quota_us        -1: no limit
                memory.limit_in_bytes   without a limit, the largest number of bytes in whole pages
                blkio.throttle.io_service_bytes   `major:minor Read number` for each device, and a `Total`

The formats are those of Documentation/admin-guide/cgroup-v1, cgroup-v2.rst and proc(5). Each function returns what the
text says, or refuses it by Malformed.
"""

from typing import NamedTuple

from vgpuscope.model.host import CpuTimes

_MOST = 1 << 64
_NO_LIMIT = 1 << 62  # bytes; v1 writes 2^63 less one page where there is no limit
_DIGITS = 20
_KIB = 1024
_NET_FIELDS, _SENT = 16, 8
_LOOPBACK = b"lo"


class Malformed(ValueError):
    """The text does not have the format of its file."""


class IoBytes(NamedTuple):
    """Bytes read and written, or received and sent."""

    inward: int
    outward: int


def number(text: bytes) -> int:
    """A file that is one number."""
    return _count(text.strip())


def limit(text: bytes) -> int | None:
    """A file that is one limit; None: there is none."""
    word = text.strip()
    if word in (b"max", b"-1"):
        return None
    found = _count(word)
    return None if found >= _NO_LIMIT else found


def keyed(text: bytes, *names: bytes) -> tuple[int | None, ...]:
    """The numbers of these names; None for a name that the file does not have."""
    lines = b"\n" + text
    found: list[int | None] = []
    for name in names:
        at = lines.find(b"\n" + name + b" ")  # these files are long, and few of their lines are wanted
        if at < 0:
            found.append(None)
            continue
        begin = at + len(name) + 2
        end = lines.find(b"\n", begin)
        found.append(_count(lines[begin : end if end >= 0 else None]))
    if not text:
        raise Malformed("an empty file")
    return tuple(found)


def cpu_max(text: bytes) -> float | None:
    """The CPU limit in cores (cgroup v2); None: there is none."""
    quota, _, period = text.strip().partition(b" ")
    return cores(limit(quota), _count(period))


def cores(quota: int | None, period: int) -> float | None:
    """A CPU limit in cores; None: there is none."""
    if period <= 0:
        raise Malformed("a period of 0")
    return None if quota is None else quota / period


def io_stat(text: bytes) -> IoBytes:
    """Bytes read and written on all devices (cgroup v2). An empty file means that there was no I/O."""
    read = written = 0
    for line in text.splitlines():
        words = line.split()
        if not words or b":" not in words[0]:
            raise Malformed("a line without a device")
        for word in words[1:]:
            if word.startswith(b"rbytes="):
                read += _count(word[7:])
            elif word.startswith(b"wbytes="):
                written += _count(word[7:])
    return IoBytes(read, written)


def blkio(text: bytes) -> IoBytes | None:
    """Bytes read and written on all devices (cgroup v1); None without a device.

    Newer kernels count only what a limit of I/O applies to. Without one they write a total of 0, which says nothing.
    """
    found = {b"Read": 0, b"Write": 0}
    counted = False
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and words[1] in found:
            found[words[1]] += _count(words[2])
            counted = True
        elif len(words) not in (2, 3):
            raise Malformed("a line of another form")
    return IoBytes(found[b"Read"], found[b"Write"]) if counted else None


def net_dev(text: bytes) -> IoBytes:
    """Bytes received and sent over all interfaces but the loopback one."""
    received = sent = 0
    lines = text.splitlines()
    if len(lines) < 2 or b"|" not in lines[1]:
        raise Malformed("no heading")
    for line in lines[2:]:
        name, colon, counts = line.rpartition(b":")
        words = counts.split()
        if not colon or len(words) < _NET_FIELDS:
            raise Malformed("a line of another form")
        if name.strip() != _LOOPBACK:
            received += _count(words[0])
            sent += _count(words[_SENT])
    return IoBytes(received, sent)


class NodeStat(NamedTuple):
    """What /proc/stat says."""

    cpus: int
    cpu: CpuTimes
    booted: int | None


def node_stat(text: bytes, *, ticks: int) -> NodeStat:
    """CPU time of the node since boot. `ticks`: clock ticks of a second. Guests' time is in user time already."""
    cpus, whole, booted = 0, None, None
    for line in text.splitlines():
        word = line.partition(b" ")[0]
        if word == b"cpu":
            whole = [_count(one) / ticks for one in line.split()[1:9]]
        elif word.startswith(b"cpu"):
            cpus += 1
        elif word == b"btime":
            booted = _count(line[6:].strip())
    if whole is None or len(whole) < 4:
        raise Malformed("no line cpu")
    user, nice, system, idle, iowait, irq, softirq, steal = [*whole, 0.0, 0.0, 0.0, 0.0][:8]
    times = CpuTimes(user=user + nice, system=system + irq + softirq, iowait=iowait, steal=steal, idle=idle)
    return NodeStat(cpus, times, booted)


def meminfo(text: bytes) -> tuple[int | None, int | None]:
    """Total and available memory in bytes; kernels before 3.14 do not say what is available."""
    found: dict[bytes, int] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(b":")
        if not colon:
            raise Malformed("a line without a value")
        if name in (b"MemTotal", b"MemAvailable"):
            found[name] = _count(value.strip().removesuffix(b" kB")) * _KIB
    return found.get(b"MemTotal"), found.get(b"MemAvailable")


def loadavg(text: bytes) -> tuple[float, float, float]:
    """The mean number of processes that run or wait for the disk, over 1, 5 and 15 minutes."""
    words = text.split()
    if len(words) < 3:
        raise Malformed("fewer than three numbers")
    one, five, fifteen = [_decimal(word) for word in words[:3]]
    return one, five, fifteen


def first_pid(text: bytes) -> int | None:
    """The first process of a cgroup.procs that we can see; 0 is one of another pid namespace."""
    for line in text.splitlines():
        if (pid := _count(line.strip())) > 0:
            return pid
    return None


def status_uid(text: bytes) -> int | None:
    """The effective user of a process by its status; None if the file does not say."""
    for line in text.splitlines():
        if line.startswith(b"Uid:"):
            words = line.split()
            return _count(words[2]) if len(words) > 2 else None
    return None


def _count(word: bytes) -> int:
    if not word.isdigit() or len(word) > _DIGITS or (found := int(word)) >= _MOST:
        raise Malformed("not a number")
    return found


def _decimal(word: bytes) -> float:
    whole, _, part = word.partition(b".")
    if not whole.isdigit() or not (part.isdigit() or not part) or len(word) > _DIGITS:
        raise Malformed("not a number")
    return float(word)
