"""Working hours by the wall clock. The oracle is `date`'s own arithmetic on named moments, in summer and in winter."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from vgpuscope.logic.reclaim.hours import allowed
from vgpuscope.model.reclaim import OpenHours

WEEK = frozenset(range(5))
DAY = OpenHours(days=WEEK, begin=9 * 60, end=18 * 60, tz="Europe/Berlin")
NIGHT = OpenHours(days=WEEK, begin=22 * 60, end=6 * 60, tz="Asia/Shanghai")


def at(text: str, tz: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(tz)).timestamp()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-15T09:00", True),  # a Thursday in winter
        ("2026-07-16T09:00", True),  # a Thursday in summer
        ("2026-07-16T08:59", False),
        ("2026-07-16T17:59", True),
        ("2026-07-16T18:00", False),
        ("2026-07-18T12:00", False),  # a Saturday
        ("2026-03-30T09:00", True),  # the Monday after the clocks changed
    ],
)
def test_hours_follow_the_wall_clock_of_their_time_zone(text, expected):
    assert allowed([DAY], at(text, "Europe/Berlin")) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-16T23:00", True),  # Monday night
        ("2026-11-17T05:59", True),  # it ends on Tuesday morning
        ("2026-11-17T06:00", False),
        ("2026-11-21T03:00", True),  # the end of Friday's night
        ("2026-11-21T23:00", False),  # Saturday's night is not listed
        ("2026-11-16T03:00", False),  # Sunday's night is not listed
    ],
)
def test_hours_may_end_on_the_next_day(text, expected):
    assert allowed([NIGHT], at(text, "Asia/Shanghai")) is expected


def test_no_hours_mean_any_time_and_several_add_up():
    assert allowed([], 0.0)
    assert allowed([DAY, NIGHT], at("2026-11-16T23:00", "Asia/Shanghai"))
    assert allowed([DAY, NIGHT], at("2026-11-16T12:00", "Europe/Berlin"))
