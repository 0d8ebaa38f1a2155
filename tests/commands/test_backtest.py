"""`vgpuscope backtest`: by an analyzer, from its store, and from a Prometheus. The past is labelled."""

import json
import re
import time
from contextlib import asynccontextmanager

import pytest

from tests.commands.test_results import vgpuscope  # noqa: F401
from tests.services.analyzer.analyzing import TOKEN, StubSource, reading, running, track
from tests.services.analyzer.pasts import past, store_past
from vgpuscope.config import load
from vgpuscope.model.analysis import Tenant, Window
from vgpuscope.model.errors import SourceDown
from vgpuscope.services.analyzer.backtest.past_readings import past_readings

LENGTH = 96
PAST = {"ml/idle": "I" * LENGTH, "web/again": "I" * 20 + "B" * (LENGTH - 20), "web/busy": "B" * LENGTH}


@pytest.fixture
async def stored(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = str(tmp_path / "history.db")
    await store_past(path, past(PAST, end=time.time() - 60))
    (tmp_path / "eager.yaml").write_text("confirmations: 2\ngrace: 10m\nmin_pod_age: 0s\n")
    return path


@asynccontextmanager
async def analyzer(path):
    flags = {"scheduler.interval": 3600, "analyzer.history": path}
    async with running(StubSource(reading(track(0))), environ={"VGPUSCOPE_API_TOKEN": TOKEN}, **flags) as one:
        await one.analysed()
        yield one


@pytest.mark.parametrize("columns", ["80", "120"])
async def test_by_an_analyzer_both_policies_stand_side_by_side(stored, vgpuscope, columns):  # noqa: F811
    async with analyzer(stored) as one:
        code, out, err = await vgpuscope(
            *("backtest", "--policy", "eager.yaml", "--since", "8h", "--url", str(one.client.base_url)),
            VGPUSCOPE_TOKEN=TOKEN,
            COLUMNS=columns,
            LANG="C",
        )
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= int(columns)
    assert "Changed: grace: 30m → 10m" in out
    assert "CURRENT  PROPOSED" in out
    assert re.search(r"^ +2 +2 +actions$", out, re.MULTILINE)
    assert "busy later" in out
    assert "ml/idle" in out
    assert "web/busy" not in out


async def test_from_the_store_the_figures_are_those_of_the_analyzer(stored, vgpuscope):  # noqa: F811
    asked = ("backtest", "--policy", "eager.yaml", "--since", "8h", "--json")
    async with analyzer(stored) as one:
        _, there, _ = await vgpuscope(*asked, "--url", str(one.client.base_url), VGPUSCOPE_TOKEN=TOKEN)
    code, here, err = await vgpuscope(*asked, "--history", stored)
    assert (code, err) == (0, "")
    for name in ("current", "proposed"):
        mine, theirs = json.loads(here)[name], json.loads(there)[name]
        assert [row["at"] for row in mine["list"]] == [row["at"] for row in theirs["list"]]
        assert mine["gpu_hours"] == pytest.approx(theirs["gpu_hours"])


async def test_a_settings_file_is_a_policy_file_too(stored, vgpuscope, tmp_path):  # noqa: F811
    (tmp_path / "all.yaml").write_text("scheduler: {interval: 60}\nreclaim:\n  grace: 10m\n")
    code, out, _ = await vgpuscope("backtest", "--policy", "all.yaml", "--history", stored, "--json", "--since", "8h")
    assert (code, [row["key"] for row in json.loads(out)["changed"]]) == (0, ["grace"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("graze: 10m", "reclaim.graze"),
        ("max_per_hour: -1", "reclaim.max_per_hour"),
        ("- a", "policy.yaml"),
        ("grace: [", "policy.yaml"),
        ("", "no key"),
        ("reclaim: 3", "reclaim"),
    ],
)
async def test_a_bad_policy_is_refused(stored, vgpuscope, tmp_path, content, said):  # noqa: F811
    (tmp_path / "policy.yaml").write_text(content)
    code, out, err = await vgpuscope("backtest", "--policy", "policy.yaml", "--history", stored)
    assert (code, out) == (2, "")
    assert said in err
    assert "hint:" in err


async def test_wrong_words_are_refused(stored, vgpuscope):  # noqa: F811
    for words, said in (
        (("--since", "soon"), "--since 'soon'"),
        (("--busy-within", "1"), "--busy-within '1'"),
        (("--history", "missing.db"), "missing.db is not a file"),
        (("--history", stored, "--prometheus", "http://x"), "only one"),
        (("--policy", "nowhere.yaml"), "nowhere.yaml"),
    ):
        code, _, err = await vgpuscope("backtest", *words)
        assert (code, said in err) == (2, True), err


async def test_chinese(stored, vgpuscope):  # noqa: F811
    _, out, _ = await vgpuscope("backtest", "--history", stored, "--since", "8h", "--lang", "zh", COLUMNS="80")
    assert "节省的 GPU 小时" in out
    assert "人工操作（推迟、豁免、停止）不会回放。" in out


# ── Prometheus ───────────────────────────────────────────────────────────────────────────────────────────────────


class Past:
    """A source that knows the past: a pod that works in every second hour. One window cannot be read."""

    def __init__(self, begin: float) -> None:
        self._begin, self.asked = begin, list[float]()

    async def read(self, *, end: float, seconds: float):
        self.asked.append(end)
        if len(self.asked) == 3:
            raise SourceDown("not now")
        works = int((end - self._begin) // 3600) % 2
        who = Tenant(namespace="ml", pod="nb", pod_uid="uid-1")
        found = track(1, util=0.9 if works else 0.0, tenant=who, first=end - seconds, last=end)
        return reading(found, window=Window(begin=end - seconds, end=end, interval=30))


async def test_every_window_of_prometheus_is_judged_again_and_a_failed_one_is_left_out():
    begin = 1_790_000_000.0
    config = load(flags={"scheduler.interval": 300}, environ={}, file="none").config
    source = Past(begin)
    found = [one async for one in past_readings(source, config, begin=begin, end=begin + 7200)]
    assert source.asked == [begin + 300 * turn for turn in range(1, 25)]
    assert [one.window.end for one in found] == [end for turn, end in enumerate(source.asked) if turn != 2]
    verdicts = {one.window.end - begin: one.gpus[0].tenants[0].verdict for one in found}
    assert verdicts == {
        time: "in_use" if 3600 <= time < 7200 else "idle" for time in range(300, 7201, 300) if time != 900
    }
    assert found[0].gpus[0].tenants[0].tenant.pod_uid == "uid-1"


async def test_if_no_window_can_be_read_the_error_is_told(vgpuscope, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    code, _, err = await vgpuscope("backtest", "--prometheus", "http://127.0.0.1:9", "--since", "1h")
    assert code == 1
    assert "127.0.0.1:9" in err
