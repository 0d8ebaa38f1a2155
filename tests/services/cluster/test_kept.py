"""The API of the cluster exporter answers from kept conclusions, and these are the ones that would be made now."""

import asyncio
import json
import threading

import httpx2
import msgspec
import pytest

from tests.contract.clusterrun import holder, quota, registered
from tests.controlplane import pod
from tests.logic.cluster import builders
from vgpuscope.config import ClusterConfig
from vgpuscope.http.answers import json_content
from vgpuscope.logic.cluster import ledger
from vgpuscope.services.cluster import process
from vgpuscope.services.cluster.process import ClusterExporter


def line(found, kind="ADDED"):
    meta = found["metadata"]
    found["metadata"] = {"uid": f"uid-{meta['name']}", "resourceVersion": "1", **meta}
    return json.dumps({"type": kind, "object": found}).encode()


@pytest.fixture
async def exporter():
    made = ClusterExporter(ClusterConfig())
    for kind in made._kinds:
        kind._take_list({})
    feed(made, "nodes", *(registered(f"n{i}", f"GPU-{i}a", f"GPU-{i}b") for i in range(3)))
    feed(made, "pods", *(holder(f"p{i}", f"n{i % 3}", f"GPU-{i % 3}a", memory=100 * i) for i in range(6)))
    feed(made, "pods", pod("waits", limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "900000"}))
    feed(made, "resourcequotas", quota("ml", gpumem="10000"))
    await made._settle()
    return made


def feed(exporter, name, *found):
    (watch,) = (kind._watch for kind in exporter._kinds if kind.name == name)
    for one in found:
        watch.take(watch._decode_event(line(one)))


async def get(exporter, path, query=""):
    """The answer of the service's own application, as JSON."""
    transport = httpx2.ASGITransport(app=exporter.app(None))
    async with httpx2.AsyncClient(transport=transport, base_url="http://exporter") as client:
        return (await client.get(f"/api/v1/{path}?{query}")).json()


async def test_the_nodes_are_those_that_would_be_made_now(exporter):
    feed(exporter, "pods", holder("p1", "n2", "GPU-2b", memory=7))
    await exporter._settle()
    fresh = builders.ledger(exporter._state.nodes.values(), exporter._state.pods.values())
    assert await get(exporter, "nodes") == json.loads(msgspec.json.encode([fresh.node(f"n{i}") for i in range(3)]))


@pytest.mark.parametrize("query", ["", "namespace=ml&pod=waits", "all=true"])
async def test_no_answer_makes_conclusions(exporter, monkeypatch, query):
    feed(exporter, "pods", holder("late", "n0", "GPU-0b"))  # so that there would be something to make

    def made(*_, **__):
        pytest.fail("a conclusion was made while a request waits")

    monkeypatch.setattr(ledger, "settle_node", made)
    monkeypatch.setattr(ledger, "settle_namespace", made)
    nodes = await get(exporter, "nodes")
    assert [len(node["holders"]) for node in nodes] == [2, 2, 2]
    pending = await get(exporter, "pending", query)
    assert [one["pod"] for one in pending["pending"] if one["outcome"] == "waiting"] == ["waits"]


async def asked(exporter, **headers):
    transport = httpx2.ASGITransport(app=exporter.app(None))
    async with httpx2.AsyncClient(transport=transport, base_url="http://exporter") as client:
        return await client.get("/api/v1/nodes", headers=headers)


@pytest.fixture
def encoded(monkeypatch):
    """The threads in which the answer with all nodes was encoded."""
    threads: list = []

    def recorded(value):
        threads.append(threading.current_thread())
        return json_content(value)

    monkeypatch.setattr(process, "json_content", recorded)
    return threads


async def test_the_nodes_are_encoded_once_beside_the_event_loop_however_many_ask(exporter, encoded):
    answers = await asyncio.gather(*(asked(exporter) for _ in range(5)))
    assert len({answer.content for answer in answers}) == len(encoded) == 1
    assert encoded[0] is not threading.main_thread()


async def test_a_client_that_has_the_nodes_gets_no_body_until_a_conclusion_changes(exporter, encoded):
    first = await asked(exporter)
    again = await asked(exporter, **{"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content, len(encoded)) == (304, b"", 1)
    feed(exporter, "pods", holder("p1", "n1", "GPU-1a", memory=100))  # as it was
    await exporter._settle()
    assert (await asked(exporter, **{"if-none-match": first.headers["etag"]})).status_code == 304
    feed(exporter, "pods", holder("p1", "n1", "GPU-1a", memory=7))
    assert (await asked(exporter)).headers["etag"] == first.headers["etag"]  # not settled yet
    await exporter._settle()
    changed = await asked(exporter, **{"if-none-match": first.headers["etag"]})
    assert (changed.status_code, len(encoded)) == (200, 2)
    assert changed.json() != first.json()


async def test_only_the_last_answer_is_kept(exporter, encoded):
    for memory in range(1, 6):
        feed(exporter, "pods", holder("p1", "n1", "GPU-1a", memory=memory))
        await exporter._settle()
        await asked(exporter)
    assert (len(encoded), len(exporter._answers._found)) == (5, 1)


async def test_a_version_of_another_process_is_not_taken_for_this_ones(exporter):
    tags = set()
    for instance in ("a", "b"):
        exporter._instance = instance
        tags.add((await asked(exporter)).headers["etag"])
    assert len(tags) == 2


async def test_a_pod_is_kept_once_by_the_whole_exporter(exporter):
    (held,) = (one for one in exporter._state.pods.values() if one.name == "p1")
    assert [name for name, where in maps(exporter) if any(one is held for one in where.values())] == ["_pods"]


def maps(value, name="", seen=None):
    """Every dictionary in the exporter, with the name of the attribute that holds it."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, dict):
        yield name, value
        inside = [(name, one) for one in value.values()]
    elif isinstance(value, (list, tuple, set)):
        inside = [(name, one) for one in value]
    elif type(value).__module__.startswith("vgpuscope"):
        inside = list(getattr(value, "__dict__", {}).items())
        inside += [(slot, getattr(value, slot, None)) for slot in getattr(type(value), "__slots__", ())]
    else:
        return
    for key, one in inside:
        yield from maps(one, key, seen)
