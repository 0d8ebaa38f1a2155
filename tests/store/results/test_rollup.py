"""What many points say together: the laws of adding them up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.results.rollup import daily, hourly, merged, together
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
        measured, score, st.integers(0, 600).map(float), st.sampled_from(("idle", "low", "normal", "high", "unknown"))
    )
    made = st.builds(
        lambda time, gpu, rest: point(float(time), gpu_id=gpu, **rest),
        st.integers(0, 3 * DAY),
        st.sampled_from(("GPU-1", "GPU-2")),
        one,
    )
    return sorted(draw(st.lists(made, max_size=30)), key=lambda p: p.time)


def test_an_hour_has_the_mean_and_the_extremes_of_its_analyses():
    [hour] = hourly([point(HOUR + i * 300, **measured(score, 300, "low")) for i, score in enumerate((10, 40, 25))])
    assert (hour.step, hour.time, hour.samples, hour.scored) == ("hour", HOUR, 3, 3)
    assert (hour.score, hour.score_min, hour.score_max) == (25, 10, 40)
    assert hour.by_status == {"low": 900}


def test_what_was_not_measured_has_no_part_in_the_mean_but_is_counted_as_unknown():
    [hour] = hourly([point(0, **measured(50, 300, "normal")), point(300, **measured(None, 300, "unknown"))])
    assert (hour.samples, hour.scored, hour.score) == (2, 1, 50)
    assert hour.by_status == {"normal": 300, "unknown": 300}


def test_nothing_measured_is_no_mean_at_all():
    [hour] = hourly([point(0, **measured(None, 300, "unknown")), point(300, **measured(None, 300, "unknown"))])
    assert (hour.score, hour.score_min, hour.util, hour.memory_used, hour.coverage) == (None,) * 5


def test_a_single_analysis_makes_an_hour_without_a_status_of_its_own():
    [hour] = hourly([point(0, **measured(50, 300, "normal"))])
    assert (hour.step, hour.status) == ("hour", None)


@given(points())
def test_days_of_hours_are_the_days_of_the_analyses(found):
    for ours, direct in zip(daily(hourly(found)), daily(found), strict=True):
        assert ours.score == pytest.approx(direct.score)
        assert (ours.time, ours.gpu_id, ours.samples, ours.scored) == (
            direct.time,
            direct.gpu_id,
            direct.samples,
            direct.scored,
        )
        assert ours.by_status == direct.by_status


@given(points())
def test_no_second_is_lost_or_made(found):
    for rolled in (hourly(found), daily(hourly(found))):
        assert sum(p.seconds for p in rolled) == sum(p.seconds for p in found)
        assert sum(sum(p.by_status.values()) for p in rolled) == sum(p.seconds for p in found)
        assert sum(p.samples for p in rolled) == len(found)


@given(points(), st.integers(1, 29))
def test_it_does_not_matter_how_the_parts_are_cut(found, cut):
    if 0 < cut < len(found):
        whole, parts = merged(found), merged([merged(found[:cut]), merged(found[cut:])])
        assert parts.score == pytest.approx(whole.score)
        assert (parts.samples, parts.score_min, parts.by_status) == (whole.samples, whole.score_min, whole.by_status)


def test_gpus_of_one_namespace_add_up_at_each_time():
    gpus = [point(time, gpu_id=f"GPU-{n}", namespace="ml", held_seconds=300.0) for time in (0, 300) for n in range(4)]
    assert [(p.time, p.held_seconds) for p in together(gpus, by=lambda p: p.namespace)] == [(0, 1200), (300, 1200)]
