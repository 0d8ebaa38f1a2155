"""What a pod and a node use beside the GPUs, as the console shows it, against what the node's agent says."""

import json
import re
import urllib.request
from typing import Any

from playwright.sync_api import expect

from tests.console.conftest import Opened
from tests.console.processes import Demo, eventually


def agent_says(fleet: Demo, node: str) -> dict[str, Any]:
    """The sample of a node's agent, asked without the analyzer."""
    for url in fleet.agents:
        with urllib.request.urlopen(f"{url}/api/v1/node", timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
        if found["node"] == node:
            return found
    raise AssertionError(f"no agent of {node}")


def figure(page: Any, title: str) -> str:
    gpu = page.locator(
        ".figures.plain .figure", has=page.get_by_role("button", name=f"What is this? {title}", exact=True)
    )
    return str(gpu.locator(".figure-value").inner_text())


def test_a_pod_that_prepares_data_is_shown_with_its_cpu_and_its_process(opened: Opened, fleet: Demo):
    page = opened("workloads/research/prepare-data-0").page
    page.get_by_role("heading", name="Beside the GPU").wait_for()
    uses = agent_says(fleet, "hami-a")["host"]["containers"]
    (use,) = [one for one in uses if one["key"]["pod"] == "prepare-data-0"]
    assert abs(float(figure(page, "CPU cores")) - use["cpu_cores"]) < 1.0  # it goes on meanwhile
    assert figure(page, "Main memory").startswith(f"{use['memory_working_set'] / 2**30:.0f}")
    assert figure(page, "Throttled") == "–"  # it has no CPU limit
    listed = agent_says(fleet, "hami-a")["processes"]
    (process,) = [one for one in listed if (one["key"] or {}).get("pod") == "prepare-data-0"]
    expect(page.get_by_role("rowheader", name=str(process["pid"]))).to_have_count(1)
    expect(page.get_by_text(re.compile(r"measured ± .*HAMi region")).first).to_be_attached()


def test_a_figure_says_what_it_is_where_it_comes_from_and_how_to_query_it(opened: Opened):
    page = opened("workloads/research/prepare-data-0").page
    sign = page.get_by_role("button", name="What is this? CPU cores")
    sign.focus()
    tip = sign.locator("xpath=following-sibling::*")
    for words in ("CPU cores in use on the node", "Mean over", "Agents"):
        expect(tip).to_contain_text(words)
    expect(tip).to_contain_text("rate(vgpuscope_host_cpu_seconds_total[5m])")


def test_a_node_is_shown_with_its_cpu_memory_and_load(opened: Opened, fleet: Demo):
    page = opened("nodes/whole-b").page
    page.get_by_role("heading", name="The node itself").wait_for()
    node = agent_says(fleet, "whole-b")["host"]["node"]
    expect(page.locator(".figures.plain")).to_contain_text(f"of {node['cpus']} CPUs")
    assert re.fullmatch(r"\d+(\.\d+)? %", figure(page, "CPU"))


def test_a_node_whose_agent_does_not_answer_is_not_shown_with_zeros(opened: Opened, fleet: Demo):
    """worn-f has an exporter that measures GPUs only."""
    page = opened("nodes/worn-f").page
    eventually(lambda: page.get_by_text("CPU, memory and load are not known").count() == 1)
    assert page.locator(".figures.plain").count() == 0
