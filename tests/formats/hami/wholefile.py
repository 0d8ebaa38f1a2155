"""A region from the bytes of its whole file; the agent maps a file and reads only its parts."""

from vgpuscope.formats.hami.region import decode, identify
from vgpuscope.model.region import Region


def decode_file(data: bytes) -> Region:
    """The region in the bytes of a whole file, or RegionRefused."""
    layout = identify(len(data), data)
    offset, length = layout.tail
    return decode(layout, data, data[offset : offset + length])
