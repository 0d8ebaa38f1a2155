"""`vgpuscope reclaim` against a running analyzer: the cases, what an operator does, and the audit log."""

import csv
import io
import json
import re
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console

from tests.commands.test_results import vgpuscope  # noqa: F401
from tests.http.serving import until
from tests.paths import REPOSITORY
from tests.services.analyzer.analyzing import IDLE, TOKEN, StubSource, reading, running, track
from tests.services.analyzer.controlling import EAGER, analysed
from vgpuscope import cli
from vgpuscope.model.analysis import Tenant
from vgpuscope.model.reclaim import BRAKES, STATES, Case, Policy, Share
from vgpuscope.views.case_reasons import CHINESE_REASONS
from vgpuscope.views.reclaim import words
from vgpuscope.views.reclaim.api import BreakerState, ReclaimList, case_row, counted
from vgpuscope.views.reclaim.tables import cases_table

POD = "a-notebook-with-a-name-that-is-as-long-as-names-are-0"


def pod(number: int, uid: str, name: str = POD):
    return track(number, util=IDLE, tenant=Tenant(namespace="ml", pod=name, container="main", pod_uid=uid))


@asynccontextmanager
async def operated(tmp_path, *tracks, **more):
    """An analyzer with cases that wait for an operator."""
    source = StubSource(reading(track(0), *(tracks or (pod(1, "3f2a91c0-1"),))))
    flags = EAGER | {"analyzer.history": str(tmp_path / "h.db"), "reclaim.approval": True} | more
    async with running(source, environ={"VGPUSCOPE_API_TOKEN": TOKEN}, **flags) as one:
        await one.analysed()
        await until(lambda: one.analyzer._replica.leads)
        for _ in range(3):
            await analysed(one)
        yield one


async def states(one) -> list[str]:
    return [case["state"] for case in (await one.json("/api/v1/reclaim"))["cases"]]


@pytest.mark.parametrize("columns", ["80", "120"])
async def test_cases_are_listed_with_state_and_next_step(tmp_path, vgpuscope, columns):  # noqa: F811
    async with operated(tmp_path) as one:
        url = str(one.client.base_url)
        code, out, err = await vgpuscope("reclaim", "--url", url, COLUMNS=columns, LANG="C")
        _, wide, _ = await vgpuscope("reclaim", "--url", url, "--wide", COLUMNS=columns, LANG="C")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= int(columns)
    assert "awaiting approval" in out
    assert "needs approval" in out
    assert re.search(r"a-notebook-with-\S*-0\b", out)  # its middle has no room at 80 columns
    assert f"ml/{POD}" in wide
    assert "Dry run" in out


async def test_chinese_by_flag_or_locale(tmp_path, vgpuscope):  # noqa: F811
    async with operated(tmp_path) as one:
        url = str(one.client.base_url)
        _, by_flag, _ = await vgpuscope("reclaim", "list", "--url", url, "--lang", "zh")
        _, by_locale, _ = await vgpuscope("reclaim", "--url", url, LANG="zh_CN.UTF-8")
    assert "等待批准" in by_flag
    assert "演练模式" in by_locale


async def test_json_and_csv_have_every_case(tmp_path, vgpuscope):  # noqa: F811
    async with operated(tmp_path) as one:
        url = str(one.client.base_url)
        _, out, _ = await vgpuscope("reclaim", "--url", url, "--json")
        assert json.loads(out)["cases"][0]["pod_uid"] == "3f2a91c0-1"
        _, out, _ = await vgpuscope("reclaim", "list", "--url", url, "--csv", "--state", "awaiting_approval")
        [row] = csv.DictReader(io.StringIO(out))
        assert (row["namespace"], row["state"]) == ("ml", "awaiting_approval")
        _, out, _ = await vgpuscope("reclaim", "list", "--url", url, "--state", "exempt", LANG="C")
        assert out.startswith("There is no case.")


@pytest.mark.parametrize("name", [f"ml/{POD}", "3f2a91c0-1", "3f2a91"])
async def test_an_operator_approves_by_pod_or_uid(tmp_path, vgpuscope, name):  # noqa: F811
    async with operated(tmp_path) as one:
        code, out, err = await vgpuscope(
            "reclaim", "approve", name, "--url", str(one.client.base_url), VGPUSCOPE_TOKEN=TOKEN, LANG="C"
        )
        assert (code, err) == (0, "")
        assert out == f"ml/{POD}: awaiting approval\n"
        await analysed(one)
        assert await states(one) == ["would_act"]


async def test_snooze_exempt_resume_stop_and_start(tmp_path, vgpuscope):  # noqa: F811
    async with operated(tmp_path) as one:
        where = ("--url", str(one.client.base_url))
        said = {"VGPUSCOPE_TOKEN": TOKEN, "LANG": "C"}
        _, out, _ = await vgpuscope("reclaim", "snooze", f"ml/{POD}", "--for", "2h", *where, **said)
        assert out == f"ml/{POD}: snoozed\n"
        [case] = (await one.json("/api/v1/reclaim"))["cases"]
        assert case["next_at"] - case["since"] == pytest.approx(7200)
        _, out, _ = await vgpuscope("reclaim", *where, **said)
        assert "in 2h" in out or "in 119 min" in out or "in 120 min" in out
        _, out, _ = await vgpuscope("reclaim", "exempt", f"ml/{POD}", *where, **said)
        assert await states(one) == ["exempt"]
        _, out, _ = await vgpuscope("reclaim", "resume", f"ml/{POD}", *where, **said)
        assert out == f"ml/{POD}: candidate\n"
        _, out, _ = await vgpuscope("reclaim", "stop", *where, **said)
        assert out == "Stopped by token: no action is taken.\n"
        _, out, _ = await vgpuscope("reclaim", *where, **said)
        assert "Stopped by token" in out
        _, out, _ = await vgpuscope("reclaim", "start", *where, **said)
        assert out.startswith("Dry run")


async def test_errors_say_what_to_do(tmp_path, vgpuscope, monkeypatch):  # noqa: F811
    twins = (pod(1, "aaaaaa-1", "twin"), pod(2, "aaaaaa-2", "other"))
    async with operated(tmp_path, *twins) as one:
        where = ("--url", str(one.client.base_url))
        monkeypatch.delenv("VGPUSCOPE_TOKEN", raising=False)
        code, _, err = await vgpuscope("reclaim", "stop", *where)
        assert (code, err.count("\n")) == (1, 2)
        assert "FORBIDDEN" in err
        assert "role operate" in err
        assert "VGPUSCOPE_TOKEN" in err
        for name, said in (("ml/nobody", "no case 'ml/nobody'"), ("aaaaaa", "names 2 cases")):
            code, _, err = await vgpuscope("reclaim", "exempt", name, *where, VGPUSCOPE_TOKEN=TOKEN)
            assert (code, said in err) == (1, True)
        await vgpuscope("reclaim", "exempt", "ml/twin", *where, VGPUSCOPE_TOKEN=TOKEN)
        code, _, err = await vgpuscope("reclaim", "approve", "ml/twin", *where, VGPUSCOPE_TOKEN=TOKEN)
        assert (code, "CASE_UNFIT: the case of ml/twin cannot be changed: its state is exempt" in err) == (1, True)
        code, _, err = await vgpuscope("reclaim", "snooze", "ml/other", "--for", "soon", *where)
        assert (code, "--for 'soon'" in err) == (2, True)


async def test_the_audit_log_is_shown_and_exported_whole(tmp_path, vgpuscope, monkeypatch):  # noqa: F811
    monkeypatch.setattr("vgpuscope.commands.actions.reclaim._PAGE", 2)  # several pages
    async with operated(tmp_path) as one:
        where = ("--url", str(one.client.base_url))
        said = {"VGPUSCOPE_TOKEN": TOKEN, "LANG": "C"}
        await vgpuscope("reclaim", "exempt", f"ml/{POD}", *where, **said)
        await vgpuscope("reclaim", "stop", *where, **said)
        whole = (await one.json("/api/v1/audit?limit=1000"))["entries"]
        assert len(whole) >= 4
        _, out, _ = await vgpuscope("reclaim", "audit", *where, COLUMNS="80", **said)
        assert max(map(len, out.splitlines())) <= 80
        assert "stop" in out
        _, out, _ = await vgpuscope("reclaim", "audit", "--lang", "zh", *where, COLUMNS="160", **said)
        assert {"停止", "状态改变", "已豁免"} <= set(out.split())
        assert not re.search(r"\b(?:moved|stop|exempt|exempted|candidate|idle)\b", out)
        _, out, _ = await vgpuscope("reclaim", "audit", "--export", "jsonl", *where, **said)
        assert [json.loads(line) for line in out.splitlines()] == whole
        _, out, _ = await vgpuscope("reclaim", "audit", "--export", "csv", *where, **said)
        rows = list(csv.DictReader(io.StringIO(out, newline="")))
        assert [int(row["number"]) for row in rows] == [entry["number"] for entry in whole]
        assert [row["detail"] for row in rows] == [entry["detail"] for entry in whole]
        _, out, _ = await vgpuscope("reclaim", "audit", "--case", "3f2a91", "--export", "jsonl", *where, **said)
        assert {json.loads(line)["case_id"] for line in out.splitlines()} == {"3f2a91c0-1"}


def test_every_word_has_both_languages():
    assert set(words.STATES) == set(STATES)
    for table in (words.STATES, words.ENDS, words.TEXTS):
        for name, (english, chinese) in table.items():
            assert bool(english) == bool(chinese), name
            assert not any(mark in chinese for mark in ",;?!"), name  # full-width punctuation only


def test_commands_have_the_chinese_names_of_the_console():
    """The console has a word for every reason and step, because its tests look for codes on every page."""
    console = (REPOSITORY / "web/src/words/zh.ts").read_text()
    assert dict(re.findall(r'"case_reason\.(\w+)": "(.+)"', console)) == CHINESE_REASONS
    assert dict(re.findall(r'"audit\.what\.(\w+)": "(.+)"', console)) == words.CHINESE_STEPS
    assert set(words.CHINESE_BRAKES) == set(BRAKES)


@pytest.mark.parametrize("verb", ["stop", "start", "audit", "list", "approve", "snooze", "exempt", "resume", "restore"])
def test_options_before_the_verb_count_as_those_after_it(verb):
    """`reclaim --url PRODUCTION stop` must not stop the analyzer of this machine instead."""
    case = ["ml/a"] if verb in {"approve", "snooze", "exempt", "resume", "restore"} else []
    chosen = ["--url", "http://production:8080", "--lang", "zh"]
    for typed in (["reclaim", *chosen, verb, *case], ["reclaim", verb, *case, *chosen]):
        args = cli.parser().parse_args(typed)
        assert (args.verb, args.url, args.lang) == (verb, "http://production:8080", "zh")
    last = cli.parser().parse_args(["reclaim", *chosen, verb, *case, "--url", "http://nearer:1"])
    assert last.url == "http://nearer:1"
    default = cli.parser().parse_args(["reclaim", verb, *case])
    assert (default.url, default.lang) == ("http://127.0.0.1:8080", None)


def test_options_of_the_list_before_the_verb_count():
    args = cli.parser().parse_args(["reclaim", "--state", "grace", "--limit", "3", "--csv", "list"])
    assert (args.state, args.limit, args.csv, args.json) == ("grace", 3, True, False)
    assert cli.parser().parse_args(["reclaim", "audit"]).limit == 50


@pytest.mark.parametrize(
    ("state", "windows", "following", "idle"),
    [
        ("candidate", 1, "1 window so far", "9 h"),
        ("candidate", 2, "2 windows so far", "9 h"),
        ("snoozed", 0, "", "9 h"),
        ("verified", 2, "", ""),  # it is gone
        ("released", 2, "", ""),  # it works
    ],
)
def test_idle_time_and_windows_are_said_only_where_they_are_true(state, windows, following, idle):
    share = Share(gpu_id="GPU-1", verdict="idle", use_class="idle", coverage=1.0, idle_since=1000.0)
    case = Case(id="u", uid="u", namespace="ml", pod="a", state=state, since=0, first_idle=0, shares=(share,))
    listed = ReclaimList(
        mode="live",
        stopped_by=None,
        breaker=BreakerState(open=False),
        states=counted([case]),
        total=1,
        cases=(replace(case_row(case, Policy()), confirmations=windows),),
    )
    printed = io.StringIO()
    Console(width=100, file=printed).print(cases_table(listed, 100, "en", now=1000.0 + 9 * 3600, limit=5))
    row = printed.getvalue().splitlines()[1].split("  ")
    assert [one.strip() for one in row if one.strip()] == [
        one for one in ("u", words.STATES[state][0], following, "1", idle, "ml/a") if one
    ]


@pytest.mark.parametrize("brakes", [BRAKES[at : at + 2] for at in range(0, len(BRAKES), 2)])
def test_in_chinese_a_case_names_its_brakes_without_codes_and_fits_80_columns(brakes):
    case = Case(id="u", uid="u", namespace="ml", pod="notebook", since=0, first_idle=0, held_by=brakes)
    calm = BreakerState(open=False)
    listed = ReclaimList(
        mode="live", stopped_by=None, breaker=calm, states=counted([case]), total=1, cases=(case_row(case, Policy()),)
    )
    printed = io.StringIO()
    console = Console(width=80, file=printed)
    console.print(cases_table(listed, 80, "zh", now=1000.0, limit=5))
    shown = printed.getvalue()
    assert "ml/notebook（" in shown
    assert not any(brake in shown for brake in brakes)
    assert all(cell_len(line.rstrip()) <= 80 for line in shown.splitlines())
