"""The demo's services, scraped by a real Prometheus as an operator sets it up, each twice like two replicas."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.console.processes import Demo, demo
from tests.contract.promworld import prometheus
from tests.dashboards.engine import SCRAPE, Engine
from tests.dashboards.plugins import plugins

OURS = "gpu-monitoring"  # the namespace of our own pods


def scrape_config(fleet: Demo, plugin_urls: tuple[str, ...]) -> str:
    """honor_labels, and the labels that prometheus-operator puts on every target."""
    jobs = {"agent": fleet.agents, "cluster": (fleet.cluster,), "analyzer": (fleet.analyzer,)}
    jobs |= {"extender": (fleet.extender,), "plugin": plugin_urls}
    return yaml.safe_dump(
        {
            "global": {"scrape_interval": f"{SCRAPE}s", "scrape_timeout": f"{SCRAPE}s"},
            "scrape_configs": [
                {"job_name": job, "honor_labels": True, "static_configs": [*_targets(job, urls)]}
                for job, urls in jobs.items()
            ],
        }
    )


def _targets(job: str, urls: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for at, url in enumerate(urls):
        for replica in ("a", "b"):
            own = {"instance": f"{job}-{at}-{replica}", "pod": f"vgpuscope-{job}-{at}-{replica}", "namespace": OURS}
            own |= {"container": job, "service": f"vgpuscope-{job}", "endpoint": "metrics", "replica": replica}
            own |= {"node_name": f"node-{at}"}  # as HAMi's scrape configuration names the node of a target
            yield {"targets": [url.removeprefix("http://")], "labels": own}


@pytest.fixture(scope="package")
def engine(tmp_path_factory) -> Iterator[Engine]:
    path = tmp_path_factory.mktemp("grafana")
    with demo() as fleet, plugins() as urls, prometheus(path, scrape_config(fleet, urls)) as url:
        yield Engine(url)
