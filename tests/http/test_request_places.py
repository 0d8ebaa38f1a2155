"""Places: a few requests of one kind at once, the rest are told to come again."""

import asyncio

import httpx2
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from tests.http.serving import SOON, served, until
from vgpuscope.http.answer_limits import PIECE
from vgpuscope.http.answers import Content, HttpAnswer, respond
from vgpuscope.http.operations import HttpCall, Operation, routes
from vgpuscope.http.parameters import NoQuery
from vgpuscope.http.request_places import Places

pytestmark = pytest.mark.attack


async def test_the_places_are_taken_then_the_queue_then_nobody_comes_in():
    places = Places(2, waiting=1)
    await places.take()
    await places.take()
    third = asyncio.ensure_future(places.take())
    await asyncio.sleep(0)
    with pytest.raises(HTTPException) as caught:
        await places.take()
    assert (caught.value.status_code, dict(caught.value.headers or {})) == (429, {"retry-after": "1"})
    assert not third.done()
    places.leave()
    await third
    assert places.taken == 2


async def test_who_stops_waiting_leaves_the_queue():
    places = Places(1, waiting=1)
    async with places:
        second = asyncio.ensure_future(places.take())
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait({second})
        assert places.taken == 1
    assert places.taken == 0
    await places.take()


class Ended:
    """Counts how often an answer has ended."""

    def __init__(self, body=b"[]") -> None:
        self.times, self.body = 0, body

    def add(self) -> None:
        self.times += 1

    async def answer(self, call: HttpCall[NoQuery, None]) -> HttpAnswer:
        return HttpAnswer(make=self.make, ended=self.add)

    def make(self) -> Content:
        return Content(body=self.body)


def serving(ended: Ended):
    return served(routes=routes([Operation(method="GET", path="/big", summary="a big one", handler=ended.answer)]))


@pytest.mark.parametrize("size", [0, 1, PIECE, 3 * PIECE + 1])
async def test_an_answer_in_pieces_is_the_same_answer_and_ends_once(size):
    ended = Ended(b"x" * size)
    async with serving(ended) as server, httpx2.AsyncClient(base_url=server.url, timeout=SOON) as client:
        answer = await client.get("/big")
        assert answer.content == ended.body
        await until(lambda: ended.times == 1)
        again = await client.get("/big", headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert (await client.head("/big")).content == b""
        await until(lambda: ended.times == 3)


async def test_an_answer_that_cannot_be_made_has_ended_too(monkeypatch):
    ended = Ended()
    monkeypatch.setattr(ended, "body", None)  # no bytes
    async with serving(ended) as server, httpx2.AsyncClient(base_url=server.url, timeout=SOON) as client:
        assert (await client.get("/big")).status_code == 500
        assert ended.times == 1


async def test_an_answer_has_not_ended_while_its_client_does_not_read():
    ended = Ended(b"x" * (64 * 1024 * 1024))  # more than all buffers between the two
    async with serving(ended) as server:
        host, port = server.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
        writer.write(b"GET /big HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert ended.times == 0
        writer.close()
        await until(lambda: ended.times == 1)


async def test_no_piece_is_longer_than_the_buffers_of_a_connection():
    ended, sent = Ended(b"x" * 1_000_001), []

    async def send(message):
        sent.append(len(message.get("body", b"")))

    async def receive():
        raise AssertionError("nothing is awaited from the client")

    request = Request({"type": "http", "method": "GET", "headers": []})
    made = await respond(request, HttpAnswer(make=ended.make, ended=ended.add), asked=None, status=200, headers={})
    await made({"type": "http"}, receive, send)
    assert sum(sent) == 1_000_001
    assert max(sent) <= 65_536
    assert ended.times == 1
