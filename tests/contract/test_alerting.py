"""From a page of metrics to a message: real Prometheus, real Alertmanager, and all rules over the demo."""

import re
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from tests.contract.alertpath import Page, alertmanager, asked, with_rules
from tests.needed import needed
from tests.paths import REPOSITORY
from tests.ports import free_port
from tests.sim.demorun import END, Running
from tests.store import fleets
from tests.waiting import wait_until
from tools.alerting.tables import by_name
from tools.alerting.workload import RULES
from vgpuscope.views.fleet.metrics import gpus_page

pytestmark = pytest.mark.real


def until(condition: Callable[[], object], seconds: float = 240) -> None:
    wait_until(condition, within=seconds, every=0.1)


# --- one alert, all the way ------------------------------------------------------------------------------------------


def analyzer_page(**tenant) -> str:
    """What the analyzer serves of one GPU with one notebook."""
    carol = fleets.tenant("carol-0", namespace="nb", owner="Notebook/carol", **tenant)
    return gpus_page([fleets.gpu(1, tenants=(carol,))], end=fleets.NOON).text().decode()


def test_a_notebook_that_holds_memory_without_work_is_reported_to_the_receiver_until_it_works(tmp_path):
    with Page().serving() as analyzer, Page().serving() as receiver:
        analyzer.text = analyzer_page(use_class="idle-held", verdict="idle", idle_since=fleets.NOON - 3725)
        with (
            alertmanager(tmp_path / "am", receiver.address) as manager,
            with_rules(tmp_path / "prom", {"vgpuscope-analyzer": [analyzer.address]}, manager=manager),
        ):
            fired = receiver.notice("firing")
            assert fired["labels"] == {
                "alertname": "GPUTenantIdleHeld",
                "severity": "info",
                "gpu_id": fleets.gpu(1).gpu_id,
                "hostname": "node-0",
                "namespace": "nb",
                "pod": "carol-0",
                "owner": "Notebook/carol",
            }
            texts = fired["annotations"]
            assert texts["summary"] == "nb/carol-0 has held GPU memory without work for 1h 2m 5s"
            assert texts["summary_zh"] == "nb/carol-0 占用 GPU 显存却没有计算，已持续 1h 2m 5s"
            assert texts["runbook_url"].startswith("https://")
            assert texts["runbook_url"].endswith("/docs/runbooks/GPUTenantIdleHeld.md")
            analyzer.text = analyzer_page(use_class="busy", verdict="in_use")
            assert receiver.notice("resolved")["labels"] == fired["labels"]


# --- all rules over the demo -----------------------------------------------------------------------------------------

# What the demo's faults justify, always: docs/demo.md describes each of them.
ALWAYS = {
    "GPUTenantIdleHeld": "notebook-carol, notebook-alice, hami-mig-0 and mps-idle have been idle with memory for hours",
    "GPUPodPendingTooLong": "llm-eval-huge-0, train-octet-0 and sweep-12 have waited for an hour",
    "GPUQuotaNearlyFull": "ml-team has used 93 % of its GPU memory",
    "GPUGhostAllocation": "tune-stuck-0 and serve-silent-0 on worn-f",
    "GPUNodeWithoutAgent": "worn-f has none",
    "GPUResidualMemory": "train-large-0, dev-dave and dev-erin on mig-c got their GPUs without HAMi",
}
# What comes and goes.
SOMETIMES = {
    "ContainerGPUIdle": "notebook-alice and notebook-carol ran their last kernel hours ago; raised after 5 minutes",
    "ContainerVGPUMemoryNearLimit": "etl-leaky-0 grows to its limit",
    "GPUXidDrain": "GPU 1 of sick-e reports XID 48 and 79",
    "GPUUnhealthy": "GPU 1 of sick-e is lost; GPU 2 hangs",
}


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> Iterator[str]:
    """A Prometheus that scrapes the demo with all rules loaded."""
    needed("prometheus", package="prometheus")
    demo = Running("--port", str(free_port()))
    try:
        demo.until(END)
        *agents, cluster = (urlsplit(url).netloc for url in demo.urls)
        jobs = {
            "vgpuscope-agent": agents,
            "vgpuscope-cluster": [cluster],
            "vgpuscope-analyzer": [urlsplit(demo.analyzer).netloc],
            "vgpuscope-extender": [urlsplit(demo.extender).netloc],
        }
        # a scrape may take as long: one that is too late would raise alerts of its own
        with with_rules(tmp_path_factory.mktemp("demo") / "prom", jobs, seconds=5) as url:
            yield url
    finally:
        demo.process.terminate()
        demo.process.wait()


def answered(url: str, query: str) -> list[dict]:
    """The rows of an answer."""
    return asked(url, "query", query=query)["result"]


def rules(url: str) -> list[dict]:
    return [rule for group in asked(url, "rules")["groups"] for rule in group["rules"]]


def raised(url: str) -> set[str]:
    """Alerts that fire, or would after their wait."""
    return {rule["name"] for rule in rules(url) if rule["type"] == "alerting" and rule["state"] != "inactive"}


def test_every_rule_is_evaluated_without_an_error(demo):
    until(lambda: "unknown" not in {rule["health"] for rule in rules(demo)})  # some groups have an interval of 30 s
    assert {rule["name"]: rule.get("lastError") for rule in rules(demo) if rule["health"] != "ok"} == {}
    assert {rule["name"] for rule in rules(demo) if rule["type"] == "alerting"} == set(by_name())


def test_only_alerts_that_the_demos_faults_justify_are_raised(demo):
    until(lambda: raised(demo) >= set(ALWAYS))
    assert raised(demo) - set(ALWAYS) <= set(SOMETIMES)


def test_the_texts_of_alerts_on_real_series_have_a_value_in_every_place(demo):
    until(lambda: raised(demo) >= set(ALWAYS))
    for alert in asked(demo, "alerts")["alerts"]:
        for text in alert["annotations"].values():
            assert not re.search(r"<no value>|error expanding|  | /|\(\)|（）|NaN|Inf", text), text


def test_every_query_of_the_runbooks_is_one(demo):
    for alerts in by_name().values():
        for query in alerts[0].runbook.queries:
            asked(demo, "query", query=query)  # an HTTP error if it is none


def test_what_hpa_and_keda_scale_on_exists_and_is_a_share(demo):
    for rule in RULES:
        until(partial(answered, demo, rule.name))
        values = [float(row["value"][1]) for row in answered(demo, rule.name)]
        assert min(values) >= 0
        assert max(values) < 1.5  # contexts can exceed a limit, by little


# --- what the documentation shows ------------------------------------------------------------------------------------

PAGES = [REPOSITORY / "docs" / name for name in ("alerts.md", "alerts.zh-CN.md")]


def shown(page: Path, kind: str) -> dict:
    blocks = map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", page.read_text(), re.S))
    (found,) = [block for block in blocks if block.get("kind", next(iter(block))) == kind]
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_rules_for_fewer_messages_are_ones_and_name_alerts_that_exist(tmp_path, page):
    needed("amtool", package="prometheus-alertmanager")
    rules = shown(page, "inhibit_rules")
    file = tmp_path / "alertmanager.yml"
    file.write_text(yaml.safe_dump({"route": {"receiver": "hook"}, "receivers": [{"name": "hook"}], **rules}))
    done = subprocess.run(["amtool", "check-config", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(re.findall(r"GPU\w+|Vgpuscope\w+", str(rules))) <= set(by_name())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_autoscaler_that_is_shown_is_one_and_asks_for_what_the_adapter_serves(control_plane, page):
    autoscaler, adapter = shown(page, "HorizontalPodAutoscaler"), shown(page, "rules")["rules"][0]
    control_plane.namespace("serving")
    path = "/apis/autoscaling/v2/namespaces/serving/horizontalpodautoscalers"
    made = control_plane.call("POST", path, autoscaler, params={"dryRun": "All", "fieldValidation": "Strict"})
    assert made["spec"]["metrics"][0]["pods"]["metric"]["name"] == adapter["name"]["as"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_queries_that_are_shown_have_an_answer(demo, page):
    adapter = shown(page, "rules")["rules"][0]
    series = adapter["seriesQuery"].partition("{")[0]
    asks = adapter["metricsQuery"].replace("<<.GroupBy>>", "pod").replace("<<.Series>>", series)
    (trigger,) = shown(page, "ScaledObject")["spec"]["triggers"]
    for query in (asks.replace("<<.LabelMatchers>>", 'namespace="serving"'), trigger["metadata"]["query"]):
        until(partial(answered, demo, query))
