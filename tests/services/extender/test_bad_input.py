"""Requests that no scheduler should send, to a running extender: a clear answer with a code, and no crash."""

import asyncio
import json
from contextlib import asynccontextmanager

import httpx2
import pytest

from tests.paths import REPOSITORY
from vgpuscope.catalog import extender as m
from vgpuscope.config import ExtenderConfig
from vgpuscope.http import address
from vgpuscope.http.server import HttpServer
from vgpuscope.services.extender.process import Extender

RECORDED = REPOSITORY / "tests" / "fixtures" / "extender" / "v1.35"
NOWHERE = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
    "users": [{"name": "u", "user": {"token": "x"}}],
}


@asynccontextmanager
async def serving(tmp_path, **settings):
    """An extender whose API server does not answer: it never leads."""
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(NOWHERE))
    service = Extender(ExtenderConfig(kubeconfig=str(file), **settings))
    server = HttpServer(service.app(None), sock=address.bind("127.0.0.1:0"))
    task = asyncio.create_task(server.run())
    try:
        await server.started()
        async with httpx2.AsyncClient(base_url=server.url, timeout=60.0) as client:
            yield service, client
    finally:
        server.stop()
        await task
        await service.close()


def recorded(name):
    return (RECORDED / f"extender-{name}-request.json").read_bytes()


async def page(client):
    return (await client.get("/metrics", headers={"accept-encoding": "identity"})).text


async def test_a_replica_that_does_not_lead_decides_nothing_and_says_so(tmp_path):
    async with serving(tmp_path) as (_, client):
        for name in ("filter", "nocache-filter"):
            answer = await client.post("/filter", content=recorded(name))
            assert answer.status_code == 200  # kube-scheduler reads no other body
            assert answer.json()["Error"].startswith("EXTENDER_STANDBY: ")
            assert answer.json()["NodeNames"] is None
        answer = await client.post("/bind", content=recorded("bind"))
        assert (answer.status_code, answer.json()["Error"][:36]) == (200, "SCHED_BIND_FAILED: EXTENDER_STANDBY:")
        answer = await client.post("/prioritize", content=recorded("prioritize"))
        assert answer.status_code == 503
        assert (await client.get("/readyz")).status_code == 503
        health = await client.get("/healthz")
        assert health.status_code == 200
        assert health.text.split("\n")[1:4] == ["cache: not synced", "lease: not held", "api: unreachable"]


async def test_a_filter_that_cannot_be_decided_is_recorded_and_is_no_refusal(tmp_path):
    async with serving(tmp_path) as (service, client):
        for name in ("filter", "nocache-filter"):
            await client.post("/filter", content=recorded(name))
        body = json.loads(recorded("filter"))
        body["Pod"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "-1"
        await client.post("/filter", content=json.dumps(body))
        found = (await client.get("/api/v1/decisions")).json()
        assert [(one["verb"], one["outcome"]) for one in found] == [("filter", "failed")] * 3
        for one in found:
            assert {verdict["code"] for verdict in one["nodes"]} == {"SCHED_NO_EXTENDER"}
            assert one["nodes"][0]["message"].startswith("EXTENDER_STANDBY: ")
        assert not service._poster._waiting
        assert f'{m.REQUESTS.name}{{verb="filter",outcome="error"}} 3' in await page(client)


async def test_a_binding_that_this_replica_may_not_make_is_a_failed_one(tmp_path):
    async with serving(tmp_path) as (service, client):
        await client.post("/bind", content=recorded("bind"))
        (found,) = (await client.get("/api/v1/decisions")).json()
        assert (found["verb"], found["outcome"], found["nodes"][0]["code"]) == ("bind", "failed", "SCHED_BIND_FAILED")
        assert [key.reason for key in service._poster._waiting] == ["FailedScheduling"]
        assert f'{m.REFUSALS.name}{{verb="bind",code="SCHED_BIND_FAILED"}} 1' in await page(client)


async def test_without_election_nothing_is_decided_before_the_cache_is_complete(tmp_path):
    async with serving(tmp_path, leader_elect=False) as (_, client):
        answer = await client.post("/filter", content=recorded("filter"))
        assert (answer.status_code, answer.json()["Error"][:20]) == (200, "EXTENDER_NOT_SYNCED:")


async def test_a_pod_without_gpus_passes_even_then(tmp_path):
    body = json.loads(recorded("filter"))
    body["Pod"]["spec"]["containers"][0]["resources"] = {}
    async with serving(tmp_path) as (_, client):
        answer = await client.post("/filter", content=json.dumps(body))
        assert (answer.status_code, answer.json()["NodeNames"]) == (200, body["NodeNames"])


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"Pod": {}}', b"[" * 100_000])
@pytest.mark.parametrize("path", ["/filter", "/prioritize", "/score", "/bind", "/webhook"])
async def test_what_is_no_request_is_400_with_a_code(tmp_path, path, body):
    async with serving(tmp_path) as (_, client):
        answer = await client.post(path, content=body)
        assert answer.status_code == 400
        assert "BODY_INVALID" in answer.text
        assert "/docs" not in answer.text  # its document has the API for people only
        assert (await client.get("/healthz")).status_code == 200


async def test_another_method_and_another_version_of_a_review_are_refused(tmp_path):
    async with serving(tmp_path) as (_, client):
        assert (await client.get("/filter")).status_code == 405
        old = {"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": {"uid": "1"}}
        answer = await client.post("/webhook", content=json.dumps(old))
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "BODY_INVALID")


async def test_a_body_over_the_limit_is_413_with_a_code_and_is_not_read(tmp_path):
    async with serving(tmp_path) as (_, client):
        head = b"POST /filter HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n" % (65 * 2**20)
        assert b"413" in await raw(client, head, b"")


async def test_a_body_without_a_length_is_cut_at_the_limit_and_told_so(tmp_path):
    async with serving(tmp_path) as (_, client):
        head = b"POST /bind HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n"
        chunk = b"%x\r\n" % 2**20 + b" " * 2**20 + b"\r\n"
        got = await raw(client, head, chunk * 6)
        assert b"413" in got
        assert b"BODY_TOO_LARGE" in got


async def raw(client, head, body):
    """The beginning of the answer, although the request is not complete."""
    reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
    try:
        writer.write(head)
        with_body = asyncio.create_task(_send(writer, body))
        async with asyncio.timeout(60):
            got = await reader.readuntil(b"\r\n\r\n") + await reader.read(2000)
        with_body.cancel()
        await asyncio.gather(with_body, return_exceptions=True)
        return got
    finally:
        writer.transport.abort()


async def _send(writer, body):
    writer.write(body)
    await writer.drain()


async def test_one_observation_for_each_request_whatever_came_of_it(tmp_path):
    async with serving(tmp_path) as (_, client):
        await client.post("/filter", content=recorded("filter"))
        await client.post("/filter", content=b"{")
        await client.post("/bind", content=recorded("bind"))
        text = await page(client)
        assert f"{m.FILTER_SECONDS.name}_count 2" in text
        assert f"{m.BIND_SECONDS.name}_count 1" in text
        assert f"{m.BIND_FAILURE.name} 1" in text
        assert f"{m.SCORE_SECONDS.name}_count 2" in text


@pytest.mark.attack
async def test_a_caller_from_elsewhere_is_refused_before_its_body_is_read(tmp_path):
    """The web page of a stranger, and a proxy on this machine."""
    async with serving(tmp_path) as (_, client):
        for headers in ({"origin": "https://evil.example"}, {"x-forwarded-for": "10.0.0.1"}):
            for path in ("/filter", "/prioritize", "/score", "/bind"):
                answer = await client.post(path, content=recorded("filter"), headers=headers)
                assert (answer.status_code, answer.json()["error"]["code"]) == (403, "PEER_FORBIDDEN")
        assert (await client.post("/webhook", content=b"{", headers={"x-forwarded-for": "10.0.0.1"})).status_code == 400
