"""An analysis as compact bytes, and back: MessagePack in pieces, deflated.

The first piece is the analysis without its GPUs; each other piece has some of the GPUs. Because of the pieces, neither
the memory nor the time for which other threads wait grows with the fleet. A length of 4 bytes precedes each piece.
"""

import zlib
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from vgpuscope.model.analysis import Analysis, GpuUse

_LEVEL = 1  # a higher level doubles the time and saves a tenth of the bytes
_GPUS = 500
_READ = 65536
_ENCODER = msgspec.msgpack.Encoder()
_HEAD = msgspec.msgpack.Decoder(Analysis)
_SOME = msgspec.msgpack.Decoder(tuple[GpuUse, ...])


def pack(analysis: Analysis) -> bytes:
    """The analysis as bytes."""
    deflate = zlib.compressobj(_LEVEL)
    parts = []
    for piece in (replace(analysis, gpus=()), *_some(analysis.gpus)):
        encoded = _ENCODER.encode(piece)
        parts.append(deflate.compress(len(encoded).to_bytes(4)))
        parts.append(deflate.compress(encoded))
    parts.append(deflate.flush())
    return b"".join(parts)


def unpack(packed: bytes) -> Analysis:
    """The analysis; ValueError if the bytes were not written by this version."""
    try:
        pieces = _pieces(packed)
        head = _HEAD.decode(next(pieces, b""))
        return replace(head, gpus=tuple(gpu for piece in pieces for gpu in _SOME.decode(piece)))
    except (zlib.error, msgspec.MsgspecError) as e:
        raise ValueError(f"the stored analysis cannot be read: {e}") from e


def _some(gpus: tuple[GpuUse, ...]) -> Iterator[tuple[GpuUse, ...]]:
    return (gpus[at : at + _GPUS] for at in range(0, len(gpus), _GPUS))


def _pieces(packed: bytes) -> Iterator[bytes]:
    inflate, rest = zlib.decompressobj(), b""
    for at in range(0, len(packed), _READ):
        rest += inflate.decompress(packed[at : at + _READ])
        while len(rest) >= 4 and len(rest) - 4 >= (size := int.from_bytes(rest[:4])):
            yield rest[4 : 4 + size]
            rest = rest[4 + size :]
    if rest or not inflate.eof:
        raise ValueError("the stored analysis is cut off")
