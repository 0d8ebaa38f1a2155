"""What program this is."""

from msgspec import Struct


class Build(Struct, frozen=True, kw_only=True):
    """What every process says of itself."""

    version: str
    revision: str
    build_date: str
    python_version: str
    compiler: str
    platform: str
