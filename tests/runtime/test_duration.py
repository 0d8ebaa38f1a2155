"""Durations are written as they are read."""

from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.runtime.duration import seconds, text


@given(st.integers(0, 10**7) | st.floats(0, 59).map(lambda value: round(value, 3)))
def test_a_duration_that_was_written_is_read_as_the_same(value):
    assert seconds(text(float(value))) == value


def test_durations_are_short():
    assert [text(value) for value in (0.0, 0.5, 90.0, 1800.0, 5400.0, 7200.0)] == [
        "0s",
        "0.5s",
        "1m30s",
        "30m",
        "1h30m",
        "2h",
    ]
