"""The GPU faults that the device plugin keeps in an annotation of its node.

There an operator sees them, and clears them: all by removing the annotation, one by removing its entry.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from vgpuscope.formats.times import from_rfc3339
from vgpuscope.model.errors import AnnotationMalformed
from vgpuscope.model.plugin import GpuFault

FAULTS = "vgpuscope.io/gpu-faults"
_MOST = 1024


class _Fault(Struct, frozen=True):
    gpu: Annotated[str, Meta(min_length=1, max_length=253)]
    xid: int
    since: str


_faults = msgspec.json.Decoder(Annotated[list[_Fault], Meta(max_length=_MOST)])


def encode_faults(faults: Iterable[GpuFault]) -> str | None:
    """The annotation; None if there is no fault."""
    found = [_Fault(one.gpu, one.xid, f"{datetime.fromtimestamp(one.since, UTC):%Y-%m-%dT%H:%M:%SZ}") for one in faults]
    return msgspec.json.encode(found).decode() if found else None


def decode_faults(text: str | None) -> tuple[GpuFault, ...]:
    """The faults in an annotation; AnnotationMalformed if an editor broke it."""
    if not text or not text.strip():
        return ()
    try:
        found = _faults.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as e:
        raise AnnotationMalformed(f"{FAULTS}: {e}") from e
    since = [from_rfc3339(one.since) for one in found]
    if None in since:
        raise AnnotationMalformed(f"{FAULTS}: a time is not of the form 2026-11-15T08:00:00Z")
    return tuple(
        GpuFault(gpu=one.gpu, xid=one.xid, since=at) for one, at in zip(found, since, strict=True) if at is not None
    )
