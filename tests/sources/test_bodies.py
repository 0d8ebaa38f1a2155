"""Every client reads a bounded answer, however small it was when compressed, and keeps no loop waiting for it."""

import asyncio
import gzip
import json
import zlib
from contextlib import aclosing, asynccontextmanager, suppress

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.looplag import loop_lag
from vgpuscope.model.errors import KubeUnreadable, SourceDown
from vgpuscope.sources import bodies, kube
from vgpuscope.sources.bodies import BodyRefused, unpacked
from vgpuscope.sources.clients import served_api
from vgpuscope.sources.fleet.cluster_nodes import ClusterNodes
from vgpuscope.sources.fleet.owners import Owners
from vgpuscope.sources.kube import KubeClient
from vgpuscope.sources.node import kubelet
from vgpuscope.sources.node.kubelet import KubeletPods

pytestmark = pytest.mark.attack
MIB = 1 << 20
LONGEST = 1.0  # seconds of CPU time between two turns of the event loop; some hundredths on a quiet machine
SOON = 60.0
BOMB = gzip.compress(bytes(64 * MIB), 1)
GZIP = "content-encoding: gzip"


@asynccontextmanager
async def answering(body, *headers, status=200):
    """A server that has one answer, and the requests that it got."""
    asked = []

    async def talk(reader, writer):
        asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
        lines = "".join(f"{header}\r\n" for header in (*headers, "connection: close"))
        writer.write(f"HTTP/1.1 {status} X\r\n{lines}content-length: {len(body)}\r\n\r\n".encode() + body)
        with suppress(ConnectionError):
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


async def from_kube(url):
    async with httpx2.AsyncClient(base_url=url) as client:
        return await KubeClient(client, timeout=SOON).get("/api/v1/pods", {})


async def from_kubelet(url):
    async with aclosing(KubeletPods(url=url, timeout=SOON).follow()) as pods:
        return await anext(pods)


async def from_owners(url):
    async with Owners(url, timeout=SOON) as api:
        return await api.read()


async def from_nodes(url):
    async with ClusterNodes(url, timeout=SOON) as api:
        return await api.read()


CLIENTS = {
    "API server": (from_kube, kube, KubeUnreadable),
    "kubelet": (from_kubelet, kubelet, KubeUnreadable),
    "owners": (from_owners, served_api, SourceDown),
    "nodes": (from_nodes, served_api, SourceDown),
}
LARGE = {
    "a gzip bomb": (BOMB, (GZIP,), "larger than 1 MiB"),
    "a large answer": (bytes(2 * MIB), (), "larger than 1 MiB"),
    "another encoding": (b"x", ("content-encoding: br",), "which was not requested"),
    "gzip in gzip": (gzip.compress(BOMB), ("content-encoding: gzip, gzip",), "which was not requested"),
    "gzip that is none": (b"nono", (GZIP,), "does not match"),
    "gzip that is cut off": (gzip.compress(b"{}")[:-3], (GZIP,), "cut off"),
    "brackets without an end": (b"[" * 900_000, (), "."),
}


@pytest.mark.parametrize("kind", LARGE)
@pytest.mark.parametrize("client", CLIENTS)
async def test_an_answer_that_nobody_should_read_is_an_error_of_its_source(monkeypatch, client, kind):
    read, module, error = CLIENTS[client]
    body, headers, reason = LARGE[kind]
    monkeypatch.setattr(module, "_LARGEST", MIB)
    async with answering(body, *headers) as (url, asked), loop_lag() as lag:
        if client == "API server" and reason == ".":
            assert await read(url) == body  # the decoder refuses it
        else:
            with pytest.raises(error, match=reason):
                await read(url)
    assert "accept-encoding: gzip\r\n" in asked[0].lower()
    assert lag.longest < LONGEST


@pytest.mark.parametrize("client", ["owners", "nodes"])
async def test_an_answer_that_was_compressed_as_requested_is_read(client):
    body = json.dumps({"ml/a": "Job/a"} if client == "owners" else [{"name": "n1"}]).encode()
    async with answering(gzip.compress(body[:5]) + gzip.compress(body[5:]), GZIP) as (url, _):
        assert list(await CLIENTS[client][0](url)) == [("ml", "a") if client == "owners" else "n1"]


@given(st.lists(st.binary(max_size=2000), min_size=1, max_size=4), st.integers(1, 40), st.integers(1, 300))
def test_members_are_unpacked_in_pieces_of_any_size(parts, step, piece):
    whole = b"".join(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bodies, "_STEP", step)
        patch.setattr(bodies, "_PIECE", piece)
        packed = b"".join(map(gzip.compress, parts))
        assert asyncio.run(unpacked(packed, most=len(whole))) == whole == gzip.decompress(packed)
        if whole:
            with pytest.raises(BodyRefused, match="larger than"):
                asyncio.run(unpacked(packed, most=len(whole) - 1))


async def test_a_bomb_is_unpacked_only_up_to_the_limit(monkeypatch):
    made, usual = [], zlib.decompressobj

    class Counting:
        def __init__(self, *args):
            self._inner = usual(*args)

        def __getattr__(self, name):
            return getattr(self._inner, name)

        def decompress(self, data, most):
            made.append(self._inner.decompress(data, most))
            return made[-1]

    monkeypatch.setattr("vgpuscope.sources.bodies.zlib.decompressobj", Counting)
    with pytest.raises(BodyRefused):
        await unpacked(BOMB, most=MIB)
    assert sum(map(len, made)) <= MIB + bodies._PIECE
