"""Doctor against real programs: Prometheus that scrapes, an API server with its RBAC, and a demo whose agent dies."""

import asyncio
import json
import urllib.request
from pathlib import Path

import pytest

from tests.console.processes import eventually
from tests.contract.doctorworld import serving
from tests.contract.promworld import prometheus
from tests.services.agent.noderoot import NodeRoot
from vgpuscope.logic.doctor.chain import judged
from vgpuscope.model.doctor import Check
from vgpuscope.services.doctor.collect import DoctorTargets, ServiceAddress, collect

PAGE = (
    'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-aaaaaaaa-0000-0000-0000-000000000001",Hostname="node-a",'
    'namespace="ml",pod="train-0",container="main"} 55\n'
)
SCRAPE = """scrape_configs:
- job_name: dcgm-exporter
  scrape_interval: 5s # also the time that a scrape may take
  honor_labels: {honor}
  static_configs: [{{targets: ['{target}'], labels: {{namespace: gpu, pod: dcgm-exporter-x7k2p, container: exporter}}}}]
"""


def checks_of(looked: DoctorTargets) -> dict[str, Check]:
    return {check.code: check for check in judged(asyncio.run(collect(looked)).facts)}


def has_series(url: str, query: str) -> bool:
    with urllib.request.urlopen(f"{url}/api/v1/query?query={query}", timeout=60) as answer:
        return bool(json.load(answer)["data"]["result"])


@pytest.mark.parametrize(("honor", "status"), [("false", "warn"), ("true", "pass")])
def test_doctor_sees_whether_a_real_scrape_honours_labels(tmp_path: Path, honor: str, status: str):
    def page(*_: object) -> tuple[int, bytes, dict[str, str]]:
        return 200, PAGE.encode(), {"content-type": "text/plain; version=0.0.4"}

    with serving(page) as exporter:
        config = SCRAPE.format(honor=honor, target=exporter.removeprefix("http://"))
        with prometheus(tmp_path, config) as url:
            eventually(lambda: has_series(url, "DCGM_FI_DEV_GPU_UTIL"))
            checks = checks_of(DoctorTargets(prometheus=ServiceAddress(url)))
    assert checks["HONOR_LABELS_OFF"].judgement.status == status
    assert checks["POD_LABELS_MISSING"].judgement.status == "pass"
    assert checks["TARGETS_DOWN"].judgement.status == "pass"


def test_an_exporter_that_dies_is_a_target_that_is_down(tmp_path: Path):
    def page(*_: object) -> tuple[int, bytes, dict[str, str]]:
        return 200, PAGE.encode(), {"content-type": "text/plain; version=0.0.4", "connection": "close"}

    with serving(page) as exporter:
        config = SCRAPE.format(honor="true", target=exporter.removeprefix("http://"))
        engine = prometheus(tmp_path, config)
        url = engine.__enter__()
        eventually(lambda: has_series(url, "DCGM_FI_DEV_GPU_UTIL"))
    try:
        eventually(lambda: has_series(url, "up==0"))
        checks = checks_of(DoctorTargets(prometheus=ServiceAddress(url)))
    finally:
        engine.__exit__(None, None, None)
    assert checks["TARGETS_DOWN"].judgement.status == "fail"
    assert "dcgm-exporter" in checks["TARGETS_DOWN"].judgement.examples[0]


def test_an_agent_that_has_ended_is_named(tmp_path: Path):
    with NodeRoot(tmp_path).write().agent() as running:
        checks = checks_of(DoctorTargets(agents=(ServiceAddress(running.url),)))
        assert checks["AGENT_DOWN"].judgement.status == "pass"
        assert checks["AGENT_SAMPLE_OLD"].judgement.status == "pass"
    checks = checks_of(DoctorTargets(agents=(ServiceAddress(running.url),)))
    assert checks["AGENT_DOWN"].judgement.status == "fail"
    assert checks["AGENT_SAMPLE_OLD"].judgement.status == "skipped"


def test_rights_that_a_service_account_lacks_are_named(empty_cluster):
    everything = {kind: ["list", "watch"] for kind in ("nodes", "pods", "events", "resourcequotas")}
    least = {"nodes": ["list"], "pods": ["list", "watch"], "resourcequotas": ["list", "watch"]}
    complete = empty_cluster.user("doctor-all", everything)
    checks = checks_of(DoctorTargets(kubernetes=True, kubeconfig=ServiceAddress(complete)))
    assert checks["RIGHTS_MISSING"].judgement.status == "pass"
    lacking = empty_cluster.user("doctor-few", least)
    checks = checks_of(DoctorTargets(kubernetes=True, kubeconfig=ServiceAddress(lacking)))
    assert checks["RIGHTS_MISSING"].judgement.status == "fail"
    assert checks["RIGHTS_MISSING"].judgement.examples == ("list events", "watch events", "watch nodes")
    stranger = empty_cluster.kubeconfig_of("doctor-stranger", "no-such-token")
    checks = checks_of(DoctorTargets(kubernetes=True, kubeconfig=ServiceAddress(stranger)))
    assert checks["RIGHTS_MISSING"].judgement.status == "fail"
