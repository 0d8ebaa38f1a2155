"""The identity of the running program."""

from msgspec import Struct


class Build(Struct, frozen=True, kw_only=True):
    """The version and build that every process reports."""

    version: str
    revision: str
    build_date: str
    python_version: str
    compiler: str
    platform: str
