"""GET /api/v1/decisions: the log as one can query it."""

from contextlib import asynccontextmanager
from urllib.parse import quote

import pytest

from tests.http.serving import Numbers, client_of
from tests.logic.scheduler.decided import MEMORY, assignment, refusal
from vgpuscope.http.app import App, Readiness
from vgpuscope.http.operations import HttpCall, routes
from vgpuscope.logic.scheduler.decision_log import DecisionLog
from vgpuscope.model.caller import Caller
from vgpuscope.model.placement import ContainerAsk, GpuSelection, PlacementRequest
from vgpuscope.services.extender.decisions_api import DecisionLogQuery, DecisionsApi
from vgpuscope.views.scheduler import decisions as view

NOW = 1_763_366_400.0  # 2025-11-17T08:00:00Z
FIELDS = {  # as the extender promises them
    *("id", "at", "verb", "namespace", "pod", "pod_uid", "outcome", "node", "devices", "score", "policy", "terms"),
    *("nodes", "seconds"),
}


def logged(*decisions):
    log = DecisionLog()
    for one in decisions:
        log.add(one)
    return log


@asynccontextmanager
async def serving(log):
    table = DecisionsApi(log, wall=lambda: NOW).operations()
    app = App(title="extender", metrics=Numbers, ready=Readiness, routes=routes(table), service="extender")
    async with client_of(app) as client:
        yield client


async def ids(client, query=""):
    got = await client.get(f"/api/v1/decisions{query}")
    assert got.status_code == 200, got.text
    return [one["id"] for one in got.json()]


async def test_a_decision_has_every_promised_field():
    asked = PlacementRequest(
        uid="u",
        namespace="ml",
        name="train-0",
        containers=1,
        asks=(ContainerAsk(index=0, name="main", count=2, memory=8000, cores=30),),
        selection=GpuSelection(use_types=("a100", "h100"), numa_bind=True),
    )
    log = logged(refusal(1, request=asked), assignment(2, policy="binpack/spread", terms={"memory": 0.5}))
    async with serving(log) as client:
        assigned, refused = (await client.get("/api/v1/decisions")).json()
    assert assigned.keys() >= FIELDS
    assert (assigned["outcome"], assigned["node"], assigned["score"]) == ("assigned", "gpu-0", 12.5)
    assert assigned["devices"] == [{"uuid": "GPU-0", "memory": 8000, "cores": 30}]
    assert assigned["terms"] == {"memory": 0.5}
    assert refused["at"] == 1.0
    assert refused["nodes"][1] == {
        "node": "gpu-1",
        "code": MEMORY,
        "message": "GPU memory insufficient (requested 8000MB, available 4000MB)",
        "requested": "8000MB",
        "available": "4000MB",
        "score": None,
        "message_zh": "GPU 显存不足（申请 8000MB，可用 4000MB）",
    }
    assert refused["asks"] == [
        {"container": "main", "init": False, "count": 2, "memory": 8000, "percentage": None, "cores": 30}
    ]
    assert refused["constraints"] == ["nvidia.com/use-gputype=a100,h100", "nvidia.com/numa-bind=true"]


async def test_decisions_are_selected_by_namespace_pod_and_number():
    log = logged(refusal(1, pod="a"), refusal(2, pod="b"), refusal(3, namespace="web", pod="a"))
    async with serving(log) as client:
        assert await ids(client) == ["d3", "d2", "d1"]
        assert await ids(client, "?namespace=ml") == ["d2", "d1"]
        assert await ids(client, "?namespace=ml&pod=a") == ["d1"]
        assert await ids(client, "?limit=1") == ["d3"]
        assert await ids(client, "?namespace=nobody") == []


@pytest.mark.parametrize(
    "since",
    [
        "30m",
        "1763364600",
        "1763364600.0",
        "2025-11-17T07:30:00Z",
        "2025-11-17T08:30:00+01:00",
        "2025-11-17T07:30:00.5Z",
    ],
)
async def test_since_takes_every_form_of_a_time(since):
    log = logged(refusal(1, at=NOW - 3600), refusal(2, at=NOW - 1700))
    async with serving(log) as client:
        assert await ids(client, f"?since={since}") == ["d2"]
        assert await ids(client, f"?since={quote(since)}") == ["d2"]


@pytest.mark.parametrize(
    "query", ["since=yesterday", "since=2025-99-99T00:00:00Z", "limit=0", "limit=1001", "limit=x", "pods=a", "since="]
)
async def test_a_parameter_that_is_not_understood_is_rejected(query):
    async with serving(logged(refusal(1))) as client:
        got = await client.get(f"/api/v1/decisions?{query}")
    assert (got.status_code, got.json()["error"]["code"]) == (422, "QUERY_INVALID")


async def test_a_caller_sees_decisions_of_its_own_namespaces_only():
    api = DecisionsApi(logged(refusal(1, namespace="ml"), *(refusal(n, namespace="web") for n in range(2, 200))))
    caller = Caller(name="team", namespaces=("ml",))
    found = await api._decisions(HttpCall(caller=caller, asked=DecisionLogQuery(), body=None))
    assert [one.id for one in found] == ["d1"]
    asked = DecisionLogQuery(namespace="web")
    assert await api._decisions(HttpCall(caller=caller, asked=asked, body=None)) == []


async def test_an_answer_has_an_end_and_says_what_it_leaves_out(monkeypatch):
    monkeypatch.setattr(view, "MOST_NODES", 5)
    log = logged(refusal(1, nodes=4), refusal(2, nodes=3))
    async with serving(log) as client:
        newest, oldest = (await client.get("/api/v1/decisions")).json()
        bare = (await client.get("/api/v1/decisions?nodes=false&limit=1")).json()[0]
    assert (len(newest["nodes"]), newest["nodes_omitted"]) == (3, 0)
    assert (len(oldest["nodes"]), oldest["nodes_omitted"]) == (2, 2)
    assert (bare["nodes"], bare["nodes_omitted"]) == ([], 3)
