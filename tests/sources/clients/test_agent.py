"""Fetching an agent's sample: from any address a person may type, and with an answer to every way it can fail."""

import asyncio
import contextlib
import ssl
from email.utils import formatdate

import msgspec
import pytest
import trustme

from vgpuscope.model.errors import ConfigInvalid, SourceDown
from vgpuscope.model.usage import NodeSnapshot
from vgpuscope.sources.clients.agent import AgentApi, addresses

NODE = NodeSnapshot(at=1.0, node="n1", ratio=1.0)
GOOD = msgspec.json.encode(NODE)
SOON = 60.0


def http(body, *, status="200 OK", headers=""):
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


TRICKLE = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"


@contextlib.asynccontextmanager
async def agent(answer, *, tls=None):
    """A server that says one thing to everybody; None: it listens and says nothing."""
    asked, serving = [], []

    async def serve(reader, writer):
        serving.append(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
                if answer is not None:
                    writer.write(answer)
                if answer is TRICKLE:
                    await _trickle(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
    finally:
        server.close()
        await asyncio.gather(*serving)


async def _trickle(reader, writer):
    """Byte after byte, until the other side has had enough."""
    with contextlib.suppress(ConnectionError):
        while True:
            writer.write(b" ")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    await reader.read(1)
                return


async def failure(answer, **options):
    async with agent(answer) as (url, _), AgentApi(url, **options) as api:
        with pytest.raises(SourceDown) as caught:
            async with asyncio.timeout(2 * SOON):  # a test that fails rather than hangs
                await api.snapshot()
        return caught.value


@pytest.mark.parametrize(
    ("typed", "called", "asked"),
    [
        ("http://127.0.0.1:9394", "http://127.0.0.1:9394", "http://127.0.0.1:9394/api/v1/node"),
        ("node1", "http://node1:9394", "http://node1:9394/api/v1/node"),
        ("node1:80", "http://node1:80", "http://node1:80/api/v1/node"),
        ("node1:9394/metrics", "http://node1:9394", "http://node1:9394/api/v1/node"),
        ("https://gpu.example/n1/metrics?x=1", "https://gpu.example/n1", "https://gpu.example/n1/api/v1/node"),
        ("http://node1:9394/api/v1/node/", "http://node1:9394", "http://node1:9394/api/v1/node"),
        ("http://me:pw@node1:9394/", "http://node1:9394", "http://me:pw@node1:9394/api/v1/node"),
        ("::1", "http://[::1]:9394", "http://[::1]:9394/api/v1/node"),
        ("[::1]:80", "http://[::1]:80", "http://[::1]:80/api/v1/node"),
        (" node1 ", "http://node1:9394", "http://node1:9394/api/v1/node"),
    ],
)
def test_an_agent_is_found_from_what_people_type(typed, called, asked):
    assert addresses(typed) == (called, asked)


@pytest.mark.parametrize("typed", ["", "http://", "ftp://node1", "node1:notaport", "node1:99999", "a b", "http://[::1"])
def test_what_is_no_address_is_refused(typed):
    with pytest.raises(ConfigInvalid):
        addresses(typed)


def test_a_password_is_never_repeated():
    with pytest.raises(ConfigInvalid) as caught:
        addresses("http://me:hunter2@node1:port")
    assert "hunter2" not in str(caught.value)


async def test_the_sample_arrives_and_the_connection_is_kept():
    async with agent(http(GOOD)) as (url, asked), AgentApi(url, token="t0ken", timeout=SOON) as api:
        assert await api.snapshot() == NODE
        assert await api.snapshot() == NODE
    assert len(asked) == 2
    assert "authorization: bearer t0ken" in asked[0].lower()


async def test_a_proxy_is_not_asked_for_what_is_on_this_machine(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with agent(http(GOOD)) as (url, _), AgentApi(url, timeout=SOON) as api:
        assert await api.snapshot() == NODE


async def test_a_clock_that_differs_is_known_from_the_answer():
    dated, now = http(GOOD, headers=f"Date: {formatdate(1_800_003_600, usegmt=True)}\r\n"), 1_800_000_000.0
    async with agent(dated) as (url, _), AgentApi(url, timeout=SOON, wall=lambda: now) as api:
        await api.snapshot()
        assert api.clock_offset == 3600.0
    async with agent(http(GOOD, headers="Date: tomorrow\r\n")) as (url, _), AgentApi(url, timeout=SOON) as api:
        await api.snapshot()
        assert api.clock_offset == 0.0


async def test_nobody_there_says_how_to_start_one():
    async with agent(None) as (url, _):
        pass
    async with AgentApi(url, timeout=SOON) as api:
        with pytest.raises(SourceDown, match=f"no agent answers at http://{url}") as caught:
            await api.snapshot()
    assert "vgpuscope agent" in caught.value.advice


@pytest.mark.parametrize("answer", [None, http(GOOD)[:-5], TRICKLE], ids=["silent", "stuck", "trickling"])
async def test_an_agent_that_does_not_finish_is_given_up(answer):
    assert "no answer within 0.2 s" in str(await failure(answer, timeout=0.2))


@pytest.mark.parametrize(
    ("answer", "said", "advice"),
    [
        (http(b"", status="401 Unauthorized"), "rejects the request (401)", "VGPUSCOPE_TOKEN"),
        (http(b"", status="403 Forbidden"), "rejects the request (403)", "VGPUSCOPE_TOKEN"),
        (http(b"", status="404 Not Found"), "is not an agent of vgpuscope", "9394"),
        (http(b'{"error":{"message":"first sample pending"}}', status="503 X"), "first sample pending", "just started"),
        (http(b"oops", status="500 X"), "has no sample (500)", "log"),
        (http(b"<html>"), "not with the sample of a node", "--version"),
        (http(b'{"at": 1}'), "not with the sample of a node", "--version"),
        (http(b'"\xff"'), "not with the sample of a node", "--version"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "no agent answers", "vgpuscope agent"),
    ],
)
async def test_each_wrong_answer_is_named_with_what_to_do(answer, said, advice):
    whole = answer.startswith(b"HTTP")
    error = await failure(answer, timeout=SOON if whole else 0.2)
    assert said in str(error)
    assert advice in error.advice


async def test_a_private_authority_is_trusted_by_ssl_cert_file(monkeypatch, tmp_path):
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    async with agent(http(GOOD), tls=tls) as (url, _):
        async with AgentApi(f"https://{url}", timeout=SOON) as api:
            with pytest.raises(SourceDown, match="CERTIFICATE_VERIFY_FAILED"):
                await api.snapshot()
        authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        async with AgentApi(f"https://{url}", timeout=SOON) as api:
            assert await api.snapshot() == NODE


def test_a_ca_file_that_is_none_is_said_at_the_start(monkeypatch, tmp_path):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    with pytest.raises(ConfigInvalid, match="CA file"):
        AgentApi("https://node1")
