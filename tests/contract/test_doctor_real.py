"""Doctor against real programs: Prometheus that scrapes, an API server with its RBAC, and a demo whose agent dies."""

import asyncio
import json
import urllib.request
from pathlib import Path

import pytest

from tests.console.processes import eventually
from tests.contract.doctorworld import serving
from tests.contract.promworld import prometheus
from tests.controlplane import pod
from tests.services.agent.noderoot import NodeRoot
from vgpuscope.logic.doctor.chain import judged
from vgpuscope.model.doctor import Check, CheckOutcome
from vgpuscope.services.doctor.asked import ServiceAddress
from vgpuscope.services.doctor.collect import DoctorTargets, collect
from vgpuscope.sources.doctor.kube import find_beside, find_services

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


NEEDED = {kind: ["list", "watch"] for kind in ("nodes", "pods", "events", "resourcequotas")}
MAY_REVIEW = {
    "subjectaccessreviews.authorization.k8s.io": ["create"],
    "nodes": ["list"],
    "pods": ["list"],
    "endpointslices.discovery.k8s.io": ["list"],
}


def exporter_of(account: str) -> dict:
    """A pod of the chart's cluster exporter, under this account."""
    found = pod("vgpuscope-cluster-0", namespace="default", serviceAccountName=account)
    found["metadata"]["labels"] = {"app.kubernetes.io/name": "vgpuscope", "app.kubernetes.io/component": "cluster"}
    return found


def rights_seen_by(kubeconfig: str) -> CheckOutcome:
    checks = checks_of(DoctorTargets(kubernetes=True, kubeconfig=ServiceAddress(kubeconfig)))
    return checks["RIGHTS_MISSING"].judgement


def test_permissions_are_those_of_the_accounts_of_our_services_not_of_the_caller(empty_cluster):
    empty_cluster.user("exporter-all", NEEDED)
    empty_cluster.create(exporter_of("exporter-all"))
    reviewer = empty_cluster.user("doctor-reviewer", MAY_REVIEW)  # may neither watch nor list quotas
    found = rights_seen_by(reviewer)
    assert (found.status, found.numbers["reviewed"]) == ("pass", 8)
    analyzers = empty_cluster.user("doctor-analyzer", {"endpointslices.discovery.k8s.io": ["list"]})
    found = rights_seen_by(analyzers)  # as in the analyzer's pod: nothing is missing, and it may not know
    assert (found.status, found.missing.reason) == ("skipped", "not-allowed")


def test_permissions_that_a_service_lacks_are_named_with_its_account(empty_cluster):
    empty_cluster.user(
        "exporter-few", {"nodes": ["list"], "pods": ["list", "watch"], "resourcequotas": ["list", "watch"]}
    )
    empty_cluster.create(exporter_of("exporter-few"))
    found = rights_seen_by(empty_cluster.user("doctor-reviewer", MAY_REVIEW))
    lacks = ("list events", "watch events", "watch nodes")
    assert found.status == "fail"
    assert found.examples == tuple(f"default/exporter-few: {one}" for one in lacks)


def test_an_exporter_of_some_namespaces_lacks_nothing(empty_cluster):
    empty_cluster.user("exporter-some", {"nodes": ["list", "watch"]})  # and Roles in its namespaces
    empty_cluster.create(exporter_of("exporter-some"))
    assert rights_seen_by(empty_cluster.user("doctor-reviewer", MAY_REVIEW)).status == "pass"


def test_credentials_that_the_api_server_rejects_are_named(empty_cluster):
    stranger = empty_cluster.kubeconfig_of("doctor-stranger", "no-such-token")
    checks = checks_of(DoctorTargets(kubernetes=True, kubeconfig=ServiceAddress(stranger)))
    assert checks["CREDENTIALS_REFUSED"].judgement.status == "fail"
    assert checks["RIGHTS_MISSING"].judgement.status == "skipped"


def test_the_services_of_the_chart_are_found_as_far_as_the_caller_may_list_them(
    empty_cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    own = tmp_path / "namespace"
    monkeypatch.setattr("vgpuscope.sources.doctor.kube._NAMESPACE_FILE", str(own))
    labels = {"app.kubernetes.io/name": "vgpuscope", "app.kubernetes.io/component": "agent"}
    empty_cluster.call(
        "POST",
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "vgpuscope-nodes-x", "labels": labels},
            "addressType": "IPv4",
            "ports": [{"name": "metrics", "port": 9394}],
            "endpoints": [
                {"addresses": ["10.244.0.7"], "nodeName": "node-a", "conditions": {"ready": True}},
                {"addresses": ["10.244.1.7"], "nodeName": "node-b", "conditions": {"ready": False}},
            ],
        },
    )
    try:
        reviewer = empty_cluster.user("doctor-reviewer", MAY_REVIEW)
        found = asyncio.run(find_services(reviewer, within=30))
        assert {(one.component, one.url, one.node) for one in found} == {
            ("agent", "http://10.244.0.7:9394", "node-a"),
            ("agent", "http://10.244.1.7:9394", "node-b"),
        }
        assert asyncio.run(find_beside(reviewer, within=30)) == ()  # outside of a pod
        for namespace, endpoints in (("default", 2), ("kube-system", 0)):
            own.write_text(namespace)
            assert len(asyncio.run(find_beside(reviewer, within=30))) == endpoints
        nobody = empty_cluster.user("doctor-nobody", {})
        assert asyncio.run(find_services(nobody, within=30)) == ()
    finally:
        path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/vgpuscope-nodes-x"
        empty_cluster.call("DELETE", path)
