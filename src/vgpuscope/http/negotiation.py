"""Content negotiation: the text format that a client wants, and compression. Cached: all scrapes ask the same."""

from collections.abc import Iterator
from functools import lru_cache

_ONCE = 64  # different headers cached


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
    """Whether OpenMetrics 1.0 is preferred to text 0.0.4; with equal preference, the first one in the header wins.

    Wildcards mean the text format, as does a header that accepts neither format: every exporter does it this way.
    """
    ranges = [_Range(entry) for entry in accept.decode("latin-1").split(",")]
    openmetrics = _best(ranges, media="application/openmetrics-text", version="1.0.0")
    text = _best(ranges, media="text/plain", version="0.0.4")
    if text is None:
        text = max((_place(i, r) for i, r in enumerate(ranges) if r.media in {"text/*", "*/*"}), default=None)
    return openmetrics is not None and openmetrics[0] > 0 and (text is None or openmetrics > text)


@lru_cache(maxsize=_ONCE)
def prefers(accept: str, media: str, *, over: str) -> bool:
    """Whether a media type is named and preferred to another one; with equal preference, the first one wins."""
    ranges = [_Range(entry) for entry in accept.split(",")]
    wanted = _best(ranges, media=media, version="")
    other = max((_place(i, r) for i, r in enumerate(ranges) if r.media in {over, "application/*", "*/*"}), default=None)
    return wanted is not None and wanted[0] > 0 and (other is None or wanted > other)


@lru_cache(maxsize=_ONCE)
def wants_gzip(accept_encoding: bytes) -> bool:
    """Whether gzip is acceptable and at least as preferred as no compression."""
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
    """Sort key: preference first, then position in the header."""
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
