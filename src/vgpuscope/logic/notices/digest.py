"""A digest instead of a flood: as many notices as fit into one message of a channel; the others wait for the next."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
MOST = 50  # notices of one message


def fitting(items: Sequence[T], text: Callable[[Sequence[T]], str], *, longest: int) -> tuple[Sequence[T], str]:
    """The first items whose text fits, at least one, and their text. A single one that is too long is cut."""
    few, many = 1, min(len(items), MOST)
    body = text(items[:few])
    while few < many:  # the longest prefix that fits, by halving: a text is never rendered more than seven times
        middle = (few + many + 1) // 2
        longer = text(items[:middle])
        if size(longer) <= longest:
            few, body = middle, longer
        else:
            many = middle - 1
    return items[:few], cut(body, longest)


def size(text: str) -> int:
    """In bytes of UTF-8, by which the stricter services count."""
    return len(text.encode())


def cut(text: str, longest: int) -> str:
    """Whole lines only: half a link is of no use."""
    if size(text) <= longest:
        return text
    kept: list[str] = []
    for line in text.split("\n"):
        if size("\n".join([*kept, line, "…"])) > longest:
            break
        kept.append(line)
    return "\n".join([*kept, "…"])
