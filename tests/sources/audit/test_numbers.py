"""Numbers are found by their definition, in the base unit, and with the subject that the answer names."""

from typing import Any

from tests.logic.audit.fleets import described_answers
from vgpuscope.model.consistency import FigureReading, PublicAnswer
from vgpuscope.sources.audit.client import _cell
from vgpuscope.sources.audit.numbers import page_readings, readings_of


def read(path: str, body: Any) -> dict[tuple[str, tuple[str, ...]], float]:
    shapes = described_answers()
    answer = PublicAnswer(service="analyzer", surface=f"GET {path}", kind=shapes.kind(path), body=body)
    return keyed(readings_of(answer, shapes))


def keyed(readings: list[FigureReading]) -> dict[tuple[str, tuple[str, ...]], float]:
    return {(one.figure, one.subject): one.value for one in readings}


def page(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    return keyed(page_readings(text.encode(), surface="GET /metrics", service="analyzer"))


def test_percent_mib_and_mhz_become_base_units():
    row = {"gpu_id": "G", "mig": "", "gpu_util": 12.5, "mem_used_mb": 2.0, "sm_clock": 1400.0, "power_usage": 250.0}
    assert read("/results", [row]) == {
        ("gpu.utilization", ("G", "")): 0.125,
        ("gpu.memory_used", ("G", "")): 2.0 * 2**20,
        ("gpu.sm_clock", ("G", "")): 1.4e9,
        ("gpu.power", ("G", "")): 250.0,
    }


def test_the_parts_of_a_use_have_their_own_definitions():
    found = read("/api/v1/gpus", {"rows": [{"gpu_id": "G", "mig": "M", "use": {"mean": 0.5, "max": 0.9, "p95": None}}]})
    assert found == {("gpu.use", ("G", "M")): 0.5, ("gpu.use_max", ("G", "M")): 0.9}


def test_a_tenant_is_named_by_its_gpu_and_its_container():
    tenant = {"namespace": "ml", "pod": "p", "container": "c", "memory_used": 7}
    found = read("/api/v1/gpus", {"rows": [{"gpu_id": "G", "mig": None, "tenants": [tenant]}]})
    assert found == {("tenant.memory_used", ("G", "", "ml", "p", "c")): 7}


def test_what_was_not_measured_is_no_number():
    assert read("/api/v1/gpus", {"rows": [{"gpu_id": "G", "mig": None, "power": None, "shared": True}]}) == {}


def test_counts_by_class_have_the_class_in_their_subject():
    found = read("/api/v1/overview", {"by_class": {"busy": 3}, "tenants_by_class": {"busy": 4}})
    assert found == {("fleet.by_class", ("busy",)): 3, ("fleet.tenants_by_class", ("busy",)): 4}


def test_tenants_of_which_no_namespace_is_known_are_a_row_of_their_own():
    found = read("/api/v1/namespaces", {"rows": [{"name": "ml", "tenants": 2}, {"name": "", "tenants": 1}]})
    assert found == {("namespace.tenants", ("ml",)): 2, ("namespace.tenants", ("",)): 1}


def test_the_figures_of_the_day_before_are_not_those_of_now():
    assert read("/api/v1/overview", {"before": {"gpus": 5}, "now": {"gpus": 6}}) == {("fleet.gpus", ()): 6}


def test_a_shared_gpu_in_the_list_of_low_gpus_is_a_row_of_its_tenant():
    tenant = {"namespace": "ml", "pod": "p", "container": "c", "score": 3.0, "until": None}
    low = {"gpus": [{"gpu_id": "G", "mig": "", "shared": True, "score": 3.0, "tenants": [tenant]}]}
    assert read("/results/low", low) == {("tenant.score", ("G", "", "ml", "p", "c")): 3.0}


def test_former_tenants_and_ambiguous_names_are_left_out():
    def tenant(**more: Any) -> dict[str, Any]:
        return {"namespace": "ml", "pod": "p", "container": "c", "until": None, **more}

    gone = tenant(score=3.0, until="2026-11-18T12:00:00Z")
    twice = (tenant(score=1.0), tenant(score=2.0))
    assert read("/results", [{"gpu_id": "G", "mig": "", "tenants": [gone]}]) == {}
    assert read("/results", [{"gpu_id": "G", "mig": "", "tenants": list(twice)}]) == {}


def test_metrics_name_the_same_subjects_as_answers():
    assert page('vgpuscope_analyzer_gpu_score{gpu_id="G",mig="M",hostname="n"} 41.5\n') == {
        ("gpu.score", ("G", "M")): 41.5
    }
    assert page('gpu_namespace_count{namespace="ml"} 3\n') == {("namespace.gpus_or_instances", ("ml",)): 3}
    assert page('vgpuscope_analyzer_class_gpus{class="busy"} 2\n') == {("fleet.by_use_class", ("busy",)): 2}


def test_a_metric_of_each_namespace_is_added_up_to_that_of_the_fleet():
    lines = [f'vgpuscope_cluster_pending_pods{{namespace="{name}",code="SCHED_QUOTA"}} 1\n' for name in ("a", "b")]
    assert page("".join(lines)) == {("fleet.pending_by_reason", ("SCHED_QUOTA",)): 2}


def test_values_that_are_no_numbers_and_unknown_names_are_ignored():
    assert page("# HELP gpu_total_count x\ngpu_total_count NaN\nsomething_else 3\ngpu_total_count{ 4\n") == {}


def test_the_hours_of_a_day_and_of_a_week_are_different_numbers():
    shapes = described_answers()
    row = {"namespace": "ml", "idle_gpu_hours": 3.0, "memory_held": 7}
    body = {"group_by": "namespace", "idle_gpu_hours": 3.0, "count": 1, "rows": [row]}

    def found(**query: str) -> dict[tuple[str, tuple[str, ...]], float]:
        kind = shapes.kind("/api/v1/waste")
        waste = PublicAnswer(service="analyzer", surface="GET /api/v1/waste", kind=kind, body=body, query=query)
        return keyed(readings_of(waste, shapes))

    assert {code for code, _ in found()} >= {"fleet.idle_gpu_hours", "waste.idle_gpu_hours", "waste.memory_held"}
    assert found() == found(since="24h")
    assert found().keys() & found(since="7d").keys() == set()


def test_a_cell_of_csv_is_what_the_json_has():
    cells = {"": None, "12": 12, "0.5": 0.5, "true": True, '{"a":1}': {"a": 1}, "[]": [], "high": "high"}
    assert {text: _cell("score", text) for text in cells} == cells
    assert _cell("namespace", "007") == _cell("pod", "007") == "007"
    assert _cell("namespace", "12") == "12"
