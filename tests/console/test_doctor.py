"""The page Doctor on the demo: the chain, findings with cause and fix, and commands to copy."""

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Opened
from tests.console.processes import Demo, answer, eventually

pytestmark = pytest.mark.xdist_group("console")


def test_the_page_shows_the_chain_and_each_finding_with_cause_and_fix(opened: Opened, fleet: Demo):
    watched = opened("doctor")
    report = answer(f"{fleet.analyzer}/api/v1/doctor")
    assert report is not None
    assert len(report["stages"]) == 11
    expect(watched.page.locator(".doctor-chain > li")).to_have_count(11)
    ghost = watched.page.locator("article", has_text="GHOST_ALLOCATION")
    expect(ghost.locator("dt")).to_have_text(["Check", "Cause", "Found", "Fix"])
    assert "warning" in ghost.locator("h3").inner_text()
    ghost.locator(".command .copy, .copy").last.click()
    found = next(one for one in report["findings"] if one["code"] == "GHOST_ALLOCATION")
    eventually(lambda: watched.copied() in found["commands"])


def test_the_page_speaks_chinese(opened: Opened):
    watched = opened("doctor", language="zh")
    assert "诊断" in watched.page.title()
    ghost = watched.page.locator("article", has_text="GHOST_ALLOCATION")
    expect(ghost.locator("dt")).to_have_text(["检查", "原因", "发现", "处理"])


def test_what_was_skipped_is_never_shown_as_passed(opened: Opened):
    watched = opened("doctor")
    watched.page.locator("summary", has_text="Not checked").click()
    row = watched.page.locator("tr", has_text="KUBE_API_DOWN")
    assert "not checked" in row.inner_text()
    assert "passed" not in row.inner_text()


def test_the_page_lists_every_service_that_was_asked(opened: Opened, fleet: Demo):
    watched = opened("doctor")
    rows = watched.page.locator("section", has_text="Services that were asked").locator("tbody tr")
    expect(rows.filter(has_text="Agent")).to_have_count(len(fleet.agents))
    for address in (*fleet.agents, fleet.cluster, fleet.extender):
        expect(rows.filter(has_text=address)).to_contain_text("answered")
    expect(rows.filter(has_text="Device plugin")).to_contain_text("not configured")


def test_a_link_of_the_chain_says_how_many_of_its_checks_were_not_made(opened: Opened, fleet: Demo):
    watched = opened("doctor")
    links = watched.page.locator(".doctor-chain > li")
    report = answer(f"{fleet.analyzer}/api/v1/doctor")
    assert report is not None
    for stage in report["stages"]:
        link = links.filter(has_text=stage["name"]["en"]).first
        ticked = "✓" in link.inner_text()
        assert not ticked or stage["counts"]["pass"] > 3 * stage["counts"]["skipped"]
        if stage["status"] == "partial":
            expect(link).to_contain_text(
                f"partly checked: {stage['counts']['pass']} of {sum(stage['counts'].values())}"
            )
        elif stage["counts"]["skipped"]:
            expect(link).to_contain_text("not checked")
