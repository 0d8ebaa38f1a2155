"""The services of the demo under the names of the handbook's scrape jobs, in a real Prometheus that has its alerts."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
import yaml

from tests.console.processes import Demo, demo
from tests.contract.promworld import prometheus
from tests.dashboards.engine import Engine
from tests.seeds.alerts import ALERTS

SCRAPE = "5s"


class Scraped(NamedTuple):
    """A running demo, and the Prometheus that scrapes it."""

    fleet: Demo
    engine: Engine


@pytest.fixture(scope="package")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    path = tmp_path_factory.mktemp("handbook")
    rules = [
        {"alert": one.name, "expr": one.expr, "for": one.wait, "labels": {"severity": one.severity}} for one in ALERTS
    ]
    (path / "alerts.yaml").write_text(yaml.safe_dump({"groups": [{"name": "documents", "rules": rules}]}))
    with demo() as fleet:
        jobs = {"hami-vgpu-monitor": fleet.agents, "hami-scheduler": (fleet.cluster,), "extender": (fleet.extender,)}
        config = {
            "global": {"scrape_interval": SCRAPE, "scrape_timeout": SCRAPE, "evaluation_interval": SCRAPE},
            "rule_files": [str(path / "alerts.yaml")],
            "scrape_configs": [
                {
                    "job_name": job,
                    "honor_labels": True,
                    "static_configs": [{"targets": [url.removeprefix("http://") for url in urls]}],
                }
                for job, urls in jobs.items()
            ],
        }
        with prometheus(path, yaml.safe_dump(config)) as url:
            yield Scraped(fleet, Engine(url))
