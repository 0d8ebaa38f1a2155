"""Parts of a week: those in which acting is allowed, and those in which a workload says that it is needed."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from vgpuscope.model.quantity import UnixTime
from vgpuscope.model.reclaim import OpenHours


def allowed(hours: Iterable[OpenHours], now: UnixTime) -> bool:
    """Whether acting is allowed at this moment; without any hours it always is."""
    listed = tuple(hours)
    return not listed or within(listed, now)


def within(hours: Iterable[OpenHours], now: UnixTime) -> bool:
    """Whether this moment is in one of the parts."""
    return any(_within(one, now) for one in hours)


def _within(hours: OpenHours, now: UnixTime) -> bool:
    """By the wall clock of the time zone, so the hours stay the same in summer and winter."""
    local = datetime.fromtimestamp(now, tz=UTC).astimezone(ZoneInfo(hours.tz))
    minute, day = local.hour * 60 + local.minute, local.weekday()
    if hours.begin < hours.end:
        return day in hours.days and hours.begin <= minute < hours.end
    yesterday = (local - timedelta(days=1)).weekday()
    return (day in hours.days and minute >= hours.begin) or (yesterday in hours.days and minute < hours.end)
