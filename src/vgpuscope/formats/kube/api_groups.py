"""An API group as the Kubernetes API describes it → the versions that are served."""

import msgspec
from msgspec import Struct

from vgpuscope.model.errors import KubeUnreadable


def decode_group_versions(data: bytes) -> tuple[str, ...]:
    """The versions of the group, the server's preferred one first; raises KubeUnreadable if it is not an APIGroup."""
    try:
        found = _GROUP.decode(data)
    except (ValueError, RecursionError) as e:
        raise KubeUnreadable(f"API group: {e}") from e
    if found.kind != "APIGroup":
        raise KubeUnreadable(f"API group: expected an APIGroup, got {(found.kind or 'an object without kind')[:80]}")
    return tuple(one.version for one in found.versions or ())


class _Version(Struct):
    version: str


class _Group(Struct):
    kind: str | None = None
    versions: list[_Version] | None = None


_GROUP = msgspec.json.Decoder(_Group)
