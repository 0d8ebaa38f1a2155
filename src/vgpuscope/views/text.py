"""Numbers and names as the terminal shows them."""

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from vgpuscope.model.quantity import Bytes, Joules, Ratio, Seconds, Watts
from vgpuscope.model.usage import ContainerKey

UNKNOWN = "–"  # not measured


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
    """Text of exactly this width; a longer text loses its middle, since namespace and container are at the ends."""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    if width < 3:
        return set_cell_size(text, max(width, 0))
    tail = _start(text[::-1], (width - 1) // 2)[::-1]
    head = _start(text, width - 1 - cell_len(tail))
    return set_cell_size(f"{head}…{tail}", width)


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
