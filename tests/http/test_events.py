"""Server-sent events over real sockets: clients that listen, are slow, or go away."""

import asyncio
import json
import socket

import httpx2
import pytest

from tests.http.serving import SOON, served, until
from vgpuscope.http import answer_limits
from vgpuscope.http.connection import ConnectionLimits
from vgpuscope.http.events import Event, Feed, Stream, Streams
from vgpuscope.http.operations import EVENTS, HttpCall, Operation, routes
from vgpuscope.http.parameters import NoQuery


def table(feed: Feed, keep_alive: float = SOON) -> list:
    async def handler(call: HttpCall[NoQuery, None]) -> Stream:
        return Stream(feed.listen(Event(name="first", data={"text": "a\nb"}, id="0")), keep_alive=keep_alive)

    stamp = {"x-stamp": "now"}
    operation = Operation(
        method="GET", path="/events", summary="", handler=handler, media=(EVENTS,), stamp=lambda: stamp
    )
    return routes([operation])


@pytest.fixture
def feed():
    return Feed()


async def blocks(answer, count):
    """The next blocks of a stream, without the empty line between them."""
    found, text = [], ""
    async for part in answer.aiter_text():
        text += part
        *whole, text = text.split("\n\n")
        found += whole
        if len(found) >= count:
            return found
    return found


async def test_events_come_as_they_happen(feed):
    async with (
        served(routes=table(feed)) as server,
        httpx2.AsyncClient(timeout=SOON) as client,
        client.stream("GET", f"{server.url}/events", headers={"accept-encoding": "gzip"}) as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        assert "content-length" not in answer.headers
        assert answer.headers["x-stamp"] == "now"
        feed.publish(Event(name="analysis", data={"n": 1}))
        first, second = await blocks(answer, 2)
    assert first == 'event: first\nid: 0\ndata: {"text":"a\\nb"}'  # one line, whatever the data has
    assert second == 'event: analysis\ndata: {"n":1}'
    assert json.loads(second.partition("data: ")[2]) == {"n": 1}


async def test_a_silent_stream_has_comments_that_keep_it_alive(feed):
    async with (
        served(routes=table(feed, keep_alive=0.001)) as server,
        httpx2.AsyncClient(timeout=SOON) as client,
        client.stream("GET", f"{server.url}/events") as answer,
    ):
        assert (await blocks(answer, 3))[1:] == [": keep-alive"] * 2


async def test_a_client_that_goes_away_leaves_nothing_behind(feed):
    async with served(routes=table(feed)) as server, httpx2.AsyncClient(timeout=SOON) as client:
        async with client.stream("GET", f"{server.url}/events") as answer:
            await blocks(answer, 1)
            assert (feed.listeners, server._app.streams.open) == (1, 1)
        await until(lambda: (feed.listeners, server._app.streams.open) == (0, 0))


async def test_a_slow_client_loses_the_oldest_events_and_is_cut_in_the_end():
    feed = Feed(kept=4)
    big = "x" * 1_000_000
    async with served(routes=table(feed)) as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as stubborn:
            stubborn.send(b"GET /events HTTP/1.1\r\n\r\n")
            await until(lambda: feed.listeners == 1)
            [listener] = feed._listeners
            for number in range(100):
                feed.publish(Event(name="big", data=big, id=str(number)))
                await asyncio.sleep(0)  # the server has its turn
                assert listener._queue.qsize() <= 4
            newest = [listener._queue.get_nowait().id for _ in range(listener._queue.qsize())]
            assert newest == ["96", "97", "98", "99"]
            [connection] = server._inner.server_state.connections
            for later in (0.0, ConnectionLimits().response_within + 1):
                connection.judge(asyncio.get_running_loop().time() + later)
            await until(lambda: not server._inner.server_state.connections)
            await until(lambda: (feed.listeners, server._app.streams.open) == (0, 0))


async def test_a_service_that_stops_ends_its_streams(feed):
    async with httpx2.AsyncClient(timeout=SOON) as client:
        async with served(routes=table(feed)) as server:
            request = client.build_request("GET", f"{server.url}/events")
            answer = await client.send(request, stream=True)
            server.stop()
            rest = await answer.aread()  # comes to a proper end
        assert rest.startswith(b"event: first\n")
        assert feed.listeners == 0


async def test_too_many_streams_are_refused_and_leave_nothing_behind(feed):
    async with served(routes=table(feed)) as server, httpx2.AsyncClient(timeout=SOON) as client:
        server._app.streams = Streams(most=1)
        async with client.stream("GET", f"{server.url}/events"):
            late = await client.get(f"{server.url}/events")
            assert (late.status_code, late.headers["retry-after"]) == (429, "60")
            assert late.json()["error"]["code"] == "TOO_MANY_REQUESTS"
            assert feed.listeners == 1


async def test_head_of_a_stream_is_refused(feed):
    async with served(routes=table(feed)) as server, httpx2.AsyncClient(timeout=SOON) as client:
        assert (await client.head(f"{server.url}/events")).status_code == 405
    assert feed.listeners == 0


def test_fewer_streams_than_connections():
    assert ConnectionLimits().most / 2 > answer_limits.MOST_STREAMS
