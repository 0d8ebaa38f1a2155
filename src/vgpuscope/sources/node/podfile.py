"""The pods of this node from a file: a Kubernetes PodList in JSON, as `kubectl get pods -o json` writes it."""

import asyncio
import os
import stat
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from vgpuscope.formats.kube.lists import ObjectFault
from vgpuscope.formats.kube.pods import PodPage, decode_pods
from vgpuscope.model.errors import KubeUnreadable
from vgpuscope.model.pod import Pod
from vgpuscope.model.quantity import Seconds

if TYPE_CHECKING:
    from vgpuscope.formats.hami.seal import Seals


class PodFile:
    """Reads the file again whenever it was replaced or written to."""

    def __init__(
        self, path: str, *, node: str | None = None, poll: Seconds = 1.0, seals: "Seals | None" = None
    ) -> None:
        self._path = path
        self._node, self._seals = node, seals
        self._poll = poll
        self._stamp: tuple[int, ...] | None = None  # of the file whose content _page holds
        self._page = PodPage()

    @property
    def faults(self) -> tuple[ObjectFault, ...]:
        """What could not be read in the current list."""
        return self._page.faults

    async def follow(self) -> AsyncGenerator[tuple[Pod, ...], None]:
        """The pods at once and then at every poll; KubeUnreadable as soon as the file is missing or bad."""
        while True:
            self._refresh()
            yield self._page.items
            await asyncio.sleep(self._poll)

    def _refresh(self) -> None:
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a FIFO must not block
            with open(fd, "rb") as file:
                found = os.fstat(fd)
                if not stat.S_ISREG(found.st_mode):
                    raise KubeUnreadable(f"{self._path}: not a regular file")
                stamp = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
                if stamp == self._stamp:
                    return
                data = file.read()
        except OSError as e:
            raise KubeUnreadable(f"{self._path}: {e.strerror or e}") from e
        self._page = decode_pods(data, origin=self._path, node=self._node, seals=self._seals)
        self._stamp = stamp  # only now, so that a bad file is read again at the next try
