"""HAMi's region of every container of this node, read and never written.

<hook path>/containers/<pod UID>_<container>/ is mounted into the container, so a tenant may put there what it likes:
links, pipes, devices, a million files, a file that shrinks while we read. The file is therefore opened without
following links and without waiting, and read by pread: to touch a page of a mapping behind the end of a file that was
cut means SIGBUS, and that would end the agent.
"""

import errno
import os
import stat
import time
from collections.abc import Collection

from msgspec import Struct, field

from vgpuscope.formats.hami.region import LastDecoded, decode, identify
from vgpuscope.model.errors import RegionRefused, RegionsAbsent, RegionsUnreadable
from vgpuscope.model.quantity import PodUID
from vgpuscope.model.region import ContainerRegion, Refusal, Region, RegionReading

# NONBLOCK: an open must wait neither for the writer of a pipe nor for the holder of a lease.
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FIRST_READ = 16384  # the header and seven slots: few containers need a second look
_MOST_FILES = 2  # the region and libvgpu.so; HAMi rejects a directory with more
_MOST_ENTRIES = 1000  # of any kind; a tenant may have filled the directory
_SETTLED_NS = 1_000_000_000  # file systems count in ticks: two changes within one leave the same time stamp


class Regions:
    """The regions below one containers directory."""

    def __init__(self, containers_dir: str) -> None:
        self._root = containers_dir
        self._choices: dict[str, _Choice] = {}

    def read(self, only: Collection[tuple[PodUID, str]] | None = None) -> RegionReading:
        """Every container that has a directory, and every refusal; what vanishes while we look is neither.

        Asked for some containers only, it reads those and forgets nothing of the others.
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
            refusals=tuple(one for one in found if isinstance(one, Refusal)),
        )

    def _visit(self, entry: os.DirEntry[str], before: "_Choice | None") -> ContainerRegion | Refusal | None:
        path = entry.path
        try:
            choice = self._choose(entry, before)
            if choice.refused:
                return Refusal(path=_printable(path), reason=choice.refused)
            path = choice.file or path
            region = _read(choice.file, choice.known) if choice.file else None
        except RegionRefused as refused:
            return Refusal(path=_printable(path), reason=refused.reason)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            return Refusal(path=_printable(path), reason="not_a_file" if error.errno == errno.ELOOP else "unreadable")
        return ContainerRegion(pod_uid=choice.pod_uid, container=choice.container, region=region)

    def _choose(self, entry: os.DirEntry[str], before: "_Choice | None") -> "_Choice":
        """What to read in a directory; listed anew only when the directory has changed."""
        status = entry.stat(follow_symlinks=False)
        changed = (status.st_ino, status.st_ctime_ns)
        choice = before if before and before.changed == changed else _choice(entry, changed)
        if time.time_ns() - status.st_ctime_ns > _SETTLED_NS:
            self._choices[entry.path] = choice
        return choice


class _Choice(Struct, frozen=True, kw_only=True):
    """What a directory held when it was listed: a region file, none yet, or a reason to leave it alone."""

    changed: tuple[int, int]  # inode and ctime: a tenant can set mtime, but not this
    pod_uid: PodUID
    container: str
    file: str | None = None
    refused: str | None = None
    known: LastDecoded = field(default_factory=LastDecoded)  # what was last decoded of the file


def _directories(root: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(root) as entries:
            return sorted((entry for entry in entries if entry.is_dir(follow_symlinks=False)), key=lambda e: e.name)
    except FileNotFoundError as error:
        raise RegionsAbsent(f"{root} does not exist") from error
    except OSError as error:
        raise RegionsUnreadable(f"cannot list {root}: {error.strerror}") from error


def _names(directory: str) -> tuple[str, str]:
    """Pod UID and container name; neither can contain an underscore, so the first one parts them."""
    pod_uid, _, container = directory.partition("_")
    if not pod_uid or not container or _printable(directory) != directory:
        raise RegionRefused("bad_name")
    return pod_uid, container


def _choice(entry: os.DirEntry[str], changed: tuple[int, int]) -> _Choice:
    pod_uid, container = _names(entry.name)
    file, refused = _list(entry.path)
    return _Choice(changed=changed, pod_uid=pod_uid, container=container, file=file, refused=refused)


def _list(directory: str) -> tuple[str | None, str | None]:
    """The file HAMi chooses, the first .cache by name, or why none: there are too many files of HAMi's kind."""
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
    if not first.is_file(follow_symlinks=False):  # asked before the open, because to open a device may act on it
        return None, "not_a_file"
    return first.path, None


def _read(path: str, known: LastDecoded) -> Region:
    file = os.open(path, _FLAGS)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise RegionRefused("not_a_file")
        region = _decode(file, status.st_size, known)
        # Once only: a process killed while it wrote leaves the mark for good.
        return _decode(file, status.st_size, known) if region.writing else region
    finally:
        os.close(file)


def _decode(file: int, size: int, known: LastDecoded) -> Region:
    """The region in an open file of that size: a few kB of its two million, since the slots in use come first."""
    head = os.pread(file, _FIRST_READ, 0)
    layout = identify(size, head)
    offset, length = layout.tail
    tail = os.pread(file, length, offset)
    missing = layout.head_length(layout.process_count(tail)) - len(head)
    if missing > 0:
        head += os.pread(file, missing, len(head))
    return decode(layout, head, tail, known)


def _printable(path: str) -> str:
    """The path as text that any log and label can carry: a file's name may be any bytes."""
    return os.fsencode(path).decode(errors="replace")
