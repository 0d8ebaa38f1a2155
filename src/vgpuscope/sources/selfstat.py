"""Resource usage of this process, from /proc/self and getrusage."""

import os
import resource

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """User and system time of this process."""
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


def resident_bytes() -> int | None:
    """Resident memory; None if /proc cannot be read."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return None


def open_fds() -> int | None:
    """Open file descriptors, without the one used for counting."""
    try:
        return len(os.listdir("/proc/self/fd")) - 1
    except OSError:
        return None


def start_time() -> float | None:
    """When this process was started, unix time."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rsplit(b")", 1)[1].split()[19])
        with open("/proc/stat", "rb") as file:
            boot = next(int(line.split()[1]) for line in file if line.startswith(b"btime"))
    except (OSError, IndexError, ValueError, StopIteration):
        return None
    return boot + ticks / _TICKS
