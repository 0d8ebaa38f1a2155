"""Decisions and `what if` on the scheduling pages: a real browser, a real analyzer, the extender's own API."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Opened
from tests.console.processes import Demo, analyzer, answer, eventually
from tests.console.test_pages import english
from tests.console.watched import Watched
from tests.logic.scheduler.clusters import request as asks
from tests.logic.scheduler.decided import assignment, decision, refusal
from tests.ports import free_port
from tests.services.extender.serving import Served
from tests.services.extender.test_fit_api import api, full
from vgpuscope.logic.scheduler.decision_log import DecisionLog
from vgpuscope.services.extender.decisions_api import DecisionsApi
from vgpuscope.services.extender.idle_workloads import IdleNow, IdleWorkload

pytestmark = pytest.mark.xdist_group("console")


class World(NamedTuple):
    """An analyzer that knows an extender, and the name of a pod that both know."""

    console: str
    namespace: str
    pod: str
    extender: Served


@pytest.fixture(scope="module")
def world(fleet: Demo, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root: Path = tmp_path_factory.mktemp("decisions")
    namespace, pod = "batch", "bind-failed-0"  # it waits for as long as the demo runs; others come and go
    served = Served(lambda: operations(namespace, pod))
    config = root / "analyzer.yaml"
    config.write_text(f"analyzer:\n  extender_url: {served.url}\n")
    listen = f"127.0.0.1:{free_port()}"
    targets = ",".join(fleet.agents)
    try:
        with analyzer(
            listen, targets=targets, cluster=fleet.cluster, history=root / "history.db", config=config
        ) as address:
            eventually(lambda: answer(f"{address}/api/v1/scheduling/{namespace}/{pod}") is not None)
            yield World(f"{address}/ui/", namespace, pod, served)
    finally:
        served.stop()


def operations(namespace, pod):
    """An extender that has refused a pod of the demo, and bound another one."""
    log, now = DecisionLog(), time.time()
    chosen = {"policy": "binpack/spread", "terms": {"slots": 2.5, "cores": 4.0, "memory": 6.0}}
    log.add(assignment(1, at=now - 300, pod="runs", request=asks("runs"), **chosen))
    log.add(decision(2, at=now - 299, pod="runs", outcome="bound", verb="bind", node="gpu-0"))
    wanted = asks(pod, namespace=namespace)
    log.add(refusal(3, at=now - 200, namespace=namespace, pod=pod, nodes=30, request=wanted))
    log.add(refusal(4, at=now - 60, namespace=namespace, pod=pod, nodes=30, request=wanted))
    idle = IdleNow(state="ok", workloads=(IdleWorkload(namespace="other", pod="holds-1"),), age=1.0)
    return (*DecisionsApi(log).operations(), *api(full(), idle=idle, log=log).operations())


def test_the_scheduling_page_lists_decisions_with_outcome_node_and_reason(opened: Opened, world: World):
    watched = opened("scheduling", at=world.console)
    panel = watched.main().locator("section.panel").filter(has=watched.page.get_by_role("heading", name="Decisions"))
    expect(panel.locator("tbody tr")).to_have_count(3)
    first, last = panel.locator("tbody tr").first, panel.locator("tbody tr").last
    expect(first).to_contain_text("Refused ×2")
    expect(first).to_contain_text(f"{world.namespace}/{world.pod}")
    expect(first).to_contain_text("30 nodes")
    expect(last).to_contain_text("Assigned")
    expect(last).to_contain_text("gpu-0")
    expect(last).to_contain_text("12.5")
    assert watched.axe() == []


def test_a_waiting_pod_shows_its_verdicts_and_what_would_make_it_fit(opened: Opened, world: World):
    watched = opened(f"scheduling/{world.namespace}/{world.pod}", at=world.console)
    main = watched.main()
    expect(main).to_contain_text("Last decision")
    expect(main).to_contain_text("1 GPU, 7.8 GiB")
    expect(main.get_by_role("heading", name=re.compile("No GPU has as much free memory")).last).to_be_visible()
    expect(main).to_contain_text("and 10 more nodes")
    expect(main).to_contain_text("It does not fit")
    expect(main).to_contain_text("With 4000 MiB of memory, container main fits on gpu-0.")
    verdicts = main.locator("tr").filter(has_text="GPU memory insufficient (requested 8000MB, available 4000MB)")
    expect(verdicts.filter(has_text="gpu-0, gpu-1, gpu-10, ")).to_have_count(1)  # equal verdicts are one row
    expect(main).to_contain_text("If other/holds-1 (1 idle pod) ended, the pod would fit")
    expect(main).to_contain_text("Earlier decisions")
    assert watched.axe() == []


def test_a_pod_that_only_the_extender_knows_shows_its_choice_and_no_error(opened: Opened, world: World):
    watched = opened("scheduling/ml/runs", at=world.console, settled=False, expected=["404"])
    expect(watched.main()).to_contain_text("12.5 of 30 = slots 2.5 + cores 4 + memory 6")
    expect(watched.main()).to_contain_text("binpack/spread")
    expect(watched.main().locator(".failed")).to_have_count(0)


@pytest.mark.parametrize("width", [390, 1280])
def test_the_form_says_where_a_pod_would_go_by_keyboard_alone(opened: Opened, world: World, width: int):
    watched = opened("scheduling", at=world.console, width=width)
    page = watched.page
    page.get_by_label("Memory of each GPU (MiB)").fill("3000")
    page.get_by_label("Replicas", exact=True).fill("6")
    page.get_by_label("Replicas", exact=True).press("Enter")
    expect(watched.main()).to_contain_text("4 of 6 replicas fit")
    expect(watched.main()).to_contain_text("What would make replica 5 fit")
    assert watched.wider_than_window() <= 0
    assert watched.axe() == []


def test_the_pages_are_complete_in_chinese_and_dark(opened: Opened, world: World):
    watched = opened(f"scheduling/{world.namespace}/{world.pod}", at=world.console, language="zh", theme="dark")
    main = watched.main()
    expect(main).to_contain_text("最近一次决定")
    expect(main).to_contain_text("GPU 显存不足（申请 8000MB，可用 4000MB）")
    expect(main).to_contain_text("容器 main 的显存申请减到 4000 MiB 后，Pod 可调度到 gpu-0。")
    expect(main).to_contain_text("结束 other/holds-1（1 个空闲 Pod）后，Pod 可调度到")
    assert said_in_english(watched) == []
    assert watched.axe() == []
    watched.go("scheduling")
    expect(main).to_contain_text("调度决定")
    expect(main).to_contain_text("这样的 Pod 现在能否调度")
    watched.page.get_by_label("每张 GPU 的显存（MiB）").fill("9000")
    watched.page.get_by_label("副本数", exact=True).fill("6")
    watched.page.get_by_label("副本数", exact=True).press("Enter")
    expect(main).to_contain_text("GPU 显存不足（申请 9000MB，")
    assert said_in_english(watched) == []
    assert watched.axe() == []


def said_in_english(watched: Watched) -> list[str]:
    """English sentences anywhere on the page, also where they are marked as code, but commands to run."""
    cells: list[str] = watched.page.evaluate(
        "() => [...document.querySelectorAll('main p, main li, main td, main th, main h2, main h3, main code')]"
        ".filter((one) => !one.closest('.command, button') && !one.querySelector('code, p, li, td'))"
        ".map((one) => one.textContent)"
    )
    return [text for text in cells if english(text)]


def test_without_an_extender_the_pages_speak_of_no_decisions(opened: Opened, fleet: Demo, tmp_path: Path):
    """The demo's analyzer knows an extender, so another one is asked."""
    listen, targets = f"127.0.0.1:{free_port()}", ",".join(fleet.agents)
    with analyzer(listen, targets=targets, cluster=fleet.cluster, history=tmp_path / "history.db") as address:
        watched = opened("scheduling", at=f"{address}/ui/")
        expect(watched.page.get_by_role("heading", name="Scheduling")).to_be_visible()
        expect(watched.page.get_by_role("heading", name="Decisions")).to_have_count(0)
        expect(watched.page.get_by_role("heading", name="What if")).to_have_count(0)
        watched.page.close()  # it would report that the analyzer is gone


def test_an_extender_that_stops_greys_its_own_panel_only(opened: Opened, world: World):
    watched = opened("scheduling", at=world.console)
    world.extender.stop()
    panel = watched.main().locator("section.panel").filter(has=watched.page.get_by_role("heading", name="Decisions"))
    expect(panel).to_be_visible()

    def greyed() -> bool:
        watched.go("scheduling")
        return panel.get_attribute("class") == "panel stale"

    eventually(greyed)
    expect(watched.main().locator(".notice.warn")).to_contain_text("Scheduler extender: old values are shown")
    expect(watched.main().locator("section.panel.stale")).to_have_count(1)
