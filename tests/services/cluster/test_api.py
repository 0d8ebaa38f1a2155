"""The cluster exporter's table of operations, before any watch has told anything."""

import asyncio
from contextlib import asynccontextmanager

import httpx2
import pytest

from tests.http.serving import SOON
from vgpuscope.config import ClusterConfig
from vgpuscope.http import address
from vgpuscope.http.server import HttpServer
from vgpuscope.services.cluster.process import ClusterExporter


@asynccontextmanager
async def serving(**more):
    server = HttpServer(ClusterExporter(ClusterConfig(), **more).app(None), sock=address.bind("127.0.0.1:0"))
    task = asyncio.create_task(server.run())
    try:
        await server.started()
        async with httpx2.AsyncClient(base_url=server.url, timeout=SOON) as client:
            yield client
    finally:
        server.stop()
        await task


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/api/v1/nodes", 200, []),
        ("/api/v1/pending?all=yes", 200, None),
        ("/api/v1/pending?al=true", 422, None),
        ("/api/v1/pending?all=maybe", 422, None),
        ("/api/v1/owners", 503, None),  # the pods were not listed yet: none would be a wrong answer
    ],
)
async def test_every_operation_answers_in_one_shape(path, status, body):
    async with serving() as client:
        got = await client.get(path)
    assert got.status_code == status
    assert (status == 200) == ("error" not in got.json())
    assert body is None or got.json() == body


async def test_the_time_of_an_answer_is_of_the_clock_that_the_exporter_got():
    async with serving(wall=lambda: 1_700_000_000.0) as client:
        assert (await client.get("/api/v1/pending")).json()["now"] == 1_700_000_000.0


async def test_the_document_describes_every_path_and_the_index_links_to_it():
    async with serving() as client:
        document, page = (await client.get("/openapi.json")).json(), (await client.get("/")).text
        docs = await client.get("/docs")
    assert document["openapi"] == "3.1.0"
    own = {"/api/v1/nodes", "/api/v1/pending", "/api/v1/owners"}
    assert document["paths"].keys() == own | {"/openapi.json", "/docs", "/metrics", "/healthz", "/readyz"}
    assert {"NodeLedger", "PendingList", "ErrorBody"} <= document["components"]["schemas"].keys()
    assert [param["name"] for param in document["paths"]["/api/v1/pending"]["get"]["parameters"]] == [
        "namespace",
        "pod",
        "all",
    ]
    assert all(f'<a href="{path}">' in page for path in ("api/v1/nodes", "openapi.json", "docs", "metrics"))
    assert "script-src 'self'" in docs.headers["content-security-policy"]
