"""CPU, memory and load of the node, from the kernel's /proc."""

import os
from collections.abc import Callable
from typing import TypeVar

from vgpuscope.formats import kernel_text as text
from vgpuscope.model.host import NodeHost

T = TypeVar("T")

_TICKS = os.sysconf("SC_CLK_TCK")
_LENGTH = 1 << 18  # /proc/stat counts every interrupt of every CPU


class HostFiles:
    """The node-wide files below one proc root. A file that is missing or malformed leaves its values absent."""

    def __init__(self, root: str = "/proc") -> None:
        self._root = root
        self.malformed = 0

    def read(self) -> NodeHost:
        """What the kernel says of the node now."""
        stat = self._file("stat", lambda content: text.node_stat(content, ticks=_TICKS))
        total, available = self._file("meminfo", text.meminfo) or (None, None)
        return NodeHost(
            cpus=(stat.cpus or None) if stat else None,
            cpu=stat.cpu if stat else None,
            memory_total=total,
            memory_available=available,
            load=self._file("loadavg", text.loadavg),
            booted=stat.booted if stat else None,
        )

    def _file(self, name: str, decode: Callable[[bytes], T]) -> T | None:
        try:
            with open(f"{self._root}/{name}", "rb", buffering=0) as file:
                return decode(file.read(_LENGTH) or b"")
        except OSError:
            return None
        except text.Malformed:
            self.malformed += 1
            return None
