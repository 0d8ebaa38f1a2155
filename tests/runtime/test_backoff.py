"""What keeps ending is started again after pauses that grow, and after one that is short if it ran for long."""

from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.runtime.backoff import BackOff

FIRST, LONGEST = 1.0, 30.0
SHORT, LONG = st.floats(0.0, LONGEST - 1.0), st.floats(LONGEST + 1.0, 1e6)


class Restarted:
    """Something that runs and ends on a clock of its own."""

    def __init__(self) -> None:
        self.now = 1e9
        self.back_off = BackOff((FIRST, LONGEST), clock=lambda: self.now)

    def pause_after(self, seconds: float) -> float:
        self.back_off.begin()
        self.now += seconds
        pause = self.back_off.pause()
        self.now += pause
        return pause


@given(st.lists(SHORT | LONG), LONG, st.lists(SHORT, min_size=7))
def test_after_a_long_run_pauses_begin_with_the_first_and_double_up_to_the_longest(before, long, after):
    one = Restarted()
    for seconds in before:
        one.pause_after(seconds)
    pauses = [one.pause_after(seconds) for seconds in (long, *after)]
    assert pauses[:6] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    assert set(pauses[6:]) == {LONGEST}


def test_pauses_begin_with_the_first_even_if_nothing_ran_for_long():
    one = Restarted()
    assert [one.pause_after(0.0) for _ in range(3)] == [1.0, 2.0, 4.0]


def test_the_pause_itself_is_not_a_part_of_the_run():
    one = Restarted()
    for _ in range(6):
        one.pause_after(LONGEST)
    assert one.pause_after(LONGEST) == LONGEST
