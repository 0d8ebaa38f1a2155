"""Server-sent events: responses that stay open and send events as they happen."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from vgpuscope.http.answer_limits import EVENTS_KEPT, KEEP_ALIVE_EVERY, MOST_STREAMS
from vgpuscope.http.places import peer_of
from vgpuscope.http.too_many import too_many
from vgpuscope.model.quantity import Seconds

_HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # nginx would hold events back until a buffer is full
}
_COMMENT = b": keep-alive\n\n"
_RETRY: Seconds = 60.0  # streams stay open for long
StreamClient: TypeAlias = tuple[str, str]  # the address that a stream goes to, and the caller's name


class Event(Struct, frozen=True, kw_only=True):
    """One event; data is sent as JSON, which has no line breaks."""

    name: str
    data: Any
    id: str = ""

    def lines(self) -> bytes:
        head = f"event: {self.name}\n" + (f"id: {self.id}\n" if self.id else "")
        return head.encode() + b"data: " + msgspec.json.encode(self.data) + b"\n\n"


class Feed:
    """Passes each event to all current listeners; a listener that is too slow loses the oldest events."""

    def __init__(self, *, kept: int = EVENTS_KEPT) -> None:
        self._kept = kept
        self._listeners: set[Listener] = set()

    def publish(self, event: Event) -> None:
        for listener in self._listeners:
            listener.add(event)

    def listen(self, *first: Event) -> "Listener":
        """A listener for all events from now on, after the `first` ones. Give it to a Stream, which ends it."""
        listener = Listener(self._listeners, kept=self._kept)
        for event in first:
            listener.add(event)
        return listener

    @property
    def listeners(self) -> int:
        return len(self._listeners)


class Listener(AsyncIterator[Event]):
    """The events for one client, up to a fixed number."""

    def __init__(self, among: "set[Listener]", *, kept: int) -> None:
        self._among = among
        self._queue: asyncio.Queue[Event] = asyncio.Queue(kept)
        among.add(self)

    def add(self, event: Event) -> None:
        if self._queue.full():
            self._queue.get_nowait()
        self._queue.put_nowait(event)

    async def __anext__(self) -> Event:
        return await self._queue.get()

    async def aclose(self) -> None:
        self._among.discard(self)


class Stream(Response):
    """Sends events until they end, the client disconnects or the service stops; comments keep the connection alive.

    The next event is fetched when the client has received the one before. So a slow client uses no memory besides its
    listener's.
    """

    def __init__(self, events: Listener, *, keep_alive: float = KEEP_ALIVE_EVERY) -> None:
        self.status_code, self.background, self.body = 200, None, b""
        self.init_headers(_HEADERS)
        del self.headers["content-length"]
        self._events, self._keep_alive = events, keep_alive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        streams: Streams = scope["app"].streams
        client = (peer_of(scope.get("client")), scope["caller"].name)
        async with contextlib.aclosing(self._events):
            with streams.place(client) as lost:
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                ended = asyncio.ensure_future(_ended(receive, lost, streams.stopped))
                try:
                    async for part in self._parts(ended):
                        await send({"type": "http.response.body", "body": part, "more_body": True})
                finally:
                    ended.cancel()
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _parts(self, ended: "asyncio.Future[None]") -> AsyncIterator[bytes]:
        following = asyncio.ensure_future(anext(self._events))
        try:
            while not ended.done():
                both: set[asyncio.Future[Any]] = {following, ended}
                await asyncio.wait(both, timeout=self._keep_alive, return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    yield b"" if ended.done() else _COMMENT
                    continue
                yield following.result().lines()
                following = asyncio.ensure_future(anext(self._events))
        finally:
            following.cancel()


class Streams:
    """The streams of one process: their number is limited, and all end when the process stops.

    No client keeps others out: if all places are taken, the client with the most streams loses its oldest one to a
    client that has at least two fewer. The same holds between users, who may have many addresses.
    """

    def __init__(self, *, most: int = MOST_STREAMS) -> None:
        self._most = most
        self._lost: dict[StreamClient, list[asyncio.Event]] = {}  # for each stream, oldest first: set to end it
        self.stopped = asyncio.Event()

    @property
    def open(self) -> int:
        return sum(len(streams) for streams in self._lost.values())

    @contextlib.contextmanager
    def place(self, client: StreamClient) -> Iterator[asyncio.Event]:
        """A place for a stream; the event says that it was lost to another client. 429 if there is none."""
        mine = self._lost.get(client, [])
        if self.open >= self._most:
            self._longest_of_the_busiest(client).pop(0).set()
        lost = asyncio.Event()
        self._lost[client] = [*mine, lost]
        try:
            yield lost
        finally:
            self._lost[client] = [stream for stream in self._lost[client] if stream is not lost]
            if not self._lost[client]:
                del self._lost[client]

    def _longest_of_the_busiest(self, newcomer: StreamClient) -> list[asyncio.Event]:
        """The streams of the client that makes room; 429 if none has clearly more than the newcomer."""
        users = Counter({client[1]: 0 for client in self._lost} | {newcomer[1]: 0})
        for client, streams in self._lost.items():
            users[client[1]] += len(streams)
        user, most = users.most_common(1)[0]
        if most >= users[newcomer[1]] + 2:
            return max((streams for client, streams in self._lost.items() if client[1] == user), key=len)
        busiest = max(self._lost.values(), key=len, default=[])
        if len(busiest) < len(self._lost.get(newcomer, [])) + 2:
            too_many(_RETRY)
        return busiest


async def _ended(receive: Receive, *ends: asyncio.Event) -> None:
    """Return when the client has disconnected, its place is lost, or the service stops."""
    waits: list[asyncio.Future[Any]] = [
        asyncio.ensure_future(_gone(receive)),
        *(asyncio.ensure_future(end.wait()) for end in ends),
    ]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
