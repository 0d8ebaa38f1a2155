"""Hours of the past are read once, but not before all their results can have arrived."""

import asyncio
from typing import Any

from vgpuscope.services.analyzer.console.past_hours import AGAIN, SETTLED, PastHours

HOUR = 3600


class Reader:
    """Counts how often each hour is read, by a clock that a test sets."""

    def __init__(self, *, most=10):
        self.now = 100.0 * HOUR
        self.read = []
        self.saved: int | None = None
        self.hours: PastHours[Any] = PastHours(lambda: self.now, most=most, stored=lambda: self.saved)

    def get(self, begin, key=()):
        async def make():
            self.read.append((key, begin))
            return len(self.read)

        return asyncio.run(self.hours.get(key, begin, begin + HOUR, make))


def test_an_hour_that_is_over_is_read_once_for_each_key():
    reader = Reader()
    assert [reader.get(90 * HOUR), reader.get(90 * HOUR), reader.get(90 * HOUR, "other")] == [1, 1, 2]


def test_an_hour_to_which_results_may_be_added_is_read_every_time():
    reader = Reader()
    begin = 99 * HOUR
    assert [reader.get(begin), reader.get(begin)] == [1, 2]
    reader.now = begin + HOUR + SETTLED + 1
    assert [reader.get(begin), reader.get(begin)] == [3, 3]


def test_an_hour_to_which_results_may_be_added_is_read_again_when_an_analysis_was_saved():
    reader = Reader()
    begin, reader.saved = 99 * HOUR, 1
    assert [reader.get(begin), reader.get(begin), reader.get(begin, "other")] == [1, 1, 2]
    reader.saved = 2
    assert [reader.get(begin), reader.get(begin)] == [3, 3]


def test_an_analysis_that_is_saved_while_an_hour_is_read_lets_it_be_read_again():
    reader = Reader()
    reader.saved = 1

    async def make():
        reader.saved = 2
        return "before"

    assert asyncio.run(reader.hours.get((), 99 * HOUR, 100 * HOUR, make)) == "before"
    assert reader.get(99 * HOUR) == 1


def test_an_hour_that_was_read_before_it_was_over_is_read_once_more():
    reader = Reader()
    begin, reader.saved = 99 * HOUR, 1
    assert reader.get(begin) == 1
    reader.now, reader.saved = begin + HOUR + SETTLED + 1, 2
    assert [reader.get(begin), reader.get(begin)] == [2, 2]


def test_an_hour_is_read_again_after_some_hours_in_case_results_arrived_late():
    reader = Reader()
    assert reader.get(90 * HOUR) == 1
    reader.now += AGAIN + 1
    assert reader.get(90 * HOUR) == 2


def test_only_the_hours_used_last_are_kept():
    reader = Reader(most=2)
    for begin in (10, 11, 10, 12, 10, 11):
        reader.get(begin * HOUR)
    assert [begin // HOUR for _, begin in reader.read] == [10, 11, 12, 11]
