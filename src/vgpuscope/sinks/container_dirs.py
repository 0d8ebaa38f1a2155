"""The directory of each container on the host that its region is created in, and HAMi's library beside them."""

import os
import re
import shutil
import stat
import uuid
from contextlib import suppress

from vgpuscope.model.errors import AllocateDirectory
from vgpuscope.model.quantity import PodUID

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # a path is made of it
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
            if os.path.lexists(path):
                shutil.rmtree(path)  # follows no links
            os.makedirs(self._root, exist_ok=True)
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
        with suppress(AllocateDirectory):
            shutil.rmtree(self._path(pod, container), ignore_errors=True)

    def _path(self, pod: PodUID, container: str) -> str:
        if not _NAME.fullmatch(pod) or not _NAME.fullmatch(container) or "_" in pod:
            raise AllocateDirectory(f"{pod!r} and {container!r} are not the names of a pod and a container")
        return os.path.join(self._root, f"{pod}_{container}")


def _open_to_all(path: str) -> None:
    """Set the mode, to which mkdir would apply the umask; OSError for a link: anybody can make one in /tmp."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
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
