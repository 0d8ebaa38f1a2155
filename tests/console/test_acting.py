"""Acting: with a token, once; what may not be done is not offered."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.console.conftest import Opened
from tests.console.processes import Demo, answer, eventually, running
from tests.console.watched import Watched
from tests.ports import free_port

pytestmark = [pytest.mark.xdist_group("console"), pytest.mark.attack]

TOKEN = "a token of sixteen characters or more"


@contextmanager
def guarded(
    fleet: Demo, tmp_path: Path, *, reads: bool, listen: str | None = None, token: str = TOKEN, more: str = ""
) -> Iterator[str]:
    """An analyzer of which changes need a token, and if `reads` also reading; `more` is of its own section."""
    listen = listen or f"127.0.0.1:{free_port()}"
    settings = tmp_path / "settings.yaml"
    settings.write_text(
        f"analyzer:\n  listen: {listen}\n  targets: {','.join(fleet.agents)}\n  cluster_url: {fleet.cluster}\n"
        f"  api_token: {token}\n  protect_reads: {str(reads).lower()}\n  scrape_interval: 2\n  history: none\n{more}"
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
        expect(watched.page.get_by_role("heading", name="GPUs")).to_be_visible()
        watched.expect("401")  # of a request that was on its way at the log-out
        watched.page.locator(".top .menu").last.get_by_role("button").click()
        watched.page.get_by_role("button", name="Log out").click()
        expect(watched.page.get_by_text("Log in to see this console")).to_be_visible()
        assert watched.page.locator("main table").count() == 0
        watched.page.close()


# why a caller of some namespaces sees no settings
EXPLAINED = {
    "en": "They concern all namespaces, and you see only some.",
    "zh": "设置涉及所有命名空间，而您只能查看其中一部分。",
}


@pytest.mark.parametrize("language", EXPLAINED)
def test_a_user_of_one_namespace_meets_no_error_on_any_page(opened: Opened, fleet: Demo, tmp_path: Path, language: str):
    """Any answer above 399 and any line in the browser's log fails the test."""
    with guarded(fleet, tmp_path, reads=True, more="  api_token_namespaces: [research]\n") as address:
        watched = opened("gpus", at=f"{address}/ui/")
        watched.page.locator("main").get_by_role("button", name="Log in").click()
        watched.page.get_by_label("Token").fill(TOKEN)
        watched.page.get_by_role("dialog").get_by_role("button", name="Log in").click()
        expect(watched.page.get_by_role("heading", name="GPUs")).to_be_visible()
        watched.page.evaluate(f"localStorage.setItem('vgpuscope.language', '{language}')")
        for path in (
            "",
            "gpus",
            "nodes",
            "workloads",
            "idle",
            "idle?view=policy",
            "scheduling",
            "namespaces",
            "events",
        ):
            watched.go(path)
            assert "ml-team/" not in watched.main().inner_text()  # of another namespace
        watched.go("settings")
        expect(watched.page.get_by_text(EXPLAINED[language])).to_be_visible()
        assert watched.failures == []
        watched.page.close()


ENDED = "Your session has ended."


def log_in(watched: Watched, button: Locator) -> None:
    button.click()
    watched.page.get_by_label("Token").fill(TOKEN)
    watched.page.get_by_role("dialog").get_by_role("button", name="Log in").click()
    expect(watched.page.get_by_role("dialog")).to_have_count(0)


def test_a_session_that_expires_is_said_at_once_and_a_table_keeps_its_rows_and_filters(
    opened: Opened, fleet: Demo, tmp_path: Path
):
    with guarded(fleet, tmp_path, reads=True) as address:
        watched = opened("gpus?f.node=hami-a", at=f"{address}/ui/", before=lambda page: page.clock.install())
        log_in(watched, watched.main().get_by_role("button", name="Log in"))
        watched.page.get_by_role("searchbox", name="Search this table").fill("notebook")
        expect(watched.page.locator("main .count")).to_contain_text("1 of")
        rows = watched.column(1)
        watched.expect("401")
        watched.page.context.clear_cookies()  # what the browser does with a cookie that has expired
        watched.page.clock.fast_forward("13:00:00")
        notice = watched.page.get_by_role("alert").filter(has_text=ENDED)
        expect(notice).to_be_visible()
        assert watched.column(1) == rows
        watched.page.get_by_role("link", name="Nodes", exact=True).click()  # the rest of the console works
        expect(watched.main().get_by_role("alert")).to_be_visible()
        watched.page.go_back()
        log_in(watched, notice.get_by_role("button", name="Log in"))
        expect(watched.page.get_by_role("alert")).to_have_count(0)
        expect(watched.page.get_by_role("searchbox", name="Search this table")).to_have_value("notebook")
        expect(watched.page.locator("main .count")).to_contain_text("1 of")
        expect(watched.page).to_have_url(re.compile("q=notebook"))
        expect(watched.page).to_have_url(re.compile("f.node=hami-a"))
        watched.page.close()


@pytest.mark.parametrize("reads", [False, True])
def test_a_form_outlives_its_session_and_is_sent_after_a_new_log_in(
    opened: Opened, fleet: Demo, tmp_path: Path, reads: bool
):
    with guarded(fleet, tmp_path, reads=reads) as address:
        watched = opened("settings", at=f"{address}/ui/")
        log_in(watched, watched.page.get_by_role("button", name="Log in").first)
        high = watched.page.get_by_label("thresholds.high")
        high.fill("57")
        watched.expect("401")
        watched.page.context.clear_cookies()
        watched.page.get_by_role("button", name="Preview").click()
        dialog = watched.page.get_by_role("dialog")
        expect(dialog).to_be_visible()  # asked for at once, since something was to be done
        expect(watched.page.get_by_text(ENDED)).to_be_visible()
        dialog.get_by_role("button", name="Cancel").click()
        expect(high).to_have_value("57")
        high.fill("58")  # the form goes on working
        log_in(watched, watched.page.get_by_role("alert").get_by_role("button", name="Log in"))
        expect(high).to_have_value("58")
        watched.page.get_by_role("button", name="Preview").click()
        expect(watched.page.get_by_text("would be judged differently")).to_be_visible()
        expect(watched.page.get_by_text(ENDED)).to_have_count(0)
        watched.page.close()


def test_a_token_that_is_changed_ends_its_sessions_and_the_old_one_opens_nothing(
    opened: Opened, fleet: Demo, tmp_path: Path
):
    listen = f"127.0.0.1:{free_port()}"
    with guarded(fleet, tmp_path, reads=False, listen=listen) as address:
        watched = opened("settings", at=f"{address}/ui/")
        log_in(watched, watched.page.get_by_role("button", name="Log in").first)
        watched.page.get_by_label("thresholds.high").fill("57")
        watched.expect("401", "ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE", "ERR_EMPTY", "ERR_CONNECTION_RESET")
    with guarded(fleet, tmp_path, reads=False, listen=listen, token="another token of enough characters"):
        watched.page.get_by_role("button", name="Preview").click()
        dialog = watched.page.get_by_role("dialog")
        watched.page.get_by_label("Token").fill(TOKEN)
        dialog.get_by_role("button", name="Log in").click()
        expect(dialog.get_by_role("alert")).to_be_visible()
        watched.page.get_by_label("Token").fill("another token of enough characters")
        dialog.get_by_role("button", name="Log in").click()
        expect(dialog).to_have_count(0)
        expect(watched.page.get_by_label("thresholds.high")).to_have_value("57")
        watched.page.close()
