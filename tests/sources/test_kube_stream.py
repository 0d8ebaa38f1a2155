"""The transport of watches, against servers that behave and servers that do not."""

import asyncio
import ssl
from contextlib import asynccontextmanager

import httpx2
import pytest
import trustme

from tests.loopclock import forward
from vgpuscope.model.errors import KubeUnreadable
from vgpuscope.sources import kube_stream
from vgpuscope.sources.kube import Api, open_client
from vgpuscope.sources.kube_stream import WATCH, KubeTransport

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
CA = trustme.CA()


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


@asynccontextmanager
async def served(talk, *, tls=False):
    """A server that talks so, and a client whose requests are watches."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    CA.issue_cert("127.0.0.1").configure_cert(context)
    talks = set()

    async def accepted(reader, writer):
        talks.add(asyncio.current_task())
        try:
            await reader.readuntil(b"\r\n\r\n")
            await talk(reader, writer)
        finally:
            writer.close()

    trusted = ssl.create_default_context()
    CA.configure_trust(trusted)
    server = await asyncio.start_server(accepted, "127.0.0.1", 0, ssl=context if tls else None)
    base = f"http{'s' if tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with httpx2.AsyncClient(base_url=base, transport=KubeTransport(trusted)) as client:
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
    monkeypatch.setattr(kube_stream, "_MOST", 1000)
    line, stream = Line(), kube_stream._Stream(httpx2.Request("GET", "/", extensions={"timeout": {"read": 30.0}}))
    stream.connection_made(line)
    stream.data_received(HEAD + chunk(b"x" * 1000))
    assert line.reading
    stream.data_received(chunk(b"x"))
    assert not line.reading
    assert await anext(aiter(stream)) == b"x" * 1001
    assert line.reading


async def test_a_certificate_that_nobody_vouches_for_is_refused():
    async with served(saying(HEAD), tls=True) as client:
        strange = KubeTransport(ssl.create_default_context())
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
    asked = asyncio.get_running_loop().create_future()

    async def proxy(reader, writer):
        asked.set_result((await reader.readline()).decode())
        writer.write(b"HTTP/1.1 502 no\r\nContent-Length: 0\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with open_client(kubeconfig(tmp_path, "http://kube.invalid")) as client:
        with pytest.raises(KubeUnreadable, match="502"):
            await anext(Api(client, timeout=30.0).lines("/api/v1/pods", {"watch": "1"}, silence=1.0))
    assert (await asked).startswith("GET http://kube.invalid/api/v1/pods?watch=1 ")
    server.close()
