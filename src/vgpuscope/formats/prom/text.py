"""Pages of Prometheus' text format → the few samples that are needed, page after page of one target.

A page has thousands of lines, some tens of names are needed, and the next page of the target has the same series again.
So a line is read only up to its name, and the meaning of a series is found once, as long as the series is on the page.

    name{label="value",…} 0.5        lines end in LF; a last line without LF was cut off
"""

import math
import re
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from vgpuscope.model.quantity import Seconds, UnixTime

T = TypeVar("T")

_BLOCK = 64 * 1024  # bytes: so much of a page is read in some milliseconds
_LONGEST_SERIES = 8 * 1024  # bytes of a name and its labels


class PageReader(Generic[T]):
    """Reads one target's pages. `meaning` returns what a name and its labels mean; None: not needed."""

    def __init__(self, *, wanted: frozenset[str], meaning: Callable[[str, dict[str, str]], T | None]) -> None:
        self._wanted = {name.encode(): name for name in wanted}
        self._meaning = meaning
        self._known: dict[bytes, T | None] = {}  # by name and labels, of the series on the last page
        self._seen: dict[bytes, T | None] = {}  # the same of the page that is being read
        self.malformed = 0  # lines with a needed name that were skipped, on the page that was read last

    def read(self, page: bytes, *, at: UnixTime | None = None, late: Seconds = 0.0) -> list[tuple[T, float]]:
        """The samples that have a meaning; NaN for a value that is not a number, or not current.

        `at`: when the page was requested. If a line's own timestamp is further away from that than `late`, its value is
        not current: the exporter repeats an old value, or its clock is wrong.
        """
        return [sample for some in self.parts(page, at=at, late=late) for sample in some]

    def parts(self, page: bytes, *, at: UnixTime | None = None, late: Seconds = 0.0) -> Iterator[list[tuple[T, float]]]:
        """The same samples, some at a time, so that other tasks can run in between."""
        self._seen, self.malformed = {}, 0
        for lines in _blocks(page):
            yield self._samples(lines, at, late)
        self._known = self._seen

    def _samples(self, lines: list[bytes], at: UnixTime | None, late: Seconds) -> list[tuple[T, float]]:
        wanted, known, seen = self._wanted, self._known, self._seen
        found: list[tuple[T, float]] = []
        for line in lines:
            brace = line.find(b"{")
            name = line[:brace].strip() if brace > 0 else line.partition(b" ")[0]
            if name not in wanted:
                continue
            end = line.rfind(b"}") + 1 if brace > 0 else line.find(b" ")
            if not 0 < end <= _LONGEST_SERIES:
                self.malformed += 1
                continue
            series = line[:end]
            try:
                what = known[series]
            except KeyError:
                labels = decode_labels(line[brace + 1 : end - 1]) if brace > 0 else {}
                if labels is None:
                    self.malformed += 1
                    continue
                what = self._meaning(wanted[name], labels)
            seen[series] = what
            if what is not None:
                found.append((what, self._value(line[end:], at, late)))
        return found

    def _value(self, text: bytes, at: UnixTime | None, late: Seconds) -> float:
        try:
            return float(text)
        except ValueError:
            value, time = _value_and_time(text)
        self.malformed += time is None
        return value if time is not None and (at is None or abs(time - at) <= late) else math.nan


def _blocks(page: bytes) -> Iterator[list[bytes]]:
    """The lines of a page, block by block; a last line without LF was cut off."""
    begin, end = 0, page.rfind(b"\n") + 1
    while begin < end:
        stop = page.rfind(b"\n", begin, begin + _BLOCK)
        if stop < 0:
            stop = page.find(b"\n", begin)
        yield page[begin:stop].split(b"\n")
        begin = stop + 1


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


def number(text: bytes) -> float:
    """The value after a series, whatever its time; NaN if it is not a number."""
    try:
        return float(text)
    except ValueError:
        return _value_and_time(text)[0]


def _value_and_time(text: bytes) -> tuple[float, UnixTime | None]:
    """The value and the timestamp of a line that has both; no time: the line is malformed."""
    words = text.split()
    try:
        return (float(words[0]), float(words[1]) / 1000) if len(words) == 2 else (math.nan, None)
    except ValueError:
        return math.nan, None


def _plain(escaped: re.Match[str]) -> str:
    return "\n" if escaped[1] == "n" else escaped[1]


_PAIR = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]++|\\.)*+)"\s*(?:,\s*|$)')
_ESCAPED = re.compile(r'\\([\\n"])')  # before any other letter, a backslash is a plain backslash
