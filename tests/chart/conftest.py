"""One control plane for all tests of the chart, which writes down who asked it for what."""

import json
from collections.abc import Iterator

import pytest

from tests.chart.audit import POLICY
from tests.chart.cluster import Cluster
from tests.chart.helmrun import program
from tests.controlplane import ControlPlane, programs_or_skip


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A real API server with an audit log; the namespaces of the tests are their own."""
    program()
    path = tmp_path_factory.mktemp("chart-plane")
    policy, log = path / "audit-policy.json", path / "audit.log"
    policy.write_text(json.dumps(POLICY))
    flags = [f"--audit-policy-file={policy}", f"--audit-log-path={log}", "--audit-log-mode=blocking"]
    with ControlPlane(path / "plane", programs_or_skip(), *flags) as plane:
        yield Cluster(plane, log)
