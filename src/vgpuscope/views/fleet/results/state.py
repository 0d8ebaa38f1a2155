"""Lines below the rows of results: that they are stale, and which targets do not answer."""

from collections.abc import Sequence

from vgpuscope.model.analysis import Target
from vgpuscope.model.words import Language
from vgpuscope.views.fleet.results.words import word
from vgpuscope.views.text import clean

_NAMED = 3  # targets of one line


def stale_line(since: str, reason: str, language: Language = "en") -> str:
    """The results are stale: since when, and why."""
    return clean(word("stale", language, time=since, reason=reason))


def targets_line(*, up: int, down: int, named: Sequence[Target], language: Language = "en") -> str:
    """How many targets do not answer, and the first of them with the reason."""
    names = [
        word("reason", language, name=target.name, reason=target.reason) if target.reason else target.name
        for target in named[:_NAMED]
    ]
    some = word("comma", language).join(names)
    more = word("more_targets", language, n=down - _NAMED) if down > _NAMED else ""
    text = word("target_down" if down == 1 else "targets_down", language, down=down, all=up + down, names=some + more)
    return clean(text)
