"""Times of stages, quotas and capacity, from the metrics and the ledgers of a cluster exporter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.catalog import cluster as m
from vgpuscope.catalog import scheduling as s
from vgpuscope.logic.console.scheduling import (
    binds,
    by_code,
    failures,
    merged,
    pending_row,
    quantile,
    quotas,
    stage_times,
)
from vgpuscope.model.cluster import Amount, Capacity
from vgpuscope.model.console.facts import SeenSeries
from vgpuscope.model.pending import PendingPod
from vgpuscope.model.scheduling_codes import BY_CODE
from vgpuscope.views.console.words import scheduling_words

INF = float("inf")


@pytest.mark.parametrize(
    ("buckets", "share", "expected"),
    [
        # the cases of Prometheus' own documentation and tests of histogram_quantile
        ([(0.1, 1.0), (0.2, 3.0), (INF, 4.0)], 0.25, 0.1),
        ([(0.1, 1.0), (0.2, 3.0), (INF, 4.0)], 0.5, 0.15),
        ([(0.1, 1.0), (0.2, 3.0), (INF, 4.0)], 0.75, 0.2),
        ([(0.1, 1.0), (0.2, 3.0), (INF, 4.0)], 0.99, 0.2),
        ([(1.0, 0.0), (INF, 0.0)], 0.5, None),
        ([], 0.5, None),
    ],
)
def test_a_quantile_is_estimated_as_prometheus_does(buckets, share, expected):
    assert quantile(buckets, share) == (expected if expected is None else pytest.approx(expected))


@given(st.lists(st.floats(0, 100), min_size=1, max_size=40), st.floats(0.01, 1))
def test_a_quantile_is_in_the_bucket_of_the_value_it_stands_for(values, share):
    bounds = [1.0, 2.0, 5.0, 10.0, 50.0, 100.0]
    buckets = [(bound, float(sum(value <= bound for value in values))) for bound in bounds] + [
        (INF, float(len(values)))
    ]
    rank = share * len(values)
    true = sorted(values)[min(len(values) - 1, max(0, -(-rank // 1).__int__() - 1))]
    upper = next(bound for bound in bounds if true <= bound)
    lower = max((bound for bound in bounds if bound < true), default=0.0)
    assert lower <= quantile(buckets, share) <= upper + 1e-9


def histogram(scheduler: str, stage: str, *reached: tuple[str, float], spent: float) -> list[tuple[SeenSeries, float]]:
    of, name = {"scheduler": scheduler, "stage": stage}, s.STAGE_SECONDS.name
    found = [(SeenSeries(f"{name}_bucket", {**of, "le": bound}), value) for bound, value in reached]
    return [*found, (SeenSeries(f"{name}_sum", of), spent)]


def test_each_stage_has_its_times_in_the_order_of_the_stages():
    page = [
        *histogram("b", "schedule", ("1.0", 1.0), ("+Inf", 2.0), spent=8.0),
        *histogram("b", "filter", ("1.0", 4.0), ("+Inf", 4.0), spent=2.0),
        *histogram("a", "start", ("1.0", 0.0), ("+Inf", 0.0), spent=0.0),
    ]
    found = stage_times(page)
    assert [(one.scheduler, one.stage, one.count, one.mean, one.p50) for one in found] == [
        ("a", "start", 0, None, None),
        ("b", "filter", 4, 0.5, 0.5),
        ("b", "schedule", 2, 4.0, 1.0),
    ]


def test_binds_and_failures_are_counted_for_all_schedulers():
    page = [
        (SeenSeries(s.BINDS.name, {"scheduler": "a", "result": "success"}), 3.0),
        (SeenSeries(s.BINDS.name, {"scheduler": "b", "result": "success"}), 4.0),
        (SeenSeries(s.BINDS.name, {"scheduler": "b", "result": "failure"}), 1.0),
        (SeenSeries(s.FAILURES.name, {"scheduler": "a", "code": "X"}), 2.0),
        (SeenSeries(s.FAILURES.name, {"scheduler": "a", "code": "Y"}), 9.0),
        (SeenSeries(s.FAILURES.name, {"scheduler": "a", "code": "Z"}), 0.0),
    ]
    assert (binds(page, "success"), binds(page, "failure")) == (7, 1)
    assert [(one.code, one.count) for one in failures(page)] == [("Y", 9), ("X", 2)]


def test_a_quota_without_a_limit_has_none_and_not_zero():
    of = {"namespace": "ml", "resource": "nvidia.com/gpu"}
    limited = {"namespace": "ml", "resource": "nvidia.com/gpumem"}
    page = [
        (SeenSeries(m.QUOTA_USED.name, of), 2.0),
        (SeenSeries(m.QUOTA_USED.name, limited), 3.0),
        (SeenSeries(m.QUOTA_LIMIT.name, limited), 4.0),
    ]
    free, full = quotas(page)["ml"]
    assert (free.limit, free.ratio, full.limit, full.ratio) == (None, None, 4.0, 0.75)


def test_capacities_add_up_and_the_largest_that_fits_is_on_one_node():
    one = Capacity(
        total=Amount(2, 20, 100, 200), lost={"cordoned": Amount(1, 1, 1, 1)}, largest_memory=40, whole_cards=2
    )
    two = Capacity(
        total=Amount(1, 10, 50, 100), lost={"cordoned": Amount(1, 2, 3, 4)}, largest_memory=50, whole_cards=1
    )
    found = merged([one, two], kind="A100")
    assert (found.total, found.lost) == (Amount(3, 30, 150, 300), {"cordoned": Amount(2, 3, 4, 5)})
    assert (found.largest_memory, found.whole_cards, found.type) == (50, 2, "A100")


def test_a_waiting_pod_is_explained_in_both_languages_with_its_own_names():
    pod = PendingPod(namespace="ml", pod="p", pod_uid="u", code="SCHED_QUOTA_EXCEEDED", created=100.0)
    row = pending_row(pod, now=160.0, codes=BY_CODE, say=scheduling_words)
    assert (row.waited_seconds, row.stage) == (60.0, "admit")
    for text in (row.advice.en, row.advice.zh):
        assert "-n ml`" in text
        assert "NAMESPACE" not in text
    assert by_code([pod, pod]) == {"SCHED_QUOTA_EXCEEDED": 2}
