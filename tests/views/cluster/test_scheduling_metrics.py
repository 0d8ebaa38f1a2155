"""How scheduling went, on the page."""

from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from vgpuscope.catalog import scheduling as m
from vgpuscope.logic.cluster.scheduling import SchedulingTimes
from vgpuscope.model.allocation import PodState, PodTimes
from vgpuscope.model.pending import PodEvent
from vgpuscope.model.scheduling import BOUNDS, SchedulingResult
from vgpuscope.model.scheduling_codes import Reason
from vgpuscope.views.cluster.scheduling_metrics import scheduling_samples
from vgpuscope.views.exposition.sharded import ShardedPage

FORMS = [(ShardedPage.text, parse_text), (ShardedPage.openmetrics, parse_openmetrics)]


def page(result):
    made = ShardedPage(m.METRICS, ("native", "handbook"))
    made.update("scheduling", scheduling_samples(result))
    return made


def shown(result, form=ShardedPage.text, parse=parse_text):
    """Every sample by name and labels; none may be there twice."""
    found = [
        ((s.name, *sorted(s.labels.items())), s.value)
        for family in parse(form(page(result)).decode())
        for s in family.samples
    ]
    assert len(found) == len(dict(found))
    return dict(found)


def busy():
    made = SchedulingTimes()
    times = PodTimes(created=0.0, filtered=4.0, bind_begun=30.0, scheduled=31.0, started=95.0)
    for uid, scheduler in (("a", "hami-scheduler"), ("b", "hami-scheduler"), ("c", 'odd"name')):
        made.set_pod(PodState(uid=uid, namespace="ml", name=uid, node="n", scheduler=scheduler, times=times))
    said = (Reason(code="SCHED_NODE_LOCKED"), Reason(code="SCHED_TAINT"))
    told: dict[str, Any] = {"namespace": "ml", "pod": "a", "component": "hami-scheduler", "reason": "BindingFailed"}
    made.set_event(PodEvent(uid="e", pod_uid="a", said=said, count=3, **told))
    return made.result()


@pytest.mark.parametrize(("form", "parse"), FORMS, ids=["text", "openmetrics"])
def test_the_handbooks_names_hold_all_schedulers_together(form, parse):
    found = shown(busy(), form, parse)
    assert found["hami_scheduler_filter_duration_seconds_count",] == 3
    assert found["hami_scheduler_filter_duration_seconds_sum",] == 12
    assert found["hami_scheduler_bind_duration_seconds_sum",] == 81
    assert found["hami_scheduler_bind_duration_seconds_bucket", ("le", "20.0")] == 0
    assert found["hami_scheduler_bind_duration_seconds_bucket", ("le", "30.0")] == 3
    assert found["hami_scheduler_bind_success_total",] == 3
    assert found["hami_scheduler_bind_failure_total",] == 3


@pytest.mark.parametrize(("form", "parse"), FORMS, ids=["text", "openmetrics"])
def test_ours_tell_schedulers_stages_and_codes_apart(form, parse):
    found, hami = shown(busy(), form, parse), ("scheduler", "hami-scheduler")
    for stage, seconds in {"filter": 8, "lock": 52, "bind": 2, "schedule": 62, "start": 128}.items():
        assert found["vgpuscope_cluster_scheduling_stage_seconds_sum", hami, ("stage", stage)] == seconds
    assert found["vgpuscope_cluster_binds_total", ("result", "success"), hami] == 2
    assert found["vgpuscope_cluster_binds_total", ("result", "failure"), hami] == 3
    assert found["vgpuscope_cluster_binds_total", ("result", "success"), ("scheduler", 'odd"name')] == 1
    assert found["vgpuscope_cluster_scheduling_failures_total", ("code", "SCHED_TAINT"), hami] == 3


@pytest.mark.parametrize(("form", "parse"), FORMS, ids=["text", "openmetrics"])
def test_the_handbooks_names_are_there_with_nothing_in_them_from_the_start(form, parse):
    found = shown(SchedulingResult(), form, parse)
    assert set(found.values()) == {0}
    assert {name for name, *_ in found} == {
        *(
            f"hami_scheduler_{s}_duration_seconds_{part}"
            for s in ("filter", "bind")
            for part in ("bucket", "sum", "count")
        ),
        "hami_scheduler_bind_success_total",
        "hami_scheduler_bind_failure_total",
        "vgpuscope_cluster_scheduling_stages_skipped_total",
    }


def test_scoring_which_nobody_can_see_from_outside_has_no_name():
    assert not any("score" in name for name, *_ in shown(busy()))


def test_a_histogram_costs_its_bounds_and_three_lines():
    name = "hami_scheduler_filter_duration_seconds"
    assert sum(found.startswith(name) for found, *_ in shown(busy())) == len(BOUNDS) + 3
