"""Hints in one format: the nearest known word, then all allowed words if they are few, then what to do.

Did you mean idle? Possible: idle, low, normal, high, unknown. /docs lists every parameter.
"""

import difflib
from collections.abc import Iterable

_MOST = 30  # words that a hint lists; if there are more, it refers to the documentation
_LONGEST = 80  # characters that are compared


def nearest(word: str, known: Iterable[str]) -> str:
    """The question `Did you mean …?` with the most similar known word; empty if none is similar."""
    found = similar(word, known)
    return f"Did you mean {found}?" if found else ""


def similar(word: str, known: Iterable[str]) -> str:
    """The most similar known word, ignoring case; empty if none is similar."""
    by_fold: dict[str, str] = {}
    for one in known:
        by_fold.setdefault(one.casefold(), one)
    close = difflib.get_close_matches(word[:_LONGEST].casefold(), by_fold, n=1)
    return by_fold[close[0]] if close else ""


def instead(word: str, known: Iterable[str], *, look: str = "") -> str:
    """The hint for an unknown word: the nearest known word, all of them if they are few, and where to look."""
    words = list(known)
    listed = f"Possible: {', '.join(words)}." if 0 < len(words) <= _MOST else ""
    return sentences(nearest(word, words), listed, look)


def sentences(*parts: str) -> str:
    """The parts that are not empty, as one text."""
    return " ".join(part for part in parts if part)
