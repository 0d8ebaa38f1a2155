"""Files that cannot import the table of default ports have the same ports."""

import re

import pytest
import yaml

from tests.paths import REPOSITORY
from vgpuscope.model.service import AGENT_PORT, ANALYZER_PORT, CLUSTER_PORT, EXTENDER_PORT, PLUGIN_PORT

PORTS = {
    "agent": AGENT_PORT,
    "cluster": CLUSTER_PORT,
    "analyzer": ANALYZER_PORT,
    "extender": EXTENDER_PORT,
    "plugin": PLUGIN_PORT,
}


@pytest.mark.parametrize("service", PORTS)
def test_the_chart_has_the_default_port_of_each_service(service):
    values = yaml.safe_load((REPOSITORY / "charts/vgpuscope/values.yaml").read_text())[service]
    assert values["port"] == PORTS[service]


def test_the_image_names_the_default_port_of_each_service():
    [exposed] = re.findall(r"^EXPOSE (.*)$", (REPOSITORY / "Dockerfile").read_text(), re.MULTILINE)
    assert {int(port) for port in exposed.split()} == set(PORTS.values())


def test_the_chart_replaces_the_address_of_the_console_that_the_dashboards_have():
    values = yaml.safe_load((REPOSITORY / "charts/vgpuscope/values.yaml").read_text())
    address = f"http://localhost:{ANALYZER_PORT}"
    assert values["dashboards"]["consoleUrl"] == address
    assert f'"{address}"' in (REPOSITORY / "charts/vgpuscope/templates/monitoring/dashboards.yaml").read_text()
    shipped = list((REPOSITORY / "charts/vgpuscope/dashboards").rglob("*.json"))
    assert any(address in one.read_text() for one in shipped)
