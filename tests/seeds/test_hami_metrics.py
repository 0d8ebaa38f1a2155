"""The document "Prometheus metrics and monitoring" of HAMi, executed: its metrics, queries and alerts on the demo.

Names, labels, queries and alerts are typed from the document. Its scrape configuration is tested in
tests/contract/test_scraping.py.
"""

import pytest
import yaml

from tests.console.processes import eventually
from tests.dashboards.engine import Series, measured
from tests.paths import REPOSITORY
from tests.seeds.alerts import ALERTS, METRICS
from tests.seeds.conftest import Scraped

pytestmark = pytest.mark.real
_DEVICE = "nodeid deviceuuid deviceidx"
_CONTAINER = "podnamespace podname ctrname vdeviceid deviceuuid"
GAUGES = {
    "GPUDeviceMemoryLimit": f"{_DEVICE} devicetype",
    "GPUDeviceCoreLimit": f"{_DEVICE} devicetype",
    "GPUDeviceMemoryAllocated": f"{_DEVICE} devicecores devicetype",
    "GPUDeviceCoreAllocated": f"{_DEVICE} devicetype",
    "GPUDeviceSharedNum": f"{_DEVICE} devicetype",
    "nodeGPUOverview": f"{_DEVICE} devicecores sharedcontainers devicememorylimit devicetype",
    "nodeGPUMemoryPercentage": _DEVICE,
    "nodeGPUMigInstance": f"{_DEVICE} migname",
    "vGPUMemoryAllocated": "podnamespace nodename podname containeridx deviceuuid",
    "vGPUCoreAllocated": "podnamespace nodename podname containeridx deviceuuid",
    "QuotaUsed": "quotanamespace quotaName limit",
    "HostGPUMemoryUsage": "deviceidx deviceuuid devicetype",
    "HostCoreUtilization": "deviceidx deviceuuid devicetype",
    "vGPU_device_memory_usage_in_bytes": _CONTAINER,
    "vGPU_device_memory_limit_in_bytes": _CONTAINER,
    "Device_memory_desc_of_container": f"{_CONTAINER} context module data offset",
    "Device_utilization_desc_of_container": _CONTAINER,
    "Device_last_kernel_of_container": _CONTAINER,
    "vGPU_device_memory_context_size_bytes": _CONTAINER,
    "vGPU_device_memory_module_size_bytes": _CONTAINER,
    "vGPU_device_memory_buffer_size_bytes": _CONTAINER,
    "MigInfo": f"{_CONTAINER} instanceid",
    "hami_build_info": "version revision build_date go_version compiler platform",
}
QUERIES = (
    "sum(GPUDeviceMemoryLimit)",
    "sum(GPUDeviceMemoryAllocated)",
    "sum(GPUDeviceMemoryAllocated) / sum(GPUDeviceMemoryLimit) * 100",
    "HostGPUMemoryUsage / on(deviceuuid) group_left GPUDeviceMemoryLimit * 100",
    "HostCoreUtilization",
    "vGPU_device_memory_usage_in_bytes / vGPU_device_memory_limit_in_bytes * 100",
    "Device_utilization_desc_of_container",
    "Device_last_kernel_of_container > 300",
    "GPUDeviceSharedNum",
    "(vGPU_device_memory_limit_in_bytes - vGPU_device_memory_usage_in_bytes) / vGPU_device_memory_limit_in_bytes * 100",
)


def answered(scraped: Scraped, query: str) -> list[Series]:
    """The answer, as soon as there is one."""
    eventually(lambda: scraped.engine.ask(query) != [])
    return scraped.engine.ask(query)


@pytest.mark.parametrize(("name", "labels"), GAUGES.items())
def test_every_metric_of_the_tables_is_a_gauge_with_its_labels(scraped, name, labels):
    assert {*labels.split()} <= set.intersection(*(set(one.labels) for one in answered(scraped, name)))
    assert {one["type"] for one in scraped.engine.metadata(name)} == {"gauge"}


@pytest.mark.parametrize("query", QUERIES)
def test_every_query_of_the_panels_has_an_answer(scraped, query):
    assert measured(answered(scraped, query))


@pytest.mark.parametrize("alert", [one for one in ALERTS if one.document == METRICS], ids=lambda one: one.name)
def test_every_alert_is_evaluated_and_shipped_word_for_word(scraped, alert):
    def health() -> list[str]:
        rules = [one for group in scraped.engine.rules() for one in group["rules"]]
        return [one["health"] for one in rules if one["name"] == alert.name]

    eventually(lambda: set(health()) == {"ok"})
    shipped = yaml.safe_load((REPOSITORY / "charts/vgpuscope/rules/compat/handbook.yaml").read_text())
    (same,) = [one for group in shipped["groups"] for one in group["rules"] if one["alert"] == alert.name]
    found = (" ".join(same["expr"].split()), same["for"], same["labels"]["severity"], same["annotations"]["summary"])
    assert found == (alert.expr, alert.wait, alert.severity, alert.summary)


def test_allocation_is_what_the_scheduler_counts_and_use_what_the_driver_reports(scraped):
    """Section 7.3: both differ, and a container uses no more than its limit."""
    assert answered(scraped, "sum(GPUDeviceMemoryAllocated)")[0].value > 0
    limited = "vGPU_device_memory_limit_in_bytes > 0"
    assert answered(scraped, limited)
    assert scraped.engine.ask(f"vGPU_device_memory_usage_in_bytes > ({limited})") == []
