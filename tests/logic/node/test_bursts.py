"""A burst between two scrapes is not lost, whoever scrapes when."""

from hypothesis import given
from hypothesis import strategies as st

from tests.logic.node.builders import GIB, A, grant, make_gpu, owner, pod, process, sample
from vgpuscope.logic.node.accounts import Accounts
from vgpuscope.logic.node.snapshot import NodeTracker

values = st.lists(st.floats(0, 1), min_size=1, max_size=50)


def bursts(values, *, window, step=1.0):
    books, seen = Accounts(window), []
    for i, value in enumerate(values):
        books.settle((), (), 1000 + i * step)
        seen.append(books.burst("gpu", "utilization", value))
    return seen


@given(values)
def test_the_maximum_is_that_of_the_window(values):
    for i, burst in enumerate(bursts(values, window=10)):
        assert burst.max == max(values[max(0, i - 9) : i + 1])


@given(values)
def test_the_mean_lies_between_the_extremes_of_the_window(values):
    for i, burst in enumerate(bursts(values, window=10)):
        seen = values[max(0, i - 9) : i + 1]
        assert min(seen) - 1e-12 <= burst.mean <= max(seen) + 1e-12


def test_a_short_burst_is_still_there_when_the_scrape_comes():
    mind = NodeTracker(node="n", window=60)
    for second, busy in enumerate([0.0] * 5 + [1.0] + [0.0] * 20):
        seen = sample(make_gpu(utilization=busy), mind=mind, at=100.0 + second)
    assert (seen.gpus[0].gpu.utilization, seen.gpus[0].utilization_burst.max) == (0.0, 1.0)
    assert seen.gpus[0].busy_seconds == 1.0


def test_a_gap_in_the_readings_does_not_lose_the_window():
    books, seen = Accounts(10), []
    for at, value in ((1.0, 0.9), (2.0, None), (3.0, 0.1), (12.0, 0.1)):
        books.settle((), (), at)
        seen.append(books.burst("gpu", "utilization", value))
    assert [burst and burst.max for burst in seen] == [0.9, None, 0.9, 0.1]


def test_what_has_not_been_measured_for_a_window_is_forgotten():
    books = Accounts(10)
    for at, value in ((1.0, 0.5), (5.0, None), (12.0, None)):
        books.settle((), (), at)
        books.burst("gpu", "utilization", value)
    assert books._windows == {}


def test_a_wall_clock_that_jumps_adds_no_time():
    mind = NodeTracker(node="n", window=60)
    who = {"owners": [owner(1, "a")], "pods": [pod("a")], "grants": [grant("a", A)]}
    gpu = make_gpu(used=GIB, utilization=1.0, processes=(process(1, GIB, 1.0),))
    moments = [(100.0, 1.0), (90_000.0, 2.0), (50.0, 3.0)]
    seconds = [sample(gpu, mind=mind, at=at, tick=tick, **who).containers[0].sm_seconds for at, tick in moments]
    assert seconds == [0.0, 1.0, 2.0]
