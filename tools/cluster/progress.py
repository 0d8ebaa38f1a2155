"""Lines that say what is done, and when."""

import sys
import time

_BEGAN = time.monotonic()


def say(words: str) -> None:
    print(f"cluster: {time.monotonic() - _BEGAN:6.1f} s  {words}", file=sys.stderr, flush=True)
