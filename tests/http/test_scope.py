"""Callers that are restricted to namespaces, over real sockets: what cannot hide the others is refused, everywhere."""

import hashlib
from contextlib import asynccontextmanager

import httpx2
import pytest

from tests.http.serving import SOON, client_of, served
from tests.http.test_guard import Folder
from vgpuscope.config import ClusterConfig
from vgpuscope.http.app import Readiness
from vgpuscope.http.operations import HttpCall, Operation, routes
from vgpuscope.http.parameters import NoQuery
from vgpuscope.services.agent import api as agent_api
from vgpuscope.services.cluster import process as cluster

pytestmark = pytest.mark.attack

TOKENS = {"mine": ", role: admin, namespaces: [mine]", "all": ", role: admin"}
OWNERS = {"mine/a": "Job/a", "minestrone/b": "Job/b", "mine-too/c": "Job/c", "other/d": "Job/d"}


@pytest.fixture
def guard(tmp_path):
    lines = [
        f"  - {{name: {name}, sha256: {hashlib.sha256(name.encode()).hexdigest()}{more}}}"
        for name, more in TOKENS.items()
    ]
    return Folder(tmp_path).write("bearer_tokens:\n" + "\n".join(lines)).guard()


def bearer(name):
    return {"authorization": f"Bearer {name}"}


async def who(call: HttpCall[NoQuery, None]) -> list:
    return [call.caller.name, call.caller.role, call.caller.namespaces]


TABLE = (
    Operation(method="GET", path="/unscoped", summary="s", handler=who),
    Operation(method="GET", path="/scoped", summary="s", handler=who, scoped=True),
    Operation(method="GET", path="/public", summary="s", handler=who, access="guarded"),
    Operation(method="POST", path="/change", summary="s", handler=who, role="operate"),
)


async def test_an_operation_that_does_not_say_that_it_hides_others_refuses_restricted_callers(guard):
    async with (
        served(routes=routes(TABLE), guard=guard) as server,
        httpx2.AsyncClient(base_url=server.url, timeout=SOON) as client,
    ):
        found = {}
        for name in TOKENS:
            gets = [await client.get(path, headers=bearer(name)) for path in ("/unscoped", "/scoped", "/public")]
            others = [
                await client.post("/change", headers=bearer(name)),
                await client.get("/metrics", headers=bearer(name)),
            ]
            found[name] = [one.status_code for one in (*gets, *others)]
            assert gets[1].json() == [name, "admin", ["mine"] if name == "mine" else None]
    assert found == {"mine": [403, 200, 200, 403, 403], "all": [200] * 5}


def test_only_the_agents_public_operations_are_open_to_restricted_callers():
    async def node(call: HttpCall[NoQuery, None]): ...

    assert [one.path for one in agent_api.operations(node) if one.scoped or one.public] == ["/openapi.json"]


@asynccontextmanager
async def exporter(guard, monkeypatch):
    monkeypatch.setattr(cluster.ClusterExporter, "readiness", lambda _: Readiness())
    made = cluster.ClusterExporter(ClusterConfig())
    monkeypatch.setattr(made._owners, "owners", lambda: iter(OWNERS.items()))
    async with client_of(made.app(guard), guard) as client:
        yield client


async def test_the_cluster_exporter_shows_a_restricted_caller_its_own_owners_and_no_more(guard, monkeypatch):
    async with exporter(guard, monkeypatch) as client:
        mine, everything = [await client.get("/api/v1/owners", headers=bearer(name)) for name in TOKENS]
        assert mine.json() == {"mine/a": "Job/a"}
        assert everything.json() == OWNERS
        for path in ("/api/v1/nodes", "/api/v1/pending", "/metrics"):
            assert [(await client.get(path, headers=bearer(name))).status_code for name in TOKENS] == [403, 200]
