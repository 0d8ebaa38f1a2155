"""Pages of Prometheus' text format → the few samples that matter, page after page of one target.

A page has thousands of lines, some tens of names matter, and the next page of the target has the same series again. So
a line is looked at only as far as its name, and what a series means is found out once, for as long as it comes.

    name{label="value",…} 0.5        lines that end in LF; what has none at the end of the page was cut off
"""

import math
import re
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PageReader(Generic[T]):
    """Reads one target's pages. `meaning` gives what a name and its labels stand for; None: nothing of interest."""

    def __init__(self, *, wanted: frozenset[str], meaning: Callable[[str, dict[str, str]], T | None]) -> None:
        self._wanted = {name.encode(): name for name in wanted}
        self._meaning = meaning
        self._known: dict[bytes, T | None] = {}  # by name and labels, of the series on the last page

    def read(self, page: bytes) -> list[tuple[T, float]]:
        """The samples that mean something; NaN for a value that is no number. Timestamps are not believed."""
        wanted, known = self._wanted, self._known
        seen: dict[bytes, T | None] = {}
        found: list[tuple[T, float]] = []
        lines = page.split(b"\n")
        lines.pop()
        for line in lines:
            at = line.find(b"{")
            if line[:at].strip() not in wanted if at > 0 else line.partition(b" ")[0] not in wanted:
                continue
            end = line.rfind(b"}") + 1 or line.find(b" ")
            series = line[:end]
            try:
                what = known[series]
            except KeyError:
                what = self._understood(series)
            seen[series] = what
            if what is not None:
                found.append((what, number(line[end:])))
        self._known = seen
        return found

    def _understood(self, series: bytes) -> T | None:
        name, _, rest = series.partition(b"{")
        labels = decode_labels(rest[:-1]) if rest else {}
        return None if labels is None else self._meaning(self._wanted[name.strip()], labels)


def decode_labels(text: bytes) -> dict[str, str] | None:
    """What stands between the braces, as labels; None if that is not how labels are written."""
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


def number(text: bytes) -> float:
    """The value that a line ends with, before a timestamp if there is one; NaN for what is no number."""
    try:
        return float(text)
    except ValueError:
        words = text.split()
    try:
        return float(words[0]) if len(words) == 2 else math.nan
    except ValueError:
        return math.nan


def _plain(escaped: re.Match[str]) -> str:
    return "\n" if escaped[1] == "n" else escaped[1]


_PAIR = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,\s*|$)')
_ESCAPED = re.compile(r'\\([\\n"])')  # no other letter is escaped by a backslash, which then stands for itself
