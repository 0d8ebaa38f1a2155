"""The analyzer takes a GPU back: a real HTTP service receives the call and checks its signature.

Standard Webhooks: base64(HMAC-SHA256(secret, "id.timestamp.body")), as its specification describes it.
"""

import base64
import hashlib
import hmac
import json
import re
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from tests.http.serving import until
from tests.services.analyzer.analyzing import (
    BUSY,
    IDLE,
    TOKEN,
    StubSource,
    StubSources,
    kubernetes,
    reading,
    running,
    track,
)
from tests.services.analyzer.controlling import BEARER, EAGER, analysed, cases, decided, doctored, idle_pod
from vgpuscope.model.analysis import Allocations, Tenant

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()


@asynccontextmanager
async def analyzer(tmp_path, control, **more):
    source = StubSource(reading(track(0), idle_pod()))
    flags = EAGER | {
        "analyzer.history": str(tmp_path / "h.db"),
        "control.enabled": True,
        "control.api_url": control.url,
    }
    environ = {"VGPUSCOPE_API_TOKEN": TOKEN, "VGPUSCOPE_CONTROL_SECRET": SECRET}
    async with running(source, environ=environ, **(flags | more)) as one:
        await decided(one)
        yield one


async def brakes(one) -> dict[str, str]:
    """The brakes on all workloads, as the page shows them."""
    return dict(re.findall(r'^vgpuscope_reclaim_brake_on\{brake="(\w+)"\} (\d)$', await one.metrics(), re.M))


async def test_a_live_policy_calls_the_control_service_with_gpu_oours_body_and_a_signature(tmp_path, control):
    async with analyzer(tmp_path, control, **{"control.dry_run": False}) as one:
        await until(lambda: control.received)
        [(headers, body)] = control.received
        sent = json.loads(body)
        assert {"gpu_id", "pod", "namespace", "hostname", "score", "status", "timestamp"} <= sent.keys()
        assert (sent["namespace"], sent["pod"]) == ("ml", "nb")
        # gpu-oour's formula: half of the memory, 60 W of 400 W, nothing else
        assert (sent["score"], sent["status"]) == (pytest.approx(0.2 * 50 + 0.1 * 15), "low")
        assert headers["webhook-id"] == sent["idempotency_key"]
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        wanted = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
        assert headers["webhook-signature"] == f"v1,{wanted}"
        await until(lambda: one.analyzer.reclaim.counts.actions["control", "success"] == 1)
        assert 'vgpuscope_reclaim_actions_total{action="control",outcome="success"} 1' in await one.metrics()
        assert 'vgpuscope_reclaim_workloads{state="acting"} 1' in await one.metrics()


async def test_a_pod_keeps_its_gpus_while_one_of_them_does_not_report(tmp_path, control):
    """GPU 2 of the pod is busy, and then its series end. Of GPU 1 the analyzer knows that it is idle."""
    pod = Tenant(namespace="ml", pod="nb", container="main", pod_uid="uid-1")
    idle, busy = track(1, util=IDLE, tenant=pod), track(2, util=BUSY, tenant=pod)
    source = StubSource(reading(track(0), idle, busy))
    flags = EAGER | {
        "analyzer.history": str(tmp_path / "h.db"),
        "control.enabled": True,
        "control.dry_run": False,
        "control.api_url": control.url,
    }
    async with running(source, environ={"VGPUSCOPE_API_TOKEN": TOKEN}, **flags) as one:
        await decided(one)
        source.answer = reading(track(0), idle)
        for _ in range(3):
            await analysed(one)
        [case] = await cases(one)
        assert (case["state"], case["held_by"]) == ("candidate", ["gpu_unknown"])
        assert control.received == []


async def test_without_the_kubernetes_api_nothing_is_taken_and_it_is_said(tmp_path, control, caplog):
    """Metrics alone say that the pod holds the GPU: a stranger's page could have said so."""
    async with analyzer(tmp_path, control, **{"control.dry_run": False, "kube.enabled": False}) as one:
        for _ in range(3):
            await analysed(one)
        assert "without kube.enabled nothing but metrics shows which pod holds a GPU" in caplog.text
        [case] = await cases(one)
        assert case["state"] == "candidate"
        assert case["brakes"] == [{"brake": "holder_unknown", "setting": "kube.enabled", "value": "false"}]
        assert control.received == []
        assert (await brakes(one))["holder_unknown"] == "1"
        without = " ".join((await one.json("/api/v1/reclaim/policy"))["without"])
        assert "does not show which pod holds a GPU, so no action is taken" in without
        assert (await doctored(one, "RECLAIM_WITHOUT_KUBE"))[0] == "warn"


async def test_a_dry_run_calls_nobody_and_says_what_it_would_have_done(tmp_path, control):
    async with analyzer(tmp_path, control, **{"control.dry_run": True}) as one:
        [case] = await cases(one)
        assert (case["state"], case["dry_run"], case["pod_uid"]) == ("would_act", True, "uid-1")
        assert case["brakes"] == [{"brake": "dry_run", "setting": "control.dry_run", "value": "true"}]
        assert 'vgpuscope_reclaim_workloads{state="would_act"} 1' in await one.metrics()
        assert 'vgpuscope_reclaim_held_workloads{brake="dry_run"} 1' in await one.metrics()
        assert control.received == []
        assert 'outcome="dry_run"} 1' in await one.metrics()
        assert await brakes(one) == {}
        policy = await one.json("/api/v1/reclaim/policy")
        without = " ".join(policy["without"])
        assert policy["mode"] == "dry_run"
        assert ("Kubernetes" in without, "Prometheus" in without, "not notified" in without) == (False, True, True)
        assert case["notified_at"] is None  # nobody could be told
        assert (await doctored(one, "RECLAIM_WITHOUT_KUBE"))[0] == "skipped"


async def test_an_operator_stops_exempts_resumes_and_reads_the_audit_log(tmp_path, control):
    more = {"control.dry_run": False, "reclaim.approval": True}
    async with analyzer(tmp_path, control, **more) as one:
        [case] = await cases(one)
        assert case["state"] == "awaiting_approval"
        assert (await one.client.post(f"/api/v1/reclaim/{case['id']}/approve")).status_code in {401, 403}
        exempt = await one.client.post(f"/api/v1/reclaim/{case['id']}/exempt", headers=BEARER)
        assert (exempt.status_code, exempt.json()["state"]) == (200, "exempt")
        again = await one.client.post(f"/api/v1/reclaim/{case['id']}/approve", headers=BEARER)
        assert (again.status_code, again.json()["error"]["code"]) == (409, "CASE_UNFIT")
        assert (await one.client.post(f"/api/v1/reclaim/{case['id']}/resume")).status_code in {401, 403}
        resumed = await one.client.post(f"/api/v1/reclaim/{case['id']}/resume", headers=BEARER)
        assert (resumed.status_code, resumed.json()["state"]) == (200, "candidate")
        missing = await one.client.post("/api/v1/reclaim/nobody/approve", headers=BEARER)
        assert missing.status_code == 404
        stopped = await one.client.post("/api/v1/reclaim/stop", headers=BEARER)
        assert stopped.json()["stopped_by"] == "token"
        log = (await one.json("/api/v1/audit"))["entries"]
        assert log[0]["what"] == "stop"
        assert {entry["after"] for entry in log} >= {"grace", "awaiting_approval", "exempt"}
        assert control.received == []


async def test_the_audit_log_is_read_by_namespace_and_never_beyond_the_callers_own(tmp_path, control):
    more = {"analyzer.api_token_namespaces": "ml,other", "analyzer.protect_reads": True}
    async with analyzer(tmp_path, control, **more) as one:

        async def names(query: str) -> set[str]:
            found = await one.client.get(f"/api/v1/audit{query}", headers=BEARER)
            return {entry["namespace"] for entry in found.json()["entries"]}

        assert await names("") == {"ml"}
        assert await names("?namespace=ml&namespace=other") == {"ml"}
        assert await names("?namespace=other") == set()
        assert await names("?namespace=hidden") == set()
    hidden = more | {"analyzer.api_token_namespaces": "other"}
    async with analyzer(tmp_path, control, **hidden) as one:
        found = await one.client.get("/api/v1/audit?namespace=ml", headers=BEARER)
        assert (found.status_code, found.json()["entries"]) == (200, [])


async def test_a_refused_call_is_tried_again_and_a_redirect_is_not_followed(tmp_path, control):
    control.answer = "307 Temporary Redirect\r\nlocation: /elsewhere"
    async with analyzer(tmp_path, control, **{"control.dry_run": False}) as one:
        await until(lambda: len(control.received) >= 2)
        assert len({headers["webhook-id"] for headers, _ in control.received}) == 1
        control.answer = "202 Accepted"
        await until(lambda: one.analyzer.reclaim.counts.actions["control", "success"] == 1)


async def test_without_a_store_nothing_is_done_and_it_is_said(control):
    source = StubSource(reading(idle_pod()))
    live = EAGER | {"control.enabled": True, "control.dry_run": False, "control.api_url": control.url}
    async with running(source, **live, **{"analyzer.history": "none"}) as one:
        await one.analysed()
        await analysed(one)
        await analysed(one)
        assert (await one.json("/api/v1/reclaim"))["mode"] == "off"
        [case] = await cases(one)
        # no store is down, and no other replica leads; who does not lead reads no pods
        assert case["held_by"] == ["no_history", "pod_unknown"]
        assert (await doctored(one, "RECLAIM_WITHOUT_HISTORY"))[0] == "fail"
        assert await brakes(one) == {}
        assert control.received == []


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
"""


async def test_a_kubernetes_api_that_does_not_answer_stops_everybody_and_it_is_said(tmp_path, control):
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG)
    more = {"control.dry_run": False, "kube.enabled": True, "analyzer.kubeconfig": str(file)}
    async with analyzer(tmp_path, control, **more) as one:
        [case] = await cases(one)
        assert "kube_unreachable" in case["held_by"]
        without = " ".join((await one.json("/api/v1/reclaim/policy"))["without"])
        assert "does not answer: no action" in without
        assert control.received == []
        assert await brakes(one) == {
            "stop": "0",
            "breaker": "0",
            "store_down": "0",
            "holder_unknown": "0",
            "kube_unreachable": "1",
        }
        await one.client.post("/api/v1/reclaim/stop", headers=BEARER)
        assert (await brakes(one))["stop"] == "1"
        assert await doctored(one, "RECLAIM_HELD_BACK") == (
            "fail",
            ["kube_unreachable: the Kubernetes API does not answer", "stop: by token"],
        )


async def test_what_was_not_taken_here_is_not_restored_here(tmp_path, control):
    async with analyzer(tmp_path, control, **{"control.dry_run": False}) as one:
        await until(lambda: control.received)
        [case] = await cases(one)
        assert (case["restorable"], case["target"], case["signals"]) == (False, None, [])
        assert (await doctored(one, "RECLAIM_WITHOUT_KUBE"))[0] == "pass"
        assert (await doctored(one, "RECLAIM_HELD_BACK"))[0] == "pass"
        path = f"/api/v1/reclaim/{case['id']}/restore"
        refused = await one.client.post(path, headers=BEARER)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "CASE_UNFIT")
        assert (await one.client.post("/api/v1/reclaim/nobody/restore", headers=BEARER)).status_code == 404
        assert (await one.client.post(path)).status_code in {401, 403}


# ── what the policy leaves alone ─────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def untouched(tmp_path, control, **more):
    """An idle pod that holds memory, and a live policy with the default of `include_held`; with its source."""
    source = StubSource(reading(track(0), idle_pod()))
    flags = EAGER | {
        "reclaim.include_held": False,
        "analyzer.history": str(tmp_path / "h.db"),
        "control.enabled": True,
        "control.dry_run": False,
        "control.api_url": control.url,
    }
    async with running(source, environ={"VGPUSCOPE_API_TOKEN": TOKEN}, **(flags | more)) as one:
        await decided(one)
        yield one, source


async def by_label(one, name: str) -> dict[str, int]:
    """A gauge of the metrics page with one label."""
    lines = re.findall(rf'^{name}\{{\w+="(\w+)"\}} (\d+)$', await one.metrics(), re.M)
    return {label: int(value) for label, value in lines}


async def test_an_idle_pod_that_holds_memory_is_a_case_held_by_a_setting_everywhere(tmp_path, control):
    async with untouched(tmp_path, control) as (one, _):
        for _ in range(3):
            await analysed(one)
        found = await one.json("/api/v1/reclaim")
        [case] = found["cases"]
        assert (case["state"], case["held_by"], case["actionable"]) == ("candidate", ["holds_memory"], False)
        assert case["brakes"] == [{"brake": "holds_memory", "setting": "reclaim.include_held", "value": "false"}]
        assert {name: n for name, n in found["brakes"].items() if n} == {"holds_memory": 1}
        assert await by_label(one, "vgpuscope_reclaim_held_workloads") == found["brakes"]
        states = await by_label(one, "vgpuscope_reclaim_workloads")
        assert (states, sum(states.values())) == (found["states"], found["total"])
        [entry] = (await one.json("/api/v1/audit"))["entries"]
        assert (entry["what"], entry["after"]) == ("moved", "candidate")
        assert json.loads(entry["detail"])["brakes"] == case["brakes"]
        assert control.received == []


async def test_a_pod_that_is_left_alone_and_works_by_turns_does_not_fill_the_audit_log(tmp_path, control):
    async with untouched(tmp_path, control) as (one, source):
        for _ in range(5):
            source.answer = reading(track(0), replace(idle_pod(), **_terms_of(BUSY)))
            await analysed(one)
            assert [case["state"] for case in await cases(one)] == ["released"]
            source.answer = reading(track(0), idle_pod())
            await analysed(one)
            assert [case["held_by"] for case in await cases(one)] == [["holds_memory"]]
        entries = (await one.json("/api/v1/audit"))["entries"]
        assert [(entry["what"], entry["after"]) for entry in entries] == [("moved", "released"), ("moved", "candidate")]


async def test_the_settings_that_differ_from_the_defaults_are_listed_with_them(tmp_path, control):
    async with untouched(tmp_path, control, **{"reclaim.grace": 90.0}) as (one, _):
        changed = {row["setting"]: row for row in (await one.json("/api/v1/reclaim"))["changed"]}
        assert changed["reclaim.grace"] == {"setting": "reclaim.grace", "value": "1m30s", "default": "30m"}
        assert changed["reclaim.confirmations"]["default"] == "3"
        assert "reclaim.include_held" not in changed


def _terms_of(util: float) -> dict:
    """What a track of this use measures."""
    return {"terms": idle_pod().terms | track(util=util).terms}


async def test_a_workload_whose_metrics_have_no_uid_gets_it_from_the_cluster_exporter(tmp_path, control):
    """A plain dcgm-exporter has no label for it. Without the UID the workload is listed and never acted on."""
    source = StubSource(reading(track(0), track(1, util=IDLE, tenant=Tenant(namespace="ml", pod="nb"))))
    sources = StubSources(source)
    flags = EAGER | {"analyzer.history": str(tmp_path / "h.db"), "control.enabled": True, "control.dry_run": False}
    shown = StubSource(reading(track(1, tenant=Tenant(namespace="ml", pod="nb", pod_uid="uid-1"))))
    with kubernetes(shown) as known:
        async with running(source, sources=sources, **flags, **known, **{"control.api_url": control.url}) as one:
            await decided(one)
            assert [case["brakes"][0]["brake"] for case in await cases(one)] == ["no_uid"]
            sources.known_allocations = Allocations({}, {}, uids={("node-0", "ml", "nb"): "uid-1"})
            for _ in range(3):
                await analysed(one)
            await until(lambda: control.received)
    [(_, body)] = control.received
    assert json.loads(body)["evidence"]["pod_uid"] == "uid-1"
