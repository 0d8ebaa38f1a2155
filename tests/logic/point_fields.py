"""Which fields of points are read, so that a store need not read the others."""

from collections.abc import Callable
from typing import Any

from vgpuscope.model.history import HistoryPoint

_NAMES = {"step", "time", "gpu_id", "mig", "hostname", "model", "namespace", "pod", "owner"}  # every point has them


class _Watched:
    """A point that notes which of its fields are read."""

    def __init__(self, point: HistoryPoint, read: set[str]) -> None:
        self._point, self._read = point, read

    def __getattr__(self, name: str) -> Any:
        self._read.add(name)
        return getattr(self._point, name)


def fields_read(work: Callable[..., object], *points: list[HistoryPoint]) -> set[str]:
    """The fields, besides names, that the work reads of these points."""
    read: set[str] = set()
    work(*([_Watched(point, read) for point in some] for some in points))
    return read - _NAMES
