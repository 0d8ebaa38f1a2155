"""Every endpoint: gpu-oour's shapes, what can be asked of them, and one shape for everything that is refused."""

import asyncio
import csv
import io
import json
import math
import re
import threading
from datetime import datetime, timedelta

import httpx2
import pytest

from tests.services.analyzer.analyzing import GIB, IDLE, TOKEN, StubSource, reading, running, stat, track, uuid
from vgpuscope.model.analysis import Tenant
from vgpuscope.services.analyzer.settings.settings import Settings

HOURLY = {"scheduler.interval": 3600}
ROW = ["gpu_id", "pod", "namespace", "hostname", "model_name", "gpu_util", "mem_copy", "mem_used_mb", "mem_total_mb"]
ROW += ["mem_usage_percent", "power_usage", "sm_clock", "score", "status", "timestamp", "ai_analysis"]
NUMBERS = ROW[5:13]
BEARER = {"authorization": f"Bearer {TOKEN}"}


def shared(number: int, pods: str):
    """A GPU that several pods have, each with numbers of its own."""
    own = {"process_sm": stat(0.2), "mem_used": stat(4.0 * GIB)}
    return [
        track(number, tenant=Tenant(namespace=f"team-{pod}", pod=f"web-{pod}"), own=True, terms=own) for pod in pods
    ] + [track(number, util=0.4, tenant=None)]


@pytest.fixture
async def fleet():
    """A busy GPU, an idle one, one that two share, and one of which nothing is known but that it is there."""
    nothing = track(3, util=None, tenant=None, terms={"mem_total": stat(80.0 * GIB)}, hostname="node-9")
    source = StubSource(reading(track(0), track(1, util=IDLE), *shared(2, "ab"), nothing))
    async with running(source, **HOURLY) as analyzer:
        await analyzer.analysed()
        yield analyzer


def refused(answer: httpx2.Response, status: int, code: str) -> dict:
    assert answer.status_code == status, answer.text
    (error,) = answer.json().values()
    assert list(error) == ["code", "message", "hint"]
    assert error["code"] == code
    assert error["message"]
    assert error["hint"]
    assert answer.headers["content-type"] == "application/json"
    return error


def moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    assert found.utcoffset() == timedelta(0)
    return found


# ── gpu-oour's shapes ────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_root_says_what_this_is(fleet):
    info = await fleet.json("/")
    assert list(info)[:5] == ["service", "version", "features", "config", "endpoints"]
    assert info["service"] == "GPU Utilization Monitor"
    assert info["features"] == {"ai_analysis": False, "prometheus_metrics": True, "control_api": False}
    assert list(info["config"]) == ["prometheus_url", "threshold", "interval", "time_window_min", "max_workers"]
    assert {type(value) for value in list(info["config"].values())[1:]} == {int}
    assert {"analyze", "results", "results_low", "stats", "metrics", "health"} <= info["endpoints"].keys()
    for path in info["endpoints"].values():
        assert (await fleet.get(path)).status_code == 200


async def test_health_has_gpu_oours_fields_first(fleet):
    health = await fleet.json("/health")
    names = ["status", "prometheus_connected", "last_analysis", "analysis_timeout", "ai_enabled", "interval"]
    assert list(health)[:6] == names
    assert (health["status"], health["prometheus_connected"], health["interval"]) == ("healthy", True, 3600)
    assert type(health["interval"]) is int
    moment(health["last_analysis"])


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_trigger_says_that_it_was_one(fleet, method):
    answer = await fleet.client.request(method, "/analyze", params={"use_ai": "true"})
    body = answer.json()
    assert list(body) == ["status", "message", "use_ai"]
    assert (body["status"], body["use_ai"]) == ("triggered", False), "no language model is configured"


async def test_rows_have_gpu_oours_fields_first_and_rise_by_score(fleet):
    rows = await fleet.json("/results")
    assert all(list(row)[: len(ROW)] == ROW for row in rows)
    scores = [row["score"] for row in rows]
    assert scores == [*sorted(score for score in scores if score is not None), None]
    assert all(row[name] is None or isinstance(row[name], float) for row in rows for name in NUMBERS)
    moment(rows[0]["timestamp"])


async def test_what_was_not_measured_is_null(fleet):
    (row,) = [row for row in await fleet.json("/results") if row["gpu_id"] == uuid(3)]
    assert {row[name] for name in NUMBERS if name != "mem_total_mb"} == {None}
    assert (row["status"], row["verdict"], row["pod"]) == ("unknown", "unknown", "")


async def test_a_shared_gpu_is_one_row_with_several_tenants(fleet):
    (row,) = [row for row in await fleet.json("/results") if row["gpu_id"] == uuid(2)]
    assert row["shared"] is True
    assert [(one["namespace"], one["pod"]) for one in row["tenants"]] == [("team-a", "web-a"), ("team-b", "web-b")]
    assert (row["namespace"], row["pod"]) == ("", "")


async def test_low_has_gpu_oours_shape(fleet):
    low = await fleet.json("/results/low")
    assert list(low)[:4] == ["count", "threshold", "timestamp", "gpus"]
    assert (low["count"], low["threshold"]) == (3, 20)
    assert [(row["gpu_id"], row["pod"]) for row in low["gpus"]] == [
        (uuid(1), "train-1"),
        (uuid(2), "web-a"),
        (uuid(2), "web-b"),
    ]
    moment(low["timestamp"])


async def test_stats_have_gpu_oours_shape(fleet):
    stats = await fleet.json("/results/stats")
    names = ["total_gpus", "avg_score", "min_score", "max_score", "low_utilization_count", "idle_count"]
    assert list(stats)[:8] == [*names, "by_status", "by_namespace"]
    assert stats["total_gpus"] == 4
    assert all(isinstance(stats[name], float) for name in names[1:4])
    assert sum(stats["by_status"].values()) == 4
    assert list(stats["by_namespace"]["ml"])[:3] == ["count", "avg_score", "low_util_count"]
    assert set(stats["by_namespace"]) == {"ml", "team-a", "team-b"}


async def test_before_the_first_result_there_is_nothing_and_that_is_no_error():
    source = StubSource()
    source.hang()
    async with running(source) as analyzer:
        assert await analyzer.json("/results") == []
        assert (await analyzer.json("/results/low"))["gpus"] == []
        stats = await analyzer.json("/results/stats")
        assert (stats["total_gpus"], stats["avg_score"], stats["by_namespace"]) == (0, 0, {})
        assert stats["by_status"] == {"idle": 0, "low": 0, "normal": 0, "high": 0, "unknown": 0}
        for path in ("summary", "gpus", "nodes", "namespaces", "workloads", "history"):
            assert (await analyzer.get(f"/api/v1/{path}")).status_code == 200
        assert (await analyzer.get("/readyz")).status_code == 503


async def test_the_settings_have_gpu_oours_shape_and_no_secret():
    secret = {"prometheus.password": "s3cret-word", "prometheus.username": "me", "ai.api_key": "s3cret-word"}
    async with running(**HOURLY, **secret, **{"analyzer.api_token": TOKEN}) as analyzer:
        answer = await analyzer.get("/config")
        config = answer.json()
        everything = [
            (await analyzer.get(path)).text for path in ("/", "/health", "/metrics", "/docs", "/openapi.json")
        ]
    assert {"prometheus", "scoring", "thresholds", "scheduler", "ai", "control"} <= config.keys()
    assert list(config["prometheus"]) == ["url", "query_condition", "time_window_min", "step"]
    assert config["prometheus"]["step"] == "30s"
    assert config["scheduler"] == {"interval": 3600, "max_workers": 8}
    assert config["thresholds"] == {"low_utilization": 20, "idle": 10, "high": 70}
    assert config["ai"] == {"enabled": False, "model": None}
    assert config["control"] == {"enabled": False, "api_url": None}
    assert all(word not in text for text in (answer.text, *everything) for word in ("s3cret-word", TOKEN))


# ── what can be asked of rows ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("status=high", [0]),
        ("verdict=idle", [1]),
        ("use_class=idle-held", [1]),
        ("namespace=ml", [1, 0]),
        ("namespace=team-b", [2]),
        ("pod=web-a", [2]),
        ("namespace=team-a&pod=web-b", []),
        ("hostname=node-9", [3]),
        (f"gpu_id={uuid(2)}", [2]),
        ("shared=true", [2]),
        ("shared=false", [1, 0, 3]),
        ("search=WEB-B", [2]),
        ("search=Job/train", [0]),
        ("min_score=70", [0]),
        ("max_score=15", [1]),
        ("sort=-score", [0, 2, 1, 3]),
        ("sort=gpu_id", [0, 1, 2, 3]),
        ("sort=-gpu_util&limit=2", [0, 2]),
        ("sort=gpu_id&offset=1&limit=2", [1, 2]),
        ("offset=99", []),
        ("limit=0", []),
        ("model_name=NVIDIA A100-SXM4-80GB&status=low&verdict=idle", [1]),
    ],
)
async def test_rows_are_filtered_sorted_and_paged(fleet, asked, found):
    assert [row["gpu_id"] for row in await fleet.json(f"/results?{asked}")] == [uuid(number) for number in found]


async def test_a_page_says_how_many_rows_there_are(fleet):
    assert (await fleet.get("/results?limit=1")).headers["x-total-count"] == "4"
    assert (await fleet.get("/results?namespace=ml&limit=1")).headers["x-total-count"] == "2"
    low = await fleet.get("/results/low?limit=0")
    assert (low.headers["x-total-count"], low.json()["count"], low.json()["gpus"]) == ("3", 3, [])


async def test_only_the_fields_that_were_asked_for_are_sent(fleet):
    assert [list(row) for row in await fleet.json("/results?fields=score,gpu_id&limit=1")] == [["score", "gpu_id"]]
    low = await fleet.json("/results/low?fields=pod")
    assert low["gpus"] == [{"pod": "train-1"}, {"pod": "web-a"}, {"pod": "web-b"}]


@pytest.mark.parametrize(
    "path", ["/results", "/results/low", "/results/stats", "/api/v1/nodes", "/api/v1/namespaces", "/api/v1/workloads"]
)
async def test_tables_come_as_csv_too(fleet, path):
    by_header = await fleet.get(path, headers={"accept": "text/csv"})
    by_word = await fleet.get(path, params={"format": "csv"})
    assert by_header.headers["content-type"] == "text/csv; charset=utf-8"
    assert by_header.text == by_word.text
    rows = list(csv.DictReader(io.StringIO(by_header.text)))
    assert rows
    assert all(None not in row for row in rows)
    assert (await fleet.get(path, headers={"accept": "application/json, text/csv"})).json()


async def test_csv_has_the_same_rows_as_json(fleet):
    rows = list(csv.DictReader(io.StringIO((await fleet.get("/results?format=csv")).text)))
    same = await fleet.json("/results")
    assert [row["gpu_id"] for row in rows] == [row["gpu_id"] for row in same]
    assert [row["score"] for row in rows] == ["" if row["score"] is None else str(row["score"]) for row in same]


@pytest.mark.parametrize("path", ["/results", "/results/low", "/results/stats"])
async def test_who_has_the_answer_already_is_told_so(fleet, path):
    first = await fleet.get(path)
    tag = first.headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = await fleet.get(path, headers={"if-none-match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    for other in ({"params": {"status": "idle"}}, {"headers": {"accept": "text/csv"}}):
        assert (await fleet.get(path, **other)).headers["etag"] != tag
    await fleet.analyse()
    assert (await fleet.get(path, headers={"if-none-match": tag})).status_code == 200


# ── /api/v1 ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_fleet_in_a_few_figures(fleet):
    summary = await fleet.json("/api/v1/summary")
    figures = {name: summary[name] for name in ("gpus", "rows", "nodes", "namespaces", "shared", "stale", "partial")}
    assert figures == {
        "gpus": 4,
        "rows": 4,
        "nodes": 2,
        "namespaces": 3,
        "shared": 1,
        "stale": False,
        "partial": False,
    }
    assert summary["stats"]["by_verdict"] == {"in_use": 2, "idle": 1, "unknown": 1}


async def test_the_documents_need_nothing_from_elsewhere(fleet):
    docs = await fleet.get("/docs")
    policy = docs.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "connect-src 'self'"} <= set(policy)
    assert "onload" not in docs.text
    assert not re.search(r"<script>|(src|href)=.(https?:)?//", docs.text)
    for path in re.findall(r'(?:src|href)="([^":]+)"', docs.text):
        assert (await fleet.get(f"/{path}")).status_code == 200
    paths = (await fleet.json("/openapi.json"))["paths"]
    seed = {"/", "/health", "/analyze", "/results", "/results/low", "/results/stats", "/metrics", "/config", "/docs"}
    assert seed | {"/config/update"} <= paths.keys()
    assert not [path for path in paths if path.startswith("/docs/")]


async def test_listeners_get_the_analysis_that_is_shown_and_every_later_one(fleet):
    async with fleet.client.stream("GET", "/api/v1/events") as answer:
        events = (json.loads(line.removeprefix("data: ")) async for line in answer.aiter_lines() if "data: " in line)
        first = await anext(events)
        await fleet.analyse()
        second = await anext(events)
    assert (first["gpus"], first["stale"]) == (4, False)
    assert second["number"] > first["number"]
    assert second["timestamp"] == (await fleet.json("/results/stats"))["timestamp"]


async def test_reads_are_compressed_and_large_answers_too(fleet):
    packed = await fleet.get("/results", headers={"accept-encoding": "gzip"})
    plain = await fleet.get("/results", headers={"accept-encoding": "identity"})
    assert (packed.headers["content-encoding"], packed.json()) == ("gzip", plain.json())
    assert packed.headers["x-total-count"] == plain.headers["x-total-count"] == "4"


async def test_no_number_is_one_that_json_does_not_know():
    spoilt = {"gpu_util": stat(math.nan), "mem_used": stat(math.inf), "mem_total": stat(80.0 * GIB)}
    async with running(StubSource(reading(track(0, terms=spoilt))), **HOURLY) as analyzer:
        await analyzer.analysed()
        for path in ("/results", "/results/low", "/results/stats", "/api/v1/summary", f"/api/v1/gpus/{uuid(0)}"):
            text = (await analyzer.get(path)).text
            assert not re.search(r"NaN|Infinity|\binf\b|\bnan\b", text), path


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "asked",
    [
        "nonsense=1",
        "limit=-1",
        "limit=1.5",
        "limit=9" * 20,
        "limit=１",
        "limit=",
        "limit=1&limit=2",
        "min_score=nan",
        "min_score=1_0",
        "min_score=101",
        "shared=maybe",
        "status=busy",
        "sort=nothing",
        "sort=--score",
        "fields=score,nothing",
        "format=xml",
    ],
)
async def test_a_parameter_that_is_wrong_is_named(fleet, asked):
    error = refused(await fleet.get(f"/results?{asked}"), 422, "QUERY_INVALID")
    assert any(word in error["message"] for word in (asked.partition("=")[0], "nothing", "-score"))


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/results?statu=idle", "Did you mean status?"),
        ("/results?status=idel", "Did you mean idle?"),
        ("/results?fields=scor", "Did you mean score?"),
        ("/result", "Did you mean /results?"),
        (f"/api/v1/gpus/{uuid(1)[:12]}", f"Did you mean {uuid(1)}?"),
        (f"/api/v1/gpus/{uuid(1)[:-1]}x", f"Did you mean {uuid(1)}?"),
    ],
)
async def test_a_word_that_is_not_known_is_met_with_the_nearest_one(fleet, path, hint):
    answer = await fleet.get(path)
    assert answer.status_code in {404, 422}
    assert answer.json()["error"]["hint"].startswith(hint)


async def test_a_setting_that_is_not_known_is_met_with_the_nearest_one(fleet):
    answer = await fleet.client.post("/config/update", json={"threshold": {"idel": 5}})
    assert refused(answer, 422, "CONFIG_INVALID")["hint"].startswith("Did you mean thresholds.idle?")


async def test_every_refusal_has_one_shape(fleet):
    refused(await fleet.get("/nothing"), 404, "NOT_FOUND")
    refused(await fleet.get("/results/"), 404, "NOT_FOUND")
    late = await fleet.client.delete("/results")
    refused(late, 405, "METHOD_NOT_ALLOWED")
    assert "GET" in late.headers["allow"]
    refused(await fleet.client.post("/metrics"), 405, "METHOD_NOT_ALLOWED")
    refused(await fleet.get("/config/update"), 405, "METHOD_NOT_ALLOWED")


async def test_head_is_get_without_a_body(fleet):
    for path in ("/", "/health", "/results", "/results/stats", "/metrics", "/docs", "/api/v1/nodes"):
        head = await fleet.client.head(path)
        assert (head.status_code, head.content) == (200, b"")
        assert int(head.headers["content-length"]) > 0


async def test_head_does_nothing(fleet):
    before = fleet.source.reads
    refused_head = await fleet.client.head("/analyze")
    assert refused_head.status_code == 405
    assert fleet.source.reads == before


# ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_settings_are_changed_as_gpu_oour_has_it(fleet):
    answer = await fleet.client.post("/config/update", params={"threshold": 25, "interval": 60})
    body = answer.json()
    assert list(body) == ["status", "updates", "note"]
    assert (body["status"], body["updates"]) == ("updated", {"threshold": 25, "interval": 60})
    config = await fleet.json("/config")
    assert (config["thresholds"]["low_utilization"], config["scheduler"]["interval"]) == (25, 60)
    assert 'threshold="25",interval="60"' in await fleet.metrics()


async def test_settings_are_changed_by_a_body(fleet):
    sent = {"thresholds": {"idle": 5, "low_utilization": 50}, "verdict": {"min_coverage": 0.5}}
    answer = await fleet.client.post("/config/update", json=sent)
    assert answer.json()["updates"] == {
        "thresholds.idle": 5,
        "thresholds.low_utilization": 50,
        "verdict.min_coverage": 0.5,
    }
    await fleet.analysed(2)
    low = await fleet.json("/results/low")
    assert (low["count"], low["gpu_rows"], low["tenant_rows"]) == (4, 2, 2)


@pytest.mark.parametrize(
    ("params", "body", "code"),
    [
        ({"threshold": 25, "interval": 0}, None, "QUERY_INVALID"),
        ({"threshold": 25, "interval": 3601}, None, "QUERY_INVALID"),
        ({"threshold": 101}, None, "QUERY_INVALID"),
        ({"threshold": 5}, None, "CONFIG_INVALID"),
        ({"threshold": 80}, None, "CONFIG_INVALID"),
        ({"threshold": "abc"}, None, "QUERY_INVALID"),
        ({"threshold": 25, "ai_enabled": "true"}, None, "CONFIG_INVALID"),
        ({}, None, "BODY_INVALID"),
        ({"threshold": 25}, b"{", "BODY_INVALID"),
        ({"threshold": 25}, b"[1]", "BODY_INVALID"),
        ({"threshold": 25}, b"\xff\xfe", "BODY_INVALID"),
        ({"threshold": 25}, b'{"a":' * 50_000, "BODY_INVALID"),
        ({"threshold": 25}, b'{"thresholds": {"nothing": 1}}', "CONFIG_INVALID"),
        ({"threshold": 25}, b'{"nothing": {"idle": 1}}', "CONFIG_INVALID"),
        ({"threshold": 25}, b'{"thresholds": {"idle": null}}', "CONFIG_INVALID"),
        ({"threshold": 25}, b'{"thresholds": {"idle": {"a": 1}}}', "CONFIG_INVALID"),
        ({"threshold": 25}, b'{"scoring": {"power_weight": -1}}', "CONFIG_INVALID"),
        ({"threshold": 25}, b'{"scoring": {"power_weight": 1e999}}', "BODY_INVALID"),
        ({"threshold": 25}, b'{"analyzer": {"api_token": "somebody-elses-token"}}', "BODY_INVALID"),
        ({"threshold": 25}, b'{"prometheus": {"url": "http://elsewhere"}}', "BODY_INVALID"),
    ],
)
async def test_a_change_that_is_wrong_in_one_part_changes_nothing(fleet, params, body, code):
    before = await fleet.json("/config")
    error = refused(await fleet.client.post("/config/update", params=params, content=body), 422, code)
    assert "flag" not in error["message"]
    assert await fleet.json("/config") == before


async def test_weights_that_are_all_nothing_are_refused(fleet):
    nothing = dict.fromkeys(("gpu_util_weight", "mem_copy_weight", "mem_used_weight", "power_weight"), 0)
    refused(await fleet.client.post("/config/update", json={"scoring": nothing}), 422, "CONFIG_INVALID")


async def test_changes_at_once_all_count(fleet):
    names = ["idle", "low_utilization", "high"]
    wanted = dict(zip(names, (7, 33, 88), strict=True))
    sent = [fleet.client.post("/config/update", json={"thresholds": {name: wanted[name]}}) for name in names]
    assert {answer.status_code for answer in await asyncio.gather(*sent)} == {200}
    assert (await fleet.json("/config"))["thresholds"] == wanted


async def test_a_setting_that_is_given_twice_is_refused(fleet):
    sent = {"thresholds": {"low_utilization": -5}}
    error = refused(await fleet.client.post("/config/update?threshold=25", json=sent), 422, "BODY_INVALID")
    assert "thresholds.low_utilization" in error["message"]


async def test_settings_are_changed_by_one_at_a_time(fleet, monkeypatch):
    inside, most, never = [], [], threading.Event()
    change = Settings.update

    def slow(self, changes):
        inside.append(1)
        most.append(len(inside))
        never.wait(0.03)  # time for another change to come in, if it could
        inside.pop()
        return change(self, changes)

    monkeypatch.setattr(Settings, "update", slow)
    await asyncio.gather(*(fleet.client.post(f"/config/update?threshold={n}") for n in (30, 31, 32)))
    assert most == [1, 1, 1]


async def test_another_threshold_makes_another_answer_even_when_nothing_can_be_read(fleet):
    tags = [(await fleet.get(path)).headers["etag"] for path in ("/results/low", "/results/stats")]
    fleet.source.fail()
    await fleet.client.post("/config/update", params={"threshold": 50})
    await fleet.analysed(2)
    low, stats = [await fleet.get(path) for path in ("/results/low", "/results/stats")]
    assert {low.headers["etag"], stats.headers["etag"]}.isdisjoint(tags)
    assert (low.json()["gpu_rows"], low.json()["tenant_rows"]) == (2, 2)
    assert low.json()["low_utilization_count"] == stats.json()["low_utilization_count"] == 2
    assert (stats.json()["gpus_low"], stats.json()["tenants_low"]) == (2, 3)
    assert "\ngpu_low_utilization_count 2\n" in await fleet.metrics()


async def test_changes_are_refused_where_the_settings_say_so():
    async with running(**HOURLY, **{"analyzer.config_updates": "refuse"}) as analyzer:
        refused(await analyzer.client.post("/config/update?threshold=25"), 403, "READ_ONLY")


# ── who may ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_changing_needs_the_token_and_reading_does_not():
    async with running(**HOURLY, **{"analyzer.api_token": TOKEN}) as analyzer:
        for method, path in (("GET", "/analyze"), ("POST", "/analyze"), ("POST", "/config/update?threshold=25")):
            without = await analyzer.client.request(method, path)
            refused(without, 401, "UNAUTHORIZED")
            assert without.headers["www-authenticate"].startswith("Bearer")
            wrong = await analyzer.client.request(method, path, headers={"authorization": f"Bearer {TOKEN}x"})
            assert wrong.status_code == 401
            assert (await analyzer.client.request(method, path, headers=BEARER)).status_code == 200
        assert (await analyzer.get("/results")).status_code == 200


async def test_reading_can_need_the_token_too():
    protected = {"analyzer.api_token": TOKEN, "analyzer.protect_reads": "true"}
    async with running(**HOURLY, **protected) as analyzer:
        for path in ("/", "/results", "/results/stats", "/config", "/metrics", "/api/v1/summary", "/api/v1/history"):
            refused(await analyzer.get(path), 401, "UNAUTHORIZED")
            assert (await analyzer.get(path, headers=BEARER)).status_code == 200
        for path in ("/health", "/healthz", "/docs", "/docs/docs.js", "/openapi.json"):
            assert (await analyzer.get(path)).status_code == 200
        document = await analyzer.json("/openapi.json")
        assert document["paths"]["/results"]["get"]["security"] == [{"token": []}]  # so that /docs sends it


@pytest.mark.parametrize(
    ("settings", "security"),
    [({"analyzer.api_token": TOKEN}, [{"token": []}]), ({}, [{"token": []}, {}])],
)
async def test_the_document_asks_for_credentials_of_a_change_if_there_are_any(settings, security):
    async with running(**HOURLY, **settings) as analyzer:
        document = await analyzer.json("/openapi.json")
    assert document["paths"]["/analyze"]["post"]["security"] == security


async def test_without_a_token_only_a_loopback_listener_takes_changes():
    async with running(**HOURLY, listen="0.0.0.0:0") as analyzer:
        refused(await analyzer.client.post("/analyze"), 403, "READ_ONLY")
        refused(await analyzer.client.post("/config/update?threshold=25"), 403, "READ_ONLY")
        assert (await analyzer.json("/"))["read_only"] is True


async def test_who_asks_too_often_has_to_wait_but_health_never():
    async with running(**HOURLY, **{"analyzer.rate_limit": "0.001"}) as analyzer:
        answers = [await analyzer.get("/config") for _ in range(8)]
        late = next(answer for answer in answers if answer.status_code != 200)
        refused(late, 429, "TOO_MANY_REQUESTS")
        assert int(late.headers["retry-after"]) >= 1
        assert (await analyzer.get("/metrics")).status_code == 429
        assert {(await analyzer.get("/health")).status_code for _ in range(20)} == {200}
        assert (await analyzer.get("/healthz")).status_code == 200


async def test_secrets_are_in_no_log(caplog):
    caplog.set_level(0)
    async with running(**HOURLY, **{"analyzer.api_token": TOKEN, "prometheus.bearer_token": "s3cret-word"}) as analyzer:
        await analyzer.analysed()
        await analyzer.client.post("/analyze", headers={"authorization": "Bearer not-the-token-at-all"})
        await analyzer.client.post("/config/update?threshold=25", headers=BEARER)
    ours = [record for record in caplog.records if record.name.startswith("vgpuscope")]
    text = "".join(f"{record.getMessage()} {record.__dict__}" for record in ours)
    assert all(word not in text for word in (TOKEN, "s3cret-word", "not-the-token"))


# ── tenants of shared GPUs ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def mixed():
    """One GPU with a worker that computes and a notebook that does not, and one that a busy pod has alone."""
    idle = {"process_sm": stat(0.0), "mem_used": stat(20.0 * GIB)}
    busy = {"process_sm": stat(0.7), "mem_used": stat(26.0 * GIB)}
    tracks = [
        track(0, tenant=Tenant(namespace="notebooks", pod="nb-0"), own=True, terms=idle),
        track(0, tenant=Tenant(namespace="train", pod="worker-0"), own=True, terms=busy),
        track(0, util=0.7, tenant=None),
        track(1),
    ]
    async with running(StubSource(reading(*tracks)), **HOURLY) as analyzer:
        await analyzer.analysed()
        yield analyzer


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("use_class=idle-held", [0]),
        ("verdict=idle", [0]),
        ("verdict=idle&namespace=notebooks", [0]),
        ("verdict=idle&namespace=train", []),
        ("pod=nb-0&verdict=in_use", []),
        ("pod=worker-0&verdict=in_use", [0]),
        ("namespace=train", [0]),
        ("search=nb-0&use_class=idle-held", [0]),
        ("verdict=in_use", [0, 1]),
    ],
)
async def test_a_shared_gpu_is_found_by_each_tenant_and_by_one_tenant_at_a_time(mixed, asked, found):
    rows = await mixed.json(f"/results?{asked}")
    assert sorted(row["gpu_id"] for row in rows) == [uuid(number) for number in found]
    assert all(len(row["tenants"]) == 2 for row in rows if row["gpu_id"] == uuid(0))


async def test_sums_of_some_tenants_count_these_alone(mixed):
    idle = await mixed.json("/results/stats?use_class=idle-held")
    assert (idle["total_gpus"], idle["tenants_total"], idle["tenants_idle"]) == (1, 1, 1)
    assert list(idle["by_namespace"]) == ["notebooks"]
    assert (await mixed.json("/results/stats"))["tenants_total"] == 3


async def test_low_names_the_idle_tenant_of_a_busy_gpu_and_what_was_looked_at(mixed):
    low = await mixed.json("/results/low")
    assert [(row["gpu_id"], row["pod"], row["verdict"]) for row in low["gpus"]] == [(uuid(0), "nb-0", "idle")]
    assert (low["count"], low["total_gpus"], low["unknown_count"]) == (1, 2, 0)
    assert (low["tenants_total"], low["tenants_unknown"]) == (3, 0)


@pytest.fixture
async def twelve():
    """Twelve shared GPUs, on each a worker at 70 %, a notebook that holds 20 GiB and does nothing, and an empty pod."""
    tracks = []
    for number in range(12):
        for namespace, pod, util, memory in (
            ("train", "worker", 0.7, 26),
            ("lab", "notebook", 0.0, 20),
            ("ci", "empty", 0.0, 0),
        ):
            own = {"process_sm": stat(util), "mem_used": stat(float(memory * GIB)), "mem_total": stat(80.0 * GIB)}
            tenant = Tenant(namespace=namespace, pod=f"{pod}-{number}", container="main", pod_uid=f"{pod}-{number}")
            tracks.append(track(number, tenant=tenant, own=True, terms=own))
        tracks.append(track(number, util=0.7, tenant=None))
    async with running(StubSource(reading(*tracks)), **HOURLY) as analyzer:
        await analyzer.analysed()
        yield analyzer


async def test_the_waste_of_tenants_beside_busy_ones_is_shown_everywhere(twelve):
    stats = await twelve.json("/results/stats")
    assert (stats["total_gpus"], stats["idle_count"], stats["tenants_idle"]) == (12, 0, 24)
    assert (stats["tenants_by_class"]["idle-held"], stats["tenants_by_class"]["idle"]) == (12, 12)
    assert len(await twelve.json("/results?use_class=idle-held")) == 12
    low = await twelve.json("/results/low")
    assert sorted({row["namespace"] for row in low["gpus"]}) == ["ci", "lab"]
    assert low["count"] == 24


async def test_sums_by_namespace_over_shared_gpus_are_right_in_prometheus(twelve):
    used: dict[str, float] = {}
    for namespace, value in re.findall(
        r'^gpu_memory_used_mb\{.*namespace="(\w*)".*\} (\S+)$', await twelve.metrics(), re.M
    ):
        used[namespace] = used.get(namespace, 0) + float(value)
    assert used == {"train": 12 * 26 * 1024, "lab": 12 * 20 * 1024, "ci": 0}
    assert "\ngpu_total_count 12\n" in await twelve.metrics()
