"""k8s-vgpu-monitor's readme as a session: its file, its address, its metrics, and queries on them in a real Prometheus.

Names, types, labels and units are typed from that readme. The values follow from the processes that the driver lists.
"""

import re
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.contract.promworld import prometheus
from tests.contract.test_prometheus import Prometheus
from tests.native.scenario import GIB
from tests.paths import REPOSITORY
from tests.services.agent.noderoot import NodeRoot, RunningAgent, Samples

pytestmark = pytest.mark.real
SAMPLE = REPOSITORY / "examples" / "k8s-vgpu-monitor" / "gpu_allocation.txt"
DOCUMENTED = """
# HELP pod_gpu_sm_util GPU SM utilization per pod (Aggregated physical utilization)
# TYPE pod_gpu_sm_util gauge
pod_gpu_sm_util{gpu_id="[GPU_INDEX]",pod="[POD_NAME]"} [VALUE]
# HELP pod_gpu_memory_used GPU memory usage per pod (Aggregated physical usage, likely in Bytes)
# TYPE pod_gpu_memory_used gauge
pod_gpu_memory_used{gpu_id="[GPU_INDEX]",pod="[POD_NAME]"} [VALUE]
# HELP pod_total_gpu_memory Total GPU memory per pod (Allocated vGPU memory based on ratio, likely in Bytes)
# TYPE pod_total_gpu_memory gauge
pod_total_gpu_memory{gpu_id="[GPU_INDEX]",pod="[POD_NAME]"} [VALUE]
# HELP exposer_transferred_bytes_total Transferred bytes to metrics services
# TYPE exposer_transferred_bytes_total counter
# HELP exposer_request_latencies Latencies of serving metrics requests.
# TYPE exposer_request_latencies summary
"""
MIB = 2**20
TOTAL = 80 * GIB / MIB  # of each GPU, in MB as the readme says
RATIO = 2  # echo "2" > gpu_allocation.txt
# pod, GPU: SM utilisation in percent and memory in MB, added up by hand over the processes below
PODS = {("train", "0"): (20 + 30, (6 + 4) * 1024), ("serve", "0"): (10, 8 * 1024), ("serve", "1"): (40, 12 * 1024)}


@pytest.fixture(scope="module")
def node(tmp_path_factory) -> NodeRoot:
    made = NodeRoot(tmp_path_factory.mktemp("node"))
    made.nvml.gpu(0, memory_used=20 * GIB, utilization=60).gpu(1, memory_used=13 * GIB, utilization=40)
    uids = {name: made.pod(name) for name in ("train", "serve")}
    processes = ((0, 11, "train", 6, 20), (0, 12, "train", 4, 30), (0, 13, "serve", 8, 10), (1, 14, "serve", 12, 40))
    for slot, pid, pod, gib, sm in processes:
        made.nvml.process(slot, pid, memory=gib * GIB).sample(slot, pid, sm=sm)
        made.process(pid, uids[pod])
    shutil.copy(SAMPLE, made.path / "gpu_allocation.txt")  # beside the program
    return made


@pytest.fixture(scope="module")
def agent(node: NodeRoot) -> Iterator[RunningAgent]:
    with node.agent() as running:
        running.until(lambda page: len(page.named("pod_gpu_sm_util")) == len(PODS))
        yield running


def curl(url: str) -> str:
    """As `curl http://NODE:8080/metrics` asks, without compression."""
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()


def types(text: str) -> dict[str, str]:
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))


def test_every_documented_metric_has_its_type(agent):
    page = curl(f"{agent.url}/metrics")
    assert types(DOCUMENTED).items() <= types(page).items()
    assert set(types(DOCUMENTED)) <= set(re.findall(r"^# HELP (\S+) ", page, re.M))


def test_the_pod_metrics_have_the_documented_labels_and_the_namespace(agent):
    """The readme names `namespace` as an improvement to make."""
    documented = {
        name: set(re.findall(r"(\w+)=", labels)) for name, labels in re.findall(r"^(pod_\w+)\{(.*)\}", DOCUMENTED, re.M)
    }
    assert len(documented) == 3
    page = agent.page()
    for name, labels in documented.items():
        assert {frozenset(found) for found, _ in page.named(name)} == {frozenset(labels | {"namespace"})}


@pytest.mark.parametrize(("pod", "gpu"), PODS)
def test_the_values_of_a_pod_are_the_sums_over_its_processes(agent, pod, gpu):
    page, (sm, memory) = agent.page(), PODS[pod, gpu]
    at = {"pod": pod, "gpu_id": gpu, "namespace": "ml"}
    assert page.one("pod_gpu_sm_util", **at) == pytest.approx(sm)
    assert page.one("pod_gpu_memory_used", **at) == pytest.approx(memory)
    assert page.one("pod_total_gpu_memory", **at) == pytest.approx(TOTAL / RATIO)


def test_the_ratio_may_be_a_fraction_and_is_read_again(node, agent):
    file = node.path / "gpu_allocation.txt"
    try:
        file.write_text("2.5")
        agent.until(lambda page: {value for _, value in page.named("pod_total_gpu_memory")} == {TOTAL / 2.5})
    finally:
        shutil.copy(SAMPLE, file)
    agent.until(lambda page: {value for _, value in page.named("pod_total_gpu_memory")} == {TOTAL / RATIO})


def test_what_the_readme_wants_to_be_configurable_is(node, tmp_path):
    """The port and the path of gpu_allocation.txt, by flags; the tests' agents have their own port and interval."""
    file = tmp_path / "ratio.txt"
    file.write_text("4")
    with node.agent("--ratio-file", str(file)) as running:
        running.until(lambda page: {value for _, value in page.named("pod_total_gpu_memory")} == {TOTAL / 4})
        assert not running.url.endswith(":8080")


def test_the_listener_counts_the_bytes_and_the_requests_that_it_served(node):
    """The page of a sample has the counts at that time, so a later one has what was sent before it."""
    with node.agent() as running:
        sent: list[int] = []

        def counted() -> Samples | None:
            text = running.get()[2]
            page = Samples.of(text.decode())
            count = int(page.one("exposer_request_latencies_count"))
            if count >= 5:
                return page
            sent.append(len(text))
            return None

        found: list[Samples] = []
        running.wait(lambda: found or found.extend(filter(None, [counted()])) or found)
        page = found[0]
        count = int(page.one("exposer_request_latencies_count"))
        assert page.one("exposer_transferred_bytes_total") == sum(sent[:count])
        assert page.one("exposer_scrapes_total") == count
        quantiles = [page.one("exposer_request_latencies", quantile=at) for at in ("0.5", "0.9", "0.99")]
        assert 0 < quantiles[0] <= quantiles[1] <= quantiles[2]
        assert page.one("exposer_request_latencies_sum") >= quantiles[2]  # microseconds, as in prometheus-cpp


def test_queries_on_the_documented_names_have_their_answers(agent, tmp_path):
    target = agent.url.removeprefix("http://")
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{"job_name": "vgpu", "honor_labels": True, "static_configs": [{"targets": [target]}]}],
    }
    with prometheus(tmp_path, yaml.safe_dump(config)) as url:
        engine = Prometheus(url)
        agent.wait(lambda: engine.ask("count_over_time(pod_gpu_sm_util[1m]) > 5"))
        shares = engine.ask("100 * pod_gpu_memory_used / pod_total_gpu_memory")
        assert {(at["pod"], at["gpu_id"]): value for at, value in shares} == {
            pod: pytest.approx(100 * memory / (TOTAL / RATIO)) for pod, (_, memory) in PODS.items()
        }
        summed = {at["pod"]: value for at, value in engine.ask("sum by (pod) (pod_gpu_sm_util)")}
        assert summed == {"train": pytest.approx(50), "serve": pytest.approx(50)}
        assert engine.number("rate(exposer_transferred_bytes_total[10s])") > 0
        mean = "rate(exposer_request_latencies_sum[10s]) / rate(exposer_request_latencies_count[10s])"
        assert engine.number(mean) > 0
        assert engine.number('exposer_request_latencies{quantile="0.99"}') > 0


def test_the_documents_manifest_has_a_counterpart_with_the_ratio_file():
    """`kubectl apply -f kubernetes/vgpu_monitor.yml`, after its hostPath was changed."""
    guides = [(REPOSITORY / "docs" / f"migration{language}.md").read_text() for language in ("", ".zh-CN")]
    assert all("`kubernetes/vgpu_monitor.yml`" in text and "`deploy/agent.yaml`" in text for text in guides)
    kinds = [one["kind"] for one in yaml.safe_load_all(Path(REPOSITORY / "deploy" / "agent.yaml").read_text()) if one]
    assert "DaemonSet" in kinds
    assert all("agent.gpuAllocation.hostPath" in text for text in guides)


@pytest.mark.parametrize("step", ["`cmake`", "`build.sh`", "`docker build -t vgpu_monitor .`"])
def test_steps_that_only_build_the_old_program_are_named_in_the_guides(step):
    for language in ("", ".zh-CN"):
        assert step in (REPOSITORY / "docs" / f"migration{language}.md").read_text()
