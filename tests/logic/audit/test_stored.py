"""One GPU, its analyses, hours and charts: the numbers are worked out by hand."""

from typing import Any

import pytest

from tests.logic.audit.test_history import wrong
from vgpuscope.logic.audit import stored
from vgpuscope.model.consistency import PublicAnswer, Surfaces

HOUR = 3600
BEGIN = 1_795_000_000 // HOUR * HOUR
MINUTES = range(-10, 70)
POINT = {
    "gpu_id": "GPU-1",
    "mig": "",
    "pod": "",
    "namespace": "",
    "util": 0.4,
    "util_max": 0.8,
    "memory_used": 10,
    "memory_max": 30,
    "power": 300.0,
    "power_max": 350.0,
    "score": 50.0,
    "use_class": "busy",
}


def history(*points: dict[str, Any]) -> PublicAnswer:
    return PublicAnswer(service="analyzer", surface="GET /api/v1/history", kind="HistoryPoint[]", body=list(points))


def analyses(**changed: Any) -> PublicAnswer:
    """One a minute; in every second minute the GPU is idle."""
    return history(
        *(
            POINT
            | {"step": "analysis", "time": BEGIN + 60.0 * number, "seconds": 60.0, "analysis_seconds": 60.0}
            | {f"{name}_seconds": 60.0 for name in ("util", "memory", "power")}
            | {"util": 0.8 * (number % 2), "energy": 300.0 * 60.0}
            | changed
            for number in MINUTES
        )
    )


def hour(**changed: Any) -> PublicAnswer:
    made = {"step": "hour", "time": float(BEGIN), "seconds": 3600.0, "energy": 300.0 * HOUR}
    return history(POINT | made | changed)


def test_an_hour_is_made_of_its_analyses():
    assert wrong(stored.hours_of_analyses, hour(), analyses()) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seconds", 3000.0),
        ("energy", 1.3 * 300.0 * HOUR),
        ("util", 0.5),
        ("util_max", 0.4),
        ("memory_max", 10),
        ("power_max", 300.0),
    ],
)
def test_an_hour_that_is_not_made_of_its_analyses_is_found(field, value):
    found = wrong(stored.hours_of_analyses, hour(**{field: value}), analyses())
    assert [one.first.path for one in found] == [f"[0].{field}"]


def test_an_hour_of_which_some_analyses_are_not_listed_is_not_compared():
    late = history(*(point for point in analyses().body if point["time"] > BEGIN + 600))
    both = Surfaces(answers=(hour(util=0.1), late))
    assert list(stored.hours_of_analyses(both)) == []


def page(**shown: Any) -> PublicAnswer:
    """The page of the GPU after the analysis of the last minute."""
    row: dict[str, Any] = {"gpu_id": "GPU-1", "mig": None, "use": {"mean": 0.8, "max": 0.8}, "use_class": "busy"}
    row |= {"memory_used": 10, "memory_max": 30, "power": 300.0, "score": 50.0}
    evidence = {"window_end": BEGIN + 69 * 60.0 + 0.0001}
    body = {"gpu": row | shown, "evidence": evidence, "stale": False}
    return PublicAnswer(service="analyzer", surface="GET /api/v1/gpus/GPU-1", kind="GpuDetail", body=body)


def test_a_page_shows_what_was_stored_of_its_analysis():
    assert wrong(stored.shown_and_stored, page(), analyses()) == []


@pytest.mark.parametrize(
    ("shown", "path"),
    [
        ({"use": {"mean": 0.8, "max": 1.0}}, "[79].util_max"),
        ({"memory_max": 40}, "[79].memory_max"),
        ({"power": 200.0}, "[79].power"),
        ({"use_class": "unknown"}, "[79].use_class=unknown"),
    ],
)
def test_a_page_that_shows_something_else_than_was_stored_is_found(shown, path):
    assert [one.second.path for one in wrong(stored.shown_and_stored, page(**shown), analyses())] == [path]


def chart(step: int, peak: float, **query: str) -> PublicAnswer:
    times = list(range(BEGIN - HOUR, BEGIN + 2 * HOUR, step))
    columns = [{"quantity": "use_max", "values": [peak] * len(times)}]
    return PublicAnswer(
        service="analyzer",
        surface="GET /api/v1/history/series",
        kind="SeriesHistory",
        body={"times": times, "step_seconds": step, "source": "analyses", "columns": columns},
        query={"gpu_id": "GPU-1"} | query,
    )


def test_a_chart_of_peaks_that_are_means_is_found():
    assert wrong(stored.peaks_of_charts, chart(60, 0.8), analyses()) == []
    assert len(wrong(stored.peaks_of_charts, chart(HOUR, 0.4), analyses())) == len(MINUTES)
