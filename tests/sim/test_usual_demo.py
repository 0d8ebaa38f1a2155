"""What people see of a demo that runs as usual. The tests look at one demo, and change nothing in it."""

import asyncio
import json
import re
import subprocess
import sys
import time

import pytest

from tests.ports import free_port
from tests.sim.demorun import END, Running, eventually, page, temporary
from vgpuscope.sim.jobs import HOUR
from vgpuscope.store.opening import open_store

USUAL_PAGE = 24  # lines, of 80 columns


@pytest.fixture(scope="module")
def directory():
    with temporary() as path:
        yield path / "demo"


@pytest.fixture(scope="module")
def usual(directory):
    """A demo that has started; `start` is between which times it did."""
    before = time.time()
    running = Running("--port", str(free_port()), "--directory", str(directory))
    try:
        running.until(END)
        running.start = before, time.time()
        yield running
    finally:
        running.stop()


def test_one_screen_has_the_analyzer_first_then_the_agents_and_three_findings(usual):
    printed = usual.until(END)
    lines = printed[: printed.index(END) + len(END)].splitlines()  # events may have followed
    assert len(lines) <= USUAL_PAGE
    assert max(map(len, lines)) <= 80
    order = [
        next(n for n, line in enumerate(lines) if word in line) for word in ("/ui/", "cluster ", "extender ", "agent")
    ]
    assert order == sorted(order)
    findings = [line for line in lines if line.startswith("  - ")]
    assert len(findings) == 3
    assert "research/notebook-carol has held an idle H100 for 9 h (whole-b, 21 GiB)" in findings[0]
    assert "research/notebook-alice holds 9 GiB of a busy A100, idle for 4 h (hami-a)" in findings[1]
    assert "is pending: " in findings[2]


def test_what_was_idle_at_the_start_is_still_known_to_be_so_for_hours_once_real_scrapes_are_judged(usual, directory):
    before, began = usual.start
    rows = json.loads(page(f"{usual.analyzer}/api/v1/history?namespace=research&pod=notebook-carol&step=analysis"))
    assert min(row["time"] for row in rows) < began - 23 * HOUR
    assert {row["verdict"] for row in rows if row["time"] > began - 8.5 * HOUR} == {"idle"}
    waste = json.loads(page(f"{usual.analyzer}/api/v1/waste?since=24h"))["rows"][0]
    assert (waste["pod"], round(waste["idle_gpu_hours"]), round(waste["in_use_gpu_hours"])) == ("notebook-carol", 9, 15)

    def carol():
        found = asyncio.run(last_analysis(directory / "history.db"))
        uses = [use for gpu in found.gpus for use in gpu.tenants if use.tenant.pod == "notebook-carol"]
        return found.source, uses[0].idle_since

    eventually(lambda: carol()[0].startswith("own scrapes"))
    assert before - 120 < carol()[1] + 9 * HOUR < began + 120  # the demo began in between, however long its start took


async def last_analysis(file):
    store = open_store(str(file), keep_results=9e6, keep_hours=9e6, keep_days=9e6)
    try:
        return await store.results.latest()
    finally:
        await store.close()


def test_events_are_told_as_they_happen(usual):
    usual.until("GPU lost     sick-e GPU 1 (XID 79", 240)
    usual.until("pod pending  ", 240)
    assert re.search(r"^\d\d:\d\d:\d\d  GPU lost ", usual._printed, re.MULTILINE)


def test_pods_are_scheduled_by_the_real_extender_and_run_on_the_gpus_that_it_chose(usual, directory):
    def decisions(**asked):
        words = "&".join(f"{name}={value}" for name, value in asked.items())
        return json.loads(page(f"{usual.extender}/api/v1/decisions?{words}"))

    eventually(lambda: [one for one in decisions(limit=100) if one["outcome"] == "bound"], 240)
    bound = next(one for one in decisions(limit=100) if one["outcome"] == "bound")
    chosen = {device["uuid"] for device in bound["devices"]}

    def here():
        """What the node's kubelet tells the agent of the pod."""
        pods = json.loads((directory / bound["node"] / "pods.json").read_text())["items"]
        return next((pod for pod in pods if pod["metadata"]["name"] == bound["pod"]), None)

    eventually(lambda: here() is not None)
    notes = here()["metadata"]["annotations"]
    assert notes["hami.io/bind-phase"] == "success"
    assert {part.partition(",")[0] for part in notes["hami.io/vgpu-devices-allocated"].split(":")} - {";"} == chosen
    refused = {one["pod"]: {node["code"] for node in one["nodes"]} for one in decisions(limit=1000)}
    assert "SCHED_QUOTA_EXCEEDED" in refused["sweep-12"]
    assert refused["llm-eval-huge-0"] == {"SCHED_INSUFFICIENT_GPU_MEMORY"}
    assert "SCHED_INSUFFICIENT_GPU_COUNT" in refused["train-octet-0"]
    # measured there, so not estimated here: a sum over both would count every binding twice
    counted = re.compile(r"^hami_scheduler_bind_success_total [1-9]", re.MULTILINE)
    eventually(lambda: counted.search(page(f"{usual.extender}/metrics")))
    eventually(lambda: "\nhami_scheduler_" not in page(usual.urls[5]))
    told = subprocess.run(
        [sys.executable, "-m", "vgpuscope", "why", "ml-team/sweep-12", usual.extender],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "SCHED_QUOTA_EXCEEDED" in told.stdout
