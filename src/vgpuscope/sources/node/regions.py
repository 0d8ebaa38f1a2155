"""HAMi's region of every container of this node, read and never written.

<hook path>/containers/<pod UID>_<container>/ is mounted into the container, so a tenant can put anything there: links,
pipes, devices, a million files, a file that shrinks during the read. The file is therefore opened without following
links and without waiting. It is read by pread, not mapped: accessing a mapped page beyond the end of a truncated file
raises SIGBUS, which would end the agent.
"""

import errno
import os
import stat
import time
from collections.abc import Callable, Collection

from msgspec import Struct, field

from vgpuscope.formats.hami.region import LastDecoded, decode, identify
from vgpuscope.model.errors import RegionRefused, RegionsAbsent, RegionsUnreadable
from vgpuscope.model.quantity import PodUID
from vgpuscope.model.region import ContainerRegion, Region, RegionReading, RejectedRegion

# NONBLOCK: open() must wait neither for the writer of a pipe nor for the holder of a lease.
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FIRST_READ = 16384  # bytes: the header and seven slots; few containers need a second read
_MOST_FILES = 2  # the region and libvgpu.so; HAMi rejects a directory with more
_MOST_ENTRIES = 1000  # of any kind; a tenant may have filled the directory
_SETTLED_NS = 1_000_000_000  # file timestamps have a granularity: two changes within one tick have the same timestamp


class Regions:
    """The regions below one containers directory."""

    def __init__(
        self,
        containers_dir: str,
        *,
        unexpected: Callable[[str, Exception], object] = lambda _, __: None,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`unexpected` is called with a path and an error that is none of the expected ones."""
        self._root, self._unexpected, self._clock_ns = containers_dir, unexpected, clock_ns
        self._choices: dict[str, _Choice] = {}

    def read(self, only: Collection[tuple[PodUID, str]] | None = None) -> RegionReading:
        """Every container that has a directory, and every refusal; entries that vanish meanwhile are neither.

        With `only`, it reads those containers and forgets nothing about the others.
        """
        entries = _directories(self._root)
        if only is None:
            before, self._choices = self._choices, {}
        else:
            before, names = self._choices, {f"{pod_uid}_{container}" for pod_uid, container in only}
            entries = [entry for entry in entries if entry.name in names]
        found = [self._visit(entry, before.get(entry.path)) for entry in entries]
        return RegionReading(
            containers=tuple(one for one in found if isinstance(one, ContainerRegion)),
            refusals=tuple(one for one in found if isinstance(one, RejectedRegion)),
        )

    def _visit(self, entry: os.DirEntry[str], before: "_Choice | None") -> ContainerRegion | RejectedRegion | None:
        path = entry.path
        try:
            choice = self._choose(entry, before)
            if choice.refused:
                return RejectedRegion(path=_printable(path), reason=choice.refused)
            path = choice.file or path
            region = _read(choice.file, choice.known) if choice.file else None
        except RegionRefused as refused:
            return RejectedRegion(path=_printable(path), reason=refused.reason)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            return RejectedRegion(
                path=_printable(path), reason="not_a_file" if error.errno == errno.ELOOP else "unreadable"
            )
        except Exception as error:  # whoever wrote this region must not be able to hide all others
            self._unexpected(f"region {_printable(path)}", error)
            return RejectedRegion(path=_printable(path), reason="unexpected")
        return ContainerRegion(pod_uid=choice.pod_uid, container=choice.container, region=region, path=choice.file)

    def _choose(self, entry: os.DirEntry[str], before: "_Choice | None") -> "_Choice":
        """What to read in a directory; the directory is listed again only when it has changed."""
        status = entry.stat(follow_symlinks=False)
        changed = (status.st_ino, status.st_ctime_ns)
        choice = before if before and before.changed == changed else _choice(entry, changed)
        if self._clock_ns() - status.st_ctime_ns > _SETTLED_NS:
            self._choices[entry.path] = choice
        return choice


class _Choice(Struct, frozen=True, kw_only=True):
    """The content of a directory when it was listed: a region file, no file yet, or a reason to skip it."""

    changed: tuple[int, int]  # inode and ctime: a tenant can set mtime, but not ctime
    pod_uid: PodUID
    container: str
    file: str | None = None
    refused: str | None = None
    known: LastDecoded = field(default_factory=LastDecoded)  # the last decoded values of the file


def _directories(root: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(root) as entries:
            return sorted((entry for entry in entries if entry.is_dir(follow_symlinks=False)), key=lambda e: e.name)
    except FileNotFoundError as error:
        raise RegionsAbsent(f"{root} does not exist") from error
    except OSError as error:
        raise RegionsUnreadable(f"cannot list {root}: {error.strerror}") from error


def _names(directory: str) -> tuple[str, str]:
    """Pod UID and container name; neither can contain an underscore, so the first underscore separates them."""
    pod_uid, _, container = directory.partition("_")
    if not pod_uid or not container or _printable(directory) != directory:
        raise RegionRefused("bad_name")
    return pod_uid, container


def _choice(entry: os.DirEntry[str], changed: tuple[int, int]) -> _Choice:
    pod_uid, container = _names(entry.name)
    file, refused = _list(entry.path)
    return _Choice(changed=changed, pod_uid=pod_uid, container=container, file=file, refused=refused)


def _list(directory: str) -> tuple[str | None, str | None]:
    """The file that HAMi chooses (the first .cache by name), or the reason for none: too many of HAMi's files."""
    counted, regions = 0, []
    with os.scandir(directory) as entries:
        for number, entry in enumerate(entries, start=1):
            library = "libvgpu.so" in entry.name
            region = entry.name.endswith(".cache")
            counted += library or region
            if counted > _MOST_FILES or number > _MOST_ENTRIES:
                return None, "too_many_files"
            if region and not library:
                regions.append(entry)
    if not regions:
        return None, None
    first = min(regions, key=lambda entry: entry.name)
    if not first.is_file(follow_symlinks=False):  # checked before open(), because opening a device may act on it
        return None, "not_a_file"
    return first.path, None


def _read(path: str, known: LastDecoded) -> Region:
    file = os.open(path, _FLAGS)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise RegionRefused("not_a_file")
        region = _decode(file, status.st_size, known)
        # Retry only once: a process killed while writing leaves the mark forever.
        return _decode(file, status.st_size, known) if region.writing else region
    finally:
        os.close(file)


def _decode(file: int, size: int, known: LastDecoded) -> Region:
    """The region in an open file of that size: a few kB of its 2 MB are read, since the used slots come first."""
    head = os.pread(file, _FIRST_READ, 0)
    layout = identify(size, head)
    offset, length = layout.tail
    tail = os.pread(file, length, offset)
    missing = layout.head_length(layout.process_count(tail)) - len(head)
    if missing > 0:
        head += os.pread(file, missing, len(head))
    return decode(layout, head, tail, known)


def _printable(path: str) -> str:
    """The path as text that is safe in any log and label: a file name may contain any bytes."""
    return os.fsencode(path).decode(errors="replace")
