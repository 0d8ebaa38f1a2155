"""What gpu-oour got wrong, seen in runs of it: each is a law here, held by a real analyzer over a real Prometheus.

The fleet is busy but for a few GPUs. The worst that may be said of a busy one is `unknown`: those who act on `idle`
would take it away from its owner.
"""

import json
import random
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from tests.contract.oour_world import BUSY, BUSY_SCORE, H100, Fleet, Proxy, analyzer, called_idle, command, uuid
from tests.contract.promworld import prometheus, write
from tests.services.agent.noderoot import WITHIN
from tests.services.analyzer.analyzing import PATIENT
from tests.services.analyzer.promstub import Cut, Drop, Hang, Reply
from tests.standins.llm import honest, listening

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("gpu-oour")]
TOKEN = "a-token-of-the-tests"
DEADLINE = 8  # seconds
WEIGHTS = ("gpu_util_weight", "mem_copy_weight", "mem_used_weight", "power_weight")


@pytest.fixture(scope="module")
def fleet():
    return Fleet()


@pytest.fixture(scope="module")
def real(fleet, tmp_path_factory):
    """A Prometheus that holds the fleet."""
    with prometheus(tmp_path_factory.mktemp("prometheus")) as url:
        write(url, fleet.series)
        yield url


@pytest.fixture(scope="module")
def standing_proxy(real):
    with Proxy(real) as found:
        yield found


@pytest.fixture
def proxy(standing_proxy):
    standing_proxy.reset()
    yield standing_proxy
    standing_proxy.reset()


@pytest.fixture(scope="module")
def calm(real, tmp_path_factory):
    """An analyzer before which nothing stands; tests only look at what it says."""
    with analyzer(tmp_path_factory.mktemp("calm"), PROM_URL=real) as found:
        yield found


@pytest.fixture(scope="module")
def standing_analyzer(standing_proxy, tmp_path_factory):
    with analyzer(tmp_path_factory.mktemp("behind"), PROM_URL=standing_proxy.url) as found:
        yield found


@pytest.fixture(scope="module")
def hurried_analyzer(standing_proxy, tmp_path_factory):
    path = tmp_path_factory.mktemp("hurried")
    with analyzer(path, PROM_URL=standing_proxy.url, VGPUSCOPE_PROMETHEUS_DEADLINE=str(DEADLINE)) as found:
        yield found


@pytest.fixture
def behind(proxy, standing_analyzer):
    """An analyzer that asks by way of the proxy."""
    return standing_analyzer


@pytest.fixture
def hurried(proxy, hurried_analyzer):
    """Another, with little time for all queries of an analysis, though enough for those that are answered."""
    return hurried_analyzer


# ── 1. A busy GPU stays busy, or becomes unknown, when queries fail (gpu-oour: any failed query counts as 0) ────


def rowless(reply: Reply, keep) -> Reply:
    """The answer with only some of its rows, and nothing that says so."""
    body = json.loads(reply.body)
    if isinstance(body["data"], dict):
        body["data"]["result"] = [row for row in body["data"]["result"] if keep(row)]
    return Reply(body=json.dumps(body).encode())


def numberless(reply: Reply) -> Reply:
    body = json.loads(reply.body)
    for row in body["data"]["result"] if isinstance(body["data"], dict) else ():
        for point in [row["value"]] if "value" in row else row["values"]:
            point[1] = "NaN"
    return Reply(body=json.dumps(body).encode())


SPOILT = {
    "no answer": lambda reply: Hang(),
    "503": lambda reply: Reply(503),
    "status error": lambda reply: Reply(body=b'{"status":"error","errorType":"timeout","error":"query timed out"}'),
    "connection lost": lambda reply: Drop(),
    "connection lost half-way": lambda reply: Cut(reply.body),
    "half of the text": lambda reply: Reply(body=reply.body[: len(reply.body) // 2]),
    "page for logging in": lambda reply: Reply(body=b"<html>Sign in</html>"),
    "empty body": lambda reply: Reply(),
    "NaN": numberless,
    "no rows": lambda reply: rowless(reply, lambda row: False),
    "every other row": lambda reply: rowless(reply, lambda row: sum(map(ord, str(row["metric"]))) % 2),
}
UNTOLD = {"NaN", "no rows", "every other row"}  # which an engine may say in good faith
SLOW = {"no answer", "503", "connection lost", "connection lost half-way"}  # which are asked again, or waited for


def spoiling(kind: str, cycle: int, share: float = 0.5):
    """Spoils this share of all queries, each with all its repetitions, and the same ones in every run."""

    def spoil(query: str, reply: Reply):
        chosen = random.Random(f"{kind} {cycle} {query}").random() < share
        return SPOILT[kind](reply) if chosen else reply

    return spoil


@pytest.mark.parametrize("kind", SPOILT)
def test_no_failed_query_makes_a_busy_gpu_idle(behind, hurried, proxy, kind):
    behind = hurried if kind == "no answer" else behind
    errors, cycles, partial, troubled = behind.errors(), 3 if kind in SLOW else 8, False, 0
    for cycle in range(cycles):
        proxy.spoil = spoiling(kind, cycle)
        assert called_idle(behind.analyse()) == []
        assert not BUSY & {row["gpu_id"] for row in behind.get("/results/low")["gpus"]}
        assert not BUSY & {
            labels["gpu_id"] for labels, _ in behind.page().named("gpu_utilization_score", status="idle")
        }
        health = behind.get("/health")
        partial = partial or (health["partial"] and health["error"] is None)
        summary = behind.get("/api/v1/summary")
        troubled += bool(summary["faults"] or summary["stale_since"])
    # questions that failed together are asked one by one, and what is answered then is no fault: all others are counted
    assert behind.errors() == errors + troubled
    assert kind in UNTOLD or (partial and troubled)
    proxy.spoil = lambda _, reply: reply
    rows = behind.analyse()
    assert called_idle(rows) == []
    assert (behind.of("honest")["status"], behind.of("honest")["verdict"]) == ("idle", "idle")
    assert {row["verdict"] for row in rows if row["gpu_id"] in {uuid(n) for n in range(8)}} == {"in_use"}


@pytest.mark.parametrize("kind", ["503", "status error", "NaN", "no rows"])
def test_when_every_query_fails_nobody_becomes_idle(behind, proxy, kind):
    proxy.spoil = spoiling(kind, 0, share=1.0)
    assert called_idle(behind.analyse()) == []
    assert [row for row in behind.rows() if row["score"] == 0 and row["gpu_id"] in BUSY] == []


# A busy GPU whose memory nobody can tell is as busy as before (gpu-oour: a missing metric counts as 0, 86.8 -> 69.5)
def test_a_metric_that_is_missing_gives_its_weight_to_the_others(behind, proxy):
    assert behind.analyse()
    assert behind.of("busy-0")["score"] == pytest.approx(BUSY_SCORE, abs=0.1)
    proxy.spoil = lambda query, reply: Reply(503) if "FB_USED" in query else reply
    behind.analyse()
    row = behind.of("busy-0")
    assert row["mem_used_mb"] is None
    assert row["score"] == pytest.approx((47.5 + 12 + 9.3) / 0.8, abs=0.1)
    assert (row["status"], row["confidence"]) == ("high", pytest.approx(0.8, abs=0.05))


# ── 2. A busy GPU is not mistaken for another tenant's (gpu-oour: the first series of a UUID counts for all) ────


def test_a_gpu_that_was_handed_over_is_judged_by_its_present_tenant(calm):
    row = calm.of("after")
    assert (row["pod"], row["gpu_util"], row["status"]) == ("after", 95.0, "high")
    assert row["verdict"] != "idle"
    assert [tenant["pod"] for tenant in row["tenants"]] == ["after"]


def test_instances_of_one_gpu_are_judged_apart(calm):
    busy, quiet = calm.of("mig-a"), calm.of("mig-b")
    assert busy["gpu_id"] == quiet["gpu_id"]
    assert (busy["gpu_util"], busy["status"], busy["verdict"]) == (95.0, "high", "in_use")
    # an instance's utilisation of 0 proves nothing: it is not defined for instances
    assert (quiet["gpu_util"], quiet["score"], quiet["status"], quiet["verdict"]) == (0.0, None, "unknown", "unknown")


def test_instances_that_one_pod_has_are_judged_apart(calm):
    rows = [row for row in calm.rows() if row["pod"] == "both"]
    assert {row["mig"]: (row["gpu_util"], row["verdict"]) for row in rows} == {
        "GI-1": (95.0, "in_use"),
        "GI-2": (0.0, "unknown"),
    }


def test_a_gpu_that_several_share_is_one_gpu(calm):
    rows = [row for row in calm.rows() if row["gpu_id"] == uuid(11)]
    assert [(row["shared"], row["verdict"], len(row["tenants"])) for row in rows] == [(True, "in_use", 2)]
    assert {tenant["verdict"] for tenant in rows[0]["tenants"]} == {"unknown"}
    gpus = {(row["gpu_id"], row["mig"]) for row in calm.rows()}
    assert calm.get("/results/stats")["total_gpus"] == calm.page().one("gpu_total_count") == len(gpus)


# A busy fleet costs a handful of queries, however many GPUs it has (gpu-oour: 6 for each series)
def test_the_number_of_queries_does_not_follow_that_of_gpus(behind, proxy):
    rows = behind.analyse()
    assert len(rows) > 15
    assert len(proxy.asked) < 2 * len(rows)
    queries = {form["query"] for form in proxy.asked if "query" in form}
    assert not any(f'UUID="{uuid(n)}"' in query for query in queries for n in range(8))


# ── 3. A busy GPU's former pods are gone (gpu-oour: a finished pod is active, and idle, for the whole retention) ─


def test_pods_that_have_finished_are_not_listed(calm):
    gone = {"before", "just-finished", "dead-for-half-an-hour", "dead-for-two-hours"}
    assert not gone & {tenant["pod"] for row in calm.rows() for tenant in row["tenants"]}
    assert not gone & {labels.get("pod") for (_, pairs) in calm.page() for labels in [dict(pairs)]}
    assert not {uuid(12), uuid(13), uuid(14)} & {row["gpu_id"] for row in calm.rows()}
    assert calm.get("/results/low")["count"] == 3
    assert calm.get("/results/stats")["idle_count"] == calm.page().one("gpu_idle_count") == 3


# ── 4. A busy GPU is busy in every time zone (gpu-oour: any TZ but UTC moves the window, and all become idle) ───


def essence(row: dict) -> tuple:
    return tuple(row[name] for name in ("gpu_id", "mig", "pod", "gpu_util", "score", "status", "verdict"))


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "America/New_York"])
def test_the_time_zone_changes_nothing(real, calm, tmp_path, zone):
    with analyzer(tmp_path, PROM_URL=real, TZ=zone) as there:
        # analysed one after the other: with time, more is known of a young pod
        there.wait(lambda: list(map(essence, there.analyse())) == list(map(essence, calm.analyse())))
        stamp = there.rows()[0]["timestamp"]
    assert stamp.endswith("Z")
    assert stamp[:10] in {time.strftime("%Y-%m-%d", time.gmtime(time.time() - ago)) for ago in (0, 300)}


# ── 5. A busy GPU has a series of its own (gpu-oour: gpu_id is cut to 32 characters, the last write wins) ───────


def test_gpus_that_differ_in_their_last_digits_only_are_apart(calm):
    assert uuid(15)[:32] == uuid(16)[:32]
    found = calm.page().named("gpu_core_utilization", pod="pair")
    assert {labels["gpu_id"]: value for labels, value in found} == {uuid(15): 95.0, uuid(16): 40.0}


# ── 6. A busy GPU's power is held against its own limit (gpu-oour: 250 W for every model, and memory is guessed) ─


@pytest.mark.parametrize("pod", ["warm", "warm-without-limit"])
def test_an_idle_gpu_of_a_large_model_is_idle_and_not_low(calm, pod):
    row = calm.of(pod)
    assert (row["model_name"], row["power_usage"]) == (H100, 250.0)
    assert (row["score"], row["status"], row["verdict"]) == (pytest.approx(3.6), "idle", "idle")


def test_memory_that_is_not_reported_is_not_made_up(calm):
    row = calm.of("no-memory-metrics")
    assert (row["mem_used_mb"], row["mem_total_mb"], row["mem_usage_percent"]) == (None, None, None)
    assert (row["status"], row["verdict"]) == ("high", "in_use")
    assert not calm.page().has("gpu_memory_total_mb", gpu_id=uuid(19))


def test_memory_in_use_that_was_not_answered_does_not_make_all_memory_free(behind, proxy):
    proxy.spoil = lambda query, reply: Reply(503) if "FB_USED" in query else reply
    behind.analyse()
    row = behind.of("busy-1")
    assert (row["mem_used_mb"], row["mem_total_mb"]) == (None, None)


# ── 7. A busy GPU of another cluster is none of ours (gpu-oour: QUERY_CONDITION is used for discovery only) ─────


def test_the_condition_is_part_of_every_query(proxy, tmp_path):
    with analyzer(tmp_path, PROM_URL=proxy.url) as fresh:
        asked = list(proxy.asked)
        assert uuid(30) not in {row["gpu_id"] for row in fresh.rows()}
    assert len(asked) > 5
    of_no_tenant = ("up{", "count by", "vector(")
    for form in [form for form in asked if not form.get("query", "").startswith(of_no_tenant)]:
        said = form.get("query") or form["match[]"]
        assert said.count("{") == said.count('cluster="a"') >= 1
        assert {"query": 'pod!=""' in said, "match[]": True}["query" if "query" in form else "match[]"]


def test_what_another_cluster_has_recorded_is_not_looked_for_in_this_one(behind, proxy):
    behind.analyse()
    assert behind.of("busy-0")["score"] == pytest.approx(BUSY_SCORE, abs=0.1)
    assert not [form for form in proxy.asked if "query" in form and "vgpuscope:" in form["query"]]


# ── 8. A busy GPU's old result proves nothing (gpu-oour: old values are served for ever, with no error) ─────────


def test_results_are_stale_once_prometheus_is_gone(fleet, tmp_path):
    with ExitStack() as life:
        url = life.enter_context(prometheus(tmp_path))
        write(url, fleet.series)
        soon: dict[str, Any] = {"INTERVAL": "1", "VGPUSCOPE_VERDICT_MAX_AGE_INTERVALS": "1"}  # old after 31 s
        with analyzer(tmp_path, PROM_URL=url, **soon) as found:
            found.wait(lambda: found.of("honest")["verdict"] == "idle")
            found.wait(lambda: found.page().has("gpu_utilization_score"))
            life.close()
            found.wait(lambda: "x-vgpuscope-stale-since" in found.client.get("/results").headers)
            assert {row["stale"] for row in found.rows()} == {False}
            # while it was ending, it may have given another reason
            found.wait(lambda: found.get("/results/stats")["stale_reason"].startswith("SOURCE_DOWN: "))
            found.wait(lambda: all(row["stale"] for row in found.rows()))
            rows = found.rows()
            assert len(rows) > 15
            assert {row["verdict"] for row in rows} == {row["use_class"] for row in rows} == {"unknown"}
            assert {tenant["verdict"] for row in rows for tenant in row["tenants"]} == {"unknown"}
            assert found.get("/results/low")["stale"]
            page, health = found.page(), found.get("/health")
    assert not [name for name, labels in page if "gpu_id" in dict(labels)]
    assert not page.has("gpu_idle_count")
    assert page.one("gpu_analysis_errors_total") > 0
    assert (health["status"], health["prometheus_connected"]) == ("warning", False)


def test_a_prometheus_that_is_not_there_at_the_start_is_an_error(tmp_path):
    with analyzer(tmp_path, PROM_URL="http://127.0.0.1:9", VGPUSCOPE_PROMETHEUS_DEADLINE="1") as found:
        assert found.errors() == found.analyses() == 1
        assert found.rows() == []
        health = found.get("/health")
        assert (health["status"], health["prometheus_connected"]) == ("degraded", False)
        assert health["error"]["code"]


def test_health_tells_within_ten_seconds_that_prometheus_was_killed(fleet, tmp_path):
    with ExitStack() as life:
        url = life.enter_context(prometheus(tmp_path))
        write(url, fleet.series)
        with analyzer(tmp_path, PROM_URL=url) as found:  # which analyses once an hour
            found.wait(lambda: found.get("/health")["status"] == "healthy")
            life.close()
            killed = time.monotonic()
            found.wait(lambda: not found.get("/health")["prometheus_connected"])
            took, health = time.monotonic() - killed, found.get("/health")
            assert found.analyses() == 1
    assert took < 10
    assert (health["status"], health["error"]["code"]) == ("degraded", "SOURCE_DOWN")


def test_health_tells_within_seconds_of_the_start_that_prometheus_is_dead(tmp_path):
    with analyzer(tmp_path, PROM_URL="http://127.0.0.1:9", analysed=False) as found:
        began = time.monotonic()
        found.wait(lambda: found.get("/health")["error"])
        took, health = time.monotonic() - began, found.get("/health")
    assert took < 10
    assert (health["status"], health["prometheus_connected"]) == ("degraded", False)


# ── 9. A busy GPU has one status (gpu-oour: series of former statuses, pods and namespaces are never removed) ───


def test_what_is_gone_from_the_fleet_is_gone_from_the_page(proxy, tmp_path):
    proxy.renamed = ('cluster="a"', 'cluster="earlier"')
    with analyzer(tmp_path, PROM_URL=proxy.url) as found:
        page = found.page()
        assert [labels["status"] for labels, _ in page.named("gpu_utilization_score")] == ["high", "high"]
        assert page.one("gpu_status_count", status="high") == 2
        proxy.renamed = ('cluster="a"', 'cluster="later"')
        found.analyse()
        page = found.page()
        assert [(one["pod"], one["status"]) for one, _ in page.named("gpu_utilization_score")] == [
            ("calms-down", "idle")
        ]
        assert (page.one("gpu_status_count", status="high"), page.one("gpu_status_count", status="idle")) == (0, 1)
        assert not [key for key in page if {"ends", "short-lived"} & set(dict(key[1]).values())]
        missed = {name for name, labels in page if dict(labels).get("gpu_id") == uuid(41)}
        assert all(name.startswith("vgpuscope_analyzer_") for name in missed)  # a GPU that is missed is unknown
        assert page.one("vgpuscope_analyzer_verdict", gpu_id=uuid(41), verdict="unknown") == 1


# ── 10. A busy GPU's owner is not cut off by a probe (gpu-oour: /health asks Prometheus twice, in the event loop) ─


def test_health_answers_at_once_while_prometheus_hangs(proxy, tmp_path):
    proxy.spoil = lambda _, reply: Hang()
    with analyzer(tmp_path, PROM_URL=proxy.url, analysed=False) as found:
        found.wait(lambda: proxy.asked)
        with ThreadPoolExecutor(8) as crowd:
            paths = ["/health", "/", "/results", "/metrics", "/healthz", "/config"] * 8
            assert {answer.status_code for answer in crowd.map(found.client.get, paths)} == {200}
        assert (found.analyses(), len(proxy.asked)) == (0, 1)  # nobody was asked for it but ourselves


# ── 11. A busy GPU's owner hears of nothing that was done to it, for nothing is (gpu-oour: blocking control calls) ─
# gpu-oour's own settings report low GPUs and take none: that needs control.dry_run: false.


def test_a_control_service_that_hangs_holds_nothing_up_and_is_told_of_no_busy_gpu(real, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        hanging.settimeout(WITHIN)
        url = f"http://127.0.0.1:{hanging.getsockname()[1]}/api"
        wanted: dict[str, Any] = {"CONTROL_API_ENABLED": "true", "CONTROL_API": url}
        with analyzer(tmp_path, PROM_URL=real, **wanted) as found, hanging.accept()[0] as call:
            with call.makefile("rb") as request:
                head = dict(
                    line.decode().strip().lower().split(": ", 1)
                    for line in iter(request.readline, b"\r\n")
                    if b": " in line
                )
                body = json.loads(request.read(int(head["content-length"])))
            assert (body["gpu_id"] in BUSY, body["score"] < 20) == (False, True)
            assert any(row["score"] < 20 for row in found.analyse())  # while the call hangs
            assert found.get("/")["features"]["control_api"] is True
            assert found.get("/api/v1/reclaim/policy")["mode"] in {"dry_run", "off"}
            assert found.page().one("vgpuscope_control_callbacks_waiting") > 0


def test_a_dry_run_that_is_asked_for_calls_no_control_service(real, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        nobody.setblocking(False)
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/api"
        wanted: dict[str, Any] = {"CONTROL_API_ENABLED": "true", "CONTROL_API": url}
        with analyzer(tmp_path, PROM_URL=real, VGPUSCOPE_CONTROL_DRY_RUN="true", **wanted) as found:
            assert any(row["score"] < 20 for row in found.analyse())
        with pytest.raises(BlockingIOError):
            nobody.accept()


# ── 12. A busy GPU is not idle because Prometheus is slow (gpu-oour: 60 s for each GPU, and then idle) ─────────


def test_a_slow_prometheus_costs_the_deadline_once(hurried, proxy):
    before = hurried.page().one("gpu_analysis_duration_seconds_sum")
    proxy.slow = 12.0 * DEADLINE
    assert called_idle(hurried.analyse()) == []
    assert hurried.page().one("gpu_analysis_duration_seconds_sum") - before < 2 * DEADLINE


# ── 13. A busy GPU is left alone by a process that was told to go (gpu-oour: it waits for its whole pool) ───────


def test_the_process_leaves_in_the_middle_of_an_analysis(proxy, tmp_path):
    proxy.spoil = lambda _, reply: Hang()
    long = {"VGPUSCOPE_PROMETHEUS_DEADLINE": "3600"}
    with analyzer(tmp_path, PROM_URL=proxy.url, analysed=False, program=PATIENT, **long) as found:
        found.wait(lambda: proxy.asked)
        found.process.send_signal(signal.SIGTERM)
        assert found.process.wait(WITHIN) == 0


# ── 14. A busy GPU is looked at once, however many ask for it (gpu-oour: 5 triggers are 5 analyses at once) ─────


def test_triggers_that_come_together_are_one_analysis(behind, proxy):
    behind.analyse()
    before = behind.analyses()
    proxy.asked.clear()
    with ThreadPoolExecutor(5) as crowd:
        with proxy.holding():
            said = [answer.json() for answer in crowd.map(lambda _: behind.post("/analyze"), range(5))]
        behind.wait(lambda: behind.analyses() > before)
    assert {answer["status"] for answer in said} == {"triggered"}
    assert sorted("started" in answer["message"] for answer in said) == [False] * 4 + [True]
    assert behind.analyses() == before + 1
    assert len([form for form in proxy.asked if form.get("query") != "vector(1)"]) <= 12


# ── 15. A busy GPU is judged by settings that are good as a whole (gpu-oour: 200 for errors, half applied) ──────


@pytest.mark.parametrize(
    "changes",
    [
        {"threshold": 25, "interval": 0},
        {"threshold": 101},
        {"threshold": 5},  # below idle
        {"threshold": "abc", "interval": 60},
        {"interval": -1},
        {"threshold": 25, "ai_enabled": "true"},
        {"threshold": "nan"},
    ],
    ids=str,
)
def test_settings_are_changed_all_or_none(behind, changes):
    before = behind.get("/config")
    answer = behind.post("/config/update", **changes)
    assert (answer.status_code, set(answer.json()["error"])) == (422, {"code", "message", "hint"})
    assert behind.get("/config") == before


@pytest.mark.parametrize(
    "body",
    [
        {"thresholds": {"low_utilization": 25}, "scheduler": {"interval": 0}},
        {"scheduler": {"interval": 60}, "thresholds": {"idle": 50}},
        {"thresholds": {"low_utilization": 25}, "ai": {"enabled": True}},
        {"thresholds": {"low_utilization": 25}, "prometheus": {"url": "http://127.0.0.1:9"}},
        {"thresholds": {"low_utilization": 25, "ilde": 5}},
        {"thresholds": {"low_utilization": 25}, "scoring": dict.fromkeys(WEIGHTS, 0)},
    ],
    ids=str,
)
def test_settings_in_a_body_are_changed_all_or_none(behind, body):
    before = behind.get("/config")
    answer = behind.client.post("/config/update", json=body)
    assert (answer.status_code, set(answer.json()["error"])) == (422, {"code", "message", "hint"})
    assert behind.get("/config") == before


def test_a_changed_interval_counts_at_once_and_is_told(real, tmp_path):
    with analyzer(tmp_path, PROM_URL=real) as found:
        assert found.post("/config/update", threshold=25, interval=1).json()["status"] == "updated"
        found.wait(lambda: found.analyses() >= 3)
        assert found.page().has("gpu_monitor_service_info", threshold="25", interval="1")
        assert found.get("/config")["scheduler"]["interval"] == 1


# ── 16., 17. A busy GPU is judged by what was measured (gpu-oour: a language model's word is taken unchecked) ───


def test_a_language_model_without_an_address_cannot_be_switched_on(behind):
    before = behind.get("/config")
    answer = behind.post("/config/update", ai_enabled="true")
    assert answer.status_code == 422
    assert "ai.api_url" in answer.json()["error"]["message"]
    assert behind.get("/config") == before
    assert behind.get("/health")["ai_enabled"] is behind.get("/")["features"]["ai_analysis"] is False
    assert behind.page().has("gpu_monitor_service_info", ai_enabled="false")


@pytest.mark.parametrize("wanted", [True, False])
def test_a_wish_for_a_language_model_that_is_not_there_is_answered_truly_and_costs_nothing(behind, proxy, wanted):
    behind.analyse()
    before = behind.analyses()
    proxy.asked.clear()
    answer = behind.get("/analyze", use_ai=wanted)
    assert answer["use_ai"] is False
    assert ("ai.api_url" in answer["message"]) is wanted
    behind.wait(lambda: behind.analyses() > before)
    assert len([form for form in proxy.asked if form.get("query") != "vector(1)"]) <= 12
    assert {row["ai_analysis"] for row in behind.rows()} == {None}


# gpu-oour: adjusted_score 500 becomes the score, -40 makes a GPU idle, NaN ends /results with 500, a confidence of 0.01
# overrides the numbers, any text becomes a label.
@pytest.mark.parametrize(
    "said",
    [
        {"ai_adjusted_score": 500},
        {"ai_adjusted_score": -40},
        {"ai_adjusted_score": float("nan")},
        {"confidence": 0.01, "ai_adjusted_score": 0},
        {"status": 'idle"} 1\nevil{x="'},
        {"status": "idle", "confidence": 1.0, "ai_adjusted_score": 0},
    ],
    ids=str,
)
def test_the_word_of_a_language_model_moves_no_score_no_status_and_no_verdict(real, tmp_path, said):
    with listening(honest(**said)) as model, analyzer(tmp_path, PROM_URL=real) as alone:
        alone.analyse()
        before = _judged(alone.rows())
        wanted: dict[str, Any] = {"AI_ENABLED": "true", "AI_API_URL": model.url, "AI_RETRY_TIMES": "1"}
        with analyzer(tmp_path, PROM_URL=real, **wanted) as found:
            found.analyse()
            found.wait(lambda: found.page().has("vgpuscope_ai_requests_total"))
            judged = _judged(found.rows())
            alone.analyse()
            after = _judged(alone.rows())  # time has passed: more may be known of a young pod
            assert judged.keys() == before.keys()
            assert {name: one for name, one in judged.items() if one not in (before[name], after[name])} == {}
            for row in found.rows():
                told = row["ai_analysis"]
                assert told is None or (0 <= told["confidence"] <= 1 and 0 <= told["ai_adjusted_score"] <= 100)
            assert "evil" not in found.client.get("/metrics").text


def _judged(rows):
    """Who is busy and who is not; the times of two runs differ, so scores may differ a little."""
    return {(row["gpu_id"], row["mig"], row["pod"]): (row["status"], row["verdict"]) for row in rows}


# ── 18. A busy GPU with a sample of +Inf is busy (gpu-oour: /results and /results/stats answer 500) ─────────────


@pytest.mark.parametrize("pod", ["infinite", "not-a-number"])
def test_a_sample_that_is_no_number_is_dropped_and_counted(calm, pod):
    row = calm.of(pod)
    assert (row["gpu_util"], row["status"], row["verdict"]) == (95.0, "high", "in_use")
    assert row["score"] == pytest.approx(BUSY_SCORE, abs=0.1)
    assert calm.get("/results/stats")["max_score"] < 100
    assert calm.page().one("vgpuscope_analyzer_dropped_samples_total") >= 2


# ── 19. A busy GPU is judged by settings that mean something (gpu-oour: traceback, silent defaults, endless loop) ─


@pytest.mark.parametrize(
    ("environ", "file", "named"),
    [
        ({"LOG_LEVEL": "foo"}, "", "logging.level"),
        ({"THRESHOLD": "abc"}, "", "thresholds.low_utilization"),
        ({"THRESHOLD": "5"}, "", "thresholds"),
        ({"MAX_WORKERS": "0"}, "", "scheduler.max_workers"),
        ({"INTERVAL": "0"}, "", "scheduler.interval"),
        ({"TIME_WINDOW_MIN": "0"}, "", "prometheus.time_window_min"),
        ({"QUERY_CONDITION": "{pod!="}, "", "prometheus.query_condition"),
        ({}, "prometheus: [\n", "config.yaml"),
        ({}, "prometheus: 7\n", "prometheus"),
        ({}, "thresholds:\n  ilde: 5\n", "thresholds.ilde"),
        ({}, "scoring: {" + ", ".join(f"{name}: 0" for name in WEIGHTS) + "}\n", "scoring"),
        ({}, "scoring: {gpu_util_weight: .nan}\n", "scoring.gpu_util_weight"),
        ({}, "scoring: {gpu_util_weight: .inf}\n", "scoring.gpu_util_weight"),
        ({}, "scoring: {gpu_util_weight: -0.5}\n", "scoring.gpu_util_weight"),
    ],
)
def test_bad_settings_end_the_start_with_one_clear_line(tmp_path, environ, file, named):
    (tmp_path / "config.yaml").write_text(file)
    words, variables = command("--config", "config.yaml", PROM_URL="http://127.0.0.1:9", **environ)
    done = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=WITHIN, cwd=tmp_path)
    first, *hint = done.stderr.splitlines()
    assert done.returncode == 2
    assert first.startswith("vgpuscope: CONFIG_INVALID: ")
    assert named in first
    assert [line.partition(":")[0] for line in hint] in ([], ["hint"])
    assert done.stdout == ""


def test_an_empty_section_changes_nothing_and_weights_count_by_proportion(real, calm, tmp_path):
    weights = zip(WEIGHTS, (2.5, 1, 1, 0.5), strict=True)
    scoring = "".join(f"  {name}: {value}\n" for name, value in weights)
    (tmp_path / "config.yaml").write_text(f"prometheus:\nscheduler:\nscoring:\n{scoring}")
    with analyzer(tmp_path, "--config", "config.yaml", PROM_URL=real) as found:
        assert [(row["gpu_id"], row["score"]) for row in found.rows()] == [
            (row["gpu_id"], row["score"]) for row in calm.rows()
        ]


# ── 20. A busy GPU's analysis is timed and its settings are guarded (gpu-oour: buckets end at 10 s, no auth) ────
# Retries, signatures and de-duplication of control calls: tests/services/analyzer/test_callbacks.py.


def test_the_histogram_reaches_beyond_what_analyses_take(calm):
    bounds = [float(labels["le"]) for labels, _ in calm.page().named("gpu_analysis_duration_seconds_bucket")]
    assert sum(10 < bound < float("inf") for bound in bounds) >= 3
    assert max(bound for bound in bounds if bound != float("inf")) >= 300


def test_without_a_token_a_listener_for_all_is_read_only(real, tmp_path):
    with analyzer(tmp_path, host="0.0.0.0", PROM_URL=real) as found:
        before = found.get("/config")
        for method, path in (("POST", "/config/update?threshold=25"), ("POST", "/analyze"), ("GET", "/analyze")):
            assert found.client.request(method, path).status_code == 403
        assert (found.get("/config"), found.analyses()) == (before, 1)
        assert found.get("/")["read_only"] is True
        assert "read-only" in found.log


def test_with_a_token_only_who_has_it_changes_anything(real, tmp_path):
    with analyzer(tmp_path, host="0.0.0.0", PROM_URL=real, VGPUSCOPE_API_TOKEN=TOKEN) as found:
        for token in (None, "another-token-of-the-tests"):
            headers = {"authorization": f"Bearer {token}"} if token else {}
            assert found.client.post("/config/update?threshold=25", headers=headers).status_code == 401
        assert found.get("/config")["thresholds"]["low_utilization"] == 20
        headers = {"authorization": f"Bearer {TOKEN}"}
        assert found.client.post("/config/update?threshold=25", headers=headers).status_code == 200
        assert found.get("/config")["thresholds"]["low_utilization"] == 25
        assert TOKEN not in found.log + found.client.get("/config").text
