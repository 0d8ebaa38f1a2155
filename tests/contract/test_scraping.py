"""The scrape configurations of docs/scraping.md, run by a real Prometheus over pods as Kubernetes shows them.

Debian's Prometheus has no Kubernetes discovery, so its targets are given as static ones with the same labels:
https://prometheus.io/docs/prometheus/latest/configuration/configuration/#kubernetes_sd_config
"""

import json
import re
import urllib.request
from typing import Any

import pytest
import yaml

from tests.contract.promworld import prometheus
from tests.controlplane import until
from tests.paths import REPOSITORY

pytestmark = pytest.mark.real

SCRAPING = (REPOSITORY / "docs" / "scraping.md").read_text()
BLOCKS = [
    text for text in re.findall(r"^```yaml\n(.*?)^```$", SCRAPING, re.M | re.S) if "kubernetes_sd_configs" in text
]


def label(name: str) -> str:
    """A label of an object, as the discovery writes it."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)


def pod(ip: str, node: str, labels: dict[str, str], *ports: int) -> list[dict[str, str]]:
    """The targets of one pod: one for each declared port."""
    own = {f"__meta_kubernetes_pod_label_{label(name)}": value for name, value in labels.items()}
    common = {"__meta_kubernetes_pod_ip": ip, "__meta_kubernetes_pod_node_name": node, **own}
    return [
        {"__address__": f"{ip}:{port}", "__meta_kubernetes_pod_container_port_number": str(port), **common}
        for port in ports
    ]


def endpoint(ip: str, labels: dict[str, str], port: int, name: str) -> dict[str, str]:
    own = {f"__meta_kubernetes_service_label_{label(key)}": value for key, value in labels.items()}
    return {"__address__": f"{ip}:{port}", "__meta_kubernetes_endpoint_port_name": name, **own}


def deployed(file: str) -> dict[str, str]:
    """The labels of the pods that a manifest makes."""
    documents = yaml.safe_load_all((REPOSITORY / "deploy" / file).read_text())
    found = next(one for one in documents if one and one["kind"] in {"DaemonSet", "Deployment"})
    labels: dict[str, str] = found["spec"]["template"]["metadata"]["labels"]
    return labels


# HAMi's pods, by its chart v2.10: labels, declared ports.
HAMI = {"app.kubernetes.io/name": "hami", "app.kubernetes.io/instance": "hami"}
SCHEDULER = {**HAMI, "app.kubernetes.io/component": "hami-scheduler"}
PLUGIN = {**HAMI, "app.kubernetes.io/component": "hami-device-plugin"}

PODS = [
    *pod("10.0.0.1", "gpu-1", deployed("agent.yaml"), 9394),
    *pod("10.0.0.2", "gpu-2", deployed("agent.yaml"), 9394),
    *pod("10.0.0.3", "cpu-1", deployed("cluster.yaml"), 31993),
    *pod("10.0.0.4", "cpu-1", deployed("analyzer.yaml"), 8080),
    *pod("10.0.1.1", "cpu-1", {**SCHEDULER, "hami.io/scheduler-role": "leader"}, 443),
    *pod("10.0.1.2", "cpu-2", SCHEDULER, 443),
    *pod("10.0.1.3", "gpu-1", PLUGIN, 9394),
    *pod("10.0.1.4", "cpu-1", {"app": "web"}, 80),
]
ENDPOINTS = [
    endpoint("10.0.0.4", deployed("analyzer.yaml"), 8080, "http"),
    endpoint("10.0.1.4", {"app": "web"}, 80, "http"),
]


def scraped(config: dict[str, Any], tmp_path: Any) -> dict[str, list[str]]:
    """The addresses that Prometheus scrapes, by job."""
    for job in config["scrape_configs"]:
        [discovery] = job.pop("kubernetes_sd_configs")
        found = {"pod": PODS, "endpoints": ENDPOINTS}[discovery.pop("role")]
        assert discovery == {}
        job["static_configs"] = [
            {"targets": [one["__address__"]], "labels": {k: v for k, v in one.items() if k != "__address__"}}
            for one in found
        ]
    jobs: dict[str, list[str]] = {job["job_name"]: [] for job in config["scrape_configs"]}
    with prometheus(tmp_path, yaml.safe_dump(config)) as url:
        # each job has some; those of one job come together, but a job may come seconds after another
        until(lambda: {one["scrapePool"] for one in targets(url)["activeTargets"]} == set(jobs))
        active = targets(url)["activeTargets"]
    for one in active:
        jobs[one["scrapePool"]].append(one["scrapeUrl"].removeprefix("http://").removesuffix("/metrics"))
    return {job: sorted(urls) for job, urls in jobs.items()}


def targets(url: str) -> dict[str, list[Any]]:
    with urllib.request.urlopen(f"{url}/api/v1/targets") as answer:
        found: dict[str, list[Any]] = json.load(answer)["data"]
    return found


EXPECTED = [
    {
        "vgpuscope-agent": ["10.0.0.1:9394", "10.0.0.2:9394"],
        "vgpuscope-cluster": ["10.0.0.3:31993"],
        "vgpuscope-analyzer": ["10.0.0.4:8080"],
    },
    {"hami-scheduler": ["10.0.1.1:9395"], "hami-vgpu-monitor": ["10.0.1.3:9394"]},
    {"hami-scheduler": ["10.0.0.3:31993"], "hami-vgpu-monitor": ["10.0.0.1:9394", "10.0.0.2:9394"]},
]


@pytest.mark.parametrize(
    ("text", "expected"), list(zip(BLOCKS, EXPECTED, strict=True)), ids=["ours", "hami", "handbook"]
)
def test_a_scrape_configuration_finds_the_right_pods_and_ports(text, expected, tmp_path):
    assert scraped(yaml.safe_load(text), tmp_path) == expected
