"""What people do all day: search, sort, filter, choose columns, share links, go back, export, copy, use keys."""

import csv
import io
import json
import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.console.conftest import Opened
from tests.console.processes import Demo, answer, eventually
from tests.console.watched import Watched
from tests.paths import REPOSITORY

pytestmark = pytest.mark.xdist_group("console")


def export(watched: Watched, kind: str) -> str:
    """The file that the export menu of the first table offers."""
    watched.page.get_by_role("button", name="Export").first.click()
    with watched.page.expect_download() as coming:
        watched.page.get_by_role("button", name=re.compile(f"^{kind},")).click()
    return coming.value.path().read_text()


def test_a_click_on_a_heading_sorts_and_a_second_one_turns_the_order(opened: Opened):
    watched = opened("nodes")
    first = watched.column(1)
    heading = watched.page.get_by_role("columnheader", name="Node", exact=True)
    heading.get_by_role("button").click()
    expect(heading).to_have_attribute("aria-sort", "descending")
    eventually(lambda: watched.column(1) == first[::-1])
    expect(watched.page).to_have_url(re.compile("sort=-name"))


def test_values_that_are_not_known_are_last_in_both_orders(opened: Opened):
    watched = opened("nodes?sort=use")
    ascending = watched.column(6)
    watched.go("nodes?sort=-use")
    descending = watched.column(6)
    assert "–" in ascending
    assert ascending[-1] == descending[-1] == "–"
    assert ascending[0] != "–" != descending[0]


def test_search_and_filters_are_in_the_url_and_the_back_button_undoes_them(opened: Opened):
    watched = opened("gpus")
    watched.page.get_by_role("button", name="Node", exact=True).and_(watched.page.locator(".chip")).click()
    watched.page.get_by_role("checkbox", name="hami-a").check()
    expect(watched.page.locator("main .count")).to_have_text(re.compile(r"^4 of \d+ rows$"))
    expect(watched.page).to_have_url(re.compile("f.node=hami-a"))
    watched.page.keyboard.press("Escape")
    watched.page.get_by_role("searchbox", name="Search this table").fill("train-bert")
    expect(watched.page.locator("main .count")).to_have_text(re.compile(r"^1 of \d+ rows$"))
    expect(watched.page).to_have_url(re.compile("q=train-bert"))
    watched.page.go_back()
    expect(watched.page.locator("main .count")).to_have_text(re.compile(r"^\d+ rows$"))


def test_a_link_shows_the_same_rows_to_somebody_else(opened: Opened):
    path = "gpus?f.node=hami-a&f.node=whole-b&q=gpu&sort=-index&cols=node,index"
    watched = opened(path)
    # the fifth GPU of whole-b is cut by MIG: its two instances have rows of their own
    assert watched.column(3) == ["4", "4", "4", "3", "3", "2", "2", "1", "1", "0", "0"]
    assert set(watched.column(2)) == {"hami-a", "whole-b"}
    headings = watched.page.locator("main thead th").all_inner_texts()
    assert [text.strip("↑↓ \n") for text in headings] == ["GPU", "Node", "#"]


def test_columns_are_chosen_kept_in_the_url_and_remembered(opened: Opened):
    watched = opened("nodes")
    watched.page.get_by_role("button", name="Columns").click()
    watched.page.get_by_role("checkbox", name="Agent").uncheck()
    expect(watched.page.get_by_role("columnheader", name="Agent")).to_have_count(0)
    expect(watched.page).to_have_url(re.compile("cols="))
    watched.go("nodes")
    expect(watched.page.get_by_role("columnheader", name="Agent")).to_have_count(0)


def test_exports_have_the_rows_that_are_shown(opened: Opened):
    watched = opened("gpus?f.node=hami-a")
    rows = list(csv.DictReader(io.StringIO(export(watched, "CSV"))))
    assert {row["node"] for row in rows} == {"hami-a"}
    assert len(rows) == 4
    found = json.loads(export(watched, "JSON"))
    assert [row["gpu_id"] for row in found] == [row["gpu_id"] for row in rows]


def test_a_table_is_copied_as_a_command_that_gives_its_rows(opened: Opened, fleet: Demo):
    watched = opened("nodes")
    watched.page.get_by_role("button", name="Export").click()
    watched.page.get_by_role("button", name="Copy as curl").click()
    eventually(lambda: f"{fleet.analyzer}/api/v1/nodes" in watched.copied())
    url = re.fullmatch(r"curl -s '(.*)'", watched.copied())
    assert url
    nodes = answer(url[1])
    assert nodes is not None
    assert sorted(row["name"] for row in nodes["rows"]) == watched.column(1)
    assert url[1].startswith(fleet.analyzer)


def test_a_uuid_is_copied(opened: Opened):
    watched = opened("gpus?f.node=hami-a")
    watched.page.locator("tbody tr").first.hover()
    watched.page.locator("tbody .copy").first.click()
    eventually(lambda: watched.copied().startswith("GPU-"))


def test_the_keyboard_searches_moves_among_rows_and_opens_them(opened: Opened):
    def quiet(page: Page) -> None:
        page.route(re.compile("/api/v1/events"), lambda _: None)  # no event: no row comes or goes meanwhile

    watched = opened("workloads", before=quiet)
    watched.page.keyboard.press("/")
    expect(watched.page.get_by_role("searchbox", name="Search this table")).to_be_focused()
    watched.page.keyboard.type("research/")
    expect(watched.page).to_have_url(re.compile(r"q=research"))
    watched.page.keyboard.press("Escape")
    expect(watched.page).not_to_have_url(re.compile(r"q="))
    expect(watched.page.locator("main .count")).to_have_text(re.compile(r"^\d+ rows$"))
    watched.page.keyboard.press("Escape")
    for key in "jjk":
        watched.page.keyboard.press(key)
    assert watched.page.evaluate("document.activeElement.textContent") == watched.column(1)[0]
    outline = watched.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    for key in "jjgg":
        watched.page.keyboard.press(key)
    expect(watched.page.locator("main tbody tr a").first).to_be_focused()
    watched.page.keyboard.press("Enter")
    expect(watched.page).to_have_url(re.compile(r"/ui/workloads/\w"))


def test_the_first_tab_stop_leads_to_the_content(opened: Opened):
    watched = opened("gpus")
    watched.page.keyboard.press("Tab")
    expect(watched.page.get_by_role("button", name="Skip to the content")).to_be_focused()
    watched.page.keyboard.press("Enter")
    expect(watched.page.locator("main")).to_be_focused()


def test_menus_close_with_escape_and_give_the_focus_back(opened: Opened):
    watched = opened("gpus")
    columns = watched.page.get_by_role("button", name="Columns")
    columns.click()
    expect(columns).to_have_attribute("aria-expanded", "true")
    watched.page.keyboard.press("Escape")
    expect(columns).to_have_attribute("aria-expanded", "false")
    expect(columns).to_be_focused()


AT_ONCE = """async (button) => {
  button.click();
  await Promise.resolve().then(() => {}).then(() => {});  // the page is drawn in a microtask
  const opened = button.ariaExpanded;
  document.dispatchEvent(new KeyboardEvent("keydown", {key: "Escape"}));
  return opened;
}"""


def test_escape_in_the_very_moment_a_menu_opens_is_not_lost(opened: Opened):
    columns = opened("gpus").page.get_by_role("button", name="Columns")
    assert columns.evaluate(AT_ONCE) == "true"
    expect(columns).to_have_attribute("aria-expanded", "false")


def test_the_search_over_everything_finds_pods_gpus_and_nodes(opened: Opened):
    watched = opened("")
    watched.page.get_by_role("combobox").fill("hami-a")
    expect(watched.page.get_by_role("option", name=re.compile("^node"))).to_be_visible()
    watched.page.get_by_role("combobox").fill("notebook-alice")
    watched.page.keyboard.press("Enter")  # before there is an answer
    expect(watched.page).to_have_url(re.compile("/ui/workloads/research/notebook-alice$"))


def test_theme_and_language_are_chosen_and_remembered(opened: Opened):
    watched = opened("nodes")
    watched.page.get_by_role("button", name="Theme and language").click()
    watched.page.get_by_role("radio", name="Dark").check()
    watched.page.get_by_role("radio", name="中文").check()
    watched.go("nodes")
    expect(watched.page.get_by_role("heading", name="节点", exact=True)).to_be_visible()
    assert watched.page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert watched.page.evaluate("getComputedStyle(document.body).color") == "rgb(232, 235, 239)"


def test_my_gpus_show_only_the_namespace_and_its_links_keep_it(opened: Opened):
    watched = opened("?scope=research")
    expect(watched.page.get_by_role("heading", name="My GPUs")).to_be_visible()
    watched.page.get_by_role("link", name="Workloads", exact=True).click()
    expect(watched.page.get_by_role("heading", name="Workloads", level=1)).to_be_visible()
    watched.settled()
    expect(watched.page).to_have_url(re.compile("scope=research"))
    assert all(name.startswith("research/") for name in watched.column(1))
    assert len(watched.column(1)) > 3
    other = [text for text in watched.page.locator("body").all_inner_texts() if "ml-team/" in text]
    assert other == []


def test_the_time_range_is_chosen_and_a_wrong_one_stays_in_its_fields(opened: Opened):
    watched = opened("")
    with watched.page.expect_request(re.compile(r"history/classes\?range=1h")):
        watched.page.get_by_role("button", name="1h").click()
    expect(watched.page).to_have_url(re.compile("range=1h"))
    watched.page.get_by_role("button", name="Custom").click()
    watched.page.get_by_label("From").fill("2026-01-02T10:00")
    watched.page.get_by_label("To", exact=True).fill("2026-01-02T09:00")
    watched.page.get_by_role("button", name="Apply").click()
    expect(watched.page.get_by_text("The end must be after the start.")).to_be_visible()
    expect(watched.page.get_by_label("From")).to_have_value("2026-01-02T10:00")
    watched.page.get_by_label("To", exact=True).fill("2026-01-02T11:30")
    with watched.page.expect_request(re.compile(r"history/classes\?range=90m&end=\d+")):
        watched.page.get_by_role("button", name="Apply").click()
    watched.page.go_back()
    expect(watched.page).to_have_url(re.compile(r"range=1h$"))


def test_a_number_tells_its_definition_source_query_and_age(opened: Opened):
    watched = opened("")
    watched.page.get_by_role("button", name="What is this? Effective use").focus()
    tip = watched.page.get_by_role("tooltip").filter(visible=True)
    expect(tip).to_contain_text("Mean utilisation")
    expect(tip).to_contain_text("Source: Analysis")
    expect(tip).to_contain_text("vgpuscope_analyzer_gpu_utilization_ratio")
    expect(tip).to_contain_text(re.compile(r"Measured \d+ \w+ ago"))


def test_the_map_is_used_by_mouse_and_by_keyboard_and_has_a_table_as_its_twin(opened: Opened):
    watched = opened("")
    canvas = watched.page.locator(".heat canvas")
    canvas.focus()
    watched.page.keyboard.press("ArrowRight")
    expect(watched.page.locator(".tip")).to_contain_text("hami-a · GPU 0")
    watched.page.keyboard.press("Enter")
    expect(watched.page).to_have_url(re.compile("/ui/gpus/GPU-"))
    watched.page.go_back()
    watched.settled()
    watched.page.get_by_text("Show as a table").click()
    expect(watched.page.locator(".twin th[scope=row]")).to_have_text(
        ["hami-a", "mig-c", "sick-e", "slice-d", "whole-b", "worn-f"]
    )
    watched.page.get_by_role("button", name="Model", exact=True).click()
    expect(watched.page).to_have_url(re.compile("group=model"))
    expect(watched.page.locator(".twin th[scope=row]").first).to_have_text("A30")


def test_a_busy_gpu_with_an_idle_tenant_shows_both(opened: Opened):
    watched = opened("gpus?q=notebook-alice")
    assert "busy" in watched.column(4)[0]
    expect(watched.page.locator("main tbody")).to_contain_text("idle")
    watched.go("idle?q=notebook-alice")
    assert watched.column(1) == ["research/notebook-alice"]
    assert "idle" in watched.column(4)[0]
    assert "busy" in watched.column(7)[0]  # the whole GPU, after what the page is about


def test_the_licences_of_the_bundled_software_are_a_click_away(opened: Opened):
    watched = opened("settings")
    watched.expect("favicon")  # a browser asks for it beside a plain text
    watched.page.get_by_role("link", name="Licences of the software").click()
    expect(watched.page).to_have_url(re.compile("/ui/licences.txt$"))
    watched.page.wait_for_load_state()  # the address is there before the whole text
    text = watched.page.locator("body").inner_text()
    packages = json.loads((REPOSITORY / "web" / "package.json").read_text())["dependencies"]
    assert [name for name in packages if f"## {name} - " not in text] == []


def test_behind_a_path_prefix_every_request_keeps_the_prefix(opened: Opened, fleet: Demo):
    prefix = f"{fleet.analyzer}/team/gpu/"
    elsewhere: list[str] = []

    def proxy(route: Route) -> None:
        url = route.request.url
        if not url.startswith(prefix):
            elsewhere.append(url)
        route.continue_(url=url.replace(prefix, f"{fleet.analyzer}/"))

    watched = opened("", at=f"{prefix}ui/", before=lambda page: page.route("**/*", proxy))
    for name in ("GPUs", "Nodes", "Doctor", "Settings"):
        watched.page.get_by_role("link", name=name, exact=True).click()
        watched.settled()
        expect(watched.page.get_by_role("heading", name=name, exact=True, level=1)).to_be_visible()
    watched.go("nodes/hami-a")  # a link from elsewhere, two levels deep
    expect(watched.page.get_by_role("heading", name="hami-a", level=1)).to_be_visible()
    expect(watched.page.locator(".health")).to_contain_text("live")
    assert watched.page.url.startswith(prefix)
    assert elsewhere == []


def test_a_table_that_goes_on_to_the_right_shows_it_until_its_end_is_reached(opened: Opened):
    watched = opened("nodes", width=900)
    frame = watched.page.locator("main .table-frame")
    expect(frame).to_have_class(re.compile(r"\bmore\b"))
    frame.evaluate("(box) => box.scrollTo(box.scrollWidth, 0)")
    expect(frame).not_to_have_class(re.compile(r"\bmore\b"))
    watched.go("nodes?cols=name,state")
    expect(frame).not_to_have_class(re.compile(r"\bmore\b"))
