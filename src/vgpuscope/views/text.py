"""Numbers and names as the terminal shows them."""

import re

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from vgpuscope.model.quantity import Bytes, Joules, Ratio, Seconds, Watts
from vgpuscope.model.usage import ContainerKey

UNKNOWN = "–"  # not measured
CUT = "…"  # the middle of a name is left out


def clean(text: str) -> str:
    """Text that cannot control the terminal: non-printable characters become a replacement mark."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def label(key: ContainerKey) -> str:
    """The name of a container: namespace, pod and container, or the pod's UID if the names are not known."""
    pod = key.pod or (f"pod {key.pod_uid}" if key.pod_uid else "")
    return clean("/".join(part for part in (key.namespace, pod, key.container) if part)) or "(no name)"


def percent(ratio: Ratio | None) -> str:
    """A ratio in percent; values above 100 are not clamped, and a small value is not shown as 0."""
    if ratio is None:
        return UNKNOWN
    if ratio >= 9.995:  # four cells have no room for more percent
        return f"×{ratio:.0f}" if ratio < 999.5 else "×1k+"
    return "<1%" if 0 < ratio < 0.005 else f"{ratio * 100:.0f}%"


def size(n: float | None) -> str:
    """Bytes with a binary suffix."""
    if n is None:
        return UNKNOWN
    for unit in ("", "Ki", "Mi"):
        if n < 1023.5:
            return f"{n:.0f}{unit}"
        n /= 1024
    return f"{n:.1f}Gi" if n < 999.95 else f"{n / 1024:.2f}Ti"


def sizes(used: Bytes | None, total: Bytes | None) -> str:
    """`used/total`, with the unit only once if both have the same."""
    left, right = size(used), size(total)
    if total is None:
        return left
    unit = right[-2:]
    if unit.endswith("i") and left.endswith(unit):
        left = left.removesuffix(unit)
    return f"{left}/{right}"


def watts(power: Watts | None, limit: Watts | None = None) -> str:
    """`312W`, or `312/400W` if there is a limit."""
    if power is None and limit is None:
        return UNKNOWN
    now = UNKNOWN if power is None else f"{power:.0f}"
    return f"{now}W" if limit is None else f"{now}/{limit:.0f}W"


def joules(energy: Joules | None) -> str:
    """Energy in the unit that keeps the text short."""
    if energy is None:
        return UNKNOWN
    for unit in ("J", "kJ", "MJ"):
        if energy < 999.5:
            return f"{energy:.0f}{unit}" if unit == "J" or energy >= 99.95 else f"{energy:.1f}{unit}"
        energy /= 1000
    return f"{energy:.1f}GJ"


def span(seconds: Seconds) -> str:
    """A duration, in one unit."""
    for limit, divisor, unit in ((9.95, 1, "s"), (120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds:.1f} s" if limit == 9.95 else f"{seconds / divisor:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def fit(text: str, width: int) -> str:
    """Text of exactly this width; a longer text loses its middle."""
    head, tail = _kept(text, width)
    return set_cell_size(text if head == len(text) else f"{text[:head]}{CUT}{text[tail:]}", max(width, 0))


def fit_label(name: str, width: int) -> str:
    """`namespace/pod/container` in one line of exactly this width: the end of the pod's name is what tells pods apart.

    So the namespace goes first, then the container gets a third, and then the pod's name loses its beginning.
    """
    _, _, rest = name.partition("/")
    pod, _, container = rest.partition("/")
    if cell_len(name) <= width or not container or width < _LEAST_LABEL:
        return fit(name, width)
    if cell_len(rest) + 2 <= width:
        return set_cell_size(f"{CUT}/{rest}", width)
    container = fit(container, min(cell_len(container), width // 3))
    room = width - cell_len(container) - 1
    if cell_len(pod) > room:
        pod = CUT + _start(pod[::-1], room - 1)[::-1]
    return set_cell_size(f"{pod}/{container}", width)


def _kept(text: str, width: int) -> tuple[int, int]:
    """Where the middle begins and ends that a text loses in so many cells; its own length, if it loses nothing."""
    if cell_len(text) <= width or width < 3:
        return len(text), len(text)
    tail = len(_start(text[::-1], (width - 1) // 2))
    head = len(_start(text, width - 1 - cell_len(text[len(text) - tail :])))
    return head, len(text) - tail


def name_lines(name: Text, room: int, *, several: bool = False) -> Text:
    """A name in lines of that many cells, by the one rule for all tables.

    It is broken at a blank or a Chinese mark, or else after a `/`, so that namespace, pod and owner can be copied; a
    part that is too long for a line loses its middle. Of several names, parted by commas, each has a line of its own.
    """
    if cell_len(name.plain) <= room:
        return name
    lines: list[Text] = []
    begin = " " * (len(name.plain) - len(name.plain.lstrip()) + _CONTINUED)
    for one in _divided(name, _COMMA) if several else [name]:
        line = Text()
        for word in _divided(one, _BLANK):
            whole = cell_len(begin + word.plain.rstrip()) <= room
            for part in [word] if whole else _divided(word, _SLASH):
                if line.plain.strip() and cell_len((line.plain + part.plain).rstrip()) > room:
                    lines.append(line)
                    line, part = Text(begin), part[len(part.plain) - len(part.plain.lstrip()) :]  # noqa: PLW2901
                line.append_text(_shortened(part, room - cell_len(line.plain)))
        lines.append(line)
    for line in lines:
        line.rstrip()
    return Text("\n", style=name.style).join(lines)


def uncut_room(name: str) -> int:
    """The cells of a line in which `name_lines` cuts no part of a name."""
    indent = len(name) - len(name.lstrip()) + _CONTINUED
    return indent + max((cell_len(part.strip()) for part in _SLASH.findall(name)), default=0)


def text_lines(text: Text, room: int) -> Text:
    """A sentence in lines of that many cells: broken between words, and in Chinese between characters.

    No line begins with a mark that ends a phrase. A word that is longer than a line is broken anywhere.
    """
    if cell_len(text.plain) <= room:
        return text
    lines = [Text()]
    for word in _divided(text, _WORD):
        if lines[-1] and cell_len((lines[-1].plain + word.plain).rstrip()) > room:
            lines.append(Text())
        while cell_len(word.plain.rstrip()) > room:
            head = _start(word.plain, room)
            lines[-1].append_text(word[: len(head)])
            word = word[len(head) :]  # noqa: PLW2901
            lines.append(Text())
        lines[-1].append_text(word)
    for line in lines:
        line.rstrip()
    return Text("\n", style=text.style).join(lines)


def _divided(text: Text, ends: re.Pattern[str]) -> list[Text]:
    """The text in the parts that a pattern matches; without what it has in a group `cut`."""
    parts = []
    for found in ends.finditer(text.plain):
        cut = found.groupdict().get("cut") or ""
        parts.append(text[found.start() : found.end() - len(cut)] if found.end() > found.start() else Text())
    return [part for part in parts if part]


def _shortened(part: Text, room: int) -> Text:
    text = part.plain.rstrip()
    head, tail = _kept(text, room)
    return part if head == len(text) else part[:head].append(CUT).append_text(part[tail:])


_CONTINUED = 2  # blanks before a line that continues a name
_LEAST_LABEL = 8
_COMMA = re.compile(r"(?:(?!, |，).)+(?P<cut>, |，)?")
_BLANK = re.compile(r" *（?[^ （，、：]+[，、：]? ?|.")
_SLASH = re.compile(r"[^/]*/|[^/]+")
_WIDE = "\u2e80-\u9fff\uff00-\uffef"
_WORD = re.compile(rf"[（“]*(?:[{_WIDE}]|[^\s{_WIDE}]+)[，。；：、）？！”]*\s*|\s+")


def begun(text: str, width: int) -> str:
    """Text of exactly this width; a longer text loses its end, since a command says most at its beginning."""
    if cell_len(text) <= width or width < 2:
        return set_cell_size(text, max(width, 0))
    return set_cell_size(f"{_start(text, width - 1)}…", width)


def _start(text: str, width: int) -> str:
    """As much of the beginning as fits; a wide character is never cut in half."""
    for n, char in enumerate(text):
        width -= cell_len(char)
        if width < 0:
            return text[:n]
    return text


def bar(ratio: Ratio | None, width: int, style: str) -> Text:
    """A bar of that many cells, to half a cell; thick and thin lines, so that it is readable without colour."""
    if ratio is None:
        return Text().append("╌" * width, "dim")
    halves = max(0, min(2 * width, round(ratio * 2 * width)))
    halves = max(halves, 1) if ratio > 0 and width else halves
    full, half = divmod(halves, 2)
    text = Text().append("━" * full + ("╾" if half else ""), style)
    return text.append("─" * (width - full - half), "dim")
