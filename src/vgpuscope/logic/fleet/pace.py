"""How often samples come, and where samples are missing, from their times alone.

The pace is the usual distance between samples of one series. A hole in all series leaves most distances unchanged, so
it does not change the pace. A sample count would shrink with the hole, and no sample would seem to be missing.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import sub
from statistics import median_low

from vgpuscope.model.analysis import Hole
from vgpuscope.model.quantity import Seconds, UnixTime

_MISSED = 1.5  # intervals: at least one sample is missing in a longer stretch


def pace(times: Sequence[UnixTime]) -> Seconds | None:
    """The usual distance between two samples of one series; None if there are no two samples at different times."""
    distances = [after - before for before, after in pairwise(times) if after > before]
    return median_low(distances) if distances else None


def usual(paces: Iterable[Seconds]) -> Seconds | None:
    """The pace of a job, from the paces of its series."""
    found = list(paces)
    return median_low(found) if found else None


def holes(times: Sequence[UnixTime], *, begin: UnixTime, end: UnixTime, interval: Seconds) -> tuple[Hole, ...]:
    """The stretches from `begin` to `end` in which a sample is missing; `times` must be in ascending order."""
    most = _MISSED * interval
    if not times:
        return (Hole(begin, end),)
    first, last = times[0], times[-1]
    longest = max(map(sub, times[1:], times), default=0.0)
    if first - begin <= most and end - last <= most and longest <= most:  # the usual case
        return ()
    inside = [at for at in times if begin <= at <= end]
    return tuple([Hole(before, after) for before, after in pairwise((begin, *inside, end)) if after - before > most])


def common(one: tuple[Hole, ...] | None, other: tuple[Hole, ...] | None) -> tuple[Hole, ...] | None:
    """The holes that two series have in common; None if the holes of both are unknown."""
    if one is None or other is None:
        return other if one is None else one
    overlaps = (Hole(max(a.begin, b.begin), min(a.end, b.end)) for a in one for b in other)
    return tuple(hole for hole in overlaps if hole.end > hole.begin)
