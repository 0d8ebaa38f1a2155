"""Whoever answers us decides how long the answer is, how it is packed, and where it points."""

import asyncio
import contextlib
import gzip
import socket
import threading
import tracemalloc
from collections.abc import Iterator

import pytest
import requests

from tests.http.serving import until
from tests.sinks import chat
from tests.standins.llm import Llm, Said
from vgpuscope.model.errors import AiAnswerInvalid, CallFailed, SourceDown
from vgpuscope.model.opinion import Prompt
from vgpuscope.sinks import notices
from vgpuscope.sinks.notices import Sender, target
from vgpuscope.sources.clients.served_api import ServedApi, ServiceKind
from vgpuscope.sources.opinion.address import address_of
from vgpuscope.sources.opinion.client import ModelAccess
from vgpuscope.sources.opinion.models import open_model

pytestmark = pytest.mark.attack
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


class Endless:
    """Accepts connections and sends to each a head, then one part again and again until the client leaves."""

    def __init__(self, head: bytes, part: bytes, *, every: float = 0.0) -> None:
        self.head, self.part, self.every = head, part, every
        self.left, self._ended = threading.Event(), threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._answer, args=(self._socket.accept()[0],), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            client.recv(65536)
            client.sendall(self.head)
            while not self._ended.wait(self.every):
                client.sendall(self.part)
        self.left.set()

    def close(self) -> None:
        self._ended.set()
        self._socket.close()


@pytest.fixture
def endless() -> Iterator[type[Endless]]:
    made = []

    class Made(Endless):
        def __init__(self, head: bytes, part: bytes, *, every: float = 0.0) -> None:
            super().__init__(head, part, every=every)
            made.append(self)

    yield Made
    for one in made:
        one.close()


@pytest.mark.parametrize("service", ["webhook", "feishu"])
@pytest.mark.parametrize("packed", [False, True])
async def test_an_endless_answer_to_a_notice_is_given_up_without_growing(endless, service, packed):
    part = gzip.compress(bytes(2**22)) if packed else bytes(2**16)
    server = endless(HEAD + (b"content-encoding: gzip\r\n" if packed else b"") + b"\r\n", part)
    sender = Sender(target(f"{server.url}/hook", secret="", service=service, timeout=30.0), timeout=30.0)
    tracemalloc.start()
    try:
        with pytest.raises(CallFailed):
            await sender.send("t", "b")
        grown = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        sender.close()
    assert server.left.wait(60)  # the connection was closed
    assert grown < 30 * 2**20


def test_answers_to_others_of_this_process_are_read_whole():
    with chat.Standin(lambda _: (200, b"x" * 2**20)) as service:
        answer = requests.post(service.url, json={}, timeout=60)
        assert len(answer.content) == 2**20


@pytest.mark.parametrize("service", ["webhook", "feishu"])
async def test_an_answer_that_drips_ends_its_thread_and_never_takes_more_than_a_few(endless, service):
    server = endless(HEAD + b"content-length: 1000000\r\n\r\n", b" ", every=0.05)
    sender = Sender(target(f"{server.url}/hook", secret="", service=service, timeout=0.2), timeout=0.2)
    try:
        for _ in range(2 * notices._MOST_HANGING):
            with pytest.raises(CallFailed):
                await sender.send("t", "b")
            assert len(sender._running) <= notices._MOST_HANGING
    finally:
        sender.close()
    assert server.left.wait(60)


INTERIM = {"without a pause": 0.0, "from time to time": 0.05}


@pytest.mark.parametrize("every", INTERIM.values(), ids=INTERIM)
@pytest.mark.parametrize("service", ["webhook", "feishu"])
async def test_interim_answers_without_end_keep_no_thread_busy(endless, service, every):
    """No client limits the number of `100 Continue`, and each one is in time."""
    server = endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n", every=every)
    sender = Sender(target(f"{server.url}/hook", secret="", service=service, timeout=0.2), timeout=0.2)
    try:
        for _ in range(2):
            with pytest.raises(CallFailed, match="did not answer within"):
                await sender.send("t", "b")
        assert await asyncio.to_thread(server.left.wait, 60)  # the connection was closed
        await until(lambda: not sender._running)
    finally:
        sender.close()


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_a_packed_answer_of_a_model_is_refused_before_it_is_unpacked(provider):
    bomb = gzip.compress(b" " * 2**28)
    async with Llm(lambda _: Said(body=bomb, headers=(("content-encoding", "gzip"),))) as llm:
        access = ModelAccess(
            address=address_of(provider, llm.url),
            model="m",
            key="k",
            api_version="",
            max_tokens=100,
            timeout=60.0,
            agent="vgpuscope/test",
        )
        client = await asyncio.to_thread(open_model, access, hide=str)
        tracemalloc.start()
        try:
            with pytest.raises(AiAnswerInvalid, match="gzip"):
                await client.ask(Prompt(system="s", user="u"))
            grown = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            await client.close()
    assert grown < 2**26


async def test_a_redirect_of_a_service_is_shown_and_not_followed(endless):
    elsewhere = endless(HEAD + b"\r\n", b"{}")
    head = f"HTTP/1.1 302 Found\r\nlocation: {elsewhere.url}/inside\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    server = endless(head.encode(), b"")
    kind = ServiceKind("agent", "an agent", "/api/v1/node", 9394, "sample", "a sample", "start", "ask")
    async with ServedApi(kind, server.url, content=dict, timeout=60.0, token="secret") as api:
        with pytest.raises(SourceDown, match="redirects"):
            await api.fetch()
    assert not elsewhere.left.is_set()
