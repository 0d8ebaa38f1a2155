"""A caller that is restricted to namespaces sees the GPUs of its tenants, and no other tenant, over real sockets."""

import hashlib
from contextlib import asynccontextmanager

import pytest

from tests.http.serving import until
from tests.logic.console.clusters import device, holder, node
from tests.services.analyzer.analyzing import (
    GIB,
    IDLE,
    TOKEN,
    StubSource,
    StubSources,
    reading,
    running,
    stat,
    track,
    uuid,
)
from tests.services.analyzer.controlling import EAGER, decided
from tests.services.analyzer.exporting import exporting
from vgpuscope.model.analysis import Tenant
from vgpuscope.model.cluster import Finding
from vgpuscope.model.pending import PendingPod

pytestmark = pytest.mark.attack

HOURLY = {"scheduler.interval": 3600}
MINE = {"authorization": f"Bearer {TOKEN}-mine"}
ALL = {"authorization": f"Bearer {TOKEN}-all"}
FOREIGN = ("secret-space", "secret-pod", "secret-owner", "secret-box")
IDLE_PART = {"process_sm": stat(0.0), "mem_used": stat(20.0 * GIB)}


def fleet():
    """A GPU of mine, one of a stranger, and one that we share with two strangers; all idle."""
    mine = Tenant(namespace="mine", pod="my-pod", container="main", pod_uid="uid-1")
    other = Tenant(namespace="secret-space", pod="secret-pod", container="secret-box", pod_uid="uid-2")
    third = Tenant(namespace="secret-space", pod="secret-pod-2", container="secret-box", pod_uid="uid-3")
    parts = [track(2, tenant=one, own=True, terms=IDLE_PART) for one in (mine, other, third)]
    whole = track(2, util=IDLE, tenant=None)
    return reading(track(0, util=IDLE, tenant=mine), track(1, util=IDLE, tenant=other), *parts, whole)


@asynccontextmanager
async def serving(tmp_path, **more):
    tokens = "".join(
        f"  - {{name: {name}, sha256: {hashlib.sha256(f'{TOKEN}-{name}'.encode()).hexdigest()}{more}}}\n"
        for name, more in (("mine", ", role: admin, namespaces: [mine]"), ("all", ", role: admin"))
    )
    file = tmp_path / "web.yaml"
    file.write_text(f"bearer_tokens:\n{tokens}")
    source = StubSource(fleet())
    sources = StubSources(source)
    sources.known_owners = {("secret-space", "secret-pod"): "Job/secret-owner", ("mine", "my-pod"): "Job/my-owner"}
    given = {"analyzer.web_config_file": str(file), "analyzer.history": str(tmp_path / "history.db")}
    async with running(source, sources=sources, **(HOURLY | given | more)) as found:
        await found.analysed()
        await until(lambda: _stored(found))
        yield found


@pytest.fixture
async def analyzer(tmp_path):
    async with serving(tmp_path) as found:
        yield found


@pytest.fixture
async def busy(tmp_path):
    """The same with allocations, pods that wait, cases, channels and settings of both namespaces."""
    named = {"mine": "my-pod", "secret-space": "secret-pod"}
    more = EAGER | {
        "control.enabled": True,
        "control.api_url": "http://127.0.0.1:9/",
        "reclaim.protected_namespaces": ["kube-system", "mine", "secret-space-2"],
        "prometheus.query_condition": '{namespace!="secret-space-3"}',
        "notify.channels": [{"name": "secret-space", "url": "http://127.0.0.1:9/"}],
    }
    async with exporting() as exporter:
        held = tuple(
            holder(uuid(2), pod, namespace=space, container="", memory=8 * GIB) for space, pod in named.items()
        )
        ghost = Finding(
            kind="ghost", node="node-0", reason="ended", namespace="secret-space", pod="secret-pod-3", device=uuid(2)
        )
        exporter.nodes = (node("node-0", device(uuid(2), allocated=16 * GIB), holders=held, findings=(ghost,)),)
        exporter.pods = tuple(
            PendingPod(namespace=space, pod=f"{pod}-waits", pod_uid=pod, created=900.0, code="SCHED_TAINT")
            for space, pod in named.items()
        )
        async with serving(tmp_path, **more, **{"analyzer.cluster_url": exporter.url}) as found:
            await decided(found)
            yield found


async def _stored(found):
    return (await found.get("/api/v1/history?namespace=", headers=ALL)).json()


async def ask(analyzer, path, headers, **more):
    return await analyzer.get(path, headers=headers | more)


SAME = {  # for everyone: they concern no namespace
    "/",
    "/docs",
    "/health",
    "/healthz",
    "/openapi.json",
    "/readyz",
    "/api/v1/decisions",  # there are none here, and no events: test_decisions.py and test_console.py have some
    "/api/v1/timeline",
    "/api/v1/parts",
    "/api/v1/reclaim/backtest",
    "/api/v1/definitions",
    "/api/v1/words",
}


async def test_no_answer_names_a_tenant_of_another_namespace(busy):
    """Every path of the API is asked, so that a new one is asked, too."""
    found = (await ask(busy, "/openapi.json", MINE)).json()["paths"]
    paths = {
        path.replace("{gpu_id}", uuid(number))
        .replace("{name}", name)
        .replace("{namespace}/{pod}", f"{name}/{'my-pod' if name == 'mine' else 'secret-pod'}{more}")
        for path, methods in found.items()
        if "get" in methods
        for number in (0, 1, 2)
        for name in ("mine", "secret-space", "node-0")
        for more in ("", "-waits")
    }
    paths |= {"/api/v1/history?namespace=mine", "/api/v1/waste?since=1h&group_by=node", "/results?format=csv"}
    paths -= {"/api/v1/events"}  # a stream, asked below
    told, same = {}, set()
    for path in sorted(paths):
        mine, everything = [await ask(busy, path, who) for who in (MINE, ALL)]
        same |= {path} if mine.status_code == 200 and mine.text == everything.text else set()
        told[path] = any(word in everything.text for word in FOREIGN)
        assert mine.status_code in {200, 403, 404}, (path, mine.text)
        repeated = [word for word in FOREIGN if word in path]  # an error repeats the name that the caller sent
        assert not any(word in mine.text for word in FOREIGN if word not in repeated), (path, mine.text)
        assert all(word not in str(mine.headers) for word in FOREIGN)
    assert {path for path in same if "mine" not in path and uuid(0) not in path} <= SAME
    assert {path for path, said in told.items() if said} >= {  # else the test would see nothing in any case
        "/config",
        "/metrics",
        "/results",
        "/results/low",
        "/results/stats",
        "/api/v1/audit",
        "/api/v1/doctor",
        "/api/v1/gpus",
        "/api/v1/namespaces",
        "/api/v1/nodes/node-0",
        "/api/v1/notices",
        "/api/v1/overview",
        "/api/v1/reclaim",
        "/api/v1/reclaim/policy",
        "/api/v1/scheduling",
        "/api/v1/settings",
        "/api/v1/summary",
        "/api/v1/waste",
        "/api/v1/workloads",
        f"/api/v1/gpus/{uuid(1)}",
    }


@pytest.mark.parametrize("path", ["/metrics", "/config", "/api/v1/settings", "/api/v1/notices"])
async def test_what_cannot_hide_others_is_refused(analyzer, path):
    refused = await ask(analyzer, path, MINE)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "FORBIDDEN")
    assert (await ask(analyzer, path, ALL)).status_code == 200


async def test_the_policy_names_the_protected_namespaces_of_the_caller(busy):
    mine, everything = [(await ask(busy, "/api/v1/reclaim/policy", who)).json() for who in (MINE, ALL)]
    assert mine.pop("protected_namespaces") == ["mine"]
    assert everything.pop("protected_namespaces") == ["kube-system", "mine", "secret-space-2"]
    assert mine == everything


async def test_an_admin_of_one_namespace_changes_nothing_for_all(analyzer):
    for path in ("/analyze", "/config/update?threshold=90"):
        refused = await analyzer.client.post(path, headers=MINE)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "FORBIDDEN")
    assert analyzer.analyzer.config().thresholds.low_utilization == 20


async def test_gpus_are_shown_with_ones_own_tenants(analyzer):
    rows = {row["gpu_id"]: row for row in (await ask(analyzer, "/results", MINE)).json()}
    assert rows.keys() == {uuid(0), uuid(2)}
    own, shared = [rows[uuid(number)] for number in (0, 2)]
    assert [len(row["tenants"]) for row in (own, shared)] == [1, 1]
    assert [(row["namespace"], row["pod"]) for row in (own, shared)] == [("mine", "my-pod"), ("", "")]
    assert [row["shared"] for row in (own, shared)] == [False, True]
    whole = {row["gpu_id"]: row for row in (await ask(analyzer, "/results", ALL)).json()}
    assert own == whole[uuid(0)]
    assert shared["tenants"][0] in whole[uuid(2)]["tenants"]
    assert [row["gpu_id"] for row in (await ask(analyzer, "/results?namespace=mine", MINE)).json()] == [
        uuid(0),
        uuid(2),
    ]


@pytest.mark.parametrize(
    "asked",
    ["namespace=secret-space", "pod=secret-pod", "search=secret"],
)
async def test_a_filter_does_not_tell_where_others_are(analyzer, asked):
    assert (await ask(analyzer, f"/results?{asked}", MINE)).json() == []
    assert len((await ask(analyzer, f"/results?{asked}", ALL)).json()) == 2
    assert (await ask(analyzer, f"/api/v1/gpus?{asked}", MINE)).json()["rows"] == []
    assert len((await ask(analyzer, f"/api/v1/gpus?{asked}", ALL)).json()["rows"]) == 2
    assert (await ask(analyzer, f"/results/low?{asked}", MINE)).json()["count"] == 0
    assert (await ask(analyzer, f"/results/stats?{asked}", MINE)).json()["total_gpus"] == 0


async def test_sums_are_those_of_ones_own_tenants(analyzer):
    sums = (await ask(analyzer, "/results/stats", MINE)).json()
    assert (sums["total_gpus"], sums["tenants_total"], list(sums["by_namespace"])) == (2, 2, ["mine"])
    assert [row["name"] for row in (await ask(analyzer, "/api/v1/namespaces", MINE)).json()["rows"]] == ["mine"]
    [job] = (await ask(analyzer, "/api/v1/workloads?group_by=owner", MINE)).json()["rows"]
    assert (job["owner"], len(job["gpus"])) == ("Job/my-owner", 2)
    low = (await ask(analyzer, "/results/low", MINE)).json()
    assert (low["tenants_total"], low["total_gpus"]) == (2, 2)


@pytest.mark.parametrize("who", [MINE, ALL])
async def test_a_caller_counts_the_same_gpus_everywhere(analyzer, who):
    listed = {row["gpu_id"] for row in (await ask(analyzer, "/api/v1/gpus", who)).json()["rows"]}
    assert {row["gpu_id"] for row in (await ask(analyzer, "/results", who)).json()} == listed
    assert {row["gpu_id"] for row in (await ask(analyzer, "/results/low", who)).json()["gpus"]} == listed
    sums, summary = [(await ask(analyzer, path, who)).json() for path in ("/results/stats", "/api/v1/summary")]
    now = (await ask(analyzer, "/api/v1/overview", who)).json()["now"]
    counts = [sums["total_gpus"], summary["gpus"], summary["rows"], now["gpus"], now["gpus_or_instances"]]
    assert counts == [len(listed)] * 5


async def test_waste_is_that_of_ones_own_pods(analyzer):
    mine, everything = [(await ask(analyzer, "/api/v1/waste?since=1h", who)).json() for who in (MINE, ALL)]
    [row] = mine["rows"]
    assert row in everything["rows"]
    assert mine["gpu_hours"] == mine["held_gpu_hours"] == mine["idle_gpu_hours"] == row["idle_gpu_hours"]
    assert mine["idle_gpu_hours"] < everything["idle_gpu_hours"]


async def test_waste_of_chosen_namespaces_is_theirs_as_far_as_the_caller_may_see_them(analyzer):
    async def asked(query: str, who):
        return (await ask(analyzer, f"/api/v1/waste?since=1h&{query}", who)).json()

    mine, chosen = await asked("", MINE), await asked("namespace=mine", ALL)
    assert (chosen["rows"], chosen["gpu_hours"]) == (mine["rows"], mine["gpu_hours"])
    both = await asked("namespace=mine,secret-space", ALL)
    assert {row["namespace"] for row in both["rows"]} == {"mine", "secret-space"}
    assert (await asked("namespace=mine&namespace=secret-space", MINE))["rows"] == mine["rows"]
    other = await asked("namespace=secret-space", MINE)
    assert (other["rows"], other["gpu_hours"], other["count"]) == ([], 0.0, 0)


@pytest.mark.parametrize("asked", ["namespace=", "namespace=secret-space", "pod=secret-pod", "pod=", "pod=my-pod"])
async def test_the_past_of_other_pods_is_refused(analyzer, asked):
    refused = await ask(analyzer, f"/api/v1/history?{asked}", MINE)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "FORBIDDEN")
    assert {point["pod"] for point in (await ask(analyzer, "/api/v1/history?namespace=mine", MINE)).json()} == {
        "my-pod"
    }


@pytest.mark.parametrize("step", ["analysis", "hour", "day"])
async def test_the_past_of_gpus_is_that_of_those_on_which_ones_own_pods_were(analyzer, step):
    async def gpus(path: str, who) -> set[str]:
        return {one["gpu_id"] for one in (await ask(analyzer, path, who)).json()}

    assert await gpus(f"/api/v1/history?step={step}", ALL) == {uuid(0), uuid(1), uuid(2)}
    mine = await gpus(f"/api/v1/history?step={step}", MINE)
    assert mine == await gpus("/results", MINE) == await gpus(f"/api/v1/history?step={step}&namespace=mine", MINE)
    [foreign] = {uuid(0), uuid(1), uuid(2)} - mine
    assert await gpus(f"/api/v1/history?step={step}&gpu_id={foreign}", MINE) == set()


async def test_answers_for_one_caller_are_never_those_for_another(analyzer):
    for path in ("/results", "/results/stats", "/api/v1/summary"):
        mine, everything = [await ask(analyzer, path, who) for who in (MINE, ALL)]
        assert mine.headers["etag"] != everything.headers["etag"]
        assert "private" in mine.headers["cache-control"]
        again = await ask(analyzer, path, MINE, **{"if-none-match": everything.headers["etag"]})
        assert (again.status_code, again.content) == (200, mine.content)
        assert (await ask(analyzer, path, MINE, **{"if-none-match": mine.headers["etag"]})).status_code == 304


async def test_the_stream_of_events_names_no_tenant(analyzer):
    async with analyzer.client.stream("GET", "/api/v1/events", headers=MINE) as stream:
        assert stream.status_code == 200
        lines = [line async for line in _first(stream.aiter_lines(), 3)]
    assert lines[0] == "event: analysis"
    assert not any(word in line for line in lines for word in FOREIGN)


async def _first(lines, count):
    async for line in lines:
        yield line
        count -= 1
        if not count:
            return


@pytest.mark.parametrize("name", ["mine", "vision"])
async def test_the_api_token_can_be_restricted_too(name):
    given = {"analyzer.api_token": TOKEN, "analyzer.api_token_namespaces": name, "analyzer.protect_reads": "true"}
    async with running(StubSource(fleet()), **HOURLY, **given) as found:
        await found.analysed()
        rows = await found.get("/results", headers={"authorization": f"Bearer {TOKEN}"})
        tenants = [one["namespace"] for row in rows.json() for one in row["tenants"]]
        assert tenants == (["mine"] * 2 if name == "mine" else [])
        assert (await found.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"})).status_code == 403
