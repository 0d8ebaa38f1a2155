"""The HTTP shell, over real sockets."""

import asyncio
import errno
import logging
import socket

import httpx2
import pytest
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from tests.http.serving import SOON, Numbers, served, until
from vgpuscope.http import address
from vgpuscope.http.app import OPENMETRICS, TEXT, Readiness
from vgpuscope.model.errors import DriverHung, PortBusy


@pytest.fixture
async def client():
    async with httpx2.AsyncClient(timeout=SOON, headers={"accept-encoding": "identity"}) as found:
        yield found


async def raw(server, payload):
    """Send bytes and read until the server closes."""
    host, port = server.url.removeprefix("http://").rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(payload)
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("accept", "encoding", "kind", "body"),
    [
        ("*/*", "identity", TEXT, b"text 1\n"),
        ("*/*", "gzip", TEXT, b"text 1\n"),
        ("application/openmetrics-text", "identity", OPENMETRICS, b"openmetrics 1\n# EOF\n"),
        ("application/openmetrics-text", "gzip", OPENMETRICS, b"openmetrics 1\n# EOF\n"),
    ],
)
async def test_metrics_come_in_the_form_that_was_asked_for(client, accept, encoding, kind, body):
    async with served() as server:
        got = await client.get(f"{server.url}/metrics", headers={"accept": accept, "accept-encoding": encoding})
    assert got.status_code == 200
    assert got.headers["content-type"] == kind.decode()
    assert got.headers.get("content-encoding") == ("gzip" if encoding == "gzip" else None)
    assert got.headers["vary"] == "accept, accept-encoding"
    assert got.content == body


async def test_head_gives_the_headers_of_get(client):
    async with served() as server:
        got = await client.head(f"{server.url}/metrics")
    assert (got.status_code, got.headers["content-length"], got.content) == (200, "7", b"")


async def test_the_index_links_to_what_there_is(client):
    async with served() as server:
        page = (await client.get(server.url)).text
    assert '<a href="metrics">' in page
    assert "a &lt;test&gt;" in page


async def test_alive_is_alive_even_when_not_ready(client):
    async with served(ready=lambda: Readiness(missing=("first sample",))) as server:
        alive, ready = [await client.get(f"{server.url}/{path}") for path in ("healthz", "readyz")]
    assert (alive.status_code, alive.text) == (200, "ok\n")
    assert ready.status_code == 503
    assert ready.json() == {"ready": False, "missing": ["first sample"]}


async def test_readiness_ends_before_the_door_closes(client):
    async with served() as server:
        before = await client.get(f"{server.url}/readyz")
        server.not_ready()
        after = await client.get(f"{server.url}/readyz")
    assert (before.status_code, before.json()) == (200, {"ready": True, "missing": []})
    assert (after.status_code, after.json()["missing"]) == (503, ["stopping"])


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "NOT_FOUND"),
        ("GET", "/metrics/", 404, "NOT_FOUND"),
        ("POST", "/metrics", 405, "METHOD_NOT_ALLOWED"),
        ("DELETE", "/own", 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/hung", 503, "DRIVER_HUNG"),
        ("GET", "/bug", 500, "INTERNAL"),
        ("GET", "/cancelled", 500, "INTERNAL"),
    ],
)
async def test_every_error_has_one_shape(client, method, path, status, code):
    async def own(request):
        return JSONResponse({})

    async def hung(request):
        raise DriverHung("stuck")

    async def bug(request):
        raise KeyError("secret detail")

    async def cancelled(request):
        raise asyncio.CancelledError("secret detail of something that was waited for")

    routes = [Route("/own", own), Route("/hung", hung), Route("/bug", bug), Route("/cancelled", cancelled)]
    async with served(routes=routes) as server:
        got = await client.request(method, server.url + path)
    assert got.status_code == status
    assert got.json()["error"]["code"] == code
    assert set(got.json()["error"]) == {"code", "message", "hint"}
    assert "secret detail" not in got.text


async def test_a_path_that_is_not_there_is_met_with_the_nearest_one(client):
    async def own(request):
        return JSONResponse({})

    async with served(routes=[Route("/results", own), Route("/gpus/{gpu_id}", own)]) as server:
        near = (await client.get(f"{server.url}/result")).json()["error"]
        far = (await client.get(f"{server.url}/xyzzy")).json()["error"]
        method = (await client.post(f"{server.url}/results")).json()["error"]
    assert near == {
        "code": "NOT_FOUND",
        "message": "nothing is served under '/result'",
        "hint": "Did you mean /results? / lists all paths.",
    }
    assert far["hint"] == "/ lists all paths."
    assert method["message"] == "POST is not allowed for '/results'"
    assert method["hint"] == "Allowed: GET, HEAD."


@pytest.mark.parametrize("listing", ["/docs", "/openapi.json"])
async def test_an_unknown_path_names_the_document_that_lists_all(client, listing):
    async def own(request):
        return JSONResponse({})

    async with served(routes=[Route("/", own), Route(listing, own)]) as server:
        far = (await client.get(f"{server.url}/abcdefgh")).json()["error"]
    assert far["hint"] == f"{listing} lists all paths."


async def test_a_page_that_cannot_be_had_is_an_error_of_the_same_shape(client):
    def metrics():
        raise DriverHung("stuck")

    async with served(metrics=metrics) as server:
        got = await client.get(f"{server.url}/metrics")
    assert (got.status_code, got.json()["error"]["code"]) == (503, "DRIVER_HUNG")


async def test_a_service_may_have_its_own_first_page(client):
    async def own(request):
        return JSONResponse({"own": True})

    async with served(routes=[Route("/", own)]) as server:
        assert (await client.get(server.url)).json() == {"own": True}


async def test_an_answer_that_breaks_half_way_is_cut(client, caplog):
    async def broken():
        yield b"half"
        raise DriverHung("stuck")

    async def own(request):
        return StreamingResponse(broken())

    async with served(routes=[Route("/stream", own)]) as server:
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.get(f"{server.url}/stream")
    [record] = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert isinstance(record.exc_info[1], DriverHung)


async def test_one_connection_serves_many_scrapes_without_delay():
    async with served() as server, httpx2.AsyncClient(timeout=SOON) as client:
        for _ in range(50):
            assert (await client.get(f"{server.url}/metrics")).content == b"text 1\n"
        [connection] = server._inner.server_state.connections
        sock = connection.transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_busy_port_is_an_error_that_names_the_address():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = address.shown(taken)
        with pytest.raises(PortBusy, match=f"cannot listen on {listen}: the port is in use") as caught:
            address.bind(listen)
    assert caught.value.exit_code == 1
    assert "--listen" in caught.value.advice


def test_a_port_that_another_one_bound_but_does_not_serve_yet_is_ours_or_busy_never_both():
    with address.bind("127.0.0.1:0") as first, pytest.raises(PortBusy):
        address.bind(address.shown(first))


def test_an_address_of_another_machine_is_refused():
    with pytest.raises(PortBusy, match="does not have that address"):
        address.bind("192.0.2.1:0")


def test_a_port_that_needs_rights_says_so(monkeypatch):
    def refuse(self, place):
        raise PermissionError(errno.EACCES, "denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(PortBusy, match="below 1024"):
        address.bind("127.0.0.1:80")


@pytest.mark.parametrize("listen", [":0", "localhost:0", "127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"])
async def test_every_way_to_write_an_address_can_be_served(client, listen):
    if "::" in listen and not address._has_ipv6():
        listen = ":0"  # this machine has no IPv6; the empty host then means IPv4
    async with served(listen=listen) as server:
        assert (await client.get(f"{server.url}/healthz")).text == "ok\n"


async def test_after_the_end_the_port_is_free_again():
    async with served() as server:
        listen = server.url.removeprefix("http://")
    address.bind(listen).close()


@pytest.mark.parametrize("sent", [b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n"])
async def test_a_client_that_never_finishes_asking_is_cut(sent):
    async with served(request_within=0.0) as server:
        assert await raw(server, sent) == b""


async def test_a_client_that_never_takes_its_answer_is_cut():
    class Big(Numbers):
        def text(self):
            return b"x" * 50_000_000

    async with served(metrics=Big, response_within=0.0) as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as stubborn:
            stubborn.send(b"GET /metrics HTTP/1.1\r\n\r\n")
            await until(lambda: server._inner.server_state.total_requests == 1)
            await until(lambda: not server._inner.server_state.connections)


async def test_an_idle_scraper_is_not_cut():
    async with served(request_within=0.0) as server, httpx2.AsyncClient(timeout=SOON) as client:
        await client.get(f"{server.url}/metrics")
        [connection] = server._inner.server_state.connections
        for now in (1e9, 2e9):
            connection.judge(now)
        assert not connection.transport.is_closing()


async def test_too_many_connections_are_cut_and_the_others_served(client):
    async with served(most=3) as server:
        host, port = server.url.removeprefix("http://").split(":")
        crowd = [socket.create_connection((host, int(port))) for _ in range(10)]
        await until(lambda: len(server._inner.server_state.connections) == 3)
        for one in crowd:
            one.close()
        await until(lambda: not server._inner.server_state.connections)
        assert (await client.get(f"{server.url}/healthz")).status_code == 200


async def test_the_server_leaves_the_signals_alone():
    import signal

    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    async with served():
        assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == before
