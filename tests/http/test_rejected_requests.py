"""Requests that the connection itself rejects: each is answered in the format of all errors, its rest is discarded."""

import asyncio
import json
import socket

import httpx2
import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tests.http.serving import SOON, Numbers, served, until
from vgpuscope.http.app import App, Readiness
from vgpuscope.http.connection import ConnectionLimits

pytestmark = pytest.mark.attack
MIB = 2**20
LIMITS = ConnectionLimits()


async def opened(server):
    host, port = server.url.removeprefix("http://").rsplit(":", 1)
    return await asyncio.open_connection(host, int(port))


async def answers(server, *payload):
    """The answers to what is sent, as (status, headers, body); the client sends everything before it reads."""
    reader, writer = await opened(server)
    try:
        for part in payload:
            writer.write(part)
            await writer.drain()
        async with asyncio.timeout(SOON):
            got = await reader.read()
    finally:
        writer.close()
    return [parsed(b"HTTP/1.1 " + one) for one in got.split(b"HTTP/1.1 ")[1:]]


def parsed(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in lines), body


def checked(answer, status, code):
    got, headers, body = answer
    assert got == status
    assert headers["content-type"] == "application/json"
    assert headers["content-length"] == str(len(body))
    assert headers["connection"] == "close"
    assert "date" in headers
    error = json.loads(body)["error"]
    assert error["code"] == code
    assert error["message"]
    assert error["hint"]


def post(path, size, head=b""):
    return b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n%s\r\n" % (path, size, head)


@pytest.mark.parametrize("path", [b"/metrics", b"/nowhere", b"/echo"])
@pytest.mark.parametrize("mebibytes", [3, 20])
async def test_a_client_that_sends_a_large_body_to_its_end_reads_413(path, mebibytes):
    async with served(routes=[echo()]) as server:
        [answer] = await answers(server, post(path, mebibytes * MIB), b"a" * (mebibytes * MIB))
    checked(answer, 413, "BODY_TOO_LARGE")
    assert b"larger than 2 MiB" in answer[2]


def echo():
    async def own(request):
        return PlainTextResponse(str(len(await request.body())))

    return Route("/echo", own, methods=["POST"])


async def test_a_program_reads_413_too():
    async with served(routes=[echo()]) as server, httpx2.AsyncClient(timeout=SOON) as client:
        got = await client.post(f"{server.url}/echo", content=b"a" * (3 * MIB))
    assert (got.status_code, got.json()["error"]["code"]) == (413, "BODY_TOO_LARGE")


async def test_a_large_body_without_a_length_is_413_where_a_body_is_read(caplog):
    chunk = b"%x\r\n" % MIB + b"a" * MIB + b"\r\n"
    head = b"POST /echo HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    async with served(routes=[echo()]) as server:
        [answer] = await answers(server, head, *[chunk] * 5, b"0\r\n\r\n")
    checked(answer, 413, "BODY_TOO_LARGE")
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_an_answer_that_has_begun_is_the_only_one():
    chunk = b"%x\r\n" % MIB + b"a" * MIB + b"\r\n"
    async with served(routes=[echo()]) as server:
        reader, writer = await opened(server)
        writer.write(b"POST /nowhere HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
        begun = await reader.readuntil(b"}}")
        writer.write(chunk * 5)
        await writer.drain()
        async with asyncio.timeout(SOON):
            assert await reader.read() == b""
        writer.close()
    assert begun.startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize(
    "head",
    [b"x: " + b"a" * 70_000 + b"\r\n", b"x: a\r\n" * 12_000, b"x: " + b"a" * LIMITS.head],
    ids=["long", "many", "endless"],
)
async def test_large_headers_are_431(head):
    async with served() as server:
        [answer] = await answers(server, b"GET /healthz HTTP/1.1\r\n" + head + b"\r\n")
    checked(answer, 431, "HEADERS_TOO_LARGE")


@pytest.mark.parametrize(
    "sent",
    [
        b"FOO / HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"POST /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nno number\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=["method", "header", "length", "path", "chunk", "tls"],
)
async def test_what_is_not_http_is_400(sent):
    async with served(routes=[echo()]) as server:
        [answer] = await answers(server, sent)
    checked(answer, 400, "REQUEST_MALFORMED")


async def test_earlier_requests_of_the_connection_are_answered_first():
    gate = asyncio.Event()

    async def slow(request):
        await gate.wait()
        return PlainTextResponse("slow")

    async with served(routes=[Route("/slow", slow), echo()]) as server:
        reader, writer = await opened(server)
        writer.write(b"GET /slow HTTP/1.1\r\nhost: localhost\r\n\r\n" + post(b"/echo", 3 * MIB))
        await until(lambda: [one for one in server._inner.server_state.connections if one._refused])
        gate.set()
        async with asyncio.timeout(SOON):
            got = await reader.read()
        writer.close()
    assert got.index(b"HTTP/1.1 200 ") < got.index(b"slow") < got.index(b"HTTP/1.1 413 ")


async def test_the_answer_names_the_service():
    app = App(title="t", metrics=Numbers, ready=Readiness, service="agent")
    async with served(app=app) as server:
        [(_, headers, _)] = await answers(server, b"FOO / HTTP/1.1\r\n\r\n")
    assert headers["x-vgpuscope-service"] == "agent"


async def test_a_request_without_end_is_cut():
    """A client that goes on sending gets the answer and is cut off, by the number of bytes here."""
    async with served(discarded=4 * MIB) as server:
        _, writer = await opened(server)
        writer.write(post(b"/metrics", 1000 * MIB))
        sent = await sent_until_cut(writer, most=1000)
        writer.transport.abort()
        await until(lambda: not server._inner.server_state.connections)
    assert sent < 100  # what the sockets hold comes on top


async def sent_until_cut(writer, *, most):
    """MiB that could be sent."""
    for sent in range(most):
        writer.write(b"a" * MIB)
        try:
            await writer.drain()
        except ConnectionError:
            return sent
    return most


async def test_a_client_that_stays_after_its_rejection_is_cut_by_time():
    async with served(request_within=0.0) as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as stubborn:
            stubborn.send(post(b"/metrics", 3 * MIB))
            await until(lambda: server._inner.server_state.connections)
            await until(lambda: not server._inner.server_state.connections)
