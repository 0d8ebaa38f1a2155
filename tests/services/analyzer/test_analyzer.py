"""The analyzer as it runs: one analysis at a time, what is old proves nothing, and one replica analyses for all."""

import asyncio
import gc
import gzip
import json
import logging
import re
import signal
import sys
import threading
import time

import httpx2
import pytest
from msgspec.structs import replace

from tests.contract.clusterrun import promtool_check
from tests.environment import bare
from tests.http.serving import SOON, Numbers, served, until
from tests.loopclock import forward
from tests.paths import TESTS
from tests.services.analyzer.analyzing import (
    IDLE,
    PATIENT,
    TOKEN,
    Ahead,
    SharedHistory,
    StubSource,
    StubSources,
    reading,
    running,
    track,
    uuid,
)
from tests.services.analyzer.promstub import Engine, Hang, Reply, SpoilingServer
from vgpuscope.model.analysis import Analysis, Fault
from vgpuscope.model.errors import SourceDown
from vgpuscope.services.analyzer.cycle import AnalysisCycle
from vgpuscope.store.opening import open_store

HOURLY = {"scheduler.interval": 3600}
LEASE = 1.5  # seconds: it is renewed often
QUICK = {"lease": LEASE, "read_within": (0.05, 0.05)}
WATCHFUL = {"look_every": 0.02}


# ── the schedule ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_first_analysis_begins_at_the_start():
    async with running(**HOURLY) as analyzer:
        await analyzer.analysed()
        assert [row["verdict"] for row in await analyzer.json("/results")] == ["idle", "in_use"]


async def test_analyses_follow_each_other_at_the_interval():
    async with running(clock=lambda: asyncio.get_running_loop().time(), **HOURLY) as analyzer:
        for times in (1, 2, 3):
            await analyzer.analysed(times)
            forward(3500)
            for _ in range(100):
                await asyncio.sleep(0)
            assert analyzer.source.reads == times
            forward(100)


async def test_a_shorter_interval_takes_effect_at_once():
    async with running(**HOURLY) as analyzer:
        await analyzer.analysed()
        await analyzer.client.post("/config/update", params={"interval": 1})
        await analyzer.analysed(3)


async def test_an_analysis_says_how_long_it_took_until_its_result_was_shown(monkeypatch):
    def slowly(self, *args, **kwargs):
        board = made(self, *args, **kwargs)
        never.wait(0.3)  # the time that is to be reported
        return board

    made, never = AnalysisCycle._make_board, threading.Event()
    monkeypatch.setattr(AnalysisCycle, "_make_board", slowly)
    async with running(**HOURLY) as analyzer:
        await analyzer.analysed()
        assert (await analyzer.json("/api/v1/summary"))["seconds"] >= 0.3


async def test_triggers_join_the_analysis_that_runs():
    async with running(**HOURLY) as analyzer:
        await analyzer.analysed()
        analyzer.source.hang()
        before = analyzer.source.reads
        answers = await asyncio.gather(*(analyzer.client.post("/analyze") for _ in range(5)))
        await analyzer.source.asked.wait()
        said = [answer.json()["message"] for answer in answers]
        assert sum("started" in message for message in said) == 1
        assert sum("joined" in message for message in said) == 4
        analyzer.source.let_go.set()
        await analyzer.analysed(2)
        assert analyzer.source.reads == before + 1


async def test_health_answers_while_the_source_never_does():
    source = StubSource()
    source.hang()
    async with running(source) as analyzer:
        await source.asked.wait()
        for path in ("/health", "/", "/results", "/metrics", "/healthz", "/config"):
            assert (await analyzer.get(path)).status_code == 200
        assert analyzer.analyzer.state().tally.analyses == 0


async def test_it_stops_while_the_source_never_answers():
    source = StubSource()
    source.hang()
    async with running(source) as analyzer:
        await source.asked.wait()
        async with asyncio.timeout(SOON):
            await analyzer.analyzer.close()
        assert analyzer.analyzer._cycle._running.cancelled()


async def test_a_source_that_does_not_keep_its_own_deadline_is_left():
    forward(0)
    source = StubSource()
    source.hang()
    async with running(source, **HOURLY, **{"prometheus.deadline": 1}) as analyzer:
        await source.asked.wait()
        forward(1 + 30)
        await analyzer.analysed()
        assert (await analyzer.json("/health"))["error"]["code"] == "QUERY_TIMEOUT"


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_failed_analysis_is_counted_and_what_was_known_stays(caplog):
    async with running(**HOURLY) as analyzer:
        await analyzer.analysed()
        rows = await analyzer.json("/results")
        analyzer.source.fail("connection refused")
        await analyzer.analyse()
        health = await analyzer.json("/health")
        assert (health["status"], health["prometheus_connected"]) == ("degraded", False)
        assert health["error"]["code"] == "QUERY_FAILED"
        assert await analyzer.json("/results") == rows
        page = await analyzer.metrics()
        assert "gpu_analysis_total 2\n" in page
        assert "gpu_analysis_errors_total 1\n" in page
    assert "analysis failed" in caplog.text


async def test_an_analysis_that_is_cancelled_from_inside_is_counted_as_failed(caplog):
    async with running(**HOURLY) as analyzer:
        await analyzer.analysed()
        analyzer.source.answer = asyncio.CancelledError()
        await analyzer.analyse()
        assert (await analyzer.json("/health"))["error"]["code"] == "INTERNAL"
        assert "gpu_analysis_errors_total 1\n" in await analyzer.metrics()
    (record,) = [record for record in caplog.records if record.message == "analysis failed"]
    assert record.fields["err"] == "the analysis was cancelled; see the log"
    assert record.exc_info


async def test_an_analysis_that_is_no_longer_shown_is_let_go():
    def there():
        gc.collect()
        return {id(one) for one in gc.get_objects() if type(one) is Analysis}

    before = there()
    async with running() as analyzer:
        await analyzer.analysed()
        await analyzer.metrics()
        await analyzer.json("/results")
        await analyzer.analyse()
        assert len(there() - before) == 1


async def test_a_source_that_is_back_is_healthy():
    source = StubSource(SourceDown("away"))
    async with running(source, **HOURLY) as analyzer:
        await analyzer.analysed()
        source.answer = reading(track(0))
        await analyzer.analyse()
        health = await analyzer.json("/health")
        assert (health["status"], health["error"]) == ("healthy", None)


async def test_a_mistake_of_our_own_is_counted_and_told_and_ends_nothing(caplog):
    source = StubSource(ZeroDivisionError("ours"))
    async with running(source, **HOURLY) as analyzer:
        await analyzer.analysed()
        assert (await analyzer.json("/health"))["error"]["code"] == "INTERNAL"
        source.answer = reading(track(0))
        await analyzer.analyse()
        assert len(await analyzer.json("/results")) == 1
    assert "ZeroDivisionError" in caplog.text


async def test_a_partial_reading_is_shown_as_such_and_counted():
    fault = Fault(part="mem_copy of dcgm", code="QUERY_TIMEOUT", message="late", terms=("mem_copy",), schema="dcgm")
    async with running(StubSource(reading(track(0), faults=(fault,))), **HOURLY) as analyzer:
        await analyzer.analysed()
        assert (await analyzer.json("/health"))["partial"] is True
        assert (await analyzer.json("/api/v1/summary"))["faults"] == [
            {
                "part": "mem_copy of dcgm",
                "code": "QUERY_TIMEOUT",
                "message": "late",
                "terms": ["mem_copy"],
                "schema": "dcgm",
                "own": None,
            }
        ]
        page = await analyzer.metrics()
        assert 'vgpuscope_analyzer_faults{code="QUERY_TIMEOUT"} 1\n' in page
        assert "gpu_analysis_errors_total 1\n" in page


async def test_a_window_that_cannot_hold_the_scrapes_is_named_in_health_and_evidence():
    rare = replace(track(0, util=IDLE), interval=180.0)
    async with running(StubSource(reading(rare)), **HOURLY) as analyzer:
        await analyzer.analysed()
        (fault,) = (await analyzer.json("/health"))["faults"]
        assert fault == "WINDOW_TOO_SHORT: 1 GPUs have a sample only every 180 s, too rarely for the window"
        detail = await analyzer.json(f"/api/v1/gpus/{uuid(0)}")
        assert detail["gpu"]["verdict"] == "unknown"
        assert "time_window_min to at least 15 min" in detail["why"][0]


async def test_owners_that_cannot_be_asked_cost_only_their_names():
    source = StubSource()
    sources = StubSources(source)
    sources.known_owners = SourceDown("no exporter")
    async with running(source, sources=sources, **HOURLY) as analyzer:
        await analyzer.analysed()
        assert {row["verdict"] for row in await analyzer.json("/results")} == {"idle", "in_use"}
        assert (await analyzer.json("/health"))["partial"] is True


async def test_when_an_interval_has_passed_and_samples_may_no_longer_be_late_nothing_is_concluded():
    wall = Ahead()
    async with running(wall=wall, **HOURLY) as analyzer:
        await analyzer.analysed()
        analyzer.source.fail()
        wall.seconds = 3600 + 3 * 30 - 60  # verdict.max_age_intervals times the window's 30 s
        assert {row["verdict"] for row in await analyzer.json("/results")} == {"idle", "in_use"}
        assert uuid(0) in await analyzer.metrics()
        wall.seconds = 3600 + 3 * 30 + 5
        rows = await analyzer.json("/results")
        assert {(row["verdict"], row["use_class"], row["stale"]) for row in rows} == {("unknown", "unknown", True)}
        assert {row["status"] for row in rows} == {"unknown"}
        assert {tenant["verdict"] for row in rows for tenant in row["tenants"]} == {"unknown"}
        assert (await analyzer.json("/results/stats"))["by_verdict"] == {"in_use": 0, "idle": 0, "unknown": 2}
        low = await analyzer.json("/results/low")
        assert (low["stale"], low["count"], low["gpus"]) == (True, 0, [])
        detail = await analyzer.json(f"/api/v1/gpus/{uuid(1)}")
        assert (detail["gpu"]["verdict"], detail["tenants"][0]["tenant"]["verdict"]) == ("unknown", "unknown")
        assert {row["verdict"] for row in (await analyzer.json("/api/v1/workloads"))["rows"]} == {"unknown"}
        health = await analyzer.json("/health")
        assert (health["status"], health["analysis_timeout"]) == ("warning", True)
        page = await analyzer.metrics()
        assert uuid(0) not in page
        assert "gpu_total_count" not in page
        assert "gpu_analysis_total 1\n" in page


async def test_what_was_idle_long_ago_is_no_reason_to_be_idle_now():
    wall = Ahead()
    between = 0.07  # above idle_enter, below idle_leave
    async with running(StubSource(reading(track(0, util=IDLE))), wall=wall, **HOURLY) as analyzer:
        await analyzer.analysed()
        analyzer.source.answer = reading(track(0, util=between))
        await analyzer.analyse()
        assert (await analyzer.json("/results"))[0]["verdict"] == "idle"
        analyzer.source.fail()
        wall.seconds = 4 * 3600
        await analyzer.analyse()
        analyzer.source.answer = reading(track(0, util=between))
        await analyzer.analyse()
        assert (await analyzer.json("/results"))[0]["verdict"] == "in_use"


async def test_what_was_stored_long_ago_is_shown_but_proves_nothing():
    wall = Ahead()
    store = SharedHistory()
    async with running(StubSource(reading(track(0, util=IDLE))), history=store, wall=wall, **HOURLY) as analyzer:
        await analyzer.analysed()
    wall.seconds = 86400
    source = StubSource(reading(track(0, util=0.07)))
    source.hang()
    async with running(source, history=store, wall=wall, **HOURLY) as analyzer:
        await source.asked.wait()
        (row,) = await analyzer.json("/results")
        assert (row["gpu_id"], row["verdict"], row["stale"]) == (uuid(0), "unknown", True)
        assert uuid(0) not in await analyzer.metrics()
        source.let_go.set()
        await analyzer.analysed()
        (row,) = await analyzer.json("/results")
        assert (row["verdict"], row["stale"]) == ("in_use", False)


# ── what is shown to Prometheus ──────────────────────────────────────────────────────────────────────────────────

SEED_GPU = {
    "gpu_core_utilization",
    "gpu_memory_used_mb",
    "gpu_memory_usage_percent",
    "gpu_power_usage_watts",
    "gpu_memory_copy_utilization",
    "gpu_sm_clock_mhz",
    "gpu_memory_total_mb",
    "gpu_utilization_score",
}
SEED_FLEET = {
    "gpu_total_count",
    "gpu_low_utilization_count",
    "gpu_idle_count",
    "gpu_average_score",
    "gpu_status_count",
    "gpu_namespace_count",
    "gpu_namespace_average_score",
    "gpu_analysis_total",
    "gpu_analysis_errors_total",
    "gpu_analysis_duration_seconds_bucket",
    "gpu_monitor_service_info",
}


def names(page: str) -> set[str]:
    return {line.partition("{")[0].partition(" ")[0] for line in page.splitlines() if not line.startswith("#")}


async def test_every_name_of_gpu_oour_is_there_with_its_labels():
    async with running(**HOURLY) as analyzer:
        await analyzer.analysed()
        page = await analyzer.metrics()
    assert names(page) >= SEED_GPU | SEED_FLEET
    gpu = f'gpu_id="{uuid(0)}",pod="train-0",namespace="ml",hostname="node-0"'
    assert f"gpu_core_utilization{{{gpu}}} 95.0\n" in page
    assert f'gpu_memory_total_mb{{{gpu},model="NVIDIA A100-SXM4-80GB"}} 81920.0\n' in page
    assert f'gpu_utilization_score{{{gpu},model="NVIDIA A100-SXM4-80GB",status="high"}} 74.4\n' in page


async def test_series_of_pods_and_states_that_are_gone_are_gone_and_a_gpu_that_is_missed_is_unknown():
    async with running(StubSource(reading(track(0), track(1))), **HOURLY) as analyzer:
        await analyzer.analysed()
        analyzer.source.answer = reading(track(0, util=IDLE, pod="other"))
        await analyzer.analyse()
        page = await analyzer.metrics()
    assert f'vgpuscope_analyzer_verdict{{gpu_id="{uuid(1)}",hostname="node-0",verdict="unknown"}} 1\n' in page
    assert not re.findall(rf'\n(gpu_[a-z_]+){{gpu_id="{uuid(1)}"', page)
    assert 'pod="train-0"' not in page
    assert 'pod="train-1"' not in page
    scores = [line for line in page.splitlines() if line.startswith("gpu_utilization_score{")]
    assert len(scores) == 1
    assert 'status="high"' not in scores[0]
    assert 'gpu_status_count{status="high"} 0\n' in page


@pytest.mark.real
async def test_promtool_likes_the_page():
    async with running(**HOURLY) as analyzer:
        await analyzer.analysed()
        code, said = promtool_check(await analyzer.metrics())
    # gpu-oour's names are what they are; what promtool calls an error is one, what it would call better is not
    assert code in {0, 3}, said
    assert all("vgpuscope_" not in line for line in said.splitlines()), said


async def test_all_four_forms_of_the_page_say_the_same():
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
    from prometheus_client.parser import text_string_to_metric_families as plain

    async with running(**HOURLY) as analyzer:
        await analyzer.analysed()
        pages = {}
        for accept in ("text/plain", "application/openmetrics-text; version=1.0.0"):
            for encoding in ("identity", "gzip"):
                asked = {"accept": accept, "accept-encoding": encoding}
                async with analyzer.client.stream("GET", "/metrics", headers=asked) as got:
                    raw = b"".join([part async for part in got.aiter_raw()])
                pages[accept, encoding] = (gzip.decompress(raw) if encoding == "gzip" else raw).decode()
    one, two, three, four = pages.values()
    assert (one, three) == (two, four)
    flat = {(s.name, tuple(sorted(s.labels.items()))): s.value for f in plain(one) for s in f.samples}
    same = {(s.name, tuple(sorted(s.labels.items()))): s.value for f in openmetrics(three) for s in f.samples}
    assert flat == same
    assert three.endswith("# EOF\n")


# ── replicas and the store ───────────────────────────────────────────────────────────────────────────────────────


async def test_a_follower_shows_what_the_leader_found_and_takes_over_when_it_is_gone():
    now = [0.0]  # of the store: it stands until it is put forward
    store, first, second = (
        SharedHistory(lambda: now[0]),
        StubSource(),
        StubSource(reading(track(0), track(1), track(2))),
    )
    async with running(second, history=store, paces=QUICK, **HOURLY) as later:
        await until(later.analyzer._replica.leads.__bool__)
        await later.analysed()
        async with running(first, history=store, paces=QUICK, **HOURLY) as follower:
            await until(lambda: follower.analyzer.state().last)
            assert first.reads == 0
            assert len(await follower.json("/results")) == 3
            health = await follower.json("/health")
            assert (health["leader"], health["status"]) == (False, "healthy")
            assert health["last_analysis"] is not None
            refused = await follower.client.post("/analyze")
            assert (refused.status_code, refused.json()["error"]["code"]) == (409, "NOT_LEADER")
            async with asyncio.timeout(SOON):  # the page of GPUs is made after the rows
                while uuid(2) not in await follower.metrics():
                    pass
            assert "vgpuscope_analyzer_leader 0\n" in await follower.metrics()
            later.life.stop()

            def taken_over():
                now[0] += LEASE
                return follower.analyzer._replica.leads

            await until(taken_over)
            await follower.analysed()
            assert first.reads >= 1


async def test_it_is_ready_once_it_knows_who_leads_and_has_what_there_is():
    store, source = SharedHistory(), StubSource()
    store.hold()
    async with running(source, history=store, paces=QUICK, **HOURLY) as analyzer:
        assert (await analyzer.get("/readyz")).status_code == 503
        store.let_go.set()
        await analyzer.analysed()
        assert (await analyzer.get("/readyz")).status_code == 200


async def test_a_follower_is_ready_though_the_leader_has_found_nothing_yet():
    store = SharedHistory()
    await store.lease.take("somebody else", 3600)
    async with running(history=store, paces=QUICK, **HOURLY) as follower:
        await until(lambda: follower.analyzer._replica.stored)
        assert (await follower.get("/readyz")).status_code == 200
        assert await follower.json("/results") == []
        assert follower.source.reads == 0


async def test_a_result_survives_a_new_start():
    store = SharedHistory()
    async with running(history=store, **HOURLY) as analyzer:
        await analyzer.analysed()
        rows = await analyzer.json("/results")
    source = StubSource()
    source.hang()
    async with running(source, history=store, **HOURLY) as analyzer:
        await source.asked.wait()
        assert await analyzer.json("/results") == rows
        assert uuid(0) in await analyzer.metrics()


async def test_without_its_store_an_analyzer_goes_on_and_nothing_is_lost(caplog):
    store = SharedHistory()
    store.down = True
    async with running(history=store, paces=QUICK, **HOURLY) as analyzer:
        await analyzer.analysed()
        await analyzer.analyse()
        assert (await analyzer.json("/health"))["history"] is False
        assert 'vgpuscope_analyzer_errors_total{code="HISTORY_DOWN"}' in await analyzer.metrics()
        assert not analyzer.analyzer._replica.leadership.may_act()
        store.down = False
        await until(lambda: analyzer.analyzer._replica.leads)
        await until(analyzer.analyzer._replica.leadership.may_act)
        await analyzer.analyzer._cycle.finished()
        await analyzer.analyse()
        numbers = [saved.number for saved in store.saved]
        assert numbers == sorted(set(numbers))
        assert numbers[:2] == [1, 2]
    assert sum("history store is down" in record.message for record in caplog.records) == 1


async def test_the_hint_of_an_outage_names_the_analyzers_own_setting(tmp_path):
    store = open_store(str(tmp_path / "missing" / "store.db"), keep_results=9e6, keep_hours=9e6, keep_days=9e6)
    async with running(history=store, **HOURLY) as analyzer:
        await analyzer.analysed()
        answer = await analyzer.get("/api/v1/history?gpu_id=GPU-1")
    assert answer.status_code == 503
    assert answer.json()["error"]["hint"] == (
        "Check analyzer.history, the disk or the database. Unwritten results are written when the store is back."
    )


# ── settings that change while it runs ───────────────────────────────────────────────────────────────────────────


async def test_a_changed_file_is_read_again_and_a_broken_one_changes_nothing(tmp_path, caplog):
    file = tmp_path / "config.yaml"
    file.write_text("thresholds: {low_utilization: 20}\n")
    async with running(file=file, paces=WATCHFUL, **HOURLY) as analyzer:
        await analyzer.analysed()
        file.write_text("thresholds: {low_utilization: 33}\n")
        await until(lambda: analyzer.analyzer.config().thresholds.low_utilization == 33)
        broken = tmp_path / "broken.yaml"
        broken.write_text("thresholds: {low_utiliz")
        broken.replace(file)  # in one step: another thread reads it, and an empty file would be a good one
        await until(lambda: "CONFIG_INVALID" in analyzer.analyzer.counters.errors)
        await until(lambda: analyzer.analyzer._settings._looked == analyzer.analyzer._settings._read)
        assert (await analyzer.json("/config"))["thresholds"]["low_utilization"] == 33
        assert 'vgpuscope_analyzer_errors_total{code="CONFIG_INVALID"} 1\n' in await analyzer.metrics()
    assert sum(record.message == "settings rejected" for record in caplog.records) == 1


async def test_a_new_token_counts_at_once(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(f"analyzer: {{api_token: {TOKEN}}}\n")
    async with running(file=file, paces=WATCHFUL, **HOURLY) as analyzer:
        bearer = {"authorization": f"Bearer {TOKEN}-2"}
        assert (await analyzer.client.post("/analyze", headers=bearer)).status_code == 401
        file.write_text(f"analyzer: {{api_token: {TOKEN}-2}}\n")

        async def let_in():
            return (await analyzer.client.post("/analyze", headers=bearer)).status_code == 200

        await until(let_in)


# ── the log ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_analysis_is_told_as_a_table_if_the_setting_says_so(caplog):
    caplog.set_level(logging.INFO, "vgpuscope")
    async with running(**HOURLY, **{"analyzer.log_results": "table"}) as analyzer:
        await analyzer.analysed()
    said = [record.message for record in caplog.records]
    assert "=" * 60 in said
    assert "Starting GPU utilization analysis" in said
    assert "Found 2 active GPUs" in said
    assert any(line.startswith("ml/train-0 ") and uuid(0) in line for line in said)
    assert any(line.startswith("Analysis completed in ") for line in said)


# ── the process ──────────────────────────────────────────────────────────────────────────────────────────────────


def fleet(*, now: float) -> Engine:
    engine = Engine()
    for number, util in enumerate((95, 0)):
        labels = {"UUID": uuid(number), "Hostname": "node-0", "modelName": "NVIDIA A100", "gpu": str(number)}
        held = {"exported_pod": f"train-{number}", "exported_namespace": "ml", "pod": "dcgm", "namespace": "gpu"}
        for name, value in {
            "DCGM_FI_DEV_GPU_UTIL": util,
            "DCGM_FI_DEV_MEM_COPY_UTIL": util / 2,
            "DCGM_FI_DEV_FB_USED": 40000,
            "DCGM_FI_DEV_FB_FREE": 40000,
            "DCGM_FI_DEV_POWER_USAGE": 60 + 2.5 * util,
            "DCGM_FI_DEV_SM_CLOCK": 1410,
        }.items():
            engine.add(name, [value] * 21, until=now, **labels, **held)
    return engine


@pytest.fixture
async def process():
    started = []

    async def start(*args, program=("-m", "vgpuscope"), **environ):
        command = [sys.executable, *program, "analyzer", "--listen", "127.0.0.1:0", *args]
        child = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE, env=bare(**environ))
        started.append(child)
        return child

    yield start
    for child in started:
        if child.returncode is None:
            child.kill()
        await child.communicate()


async def heard(child, word: str) -> list[dict]:
    """The lines of the log up to that which has this word."""
    lines: list = []
    async with asyncio.timeout(2 * SOON):
        while True:
            line = await child.stderr.readline()
            assert line, lines
            lines.append(json.loads(line))
            if word in lines[-1]["msg"]:
                return lines


async def test_the_process_reads_prometheus_by_gpu_oours_variables_and_leaves_when_told(process):
    async with SpoilingServer(fleet(now=time.time())) as prometheus:
        child = await process(
            "--log-format", "json", PROM_URL=prometheus.url, THRESHOLD="30", LOG_LEVEL="info", INTERVAL="3600"
        )
        (first, *_) = await heard(child, "analyzer starts")
        await heard(child, "analysis completed")
        async with httpx2.AsyncClient(base_url=first["url"], timeout=SOON) as client:
            rows = (await client.get("/results")).json()
            info = (await client.get("/")).json()
        assert [(row["pod"], row["status"]) for row in rows] == [("train-1", "low"), ("train-0", "high")]
        assert info["config"] == {
            "prometheus_url": prometheus.url,
            "threshold": 30,
            "interval": 3600,
            "time_window_min": 10,
            "max_workers": 8,
        }
        child.send_signal(signal.SIGTERM)
        async with asyncio.timeout(SOON):
            _, rest = await child.communicate()
        assert child.returncode == 0
        assert b"Traceback" not in rest


async def test_the_process_leaves_in_time_while_prometheus_hangs(process):
    async with SpoilingServer(fleet(now=time.time())) as prometheus:
        prometheus.spoil = lambda query, reply: Hang()
        child = await process("--log-format", "json", program=PATIENT, PROM_URL=prometheus.url)
        await heard(child, "analyzer starts")
        await until(lambda: prometheus.queries)
        child.send_signal(signal.SIGTERM)
        async with asyncio.timeout(SOON):
            assert await child.wait() == 0


async def test_a_hangup_reads_the_settings_again(process, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("logging: {level: INFO}\n")
    async with SpoilingServer(fleet(now=time.time())) as prometheus:
        child = await process("--config", str(file), "--log-format", "json", PROM_URL=prometheus.url)
        await heard(child, "analysis completed")
        child.send_signal(signal.SIGHUP)
        await heard(child, "settings reloaded")


async def test_warnings_only_are_told_when_asked_for(process):
    async with SpoilingServer(fleet(now=time.time())) as prometheus:
        table = ("--log-results", "table")
        child = await process(
            "--log-format", "json", *table, PROM_URL=prometheus.url, LOG_LEVEL="warning", THRESHOLD="30"
        )
        lines = await heard(child, "  - ml/train-1")
        assert {line["level"] for line in lines} == {"warning"}


@pytest.mark.parametrize(
    ("environ", "code"),
    [
        ({"PROM_URL": "http://x", "LOG_LEVEL": "foo"}, b"logging.level"),
        ({"PROM_URL": "http://x", "THRESHOLD": "abc"}, b"thresholds.low_utilization"),
        ({"PROM_URL": "http://x", "THRESHOLD": "5"}, b"not in ascending order"),
        ({"PROM_URL": "http://x", "INTERVAL": "0"}, b"scheduler.interval"),
        ({"PROM_URL": "http://x", "MAX_WORKERS": "0"}, b"scheduler.max_workers"),
        ({"PROM_URL": "http://x", "VGPUSCOPE_ANALYZER_PROTECT_READS": "true"}, b"protect_reads"),
        ({"PROM_URL": "http://x", "VGPUSCOPE_SCORING_POWER_WEIGHT": "nan"}, b"scoring.power_weight"),
    ],
)
async def test_settings_that_cannot_be_are_refused_at_the_start(process, environ, code):
    child = await process(**environ)
    async with asyncio.timeout(SOON):
        _, said = await child.communicate()
    assert child.returncode == 2
    assert b"CONFIG_INVALID" in said
    assert code in said
    assert b"Traceback" not in said


async def test_a_prometheus_that_answers_with_a_page_makes_nobody_idle(process):
    async with SpoilingServer(fleet(now=time.time())) as prometheus:
        prometheus.spoil = lambda query, reply: Reply(200, b"<html>login</html>", ("content-type: text/html",))
        child = await process("--log-format", "json", PROM_URL=prometheus.url)
        (first, *_) = await heard(child, "analyzer starts")
        failed = (await heard(child, "analysis failed"))[-1]
        assert failed["level"] == "error"
        async with httpx2.AsyncClient(base_url=first["url"], timeout=SOON) as client:
            assert (await client.get("/results")).json() == []
            assert (await client.get("/health")).json()["status"] == "degraded"


async def test_a_result_survives_a_kill(process, tmp_path):
    store = str(tmp_path / "results.db")
    async with SpoilingServer(fleet(now=time.time())) as prometheus:
        args = ("--log-format", "json", "--history", store, "--interval", "1", "--log-results", "table")
        child = await process(*args, PROM_URL=prometheus.url)
        (first, *_) = await heard(child, "analyzer starts")
        for _ in range(2):
            await heard(child, "Analysis completed")
        async with httpx2.AsyncClient(base_url=first["url"], timeout=SOON) as client:
            before = (await client.get("/results")).json()
        child.kill()
        await child.wait()
        prometheus.spoil = lambda query, reply: Hang()
        child = await process(*args, PROM_URL=prometheus.url)
        (first, *_) = await heard(child, "Starting GPU")
        async with httpx2.AsyncClient(base_url=first["url"], timeout=SOON) as client:
            after = (await client.get("/results")).json()
            points = (await client.get("/api/v1/history", params={"gpu_id": uuid(0)})).json()
    assert [(row["gpu_id"], row["score"]) for row in after] == [(row["gpu_id"], row["score"]) for row in before]
    assert points
    assert {point["gpu_id"] for point in points} == {uuid(0)}


async def test_the_process_needs_no_prometheus_where_it_reaches_the_agents(process):
    page = (TESTS / "golden" / "node.prom").read_bytes()
    gpus = set(re.findall(r'vgpuscope_gpu_info\{[^}]*gpu_uuid="(GPU-[^"]+)"', page.decode()))
    assert gpus

    class Agent(Numbers):
        def text(self):
            return page

    async with served(metrics=Agent) as agent:
        child = await process(
            *("--log-format", "json", "--targets", agent.url, "--interval", "1", "--window-minutes", "0.1"),
            VGPUSCOPE_ANALYZER_SCRAPE_INTERVAL="1",
            VGPUSCOPE_ANALYZER_RATE_LIMIT="10000",
        )
        (first, *_) = await heard(child, "analyzer starts")
        async with httpx2.AsyncClient(base_url=first["url"], timeout=SOON) as client:

            async def well():
                health = (await client.get("/health")).json()
                return health["status"] == "healthy" and health["source"] == "own scrapes of 1 targets"

            async def all_known():
                return {row["gpu_id"] for row in (await client.get("/results")).json()} == gpus

            await until(well)
            await until(all_known)


async def test_nobody_waits_while_a_large_fleet_is_judged():
    source = StubSource(reading(*(track(number, util=number % 100 / 100) for number in range(3000))))
    source.hang()
    shares, whole = [], time.process_time
    async with running(source, **HOURLY, **{"analyzer.rate_limit": 1e6}) as analyzer:
        await source.asked.wait()
        source.let_go.set()
        first = whole()
        while analyzer.analyzer.state().tally.analyses == 0 or not analyzer._shown():
            began = time.thread_time()
            assert (await analyzer.get("/health")).status_code == 200
            shares.append(time.thread_time() - began)
        cost = whole() - first
        assert len(await analyzer.json("/results")) == 3000
    assert len(shares) > 3
    assert max(shares) < cost / 10  # of what it costs, the loop never does much at a time
