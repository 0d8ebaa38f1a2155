"""Charts of one hour in several ranges: the numbers are worked out by hand."""

from datetime import UTC, datetime
from typing import Any

import pytest

from vgpuscope.logic.audit import history
from vgpuscope.logic.audit.checks import holds
from vgpuscope.model.consistency import FigureComparison, FigureReading, PublicAnswer, Surfaces

HOUR, MINUTE = 3600, 60
BEGIN = 1_795_000_000 // HOUR * HOUR
DAY = BEGIN // (24 * HOUR) * 24 * HOUR
TWO = [BEGIN, BEGIN + HOUR]  # the newest hour still grows
EVERY_MINUTE = [BEGIN + MINUTE * number for number in range(-10, 80)]


def chart(
    times: list[int],
    step: int,
    *,
    query: dict[str, str] | None = None,
    seconds: list[float] | None = None,
    **columns: list[Any],
) -> PublicAnswer:
    """`seconds`: for how much of each step the fleet was measured; by default all of it."""
    spent = seconds or [float(step)] * len(times)
    shown = [{"quantity": name, "values": values, "seconds": spent} for name, values in columns.items()]
    body = {"times": times, "step_seconds": step, "source": "hours" if step == HOUR else "analyses", "columns": shown}
    return PublicAnswer(
        service="analyzer", surface="GET /api/v1/history/series", kind="SeriesHistory", body=body, query=query or {}
    )


def classes(times: list[int], step: int, *columns: list[Any], later: int = 0, **query: str) -> PublicAnswer:
    """`later`: seconds between the end of the last step and that of the chart. The first column is of free GPUs."""
    end = datetime.fromtimestamp(times[-1] + step + later, UTC).isoformat()
    names = ("unallocated", "busy", "idle")
    shown = [{"use_class": name, "gpus": one} for name, one in zip(names, columns, strict=False)]
    body = {"times": times, "step_seconds": step, "source": "analyses", "columns": shown, "end": end}
    return PublicAnswer(
        service="analyzer", surface="GET /api/v1/history/classes", kind="ClassHistory", body=body, query=query
    )


def hours(*, seconds: float = 3600.0, samples: int = 60, **changed: Any) -> PublicAnswer:
    point = {"step": "hour", "time": BEGIN, "gpu_id": "GPU-1", "mig": "", "pod": "", "seconds": seconds}
    parts = {name: {"a": seconds / 4, "b": seconds * 3 / 4} for name in ("by_status", "by_verdict", "by_class")}
    return PublicAnswer(
        service="analyzer",
        surface="GET /api/v1/history",
        kind="HistoryPoint[]",
        body=[point | {"samples": samples} | parts | changed],
    )


def wrong(check: Any, *answers: PublicAnswer, readings: tuple[FigureReading, ...] = ()) -> list[FigureComparison]:
    made = list(check(Surfaces(answers=answers, readings=readings)))
    assert made
    return [one for one in made if not holds(one)]


def test_a_mean_of_an_hour_that_is_not_that_of_its_minutes_is_found():
    minutes = chart(EVERY_MINUTE, MINUTE, memory_used=[(40e9, 80e9)[number % 2] for number in range(90)])
    assert wrong(history.steps, chart([BEGIN], HOUR, memory_used=[60e9]), minutes, hours()) == []
    for mean in (210e9, 70e9, 20e9):  # 70e9 is between the lowest and the highest minute
        assert len(wrong(history.steps, chart([BEGIN], HOUR, memory_used=[mean]), minutes, hours())) == 1


def test_a_namespace_without_pods_for_a_part_of_an_hour_has_a_lower_mean_in_that_hour():
    """In the hour the fleet was measured for 40 minutes, the namespace for 20 of them."""
    values: list[float | None] = [None] * 90
    spent = [0.0] * 90
    values[10:30], spent[10:50] = [600.0] * 20, [60.0] * 40
    minutes = chart(EVERY_MINUTE, MINUTE, power=values, seconds=spent)
    assert wrong(history.steps, chart([BEGIN], HOUR, power=[300.0], seconds=[2400.0]), minutes) == []
    for mean in (600.0, 200.0):
        assert len(wrong(history.steps, chart([BEGIN], HOUR, power=[mean], seconds=[2400.0]), minutes)) == 1


def test_a_peak_of_an_hour_below_a_minute_of_it_is_found():
    minutes = chart(EVERY_MINUTE, MINUTE, power_max=[400.0 if number == 40 else 100.0 for number in range(90)])
    assert wrong(history.steps, chart([BEGIN], HOUR, power_max=[400.0]), minutes, hours()) == []
    assert len(wrong(history.steps, chart([BEGIN], HOUR, power_max=[100.0]), minutes, hours())) == 1


def test_the_energy_of_an_hour_is_that_of_its_minutes():
    minutes = chart(EVERY_MINUTE, MINUTE, energy=[6000.0] * 90)
    assert wrong(history.energies, chart(TWO, HOUR, energy=[360_000.0, 1.0]), minutes, hours()) == []
    assert len(wrong(history.energies, chart(TWO, HOUR, energy=[720_000.0, 1.0]), minutes, hours())) == 1


@pytest.mark.parametrize("step", [HOUR, 24 * HOUR])
def test_an_energy_that_is_not_that_of_its_power_is_found(step):
    def drawn(energy: float, spent: float) -> PublicAnswer:
        return chart([BEGIN], step, seconds=[spent], power=[300.0], energy=[energy])

    assert wrong(history.energy_of_power, drawn(300.0 * 900.0, 900.0)) == []
    assert wrong(history.energy_of_power, drawn(0.5 * 300.0 * 900.0, 900.0)) == []  # a GPU that came and went
    assert len(wrong(history.energy_of_power, drawn(1.3 * 300.0 * 900.0, 900.0))) == 1


def test_half_the_energy_of_a_power_that_was_measured_all_the_time_is_found():
    whole = chart([BEGIN], HOUR, seconds=[3600.0], power=[300.0], energy=[0.5 * 300.0 * HOUR])
    assert len(wrong(history.energy_of_power, whole)) == 1


def test_a_mean_above_its_peak_is_found():
    assert wrong(history.means_and_peaks, chart([BEGIN], HOUR, use=[0.4], use_max=[0.4])) == []
    assert len(wrong(history.means_and_peaks, chart([BEGIN], HOUR, use=[0.6], use_max=[0.4]))) == 1


def test_a_free_gpu_of_which_nothing_is_known_is_not_unallocated():
    """One GPU is free and idle, one is free and unknown, and of one that MIG divides a half is held."""
    devices = [("GPU-1", "", "idle", 0.0), ("GPU-2", "", "unknown", 0.0)]
    devices += [("GPU-3", "a", "idle", 3600.0), ("GPU-3", "b", "idle", 0.0)]
    points = [
        {"step": "hour", "time": BEGIN, "gpu_id": gpu, "mig": mig, "pod": "", "seconds": 3600.0}
        | {"by_class": {name: 3600.0}, "held_seconds": held}
        for gpu, mig, name, held in devices
    ]
    stored = PublicAnswer(service="analyzer", surface="GET /api/v1/history", kind="HistoryPoint[]", body=points)

    def drawn(unallocated: float, idle: float, unknown: float) -> PublicAnswer:
        columns = zip(("unallocated", "idle", "unknown"), (unallocated, idle, unknown), strict=True)
        body = {"times": TWO, "step_seconds": HOUR, "source": "hours"}
        body |= {"columns": [{"use_class": name, "gpus": [gpus, gpus]} for name, gpus in columns]}
        return PublicAnswer(service="analyzer", surface="GET /classes", kind="ClassHistory", body=body)

    assert wrong(history.classes_of_hours, drawn(1.5, 0.5, 1.0), stored) == []
    found = wrong(history.classes_of_hours, drawn(2.5, 0.5, 0.0), stored)
    assert [one.subject for one in found] == ["unallocated", "unknown"]


def test_a_pod_that_has_just_begun_is_not_compared():
    """Its hour was read some seconds before its minutes."""
    values = [None] * 60 + [4e9, 5e9, 6e9] + [None] * 27
    read = Surfaces(answers=(chart([BEGIN], HOUR, memory_used=[1e9]), chart(EVERY_MINUTE, MINUTE, memory_used=values)))
    assert list(history.steps(read)) == []


def test_a_day_of_a_few_hours_is_compared():
    times = [DAY + HOUR * number for number in range(24)]
    spent = [0.0] * 20 + [float(HOUR)] * 4
    hours = chart(times, HOUR, memory_used=[None] * 20 + [4e9, 5e9, 6e9, 5e9], seconds=spent)
    assert wrong(history.steps, chart([DAY], 24 * HOUR, memory_used=[5e9], seconds=[4.0 * HOUR]), hours) == []
    assert len(wrong(history.steps, chart([DAY], 24 * HOUR, memory_used=[9e9], seconds=[4.0 * HOUR]), hours)) == 1


def test_an_hour_that_the_short_steps_do_not_cover_is_not_compared():
    short = chart([BEGIN + 1800 + MINUTE * number for number in range(30)], MINUTE, memory_used=[1e9] * 30)
    long = chart([BEGIN], HOUR, memory_used=[9e9])
    assert list(history.steps(Surfaces(answers=(long, short, hours())))) == []


def test_an_analysis_that_stands_for_a_whole_hour_proves_nothing_about_sums_and_peaks():
    minutes = chart(EVERY_MINUTE, MINUTE, energy=[6000.0] * 90, power_max=[400.0] * 90)
    long = chart(TWO, HOUR, energy=[720_000.0, 1.0], power_max=[100.0, 0.0])
    read = Surfaces(answers=(long, minutes, hours(samples=1)))
    assert [*history.energies(read), *history.steps(read)] == []


def test_more_gpus_by_class_in_an_hour_than_in_any_minute_of_it_are_found():
    minutes = classes(EVERY_MINUTE, MINUTE, [10.0] * 90, [8.0] * 90)
    assert wrong(history.classes, classes([BEGIN], HOUR, [9.9], [8.1]), minutes) == []
    assert len(wrong(history.classes, classes([BEGIN], HOUR, [15.9], [10.0]), minutes)) == 1


def test_a_namespace_above_the_fleet_is_found():
    times = [BEGIN + HOUR * number for number in range(6)]
    fleet = chart(times, HOUR, power=[3000.0] * 6)
    part = chart(times, HOUR, query={"namespace": "ml"}, power=[1000.0, 4700.0, *[1000.0] * 4])
    assert [one.first.value for one in wrong(history.part_of_fleet, fleet, part)] == [4700.0]


def test_nodes_that_are_above_the_fleet_only_together_are_found():
    """Such as if the chart of a node is that of the fleet."""
    fleet = chart(TWO, HOUR, power=[1000.0, 1000.0])
    first, second = (chart(TWO, HOUR, query={"node": name}, power=[600.0, None]) for name in ("a", "b"))
    assert wrong(history.part_of_fleet, fleet, first) == []
    assert len(wrong(history.part_of_fleet, fleet, first, second)) == 1


def test_pods_that_share_a_gpu_and_count_as_a_gpu_each_are_found():
    fleet = classes(EVERY_MINUTE, MINUTE, [4.0] * 90, [2.0] * 90)

    def divided(gpus: float) -> PublicAnswer:
        return classes(EVERY_MINUTE, MINUTE, [0.0] * 90, [gpus] * 90, group_by="namespace")

    assert wrong(history.groups_of_classes, fleet, divided(2.0)) == []
    assert len(wrong(history.groups_of_classes, fleet, divided(3.0))) == 89


def test_the_newest_steps_of_two_charts_that_were_read_one_after_the_other_are_not_compared():
    times = [BEGIN + MINUTE * number for number in range(10)]
    fleet = chart(times, MINUTE, energy=[100.0] * 8 + [3.0, None])
    part = chart(times, MINUTE, query={"namespace": "ml"}, energy=[90.0] * 8 + [80.0, 40.0])
    assert wrong(history.part_of_fleet, fleet, part) == []


def test_a_chart_of_18_beside_a_tile_of_20_is_found():
    tile = FigureReading(surface="GET /api/v1/overview", path="now.gpus", figure="fleet.gpus", subject=(), value=20)
    times = [BEGIN + MINUTE * number for number in range(5)]
    full = classes(times, MINUTE, [20.0] * 5)
    assert wrong(history.chart_and_tile, full, readings=(tile,)) == []
    assert len(wrong(history.chart_and_tile, classes(times, MINUTE, [18.0] * 5), readings=(tile,))) == 1
    changing = Surfaces(answers=(classes(times, MINUTE, [20.0, 20.0, 20.0, 18.1, 18.0]),), readings=(tile,))
    assert list(history.chart_and_tile(changing)) == []
    old = classes(times, MINUTE, [18.0] * 5, later=2 * MINUTE)  # the newest analysis is not in the chart yet
    assert list(history.chart_and_tile(Surfaces(answers=(old,), readings=(tile,)))) == []


@pytest.mark.parametrize(
    ("point", "found"),
    [
        ({}, 0),
        ({"seconds": 4144.0}, 1),
        ({"by_class": {"busy": 7200.0}}, 1),
    ],
)
def test_an_hour_that_stands_for_more_than_an_hour_is_found(point, found):
    assert len(wrong(history.stored_seconds, hours(**point))) == found
