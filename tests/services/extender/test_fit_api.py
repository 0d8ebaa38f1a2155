"""POST and GET /api/v1/fit: answers from the books, without creating anything."""

import asyncio
import json
import threading
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from tests.http.serving import Numbers, client_of
from tests.logic.scheduler.clusters import cluster, node, request
from tests.logic.scheduler.decided import decision
from vgpuscope.http.app import App, Readiness
from vgpuscope.http.openapi import document
from vgpuscope.http.operations import HttpCall, routes
from vgpuscope.http.parameters import NoQuery
from vgpuscope.logic.scheduler.admission import completion
from vgpuscope.logic.scheduler.decision_log import DecisionLog
from vgpuscope.logic.scheduler.place import place
from vgpuscope.logic.scheduler.state import assumed_pod
from vgpuscope.model.caller import Caller
from vgpuscope.model.cluster_event import PodSet
from vgpuscope.model.errors import ExtenderNotSynced, Forbidden
from vgpuscope.model.placement import Policies
from vgpuscope.services.extender.fit_api import FitApi, FitQuery, FitRequest
from vgpuscope.services.extender.idle_workloads import IdleNow, IdleWorkload

ABSENT = IdleNow(state="absent", reason="no analyzer is configured")


def books(*holders):
    """Two nodes with two GPUs of 16,000 MiB each, and pods that hold some of them."""
    state = cluster(node("gpu-0"), node("gpu-1"))
    for one in holders:
        found = place(state, one, ["gpu-0", "gpu-1"])
        state.apply(PodSet(assumed_pod(one, found)))
    return state


def full():
    return books(*(request(f"holds-{number}", namespace="other", memory=12_000) for number in range(4)))


def api(state, *, idle=ABSENT, log=None, **more):
    return FitApi(
        lambda: state,
        log or DecisionLog(),
        policies=Policies(),
        idle=lambda: idle,
        completion=partial(completion, scheduler="hami-scheduler"),
        **more,
    )


def manifest(*, memory=8_000, gpus=1, namespace="ml", **limits):
    found = {"nvidia.com/gpu": str(gpus), "nvidia.com/gpumem": str(memory), **limits}
    return {
        "kind": "Pod",
        "metadata": {"name": "new", "namespace": namespace},
        "spec": {"containers": [{"name": "main", "resources": {"limits": found}}]},
    }


@asynccontextmanager
async def serving(made):
    table = routes(made.operations())
    app = App(title="extender", metrics=Numbers, ready=Readiness, routes=table, service="extender")
    async with client_of(app) as client:
        yield client


def test_what_changes_in_the_books_does_not_change_their_copy():
    state = books()
    copy = state.copy()
    state.assume(one := request("late"), place(state, one, ["gpu-0", "gpu-1"]))
    assert (len(state.assumed), len(copy.assumed)) == (1, 0)
    assert [copy.node_info(name).rows for name in sorted(copy.nodes)] == [
        books().node_info(name).rows for name in sorted(copy.nodes)
    ]
    assert place(copy, one, ["gpu-0", "gpu-1"]) == place(books(), one, ["gpu-0", "gpu-1"])


async def posted(client, body, status=200):
    got = await client.post("/api/v1/fit", json=body)
    assert got.status_code == status, got.text
    return got.json()


async def test_a_pod_that_fits_gets_its_place_and_the_books_stay_as_they_are():
    state = books()
    before = [state.node_info(name).rows for name in sorted(state.nodes)]
    async with serving(api(state)) as client:
        found = await posted(client, manifest())
        again = await posted(client, manifest())
    assert (found["fitting"], found["replicas"]) == (1, 1)
    assert found["places"][0]["node"] in {"gpu-0", "gpu-1"}
    assert found["places"] == again["places"]
    assert found["asks"][0]["memory"] == 8_000
    assert not state.pods
    assert not state.assumed
    assert before == [state.node_info(name).rows for name in sorted(state.nodes)]


async def test_replicas_are_placed_one_after_the_other_until_one_does_not_fit():
    async with serving(api(books())) as client:
        found = await posted(client, {"pod": manifest(memory=12_000), "replicas": 6})
    assert (found["fitting"], found["replicas"]) == (4, 6)
    assert len({one["gpus"][0]["uuid"] for one in found["places"]}) == 4
    assert {one["code"] for one in found["nodes"]} == {"SCHED_INSUFFICIENT_GPU_MEMORY"}
    assert found["lacks"][0]["memory"] == 8_000


async def test_a_question_that_takes_too_long_is_cut_and_says_so():
    seconds = iter(range(0, 1000, 4))
    async with serving(api(books(), clock=lambda: float(next(seconds)))) as client:
        found = await posted(client, {"pod": manifest(memory=100), "replicas": 9})
    assert (found["fitting"], found["replicas"], found["cut"], found["nodes"]) == (3, 9, True, [])


async def test_the_replicas_of_a_deployment_are_those_of_its_manifest():
    pod = manifest(memory=12_000)
    body = {
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "template": {"spec": pod["spec"]}},
    }
    async with serving(api(books())) as client:
        assert (await posted(client, body))["replicas"] == 3
        assert (await posted(client, {"pod": body, "replicas": 2}))["replicas"] == 2


async def test_a_whole_number_may_have_a_point():
    """For JSON Schema 2.0 is an integer, and some clients write numbers like this."""
    async with serving(api(books())) as client:
        assert (await posted(client, {"pod": manifest(), "replicas": 2.0}))["replicas"] == 2


async def test_an_idle_workload_that_would_free_the_room_is_named():
    idle = IdleNow(
        state="ok", workloads=(IdleWorkload(namespace="other", pod="holds-2", pod_uid="uid-other-holds-2"),), age=1.0
    )
    async with serving(api(full(), idle=idle)) as client:
        found = await posted(client, manifest())
    [end] = [one for one in found["remedies"] if one["kind"] == "end"]
    assert [pod["name"] for pod in end["pods"]] == ["holds-2"]
    assert found["idle_state"] == "ok"


async def test_an_idle_workload_without_a_uid_is_found_by_its_name():
    idle = IdleNow(state="ok", workloads=(IdleWorkload(namespace="other", pod="holds-1"),), age=1.0)
    async with serving(api(full(), idle=idle)) as client:
        found = await posted(client, manifest())
    assert [one["pods"][0]["name"] for one in found["remedies"] if one["kind"] == "end"] == ["holds-1"]


async def test_without_an_analyzer_the_answer_says_why_no_idle_workload_is_named():
    async with serving(api(full())) as client:
        found = await posted(client, manifest())
    assert (found["idle_state"], found["idle_reason"]) == ("absent", "no analyzer is configured")
    assert [one["kind"] for one in found["remedies"]] == ["smaller"]


async def test_a_pod_of_the_log_is_explained_by_its_name():
    log = DecisionLog()
    log.add(decision(1, request=request("train-0")))
    async with serving(api(full(), log=log)) as client:
        got = await client.get("/api/v1/fit?namespace=ml&pod=train-0")
        missing = await client.get("/api/v1/fit?namespace=ml&pod=train-1")
    assert (got.status_code, got.json()["fitting"], got.json()["name"]) == (200, 0, "train-0")
    assert missing.status_code == 404


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "BODY_INVALID"),
        ({"kind": "Service", "spec": {}}, "BODY_INVALID"),
        ({"pod": {}, "replicas": 1}, "BODY_INVALID"),
        ({"pod": manifest(), "replicas": 0}, "BODY_INVALID"),
        ({"pod": manifest(), "replicas": 1.5}, "BODY_INVALID"),
        ({"items": []}, "BODY_INVALID"),
        ({"pod": manifest(), "replicas": 10**18}, "BODY_INVALID"),
        ({"kind": "List", "items": [manifest(), manifest()]}, "BODY_INVALID"),
        (manifest(memory="1e18"), "SCHED_REQUEST_INVALID"),
        (manifest(gpus=-1), "SCHED_REQUEST_INVALID"),
        ([1], "BODY_INVALID"),
    ],
)
async def test_a_body_that_is_no_pod_is_rejected_with_a_code(body, code):
    async with serving(api(books())) as client:
        assert (await posted(client, body, status=422))["error"]["code"] == code


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "the manifest has no pod"),
        ({"kind": "List", "items": [manifest(), manifest()]}, "the manifest has 2 pods"),
        ({"pod": 5}, "the body: Expected `object`, got `int` - at `$.pod`"),
        ({"pod": manifest(), "replicas": 0}, "the body: Expected `int` >= 1 - at `$.replicas`"),
        ({**manifest(), "metadata": 5}, "the body: Expected `object | null`, got `int` - at `$.metadata`"),
        ({"pod": {**manifest(), "metadata": 5}}, "metadata is not an object"),
    ],
)
async def test_the_message_names_the_part_of_the_body_that_is_wrong(body, said):
    async with serving(api(books())) as client:
        assert (await posted(client, body, status=422))["error"]["message"] == said


async def test_a_list_with_one_pod_is_that_pod():
    async with serving(api(books())) as client:
        assert (await posted(client, {"kind": "List", "items": [manifest()]}))["name"] == "new"


def test_the_document_shows_every_form_of_the_body():
    made = json.loads(document(api(books()).operations(), title="extender", description=""))
    shown = made["paths"]["/api/v1/fit"]["post"]["requestBody"]
    body = shown["content"]["application/json"]["schema"]
    assert shown["required"]
    assert body["anyOf"] == [{"required": [name]} for name in ("pod", "spec", "items")]
    assert body["anyOf"][0]["required"][0] in made["components"]["schemas"]["FitRequest"]["properties"]


async def test_a_pod_is_judged_as_the_webhook_would_have_completed_it():
    alone = {"nvidia.com/gpumem": "12000"}
    pod: dict[str, Any] = {
        "kind": "Pod",
        "metadata": {"name": "new"},
        "spec": {"containers": [{"name": "main", "resources": {}}]},
    }
    async with serving(api(books())) as client:
        for resources, count, cores in (({"limits": alone}, 1, 0), ({"limits": {"nvidia.com/gpu": 2}}, 2, 100)):
            pod["spec"]["containers"][0]["resources"] = resources
            found = await posted(client, pod)
            assert [(one["count"], one["cores"]) for one in found["asks"]] == [(count, cores)]
        pod["spec"] |= {"schedulerName": "other"}  # the webhook leaves it alone
        pod["spec"]["containers"][0]["resources"] = {"limits": alone}
        assert (await posted(client, pod))["asks"] == []


async def test_a_pod_without_gpus_fits_and_asks_for_nothing():
    body = {"kind": "Pod", "metadata": {"name": "plain"}, "spec": {"containers": [{"name": "main"}]}}
    async with serving(api(books())) as client:
        found = await posted(client, body)
    assert (found["fitting"], found["asks"], found["places"]) == (1, [], [])


async def test_while_the_books_are_not_complete_nothing_is_answered():
    def check():
        raise ExtenderNotSynced("pods are not listed yet")

    async with serving(api(books(), check=check)) as client:
        assert (await posted(client, manifest(), status=503))["error"]["code"] == "EXTENDER_NOT_SYNCED"


async def test_a_caller_learns_no_names_of_pods_in_other_namespaces():
    log = DecisionLog()
    log.add(decision(1, request=request("train-0")))
    idle = IdleNow(state="ok", workloads=(IdleWorkload(namespace="other", pod="holds-2"),), age=1.0)
    made, caller = api(full(), idle=idle, log=log), Caller(name="team", namespaces=("ml",))
    found = await made._of_manifest(HttpCall(caller=caller, asked=NoQuery(), body=FitRequest(**manifest())))
    one = await made._of_pod(HttpCall(caller=caller, asked=FitQuery(namespace="ml", pod="train-0"), body=None))
    assert [remedy.kind for remedy in found.remedies] == [remedy.kind for remedy in one.remedies] == ["smaller"]
    assert "holds" not in repr(found) + repr(one)
    with pytest.raises(Forbidden):
        await made._of_manifest(
            HttpCall(caller=caller, asked=NoQuery(), body=FitRequest(**manifest(namespace="other")))
        )


async def test_questions_beyond_the_queue_are_told_when_to_retry():
    gate = threading.Event()

    def clock():
        gate.wait()
        return 0.0

    async with serving(api(books(), clock=clock)) as client:
        asked = [asyncio.ensure_future(client.post("/api/v1/fit", json=manifest())) for _ in range(9)]
        try:
            [late] = (await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED))[0]
        finally:
            gate.set()
        answers = await asyncio.gather(*asked)
    assert (late.result().status_code, late.result().headers["retry-after"]) == (429, "1")
    assert sorted(answer.status_code for answer in answers) == [200] * 8 + [429]
