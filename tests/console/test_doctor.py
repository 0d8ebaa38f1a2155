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
    row = watched.page.locator("tr", has_text="DRIVER_FAILED")
    assert "skipped" in row.inner_text()
    assert "passed" not in row.inner_text()
