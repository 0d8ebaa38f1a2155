"""How many blocks of memory Python has in use."""

import sys


def blocks() -> int:
    """Blocks in use; without interned strings where Python never frees them.

    CPython 3.12.0 to 3.12.6 keep every interned string: python/cpython#113993. What they keep is not ours to free.
    """
    if sys.version_info >= (3, 12) and sys.version_info < (3, 12, 7):
        return sys.getallocatedblocks() - sys.getunicodeinternedsize()
    return sys.getallocatedblocks()
