"""Charts: at most as many points as asked for, and GPUs that add up at each of them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.logic.point_fields import fields_read
from vgpuscope.logic.console.history import CLASS_FIELDS, MOST_GROUPS, ClassFold, Grid, SeriesFold, grouped
from vgpuscope.logic.console.series_queries import ChartSubject, series_queries
from vgpuscope.model.history import HistoryPoint

HOUR = 3600
NOON = 1_790_000_000 // 86400 * 86400 + 43200


def point(
    gpu: str = "g", *, at: float = NOON, seconds: float = HOUR, held: float = 0.0, by=None, **more
) -> HistoryPoint:
    by = by if by is not None else {"busy": seconds}
    return HistoryPoint(step="hour", time=at, gpu_id=gpu, seconds=seconds, held_seconds=held, by_class=by, **more)


def folded(points, *, grid=None, by="none", gpus=None):
    grid = grid or Grid(NOON, NOON + 3 * HOUR, least=HOUR, points=100)
    fold = ClassFold(grid, group=grouped(by))
    fold.add(points) if gpus is None else fold.add(gpus, points)
    columns, left_out = fold.columns(by)
    return {(column.group, column.use_class): column.gpus for column in columns}, left_out


@given(st.floats(1, 1e7), st.floats(1, 1e6), st.integers(2, 500), st.floats(0, 2e9))
def test_a_chart_has_no_more_points_than_asked_for_and_covers_the_range(span, least, points, begin):
    grid = Grid(begin, begin + span, least=least, points=points)
    assert 1 <= len(grid.times) <= points
    assert grid.times[0] <= begin + 1
    assert grid.place(begin + span - min(span, 0.001) / 2) is not None or span < 0.01
    assert grid.step >= least


def test_classes_are_added_up_from_the_fields_that_are_read_for_them():
    def work(gpus, pods):
        folded(gpus, by="model")
        folded(pods, by="owner", gpus=gpus)

    points = [point(by={"idle": HOUR}, held=10.0), point("b")], [point(namespace="ml", pod="p", held=HOUR)]
    assert fields_read(work, *points) == CLASS_FIELDS


def test_each_gpu_is_counted_once_in_each_step():
    found, _ = folded([point("a"), point("b", by={"low": HOUR / 2, "idle": HOUR / 2}, held=HOUR)])
    assert found == {
        (None, "busy"): (1.0, None, None),
        (None, "low"): (0.5, None, None),
        (None, "idle"): (0.5, None, None),
    }


def test_an_idle_gpu_that_no_pod_held_is_unallocated():
    found, _ = folded([point(by={"idle": HOUR}, held=HOUR / 4)])
    assert found == {(None, "unallocated"): (0.75, None, None), (None, "idle"): (0.25, None, None)}


def test_instances_and_pods_together_are_at_most_their_gpu():
    parts = [point(mig=mig) for mig in ("MIG-a", "MIG-b")]
    assert folded(parts)[0] == {(None, "busy"): (1.0, None, None)}
    pods = [point(namespace=name, pod="p", held=HOUR) for name in ("x", "y", "y2", "z")]
    found, _ = folded(pods, by="namespace", gpus=[point(held=HOUR)])
    assert found == {(name, "busy"): (0.25, None, None) for name in ("x", "y", "y2", "z")}


def test_pods_together_are_the_time_in_which_their_gpu_was_held():
    """Two pods share a GPU for ten minutes, and a third has it alone for twenty."""
    pods = [
        point(namespace=name, pod="p", seconds=seconds, held=seconds, by={"busy": seconds})
        for name, seconds in (("x", 600), ("y", 600), ("z", 1200))
    ]
    found, _ = folded(pods, by="namespace", gpus=[point(held=1800)])
    assert sum(values[0] for values in found.values()) == pytest.approx(0.5)


def test_an_hour_that_holds_more_than_an_hour_has_no_more_gpus_than_there_are():
    """Older versions gave an analysis to the hour in which it ends: 18 GPUs were 25.9 in the hour of the first one."""
    hour = ClassFold(Grid(NOON, NOON + HOUR, least=HOUR, points=2), group=grouped("none"))
    hour.add([point(f"g{n}", seconds=5180, by={"busy": 5000, "idle": 180}, held=5180) for n in range(18)])
    fold = ClassFold(Grid(NOON, NOON + HOUR, least=HOUR, points=2), group=grouped("none"), covered=[HOUR])
    fold.merge(NOON, hour.hour())
    columns, _ = fold.columns("none")
    assert sum(column.gpus[0] for column in columns) == pytest.approx(18.0)


def test_a_step_that_is_not_over_shows_whole_gpus():
    found, _ = folded([point(seconds=600, by={"busy": 600})])
    assert found == {(None, "busy"): (1.0, None, None)}


def test_a_pod_that_was_there_for_a_part_of_a_step_is_a_part_of_a_gpu():
    pod = point(namespace="x", pod="p", seconds=900, by={"busy": 900})
    found, _ = folded([pod], by="namespace", gpus=[point(held=900)])
    assert found == {("x", "busy"): (0.25, None, None)}


def test_groups_beyond_the_limit_are_added_up():
    gpus = [point(f"g{n}", model=f"model-{n:02d}") for n in range(MOST_GROUPS + 3)]
    found, left_out = folded(gpus, by="model")
    assert (left_out, found["others", "busy"]) == (3, (3.0, None, None))
    assert sum(values[0] for values in found.values()) == pytest.approx(len(gpus))


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.sampled_from(("busy", "idle", "low"))),
        max_size=20,
        unique_by=lambda p: p[:2],
    )
)
def test_classes_add_up_to_the_gpus_that_were_analysed(found):
    points = [point(gpu, at=NOON + hour * HOUR, by={name: HOUR}) for gpu, hour, name in found]
    columns, _ = folded(points, grid=Grid(NOON, NOON + 6 * HOUR, least=HOUR, points=100))
    for hour in range(6):
        there = {gpu for gpu, at, _ in found if at == hour}
        assert sum(values[hour] or 0 for values in columns.values()) == pytest.approx(len(there), abs=0.01)


def test_a_series_is_the_mean_over_time_and_the_sum_over_gpus():
    grid = Grid(NOON, NOON + 2 * HOUR, least=2 * HOUR, points=10)
    fold = SeriesFold(grid)
    drawn = {"power": 100.0, "power_max": 300.0, "energy": 360_000.0, "memory_allocated": 40, "cores_allocated": 50.0}
    fold.add(
        [
            point("a", util=0.2, memory_used=10, score=20.0, util_max=0.5, **drawn),
            point("a", at=NOON + HOUR, util=0.4, memory_used=20, **(drawn | {"power": 300.0})),
        ]
    )
    fold.add([point("b", util=0.5, memory_used=5, score=40.0, util_max=0.9, **drawn), point("b", at=NOON + HOUR)])
    values = {column.quantity: column.values for column in fold.columns()}
    assert values == {
        "use": (0.3667,),  # of three hours of GPUs
        "use_max": (0.9,),
        "cores_allocated": (0.5,),
        "memory_used": (18.0,),  # 15 in the first hour and 20 in the second
        "memory_max": (None,),
        "memory_allocated": (60.0,),
        "score": (30.0,),
        "power": (250.0,),  # 200 W, and 300 W
        "power_max": (None,),  # 300 W each, but perhaps not at once
        "energy": (3 * 360_000.0,),
    }
    assert [column.quantity for column in SeriesFold(grid, ["score"]).columns()] == ["score"]


def of_pods(points, covered=HOUR, quantities=("memory_used", "memory_max", "power", "power_max", "use", "energy")):
    measured = {key: [covered] for key in ("memory_used", "power")}
    fold = SeriesFold(Grid(NOON, NOON + HOUR, least=HOUR, points=2), quantities, measured=measured)
    fold.add(points)
    return {column.quantity: column.values[0] for column in fold.columns()}


def pod(name: str, seconds: float, **more) -> HistoryPoint:
    return point(namespace="ml", pod=name, seconds=seconds, by={"busy": seconds}, **more)


def test_a_pod_that_was_there_for_ten_minutes_is_a_sixth_of_its_memory_in_the_hour():
    pods = [pod("a", 600, memory_used=60, power=300.0, util=0.8), pod("b", HOUR, memory_used=10, power=100.0, util=0.1)]
    found = of_pods(pods)
    assert (found["memory_used"], found["power"]) == (20.0, 150.0)
    assert found["use"] == pytest.approx((0.8 * 600 + 0.1 * HOUR) / (600 + HOUR), abs=1e-4)


def test_pods_that_follow_each_other_are_one_at_a_time():
    assert of_pods([pod(f"p{n}", 600, memory_used=20) for n in range(6)])["memory_used"] == 20.0


def test_time_without_an_analysis_is_not_zero():
    assert of_pods([pod("a", 600, memory_used=60)], covered=1200)["memory_used"] == 30.0


def test_time_in_which_nothing_of_the_fleet_was_measured_is_not_zero():
    half = [
        HistoryPoint(
            step="analysis", time=NOON + end, gpu_id="g", namespace="ml", pod="a", seconds=1800, memory_used=used
        )
        for end, used in ((1800, 40), (3600, None))
    ]
    assert of_pods(half, covered=1800)["memory_used"] == 40.0


def test_a_pod_that_was_not_measured_while_others_were_adds_only_what_is_known():
    """So the pods of a namespace, and namespaces of a fleet, add up, and none is above the whole."""
    assert of_pods([pod("a", 1800, memory_used=40)])["memory_used"] == 20.0
    both = [pod("a", 1800, memory_used=40), pod("b", HOUR, memory_used=10)]
    assert of_pods(both)["memory_used"] == 30.0


LIVES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 6), st.integers(0, 40), st.integers(0, 5)), min_size=1, max_size=5
)


@given(LIVES)
def test_six_hours_are_the_mean_of_their_hours(lives):
    """Pods that come and go and that are measured from some hour on, beside one that is measured all the time."""
    hours = range(6)
    points, measured = list[HistoryPoint](), dict.fromkeys(hours, 0)
    for number, (first, long, value, unmeasured) in enumerate([(0, 6, 7, 0), *lives]):
        for hour in range(first, min(6, first + long)):
            drawn = {"memory_allocated": 100 * value, "power": float(value), "util": value / 100}
            measured[hour] += hour >= unmeasured
            known = drawn if hour >= unmeasured else {}
            points.append(point(at=NOON + hour * HOUR, namespace="ml", pod=f"p{number}", **known))
    short, long = (
        {column.quantity: column.values for column in columns}
        for columns in (six_hours(points, HOUR), six_hours(points, 6 * HOUR))
    )
    for name in ("memory_allocated", "power"):
        assert long[name] == (pytest.approx(sum(short[name]) / 6, abs=0.6),)
    uses = sum(short["use"][hour] * measured[hour] for hour in hours)
    assert long["use"] == (pytest.approx(uses / sum(measured.values()), abs=1e-3),)


GAPS = st.lists(
    st.tuples(st.sampled_from("xy"), st.sets(st.integers(0, 5)), st.integers(0, 40)), min_size=1, max_size=5
)


@given(GAPS)
def test_parts_add_up_to_their_whole_in_steps_of_any_length(pods):
    """Pods of two namespaces, each measured in some of six hours: an integral of what was measured has no gaps."""
    points = [
        point(at=NOON + hour * HOUR, namespace=name, pod=f"p{number}", power=float(value))
        for number, (name, hours, value) in enumerate(pods)
        for hour in hours
    ]
    known = [HOUR if any(one.time == NOON + hour * HOUR for one in points) else 0.0 for hour in range(6)]

    def drawn(chosen, step):
        steps = [sum(known[at : at + step // HOUR]) for at in range(0, 6, step // HOUR)]
        fold = SeriesFold(Grid(NOON, NOON + 6 * HOUR, least=step, points=7), ["power"], measured={"power": steps})
        fold.add(chosen)
        (column,) = fold.columns()
        return column

    for step in (HOUR, 2 * HOUR, 6 * HOUR):
        fleet, *namespaces = (
            drawn([one for one in points if one.namespace in names], step) for names in ("xy", "x", "y")
        )
        for place, whole in enumerate(fleet.values):
            parts = [one.values[place] for one in namespaces if one.values[place] is not None]
            assert sum(parts) == pytest.approx(whole or 0, abs=0.2)
            assert (whole is None) == (not parts)
    short, long = drawn(points, HOUR), drawn(points, 6 * HOUR)
    joules = sum(
        value * seconds for value, seconds in zip(short.values, short.seconds, strict=True) if value is not None
    )
    assert (long.values[0] or 0) * long.seconds[0] == pytest.approx(joules, rel=0.02, abs=0.1 * 6 * HOUR)


def six_hours(points, step):
    measured = dict.fromkeys(("memory_allocated", "power"), [step] * (6 * HOUR // step))
    fold = SeriesFold(Grid(NOON, NOON + 6 * HOUR, least=step, points=7), measured=measured)
    fold.add(points)
    return fold.columns()


def test_an_hour_in_which_nothing_was_measured_does_not_lower_the_mean_of_the_day():
    fold = SeriesFold(Grid(NOON, NOON + 2 * HOUR, least=2 * HOUR, points=2), ["power"], measured={"power": [HOUR]})
    for name in "ab":
        fold.add([point(name, power=100.0), point(name, at=NOON + HOUR)])
    assert fold.columns()[0].values == (200.0,)


def test_peaks_of_several_pods_are_not_added_up():
    peaks = {"memory_max": 10, "power_max": 200.0}
    one, two = of_pods([pod("a", HOUR, **peaks)]), of_pods([pod(name, HOUR, **peaks) for name in "ab"])
    assert (one["memory_max"], one["power_max"]) == (10.0, 200.0)
    assert (two["memory_max"], two["power_max"]) == (None, None)


def test_instances_of_a_gpu_count_as_one_gpu_in_a_mean_over_gpus():
    instances = [point("b", mig=f"MIG-{n}", util=0.0) for n in range(3)]
    assert of_pods([point("a", util=0.6), *instances])["use"] == 0.3


def test_instances_that_are_not_measured_take_nothing_from_their_gpu_in_a_mean_over_gpus():
    known, unknown = point("b", mig="MIG-0", util=0.0), [point("b", mig=f"MIG-{n}") for n in (1, 2)]
    assert of_pods([point("a", util=0.6), known, *unknown])["use"] == 0.3


def test_the_memory_of_a_gpu_instance_counts_once_though_each_compute_instance_reports_it():
    shared = [point("b", mig=f"MIG-{n}", gpu_instance="1", memory_used=20) for n in range(2)]
    apart = [point("b", mig="MIG-2", gpu_instance="2", memory_used=5), point("a", memory_used=40)]
    assert of_pods([*shared, *apart])["memory_used"] == 65.0
    assert of_pods(shared[:1])["memory_used"] == 20.0
    held = [pod(name, HOUR, mig=f"MIG-{name}", gpu_instance="1", memory_used=7) for name in "xy"]
    assert of_pods(held)["memory_used"] == 14.0  # pods have memory of their own


def test_the_energy_of_an_analysis_is_divided_among_the_steps_it_stands_for():
    fold = SeriesFold(Grid(NOON, NOON + HOUR, least=600, points=10), ["energy"])
    fold.add([HistoryPoint(step="analysis", time=NOON + 1500, gpu_id="a", seconds=900, energy=900.0)])
    assert fold.columns()[0].values == (None, 600.0, 300.0, None, None, None)


def test_a_pod_that_left_before_a_step_began_is_no_more_in_that_step_than_its_gpu():
    """It held the GPU for 300 of 600 s, with 8 bytes; the GPU's mean is 4. An analysis does not say when it was."""
    analysis: dict[str, Any] = {"step": "analysis", "time": NOON + 900, "gpu_id": "a", "analysis_seconds": 600.0}
    left = HistoryPoint(
        **analysis, namespace="ml", pod="p", seconds=300, memory_seconds=300, memory_used=8, energy=30.0
    )
    gpu = HistoryPoint(**analysis, seconds=600, memory_seconds=600, memory_used=4, energy=60.0)

    def columns(of):
        grid = Grid(NOON, NOON + HOUR, least=600, points=10)
        fold = SeriesFold(grid, ["memory_used", "energy"], measured={"memory_used": [300.0, 300.0, 0, 0, 0, 0]})
        fold.add([of])
        return [column.values[:2] for column in fold.columns()]

    assert columns(left) == [(4.0, 4.0), (15.0, 15.0)]
    assert columns(gpu) == [(4.0, 4.0), (30.0, 30.0)]


def test_what_was_not_analysed_is_null_and_not_zero():
    fold = SeriesFold(Grid(NOON, NOON + 3 * HOUR, least=HOUR, points=10), ["use"])
    fold.add([point(at=NOON + HOUR, util=0.0)])
    (use,) = fold.columns()
    assert use.values == (None, 0.0, None)


def test_an_analysis_belongs_to_the_step_in_which_its_window_ends():
    grid = Grid(NOON, NOON + 2 * HOUR, least=HOUR, points=10)
    fold = SeriesFold(grid)
    fold.add([HistoryPoint(step="analysis", time=NOON + HOUR, gpu_id="a", seconds=600, util=0.5)])
    assert {column.quantity: column.values for column in fold.columns()}["use"] == (0.5, None)


def test_an_hour_with_an_analysis_that_began_before_it_has_no_more_gpus_than_there_are():
    points = [point(gpu, by={"busy": 3600.0, "idle": 900.0}, seconds=4500, held=4500) for gpu in "ab"]
    found, _ = folded(points, grid=Grid(NOON, NOON + HOUR, least=HOUR, points=10))
    assert found == {(None, "busy"): (1.6,), (None, "idle"): (0.4,)}


def analysis(at: float, seconds: float, gpu: str = "a", **more) -> HistoryPoint:
    by: Any = {"busy": seconds}
    return HistoryPoint(
        step="analysis", time=at, gpu_id=gpu, seconds=seconds, held_seconds=seconds, by_class=by, **more
    )


def test_an_analysis_that_stands_for_long_is_in_every_step_of_that_time():
    grid = Grid(NOON, NOON + HOUR, least=600, points=10)
    found, _ = folded([analysis(NOON + HOUR, HOUR), analysis(NOON + HOUR, 900, gpu="b")], grid=grid)
    assert found == {(None, "busy"): (1.0, 1.0, 1.0, 1.0, 1.5, 2.0)}


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(2, 40))
def test_one_gpu_is_never_more_than_one_however_rare_its_analyses_are(gaps, points):
    """Analyses follow each other, and each stands for the time since the one before."""
    ends = [NOON + 60 * sum(gaps[: place + 1]) for place in range(len(gaps))]
    found, _ = folded(
        [analysis(end, 60.0 * gap) for end, gap in zip(ends, gaps, strict=True)],
        grid=Grid(NOON, ends[-1], least=60, points=points),
    )
    assert {round(value, 2) for value in found[None, "busy"]} == {1.0}


def test_queries_escape_what_they_are_asked_for():
    query = series_queries(ChartSubject(gpu_id='x"} or vector(1) #'), window=60, step=60)["use"]
    assert r'gpu_uuid="x\"} or vector(1) #"' in query
    pods = series_queries(ChartSubject(namespaces=("a.b", "c|d"), pod="p"), window=60, step=60)["memory_used"]
    assert r'namespace=~"a\\.b|c\\|d"' in pods
    assert series_queries(ChartSubject(owner="Job/x"), window=60, step=60) == {}
