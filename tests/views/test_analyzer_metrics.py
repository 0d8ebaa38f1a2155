"""An analysis as samples, and the page of a large fleet."""

import gzip
import time

from hypothesis import given
from prometheus_client.parser import text_string_to_metric_families

from tests.sinks import fleets
from vgpuscope.catalog import analyzer as catalog
from vgpuscope.catalog.series import ANALYZER_SCOPES, series_per
from vgpuscope.model.analysis import Score
from vgpuscope.model.histogram import Histogram
from vgpuscope.views.analyzer_metrics import (
    CARD_METRICS,
    FLEET_METRICS,
    AnalyzerPage,
    CardsPage,
    Health,
    cards_page,
    fleet_samples,
    gpu_samples,
)
from vgpuscope.views.build import Build
from vgpuscope.views.results import rows, stats
from vgpuscope.views.sharded import ShardedPage

BUILD = Build(version="1", revision="r", build_date="d", python_version="3", compiler="c", platform="p")


def health(**more) -> Health:
    fields = {"analyses": 3, "errors": 1, "seconds": Histogram.empty((1.0,)).with_one(0.5), "dropped": 2}
    fields |= {"last_success": 1.79e9, "leader": True, "unsaved": 0, "threshold": 20.0, "interval": 300.0}
    return Health(**(fields | {"error_counts": {"QUERY_FAILED": 4}} | more))


def read(page: bytes) -> dict:
    families = text_string_to_metric_families(page.decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples}


@given(fleets.analyses())
def test_any_fleet_is_a_page_that_reads_back(analysis):
    page = cards_page(analysis.gpus)
    expected = [s for gpu in analysis.gpus for s in gpu_samples(gpu) if s.value is not None]
    found = read(page.text())
    assert {name for name, _ in found} == {sample.metric.name for sample in expected}
    assert gzip.decompress(page.gzipped() or gzip.compress(b"")) == page.text()


def test_a_fleet_too_large_to_keep_as_text_is_unpacked_when_asked_for():
    gpus = fleets.fleet(fleets.NOON, 600).gpus
    small, large = cards_page(gpus), cards_page(gpus, plain_most=100_000)
    assert large._plain is None
    assert large.text() == small.text()
    assert large.gzipped() == small.gzipped()


def test_a_name_stands_once_however_many_cards_there_are():
    text = cards_page(fleets.fleet(fleets.NOON, 600).gpus).text()
    for metric in CARD_METRICS:
        assert text.count(f"# TYPE {metric.name} gauge\n".encode()) == 1


def test_a_card_of_no_model_is_of_an_unknown_one_as_gpu_oour_says():
    gpu = fleets.gpu(0, model="", score=Score(value=1.0))
    assert b'model="unknown"' in cards_page([gpu]).text()


def test_a_shared_card_has_no_pod_and_the_namespace_they_have_in_common():
    both = (fleets.tenant("a"), fleets.tenant("b"))
    (line,) = [
        line
        for line in cards_page([fleets.gpu(0, tenants=both, score=Score(value=1.0))]).text().decode().splitlines()
        if line.startswith("gpu_utilization_score{")
    ]
    assert 'namespace="ml"' in line
    assert "pod=" not in line


def test_one_of_the_verdicts_is_one_and_the_others_are_nothing():
    found = read(cards_page([fleets.gpu(0, verdict="idle")]).text())
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
    return AnalyzerPage(CardsPage(), page).text()


def test_a_card_has_as_many_series_as_the_table_says():
    gpu = fleets.fleet(fleets.NOON, 1).gpus[0]
    shown = len(read(cards_page([gpu]).text()))
    assert shown == sum(series_per(scope, catalog.METRICS, catalog.FAMILIES) for scope in ("card", "subject", "tenant"))
    assert {metric.scope for metric in catalog.METRICS} == ANALYZER_SCOPES.keys()


def test_the_time_a_page_takes_grows_with_the_fleet_and_no_faster():
    def took(cards: int) -> float:
        gpus = fleets.fleet(fleets.NOON, cards).gpus
        best = float("inf")
        for _ in range(3):
            began = time.process_time()
            cards_page(gpus)
            best = min(best, time.process_time() - began)
        return best

    assert took(4000) < 8 * took(1000) + 0.05
