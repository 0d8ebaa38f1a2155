"""What is gone is not forgotten: GPUs and targets that were there stay listed until they are known to be gone."""

import signal

import pytest

from tests.commands.test_results import vgpuscope  # noqa: F401 - a fixture
from tests.services.analyzer.analyzing import (
    Ahead,
    SharedHistory,
    StubSource,
    StubSources,
    reading,
    running,
    track,
    uuid,
)
from tests.services.analyzer.test_analyzer import HOURLY
from vgpuscope.model.analysis import Target

A, B = "http://node-a:9394", "http://node-b:9394"


def both(**more):
    tracks = (track(0, target=A, hostname="node-a"), track(1, target=B, hostname="node-b"))
    return reading(*tracks, targets=(Target(name=A, up=True), Target(name=B, up=True)), **more)


def without_b():
    down = Target(name=B, up=False, since=1000.0, reason="connection refused")
    return reading(track(0, target=A, hostname="node-a"), targets=(Target(name=A, up=True), down))


@pytest.fixture
async def killed():
    """An analyzer, one of whose two agents was killed."""
    source = StubSource(both())
    sources = StubSources(source)
    async with running(source, sources=sources, **HOURLY) as analyzer:
        await analyzer.analysed()
        source.answer = without_b()
        analyzer.sources = sources
        await analyzer.analyse()
        yield analyzer


async def missed(analyzer):
    found = [row for row in await analyzer.json("/results") if row["gpu_id"] == uuid(1)]
    return found[0] if found else None


async def test_a_gpu_whose_agent_was_killed_stays_in_the_results_as_unknown(killed):
    row = await missed(killed)
    assert (row["verdict"], row["use_class"], row["status"]) == ("unknown", "unknown", "unknown")
    assert (row["score"], row["tenants"], row["pod"], row["namespace"]) == (None, [], "", "")
    assert (row["hostname"], row["model_name"]) == ("node-b", "NVIDIA A100-SXM4-80GB")
    assert row["last_seen"].endswith("Z")
    detail = await killed.json(f"/api/v1/gpus/{uuid(1)}")
    assert detail["evidence"]["reasons"] == ["VERDICT_NOT_SEEN", "VERDICT_TARGET_DOWN"]
    assert B in detail["why"][0]


async def test_a_pod_that_is_gone_is_in_no_row_and_no_metric(killed):
    assert "train-1" not in (await killed.get("/results")).text
    assert [row["pod"] for row in (await killed.json("/api/v1/workloads"))["rows"]] == ["train-0"]
    page = await killed.metrics()
    assert "train-1" not in page
    assert f'vgpuscope_analyzer_verdict{{gpu_id="{uuid(1)}",hostname="node-b",verdict="unknown"}} 1\n' in page


async def test_how_many_targets_do_not_answer_is_told_everywhere(killed):
    health = await killed.json("/health")
    assert (health["status"], health["targets_up"], health["targets_down"]) == ("degraded", 1, 1)
    summary = await killed.json("/api/v1/summary")
    assert (summary["targets_up"], summary["targets_down"]) == (1, 1)
    assert summary["down_targets"] == [{"name": B, "up": False, "since": 1000.0, "reason": "connection refused"}]
    page = await killed.metrics()
    assert 'vgpuscope_analyzer_targets{state="up"} 1\n' in page
    assert 'vgpuscope_analyzer_targets{state="down"} 1\n' in page


async def test_results_on_the_terminal_say_it_under_the_table(killed, vgpuscope):  # noqa: F811
    code, out, err = await vgpuscope("results", str(killed.client.base_url))
    assert (code, err) == (0, "")
    assert out.rstrip().splitlines()[-1] == f"1 of 2 scrape targets does not answer: {B} (connection refused)"
    _, out, _ = await vgpuscope("results", str(killed.client.base_url), "--json")
    assert out.rstrip().endswith("]")


async def test_a_fleet_that_answers_needs_no_line_under_the_table(vgpuscope):  # noqa: F811
    async with running(StubSource(both()), **HOURLY) as analyzer:
        await analyzer.analysed()
        assert "target" not in (await vgpuscope("results", str(analyzer.client.base_url)))[1]
        health = await analyzer.json("/health")
        assert (health["status"], health["targets_down"]) == ("healthy", 0)


async def test_a_source_that_does_not_know_its_targets_says_no_number():
    async with running(**HOURLY) as analyzer:
        await analyzer.analysed()
        health = await analyzer.json("/health")
        assert (health["status"], health["targets_up"], health["targets_down"]) == ("healthy", None, None)
        assert "vgpuscope_analyzer_targets" not in await analyzer.metrics()


async def test_stale_results_on_the_terminal_say_since_when(killed, vgpuscope):  # noqa: F811
    killed.source.fail("connection refused")
    await killed.analyse()
    _, out, _ = await vgpuscope("results", str(killed.client.base_url))
    since = (await killed.json("/health"))["stale_since"]
    assert f"Stale since {since}: QUERY_FAILED: connection refused" in out.splitlines()


async def test_a_missed_gpu_survives_a_new_start_of_the_analyzer():
    store = SharedHistory()
    async with running(StubSource(both()), history=store, **HOURLY) as analyzer:
        await analyzer.analysed()
        analyzer.source.answer = without_b()
        await analyzer.analyse()
        before = await missed(analyzer)
    async with running(StubSource(without_b()), history=store, **HOURLY) as analyzer:
        await analyzer.analysed()
        after = await missed(analyzer)
        assert {**after, "timestamp": ""} == {**before, "timestamp": ""}


async def test_a_gpu_that_is_back_is_judged_as_before(killed):
    killed.source.answer = both()
    await killed.analyse()
    row = await missed(killed)
    assert (row["verdict"], row["last_seen"], row["pod"]) == ("in_use", None, "train-1")
    assert (await killed.json("/health"))["status"] == "healthy"


async def test_a_gpu_leaves_with_its_node(killed):
    killed.sources.known_nodes = {"node-a", "node-b"}
    await killed.analyse()
    assert await missed(killed)
    killed.sources.known_nodes = {"node-a"}
    await killed.analyse()
    assert await missed(killed) is None


async def test_a_gpu_is_forgotten_after_the_configured_time():
    wall = Ahead()
    async with running(StubSource(both()), wall=wall, **HOURLY, **{"analyzer.forget_after": "2h"}) as analyzer:
        await analyzer.analysed()
        analyzer.source.answer = without_b()
        wall.seconds = 7000
        await analyzer.analyse()
        assert await missed(analyzer)
        wall.seconds = 7300
        await analyzer.analyse()
        assert await missed(analyzer) is None


async def test_a_gpu_of_another_fleet_is_not_missed_in_this_one(tmp_path, monkeypatch):
    file = tmp_path / "config.yaml"
    file.write_text("prometheus: {query_condition: '{cluster=\"a\"}'}\n")
    async with running(StubSource(both()), file=file, **HOURLY) as analyzer:
        await analyzer.analysed()
        analyzer.source.answer = without_b()
        file.write_text("prometheus: {query_condition: '{cluster=\"b\"}'}\n")
        analyzer.analyzer.signals()[signal.SIGHUP]()
        await analyzer.analysed(2)
        assert await missed(analyzer) is None
