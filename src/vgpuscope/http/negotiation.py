"""What a client wants: which text format, and whether compressed. Remembered, for every scrape asks the same."""

from collections.abc import Iterator
from functools import lru_cache

_ONCE = 64  # kinds of clients remembered


class _Range:
    """One entry of an Accept header."""

    __slots__ = ("media", "q", "version")

    def __init__(self, entry: str) -> None:
        media, *parameters = entry.split(";")
        values = dict(_pair(p) for p in parameters)
        self.media = media.strip().lower()
        self.version = values.get("version", "")
        self.q = _quality(values.get("q", "1"))


@lru_cache(maxsize=_ONCE)
def wants_openmetrics(accept: bytes) -> bool:
    """Whether OpenMetrics 1.0 is liked better than text 0.0.4; of two liked equally the one named first counts.

    Wildcards mean the text format, and so does a header that accepts neither: every exporter does it this way.
    """
    ranges = [_Range(entry) for entry in accept.decode("latin-1").split(",")]
    openmetrics = _best(ranges, media="application/openmetrics-text", version="1.0.0")
    text = _best(ranges, media="text/plain", version="0.0.4")
    if text is None:
        text = max((_place(i, r) for i, r in enumerate(ranges) if r.media in {"text/*", "*/*"}), default=None)
    return openmetrics is not None and openmetrics[0] > 0 and (text is None or openmetrics > text)


@lru_cache(maxsize=_ONCE)
def prefers(accept: str, media: str, *, over: str) -> bool:
    """Whether a kind is named and liked better than another one; of two liked equally the one named first counts."""
    ranges = [_Range(entry) for entry in accept.split(",")]
    wanted = _best(ranges, media=media, version="")
    other = max((_place(i, r) for i, r in enumerate(ranges) if r.media in {over, "application/*", "*/*"}), default=None)
    return wanted is not None and wanted[0] > 0 and (other is None or wanted > other)


@lru_cache(maxsize=_ONCE)
def wants_gzip(accept_encoding: bytes) -> bool:
    """Whether gzip is acceptable and liked at least as well as no compression."""
    liked = {r.media: r.q for r in map(_Range, accept_encoding.decode("latin-1").split(","))}
    gzip = liked.get("gzip", liked.get("x-gzip", liked.get("*", 0.0)))
    return gzip > 0 and gzip >= liked.get("identity", 0.0)


def _best(ranges: list[_Range], *, media: str, version: str) -> tuple[float, int] | None:
    return max(_places(ranges, media=media, version=version), default=None)


def _places(ranges: list[_Range], *, media: str, version: str) -> Iterator[tuple[float, int]]:
    for i, r in enumerate(ranges):
        if r.media == media and r.version in {"", version}:
            yield _place(i, r)


def _place(index: int, r: _Range) -> tuple[float, int]:
    """Sorts by liking, then by coming first."""
    return (r.q, -index)


def _pair(parameter: str) -> tuple[str, str]:
    name, _, value = parameter.partition("=")
    return name.strip().lower(), value.strip().strip('"')


def _quality(text: str) -> float:
    try:
        q = float(text)
    except ValueError:
        return 0.0
    return q if 0 <= q <= 1 else 0.0
