"""The state of the watch of one kind of object."""

from msgspec import Struct


class WatchState(Struct, frozen=True, kw_only=True):
    """One kind of object that is listed and watched."""

    kind: str  # nodes, pods, resourcequotas
    up: bool = False
    objects: int | None = None  # None: never listed
    events: int = 0
    faults: int = 0
    age_seconds: float | None = None  # since the API server last sent something
    awaited: bool = True  # False: no message is expected, because the kind is not served, or forbidden and not needed
    code: str | None = None
    message: str | None = None
