"""Connections run out, over real sockets: a newcomer is always answered, and the quietest connection makes room."""

import asyncio
import logging
import socket
from contextlib import ExitStack, asynccontextmanager

import pytest
import trustme
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from tests.http.serving import SOON, Numbers, served, until
from tests.http.test_guard import TLS, Folder, trusting
from vgpuscope.http import places
from vgpuscope.http.connection import ConnectionLimits

pytestmark = pytest.mark.attack

HERE, NEXT_DOOR = "127.0.0.1", "127.0.0.2"
USUAL = ConnectionLimits()


class Client:
    """One kept connection from an address of the test's choice."""

    def __init__(self, reader, writer):
        self._reader, self._writer = reader, writer

    def send(self, payload):
        self._writer.write(payload)

    async def ask(self, path="/healthz"):
        """The status of one request; None when the server closed the connection."""
        try:
            self.send(b"GET %s HTTP/1.1\r\nhost: localhost\r\n\r\n" % path.encode())
            return await self.answer()
        except ConnectionError:
            return None

    async def answer(self):
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        length = next(line for line in head.lower().splitlines() if line.startswith(b"content-length"))
        await self._reader.readexactly(int(length.split(b":")[1]))
        return int(head.split()[1])

    async def closed(self):
        """Wait until the server closes the connection."""
        try:
            return await self._reader.read() == b""
        except ConnectionError:
            return True

    def close(self):
        self._writer.close()


class Crowd:
    """Clients of one server, all closed at the end."""

    def __init__(self, server, tls=None):
        self._host, port = server.url.partition("://")[2].split(":")
        self._port, self._inner, self._tls, self._open = int(port), server._inner, tls, []

    async def client(self, address=HERE):
        made = Client(*await asyncio.open_connection(self._host, self._port, local_addr=(address, 0), ssl=self._tls))
        self._open.append(made)
        return made

    async def kept(self, count, address=HERE):
        """Connections that were answered once and are kept open."""
        made = []
        for _ in range(count):
            made.append(await self.client(address))
            assert await made[-1].ask() == 200
        return made

    @property
    def connections(self):
        return self._inner.server_state.connections

    def close(self):
        for one in self._open:
            one.close()


@asynccontextmanager
async def crowded(tls=None, **more):
    async with served(**more) as server:
        with ExitStack() as stack:
            crowd = Crowd(server, tls)
            stack.callback(crowd.close)
            yield crowd


class Slow:
    """A route that answers when it is told to."""

    def __init__(self):
        self.go, self.begun = asyncio.Event(), 0
        self.routes = [Route("/slow", self._serve)]

    async def _serve(self, request):
        self.begun += 1
        await self.go.wait()
        return PlainTextResponse("done")

    async def asked_by(self, crowd, count):
        """Connections that wait for their answer."""
        busy = []
        for number in range(1, count + 1):
            busy.append(await crowd.client())
            busy[-1].send(b"GET /slow HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await until(lambda number=number: self.begun == number)
        return busy


async def test_idle_connections_of_one_address_do_not_stop_a_health_check():
    async with crowded() as crowd:
        await crowd.kept(USUAL.most + 1)
        for path in ("/healthz", "/readyz", "/metrics"):
            assert await (await crowd.client()).ask(path) == 200
        assert len(crowd.connections) <= USUAL.most


async def test_idle_connections_with_tls_do_not_stop_a_health_check(tmp_path):
    authority = trustme.CA()
    guard = Folder(tmp_path).certificate(authority).write(TLS).guard()
    async with crowded(guard=guard, tls=trusting(authority), most=4) as crowd:
        kept = await crowd.kept(5)
        assert await kept[0].closed()
        assert [await one.ask() for one in (*kept[1:], await crowd.client())] == [None, 200, 200, 200, 200]
        assert len(crowd.connections) <= 4


async def test_connections_that_never_ask_do_not_stop_a_health_check():
    async with crowded() as crowd:
        for _ in range(USUAL.most + 1):
            await crowd.client()
        assert await (await crowd.client()).ask() == 200


async def test_requests_that_never_end_do_not_stop_a_health_check():
    async with crowded() as crowd:
        for _ in range(USUAL.most + 1):
            (await crowd.client()).send(b"GET /metrics HTTP/1.1\r\nx: ")
        assert await (await crowd.client()).ask() == 200


async def test_when_all_places_are_taken_the_longest_idle_connection_makes_room():
    async with crowded(most=3) as crowd:
        first, second, third = await crowd.kept(3)
        assert await first.ask() == 200  # now the second is idle for longest
        assert await (await crowd.client()).ask() == 200
        assert await second.closed()
        assert [await one.ask() for one in (first, third)] == [200, 200]


async def test_one_address_costs_its_own_connections_not_those_of_others():
    async with crowded(per_peer=4) as crowd:
        [other] = await crowd.kept(1, NEXT_DOOR)  # idle for longest of all
        mine = await crowd.kept(6)
        assert [await one.closed() for one in mine[:2]] == [True, True]
        assert [await one.ask() for one in (other, *mine[2:])] == [200] * 5


async def test_an_address_whose_connections_are_all_busy_may_still_ask():
    slow = Slow()
    async with crowded(routes=slow.routes, per_peer=2) as crowd:
        busy = await slow.asked_by(crowd, 3)
        assert await (await crowd.client()).ask("/metrics") == 200
        slow.go.set()
        assert [await one.answer() for one in busy] == [200] * 3


async def test_when_every_place_is_busy_health_checks_have_places_of_their_own():
    slow = Slow()
    async with crowded(routes=slow.routes, most=3) as crowd:
        busy = await slow.asked_by(crowd, 3)
        for _ in range(3 * USUAL.reserved):  # silent ones do not take the reserved places either
            await crowd.client()
        for path, status in (("/healthz", 200), ("/readyz", 200), ("/metrics", 503), ("/slow", 503)):
            guest = await crowd.client()
            assert await guest.ask(path) == status
            assert await guest.closed()
        assert len(crowd.connections) <= 3 + USUAL.reserved
        slow.go.set()
        assert [await one.answer() for one in busy] == [200] * 3


async def test_an_address_that_keeps_every_place_busy_makes_room_for_another_address():
    slow = Slow()
    async with crowded(routes=slow.routes, most=3) as crowd:
        busy = await slow.asked_by(crowd, 3)
        assert await (await crowd.client(NEXT_DOOR)).ask("/metrics") == 200
        assert await busy[0].closed()
        slow.go.set()
        assert [await one.answer() for one in busy[1:]] == [200, 200]


async def test_an_answer_that_is_still_being_sent_is_not_cut_for_a_newcomer():

    class Big(Numbers):
        def text(self):
            return b"x" * 50_000_000

    async with crowded(metrics=Big, most=2) as crowd:
        reading = await crowd.client()
        reading.send(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await until(lambda: crowd._inner.server_state.total_requests == 1)  # all of it is handed to the kernel's queue
        await crowd.kept(5)
        assert await reading.answer() == 200


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        (None, ""),
        (("10.0.0.9", 1), "10.0.0.9"),
        (("2001:db8:1:2:3:4:5:6", 1), "2001:db8:1:2::/64"),  # one host has all addresses of a /64
        (("::ffff:10.0.0.9", 1), "10.0.0.9"),
        (("/run/socket", 0), "/run/socket"),
    ],
)
def test_a_peer_is_an_address_or_the_network_of_one_host(address, peer):
    assert places.peer_of(address) == peer


# ── one request ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_client_that_goes_away_is_no_error_of_ours(caplog):
    seen = asyncio.Event()

    async def reads(request):
        seen.set()
        return PlainTextResponse(await request.body())

    async with crowded(routes=[Route("/reads", reads, methods=["POST"])]) as crowd:
        leaving = await crowd.client()
        leaving.send(b"POST /reads HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nhalf")
        await seen.wait()
        leaving.close()
        await until(lambda: not crowd.connections and not crowd._inner.server_state.tasks)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_client_that_goes_away_while_it_is_answered_is_no_error_of_ours(caplog):
    async def endless():
        while True:
            yield b"x" * 65536
            await asyncio.sleep(0)

    async def own(request):
        return StreamingResponse(endless())

    async with crowded(routes=[Route("/stream", own)]) as crowd:
        leaving = await crowd.client()
        leaving.send(b"GET /stream HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await leaving._reader.readuntil(b"\r\n\r\n")
        leaving.close()
        await until(lambda: not crowd.connections and not crowd._inner.server_state.tasks)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def one_packet(server, payload):
    """Send bytes that the server, which runs in this thread, can only receive together."""
    host, port = server.url.removeprefix("http://").split(":")
    sock = socket.create_connection((host, int(port)), timeout=SOON)
    sock.sendall(payload)
    sock.setblocking(False)
    return sock


async def received(sock):
    loop, parts = asyncio.get_running_loop(), []
    try:
        while part := await loop.sock_recv(sock, 65536):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


_WHOLE = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"


@pytest.mark.parametrize("before", [b"", _WHOLE], ids=["first", "pipelined"])
@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz HTTP/1.1\r\nconnection: close\r\nx: " + b"a" * 9000 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nconnection: close\r\n" + b"x: a\r\n" * 2000 + b"\r\n",
        b"GET /healthz?" + b"a" * 9000 + b" HTTP/1.1\r\nconnection: close\r\n\r\n",
        b"POST /healthz HTTP/1.1\r\nconnection: close\r\ncontent-length: 4\r\nx: " + b"a" * 9000 + b"\r\n\r\nbody",
    ],
    ids=["long", "many", "url", "body"],
)
async def test_the_bound_on_headers_holds_for_one_packet_too(caplog, before, head):
    async with served(head=8192) as server:
        with one_packet(server, before + head) as sock:
            answers = await received(sock)
    last = answers[answers.rindex(b"HTTP/1.1 ") :]
    assert last.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert b'{"error":{"code":"HEADERS_TOO_LARGE",' in last
    assert answers.count(b"HTTP/1.1 ") == 1 + bool(before)
    assert answers.count(b"HTTP/1.1 200 ") == bool(before)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_head_without_end_is_refused_even_behind_a_whole_request():
    async with served(head=8192, parsed_at_once=1024) as server:
        with one_packet(server, _WHOLE + b"GET /healthz HTTP/1.1\r\nx: " + b"a" * 12000) as sock:
            assert b"HTTP/1.1 431 " in await received(sock)


async def test_many_small_requests_in_one_packet_are_all_answered():
    count = 400  # together far above the bound, each far below it
    async with served(head=8192) as server:
        last = _WHOLE.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
        with one_packet(server, _WHOLE * (count - 1) + last) as sock:
            answers = await received(sock)
    assert answers.count(b"HTTP/1.1 200 ") == count
