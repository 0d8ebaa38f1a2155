"""What the console shows when something is wrong: it says so in place, keeps what it has, and recovers without help."""

import csv
import io
import json
import re
from contextlib import AbstractContextManager, closing
from pathlib import Path
from threading import Event

import pytest
from playwright.sync_api import Page, Route, expect

from tests.console.conftest import Opened
from tests.console.processes import Demo, analyzer, answer, cluster_exporter, eventually
from tests.console.test_habits import export
from tests.ports import free_port
from vgpuscope.sim.demo import STOPPED

pytestmark = pytest.mark.xdist_group("console")

_LIVE = 120_000  # ms
MARKUP = '<img src=x onerror="window.hacked = true">'


def test_a_workload_that_is_deleted_and_created_again_is_seen_without_a_reload(opened: Opened, fleet: Demo):
    """Node → agent → analyzer → event → page. The timer is off: each analysis is announced by a server-sent event."""
    node, pods = opened("nodes/hami-a"), opened("workloads?q=embed-api-0")
    for watched in (node, pods):
        expect(watched.page.locator(".health")).to_contain_text("live")
        expect(watched.main()).to_contain_text("embed-api-0")
        watched.page.evaluate("window.loadedOnce = true")
    stopped = fleet.root / STOPPED
    try:
        stopped.write_text("serving/embed-api-0\n")
        row = node.main().get_by_role("row").filter(has_text="embed-api-0")
        expect(row).to_have_count(0, timeout=_LIVE)
        expect(node.main()).to_contain_text("train-bert")
        expect(pods.page.get_by_text("No row matches")).to_be_visible(timeout=_LIVE)
    finally:
        stopped.unlink()
    expect(row).to_have_count(1, timeout=_LIVE)
    expect(pods.page.locator("main tbody")).to_contain_text("embed-api-0", timeout=_LIVE)
    assert all(watched.page.evaluate("window.loadedOnce") for watched in (node, pods))


def test_a_stopped_analyzer_leaves_old_data_greyed_with_its_age_and_the_console_recovers(
    opened: Opened, fleet: Demo, tmp_path: Path
):
    listen = f"127.0.0.1:{free_port()}"

    def own() -> AbstractContextManager[str]:
        targets = ",".join(fleet.agents)
        return analyzer(listen, targets=targets, cluster=fleet.cluster, history=tmp_path / "history.db")

    with own() as address:
        eventually(lambda: _nodes(address) == _nodes(fleet.analyzer))  # it has just started
        watched = opened("nodes", at=f"{address}/ui/", refresh=15)
        names = watched.column(1)
        assert "hami-a" in names
        watched.expect("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE", "ERR_EMPTY", "ERR_CONNECTION_RESET", "50[0-9] ")
    watched.page.get_by_role("button", name="Refresh").click()
    watched.page.get_by_role("button", name="Refresh now").click()
    expect(watched.page.get_by_role("alert")).to_contain_text(
        re.compile(r"does not answer. The data below is \d+ (s|min) old")
    )
    assert watched.column(1) == names
    assert float(watched.page.evaluate("getComputedStyle(document.querySelector('.stale-data > *')).opacity")) < 1
    with own():
        expect(watched.page.get_by_role("alert")).to_have_count(0, timeout=120_000)
        expect(watched.page.locator(".stale-data")).to_have_count(0)
        expect(watched.page.locator("main .table-frame tbody")).to_contain_text("hami-a", timeout=_LIVE)


def test_a_stopped_cluster_exporter_greys_its_own_panels_and_nothing_else(opened: Opened, fleet: Demo, tmp_path: Path):
    cluster = f"127.0.0.1:{free_port()}"
    listen = f"127.0.0.1:{free_port()}"
    with cluster_exporter(fleet.root / "kubeconfig", cluster) as exporter:
        started = analyzer(listen, targets=",".join(fleet.agents), cluster=exporter, history=tmp_path / "history.db")
        address = started.__enter__()  # goes on after the exporter
        eventually(lambda: _part(address, "cluster") == "ok")
    try:
        eventually(lambda: _part(address, "cluster") in ("down", "stale"))
        watched = opened("gpus", at=f"{address}/ui/")
        expect(watched.page.get_by_text("Cluster exporter")).to_be_visible()
        row = watched.page.locator("main tbody tr").first
        assert float(row.locator("td.old").first.evaluate("(cell) => getComputedStyle(cell).opacity")) < 1
        assert row.locator("td:not(.old)").count() > 5
        watched.go("")
        expect(watched.page.locator(".figure.stale")).to_have_count(2)
        expect(watched.page.locator(".figure:not(.stale)")).to_have_count(6)
        watched.page.close()
    finally:
        started.__exit__(None, None, None)


def test_without_a_cluster_exporter_nothing_is_said_of_what_only_it_knows(opened: Opened, fleet: Demo, tmp_path: Path):
    """An empty list of findings or quotas would say that there are none."""
    nobody, listen = f"http://127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    history = tmp_path / "history.db"
    with analyzer(listen, targets=",".join(fleet.agents), cluster=nobody, history=history) as address:
        eventually(lambda: {"hami-a", "whole-b"} <= _nodes(address))
        watched = opened("nodes/hami-a", at=f"{address}/ui/")
        # allocated, what still fits, findings
        expect(watched.page.get_by_text("needs the cluster exporter", exact=True)).to_have_count(3)
        expect(watched.main()).not_to_contain_text("not registered with a scheduler")
        expect(watched.main()).not_to_contain_text("There are no findings")
        watched.go("namespaces/ml-team")
        expect(watched.main()).to_contain_text("needs the cluster exporter")
        expect(watched.main()).not_to_contain_text("No quota limits GPUs")
        watched.go("namespaces")
        expect(watched.main().get_by_role("row").filter(has_text="ml-team")).not_to_contain_text("no limit")
        rows = (answer(f"{address}/api/v1/gpus") or {"rows": []})["rows"]
        watched.go(f"gpus/{next(row['gpu_id'] for row in rows if row['node'] == 'hami-a')}")
        expect(watched.main()).to_contain_text("needs the cluster exporter")
        expect(watched.main()).not_to_contain_text("allocated by the node's device plugin")
        watched.page.close()


def test_hours_that_are_not_stored_are_not_reported_as_none(opened: Opened):
    def without_history(route: Route) -> None:
        answered = route.fetch().json()
        route.fulfill(json={**answered, **({"history": False, "rows": []} if "rows" in answered else {"waste": None})})

    def in_between(page: Page) -> None:
        page.route(re.compile("/api/v1/(waste|overview)"), without_history)

    watched = opened("idle", before=in_between)
    expect(watched.main()).to_contain_text("No history for this range")
    expect(watched.main()).not_to_contain_text("No idle GPU-hours are recorded")
    watched.go("")
    expect(watched.main()).to_contain_text("GPUs without known faults")
    expect(watched.main()).not_to_contain_text("No idle GPU-hours are recorded")


def _nodes(address: str) -> set[str]:
    return {row["name"] for row in (answer(f"{address}/api/v1/nodes") or {"rows": []})["rows"]}


def _part(address: str, name: str) -> str | None:
    parts = answer(f"{address}/api/v1/parts")
    return None if parts is None else next((one["state"] for one in parts["parts"] if one["name"] == name), None)


def test_an_empty_cluster_says_why_and_what_to_do(opened: Opened, tmp_path: Path):
    nobody = f"http://127.0.0.1:{free_port()}"
    listen = f"127.0.0.1:{free_port()}"
    with analyzer(listen, targets=nobody, cluster=nobody, history=tmp_path / "history.db") as address:
        watched = opened("", at=f"{address}/ui/")
        with closing(watched.page):  # before its analyzer ends, also if a check fails
            for path in ("", "gpus"):
                watched.go(path)
                expect(watched.page.get_by_text("No GPU is known yet")).to_be_visible()
                expect(watched.page.locator("main .command code").first).to_contain_text("kubectl")
                expect(watched.page.get_by_role("link", name="Find the cause on the Doctor page").first).to_be_visible()
            watched.go("workloads")
            expect(watched.page.get_by_text("No pod has a GPU")).to_be_visible()
            watched.go("idle")
            expect(watched.page.get_by_text("No tenant is proven idle")).to_be_visible()
            assert watched.axe() == []
            watched.page.get_by_role("link", name="Find the cause on the Doctor page").first.click()
            expect(watched.page.get_by_role("heading", name="Doctor", exact=True)).to_be_visible()


@pytest.mark.attack
def test_markup_in_the_name_of_a_pod_is_shown_as_text_and_its_export_starts_no_formula(opened: Opened):
    def rename(body):
        body["rows"] = body["rows"][:2]
        body["rows"][0] |= {"pod": MARKUP, "namespace": "a"}
        body["rows"][1] |= {"pod": "b", "namespace": "=HYPERLINK(1)", "owner": "@SUM(A1)"}

    watched = opened("nodes")
    watched.changed("workloads", rename)
    watched.page.get_by_role("link", name="Workloads", exact=True).click()
    expect(watched.page.locator("main tbody")).to_contain_text(MARKUP)
    cells = [cell for row in csv.reader(io.StringIO(export(watched, "CSV"))) for cell in row]
    assert [cell for cell in cells if cell.startswith(("=", "@", "+"))] == []
    assert "'=HYPERLINK(1)/b" in cells
    watched.expect("404")
    watched.page.get_by_role("link", name=re.compile("img src")).click()
    expect(watched.page.get_by_role("heading", name=re.compile("img src"))).to_be_visible()
    assert watched.page.evaluate("window.hacked") is None
    assert watched.page.locator("main img").count() == 0


def test_a_slow_answer_is_a_skeleton_and_the_rest_of_the_page_is_there(opened: Opened):
    held: list[Route] = []
    free = Event()

    def hold(route: Route) -> None:
        if free.is_set():
            route.continue_()
        else:
            held.append(route)

    pattern = re.compile("/api/v1/history/classes")
    watched = opened("", before=lambda page: page.route(pattern, hold), settled=False)
    expect(watched.page.locator(".skeleton")).to_have_count(1)
    expect(watched.page.get_by_text("GPUs without known faults")).to_be_visible()
    expect(watched.page.locator(".heat canvas")).to_be_visible()
    watched.page.get_by_role("button", name="Refresh").click()
    watched.page.get_by_role("button", name="Refresh now").click()  # the page asks again, as after an event
    free.set()
    for route in held:  # the first is cancelled; the newest is the one that counts
        route.continue_()
    expect(watched.page.locator(".skeleton")).to_have_count(0)
    expect(watched.page.locator(".chart").first).to_be_visible()


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (200, '{"rows": [{"gpu_id": "GPU-', "The answer was cut off."),
        (200, "", "The answer was cut off."),
        (500, '{"error": {"code": "INTERNAL", "message": "it broke", "hint": "Report it."}}', "it broke"),
        (502, "<html>Bad gateway</html>", "The request was refused."),
    ],
)
def test_a_bad_answer_is_reported_in_its_place_and_can_be_tried_again(
    opened: Opened, status: int, body: str, says: str
):
    pattern = re.compile("/api/v1/history/classes")

    def broken(page: Page) -> None:
        page.route(re.compile("/api/v1/events"), lambda _: None)  # no event: only the button reads again
        page.route(pattern, lambda route: route.fulfill(status=status, body=body))

    watched = opened("", before=broken, settled=False, expected=[r"\b50[02]\b"])
    expect(watched.page.get_by_role("alert")).to_contain_text(says)
    expect(watched.page.get_by_text("GPUs without known faults")).to_be_visible()
    expect(watched.page.locator(".heat canvas")).to_be_visible()
    watched.page.unroute(pattern)
    watched.page.get_by_role("button", name="Try again").click()
    expect(watched.page.get_by_role("alert")).to_have_count(0)
    expect(watched.page.locator(".chart").first).to_be_visible()


def test_an_answer_of_another_shape_stays_within_its_page(opened: Opened):
    def odd(page: Page) -> None:
        page.route(re.compile(r"/api/v1/nodes\?"), lambda route: route.fulfill(status=200, body='{"surprise": 1}'))

    watched = opened("nodes", before=odd, settled=False)
    expect(watched.page.get_by_text("This could not be loaded")).to_be_visible()
    watched.page.get_by_role("link", name="GPUs", exact=True).click()
    expect(watched.page.get_by_role("heading", name="GPUs", level=1)).to_be_visible()
    watched.settled()
    assert len(watched.column(1)) > 10


@pytest.mark.parametrize(
    "query",
    [
        "sort=nowhere&f.nowhere=1&cols=nowhere",
        "range=99y&from=x&to=y&zoom=huge&group=%00",
        "scope=&by=moon&mig=%3Cb%3E",
    ],
)
def test_wrong_parameters_are_ignored(opened: Opened, query: str):
    watched = opened(f"?{query}")
    watched.go(f"gpus?{query}")
    expect(watched.page.locator("main .count")).to_have_text(re.compile(r"^2\d rows$"))


def test_objects_that_do_not_exist_are_said_to_be_missing(opened: Opened):
    watched = opened("nowhere/at/all")
    expect(watched.page.get_by_text("Page not found")).to_be_visible()
    watched.expect("404")
    watched.go("gpus/GPU-none")
    expect(watched.page.get_by_role("alert")).to_contain_text("The last analysis does not have it.")
    watched.page.get_by_role("link", name="Go to the list").click()
    watched.settled()
    assert len(watched.column(1)) > 10


def test_a_pod_that_ended_still_has_its_charts(opened: Opened):
    watched = opened("workloads/ml-team/ablation-7", expected=["404"], settled=False)
    expect(watched.page.get_by_role("alert")).to_contain_text("It may have ended")
    expect(watched.page.locator(".chart").first).to_be_visible()


def test_a_pod_on_a_shared_gpu_has_its_part_of_the_power(opened: Opened):
    watched = opened("workloads/research/notebook-alice")
    power = watched.page.locator("section.panel", has=watched.page.get_by_role("heading", name="Power"))
    expect(power.get_by_role("figure")).to_have_count(1)
    expect(power).to_contain_text("kWh")
    expect(power.get_by_role("link")).to_have_count(0)


def test_ten_thousand_gpus_are_searched_and_only_the_visible_rows_are_drawn(opened: Opened, fleet: Demo):
    gpus = answer(f"{fleet.analyzer}/api/v1/gpus")
    assert gpus is not None
    kinds = gpus["rows"]
    gpus["rows"] = [
        kinds[number % len(kinds)]
        | {"gpu_id": f"GPU-{number:08d}-0000", "node": f"node-{number // 8}", "mig": None, "tenants": []}
        for number in range(10_000)
    ]
    body = json.dumps(gpus)

    def many(page: Page) -> None:
        page.route(re.compile(r"/api/v1/gpus\?"), lambda route: route.fulfill(body=body))
        page.route(re.compile("/api/v1/events"), lambda _: None)  # never answered: the rows are read once

    watched = opened("gpus", before=many)
    assert watched.count() == "10,000 rows"
    assert len(watched.column(1)) < 100
    watched.page.locator("main .table-frame").evaluate("(frame) => frame.scrollTo(0, frame.scrollHeight)")
    expect(watched.page.locator("tr[aria-rowindex='10001']")).to_be_visible()
    watched.page.get_by_role("searchbox", name="Search this table").fill("GPU-00000042")
    expect(watched.page.locator("main .count")).to_have_text("1 of 10,000 rows")
    watched.go("")
    expect(watched.page.locator(".heat canvas")).to_be_visible()
    assert watched.wider_than_window() == 0
