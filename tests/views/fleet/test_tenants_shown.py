"""Tenants of shared GPUs: each is shown and counted by its own numbers.

The fleet here is the one that showed nothing: on each of twelve GPUs a worker at 70 %, a notebook that holds 20 GiB and
does nothing, and a pod that holds nothing, each in a namespace of its own.
"""

from typing import Any

import pytest
from hypothesis import given

from tests.store import fleets
from vgpuscope.logic.console.gpus import gpu_rows
from vgpuscope.logic.console.namespaces import namespace_rows
from vgpuscope.model.analysis import STATUSES, USE_CLASSES, VERDICTS, Score, Stat
from vgpuscope.views.fleet.api import summary
from vgpuscope.views.fleet.results.results import iso, low, rows, stats, units

GIB = fleets.GIB
SINCE = fleets.NOON - 9 * fleets.HOUR


def tenant(pod: str, namespace: str, score: float | None, **more):
    fields: dict[str, Any] = {
        "own": True,
        "score": Score(value=score, confidence=0.7),
        "owner": f"StatefulSet/{pod.rpartition('-')[0]}",
    }
    return fleets.tenant(pod, namespace=namespace, **(fields | more))


def terms(util: float, memory: float) -> dict:
    return {"process_sm": Stat(mean=util, max=util, samples=20), "mem_used": Stat(mean=memory * GIB, samples=20)}


def shared(number: int):
    idle = {"status": "idle", "verdict": "idle", "idle_since": SINCE}
    tenants = (
        tenant("worker-0", "train", 55.0, status="normal", verdict="in_use", use_class="busy", terms=terms(0.7, 26)),
        tenant(
            f"notebook-{number}",
            "notebooks",
            7.1,
            use_class="idle-held",
            terms=terms(0, 20),
            memory_limit=24 * GIB,
            **idle,
        ),
        tenant(f"empty-{number}", "batch", 0.0, use_class="idle", terms=terms(0, 0), **idle),
    )
    one_gpu = {"gpu_util": Stat(mean=0.7), "mem_used": Stat(mean=46.0 * GIB), "mem_total": Stat(mean=80.0 * GIB)}
    state = {"score": Score(value=63.3), "status": "normal", "verdict": "in_use", "use_class": "busy"}
    return fleets.gpu(number, gpu_index=str(number % 8), terms=one_gpu, tenants=tenants, **state)


@pytest.fixture
def fleet():
    return fleets.analysis(fleets.NOON, *map(shared, range(12)))


def test_every_idle_tenant_beside_a_busy_one_is_counted(fleet):
    sums = stats(rows(fleet), threshold=20, timestamp=None)
    assert (sums.tenants_total, sums.tenants_idle, sums.tenants_low, sums.tenants_unknown) == (36, 24, 24, 0)
    assert {name: count for name, count in sums.tenants_by_class.items() if count} == {
        "busy": 12,
        "idle": 12,
        "idle-held": 12,
    }


def test_counts_of_gpus_stay_counts_of_gpus(fleet):
    sums = stats(rows(fleet), threshold=20, timestamp=None)
    assert (sums.total_gpus, sums.idle_count, sums.low_utilization_count, sums.avg_score) == (12, 0, 0, 63.3)
    assert sums.by_class["busy"] == 12
    assert [found.count for found in sums.by_namespace.values()] == [12, 12, 12]


def test_each_namespace_has_the_score_of_its_own_tenants(fleet):
    made = rows(fleet)
    scores = {name: found.avg_score for name, found in stats(made, threshold=20, timestamp=None).by_namespace.items()}
    assert scores == {"batch": 0.0, "notebooks": 7.1, "train": 55.0}


def test_low_lists_every_idle_or_low_tenant_by_its_own_pod_and_score(fleet):
    found = low(rows(fleet), threshold=20)
    assert len(found) == 24
    assert {(row.namespace, row.status) for row in found} == {("notebooks", "idle"), ("batch", "idle")}
    (notebook,) = [row for row in found if row.pod == "notebook-3"]
    assert (notebook.score, notebook.verdict, notebook.use_class) == (7.1, "idle", "idle-held")
    assert (notebook.gpu_util, notebook.mem_used_mb, notebook.mem_usage_percent) == (0.0, 20480.0, 25.0)
    assert (notebook.idle_since, notebook.gpu_id) == (iso(SINCE), fleets.gpu(3).gpu_id)
    assert [one.pod for one in notebook.tenants] == ["notebook-3"]


def test_an_idle_tenant_that_holds_much_memory_is_listed_whatever_its_score():
    hoard = tenant("nb-0", "a", 23.8, status="normal", verdict="idle", use_class="idle-held")
    busy = tenant("w-0", "b", 60.0, status="normal", verdict="in_use", use_class="busy")
    made = rows(fleets.analysis(fleets.NOON, fleets.gpu(0, tenants=(hoard, busy), status="high", verdict="in_use")))
    assert [row.pod for row in low(made, threshold=20)] == ["nb-0"]


def test_a_shared_gpu_that_is_low_is_listed_itself_where_its_tenants_have_no_numbers():
    both = (fleets.tenant("a"), fleets.tenant("b", namespace="other"))
    gpu = fleets.gpu(0, tenants=both, score=Score(value=3.0), status="idle", verdict="idle", use_class="idle")
    (row,) = low(rows(fleets.analysis(fleets.NOON, gpu)), threshold=20)
    assert (row.pod, row.score, len(row.tenants)) == ("", 3.0, 2)


def test_a_tenant_without_numbers_of_its_own_has_no_score_and_is_in_no_average():
    both = (tenant("a-0", "a", 40.0), fleets.tenant("b-0", namespace="b"))
    made = rows(fleets.analysis(fleets.NOON, fleets.gpu(0, tenants=both, score=Score(value=90.0), status="high")))
    (row,) = made
    assert [(one.score, one.status) for one in row.tenants] == [(40.0, "unknown"), (None, "unknown")]
    averages = {name: s.avg_score for name, s in stats(made, threshold=20, timestamp=None).by_namespace.items()}
    assert averages == {"a": 40.0, "b": None}


@pytest.mark.parametrize("own", [True, False])
def test_the_only_tenant_of_a_gpu_has_the_gpus_score(own):
    lone = fleets.tenant("a-0", verdict="in_use", use_class="busy", own=own, score=Score(value=85.5), status="high")
    gpu = fleets.gpu(0, tenants=(lone,), score=Score(value=61.0), status="normal", verdict="in_use", use_class="busy")
    (row,) = rows(fleets.analysis(fleets.NOON, gpu))
    assert (row.tenants[0].score, row.tenants[0].status) == (61.0, "normal")
    assert units(row) == (row,)


def test_the_score_of_a_namespace_is_the_mean_of_the_scores_that_its_tenants_show():
    """On one GPU the only tenant came late: the GPU was busy before, so it has another score than its tenant."""
    late = tenant("a-0", "a", 10.0, status="low", verdict="idle", use_class="idle")
    early = tenant("a-1", "a", 30.0, status="normal", verdict="in_use", use_class="busy")
    busy: Any = {"status": "high", "verdict": "in_use", "use_class": "busy"}
    gpus = [fleets.gpu(n, tenants=(one,), score=Score(value=90.0), **busy) for n, one in enumerate((late, early))]
    found = fleets.analysis(fleets.NOON, *gpus)
    sums = stats(rows(found), threshold=20, timestamp=None)
    shown = gpu_rows(found, stale=False, cluster=None, facts=None)
    (row,) = namespace_rows(shown, quotas=None, pending=None, waste=None)
    assert sums.by_namespace["a"].avg_score == row.score == 50.0  # 10 and 90


def test_the_only_tenant_of_a_gpu_keeps_its_own_score_where_the_verdicts_differ():
    lone = fleets.tenant("a-0", own=True, score=Score(value=85.5), status="high", verdict="in_use")
    (row,) = rows(fleets.analysis(fleets.NOON, fleets.gpu(0, tenants=(lone,), score=Score(value=1.0), status="idle")))
    assert (row.tenants[0].score, row.tenants[0].status) == (85.5, "high")


def test_a_tenant_row_says_who_it_is_and_what_it_may_use(fleet):
    (row, *_) = rows(fleet)
    (notebook,) = [one for one in row.tenants if one.namespace == "notebooks"]
    number = notebook.pod.rpartition("-")[2]
    assert (notebook.pod_uid, notebook.memory_limit_mb) == (f"uid-notebook-{number}", 24 * 1024.0)
    assert (notebook.score, notebook.status, notebook.verdict, notebook.use_class) == (7.1, "idle", "idle", "idle-held")
    assert notebook.idle_since == iso(SINCE)


def test_a_row_says_since_when_it_is_idle_how_it_is_and_when_it_was_last_seen():
    gone = fleets.gpu(0, health="lost", xids=(48, 79), last_seen=SINCE)
    idle = fleets.gpu(1, health="ok", verdict="idle", idle_since=SINCE)
    found = {row.gpu_id: row for row in rows(fleets.analysis(fleets.NOON, gone, idle))}
    lost, quiet = found[gone.gpu_id], found[idle.gpu_id]
    assert (lost.health, lost.xids, lost.last_seen, lost.idle_since) == ("lost", (48, 79), iso(SINCE), None)
    assert (quiet.health, quiet.xids, quiet.last_seen, quiet.idle_since) == ("ok", (), None, iso(SINCE))


def test_the_summary_says_how_many_tenants_there_are(fleet):
    made = rows(fleet)
    found = summary(fleet, made, stats(made, threshold=20, timestamp=None), stale=False, errors=0)
    assert (found.gpus, found.tenants, found.stats.tenants_idle) == (12, 36, 24)


def test_every_state_is_listed_also_those_that_no_gpu_is_in():
    sums = stats((), threshold=20, timestamp=None)
    assert sums.by_status == dict.fromkeys(STATUSES, 0)
    assert sums.by_verdict == sums.tenants_by_verdict == dict.fromkeys(VERDICTS, 0)
    assert sums.by_class == sums.tenants_by_class == dict.fromkeys(USE_CLASSES, 0)


@given(fleets.analyses())
def test_tenants_add_up_in_every_view(analysis):
    made = rows(analysis)
    sums = stats(made, threshold=20, timestamp=None)
    tenants = sum(len(row.tenants) for row in made)
    for counts in (sums.tenants_by_status, sums.tenants_by_verdict, sums.tenants_by_class):
        assert sum(counts.values()) == sums.tenants_total == tenants


@given(fleets.analyses())
def test_nothing_is_low_that_may_be_in_use(analysis):
    for row in low(rows(analysis), threshold=20):
        assert row.verdict == "idle" or (row.score is not None and row.score < 20 and row.status != "unknown")
    assert low(rows(analysis, stale=True), threshold=100) == []
