"""Counts what /metrics sends, and measures how long each answer takes."""

import time
from collections import deque
from collections.abc import Callable
from math import ceil

from vgpuscope.model.quantity import Seconds
from vgpuscope.model.serving import QUANTILES, ServedScrapes

_RECENT: Seconds = 60.0
_MOST = 1000  # answers whose times are kept


class ScrapeTally:
    """Written by the server's thread; another thread may read it at any time."""

    def __init__(self, clock: Callable[[], Seconds] = time.monotonic) -> None:
        self._clock = clock
        self._total = (0, 0, 0.0)  # answers, bytes, seconds: replaced as a whole
        self._recent: deque[tuple[Seconds, Seconds]] = deque(maxlen=_MOST)  # when, and how long

    def add(self, sent: int, took: Seconds) -> None:
        """One answer."""
        count, sent_before, seconds = self._total
        self._recent.append((self._clock(), took))
        self._total = (count + 1, sent_before + sent, seconds + took)

    def served(self) -> ServedScrapes:
        """All answers so far."""
        count, sent, seconds = self._total
        since = self._clock() - _RECENT
        times = sorted(took for at, took in self._recent.copy() if at >= since)
        ranks = [times[ceil(share * len(times)) - 1] for share in QUANTILES] if times else []
        return ServedScrapes(count=count, bytes=sent, seconds=seconds, quantiles=tuple(ranks))
