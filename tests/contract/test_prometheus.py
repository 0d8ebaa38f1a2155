"""A real Prometheus scrapes a real agent, and the questions people ask it have the right answers."""

import json
import subprocess
import urllib.parse
import urllib.request

import pytest

from tests.native.scenario import GIB, gpu_uuid
from tests.needed import needed
from tests.ports import free_port
from tests.services.agent.noderoot import WITHIN, NodeRoot, RunningAgent

pytestmark = pytest.mark.real
A = gpu_uuid(0)


class Prometheus:
    """A running server that scrapes one agent, which has five seconds to answer."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, query: str) -> list[tuple[dict[str, str], float]]:
        address = f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        with urllib.request.urlopen(address, timeout=WITHIN) as answer:
            body = json.load(answer)
        assert body["status"] == "success", body
        return [(r["metric"], float(r["value"][1])) for r in body["data"]["result"]]

    def number(self, query: str) -> float:
        found = self.ask(query)
        assert len(found) == 1, (query, found)
        return found[0][1]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    needed("prometheus", package="prometheus")
    path = tmp_path_factory.mktemp("node")
    node = NodeRoot(path)
    node.nvml.gpu(0, memory_used=20 * GIB, utilization=80)
    node.nvml.process(0, 11, memory=6 * GIB).sample(0, 11, sm=20).process(0, 12, memory=10 * GIB).sample(0, 12, sm=50)
    for pid, name, used, limit in ((11, "a", 5 * GIB, 8 * GIB), (12, "b", 9 * GIB, 10 * GIB)):
        uid = node.pod(name)
        node.process(pid, uid)
        node.region(uid, "main", A, limit=limit, p7=(pid, used, 20))
    with node.agent("--families", "all", interval="0.2") as agent:
        port = free_port()
        config = path / "prometheus.yml"
        target = agent.url.removeprefix("http://")
        config.write_text(
            "global: {scrape_interval: 5s, scrape_timeout: 5s}\n"
            f"scrape_configs: [{{job_name: agent, honor_labels: true, static_configs: [{{targets: ['{target}']}}]}}]\n"
        )
        log = (path / "prometheus.log").open("w")
        flags = [f"--config.file={config}", f"--storage.tsdb.path={path / 'tsdb'}"]
        flags.append(f"--web.listen-address=127.0.0.1:{port}")
        process = subprocess.Popen(["prometheus", *flags], stdout=log, stderr=log)
        server = RunningAgent(process, f"http://127.0.0.1:{port}", path / "prometheus.log")
        prometheus = Prometheus(server.url)
        try:
            server.wait(lambda: server.status("/-/ready") == 200)
            server.wait(lambda: prometheus.ask("count_over_time(up[1m]) > 2"))
            yield prometheus, agent
        finally:
            process.terminate()
            process.wait()
            log.close()


def test_the_scrape_is_healthy(world):
    prometheus, agent = world
    assert prometheus.number("up") == 1
    assert prometheus.number("scrape_samples_scraped") == len(agent.page())


def test_the_ledger_adds_up_in_promql_too(world):
    prometheus, _ = world
    parts = "sum by (gpu_uuid) (vgpuscope_gpu_memory_ledger_bytes)"
    assert prometheus.number(f"{parts} - on(gpu_uuid) vgpuscope_gpu_memory_total_bytes") == 0
    containers = 'vgpuscope_gpu_memory_ledger_bytes{owner="containers"}'
    assert prometheus.number(f"sum(vgpuscope_container_memory_used_bytes) - sum({containers})") == 0
    busy = "sum(vgpuscope_container_sm_seconds_total) + sum(vgpuscope_gpu_sm_ledger_seconds_total)"
    assert prometheus.number(f"abs({busy} - sum(vgpuscope_gpu_busy_seconds_total))") < 1e-6


def test_the_rate_of_busy_time_is_the_utilisation(world):
    prometheus, _ = world
    passed = "scalar(delta(vgpuscope_sample_timestamp_seconds[1m]))"  # by the samples' clock: scrapes may come late
    rate = prometheus.number(f"delta(vgpuscope_gpu_busy_seconds_total[1m]) / {passed}")
    assert rate == pytest.approx(0.8, rel=0.05)


@pytest.mark.parametrize(
    ("query", "answers"),
    [
        ("vGPU_device_memory_usage_in_bytes / vGPU_device_memory_limit_in_bytes * 100", {"a": 62.5, "b": 90.0}),
        ("Device_utilization_desc_of_container", {"a": 20.0, "b": 20.0}),
        ("(Device_last_kernel_of_container > bool 300)", {"a": 1.0, "b": 1.0}),
        ("pod_gpu_memory_used", {"a": 6144.0, "b": 10240.0}),
        ("hami_vgpu_utilization_percent", {"a": 20.0, "b": 50.0}),
        ("hami_vgpu_memory_used_bytes / hami_vgpu_memory_limit_bytes", {"a": 0.625, "b": 0.9}),
    ],
)
def test_the_panels_people_already_have_show_the_right_numbers(world, query, answers):
    prometheus, _ = world
    found = {labels.get("podname", labels.get("pod")): value for labels, value in prometheus.ask(query)}
    assert found == pytest.approx(answers)


def test_a_handbook_alert_has_both_sides(world):
    prometheus, _ = world
    used = prometheus.number("hami_gpu_memory_used_bytes / hami_gpu_memory_total_bytes")
    assert used == pytest.approx((20 + 1) / 80)  # 1 GiB that the driver reserves, as HAMi counts it
