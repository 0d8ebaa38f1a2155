"""Acting: with a token, once; what may not be done is not offered."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Opened
from tests.console.processes import Demo, answer, eventually, running
from tests.ports import free_port

pytestmark = [pytest.mark.xdist_group("console"), pytest.mark.attack]

TOKEN = "a token of sixteen characters or more"


@contextmanager
def guarded(fleet: Demo, tmp_path: Path, *, reads: bool) -> Iterator[str]:
    """An analyzer of which changes need a token, and if `reads` also reading."""
    listen = f"127.0.0.1:{free_port()}"
    settings = tmp_path / "settings.yaml"
    settings.write_text(
        f"analyzer:\n  listen: {listen}\n  targets: {','.join(fleet.agents)}\n  cluster_url: {fleet.cluster}\n"
        f"  api_token: {TOKEN}\n  protect_reads: {str(reads).lower()}\n  scrape_interval: 2\n  history: none\n"
        "prometheus:\n  step: 2\n  time_window_min: 1\n  query_condition: '{}'\nscheduler:\n  interval: 3600\n"
    )
    with running("vgpuscope", "analyzer", "--config", str(settings)):
        address = f"http://{listen}"
        eventually(lambda: answer(f"{address}/api/v1/session") is not None)
        yield address


def test_who_may_only_read_is_offered_nothing_else(opened: Opened, fleet: Demo, tmp_path: Path):
    with guarded(fleet, tmp_path, reads=False) as address:
        watched = opened("settings", at=f"{address}/ui/")
        expect(watched.page.get_by_text("Log in to try and change settings.")).to_be_visible()
        assert watched.page.get_by_role("button", name="Analyse now").count() == 0
        assert watched.page.get_by_role("spinbutton").count() == 0
        watched.page.close()


def test_a_token_is_given_once_and_opens_what_it_may_do_until_the_log_out(opened: Opened, fleet: Demo, tmp_path: Path):
    with guarded(fleet, tmp_path, reads=False) as address:
        watched = opened("settings", at=f"{address}/ui/")
        watched.expect("401")
        watched.page.get_by_role("button", name="Log in").click()
        watched.page.get_by_label("Token").fill("a wrong token of enough characters")
        watched.page.get_by_role("dialog").get_by_role("button", name="Log in").click()
        expect(watched.page.get_by_role("alert")).to_be_visible()
        expect(watched.page.get_by_label("Token")).to_have_value("a wrong token of enough characters")
        watched.page.get_by_label("Token").fill(TOKEN)
        watched.page.get_by_role("dialog").get_by_role("button", name="Log in").click()
        expect(watched.page.get_by_role("dialog")).to_have_count(0)

        watched.page.get_by_role("button", name="Analyse now").click()
        watched.page.get_by_role("dialog").get_by_role("button", name="Analyse now").click()
        expect(watched.page.get_by_role("status").filter(has_text="has started")).to_be_visible()

        high = watched.page.get_by_label("thresholds.high")
        high.fill("55")
        watched.page.get_by_role("button", name="Preview").click()
        expect(watched.page.get_by_text("would be judged differently")).to_be_visible()
        watched.page.get_by_role("button", name="Apply").click()
        dialog = watched.page.get_by_role("dialog")
        expect(dialog).to_contain_text("thresholds.high = 55")
        dialog.get_by_role("button", name="Apply").click()
        expect(watched.page.get_by_text("not in effect yet")).to_have_count(0)
        config = answer(f"{address}/config")
        assert config is not None
        assert config["thresholds"]["high"] == 55

        assert TOKEN not in watched.page.url
        kept = watched.page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])")
        assert TOKEN not in kept
        assert "session" not in watched.page.evaluate("document.cookie")

        watched.page.locator(".top .menu").last.get_by_role("button").click()
        watched.page.get_by_role("button", name="Log out").click()
        expect(watched.page.get_by_text("Log in to try and change settings.")).to_be_visible()
        assert watched.page.get_by_role("button", name="Analyse now").count() == 0
        watched.page.close()


def test_where_reading_needs_a_log_in_nothing_is_asked_for_before_it(opened: Opened, fleet: Demo, tmp_path: Path):
    with guarded(fleet, tmp_path, reads=True) as address:
        watched = opened("gpus", at=f"{address}/ui/")
        expect(watched.page.get_by_text("Log in to see this console")).to_be_visible()
        assert watched.failures == []
        watched.page.locator("main").get_by_role("button", name="Log in").click()
        watched.page.get_by_label("Token").fill(TOKEN)
        watched.page.get_by_role("dialog").get_by_role("button", name="Log in").click()
        expect(watched.page.get_by_role("heading", name="GPUs")).to_be_visible()
        watched.go("gpus?f.node=hami-a")  # the session outlives a reload
        watched.page.get_by_role("searchbox", name="Search this table").fill("notebook")
        watched.page.context.clear_cookies()
        watched.page.get_by_role("button", name="Refresh").click()
        watched.expect("401")
        watched.page.get_by_role("button", name="Refresh now").click()
        expect(watched.page.get_by_text("Log in to see this console")).to_be_visible()
        assert "q=notebook" in watched.page.url
        watched.page.close()
