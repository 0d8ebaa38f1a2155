"""The console's decisions: joined from the extender's own API, with its own state, and narrowed on the server."""

import time

import pytest

from tests.logic.scheduler.clusters import request
from tests.logic.scheduler.decided import MEMORY, assignment, decision, refusal
from tests.ports import free_port
from tests.services.analyzer.analyzing import TOKEN, running
from tests.services.extender.serving import Served
from tests.services.extender.test_fit_api import api, full
from vgpuscope.logic.scheduler.decision_log import DecisionLog
from vgpuscope.services.extender.decisions_api import DecisionsApi
from vgpuscope.services.extender.idle_workloads import IdleNow, IdleWorkload

ME = {"authorization": f"Bearer {TOKEN}"}
RESTRICTED = {
    "analyzer.api_token": TOKEN,
    "analyzer.api_token_namespaces": "ml",
    "analyzer.protect_reads": "true",
    "analyzer.api_token_role": "read",
}


@pytest.fixture
def extender():
    log, now = DecisionLog(), time.time()
    log.add(refusal(1, at=now - 30, nodes=30))
    log.add(assignment(2, at=now - 20, pod="runs", terms={"memory": 2.0}, policy="binpack/spread"))
    log.add(refusal(3, at=now - 10, namespace="secret-space", pod="secret-pod", nodes=2))
    log.add(decision(4, at=now - 5, pod="waits", request=request("waits")))

    def operations():
        idle = IdleNow(state="ok", workloads=(IdleWorkload(namespace="other", pod="holds-1"),), age=1.0)
        return (*DecisionsApi(log).operations(), *api(full(), idle=idle, log=log).operations())

    served = Served(operations)
    yield served
    served.stop()


async def test_the_newest_decisions_are_listed_with_the_state_of_their_part(extender):
    async with running(**{"analyzer.extender_url": extender.url}) as analyzer:
        found = await analyzer.json("/api/v1/decisions")
    assert [row["id"] for row in found["rows"]] == ["d4", "d3", "d2", "d1"]
    assert (found["rows"][2]["node"], found["rows"][2]["terms"]) == ("gpu-0", {"memory": 2.0})
    assert found["rows"][3]["codes"] == {MEMORY: 30}
    [part] = found["parts"]
    assert (part["name"], part["state"]) == ("extender", "ok")


async def test_one_pod_shows_the_verdicts_by_code_with_their_meaning_in_both_languages(extender):
    async with running(**{"analyzer.extender_url": extender.url}) as analyzer:
        found = await analyzer.json("/api/v1/decisions/ml/train-0")
    assert found["sought"]["outcome"] == "refused"
    [code] = found["codes"]
    assert (code["code"], code["count"], len(code["nodes"])) == (MEMORY, 30, 20)
    assert code["nodes"][0]["available"] == "4000MB"
    assert code["meaning"]["en"].startswith("No GPU has as much free memory")
    assert code["meaning"]["zh"]


async def test_a_caller_sees_the_decisions_of_its_own_namespaces_only(extender):
    async with running(**RESTRICTED, **{"analyzer.extender_url": extender.url}) as analyzer:
        listed = await analyzer.get("/api/v1/decisions", headers=ME)
        asked = await analyzer.get("/api/v1/decisions?namespace=secret-space", headers=ME)
        one = await analyzer.get("/api/v1/decisions/secret-space/secret-pod", headers=ME)
    assert [row["id"] for row in listed.json()["rows"]] == ["d4", "d2", "d1"]
    assert asked.json()["rows"] == []
    assert one.status_code == 404
    assert "d3" not in listed.text + asked.text + one.text
    assert "gpu-1" not in one.text


async def test_without_an_extender_the_part_is_absent_and_says_what_to_set():
    async with running() as analyzer:
        found = await analyzer.json("/api/v1/decisions")
        one = await analyzer.json("/api/v1/decisions/ml/train-0")
    assert (found["rows"], one["rows"]) == ([], [])
    assert found["parts"][0]["state"] == one["parts"][0]["state"] == "absent"
    assert "analyzer.extender_url" in found["parts"][0]["hint"]


async def test_an_extender_that_is_down_costs_its_own_part_only():
    async with running(**{"analyzer.extender_url": f"http://127.0.0.1:{free_port()}"}) as analyzer:
        await analyzer.analysed()
        found = await analyzer.json("/api/v1/decisions")
        gpus = await analyzer.json("/api/v1/gpus")
    assert (found["rows"], found["parts"][0]["state"], found["parts"][0]["code"]) == ([], "down", "SOURCE_DOWN")
    assert gpus["total"] == 2


async def test_what_was_known_stays_and_is_stale_when_the_extender_stops(extender):
    async with running(**{"analyzer.extender_url": extender.url}) as analyzer:
        await analyzer.json("/api/v1/decisions")
        wiring = analyzer.analyzer.console._wiring
        extender.stop()
        wiring.decisions._due = 0.0
        found = await analyzer.json("/api/v1/decisions")
        one = await analyzer.json("/api/v1/decisions/ml/runs")
    assert (found["parts"][0]["state"], len(found["rows"])) == ("stale", 4)
    assert [row["id"] for row in one["rows"]] == ["d2"]


async def test_the_form_asks_the_extender_whether_such_a_pod_would_fit(extender):
    async with running(**{"analyzer.extender_url": extender.url}) as analyzer:
        asked = {"memory": 3_000, "gpus": 2, "cores": 20, "replicas": 3, "type": "A100"}
        fits = (await analyzer.client.post("/api/v1/fit", json=asked)).json()
        none = (await analyzer.client.post("/api/v1/fit", json={"memory": 3_000, "type": "H100"})).json()
        wrong = await analyzer.client.post("/api/v1/fit", json={"memory": -1})
    assert (fits["fitting"], fits["asks"][0]["count"], fits["asks"][0]["cores"]) == (2, 2, 20)
    assert {one["code"] for one in none["nodes"]} == {"SCHED_DEVICE_TYPE_MISMATCH"}
    assert "type" in {subject for one in none["remedies"] for subject in one["subjects"]}
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (422, "BODY_INVALID")


async def test_one_pod_shows_what_would_make_it_fit(extender):
    async with running(**{"analyzer.extender_url": extender.url}) as analyzer:
        found = await analyzer.json("/api/v1/fit/ml/waits")
        missing = await analyzer.get("/api/v1/fit/ml/nobody")
    assert (found["fitting"], [one["kind"] for one in found["remedies"]]) == (0, ["smaller", "end"])
    assert missing.status_code == 404


async def test_a_caller_learns_no_names_of_pods_in_other_namespaces_from_a_fit(extender):
    async with running(**RESTRICTED, **{"analyzer.extender_url": extender.url}) as analyzer:
        one = await analyzer.get("/api/v1/fit/ml/waits", headers=ME)
        asked = await analyzer.client.post("/api/v1/fit", json={"namespace": "ml", "memory": 8_000}, headers=ME)
        other = await analyzer.client.post("/api/v1/fit", json={"namespace": "secret-space"}, headers=ME)
        hidden = await analyzer.get("/api/v1/fit/secret-space/secret-pod", headers=ME)
    assert one.status_code == asked.status_code == 200
    assert "holds-1" not in one.text + asked.text
    assert (other.status_code, hidden.status_code) == (403, 404)


async def test_without_an_extender_a_fit_is_an_error_that_says_what_to_set():
    async with running() as analyzer:
        got = await analyzer.client.post("/api/v1/fit", json={})
    assert (got.status_code, got.json()["error"]["code"]) == (404, "OBJECT_UNKNOWN")
    assert "analyzer.extender_url" in got.json()["error"]["hint"]
