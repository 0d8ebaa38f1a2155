"""How often samples come is read off their distances; what is missing is what a look at every second would miss."""

from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.logic.fleet.pace import common, holes, pace, usual
from vgpuscope.model.analysis import Hole

END = 600
EVERY = 15


def scraped(*, every: int = EVERY, phase: int = 0, without: tuple[range, ...] = ()) -> list[float]:
    return [float(at) for at in range(phase, END + 1, every) if not any(at in hole for hole in without)]


seconds = st.sets(st.integers(0, END), min_size=1).map(sorted)


def unseen(times: list[float], at: int) -> tuple[float, float]:
    """The samples around a second, or the ends of the window: found by looking at all of them."""
    return max((t for t in times if t <= at), default=0), min((t for t in times if t > at), default=END)


@given(seconds, st.integers(5, 200))
def test_every_second_far_from_samples_lies_in_a_hole_and_no_other_does(times, interval):
    found = holes(times, begin=0, end=END, interval=interval)
    for at in range(END):
        before, after = unseen(times, at)
        inside = [hole for hole in found if hole.begin <= at < hole.end]
        assert inside == ([Hole(before, after)] if after - before > 1.5 * interval else [])


@given(st.integers(0, EVERY - 1), st.integers(20, 560), st.integers(0, 300))
def test_a_hole_that_all_series_have_changes_nothing_of_their_pace(phase, at, long):
    times = scraped(phase=phase, without=(range(at, at + long),))
    assert len(times) < 4 or pace(times) == EVERY


def test_a_prometheus_that_was_away_for_five_minutes_leaves_a_hole_of_five_minutes():
    (hole,) = holes(scraped(without=(range(150, 450),)), begin=0, end=END, interval=EVERY)
    assert hole.end - hole.begin >= 300


def test_a_beginning_and_an_end_that_were_not_seen_are_holes():
    times = scraped(without=(range(200), range(400, 601)))
    assert holes(times, begin=0, end=END, interval=EVERY) == (Hole(0, 210), Hole(390, 600))


def test_a_single_scrape_that_was_missed_is_a_short_hole():
    assert holes(scraped(without=(range(300, 301),)), begin=0, end=END, interval=EVERY) == (Hole(285, 315),)


def test_the_pace_of_a_job_is_that_of_most_of_its_series():
    assert usual([15.0] * 60 + [30.0] * 40) == 15.0
    assert usual([]) is None
    assert pace([12.0]) is None


@given(seconds, seconds, st.integers(5, 60))
def test_two_replicas_together_miss_only_what_both_miss(one, other, interval):
    def whole(times):
        return holes(times, begin=0, end=END, interval=interval)

    both = common(whole(one), whole(other))
    for at in range(END):
        missed = all(any(hole.begin <= at < hole.end for hole in whole(times)) for times in (one, other))
        assert missed == any(hole.begin <= at < hole.end for hole in both)


def test_what_is_known_of_one_replica_is_known():
    assert common(None, ()) == common((), None) == ()
    assert common(None, None) is None
