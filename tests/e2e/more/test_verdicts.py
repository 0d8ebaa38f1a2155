"""Verdicts and the console on pods whose work the scenario fixes, by the analyzer's own scrapes and by a Prometheus."""

import contextlib
import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.sync_api import Browser, expect, sync_playwright

from tests.console.watched import Watched
from tests.e2e.product import GPUS, NAMESPACE, Product, gpu_pod
from tests.native.scenario import GIB, gpu_uuid
from tests.needed import needed
from tests.ports import free_port
from tools.cluster import layout

pytestmark = pytest.mark.e2e

GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
WORK = {"works": 70, "rests": 0}  # percent of the SM time, by pod; each has its own GPU
FAST = {
    "prometheus": {"time_window_min": 1, "url": None},
    "scheduler": {"interval": 15},
    "analyzer": {"scrape_interval": 5},
    "control": {"enabled": False, "dry_run": True},
}
VERDICTS = {"works": "in_use", "rests": "idle"}
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")


class Prometheus:
    """A Prometheus on this machine, which pods can reach, with the jobs of docs/scraping.md.

    The one of Debian does not know Kubernetes, so the targets are the addresses that the API server has.
    """

    def __init__(self, product: Product, path: Path) -> None:
        self.address = f"{layout.HOST_IP}:{free_port()}"
        self.url = f"http://{self.address}"
        block = re.search(r"```yaml\n(# prometheus\.yml\n.*?)```", _document("scraping.md"), re.DOTALL)
        assert block is not None
        config = yaml.safe_load(block[1])
        for job in config["scrape_configs"]:
            component = job["job_name"].removeprefix("vgpuscope-")
            (pod,) = product.pods(component)
            (container,) = pod["spec"]["containers"]
            job["scrape_interval"] = job["scrape_timeout"] = "3s"
            target = f"{pod['status']['podIP']}:{container['ports'][0]['containerPort']}"
            job["static_configs"] = [{"targets": [target]}]
            del job["kubernetes_sd_configs"], job["relabel_configs"]
        (path / "prometheus.yml").write_text(json.dumps(config))
        words = (f"--config.file={path}/prometheus.yml", f"--storage.tsdb.path={path}/data")
        with (path / "prometheus.log").open("w") as log:
            command = ["prometheus", *words, f"--web.listen-address={self.address}"]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def value(self, query: str) -> float | None:
        """Of the only series; None if there is none, or it does not answer yet."""
        words = urllib.parse.urlencode({"query": query})
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/query?{words}", timeout=10) as answer:
                result = json.load(answer)["data"]["result"]
        except OSError:
            return None
        return float(result[0]["value"][1]) if len(result) == 1 else None

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


@pytest.fixture(scope="module")
def working(scheduling: Product) -> Iterator[Product]:
    """One pod that computes, one that holds memory and does not, and a third GPU that nobody has."""
    scheduling.upgraded(values={"config": FAST})
    scheduling.wait("the analyzer", lambda: scheduling.ready("analyzer", 8080))
    for name in WORK:
        scheduling.run(gpu_pod(name, containers={"main": {GPU: 1, MEMORY: 30000}}))
    slots = {name: _slot(scheduling, name) for name in WORK}
    assert len(set(slots.values())) == len(WORK), "more than half of a GPU each"
    for name, sm in WORK.items():
        slot, pid = slots[name], scheduling.container(name).pid
        scheduling.driver.process(slot, pid, memory=GIB).sample(slot, pid, sm=sm)
        scheduling.driver.gpu(slot, memory_used=GIB, utilization=sm, power=56_000 + 3_000 * sm)
    scheduling.driver.write()
    yield scheduling
    scheduling.cluster.kubectl("-n", "ml", "delete", "pods", "--all", "--grace-period=1", "--timeout=120s")
    scheduling.with_gpus()
    scheduling.wait("the kubelet's records are empty", lambda: not scheduling.pod_resources())


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    needed("chromium", package="chromium-headless-shell", there=CHROMIUM is not None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def test_own_scrapes_give_each_pod_the_verdict_of_its_work(working: Product) -> None:
    working.wait("the verdicts", lambda: _verdicts(working) == VERDICTS, within=300)
    free = next(row for row in _rows(working) if row["gpu_id"] == _free(working))
    assert (free["held"], free["tenants"]) == (False, [])
    expected = pytest.approx({name: sm / 100 for name, sm in WORK.items()}, abs=0.01)
    # the first windows begin before the work
    working.wait("a whole window", lambda: {n: _tenant(working, n)["use"]["mean"] for n in WORK} == expected)


@pytest.mark.parametrize("way", ["service", "port-forward"])
def test_the_console_shows_it_in_a_browser(working: Product, browser: Browser, way: str) -> None:
    with _console(working, way) as address:
        context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
        try:
            watched = Watched(context.new_page(), f"{address}/ui/")
            for page, words in {"": "GPU", "gpus": layout.NODE, "workloads": "rests", "doctor": "agent"}.items():
                watched.go(page)
                expect(watched.main()).to_contain_text(words, timeout=60_000)
            assert watched.failures == []
        finally:
            context.close()


def test_prometheus_gives_the_same_verdicts_and_none_when_it_is_gone(working: Product, tmp_path: Path) -> None:
    """Without data a GPU that computed and one that rested are both unknown: missing is not zero."""
    needed("prometheus", package="prometheus")
    prometheus = Prometheus(working, tmp_path)
    try:
        memory = (
            f'vgpuscope_container_memory_used_bytes{{namespace="ml",pod="rests",gpu_uuid="{_gpu(working, "rests")}"}}'
        )
        working.wait("the first scrapes", lambda: prometheus.value(memory) == GIB)
        assert prometheus.value('count(up{job="vgpuscope-agent"} == 1)') == 1
        working.upgraded(values={"config": {"prometheus": {"url": prometheus.url}}})
        working.wait("verdicts by Prometheus", lambda: _verdicts(working) == VERDICTS, within=300)
        source = json.loads(working.page("analyzer", 8080, "/health"))
        assert prometheus.address in json.dumps(source)
    finally:
        prometheus.stop()
    working.wait("nothing is known any more", lambda: set(_verdicts(working).values()) <= {"unknown"}, within=300)
    working.upgraded(values={"config": {"prometheus": {"url": None}}})


def _console(product: Product, way: str) -> Any:
    """Its address; a port-forward lasts as long as the block."""
    if way == "service":
        address = product.cluster.get("service", "vgpuscope-api", "-n", NAMESPACE)["spec"]["clusterIP"]
        return contextlib.nullcontext(f"http://{address}")
    return _forwarded(product)


@contextlib.contextmanager
def _forwarded(product: Product) -> Iterator[str]:
    command = [product.cluster.control_plane / "kubectl", "--kubeconfig", layout.KUBECONFIG, "-n", NAMESPACE]
    with subprocess.Popen(
        [*map(str, command), "port-forward", "svc/vgpuscope-api", ":80"], stdout=subprocess.PIPE, text=True
    ) as forward:
        try:
            assert forward.stdout is not None
            port = re.search(r"127\.0\.0\.1:(\d+)", forward.stdout.readline())
            assert port is not None
            yield f"http://127.0.0.1:{port[1]}"
        finally:
            forward.terminate()


def _rows(product: Product) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(product.page("analyzer", 8080, "/api/v1/gpus"))["rows"]
    return rows


def _tenant(product: Product, pod: str) -> dict[str, Any]:
    return next(tenant for row in _rows(product) for tenant in row["tenants"] if tenant["pod"] == pod)


def _verdicts(product: Product) -> dict[str, str]:
    tenants = (tenant for row in _rows(product) for tenant in row["tenants"])
    return {tenant["pod"]: tenant["verdict"] for tenant in tenants if tenant["namespace"] == "ml"}


def _gpu(product: Product, pod: str) -> str:
    return product.container(pod).environ["NVIDIA_VISIBLE_DEVICES"]


def _slot(product: Product, pod: str) -> int:
    return next(slot for slot in range(GPUS) if gpu_uuid(slot) == _gpu(product, pod))


def _free(product: Product) -> str:
    return next(gpu_uuid(slot) for slot in (0, 1, 2) if gpu_uuid(slot) not in product.given())


def _document(name: str) -> str:
    return (layout.REPOSITORY / "docs" / name).read_text()
