"""What is in sight, measured in the document: at 1,280 px what a page is about, at 390 px nothing beside the window."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.console.conftest import Opened
from tests.console.processes import Demo, answer
from tests.console.test_pages import PAGES, names
from tests.console.watched import Watched

__all__ = ["names"]
pytestmark = pytest.mark.xdist_group("console")

# Headings and cells of which a part is hidden: right of their box, or cut off within themselves. A table with a toolbar
# may go on to the right, but for the columns that its page is about; a short one is whole.
_HIDDEN = """() => [...document.querySelectorAll('main .table-frame, main .scroll')]
  .filter((box) => box.checkVisibility({contentVisibilityAuto: true}) && box.querySelector('thead'))
  .flatMap((box) => {
    const right = box.getBoundingClientRect().right;
    const name = box.dataset.table ?? '';
    const cut = (cell) => [cell, ...cell.querySelectorAll('*')].some((one) =>
      getComputedStyle(one).overflowX !== 'visible' &&
      (one.scrollWidth > one.clientWidth + 1 || one.scrollHeight > one.clientHeight + 2));
    return [...box.querySelectorAll('table')].flatMap((table) =>
      [...table.querySelectorAll('thead th')].flatMap((heading, at) => {
        if (box.classList.contains('table-frame') && !('main' in heading.dataset)) return [];
        const cells = [...table.querySelectorAll(`tbody tr > :nth-child(${at + 1})`)];
        const title = `${name}: ${heading.innerText.split('\\n')[0]}`;
        return [
          ...(heading.getBoundingClientRect().right > right + 1 ? [`${title} is out of sight`] : []),
          ...cells.filter(cut).map((cell) => `${title} is cut: ${cell.innerText}`),
        ];
      }));
  })"""
_FIRST = """(box) => {
    box.scrollTo(box.scrollWidth, 0);
    const cell = box.querySelector('tbody tr[aria-rowindex] td');
    const [frame, first] = [box.getBoundingClientRect(), cell.getBoundingClientRect()];
    return {moved: box.scrollLeft, left: first.left - frame.left};
}"""


def hidden(watched: Watched) -> list[str]:
    texts: list[str] = watched.page.evaluate(_HIDDEN)
    return texts


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_is_about_is_in_sight(opened: Opened, names: dict[str, str], name: str, language: str):
    watched = opened(PAGES[name].format(**names), language=language, width=1280)
    expect(watched.page.locator("main h1")).to_have_count(1)
    assert hidden(watched) == []
    for fold in watched.page.locator("main details.fold > summary").all():
        fold.click()
    assert hidden(watched) == []
    watched.page.set_viewport_size({"width": 390, "height": 800})
    assert watched.wider_than_window() == 0


# Fields of answers that hold names which users choose, and how long Kubernetes lets them be.
_LONGEST = {
    **dict.fromkeys(["node", "nodes", "pod", "pods", "owner", "actor", "by", "model", "models", "scheduler"], 253),
    **dict.fromkeys(["namespace", "namespaces", "container"], 63),
}


def lengthened(answer: Any, field: str = "") -> Any:
    """The answer with names as long as they may be, without a place to break them."""
    match answer:
        case dict():
            return {key: lengthened(value, key) for key, value in answer.items()}
        case list():
            return [lengthened(value, field) for value in answer]
        case str() if answer and field in _LONGEST:
            return answer.ljust(_LONGEST[field], "x")
    return answer


def with_long_names(page: Page) -> None:
    def lengthen(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, json=lengthened(response.json()))

    page.route(re.compile(r"/api/v1/(?!session|events)"), lengthen)


@pytest.mark.parametrize("name", PAGES)
def test_no_name_is_so_long_that_it_pushes_what_a_page_is_about_out_of_sight(
    opened: Opened, names: dict[str, str], name: str
):
    watched = opened(PAGES[name].format(**names), width=1280, before=with_long_names)
    assert [text for text in hidden(watched) if text.endswith("out of sight")] == []
    assert watched.wider_than_window() == 0
    watched.page.set_viewport_size({"width": 390, "height": 800})
    assert watched.wider_than_window() == 0


def test_a_name_that_is_cut_off_is_whole_on_hover(opened: Opened):
    watched = opened("gpus", width=1280, before=with_long_names)
    cell = watched.page.locator("main tbody tr[aria-rowindex]").first.locator("td").nth(1)
    cell.hover()
    expect(cell).to_have_attribute("title", re.compile(r"^[a-z]+-[a-z]x{200,}$"))


def test_a_wide_table_moves_below_its_first_column(opened: Opened):
    watched = opened("gpus", width=1280)
    measured: dict[str, Any] = watched.page.locator("main .table-frame").evaluate(_FIRST)
    assert measured["moved"] > 100
    assert abs(measured["left"]) <= 1


def test_a_uuid_is_short_and_whole_on_hover(opened: Opened, fleet: Demo):
    gpus = answer(f"{fleet.analyzer}/api/v1/gpus?limit=1")
    assert gpus is not None
    uuid = gpus["rows"][0]["gpu_id"]
    link = opened(f"gpus?q={uuid}").page.locator("main tbody .gpu-link a").first
    expect(link).to_have_text(f"{uuid[:12]}…")
    assert uuid in str(link.get_attribute("title")) or gpus["rows"][0]["mig"] == link.get_attribute("title")


def test_a_moment_names_its_zone(opened: Opened):
    watched = opened("events")
    expect(watched.page.locator("main .sub")).to_contain_text("UTC")
    watched.go("audit")
    for text in watched.column(1):
        assert text.endswith("UTC")
    watched.go("nodes/hami-a")
    expect(watched.page.locator("main .chart").first).to_contain_text("UTC")


def test_the_user_of_this_machine_has_a_name_in_both_languages(opened: Opened):
    expect(opened("nodes").page.locator("header.top .user")).to_have_text("this machine")
    expect(opened("nodes", language="zh").page.locator("header.top .user")).to_have_text("本机")


def test_the_page_of_a_pod_shows_who_else_is_on_its_gpu(opened: Opened, fleet: Demo):
    gpus = answer(f"{fleet.analyzer}/api/v1/gpus")
    assert gpus is not None
    shared = next(row for row in gpus["rows"] if any(one["pod"] == "notebook-alice" for one in row["tenants"]))
    watched = opened("workloads/research/notebook-alice")
    beside = watched.page.locator("main .neighbours")
    expect(beside).to_contain_text("train-bert-0")
    expect(beside).not_to_contain_text("notebook-alice")
    assert len(shared["tenants"]) > 1


def test_doctor_and_settings_fold_what_needs_nobody(opened: Opened):
    watched = opened("doctor")
    passed = watched.page.locator("details.fold", has_text="Passed")
    expect(passed.locator("tbody tr").first).to_be_hidden()
    passed.locator("summary").click()
    expect(passed.locator("tbody tr").first).to_be_visible()
    watched.go("settings")
    plain = watched.page.locator("tr", has_text="max_age_intervals")
    default = watched.page.locator("tr", has_text="session_lifetime")
    expect(plain).to_be_visible()  # it can be changed here
    expect(default).to_be_hidden()
    watched.page.get_by_role("searchbox", name="Search").last.fill("session_lifetime")
    expect(default).to_be_visible()
