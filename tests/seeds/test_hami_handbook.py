"""The monitoring chapter of the HAMi handbook, executed: its metrics, alerts, health endpoints and log on the demo.

Names, labels and alerts are typed from the chapter. Its commands with kubectl are test_handbook_kubectl.py.
"""

import re
import subprocess
import sys
import urllib.request

import pytest
import yaml

from tests.console.processes import eventually
from tests.paths import REPOSITORY
from tests.seeds.alerts import ALERTS, HANDBOOK
from tests.seeds.test_hami_metrics import answered

pytestmark = pytest.mark.real
METRICS = {
    "hami_vgpu_memory_usage_bytes": ("gauge", "pod namespace device container"),
    "hami_vgpu_utilization_percent": ("gauge", "pod namespace device container"),
    "hami_gpu_memory_total_bytes": ("gauge", "node device"),
    "hami_gpu_memory_used_bytes": ("gauge", "node device"),
    "hami_scheduler_filter_duration_seconds": ("histogram", ""),
    "hami_scheduler_score_duration_seconds": ("histogram", ""),
    "hami_scheduler_bind_duration_seconds": ("histogram", ""),
    "hami_scheduler_bind_success_total": ("counter", ""),
    "hami_scheduler_bind_failure_total": ("counter", ""),
}


@pytest.mark.parametrize(("name", "kind", "labels"), [(name, *rest) for name, rest in METRICS.items()])
def test_every_metric_of_the_tables_has_its_type_and_labels(scraped, name, kind, labels):
    series = f"{name}_count" if kind == "histogram" else name
    found = answered(scraped, series)
    assert {*labels.split()} <= set.intersection(*(set(one.labels) for one in found))
    described = scraped.engine.metadata(name) + scraped.engine.metadata(
        name.removesuffix("_total")
    )  # as OpenMetrics has it
    assert {one["type"] for one in described} == {kind}


@pytest.mark.parametrize("alert", [one for one in ALERTS if one.document == HANDBOOK], ids=lambda one: one.name)
def test_every_alert_is_evaluated_and_shipped_word_for_word(scraped, alert):
    def health() -> list[str]:
        rules = [one for group in scraped.engine.rules() for one in group["rules"]]
        return [one["health"] for one in rules if one["name"] == alert.name]

    eventually(lambda: set(health()) == {"ok"})
    shipped = yaml.safe_load((REPOSITORY / "charts/vgpuscope/rules/compat/monitoring-chapter.yaml").read_text())
    (same,) = [one for group in shipped["groups"] for one in group["rules"] if one["alert"] == alert.name]
    found = (" ".join(same["expr"].split()), same["for"], same["labels"]["severity"], same["annotations"]["summary"])
    assert found == (alert.expr, alert.wait, alert.severity, alert.summary)


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_the_scheduler_answers_on_its_health_endpoints(scraped, path):
    with urllib.request.urlopen(scraped.fleet.extender + path, timeout=60) as answer:
        assert answer.status == 200


def test_the_program_of_the_image_prints_what_wget_would(scraped, capfd):
    """As `kubectl exec … -- wget -qO- http://localhost:8080/healthz` runs it in the container."""
    program = REPOSITORY / "deploy" / "image" / "wget"

    def run(*words: str) -> int:
        return subprocess.run([sys.executable, program, *words], check=False).returncode

    assert run("-qO-", f"{scraped.fleet.extender}/healthz") == 0
    with urllib.request.urlopen(f"{scraped.fleet.extender}/healthz", timeout=60) as answer:
        assert capfd.readouterr().out.encode() == answer.read()
    assert run("-q", "-O-", f"{scraped.fleet.extender}/nothing-is-here") == 8
    assert run("-qO-", "http://127.0.0.1:1/healthz") == 4
    assert run("-qO-", "file:///etc/passwd") == 2
    assert run("-O", "/tmp/x", f"{scraped.fleet.extender}/healthz") == 2
    assert capfd.readouterr().out == ""


def test_a_pod_that_does_not_fit_is_logged_with_the_standard_code_and_its_numbers(scraped):
    """severity and date, then error_code, pod, node, requested and available, on one line."""
    log = scraped.fleet.root / "extender.log"
    values = r"error_code=SCHED_INSUFFICIENT_GPU_MEMORY pod=\S+ node=\S+ requested=[0-9]+MB available=[0-9]+MB"
    line = re.compile(rf"^E[0-9]{{4}} .*\.py:[0-9]+\] Failed to schedule pod {values}", re.MULTILINE)
    eventually(lambda: line.search(log.read_text()) is not None)
