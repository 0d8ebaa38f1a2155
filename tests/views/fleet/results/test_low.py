"""The list of low GPUs and tenants, and the counts beside it: each count has the rows that it speaks of.

The truth is counted here, by hand, from the values that were drawn.
"""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tests.store import fleets
from vgpuscope.model.analysis import STATUSES, VERDICTS, Score
from vgpuscope.views.fleet.results.results import ResultRow, low, rows, stats, units
from vgpuscope.views.fleet.results.table import LowCounts, looked_at, results_table
from vgpuscope.views.fleet.selection import as_csv

THRESHOLDS = st.sampled_from((0, 5, 20, 50, 100))
scores = st.none() | st.sampled_from((0.0, 4.96, 5.0, 19.94, 19.96, 20.0, 49.9, 77.0, 100.0))


@st.composite
def tenants(draw, number: int):
    return fleets.tenant(
        f"pod-{number}",
        namespace=draw(st.sampled_from(("a", "b"))),
        own=draw(st.booleans()),
        score=Score(value=draw(scores)),
        status=draw(st.sampled_from(STATUSES)),
        verdict=draw(st.sampled_from(VERDICTS)),
    )


@st.composite
def analyses(draw):
    """GPUs with and without MIG instances, of one, several or no tenants, each with any numbers."""
    made = []
    for number in range(draw(st.integers(0, 4))):
        for mig in draw(st.sampled_from((("",), ("MIG-a",), ("MIG-a", "MIG-b", "MIG-c")))):
            holders = [draw(tenants(at)) for at in range(draw(st.integers(0, 3)))]
            made.append(
                fleets.gpu(
                    number,
                    mig=mig,
                    score=Score(value=draw(scores)),
                    status=draw(st.sampled_from(STATUSES)),
                    verdict=draw(st.sampled_from(VERDICTS)),
                    tenants=tuple(holders),
                )
            )
    return fleets.analysis(fleets.NOON, *made)


def is_low(one, threshold: float) -> bool:
    known = one.score is not None and one.status != "unknown"
    return one.verdict == "idle" or (known and one.score < threshold)


@given(analyses(), THRESHOLDS)
def test_rows_of_gpus_are_all_low_gpus_and_the_counts_of_gpus_are_theirs(analysis, threshold):
    made = rows(analysis)
    sums = stats(made, threshold=threshold, timestamp=None)
    wanted = {(row.gpu_id, row.mig) for row in made if is_low(row, threshold)}
    for kind in (None, "gpu"):
        found = [row for row in low(made, threshold=threshold, kind=kind) if row.kind == "gpu"]
        assert len(found) == len(wanted) == sums.gpus_low
        assert {(row.gpu_id, row.mig) for row in found} == wanted
        scored = [row for row in found if row.score is not None and row.status != "unknown"]
        assert sum(row.score < threshold for row in scored) == sums.low_utilization_count
    assert sums.low_utilization_count <= sums.gpus_low <= sums.total_gpus


@given(analyses(), THRESHOLDS)
def test_rows_of_tenants_are_all_low_tenants_and_the_counts_of_tenants_are_theirs(analysis, threshold):
    made = rows(analysis)
    sums = stats(made, threshold=threshold, timestamp=None)
    found = low(made, threshold=threshold, kind="tenant")
    assert {row.kind for row in found} <= {"tenant"}
    drawn = [one for row in made for one in row.tenants]
    assert len(found) == sum(is_low(one, threshold) for one in drawn) == sums.tenants_low
    assert sums.tenants_idle <= sums.tenants_low <= sums.tenants_total == len(drawn)
    for row in found:
        (tenant,) = row.tenants
        assert (row.pod, row.namespace, row.score, row.verdict) == (
            tenant.pod,
            tenant.namespace,
            tenant.score,
            tenant.verdict,
        )


@given(analyses(), THRESHOLDS)
def test_namespaces_add_up_to_the_fleet(analysis, threshold):
    sums = stats(rows(analysis), threshold=threshold, timestamp=None)
    spaces = list(sums.by_namespace.values())
    assert sum(one.tenants_low for one in spaces) == sums.tenants_low
    assert sum(one.tenants for one in spaces) == sums.tenants_total
    for one in spaces:
        assert one.tenants_idle <= one.tenants_low <= one.tenants
        assert one.low_util_count <= one.count <= sums.total_gpus


@given(analyses(), THRESHOLDS)
def test_every_low_tenant_is_in_a_row_of_its_own_or_in_that_of_the_gpu_that_it_has_alone(analysis, threshold):
    made = rows(analysis)
    found = low(made, threshold=threshold)
    own = [(row.gpu_id, row.mig, row.pod) for row in found if row.kind == "tenant"]
    alone = [(row.gpu_id, row.mig, row.tenants[0].pod) for row in found if row.kind == "gpu" and len(row.tenants) == 1]
    named = own + alone
    assert len(named) == len(set(named))
    for row in made:
        for one in row.tenants:
            if is_low(one, threshold):
                assert (row.gpu_id, row.mig, one.pod) in named


@given(analyses(), THRESHOLDS, st.sampled_from((None, "gpu", "tenant")))
def test_the_line_below_the_table_has_the_counts_of_its_rows(analysis, threshold, kind):
    made = rows(analysis)
    sums, found = stats(made, threshold=threshold, timestamp=None), low(made, threshold=threshold, kind=kind)
    of_gpus = sum(row.kind == "gpu" for row in found)
    counts = LowCounts(
        count=len(found),
        threshold=threshold,
        total_gpus=sums.total_gpus,
        unknown_count=sums.unknown_count,
        tenants_total=sums.tenants_total,
        tenants_unknown=sums.tenants_unknown,
        mig_instances=sums.mig_instances,
        gpu_rows=of_gpus,
        tenant_rows=len(found) - of_gpus,
    )
    first, *_ = looked_at(counts, kind=kind).split(". ")
    numbers = [int(word) for word in first.replace(":", " ").replace(",", " ").split() if word.isdigit()]
    if not found:
        assert first.startswith("No ")
    elif of_gpus and len(found) > of_gpus:
        assert numbers == [len(found), threshold, of_gpus, len(found) - of_gpus]
    else:
        assert numbers == [len(found), threshold]
    assert len(as_csv(found, ResultRow.__struct_fields__).splitlines()) == 1 + len(found)
    assert results_table(found, 200).renderables  # any list can be drawn


@given(analyses())
def test_the_lines_below_all_results_count_physical_gpus_and_instances_apart(analysis):
    made = rows(analysis)
    if not made:
        return
    text = [str(part) for part in results_table(made, 200).renderables[2:]]
    gpus, instances = {row.gpu_id for row in made}, [row for row in made if row.mig]
    assert text[0].split()[0] == str(len(gpus))
    if instances:
        assert f"cut by MIG into {len(instances)} instance" in text[0]
        assert text[1].startswith(f"{len(made)} GPU")
    words = next(line for line in text if "in use," in line)
    assert words.split(": ")[1].startswith(f"{sum(row.verdict == 'in_use' for row in made)} in use")


def test_a_shared_gpu_that_is_low_is_a_row_beside_its_tenants():
    idle = {"verdict": "idle", "status": "idle", "use_class": "idle"}
    both = [fleets.tenant(name, own=True, score=Score(value=float(at)), **idle) for at, name in enumerate("ab")]
    gpu = fleets.gpu(0, score=Score(value=3.0), tenants=tuple(both), **idle)
    found = low(rows(fleets.analysis(fleets.NOON, gpu)), threshold=20)
    assert [(row.kind, row.pod, row.score) for row in found] == [
        ("tenant", "a", 0.0),
        ("tenant", "b", 1.0),
        ("gpu", "", 3.0),
    ]
    text = "\n".join(str(part) for part in results_table(found, None).renderables[2:])
    assert text.startswith("1 GPU on 1 node") or "GPU" in text


def test_a_tenant_that_is_idle_on_a_gpu_that_is_not_low_is_listed_though_it_has_it_alone():
    lone = fleets.tenant("a", own=True, verdict="idle", status="idle", score=Score(value=2.0))
    gpu = fleets.gpu(0, score=Score(value=50.0), status="normal", verdict="unknown", tenants=(lone,))
    made = rows(fleets.analysis(fleets.NOON, gpu))
    assert [(row.kind, row.pod, row.score) for row in low(made, threshold=20)] == [("tenant", "a", 2.0)]
    assert stats(made, threshold=20, timestamp=None).tenants_low == 1
    assert list(itertools.chain.from_iterable(units(row) for row in made)) == list(made)
