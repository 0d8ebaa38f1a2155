"""Pages of Prometheus' text format → the few samples that are needed, page after page of one target.

A page has thousands of lines, some tens of names are needed, and the next page of the target has the same series again.
So a line is read only up to its name, and the meaning of a series is found once, as long as the series is on the page.

    name{label="value",…} 0.5        lines end in LF; a last line without LF was cut off
"""

import math
import re
from collections.abc import Callable
from typing import Generic, TypeVar

from vgpuscope.model.quantity import Seconds, UnixTime

T = TypeVar("T")


class PageReader(Generic[T]):
    """Reads one target's pages. `meaning` returns what a name and its labels mean; None: not needed."""

    def __init__(self, *, wanted: frozenset[str], meaning: Callable[[str, dict[str, str]], T | None]) -> None:
        self._wanted = {name.encode(): name for name in wanted}
        self._meaning = meaning
        self._known: dict[bytes, T | None] = {}  # by name and labels, of the series on the last page

    def read(self, page: bytes, *, at: UnixTime | None = None, late: Seconds = 0.0) -> list[tuple[T, float]]:
        """The samples that have a meaning; NaN for a value that is not a number, or not current.

        `at`: when the page was requested. If a line's own timestamp is further away from that than `late`, its value is
        not current: the exporter repeats an old value, or its clock is wrong.
        """
        wanted, known = self._wanted, self._known
        seen: dict[bytes, T | None] = {}
        found: list[tuple[T, float]] = []
        lines = page.split(b"\n")
        lines.pop()
        for line in lines:
            brace = line.find(b"{")
            if line[:brace].strip() not in wanted if brace > 0 else line.partition(b" ")[0] not in wanted:
                continue
            end = line.rfind(b"}") + 1 or line.find(b" ")
            series = line[:end]
            try:
                what = known[series]
            except KeyError:
                what = self._understood(series)
            seen[series] = what
            if what is not None:
                found.append((what, number(line[end:], at=at, late=late)))
        self._known = seen
        return found

    def _understood(self, series: bytes) -> T | None:
        name, _, rest = series.partition(b"{")
        labels = decode_labels(rest[:-1]) if rest else {}
        return None if labels is None else self._meaning(self._wanted[name.strip()], labels)


def decode_labels(text: bytes) -> dict[str, str] | None:
    """The labels between the braces; None if they are malformed."""
    try:
        rest = text.decode().strip()
    except UnicodeDecodeError:
        return None
    labels: dict[str, str] = {}
    at = 0
    while at < len(rest):
        pair = _PAIR.match(rest, at)
        if pair is None:
            return None
        name, value, at = pair[1], pair[2], pair.end()
        labels[name] = _ESCAPED.sub(_plain, value) if "\\" in value else value
    return labels


def number(text: bytes, *, at: UnixTime | None = None, late: Seconds = 0.0) -> float:
    """The value of a line, before a timestamp if there is one; NaN if it is not a number, or too old."""
    try:
        return float(text)
    except ValueError:
        words = text.split()
    try:
        value, time = (float(words[0]), float(words[1]) / 1000) if len(words) == 2 else (math.nan, math.nan)
    except ValueError:
        return math.nan
    return value if at is None or abs(time - at) <= late else math.nan


def _plain(escaped: re.Match[str]) -> str:
    return "\n" if escaped[1] == "n" else escaped[1]


_PAIR = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,\s*|$)')
_ESCAPED = re.compile(r'\\([\\n"])')  # before any other letter, a backslash is a plain backslash
