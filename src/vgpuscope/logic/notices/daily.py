"""The next of some times of day."""

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from vgpuscope.model.quantity import UnixTime


def next_time(after: UnixTime, times: Sequence[str], tz: str) -> UnixTime:
    """The first of these times (09:00, 17:30) of any day after a moment."""
    zone = ZoneInfo(tz)
    today = datetime.fromtimestamp(after, zone).date()
    moments = (
        datetime.combine(today + timedelta(days=days), time.fromisoformat(text), zone).astimezone(UTC).timestamp()
        for days in (0, 1, 2)
        for text in times
    )
    return min(moment for moment in moments if moment > after)
