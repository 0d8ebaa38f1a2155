"""One connection of a client: how long the client may take, and how much it may send."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from vgpuscope.http import places
from vgpuscope.http.app import only_health
from vgpuscope.http.error_body import error_body
from vgpuscope.model.errors import BodyTooLarge
from vgpuscope.model.quantity import Seconds

if TYPE_CHECKING:  # an agent without a web configuration does not need it
    from vgpuscope.http.guard import Guard


class ConnectionLimits(Struct, frozen=True, kw_only=True):
    """The limits of connections, of each one and of all together."""

    most: int = 256  # connections
    per_peer: int = 128  # connections of one host; a proxy may be one
    reserved: int = 8  # more connections, for health checks while all others are busy
    keep_alive: int = 75  # seconds; longer than the usual scrape interval, so that TLS is not set up for each scrape
    handshake_within: Seconds = 10.0
    request_within: Seconds = 10.0  # from the first byte of a request to the last, and from connecting to the first
    response_within: Seconds = 30.0  # for a client to receive an answer
    head: int = 64 * 1024  # bytes
    request: int = 2 * 1024 * 1024  # bytes
    parsed_at_once: int = 16 * 1024  # bytes that are parsed between two checks of these lengths


class LimitedConnection(HttpToolsProtocol):
    """One connection, with limits on how long a client may take and how much it may send."""

    guard: "Guard | None" = None
    peer = ""
    reserved = False  # it holds a place for health checks
    asked_at = 0.0  # when the last request was complete
    _quiet_since = 0.0  # when it connected, or its last answer was complete
    _waiting_since: float | None = None  # when the wait for the rest of a request began
    _sending_since: float | None = None
    _in_head = _refused = False
    _discards = False  # the answer was sent before the request was complete; nothing more is read
    _received = _head = 0  # bytes of the current request, and of its head
    _announced = 0  # bytes of its body, by its own header
    _longest = ConnectionLimits().request  # bytes that the current request may have
    limits = ConnectionLimits()
    longer: Mapping[str, int] = {}  # bytes of a request, for paths that accept more than the limit

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        others = [
            one for one in self.connections if isinstance(one, LimitedConnection) and not one.transport.is_closing()
        ]
        super().connection_made(transport)
        self._waiting_since = self._quiet_since = self.loop.time()
        self.peer = places.peer_of(self.client)
        if self._client_allowed():
            self._take_place(others)
        else:
            transport.abort()

    def _take_place(self, others: "Sequence[LimitedConnection]") -> None:
        limits = self.limits
        found = places.room(others, self.peer, most=limits.most, per_peer=limits.per_peer, reserved=limits.reserved)
        if found.close is not None:
            found.close.transport.abort()
        if found.reserved:
            self.reserved, self.app = True, only_health(self.app)
        if found.full:
            self.transport.abort()

    @property
    def quiet_since(self) -> float | None:
        """Since when it waits for its client; None: a request is being answered, or the answer is being sent."""
        if self._waiting_since is not None:
            return self._waiting_since
        answered = self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]
        return self._quiet_since if answered and not self.transport.get_write_buffer_size() else None

    def data_received(self, data: bytes) -> None:
        if self._discards:
            return
        step = self.limits.parsed_at_once
        for begin in range(0, len(data), step):  # one packet can hold several requests, and up to 256 KiB
            part = data[begin : begin + step]
            self._received += len(part)
            super().data_received(part)
            if self._in_head and self._received > self.limits.head:
                self._refuse_head()
            elif self._received > self._longest:
                self._refuse_body()
            if self._over:
                return

    @property
    def _over(self) -> bool:
        """Whether nothing more is read from this client."""
        return self._discards or self.transport.is_closing()

    def _refuse_body(self) -> None:
        """Answer, if the path has a limit of its own: its client is a program that should learn why.

        The rest of the request is discarded: a client that is still sending loses the answer if we close.
        """
        if self._longest <= self.limits.request:
            self.transport.abort()
        elif not self._discards:
            self._refused = self._discards = True
            self.transport.write(_too_large(self._longest))

    def _refuse_head(self) -> None:
        if not self._refused:
            self._refused = True
            self.transport.write(b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\r\n")
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._waiting_since = self.loop.time()
        self._in_head, self._head, self._longest, self._announced = True, 0, self.limits.request, 0

    def on_url(self, url: bytes) -> None:
        self._head += len(url)
        super().on_url(url)
        self._longest = self.longer.get(self.url.partition(b"?")[0].decode("latin-1"), self.limits.request)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head += len(name) + len(value) + 4  # with ": " and the end of the line
        super().on_header(name, value)
        if name.lower() == b"content-length" and value.isdigit():  # the parser rejects other values
            self._announced = int(value[:20])

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._head > self.limits.head:
            self._refuse_head()
        elif self._announced > self._longest:
            self._refuse_body()
        if not self._refused:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._refused:
            return
        self._waiting_since, self.asked_at = None, self.loop.time()
        self._received = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._quiet_since = self.loop.time()
        super().on_response_complete()

    def judge(self, now: float) -> None:
        """Close the connection of a client that sends or receives too slowly."""
        if not self.transport.get_write_buffer_size():
            self._sending_since = None
        elif self._sending_since is None:
            self._sending_since = now
        late_request = self._waiting_since is not None and now - self._waiting_since > self.limits.request_within
        late_answer = self._sending_since is not None and now - self._sending_since > self.limits.response_within
        if late_request or late_answer:
            self.transport.abort()

    def _client_allowed(self) -> bool:
        if self.guard is None or not self.guard.web.client_sans:
            return True
        return self.guard.allows_client(self.transport.get_extra_info("peercert"))


def _too_large(most: int) -> bytes:
    """A whole answer; the request is not read to its end."""
    error = BodyTooLarge(f"the body is larger than {most // 2**20} MiB")
    body = error_body(error.code, str(error), error.advice)
    head = f"HTTP/1.1 413 Content Too Large\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"connection: close\r\n\r\n" + body
