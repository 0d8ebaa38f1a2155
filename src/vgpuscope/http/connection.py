"""One connection of a client: how long the client may take, and how much it may send."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from vgpuscope.http import places
from vgpuscope.http.app import only_health
from vgpuscope.http.error_body import error_body
from vgpuscope.http.sending import HTTP_ERRORS, JSON
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
    discarded: int = 64 * 1024 * 1024  # bytes of a rejected request, within `request_within`; then the client is cut
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
    _in_head = False
    _in_cycle = False  # the application has the current request
    _unanswered = 0  # requests that the application has and has not answered, the current one included
    _refused = False  # what still arrives is discarded
    _refusal = b""  # the answer to the rejected request, while earlier requests are being answered
    _discarded = 0  # bytes
    _received = _head = 0  # bytes of the current request, and of its head
    _announced = 0  # bytes of its body, by its own header
    _longest = ConnectionLimits().request  # bytes that the current request may have
    limits = ConnectionLimits()
    longer: Mapping[str, int] = {}  # bytes of a request, for paths that accept more than the limit
    name: tuple[bytes, bytes] | None = None  # the header that names the service

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
        if self._refused:
            self._discard(len(data))
            return
        step = self.limits.parsed_at_once
        for begin in range(0, len(data), step):  # one packet can hold several requests, and up to 256 KiB
            part = data[begin : begin + step]
            self._received += len(part)
            super().data_received(part)
            if self._in_head and self._received > self.limits.head:
                self._refuse(431)
            elif self._received > self._longest:
                self._refuse(413)
            if self._over:
                return

    @property
    def _over(self) -> bool:
        """Whether nothing more is read from this client."""
        return self._refused or self.transport.is_closing()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the text of every answer is ours
        """Called for what the parser rejects."""
        self._refuse(400)

    def _refuse(self, status: int) -> None:
        """Answer the current request with an error, after all earlier ones, and read no other.

        The rest of the request is discarded: a client that is still sending would lose the answer if we closed.
        """
        if self._refused:
            return
        self._refused, self._waiting_since = True, self.loop.time()
        if not self._in_cycle or self._withdrawn():
            self._refusal = self._error(status)
        self.flow.resume_reading()
        self._end_if_answered()

    def _withdrawn(self) -> bool:
        """Take the current request from the application; False if its answer has begun: there is no second one."""
        if self.cycle.response_started:
            return False
        self._unanswered -= 1
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        if self.pipeline and self.pipeline[0][0] is self.cycle:
            self.pipeline.popleft()
        return True

    def _end_if_answered(self) -> None:
        """Send the last answer, and nothing after it; the client closes, or `judge` does."""
        if self._unanswered > 0 or self.transport.is_closing():
            return
        if self._refusal:
            self.transport.write(self._refusal)
        if self.transport.can_write_eof():  # TLS cannot close one direction only
            self.transport.write_eof()

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > self.limits.discarded:
            self.transport.abort()

    def _error(self, status: int) -> bytes:
        """A whole answer in the format of all errors."""
        body = error_body(*_texts(status, longest=self._longest))
        headers = [
            *self.server_state.default_headers,
            *((self.name,) if self.name else ()),
            (b"content-type", JSON),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        return STATUS_LINE[status] + b"".join(b"%s: %s\r\n" % pair for pair in headers) + b"\r\n" + body

    def on_message_begin(self) -> None:
        if self._refused:
            return
        super().on_message_begin()
        self._waiting_since = self.loop.time()
        self._in_head, self._head, self._longest, self._announced = True, 0, self.limits.request, 0
        self._in_cycle = False

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
            self._refuse(431)
        elif self._announced > self._longest:
            self._refuse(413)
        if not self._refused:
            super().on_headers_complete()
            self._in_cycle = True
            self._unanswered += 1

    def on_body(self, body: bytes) -> None:
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._refused:
            return
        self._waiting_since, self.asked_at = None, self.loop.time()
        self._received = 0
        super().on_message_complete()
        self._in_cycle = False

    def on_response_complete(self) -> None:
        self._quiet_since = self.loop.time()
        self._unanswered -= 1
        super().on_response_complete()
        if self._refused:
            self._end_if_answered()

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


def _texts(status: int, *, longest: int) -> tuple[str, str, str]:
    """Code, message and hint; `longest`: the bytes that the request may have."""
    if status == BodyTooLarge.status:
        error = BodyTooLarge(f"the request is larger than {longest // 2**20} MiB")
        return error.code, str(error), error.advice
    return HTTP_ERRORS[status]
