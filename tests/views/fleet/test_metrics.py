"""An analysis as samples, and the page of a large fleet."""

import gzip
import time
from typing import Any

from hypothesis import given
from prometheus_client.parser import text_string_to_metric_families

from tests.store import fleets
from tools.writers.series import ANALYZER_SCOPES, series_per
from vgpuscope.catalog import analyzer as catalog
from vgpuscope.catalog.metric import Scope
from vgpuscope.model.analysis import Score, Stat
from vgpuscope.model.histogram import Histogram
from vgpuscope.views.build import Build
from vgpuscope.views.exposition.sharded import ShardedPage
from vgpuscope.views.fleet.metrics import (
    FLEET_METRICS,
    GPU_METRICS,
    AnalyzerHealth,
    AnalyzerPage,
    GpusPage,
    fleet_samples,
    gpu_samples,
    gpus_page,
)
from vgpuscope.views.fleet.results.results import rows, stats

BUILD = Build(version="1", revision="r", build_date="d", python_version="3", compiler="c", platform="p")


def health(**more) -> AnalyzerHealth:
    fields: dict[str, Any] = {
        "analyses": 3,
        "errors": 1,
        "seconds": Histogram.empty((1.0,)).with_one(0.5),
        "dropped": 2,
    }
    fields |= {"last_success": 1.79e9, "leader": True, "unsaved": 0, "threshold": 20.0, "interval": 300.0}
    return AnalyzerHealth(**(fields | {"error_counts": {"QUERY_FAILED": 4}} | more))


def read(page: bytes) -> dict:
    families = text_string_to_metric_families(page.decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples}


@given(fleets.analyses())
def test_any_fleet_is_a_page_that_reads_back(analysis):
    page = gpus_page(analysis.gpus)
    expected = [s for gpu in analysis.gpus for s in gpu_samples(gpu) if s.value is not None]
    found = read(page.text())
    assert {name for name, _ in found} == {sample.metric.name for sample in expected}
    assert gzip.decompress(page.gzipped() or gzip.compress(b"")) == page.text()


def test_a_fleet_too_large_to_keep_as_text_is_unpacked_when_asked_for():
    gpus = fleets.fleet(fleets.NOON, 600).gpus
    small, large = gpus_page(gpus), gpus_page(gpus, plain_most=100_000)
    assert large._plain is None
    assert large.text() == small.text()
    assert large.gzipped() == small.gzipped()


def test_a_name_stands_once_however_many_gpus_there_are():
    text = gpus_page(fleets.fleet(fleets.NOON, 600).gpus).text()
    for metric in GPU_METRICS:
        assert text.count(f"# TYPE {metric.name} gauge\n".encode()) == 1


def test_a_gpu_of_no_model_is_of_an_unknown_one_as_gpu_oour_says():
    gpu = fleets.gpu(0, model="", score=Score(value=1.0))
    assert b'model="unknown"' in gpus_page([gpu]).text()


def test_one_of_the_verdicts_is_one_and_the_others_are_nothing():
    found = read(gpus_page([fleets.gpu(0, verdict="idle")]).text())
    said = {dict(labels)["verdict"]: value for (name, labels), value in found.items() if name.endswith("er_verdict")}
    assert said == {"in_use": 0, "idle": 1, "unknown": 0}


def test_the_fleet_part_has_only_what_is_known():
    before = read(_fleet(None))
    assert ("gpu_total_count", ()) not in before
    assert before["gpu_analysis_total", ()] == 3
    assert before["vgpuscope_analyzer_errors_total", (("code", "QUERY_FAILED"),)] == 4
    unscored = read(_fleet(fleets.analysis(fleets.NOON, fleets.gpu(0))))
    assert ("gpu_average_score", ()) not in unscored
    assert unscored["gpu_total_count", ()] == 1
    assert unscored["gpu_status_count", (("status", "unknown"),)] == 1


def _fleet(analysis) -> bytes:
    page = ShardedPage(FLEET_METRICS, catalog.FAMILIES)
    made = rows(analysis) if analysis else ()
    sums = stats(made, threshold=20, timestamp=None)
    page.update("fleet", fleet_samples(build=BUILD, analysis=analysis, stats=sums, health=health()))
    return AnalyzerPage(GpusPage(), page).text()


def test_a_gpu_has_as_many_series_as_the_table_says():
    gpu = fleets.fleet(fleets.NOON, 1).gpus[0]
    shown = len(read(gpus_page([gpu], end=fleets.NOON).text()))
    scopes: tuple[Scope, ...] = ("gpu-of-pod", "subject", "tenant", "gpupod")
    assert shown == sum(series_per(scope, catalog.METRICS, catalog.FAMILIES) for scope in scopes)
    assert {metric.scope for metric in catalog.METRICS} == ANALYZER_SCOPES.keys()


def test_the_time_a_page_takes_grows_with_the_fleet_and_no_faster():
    def took(all_gpus: int) -> float:
        gpus = fleets.fleet(fleets.NOON, all_gpus).gpus
        best = float("inf")
        for _ in range(3):
            began = time.process_time()
            gpus_page(gpus)
            best = min(best, time.process_time() - began)
        return best

    assert took(4000) < 8 * took(1000) + 0.05


# ── tenants of shared GPUs ───────────────────────────────────────────────────────────────────────────────────────


def series(page: GpusPage, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    return {labels: value for (found, labels), value in read(page.text()).items() if found == name}


def summed(page: GpusPage, name: str, by: str) -> dict[str, float]:
    """sum(name) by (by)"""
    sums: dict[str, float] = {}
    for labels, value in series(page, name).items():
        key = dict(labels).get(by, "")
        sums[key] = sums.get(key, 0) + value
    return sums


def part(pod: str, namespace: str, util: float, memory: float, score: float, **more):
    terms = {"process_sm": Stat(mean=util), "mem_used": Stat(mean=memory * fleets.GIB)}
    fields: dict[str, Any] = {
        "own": True,
        "terms": terms,
        "score": Score(value=score),
        "status": "normal",
        "owner": f"Job/{pod}",
    }
    return fleets.tenant(pod, namespace=namespace, **(fields | more))


def shared(*tenants):
    terms = {"gpu_util": Stat(mean=0.9), "mem_used": Stat(mean=46.0 * fleets.GIB), "mem_copy": Stat(mean=0.3)}
    terms |= {"mem_total": Stat(mean=80.0 * fleets.GIB), "power": Stat(mean=250.0), "sm_clock": Stat(mean=1.41e9)}
    return fleets.gpu(0, tenants=tenants, score=Score(value=63.3), status="normal", terms=terms)


IDLE = {"status": "idle", "verdict": "idle", "use_class": "idle-held", "idle_since": fleets.NOON - 5400}


def test_sums_by_namespace_over_a_shared_gpu_are_those_of_its_tenants():
    page = gpus_page([shared(part("w", "train", 0.7, 26, 55.0), part("n", "nb", 0, 20, 7.1, **IDLE))])
    assert summed(page, "gpu_utilization_score", "namespace") == {"train": 55.0, "nb": 7.1}
    assert summed(page, "gpu_core_utilization", "namespace") == {"train": 70.0, "nb": 0.0}
    assert summed(page, "gpu_memory_used_mb", "namespace") == {"train": 26 * 1024, "nb": 20 * 1024}
    assert summed(page, "gpu_memory_usage_percent", "pod") == {"w": 32.5, "n": 25.0}
    (labels,) = [dict(found) for found in series(page, "gpu_utilization_score") if dict(found)["pod"] == "n"]
    assert labels["status"] == "idle"


def test_figures_of_the_whole_gpu_are_not_any_tenants():
    page = gpus_page([shared(part("w", "train", 0.7, 26, 55.0), part("n", "nb", 0, 20, 7.1, **IDLE))])
    for name in ("gpu_power_usage_watts", "gpu_sm_clock_mhz", "gpu_memory_copy_utilization", "gpu_memory_total_mb"):
        assert series(page, name) == {}
    ours = {name: [*series(page, f"vgpuscope_analyzer_gpu_{name}").values()] for name in GPU_FIGURES}
    assert ours == {name: [value] for name, value in GPU_FIGURES.items()}


GPU_FIGURES = {
    "score": 63.3,
    "utilization_ratio": 0.9,
    "memory_used_bytes": 46 * fleets.GIB,
    "memory_total_bytes": 80 * fleets.GIB,
    "memory_traffic_ratio": 0.3,
    "power_watts": 250.0,
    "sm_clock_hertz": 1.41e9,
}


def test_the_memory_of_a_tenant_is_its_limit():
    page = gpus_page(
        [shared(part("w", "train", 0.7, 26, 55.0), part("n", "nb", 0, 20, 7.1, memory_limit=24 * fleets.GIB))]
    )
    assert summed(page, "gpu_memory_total_mb", "pod") == {"n": 24 * 1024}


def test_containers_of_one_pod_on_a_shared_gpu_are_one_series():
    page = gpus_page(
        [
            shared(
                part("w", "train", 0.7, 26, 55.0, container="main", status="normal"),
                part("w", "train", 0.5, 4, 50.0, container="side", status="low"),
                part("n", "nb", 0, 20, 7.1, **IDLE),
            )
        ]
    )
    assert summed(page, "gpu_memory_used_mb", "pod") == {"w": 30 * 1024, "n": 20 * 1024}
    assert summed(page, "gpu_core_utilization", "pod") == {"w": 100.0, "n": 0.0}
    assert summed(page, "gpu_utilization_score", "pod") == {"w": 100.0, "n": 7.1}
    assert len(series(page, "gpu_utilization_score")) == 2


def test_a_gpu_that_one_pod_has_keeps_the_gpus_numbers_under_that_pod():
    page = gpus_page([shared(part("w", "a", 0.7, 26, 55.0, container="x"), part("w", "a", 0.1, 1, 5.0, container="y"))])
    assert summed(page, "gpu_utilization_score", "pod") == {"w": 63.3}
    assert summed(page, "gpu_power_usage_watts", "namespace") == {"a": 250.0}


def test_tenants_without_numbers_have_no_series_of_numbers():
    page = gpus_page([shared(fleets.tenant("a"), fleets.tenant("b", namespace="other"))])
    assert series(page, "gpu_utilization_score") == {}
    assert summed(page, "vgpuscope_analyzer_tenant_class_info", "pod") == {"a": 1, "b": 1}


def test_a_tenants_class_and_idle_time_name_pod_namespace_and_owner():
    page = gpus_page(
        [
            shared(
                part("w", "train", 0.7, 26, 55.0, verdict="in_use", use_class="busy"),
                part("n", "nb", 0, 20, 7.1, **IDLE),
            )
        ],
        end=fleets.NOON,
    )
    classes = {(dict(k)["pod"], dict(k)["class"]) for k in series(page, "vgpuscope_analyzer_tenant_class_info")}
    assert classes == {("w", "busy"), ("n", "idle-held")}
    assert summed(page, "vgpuscope_analyzer_tenant_idle_seconds", "pod") == {"w": 0, "n": 5400}
    ((labels, _),) = [(dict(k), v) for k, v in series(page, "vgpuscope_analyzer_tenant_idle_seconds").items() if v]
    assert (labels["namespace"], labels["owner"], labels["hostname"]) == ("nb", "Job/n", "node-0")


def test_a_pod_is_idle_only_since_all_of_its_containers_are():
    both = (
        part("n", "nb", 0, 20, 7.1, container="a", **IDLE),
        part("n", "nb", 0, 0, 0.0, container="b", **(IDLE | {"idle_since": fleets.NOON - 60, "use_class": "idle"})),
    )
    page = gpus_page([shared(*both)], end=fleets.NOON)
    assert summed(page, "vgpuscope_analyzer_tenant_idle_seconds", "pod") == {"n": 60}
    (labels,) = series(page, "vgpuscope_analyzer_tenant_class_info")
    assert dict(labels)["class"] == "idle-held"
    worked = part("n", "nb", 0.5, 1, 40.0, container="b", verdict="in_use", use_class="busy")
    page = gpus_page([shared(both[0], worked)], end=fleets.NOON)
    assert summed(page, "vgpuscope_analyzer_tenant_idle_seconds", "pod") == {"n": 0}


def test_an_unknown_tenant_has_no_idle_time():
    page = gpus_page([shared(part("n", "nb", 0, 20, 7.1, verdict="unknown", idle_since=1.0))], end=fleets.NOON)
    assert series(page, "vgpuscope_analyzer_tenant_idle_seconds") == {}


@given(fleets.analyses())
def test_no_page_has_the_same_series_twice(analysis):
    page = gpus_page((*analysis.gpus, *analysis.gpus), end=analysis.window.end).text().decode()
    found = [line.rpartition(" ")[0] for line in page.split("\n") if line and not line.startswith("#")]
    assert sorted(found) == sorted(set(found))


@given(fleets.analyses())
def test_tenants_by_class_are_as_many_as_their_series(analysis):
    sums = stats(rows(analysis), threshold=20, timestamp=None)
    counts = {
        dict(labels)["class"]: v for (n, labels), v in read(_fleet(analysis)).items() if n.endswith("class_tenants")
    }
    assert {name: int(value) for name, value in counts.items()} == sums.tenants_by_class
