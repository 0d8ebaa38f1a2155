"""An analysis as a small string of bytes, and back: MessagePack, deflated."""

import zlib

import msgspec

from vgpuscope.model.analysis import Analysis

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Analysis)


def pack(analysis: Analysis) -> bytes:
    """All of it; level 1, since twice the time would save a tenth of the bytes."""
    return zlib.compress(_ENCODER.encode(analysis), 1)


def unpack(packed: bytes) -> Analysis:
    """The same analysis; ValueError when the bytes are none of this version's."""
    try:
        return _DECODER.decode(zlib.decompress(packed))
    except (zlib.error, msgspec.MsgspecError) as e:
        raise ValueError(f"the stored analysis cannot be read: {e}") from e
