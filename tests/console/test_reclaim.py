"""Idle & reclaim, the audit log, the opinion of a model: what is shown, who may act, what an older analyzer lacks."""

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from playwright.sync_api import Locator, Request, Route, expect

from tests.console.conftest import Opened
from tests.console.processes import Demo, answer, eventually, idle_case
from tests.console.test_acting import guarded
from tests.console.test_pages import english, texts
from tests.console.watched import Watched
from tests.paths import REPOSITORY
from vgpuscope.model.reclaim import BRAKES, STATES, Action

pytestmark = pytest.mark.xdist_group("console")

NOW = 1_800_000_000.0


def case(state: str, **changes: Any) -> dict[str, Any]:
    """A case as the API sends it."""
    share = {
        "gpu_id": "GPU-0a1b2c3d-0000-0000-0000-000000000000",
        "mig": "",
        "hostname": "node-1",
        "model": "NVIDIA H100",
        "score": 3.2,
        "status": "idle",
        "verdict": "idle",
        "use_class": "idle-held",
        "coverage": 1.0,
        "idle_since": NOW - 9000,
    }
    return {
        "id": f"uid-{state}",
        "state": state,
        "namespace": "research",
        "pod": f"pod-{state}",
        "pod_uid": f"uid-{state}",
        "owner": None,
        "gpu_ids": [share["gpu_id"]],
        "since": NOW - 60,
        "next_at": None,
        "idle_since": NOW - 9000,
        "confirmations": 1,
        "held_by": [],
        "reason": "",
        "by": None,
        "dry_run": False,
        "notified_at": None,
        "acted_at": None,
        "evidence": [share],
    } | changes


def cases(watched: Watched, *rows: dict[str, Any], **changes: Any) -> None:
    """From now on, the analyzer has these cases."""
    watched.changed("reclaim", lambda body: body | {"total": len(rows), "cases": list(rows)} | changes)


def row_of(watched: Watched, pod: str) -> Locator:
    return watched.page.locator("main .table-frame tbody tr").filter(has_text=pod)


# ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_state_brake_and_action_of_the_model_has_words():
    words = (REPOSITORY / "web" / "src" / "words" / "en.ts").read_text()
    wanted = [f"case_state.{one}" for one in STATES] + [f"case_about.{one}" for one in STATES]
    wanted += [f"brake.{one}" for one in BRAKES] + [f"policy_action.{one}" for one in get_args(Action)]
    assert [key for key in wanted if f'"{key}":' not in words] == []


def test_every_reason_that_the_machine_gives_has_words():
    words = (REPOSITORY / "web" / "src" / "words" / "en.ts").read_text()
    source = (REPOSITORY / "src" / "vgpuscope" / "logic" / "reclaim" / "machine.py").read_text()
    reasons = set(re.findall(r'reason="(\w+)"', source)) | {
        "works_again",
        "holds_memory",
        "ended",
        "dry_run",
        "decided",
    }
    assert len(reasons) > 10
    assert [one for one in sorted(reasons) if f'"case_reason.{one}":' not in words] == []


# ── cases ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_case_has_its_state_its_countdown_what_holds_it_back_and_the_actions_of_that_state(opened: Opened):
    rows = [
        case("candidate", held_by=["protected_namespace", "stop"]),
        case("grace", next_at=4_000_000_000),
        case("awaiting_approval"),
        case("would_act", dry_run=True, acted_at=NOW, held_by=["dry_run"]),
        case("verified", acted_at=NOW),
        case("exempt", by="alice"),
    ]
    watched = opened("idle?view=cases", before=lambda page: None, settled=False)
    cases(watched, *rows)
    watched.go("idle?view=cases")
    candidate = row_of(watched, "pod-candidate")
    expect(candidate).to_contain_text("1 of 2 windows")
    expect(candidate).to_contain_text("The namespace is protected. +1")
    expect(row_of(watched, "pod-grace")).to_contain_text("would act in")  # the demo is a dry run
    expect(row_of(watched, "pod-would_act")).to_contain_text("would act (dry run)")
    offered = {
        pod: row_of(watched, f"pod-{pod}").get_by_role("button").all_inner_texts()
        for pod in ("candidate", "awaiting_approval", "would_act", "verified", "exempt")
    }
    assert offered == {
        "candidate": ["Snooze", "Exempt"],
        "awaiting_approval": ["Approve", "Snooze", "Exempt"],
        "would_act": ["Snooze", "Exempt"],  # a dry run took nothing, so nothing can be put back
        "verified": ["Restore"],
        "exempt": ["Resume"],
    }
    assert watched.column(1)[:4] != []
    assert not any("verified" in name or "exempt" in name for name in watched.column(1)[:4])  # open cases come first


GIB = 2**30


def test_the_tiles_of_idle_memory_are_the_sums_of_their_columns_and_the_rest_is_named(opened: Opened):
    """Every idle tenant has a number of its own, so that a tenant that is missing or counted twice changes the sum."""
    shown: dict[str, Any] = {}

    def numbered(body: dict[str, Any]) -> dict[str, Any]:
        if not shown:
            shown.update(body)
            for at, tenant in enumerate(idle_tenants(shown)):
                tenant |= {"memory_used": 2**at * GIB, "memory_allocated": 3 * 2**at * GIB, "pod_uid": f"uid-{at}"}
        return shown

    watched = opened("idle", before=lambda page: None, settled=False)
    watched.changed("gpus", numbered)
    held = {"brake": "holds_memory", "setting": "reclaim.include_held", "value": "false"}
    left = case("candidate", pod_uid="uid-1", held_by=["holds_memory"], brakes=[held], actionable=False)
    cases(watched, case("would_act", pod_uid="uid-0", held_by=["dry_run"], actionable=True), left)
    watched.go("idle")
    rows = len(idle_tenants(shown))
    assert rows > 2

    def tile(name: str) -> Locator:
        return watched.page.locator(f'[data-figure="fleet.idle_memory_{name}"]')

    expect(tile("allocated")).to_have_text(f"{3 * (2**rows - 1)} GiB")
    expect(tile("used")).to_have_text(f"{2**rows - 1} GiB")
    expect(tile("actionable")).to_have_text("3 GiB")
    named = watched.page.locator(".panel").filter(has_text="Why the policy leaves idle tenants alone")
    expect(named).to_contain_text("1 tenant, 2 GiB used: It holds GPU memory. reclaim.include_held is false")
    expect(named).to_contain_text(f"{rows - 2} tenant")
    cells = watched.page.locator("main .table-frame tbody tr[aria-rowindex]").all_inner_texts()
    assert len(cells) == rows


def idle_tenants(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for row in body.get("rows", ()) for one in row["tenants"] if one["verdict"] == "idle"]


def test_the_page_of_a_case_says_all_brakes_the_evidence_and_every_step(opened: Opened, fleet: Demo):
    real = idle_case(fleet)
    names = ["budget_hour", "working_hours"]
    settings = [("reclaim.max_per_hour", "10"), ("reclaim.working_hours", None)]
    brakes = [
        {"brake": name, "setting": setting, "value": value}
        for name, (setting, value) in zip(names, settings, strict=True)
    ]
    watched = opened(f"idle/{real['id']}", settled=False)
    watched.changed(
        "reclaim",
        lambda body: body | {"cases": [one | {"held_by": names, "brakes": brakes} for one in body["cases"]]},
    )
    watched.go(f"idle/{real['id']}")
    expect(watched.page.get_by_text("The budget of this hour is used up.")).to_be_visible()
    expect(watched.page.get_by_text("Acting is not allowed at this time.")).to_be_visible()
    expect(watched.page.get_by_text("reclaim.max_per_hour is 10")).to_be_visible()
    expect(watched.page.get_by_role("heading", name=real["pod"])).to_be_visible()
    expect(watched.main()).to_contain_text("idle, holds memory")
    steps = watched.page.get_by_role("region", name="Audit")
    expect(steps).to_contain_text("it is idle")
    expect(watched.page.get_by_role("link", name="See all")).to_have_attribute("href", re.compile("audit\\?case="))


def test_a_case_that_is_not_there_says_so(opened: Opened):
    watched = opened("idle/no-such-case")
    expect(watched.page.get_by_text("There is no such case")).to_be_visible()


def test_without_cases_the_page_says_when_there_would_be_one(opened: Opened):
    watched = opened("idle?view=cases", settled=False)
    cases(watched)
    watched.go("idle?view=cases")
    expect(watched.page.get_by_text("No workload has a case")).to_be_visible()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_mode_the_stop_and_the_breaker_are_said_above_everything(opened: Opened, language: str):
    watched = opened("idle", language=language, settled=False)
    breaker = {"open": True, "since": NOW, "turned": 7, "of": 20}
    cases(watched, mode="live", stopped_by="alice", breaker=breaker)
    watched.go("idle")
    banner = watched.page.locator(".reclaim-mode")
    for word in ("alice", "7", "20"):
        expect(banner).to_contain_text(word)
    assert banner.evaluate("(one) => one.classList.contains('bad')")
    if language == "zh":
        assert [text for text in texts(watched.page) if english(text)] == []
    assert watched.axe() == []


# ── actions ───────────────────────────────────────────────────────────────────────────────────────────────────────


def post(url: str) -> None:
    urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=30).close()


def state_of(fleet: Demo, case_id: str) -> str:
    found = answer(f"{fleet.analyzer}/api/v1/reclaim")
    assert found is not None
    return next(str(one["state"]) for one in found["cases"] if one["id"] == case_id)


def test_an_action_asks_first_takes_effect_and_is_in_the_audit_log(opened: Opened, fleet: Demo):
    real = idle_case(fleet)
    watched = opened(f"idle/{real['id']}")
    snooze = watched.page.get_by_role("button", name="Snooze")
    changes: list[str] = []
    watched.page.on("request", lambda request: changes.append(request.url) if request.method != "GET" else None)
    snooze.press("Enter")
    dialog = watched.page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"{real['namespace']}/{real['pod']} keeps its GPUs")
    assert watched.axe() == []
    watched.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(snooze).to_be_focused()
    assert changes == []
    assert state_of(fleet, real["id"]) != "snoozed"  # by itself, the case may have moved on meanwhile

    snooze.press("Enter")
    dialog.get_by_label("For how long").select_option("3600")
    dialog.get_by_role("button", name="Snooze").click()
    expect(watched.page.get_by_role("status").filter(has_text="Snooze: done.")).to_be_visible()
    expect(watched.main()).to_contain_text("continues in")
    assert state_of(fleet, real["id"]) == "snoozed"
    watched.go(f"audit?case={real['id']}")
    first = watched.page.locator("main .table-frame tbody tr").first
    expect(first).to_contain_text("this machine")
    expect(first).to_contain_text("snoozed")


def test_a_question_keeps_its_case_when_the_rows_move(opened: Opened):
    watched = opened("idle?view=cases", settled=False)
    first = case("grace", next_at=4_000_000_000)
    order = [first]
    watched.changed("reclaim", lambda body: body | {"total": len(order), "cases": list(order)})
    watched.go("idle?view=cases")
    row_of(watched, "pod-grace").get_by_role("button", name="Exempt").click()
    dialog = watched.page.get_by_role("dialog")
    expect(dialog).to_contain_text("research/pod-grace")
    order[:] = [case("candidate", since=NOW)]  # the pod has ended, and another is in its place
    expect(row_of(watched, "pod-candidate")).to_be_visible(timeout=120_000)  # after the next analysis
    watched.page.route("**/exempt", lambda route: route.fulfill(json={}))
    expect(dialog).to_contain_text("research/pod-grace")
    with watched.page.expect_request("**/exempt") as asked:
        dialog.get_by_role("button", name="Exempt").click()
    assert asked.value.url.endswith("/api/v1/reclaim/uid-grace/exempt")


@pytest.fixture
def running_again(fleet: Demo) -> Iterator[None]:
    yield
    post(f"{fleet.analyzer}/api/v1/reclaim/start")


@pytest.mark.usefixtures("running_again")
def test_the_switch_stops_everything_names_who_did_it_and_starts_again(opened: Opened, fleet: Demo):
    watched = opened("idle")
    watched.page.get_by_role("button", name="Stop", exact=True).click()
    watched.page.get_by_role("dialog").get_by_role("button", name="Stop taking GPUs back").click()
    banner = watched.page.locator(".reclaim-mode")
    expect(banner).to_contain_text("Stopped by this machine")
    policy = answer(f"{fleet.analyzer}/api/v1/reclaim/policy")
    assert policy is not None
    assert policy["stopped_by"] == "loopback"
    banner.get_by_role("button", name="Start again").click()
    watched.page.get_by_role("dialog").get_by_role("button", name="Start taking").click()
    expect(banner).not_to_contain_text("Stopped")


def refuse(status: int, code: str, message: str) -> Any:
    body = json.dumps({"error": {"code": code, "message": message, "hint": "Look again."}})
    return lambda route: route.fulfill(status=status, content_type="application/json", body=body)


def test_a_refused_action_is_said_in_its_dialog_and_can_be_tried_again(opened: Opened, fleet: Demo):
    real = idle_case(fleet)
    watched = opened(f"idle/{real['id']}")
    watched.expect("409")
    watched.page.route("**/exempt", refuse(409, "CASE_UNFIT", "the case has moved on"))
    watched.page.get_by_role("button", name="Exempt").click()
    dialog = watched.page.get_by_role("dialog")
    dialog.get_by_role("button", name="Exempt").click()
    expect(dialog.get_by_role("alert")).to_contain_text("the case has moved on")
    expect(dialog.get_by_role("button", name="Exempt")).to_be_enabled()


def test_an_analyzer_that_cannot_restore_says_so(opened: Opened):
    watched = opened("idle?view=cases", settled=False)
    cases(watched, case("verified", acted_at=NOW))
    watched.go("idle?view=cases")
    watched.expect("404")
    watched.page.route("**/restore", lambda route: route.fulfill(status=404, body="not found"))
    watched.page.get_by_role("button", name="Restore").click()
    dialog = watched.page.get_by_role("dialog")
    dialog.get_by_role("button", name="Restore").click()
    expect(dialog.get_by_role("alert")).to_contain_text("This analyzer cannot restore.")


def test_what_a_control_service_took_is_not_offered_to_be_restored(opened: Opened):
    watched = opened("idle?view=cases", settled=False)
    cases(watched, case("verified", acted_at=NOW, restorable=False, target=None, signals=[]))
    watched.go("idle?view=cases")
    expect(row_of(watched, "pod-verified")).to_be_visible()
    expect(watched.page.get_by_role("button", name="Restore")).to_have_count(0)
    watched.go("idle/uid-verified")
    expect(watched.page.get_by_text("This cannot be put back from here")).to_be_visible()


def test_a_case_names_the_signs_of_use_and_the_value_that_was_not_understood(opened: Opened):
    mark = "<img src=x onerror=alert(1)>"
    signals = [
        {"name": "vllm", "active": True, "at": None, "value": 12.0, "detail": ""},
        {"name": "annotation", "active": False, "at": None, "value": None, "detail": f"{mark} counts as never"},
    ]
    held = ["activity", "annotation_never"]
    watched = opened("idle?view=cases", settled=False)
    cases(watched, case("candidate", held_by=held, signals=signals, target="Deployment/web", restorable=False))
    watched.go("idle/uid-candidate")
    expect(watched.page.get_by_text("vllm: in use, value 12")).to_be_visible()
    expect(watched.page.get_by_text(f"annotation: {mark} counts as never")).to_be_visible()
    expect(watched.page.get_by_text("Deployment/web")).to_be_visible()


@pytest.mark.attack
def test_who_may_only_read_sees_the_mode_and_is_offered_no_action(opened: Opened, fleet: Demo, tmp_path: Path):
    with guarded(fleet, tmp_path, reads=False) as address:
        watched = opened("idle?view=cases", at=f"{address}/ui/", settled=False)
        cases(watched, case("awaiting_approval"))
        watched.go("idle?view=cases")
        expect(row_of(watched, "pod-awaiting_approval")).to_be_visible()
        expect(watched.page.get_by_text("Log in to approve, snooze, exempt, resume or restore.")).to_be_visible()
        expect(watched.page.get_by_text("Off: analyzer.history is not set")).to_be_visible()
        assert watched.main().get_by_role("button", name=re.compile("^(Approve|Snooze|Exempt|Stop)$")).count() == 0
        watched.go("idle?view=backtest")
        expect(watched.page.get_by_text("A back-test needs the role operate.")).to_be_visible()
        watched.page.close()


def test_a_live_machine_that_cannot_ask_kubernetes_says_that_it_does_nothing(opened: Opened):
    watched = opened("idle", settled=False)
    watched.changed("reclaim", lambda body: body | {"mode": "live", "stopped_by": None})
    watched.changed("reclaim/policy", lambda body: body | {"mode": "live", "kube": "down"})
    watched.go("idle")
    banner = watched.page.locator(".reclaim-mode")
    expect(banner).to_contain_text("The Kubernetes API does not answer: no action is taken.")
    expect(banner).not_to_contain_text("are taken back")
    expect(banner.get_by_role("button", name="Stop")).to_be_visible()


def test_the_policy_shows_the_channels_of_notices_and_why_one_fails(opened: Opened):
    sums = {"language": "en", "delivered": 4, "failed": 0, "delivered_at": None, "failed_at": None, "error": None}
    works = sums | {"name": "ops", "service": "Email", "state": "works"}
    error = "<b>refused</b> by the server"
    fails = sums | {"name": "ml-team", "service": "Feishu", "state": "fails", "failed": 2, "error": error}
    watched = opened("idle?view=policy", settled=False)
    watched.changed("notices", lambda body: body | {"channels": [works, fails], "links": True})
    watched.go("idle?view=policy")
    rows = watched.page.locator("main tbody tr")
    expect(rows.filter(has_text="ops")).to_contain_text("works")
    expect(rows.filter(has_text="ml-team")).to_contain_text(error)
    expect(watched.page.get_by_text("Notices have links by which owners can keep")).to_be_visible()


# ── an older analyzer ─────────────────────────────────────────────────────────────────────────────────────────────


def test_an_analyzer_without_reclaim_shows_what_is_idle_and_says_the_rest(opened: Opened):
    watched = opened("idle", settled=False)
    watched.expect("404")
    watched.page.route(re.compile(r"/api/v1/(reclaim|audit)"), lambda route: route.fulfill(status=404, body="no"))
    watched.go("idle?view=cases")
    expect(watched.page.get_by_text("This analyzer has no reclaim API")).to_be_visible()
    expect(row_of(watched, "research/notebook-carol")).to_be_visible()
    expect(watched.page.get_by_role("button", name="Cases")).to_have_count(0)
    for path in ("idle/some-case", "audit"):
        watched.go(path)
        expect(watched.page.get_by_text("This analyzer has no reclaim API")).to_be_visible()


# ── back-test ─────────────────────────────────────────────────────────────────────────────────────────────────────


def outcome(hours: float, alarms: int) -> dict[str, Any]:
    sums = {"actions": 3, "gpu_hours": hours, "unknown_gpu_hours": 0.5, "false_alarms": alarms}
    taken = {"until": None, "namespace": "research", "owner": None, "gpu_ids": ["GPU-1"], "unknown_gpu_hours": 0.0}
    return sums | {
        "workloads": 3,
        "busy_later": 1,
        "ended": 1,
        "still_idle": 1 - alarms,
        "held_back": {"pod_age": 2},
        "namespaces": [sums | {"namespace": "research"}],
        "series": [sums | {"time": NOW + day * 86400} for day in range(7)],
        "list": [taken | {"at": NOW, "end": "false_alarm", "pod": "lab", "pod_uid": "u", "gpu_hours": hours}],
        "omitted": 2,
    }


def backtest(**changes: Any) -> dict[str, Any]:
    """An answer of the back-test, as the API describes it."""
    return {
        "source": "stored",
        "begin": NOW,
        "end": NOW + 604800,
        "complete": True,
        "replayed_until": NOW + 604800,
        "busy_within": 3600.0,
        "step": 86400,
        "coverage": {"ratio": 0.93, "analyses": 1876, "gaps": [{"begin": NOW, "end": NOW + 60}]},
        "not_applied": ["Annotations are not stored.", "Every action is taken as approved."],
        "not_applied_codes": ["annotations", "approval"],
        "changed": [{"key": "grace", "current": "30s", "proposed": "2h"}],
        "current": outcome(80.5, 0),
        "proposed": outcome(112.25, 1),
    } | changes


@pytest.mark.parametrize(("language", "theme"), [("en", "light"), ("zh", "dark")])
def test_a_back_test_sends_only_what_was_changed_and_draws_both_policies(opened: Opened, language: str, theme: str):
    watched = opened("idle?view=backtest", language=language, theme=theme)
    sent: list[dict[str, Any]] = []

    def handle(route: Route, request: Request) -> None:
        if request.method == "POST":
            sent.append(request.post_data_json)
        body = backtest() if request.method == "POST" else {"running": True, "done": 0.5}
        route.fulfill(status=200, content_type="application/json", body=json.dumps(body))

    watched.page.route("**/api/v1/reclaim/backtest", handle)
    watched.page.locator(".backtest-form input").nth(2).fill("2h")
    watched.page.locator(".backtest-form button[type=submit]").click()
    expect(watched.main()).to_contain_text("112.3")
    assert sent == [{"policy": {"grace": 7200}, "since": "7d", "busy_within": 3600}]
    expect(watched.page.locator(".chart")).to_have_count(2)
    expect(watched.main()).to_contain_text("80.5")
    expect(watched.main()).to_contain_text("grace: 30s → 2h")
    assert watched.axe() == []
    if language == "zh":
        assert [text for text in texts(watched.page) if english(text)] == []
    watched.page.set_viewport_size({"width": 390, "height": 800})
    assert watched.wider_than_window() == 0


def test_a_back_test_that_cannot_run_says_why_in_place(opened: Opened):
    watched = opened("idle?view=backtest")
    watched.expect("422", "409", "404")
    run = watched.page.get_by_role("button", name="Run the back-test")
    grace = watched.page.get_by_label("Grace period")
    grace.fill("soon")
    expect(watched.page.get_by_text("Not a duration.")).to_be_visible()
    expect(run).to_be_disabled()
    grace.fill("1h")
    for status, code, message in (
        (422, "BODY_INVALID", "reclaim.grace: too long"),
        (409, "BACKTEST_BUSY", "another one runs"),
    ):
        watched.page.route("**/api/v1/reclaim/backtest", refuse(status, code, message))
        run.click()
        expect(watched.main().get_by_role("alert")).to_contain_text(message)
    watched.page.route("**/api/v1/reclaim/backtest", lambda route: route.fulfill(status=404, body="no"))
    run.click()
    expect(watched.page.get_by_text("This analyzer has no back-test.")).to_be_visible()
    expect(grace).to_have_value("1h")


def test_a_back_test_without_history_or_without_actions_says_so(opened: Opened):
    watched = opened("idle?view=backtest")
    nothing = outcome(0, 0) | {"actions": 0, "namespaces": [], "list": [], "held_back": {}, "omitted": 0}
    found = backtest(
        coverage={"ratio": 0.0, "analyses": 0, "gaps": []},
        current=nothing,
        proposed=None,
        changed=[],
        complete=False,
    )
    body = json.dumps(found)
    watched.page.route(
        "**/api/v1/reclaim/backtest",
        lambda route: route.fulfill(status=200, content_type="application/json", body=body),
    )
    watched.page.get_by_role("button", name="Run the back-test").click()
    expect(watched.page.get_by_text("There is no stored history in this time.")).to_be_visible()
    expect(watched.page.get_by_text("The replay took too long")).to_be_visible()
    expect(watched.page.locator(".chart")).to_have_count(0)


# ── audit ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def entry(number: int) -> dict[str, Any]:
    return {
        "at": NOW + number,
        "actor": "vgpuscope",
        "what": "moved",
        "case_id": "u1",
        "namespace": "research",
        "pod": f"pod-{number}",
        "before": "candidate",
        "after": "grace",
        "reason": "confirmed",
        "detail": "{}",
        "number": number,
    }


def test_the_audit_log_is_read_in_pages_and_downloaded_as_a_whole(opened: Opened):
    watched = opened("audit", settled=False)
    asked: list[str] = []

    def handle(route: Route, request: Request) -> None:
        asked.append(request.url)
        before = int((re.search(r"before=(\d+)", request.url) or [0, 7])[1])
        numbers = [number for number in range(6, 0, -1) if number < before][:3]
        page = {"entries": [entry(one) for one in numbers], "next_before": numbers[-1] if numbers[-1] > 1 else None}
        route.fulfill(status=200, content_type="application/json", body=json.dumps(page))

    watched.page.route(re.compile(r"/api/v1/audit"), handle)
    watched.go("audit?scope=research")
    assert watched.column(4) == ["research/pod-6", "research/pod-5", "research/pod-4"]
    assert any("namespace=research" in url for url in asked)
    watched.page.get_by_role("button", name="Older entries").click()
    expect(row_of(watched, "pod-3")).to_be_visible()
    expect(watched.page.get_by_role("button", name="Older entries")).to_be_disabled()
    with watched.page.expect_download() as found:
        watched.page.get_by_role("button", name="Download all as JSON lines").click()
    lines = Path(found.value.path()).read_text().splitlines()
    assert [json.loads(line)["number"] for line in lines] == [1, 2, 3, 4, 5, 6]
    watched.page.get_by_role("button", name="Newest entries").click()
    expect(row_of(watched, "pod-6")).to_be_visible()


def test_the_audit_log_of_one_case_can_be_left_again(opened: Opened, fleet: Demo):
    real = idle_case(fleet)
    watched = opened(f"audit?case={real['id']}")
    eventually(lambda: set(watched.column(4)) == {f"{real['namespace']}/{real['pod']}"})
    watched.page.get_by_role("button", name="Show all cases").click()
    eventually(lambda: len(set(watched.column(4))) > 1)


def test_the_analyzer_itself_filters_the_log_by_namespace(fleet: Demo):
    idle_case(fleet)
    some = answer(f"{fleet.analyzer}/api/v1/audit?namespace=research&limit=1000")
    none = answer(f"{fleet.analyzer}/api/v1/audit?namespace=no-such&limit=1000")
    assert some is not None
    assert none is not None
    assert {one["namespace"] for one in some["entries"]} == {"research"}
    assert none["entries"] == []


# ── the model's opinion ───────────────────────────────────────────────────────────────────────────────────────────

OPINION = {
    "state": "answered",
    "status": "suspicious",
    "confidence": 0.8,
    "reason": "<b id=injected>Memory is held</b> and [links](javascript:alert(1)) do not work.",
    "recommendation": "Ask the owner.",
    "reason_zh": None,
    "recommendation_zh": None,
    "ai_adjusted_score": 12.5,
    "at": "2026-01-01T00:00:00Z",
    "model": "stand-in",
    "applied": True,
    "error": None,
}


def with_opinion(opinion: dict[str, Any]) -> Any:
    def change(body: dict[str, Any]) -> None:
        for one in body["gpus"]:
            one["detail"]["opinion"] = opinion

    return change


def test_the_opinion_stands_beside_the_verdict_as_plain_text(opened: Opened):
    watched = opened("workloads/research/notebook-alice", settled=False)
    watched.changed("workloads/research/notebook-alice", with_opinion(OPINION))
    watched.go("workloads/research/notebook-alice")
    box = watched.page.get_by_role("region", name="Opinion of the language model")
    for words in (
        "suspicious",
        "confidence 80 %",
        "holds reclaim back",
        "<b id=injected>Memory is held</b>",
        "stand-in",
    ):
        expect(box).to_contain_text(words)
    assert watched.page.locator("#injected, .opinion a").count() == 0
    assert watched.axe() == []


@pytest.mark.parametrize(
    ("language", "texts", "shown", "lang"),
    [
        ("en", {"reason": "Nothing runs.", "reason_zh": "没有计算。"}, "Nothing runs.", "en"),
        ("zh", {"reason": "Nothing runs.", "reason_zh": "没有计算。"}, "没有计算。", "zh-CN"),
        ("zh", {"reason": "Nothing runs.", "reason_zh": None}, "Nothing runs.", "en"),
        (
            "en",
            {"reason": None, "reason_zh": "没有<b id=injected>计算</b>。"},
            "没有<b id=injected>计算</b>。",
            "zh-CN",
        ),
    ],
)
def test_the_opinion_is_in_the_language_of_the_page_or_in_the_one_it_has(
    opened: Opened, language: str, texts: dict[str, Any], shown: str, lang: str
):
    watched = opened("workloads/research/notebook-alice", settled=False, language=language)
    none = {"recommendation": None, "recommendation_zh": None}
    watched.changed("workloads/research/notebook-alice", with_opinion(OPINION | none | texts))
    watched.go("workloads/research/notebook-alice")
    text = watched.page.locator(".opinion dd")
    expect(text).to_have_text(shown)
    expect(text).to_have_attribute("lang", lang)
    assert watched.page.locator("#injected").count() == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state": "pending", "status": None}, "The model has been asked."),
        ({"state": "failed", "status": None, "error": "AI_TIMEOUT"}, "The model gave no usable answer"),
        ({"applied": False, "status": "idle"}, "shown only"),
    ],
)
def test_an_opinion_that_changes_nothing_says_so(opened: Opened, changes: dict[str, Any], words: str):
    watched = opened("workloads/research/notebook-alice", settled=False)
    watched.changed("workloads/research/notebook-alice", with_opinion(OPINION | changes))
    watched.go("workloads/research/notebook-alice")
    expect(watched.page.locator(".opinion")).to_contain_text(words)


def test_the_page_of_a_shared_gpu_has_an_opinion_for_each_tenant(opened: Opened, fleet: Demo):
    gpus = answer(f"{fleet.analyzer}/api/v1/gpus")
    assert gpus is not None
    pod = "notebook-alice"  # it stays for as long as the demo runs; others come and go
    shared = next(row for row in gpus["rows"] if pod in {tenant["pod"] for tenant in row["tenants"]})
    assert shared["shared"]
    watched = opened(f"gpus/{shared['gpu_id']}", settled=False)

    def change(body: dict[str, Any]) -> None:
        body["opinion"] = None  # what the demo's model says
        for tenant in body["tenants"]:
            tenant["opinion"] = OPINION if tenant["tenant"]["pod"] == pod else None

    watched.changed(f"gpus/{shared['gpu_id']}", change)
    watched.go(f"gpus/{shared['gpu_id']}")
    expect(watched.page.locator(".opinion")).to_have_count(1)
    expect(watched.page.locator(".opinion h3")).to_contain_text(f"research/{pod}")
