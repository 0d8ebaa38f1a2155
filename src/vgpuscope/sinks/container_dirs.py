"""The directory of each container on the host that its region is created in, and HAMi's library beside them."""

import os
import re
import stat
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from vgpuscope.model.errors import AllocateDirectory
from vgpuscope.model.quantity import PodUID, UnixTime

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # a path is made of it
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_EVERYBODY = 0o777  # the user inside the container is unknown


class ContainerDirs:
    """<hook>/containers/<pod UID>_<container>."""

    def __init__(self, hook: str, locks: str) -> None:
        self._root, self._locks = os.path.join(hook, "containers"), locks

    def create(self, pod: PodUID, container: str) -> tuple[str, str]:
        """A new, empty directory in place of an old one, and the name of a region that was never used.

        Raises AllocateDirectory.
        """
        path = self._path(pod, container)
        try:
            os.makedirs(self._root, exist_ok=True)
            with self._opened() as root, suppress(FileNotFoundError):
                _remove(root, os.path.basename(path))
            os.mkdir(path)
            _open_to_all(path)
            with suppress(FileExistsError):
                os.mkdir(self._locks)
            _open_to_all(self._locks)
        except OSError as e:
            raise AllocateDirectory(f"{e.filename or path}: {e.strerror or e}") from e
        return path, f"{uuid.uuid4()}.cache"

    def remove(self, pod: PodUID, container: str) -> None:
        """Remove the directory of a container that did not get its devices."""
        with suppress(AllocateDirectory, OSError):
            name = os.path.basename(self._path(pod, container))
            with self._opened() as root:
                _remove(root, name)

    def old(self, before: UnixTime) -> tuple[str, ...]:
        """The names of containers' directories that were last changed before that time. Raises AllocateDirectory."""
        try:
            with self._opened() as root:
                return tuple(_old(root, before))
        except FileNotFoundError:  # no container yet
            return ()
        except OSError as e:
            raise AllocateDirectory(f"{self._root}: {e.strerror or e}") from e

    def remove_others(self, pods: Collection[PodUID], before: UnixTime) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Remove old directories of all but these pods: the names of those removed, and why others were not.

        Only directories named <pod UID>_<container> are removed; links are not followed, not even in place of one.
        """
        removed, failures = [], []
        try:
            with self._opened() as root:
                for name in _old(root, before):
                    if name.partition("_")[0] in pods:
                        continue
                    try:
                        _remove(root, name)
                    except FileNotFoundError:  # HAMi's monitor was faster
                        continue
                    except OSError as e:
                        failures.append(f"{name}: {e.strerror or e}")
                    else:
                        removed.append(name)
        except OSError as e:
            failures.append(f"{self._root}: {e.strerror or e}")
        return tuple(removed), tuple(failures)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        root = os.open(self._root, _DIRECTORY)
        try:
            yield root
        finally:
            os.close(root)

    def _path(self, pod: PodUID, container: str) -> str:
        if not _NAME.fullmatch(pod) or not _NAME.fullmatch(container) or "_" in pod:
            raise AllocateDirectory(f"{pod!r} and {container!r} are not the names of a pod and a container")
        return os.path.join(self._root, f"{pod}_{container}")


def _remove(root: int, name: str) -> None:
    """Remove a file or a tree below the directory `root`; no link is followed.

    A tenant may have made a tree that is deeper than the stack or the number of open files allows. So each directory
    inside is moved up beside the first one before it is emptied, and the depth never exceeds one. Its new name is one
    of the same pod, so that the next round removes what an interrupted one has left.
    """
    waiting = [name]
    while waiting:
        try:
            directory = os.open(waiting[-1], _DIRECTORY, dir_fd=root)
        except NotADirectoryError:  # a file, or a link
            os.unlink(waiting.pop(), dir_fd=root)
            continue
        try:
            with os.scandir(directory) as entries:
                inside = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
            for entry, is_directory in inside:
                if is_directory:
                    waiting.insert(0, f"{name}.{uuid.uuid4().hex}")
                    os.rename(entry, waiting[0], src_dir_fd=directory, dst_dir_fd=root)
                else:
                    os.unlink(entry, dir_fd=directory)
        finally:
            os.close(directory)
        os.rmdir(waiting.pop(), dir_fd=root)


def _old(root: int, before: UnixTime) -> Iterator[str]:
    for name in sorted(os.listdir(root)):
        pod, _, container = name.partition("_")
        if not _NAME.fullmatch(pod) or not _NAME.fullmatch(container) or "_" in container:
            continue
        with suppress(FileNotFoundError):
            found = os.stat(name, dir_fd=root, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode) and found.st_mtime < before:
                yield name


def _open_to_all(path: str) -> None:
    """Set the mode, to which mkdir would apply the umask; OSError for a link: anybody can make one in /tmp."""
    directory = os.open(path, _DIRECTORY)
    try:
        if stat.S_IMODE(os.fstat(directory).st_mode) != _EVERYBODY:
            os.fchmod(directory, _EVERYBODY)
    finally:
        os.close(directory)


def ensure_preload(path: str, library: str) -> None:
    """Create the file that makes the loader load the library, unless there is one. Raises OSError."""
    if os.path.exists(path):
        return
    part = f"{path}.{uuid.uuid4().hex}"
    with open(part, "w") as file:
        file.write(f"{library}\n")
    os.chmod(part, 0o644)
    os.replace(part, path)
