"""What many analyses say together: the laws of dividing them among hours and of adding them up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.results.rollup import rolled
from vgpuscope.model.history import HistoryPoint

DAY, HOUR = 86400, 3600


def point(time: float, **fields) -> HistoryPoint:
    return HistoryPoint(**{"step": "analysis", "time": time, "gpu_id": "GPU-1", **fields})


def measured(score: float | None, seconds: float, status: str) -> dict:
    known = {"scored": 1, "score": score, "score_min": score, "score_max": score} if score is not None else {}
    return {**known, "seconds": seconds, "by_status": {status: seconds}, "status": status}


@st.composite
def points(draw) -> list[HistoryPoint]:
    score = st.none() | st.integers(0, 100).map(float)
    one = st.builds(
        measured, score, st.integers(0, 9000).map(float), st.sampled_from(("idle", "low", "normal", "high", "unknown"))
    )
    made = st.builds(
        lambda time, gpu, rest: point(float(time), gpu_id=gpu, **rest),
        st.integers(DAY, 3 * DAY),
        st.sampled_from(("GPU-1", "GPU-2")),
        one,
    )
    return sorted(draw(st.lists(made, max_size=30)), key=lambda p: p.time)


def test_an_hour_has_the_mean_and_the_extremes_of_its_analyses():
    [hour] = rolled(
        [point(HOUR + i * 300 + 300, **measured(s, 300, "low")) for i, s in enumerate((10, 40, 25))], "hour"
    )
    assert (hour.step, hour.time, hour.samples, hour.scored) == ("hour", HOUR, 3, 3)
    assert (hour.score, hour.score_min, hour.score_max) == (25, 10, 40)
    assert hour.by_status == {"low": 900}


def test_a_mean_counts_seconds_and_not_analyses():
    [hour] = rolled([point(300, **measured(50, 300, "normal")), point(1200, **measured(10, 900, "low"))], "hour")
    assert (hour.score, hour.samples) == (20, 2)


def test_the_time_of_a_pod_is_spread_over_all_that_its_analysis_stands_for():
    across = point(HOUR + 100, pod="p", **measured(50, 80, "normal"), analysis_seconds=400.0, energy=4000.0)
    before, after = rolled([across], "hour")
    assert [(one.seconds, one.energy) for one in (before, after)] == [(60, 3000), (20, 1000)]


def test_an_analysis_across_a_full_hour_is_divided_between_the_hours():
    across = point(HOUR + 100, **measured(50, 400, "normal"), energy=4000.0, held_seconds=200.0)
    before, after = rolled([across], "hour")
    assert [(one.seconds, one.energy, one.held_seconds, one.score) for one in (before, after)] == [
        (300, 3000, 150, 50),
        (100, 1000, 50, 50),
    ]
    assert [(one.samples, one.scored) for one in (before, after)] == [(0, 0), (1, 1)]


def test_an_analysis_that_ends_at_a_full_hour_belongs_to_the_hour_before():
    [hour] = rolled([point(HOUR, **measured(50, 300, "normal"))], "hour")
    assert (hour.time, hour.seconds) == (0, 300)


def test_what_was_not_measured_has_no_part_in_the_mean_but_is_counted_as_unknown():
    [hour] = rolled([point(300, **measured(50, 300, "normal")), point(600, **measured(None, 300, "unknown"))], "hour")
    assert (hour.samples, hour.scored, hour.score) == (2, 1, 50)
    assert hour.by_status == {"normal": 300, "unknown": 300}


def test_nothing_measured_is_no_mean_at_all():
    found = [point(300, **measured(None, 300, "unknown")), point(600, **measured(None, 300, "unknown"))]
    [hour] = rolled(found, "hour")
    assert (hour.score, hour.score_min, hour.util, hour.memory_used, hour.coverage) == (None,) * 5


def test_a_single_analysis_makes_an_hour_without_a_status_of_its_own():
    [hour] = rolled([point(300, **measured(50, 300, "normal"))], "hour")
    assert (hour.step, hour.status) == ("hour", None)


@given(points())
def test_no_second_is_lost_or_made(found):
    for step in ("hour", "day"):
        coarse = rolled(found, step)
        assert sum(p.seconds for p in coarse) == pytest.approx(sum(p.seconds for p in found))
        assert sum(sum(p.by_status.values()) for p in coarse) == pytest.approx(sum(p.seconds for p in found))
        assert sum(p.samples for p in coarse) == len(found)
