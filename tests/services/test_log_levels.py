"""What --v 4, 5 and 6 and LOG_LEVEL show in the log of the cluster exporter and of the analyzer, as processes.

4 is a summary of each node, 5 detail of each device and the terms of its score, 6 (DEBUG) every query with its time.
"""

import asyncio
import json
import logging
import re
import sys
import time
from typing import Any

import msgspec
import pytest

from tests.contract.clusterrun import exporter, holder, registered
from tests.http.serving import SOON, until
from tests.services.analyzer.analyzing import uuid
from tests.services.analyzer.promstub import SpoilingServer
from tests.services.analyzer.test_analyzer import fleet, heard, process  # noqa: F401 - a fixture
from tests.services.cluster.badapi import bad_api
from tests.store import fleets
from vgpuscope.model.allocation import RegisteredDevice
from vgpuscope.model.analysis import Analysis
from vgpuscope.model.cluster import DeviceLedger, NodeLedger
from vgpuscope.services.analyzer.log import tell_analysis
from vgpuscope.services.analyzer.sources.own_scrapes import ScrapeSource
from vgpuscope.services.analyzer.sources.prometheus.reading import PrometheusSource
from vgpuscope.services.cluster.log import ClusterNews
from vgpuscope.sources.fleet.targets import StaticTargets

PASSWORD, HEADER, TOKEN = "hunter2hunter2", "header-s3cret", "api-s3cret-of-sixteen"
STEPS = [("4", {"node"}), ("5", {"node", "device"}), ("6", {"node", "device", "query"})]
KINDS = {"node", "device", "query"}


# ── the cluster exporter ─────────────────────────────────────────────────────────────────────────────────────────


def of_cluster(tmp_path, *flags, **environ):
    """The lines of a cluster exporter's log, from its start to its end."""
    with bad_api(tmp_path) as api:
        api.put(registered("gpu-1", "GPU-a", "GPU-b"))
        api.put(registered("gpu-2", "GPU-c"))
        api.put(holder("train", "gpu-1", "GPU-a", memory=8000, cores=30))
        with exporter(api.kubeconfig, tmp_path, "--log-format", "json", *flags, environ=environ) as running:
            running.wait(lambda: not flags or '"msg": "watch up"' in running.log.read_text())
            log = running.log
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.mark.parametrize(("v", "kinds"), STEPS)
def test_the_cluster_exporter_shows_nodes_at_4_devices_at_5_and_queries_at_6(tmp_path, v, kinds):
    assert {line["msg"] for line in of_cluster(tmp_path, f"-v={v}")} & KINDS == kinds


@pytest.mark.parametrize(
    ("level", "kinds"),
    [("DEBUG", {"node", "device", "query"}), ("WARN", set())],
)
def test_log_level_holds_for_the_cluster_exporter_too(tmp_path, level, kinds):
    lines = of_cluster(tmp_path, LOG_LEVEL=level)
    assert {line["msg"] for line in lines} & KINDS == kinds
    assert level != "WARN" or lines == []


def test_the_cluster_exporters_lines_say_what_is_allocated_where(tmp_path):
    lines = of_cluster(tmp_path, "--v", "6")
    nodes = {line["node"]: line for line in lines if line["msg"] == "node"}
    assert {name: (node["devices"], node["allocated"]) for name, node in nodes.items()} == {
        "gpu-1": (2, "8000 of 163840 MiB"),
        "gpu-2": (1, "0 of 81920 MiB"),
    }
    devices = {line["device"]: line for line in lines if line["msg"] == "device"}
    assert devices["GPU-a"]["memory"] == "8000 of 81920 MiB"
    assert devices["GPU-a"]["cores"] == "30 of 100 %"
    assert devices["GPU-a"]["slots"] == "1 of 10"
    assert devices["GPU-a"]["holders"] == "ml/train"
    assert "holders" not in devices["GPU-c"]
    asked = [line for line in lines if line["msg"] == "query"]
    assert {line["path"] for line in asked} >= {"/api/v1/nodes", "/api/v1/pods", "/api/v1/events"}
    assert all(line["seconds"] >= 0 for line in asked)


# ── the analyzer ─────────────────────────────────────────────────────────────────────────────────────────────────


async def of_analyzer(process, *flags, **environ):  # noqa: F811
    """The lines of an analyzer's log up to the end of its first analysis; its Prometheus wants a password."""
    async with SpoilingServer(fleet(now=time.time())) as prometheus:
        secrets = {
            "VGPUSCOPE_PROMETHEUS_USERNAME": "me",
            "VGPUSCOPE_PROMETHEUS_PASSWORD": PASSWORD,
            "VGPUSCOPE_PROMETHEUS_HEADERS": f"X-Key: {HEADER}",
            "VGPUSCOPE_API_TOKEN": TOKEN,
        }
        table = ("--log-results", "table")  # its warnings are there at every level
        child = await process("--log-format", "json", *table, *flags, PROM_URL=prometheus.url, **secrets, **environ)
        lines = await heard(child, "train-1 (")  # the last but one line
        child.terminate()
        async with asyncio.timeout(SOON):
            rest, _ = await child.stderr.read(), await child.wait()
    return [*lines, *map(json.loads, rest.decode().splitlines())]


GPU_LINES = {"node", "gpu", "score", "tenant", "query"}


@pytest.mark.parametrize(
    ("given", "kinds"),
    [
        ({"v": "4"}, {"node"}),
        ({"v": "5"}, {"node", "gpu", "score", "tenant"}),
        ({"v": "6"}, GPU_LINES),
        ({"LOG_LEVEL": "DEBUG"}, GPU_LINES),
        ({"LOG_LEVEL": "warn"}, set()),
    ],
)
async def test_the_analyzer_shows_nodes_at_4_gpus_and_their_scores_at_5_and_queries_at_6(process, given, kinds):  # noqa: F811
    flags = [f"-v={given['v']}"] if "v" in given else []
    level = {"LOG_LEVEL": given["LOG_LEVEL"]} if "LOG_LEVEL" in given else {}
    lines = await of_analyzer(process, *flags, THRESHOLD="30", **level)
    assert {line["msg"] for line in lines} & GPU_LINES == kinds
    if "query" in kinds:
        asked = [line for line in lines if line["msg"] == "query"]
        assert any("DCGM_FI_DEV_GPU_UTIL" in line["query"] for line in asked)
        assert all(line["seconds"] >= 0 and line["bytes"] > 0 for line in asked)
    if level.get("LOG_LEVEL") == "warn":
        assert {line["level"] for line in lines} == {"warning"}


@pytest.mark.parametrize("level", ["ERROR", "CRITICAL"])
async def test_errors_only_are_shown_when_asked_for(process, level):  # noqa: F811
    child = await process(
        "--log-format", "json", PROM_URL="http://127.0.0.1:9", VGPUSCOPE_PROMETHEUS_DEADLINE="1", LOG_LEVEL=level
    )
    if level == "ERROR":
        assert {line["msg"] for line in await heard(child, "analysis failed")} == {"analysis failed"}
    child.terminate()
    async with asyncio.timeout(SOON):
        await child.wait()
    assert level == "ERROR" or await child.stderr.read() == b""


async def test_no_line_has_the_name_of_a_class(process):  # noqa: F811
    lines = await of_analyzer(process, "--v=5", THRESHOLD="30")
    (start,) = [line for line in lines if line["msg"] == "analyzer starts"]
    assert start["source"].startswith("http://127.0.0.1:")
    classes = {
        name
        for module in [module for key, module in sys.modules.items() if key.startswith("vgpuscope.services")]
        for name, value in vars(module).items()
        if isinstance(value, type) and len(re.findall("[A-Z]", name)) > 1
    }
    assert {"ScrapeSource", "PrometheusSource"} <= classes
    words = {word for line in lines for value in line.values() for word in re.split(r"\W+", str(value))}
    assert not words & classes


async def test_no_secret_is_in_a_query_that_is_logged(process):  # noqa: F811
    lines = await of_analyzer(process, "--v=6", THRESHOLD="30")
    assert [line for line in lines if line["msg"] == "query"]
    assert not [line for line in lines for secret in (PASSWORD, HEADER, TOKEN) if secret in json.dumps(line)]


async def test_no_credentials_of_an_address_are_in_the_log_of_a_query_or_a_scrape(caplog):
    async with SpoilingServer(fleet(now=time.time())) as prometheus:
        url = prometheus.url.replace("://", f"://me:{PASSWORD}@")
        caplog.set_level(logging.DEBUG, "vgpuscope")
        async with PrometheusSource(url=url) as source:
            await source.ready()
        scrapes = ScrapeSource(targets=StaticTargets((url,)), interval=1.0, keep=60.0)
        running = asyncio.create_task(scrapes.run())
        await until(lambda: any(record.msg in {"scrape", "target is down"} for record in caplog.records))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await scrapes.close()
    assert "query" in caplog.messages
    assert PASSWORD not in repr([vars(record) for record in caplog.records if record.name.startswith("vgpuscope")])


async def test_a_score_is_logged_with_what_each_term_adds(process):  # noqa: F811
    lines = await of_analyzer(process, "--v=5", THRESHOLD="30")
    [line] = [line for line in lines if line["msg"] == "score" and line["gpu"] == uuid(0)]
    assert line["gpu_util"] == "47.5 of 50 (95.0 %)"
    assert line["mem_copy"] == "9.5 of 20 (47.5 %)"
    assert line["mem_used"].startswith("10.0 of 20 (50.0 %")
    assert line["power"] == "10.0 of 10 (100.0 % of 250 W (default))"
    points = [float(line[term].split()[0]) for term in ("gpu_util", "mem_copy", "mem_used", "power")]
    assert line["value"] == pytest.approx(sum(points), abs=0.1)


# ── what is off costs nothing ────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def level():
    ours = logging.getLogger("vgpuscope")
    before = ours.level
    yield ours.setLevel
    ours.setLevel(before)


DEVICE = DeviceLedger(device=RegisteredDevice(id="GPU-a", vendor="NVIDIA", memory=2**30, cores=100, slots=10))


class Untouchable:
    """Whoever looks at it has done work."""

    def __getattr__(self, name):
        raise AssertionError(name)


def test_a_summary_that_is_not_logged_is_not_made(level):
    level(logging.INFO)
    untouchable: Any = Untouchable()
    tell_analysis(untouchable)
    news = ClusterNews(untouchable, untouchable)
    news.changed(["gpu-1"])
    news.tell(1e9)
    assert news.waiting == 0


def test_a_node_is_logged_when_its_line_changes(level, caplog):
    level(logging.INFO - 4)
    nodes = {name: NodeLedger(name=name, devices=(DEVICE,)) for name in ("gpu-1", "gpu-2")}
    news = ClusterNews(nodes.get, lambda: nodes["gpu-1"].capacity)
    seen = []
    for minute, change in enumerate((None, None, "gpu-2", None, "gone", None)):
        if change == "gpu-2":
            nodes["gpu-2"] = msgspec.structs.replace(nodes["gpu-2"], ready=False)
        elif change == "gone":
            del nodes["gpu-2"]
        caplog.clear()
        news.changed(["gpu-1", "gpu-2"])
        news.tell(60.0 * (minute + 1))
        seen.append([(record.message, record.fields.get("node")) for record in caplog.records])
    assert seen == [
        [("cluster", None), ("node", "gpu-1"), ("node", "gpu-2")],
        [],
        [("cluster", None), ("node", "gpu-2")],
        [],
        [("cluster", None), ("node is gone", "gpu-2")],
        [],
    ]


def test_detail_that_is_not_logged_is_not_made(level, monkeypatch):
    level(logging.INFO - 4)
    made = []
    monkeypatch.setattr("vgpuscope.views.fleet.log.detail.gpu_events", lambda analysis: made.append(analysis) or ())
    tell_analysis(fleets.fleet(fleets.NOON, 3))
    assert made == []


def test_a_large_fleet_takes_few_lines_at_4(level, caplog):
    level(logging.INFO - 4)
    analysis: Analysis = fleets.fleet(fleets.NOON, 5000)  # on 625 nodes
    with caplog.at_level(logging.INFO - 4, "vgpuscope"):
        tell_analysis(analysis)
    assert len(caplog.records) == 41
    assert caplog.records[-1].fields == {"more": 585}
