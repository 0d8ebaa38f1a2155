"""Parts of a week in words: mon-fri 09:00-18:00 Asia/Shanghai."""

import re
from zoneinfo import ZoneInfo

from vgpuscope.model.reclaim import OpenHours

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)|24:00")
_MOST = 32  # parts of one schedule


def part(*, days: str, begin: str, end: str, tz: str) -> OpenHours:
    """One part of the week; ValueError says which word is invalid."""
    try:
        ZoneInfo(tz)
    except (KeyError, ValueError, OSError) as e:
        raise ValueError(f"tz: {tz!r} is not a known time zone") from e
    return OpenHours(days=_days(days), begin=_minutes(begin), end=_minutes(end), tz=tz)


def schedule(text: str) -> tuple[OpenHours, ...]:
    """Parts such as `mon-fri 09:00-18:00 Asia/Shanghai; sat 10:00-12:00 UTC`; ValueError for anything else."""
    found = [one.split() for one in text.split(";") if one.strip()]
    if not found or len(found) > _MOST or any(len(words) != 3 or words[1].count("-") != 1 for words in found):
        raise ValueError("expected DAYS FROM-TO TIMEZONE, as in mon-fri 09:00-18:00 Asia/Shanghai")
    return tuple(
        part(days=days, begin=times.partition("-")[0], end=times.partition("-")[2], tz=tz) for days, times, tz in found
    )


def _days(text: str) -> frozenset[int]:
    found: set[int] = set()
    for one in text.lower().replace(" ", "").split(","):
        first, _, last = one.partition("-")
        if first not in _DAYS or (last or first) not in _DAYS:
            raise ValueError(f"days: expected names such as mon-fri or sat,sun (got {text!r})")
        begin, end = _DAYS.index(first), _DAYS.index(last or first)
        found.update((begin + n) % 7 for n in range((end - begin) % 7 + 1))
    return frozenset(found)


def _minutes(text: str) -> int:
    if not _TIME.fullmatch(text):
        raise ValueError(f"expected a time from 00:00 to 24:00 (got {text!r})")
    hours, minutes = text.split(":")
    return int(hours) * 60 + int(minutes)
