"""Answers off the wire, against servers that behave and servers that do not: of watches, and on kept connections."""

import asyncio
import gzip
import ssl
from contextlib import asynccontextmanager, suppress

import httpx2
import pytest
import trustme

from tests.loopclock import forward
from tests.sources.proxy import refusing_proxy
from vgpuscope.model.errors import KubeUnreadable
from vgpuscope.sources import http_stream
from vgpuscope.sources.http_stream import WATCH, StreamTransport, WatchTransport
from vgpuscope.sources.kube import KubeClient, open_client

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
CA = trustme.CA()


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


def tls_of_server():
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    CA.issue_cert("127.0.0.1").configure_cert(context)
    return context


def tls_of_client():
    context = ssl.create_default_context()
    CA.configure_trust(context)
    return context


@asynccontextmanager
async def served(talk, *, tls=False):
    """A server that talks so, and a client whose requests are watches."""
    talks = set()

    async def accepted(reader, writer):
        talks.add(asyncio.current_task())
        try:
            await reader.readuntil(b"\r\n\r\n")
            await talk(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(accepted, "127.0.0.1", 0, ssl=tls_of_server() if tls else None)
    base = f"http{'s' if tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with httpx2.AsyncClient(base_url=base, transport=WatchTransport(tls_of_client(), kept_for=LONG)) as client:
        yield client
    server.close()
    for task in talks:
        task.cancel()
    await asyncio.gather(*talks, return_exceptions=True)


def saying(*pieces, then=None):
    async def talk(_, writer):
        for piece in pieces:
            writer.write(piece)
        await writer.drain()
        if then:
            await then.wait()

    return talk


def watch(client, **options):
    options = {"timeout": httpx2.Timeout(30.0), **options}
    return client.send(client.build_request("GET", "/", extensions={WATCH: True}, **options), stream=True)


@pytest.mark.parametrize("tls", [False, True])
async def test_what_has_come_meanwhile_is_read_in_one_go(tls):
    events = [b"%d\n" % number for number in range(1000)]
    async with served(saying(HEAD, *map(chunk, events), then=asyncio.Event()), tls=tls) as client:
        answer = await watch(client)
        read, pieces = b"", 0
        async for piece in answer.aiter_bytes():
            read, pieces = read + piece, pieces + 1
            if len(read) == len(b"".join(events)):
                break
        await answer.aclose()
    assert read == b"".join(events)
    assert pieces < len(events) / 10


@pytest.mark.parametrize(
    ("said", "body"),
    [
        ((HEAD, chunk(b"a"), chunk(b"b"), b"0\r\n\r\n"), b"ab"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", b"ab"), b"ab"),
        ((b"HTTP/1.1 200 OK\r\n\r\n", b"until it ends"), b"until it ends"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",), b""),
    ],
)
async def test_an_answer_ends_where_its_head_says(said, body):
    async with served(saying(*said)) as client:
        assert await (await watch(client)).aread() == body


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ((HEAD, chunk(b"a"), b"9\r\nhalf"), httpx2.RemoteProtocolError),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", b"half"), httpx2.RemoteProtocolError),
        ((HEAD, b"what is this"), httpx2.RemoteProtocolError),
        ((HEAD, b"what", b" is this"), httpx2.RemoteProtocolError),
        ((b"SSH-2.0-OpenSSH_9.2\r\n",), httpx2.RemoteProtocolError),
        ((), httpx2.RemoteProtocolError),
    ],
)
async def test_an_answer_that_is_cut_off_or_none_is_an_error(said, error):
    async with served(saying(*said)) as client:
        with pytest.raises(error):
            await (await watch(client)).aread()


async def read_until(error, answer):
    """What can be read before the error."""
    read = b""
    try:
        async for piece in answer.aiter_bytes():
            read += piece
    except error:
        return read
    raise AssertionError("it ended well")


async def test_what_came_before_the_end_is_read_before_the_error():
    async with served(saying(HEAD, chunk(b"whole\n"), b"9\r\nhalf")) as client:
        assert await read_until(httpx2.RemoteProtocolError, await watch(client)) == b"whole\nhalf"


async def turns():
    """As many of the loop as what is due may need, and no time."""
    for _ in range(100):
        await asyncio.sleep(0)


async def test_silence_ends_a_watch_and_a_word_does_not():
    async with served(saying(HEAD, chunk(b"word"), then=asyncio.Event())) as client:
        answer = await watch(client, timeout=httpx2.Timeout(60.0))
        reading = asyncio.create_task(read_until(httpx2.ReadTimeout, answer))
        await turns()
        forward(59.0)
        await turns()
        assert not reading.done()
        forward(60.0)
        async with asyncio.timeout(60.0):
            assert await reading == b"word"


class Line(asyncio.Transport):
    """The connection, as a stream sees it."""

    reading = True

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True


async def test_a_reader_who_is_slow_makes_the_server_wait(monkeypatch):
    monkeypatch.setattr(http_stream, "_MOST", 1000)
    request = httpx2.Request("GET", "/", extensions={"timeout": {"read": 30.0}})
    line, stream = Line(), http_stream._Stream(request, lambda *_: False)
    stream.connection_made(line)
    stream.data_received(HEAD + chunk(b"x" * 1000))
    assert line.reading
    stream.data_received(chunk(b"x"))
    assert not line.reading
    assert await anext(aiter(stream)) == b"x" * 1001
    assert line.reading


async def test_a_certificate_that_nobody_vouches_for_is_refused():
    async with served(saying(HEAD), tls=True) as client:
        strange = WatchTransport(ssl.create_default_context())
        async with httpx2.AsyncClient(base_url=client.base_url, transport=strange) as other:
            with pytest.raises(httpx2.ConnectError, match="certificate"):
                await watch(other)


@pytest.mark.parametrize("tls", [False, True])
async def test_who_has_closed_a_watch_leaves_no_connection_behind(tls):
    async with served(saying(HEAD, then=asyncio.Event()), tls=tls) as client:
        answer = await watch(client)
        sock = answer.stream._stream._transport.get_extra_info("socket")
        await answer.aclose()
        assert sock.fileno() == -1


async def test_a_header_of_two_lines_is_not_sent():
    async with served(saying(HEAD)) as client:
        with pytest.raises(httpx2.LocalProtocolError, match="authorization"):
            await watch(client, headers={"authorization": "Bearer a\r\nx-admin: yes"})


def kubeconfig(tmp_path, server):
    file = tmp_path / "kubeconfig"
    file.write_text(
        f'{{"current-context": "c", "clusters": [{{"name": "c", "cluster": {{"server": "{server}"}}}}],'
        ' "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],'
        ' "users": [{"name": "u", "user": {"token": "t"}}]}'
    )
    return str(file)


async def test_where_there_is_a_proxy_watches_go_through_it(tmp_path, monkeypatch):
    async with refusing_proxy(502) as (url, asked):
        monkeypatch.setenv("HTTP_PROXY", url)
        async with open_client(kubeconfig(tmp_path, "http://kube.invalid")) as client:
            with pytest.raises(KubeUnreadable, match="502"):
                await anext(KubeClient(client, timeout=30.0).lines("/api/v1/pods", {"watch": "1"}, silence=1.0))
        assert (await asked).startswith("GET http://kube.invalid/api/v1/pods?watch=1 ")


# ── connections that are kept ────────────────────────────────────────────────────────────────────────────────────

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"
SOON = 60.0
LONG = 1e6  # seconds: connections that are closed are closed for another reason than that nobody needs them


class Last(bytes):
    """What is said before the connection is closed."""


class Hasty(bytes):
    """What is said to the head of a request, of which no more is read."""


GOODBYE = Last()


class Server:
    """Says one thing to each request, in their order, on whichever connection it comes."""

    def __init__(self, *said):
        self._said = iter(said)
        self._talks: set[asyncio.Task] = set()
        self.asked: list[int] = []  # on which connection each request came
        self.bodies: list[bytes] = []
        self.writers: list[asyncio.StreamWriter] = []

    @property
    def open(self):
        return [not talk.done() for talk in self._talks].count(True)

    async def accepted(self, reader, writer):
        number = len(self.writers)
        self.writers.append(writer)
        self._talks.add(asyncio.current_task())
        try:
            while (answer := await self._answer(reader, number)) is not None:
                writer.write(answer)
                await writer.drain()
                if isinstance(answer, Last):
                    break
                if isinstance(answer, Hasty):
                    await asyncio.Event().wait()
        finally:
            writer.close()

    async def _answer(self, reader, number):
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        self.asked.append(number)
        answer = next(self._said)
        if not isinstance(answer, Hasty):
            length = head.partition("content-length: ")[2].partition("\r\n")[0]
            self.bodies.append(await reader.readexactly(int(length or 0)))
        return answer

    async def stop(self):
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)


@asynccontextmanager
async def keeping(*said, keep=2, tls=False, transport=None, kept_for=LONG):
    """A server that says so, and a client that keeps its connections."""
    server = Server(*said)
    listening = await asyncio.start_server(
        server.accepted, "127.0.0.1", 0, ssl=tls_of_server() if tls else None, limit=2**20
    )
    base = f"http{'s' if tls else ''}://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    transport = transport or StreamTransport(tls_of_client() if tls else None, keep=keep, kept_for=kept_for)
    async with asyncio.timeout(SOON), httpx2.AsyncClient(base_url=base, transport=transport, timeout=None) as client:
        yield server, client
    listening.close()
    await server.stop()


async def until(condition):
    while not condition():  # noqa: ASYNC110 - it is the event loop that has to go on
        await asyncio.sleep(0)


async def at_once(client, count):
    """As many answers on as many connections."""
    answers = [await client.send(client.build_request("GET", "/"), stream=True) for _ in range(count)]
    for answer in answers:
        await answer.aread()


def kept(client):
    """The sockets that wait for the next request."""
    return [idle._transport.get_extra_info("socket") for idle in client._transport._idle]


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize(
    "said",
    [
        OK,
        HEAD + chunk(b"ok") + b"0\r\n\r\n",
        HEAD + chunk(b"ok") + b"0\r\ntrailer: x\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\n" + OK,
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
    ],
    ids=["sized", "chunked", "with trailers", "after another head", "of HTTP/1.0 that says so"],
)
async def test_a_connection_whose_answer_was_read_serves_the_next_request(said, tls):
    async with keeping(said, said, said, tls=tls) as (server, client):
        answers = [await client.get("/") for _ in range(3)]
    assert [answer.content for answer in answers] == [b"ok"] * 3
    assert not any(answer.headers.keys() & {"x", "trailer"} for answer in answers)
    assert server.asked == [0, 0, 0]


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        Last(b"HTTP/1.1 200 OK\r\n\r\nok"),
        OK + OK,
        OK + b"and more",
    ],
    ids=["close", "HTTP/1.0", "until it ends", "two answers", "more than the answer"],
)
async def test_a_connection_that_cannot_serve_another_request_is_closed(said):
    async with keeping(said, OK) as (server, client):
        assert (await client.get("/")).content == b"ok"
        await until(lambda: not server.open)
        assert (await client.get("/")).content == b"ok"
    assert server.asked == [0, 1]


async def test_an_answer_that_is_given_up_closes_its_connection():
    async with keeping(HALF, OK) as (server, client):
        answer = await client.send(client.build_request("GET", "/"), stream=True)
        assert await anext(answer.aiter_bytes()) == b"half"
        await answer.aclose()
        await until(lambda: not server.open)
        await client.get("/")
    assert server.asked == [0, 1]


async def test_an_answer_that_came_and_was_not_read_closes_its_connection():
    async with keeping(OK, OK) as (server, client):
        answer = await client.send(client.build_request("GET", "/"), stream=True)
        await answer.aclose()
        await client.get("/")
    assert server.asked == [0, 1]


@pytest.mark.parametrize("said", [b"", HALF], ids=["before its head", "within its body"])
async def test_who_is_cancelled_while_reading_closes_the_connection(said):
    async with keeping(said, OK) as (server, client):
        reading = asyncio.create_task(client.get("/"))
        await until(lambda: server.asked)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await until(lambda: not server.open)
        await client.get("/")
    assert server.asked == [0, 1]


async def test_an_answer_that_is_cut_off_on_a_kept_connection_is_an_error_and_not_asked_for_again():
    async with keeping(OK, Last(HALF), OK) as (server, client):
        await client.get("/")
        with pytest.raises(httpx2.RemoteProtocolError, match="cut off"):
            await client.get("/")
        await client.get("/")
    assert server.asked == [0, 0, 1]


async def test_a_head_that_is_cut_off_on_a_kept_connection_is_an_error_and_not_asked_for_again():
    async with keeping(OK, Last(b"H"), OK) as (server, client):
        await client.get("/")
        with pytest.raises(httpx2.RemoteProtocolError, match="cut off"):
            await client.get("/")
    assert server.asked == [0, 0]


async def test_a_connection_that_the_server_closed_meanwhile_is_not_used():
    async with keeping(OK, OK) as (server, client):
        await client.get("/")
        server.writers[0].close()
        await until(lambda: not kept(client))
        await client.get("/")
    assert server.asked == [0, 1]


@pytest.mark.parametrize("later", range(4))
async def test_a_connection_that_is_just_being_closed_is_not_used(later):
    async with keeping(OK, OK, tls=True) as (server, client):
        await client.get("/")
        client._transport._idle[0]._transport.abort()
        for _ in range(later):
            await asyncio.sleep(0)
        await client.get("/")
    assert server.asked == [0, 1]


@pytest.mark.parametrize("later", range(4))
async def test_a_connection_that_is_just_being_closed_is_not_kept(later):
    async with keeping(OK, tls=True) as (_, client):
        answer = await client.send(client.build_request("GET", "/"), stream=True)
        answer.stream._stream._transport.abort()
        for _ in range(later):
            await asyncio.sleep(0)
        await answer.aread()
        await until(lambda: not kept(client))


async def test_a_request_that_meets_a_dead_connection_is_sent_on_a_new_one():
    async with keeping(OK, GOODBYE, OK) as (server, client):
        await client.get("/")
        assert (await client.post("/", content=b"body")).content == b"ok"
    assert server.asked == [0, 0, 1]
    assert server.bodies == [b"", b"body", b"body"]


async def test_a_request_is_sent_again_only_once():
    async with keeping(OK, GOODBYE, GOODBYE, OK) as (server, client):
        await client.get("/")
        with pytest.raises(httpx2.RemoteProtocolError, match="cut off"):
            await client.get("/")
    assert server.asked == [0, 0, 1]


async def test_a_request_on_a_new_connection_is_not_sent_again():
    async with keeping(GOODBYE, OK) as (server, client):
        with pytest.raises(httpx2.RemoteProtocolError, match="cut off"):
            await client.get("/")
    assert server.asked == [0]


async def test_what_is_said_unasked_ends_a_connection():
    async with keeping(OK, OK) as (server, client):
        await client.get("/")
        server.writers[0].write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        await until(lambda: not server.open)
        assert (await client.get("/")).status_code == 200
    assert server.asked == [0, 1]


async def test_a_connection_is_not_kept_for_long_after_its_last_answer():
    async with keeping(*[OK] * 4, kept_for=20.0) as (server, client):
        forward(0.0)
        for passing in (11.0, 11.0, 21.0):
            await client.get("/")
            forward(passing)
            await turns()
        await client.get("/")
    assert server.asked == [0, 0, 0, 1]


async def test_no_more_connections_are_kept_than_may_be():
    async with keeping(*[OK] * 5, keep=2) as (server, client):
        await at_once(client, 3)
        await until(lambda: server.open == 2)
        await at_once(client, 2)
    assert server.asked == [0, 1, 2, 0, 1]


async def test_a_connection_serves_no_other_server():
    async with keeping(OK, OK) as (server, client), keeping(OK) as (other, stranger):
        await client.get("/")
        await client.get(stranger.base_url)
        await client.get("/")
    assert (server.asked, other.asked) == ([0, 0], [0])


async def test_a_long_request_arrives_whole():
    body = bytes(range(256)) * 20_000
    async with keeping(OK) as (server, client):
        await client.post("/", content=body)
    assert server.bodies == [body]


async def test_a_connection_with_a_rest_of_a_request_is_not_kept():
    async with keeping(Hasty(OK), OK) as (server, client):
        assert (await client.post("/", content=bytes(2**25))).content == b"ok"
        await client.get("/")
    assert server.asked == [0, 1]


async def test_a_compressed_answer_is_unpacked():
    packed = gzip.compress(b"text" * 1000)
    said = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(packed), packed)
    async with keeping(said) as (_, client):
        assert (await client.get("/")).content == b"text" * 1000


@pytest.fixture
def made(monkeypatch):
    """The socket of every connection."""
    found, usual = [], http_stream._Stream.connection_made

    def remember(stream, transport):
        usual(stream, transport)
        found.append(transport.get_extra_info("socket"))

    monkeypatch.setattr(http_stream._Stream, "connection_made", remember)
    return found


@pytest.mark.parametrize(
    ("said", "why"),
    [(b"HTTP/1.1 200 OK\r\nx: " + b"x" * 2**20, "too long"), (b"SSH-2.0-OpenSSH_9.2\r\n", "HTTP")],
    ids=["a head without end", "no HTTP"],
)
async def test_what_is_no_answer_is_refused_and_its_connection_closed(said, why, made):
    async with keeping(said) as (_, client):
        with pytest.raises(httpx2.RemoteProtocolError, match=why):
            await client.get("/")
        assert [sock.fileno() for sock in made] == [-1]


@pytest.mark.parametrize("tls", [False, True])
async def test_who_has_closed_the_client_leaves_no_connection_behind(tls):
    async with keeping(OK, OK, tls=tls) as (_, client):
        await at_once(client, 2)
        found = kept(client)
        await client.aclose()
        assert [sock.fileno() for sock in found] == [-1, -1]


async def test_an_answer_that_is_read_after_the_client_was_closed_leaves_no_connection_behind():
    async with keeping(OK) as (server, client):
        answer = await client.send(client.build_request("GET", "/"), stream=True)
        await client.aclose()
        assert await answer.aread() == b"ok"
        await until(lambda: not server.open)


async def test_who_is_cancelled_while_tls_is_agreed_on_closes_the_connection():
    over = asyncio.Event()

    async def silent(reader, writer):
        await reader.readexactly(1)
        connecting.cancel()
        with suppress(ConnectionError):
            while await reader.read(2**16):
                pass
        writer.close()
        over.set()

    listening = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with (
        asyncio.timeout(SOON),
        httpx2.AsyncClient(transport=StreamTransport(tls_of_client(), keep=1, kept_for=LONG)) as client,
    ):
        connecting = asyncio.create_task(client.get(url, timeout=None))
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await over.wait()
    listening.close()


@pytest.mark.parametrize("tls", [False, True])
async def test_who_is_cancelled_when_just_connected_closes_the_connection(tls, made, monkeypatch):
    remember = http_stream._Stream.connection_made

    def cancel(*told):
        remember(*told)
        connecting.cancel()

    monkeypatch.setattr(http_stream._Stream, "connection_made", cancel)
    async with keeping(OK, tls=tls) as (_, client):
        connecting = asyncio.create_task(client.get("/"))
        with pytest.raises(asyncio.CancelledError):
            await connecting
        assert [sock.fileno() for sock in made] == [-1]


async def test_a_server_of_more_protocols_is_asked_for_ours(monkeypatch):
    ours = tls_of_server()
    ours.set_alpn_protocols(["h2", "http/1.1"])
    monkeypatch.setattr("tests.sources.test_http_stream.tls_of_server", lambda: ours)
    async with keeping(OK, tls=True) as (server, client):
        await client.get("/")
        assert server.writers[0].get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"


async def test_other_requests_than_watches_share_a_connection_and_leave_none_behind(made):
    async with keeping(OK, OK, transport=WatchTransport(tls_of_client(), kept_for=LONG)) as (server, client):
        for _ in range(2):
            await client.get("/")
        await client.aclose()
        await until(lambda: not server.open)
    assert server.asked == [0, 0]
    assert [sock.fileno() for sock in made] == [-1, -1]  # the same one, passed on


async def test_a_question_to_an_api_server_that_meets_a_dead_connection_is_sent_on_a_new_one():
    async with keeping(OK, GOODBYE, OK, transport=WatchTransport(tls_of_client(), kept_for=LONG)) as (server, client):
        await client.get("/")
        assert (await client.get("/")).content == b"ok"
    assert server.asked == [0, 0, 1]


@pytest.mark.parametrize("method", ["PATCH", "POST", "PUT", "DELETE"])
async def test_a_change_at_an_api_server_is_never_sent_twice(method):
    async with keeping(OK, GOODBYE, OK, transport=WatchTransport(tls_of_client(), kept_for=LONG)) as (server, client):
        await client.get("/")
        with pytest.raises(httpx2.RemoteProtocolError, match="cut off"):
            await client.request(method, "/", content=b"{}")
    assert server.asked == [0, 0]


async def test_without_tls_nothing_is_sent_where_https_is_asked_for():
    async with keeping(OK) as (server, client):
        with pytest.raises(httpx2.UnsupportedProtocol):
            await client.get(f"https://127.0.0.1:{client.base_url.port}/")
    assert server.writers == []


@pytest.mark.parametrize("name", [b"x y", b"x\r\ny", b"x:", b""])
async def test_what_is_no_name_of_a_header_is_not_sent(name):
    async with keeping(OK) as (server, client):
        with pytest.raises(httpx2.LocalProtocolError, match="name"):
            await client.get("/", headers=[(name, b"value")])
    assert server.writers == []
