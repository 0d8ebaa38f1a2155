"""`vgpuscope results` and `vgpuscope analyze --once`."""

import asyncio
import csv
import io
import json
import re
import time

import pytest

from tests.http.serving import SOON
from tests.services.analyzer.analyzing import IDLE, TOKEN, StubSource, reading, running, track, uuid
from tests.services.analyzer.promstub import Reply, SpoilingServer
from tests.services.analyzer.test_analyzer import fleet
from vgpuscope import cli

HOURLY = {"scheduler.interval": 3600}


@pytest.fixture
def vgpuscope(capfdbinary, monkeypatch):
    """Exit code, standard output and standard error of a command, as the shell would see them."""

    async def run(*args, **environ):
        for name, value in {"COLUMNS": "120", **environ}.items():
            monkeypatch.setenv(name, value)
        capfdbinary.readouterr()
        async with asyncio.timeout(3 * SOON):
            code = await asyncio.to_thread(cli.main, args)
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return run


@pytest.fixture
async def analyzer():
    async with running(StubSource(reading(track(0), track(1, util=IDLE))), **HOURLY) as found:
        await found.analysed()
        yield found


async def test_results_are_printed_as_a_table(analyzer, vgpuscope):
    code, out, err = await vgpuscope("results", str(analyzer.client.base_url))
    assert (code, err) == (0, "")
    assert uuid(0)[:12] in out
    assert any(" in use " in line for line in out.splitlines() if "GPU-" in line)  # as the console says; not the code
    assert "in_use" not in out
    assert "ml/train-1" in out


async def test_results_fit_a_terminal_of_80_columns(analyzer, vgpuscope):
    _, out, _ = await vgpuscope("results", str(analyzer.client.base_url), COLUMNS="80")
    assert max(map(len, out.splitlines())) <= 80
    assert "2 GPUs on 1 node: 1 in use, 1 idle, 0 unknown." in out


async def test_results_speak_the_language_that_is_chosen_and_else_that_of_the_locale(analyzer, vgpuscope):
    url = str(analyzer.client.base_url)
    code, chosen, err = await vgpuscope("results", url, "--lang", "zh", COLUMNS="80")
    assert (code, err) == (0, "")
    title = chosen.splitlines()[0]
    assert [one for one in ("节点", "评分", "利用率", "显存", "状态", "判定") if one not in title] == []
    assert "1 个节点上的 2 张 GPU：1 个使用中，1 个空闲，0 个未知。" in chosen
    assert not re.search(r"in_use|unknown|idle", chosen)
    _, by_locale, _ = await vgpuscope("results", url, COLUMNS="80", LC_ALL="zh_CN.UTF-8")
    assert by_locale.splitlines()[0] == title
    _, english, _ = await vgpuscope("results", url, "--lang", "en", COLUMNS="80", LC_ALL="zh_CN.UTF-8")
    assert "2 GPUs on 1 node: 1 in use, 1 idle, 0 unknown." in english


async def test_an_empty_list_of_low_gpus_says_what_was_looked_at(vgpuscope):
    unseen = track(1, util=None, tenant=None, terms={})
    async with running(StubSource(reading(track(0), unseen)), **HOURLY) as analyzer:
        await analyzer.analysed()
        found = await vgpuscope("results", str(analyzer.client.base_url), "--low")
    assert found == (0, "No GPU is below 20. 2 GPUs analysed, 1 unknown; 1 tenant, 0 unknown.\n", "")


async def test_the_lines_below_the_lists_have_the_counts_of_the_api(analyzer, vgpuscope):
    url = str(analyzer.client.base_url)
    low, stats = await analyzer.json("/results/low"), await analyzer.json("/results/stats")
    analysed = f"{stats['total_gpus']} GPUs analysed, {stats['unknown_count']} unknown; 2 tenants, 0 unknown."
    _, out, _ = await vgpuscope("results", url, "--low")
    assert out.splitlines()[-1] == f"{low['gpu_rows']} GPU is idle or below 20. {analysed}"
    _, out, _ = await vgpuscope("results", url, "--low", "--kind", "tenant")
    assert out.splitlines()[-1] == f"{stats['tenants_low']} tenant is idle or below 20. {analysed}"
    _, out, _ = await vgpuscope("results", url, "--low", "--kind", "gpu", "--json")
    assert [row["kind"] for row in json.loads(out)] == ["gpu"] * stats["gpus_low"]


async def test_a_kind_of_rows_needs_the_list_of_low_ones(vgpuscope):
    code, _, err = await vgpuscope("results", "--kind", "gpu")
    assert (code, "--kind needs --low" in err) == (2, True)


async def test_results_are_printed_as_json_and_csv(analyzer, vgpuscope):
    url = str(analyzer.client.base_url)
    _, out, _ = await vgpuscope("results", url, "--json")
    assert json.loads(out) == await analyzer.json("/results")
    _, out, _ = await vgpuscope("results", url, "--csv")
    assert [row["gpu_id"] for row in csv.DictReader(io.StringIO(out))] == [uuid(1), uuid(0)]


async def test_only_low_ones_are_printed_when_asked_for(analyzer, vgpuscope):
    _, out, _ = await vgpuscope("results", str(analyzer.client.base_url), "--low", "--json")
    assert [row["gpu_id"] for row in json.loads(out)] == [uuid(1)]


async def test_no_results_are_no_error(vgpuscope):
    async with running(StubSource(reading()), **HOURLY) as analyzer:
        await analyzer.analysed()
        url = str(analyzer.client.base_url)
        code, out, err = await vgpuscope("results", url)
        assert (code, err) == (0, "")
        assert re.fullmatch(r"No GPU found by the analysis of 2\S+Z in http://stub\.\n", out)
        assert (await vgpuscope("results", url, "--json"))[1] == "[]\n"
        assert (await vgpuscope("results", url, "--csv"))[1].startswith("gpu_id,pod,namespace,")


async def test_an_analyzer_that_is_not_there_is_told_in_one_line(vgpuscope):
    code, out, err = await vgpuscope("results", "127.0.0.1:1")
    assert (code, out) == (1, "")
    assert err.startswith("vgpuscope: SOURCE_DOWN: no analyzer answers at http://127.0.0.1:1")
    assert "Traceback" not in err


async def test_a_token_is_sent_where_reading_needs_one(vgpuscope):
    flags = {"analyzer.api_token": TOKEN, "analyzer.protect_reads": "true"}
    async with running(**HOURLY, **flags) as analyzer:
        await analyzer.analysed()
        url = str(analyzer.client.base_url)
        code, _, err = await vgpuscope("results", url)
        assert code == 1
        assert "VGPUSCOPE_TOKEN" in err
        assert (await vgpuscope("results", url, "--low", VGPUSCOPE_TOKEN=TOKEN))[0] == 0


async def test_one_analysis_can_be_made_without_a_service(vgpuscope):
    async with SpoilingServer(fleet(now=time.time())) as prometheus:
        code, out, err = await vgpuscope("analyze", "--once", "--json", PROM_URL=prometheus.url)
        assert (code, err) == (0, "")
        assert [(row["pod"], row["verdict"]) for row in json.loads(out)] == [
            ("train-1", "idle"),
            ("train-0", "in_use"),
        ]
        code, out, err = await vgpuscope("analyze", "--once", "--csv", PROM_URL=prometheus.url)
        assert (code, len(out.splitlines())) == (0, 3)
        code, out, err = await vgpuscope("analyze", "--once", PROM_URL=prometheus.url)
        assert "in use" in out


async def test_what_is_missing_from_one_analysis_is_told_apart(vgpuscope):
    async with SpoilingServer(fleet(now=time.time())) as prometheus:
        prometheus.spoil = lambda query, reply: Reply(503) if "MEM_COPY" in query else reply
        code, out, err = await vgpuscope("analyze", "--once", "--json", PROM_URL=prometheus.url)
        assert code == 0
        assert len(json.loads(out)) == 2
        assert err.startswith("vgpuscope: QUERY_FAILED: ")
        assert "Traceback" not in err


async def test_one_analysis_that_fails_is_told_once(vgpuscope):
    code, out, err = await vgpuscope(
        "analyze", "--once", PROM_URL="http://127.0.0.1:1", VGPUSCOPE_PROMETHEUS_DEADLINE="1"
    )
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 2
    assert err.splitlines()[1].startswith("hint: ")


@pytest.mark.parametrize(
    "args",
    [("analyze", "--once", "--prometheus-url", "http://"), ("results", "--json", "--csv"), ("results", "http://")],
)
async def test_what_was_asked_wrongly_is_told(args, vgpuscope):
    code, out, err = await vgpuscope(*args)
    assert (code, out) == (2, "")
    assert err.startswith("vgpuscope: CONFIG_INVALID: ")


async def test_without_a_prometheus_one_window_is_scraped_first(vgpuscope):
    from tests.http.serving import served

    async with served() as agent:
        code, out, err = await vgpuscope(
            "analyze",
            "--once",
            "--json",
            "--targets",
            agent.url,
            "--window-minutes",
            "0.1",
            VGPUSCOPE_ANALYZER_SCRAPE_INTERVAL="1",
        )
    assert code == 0, err
    assert json.loads(out) == []
    assert "scraping for 0.1 min" in err
