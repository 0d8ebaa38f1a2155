"""Lines below the rows of results: that they are stale, and which targets do not answer."""

from collections.abc import Sequence

from vgpuscope.model.analysis import Target
from vgpuscope.views.text import clean

_NAMED = 3  # targets of one line


def stale_line(since: str, reason: str) -> str:
    """The results are stale: since when, and why."""
    return clean(f"Stale since {since}: {reason}")


def targets_line(*, up: int, down: int, named: Sequence[Target]) -> str:
    """How many targets do not answer, and the first of them with the reason."""
    verb = "does" if down == 1 else "do"
    some = ", ".join(f"{target.name} ({target.reason})" if target.reason else target.name for target in named[:_NAMED])
    more = f" and {down - _NAMED} more" if down > _NAMED else ""
    return clean(f"{down} of {up + down} scrape targets {verb} not answer: {some}{more}")
