"""An HTTP transport that reads all available data of a response in one go.

In httpx, every HTTP chunk and TLS record is a read of its own, with a time limit and many layers. An API server sends
every change in its own chunk, and those layers take longer than our handling of the change. A PromQL engine sends
hundreds of megabytes, for which the layers take as long as the kernel. Here the event loop decrypts and a C parser
unwraps all data that arrived since the last read.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from urllib.request import getproxies

import httptools
import httpx2

from vgpuscope.model.quantity import Seconds

WATCH = "watch"  # the request extension that marks a watch

_CLOSED_WITHIN = 1.0  # seconds; closing takes one or two turns of the event loop
_KEPT_FOR = 5.0  # seconds, as in httpx: middleboxes may drop an idle connection silently
_KEPT = 20  # connections to an API server, as in httpx
_MOST = 4 * 1024 * 1024  # bytes buffered for the reader before reading from the server is paused
_LONGEST_HEAD = 256 * 1024  # bytes
_PROXIES = {"http", "https", "all"}
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

_Origin = tuple[str, str, int]  # scheme, host, port


def behind_proxy() -> bool:
    """Whether the environment names a proxy: httpx supports proxies, this transport does not."""
    return bool(getproxies().keys() & _PROXIES)


class WatchTransport(httpx2.AsyncBaseTransport):
    """Sends ordinary requests on kept connections, and each watch on a connection of its own.

    Only requests that read are sent again if a kept connection is dead: a change may have been made.
    """

    def __init__(self, tls: ssl.SSLContext, *, kept_for: Seconds = _KEPT_FOR) -> None:
        self._usual = StreamTransport(tls, keep=_KEPT, kept_for=kept_for, repeatable=_reads)
        self._watches = StreamTransport(tls)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        way = self._watches if request.extensions.get(WATCH) else self._usual
        return await way.handle_async_request(request)

    async def aclose(self) -> None:
        await self._usual.aclose()
        await self._watches.aclose()


class StreamTransport(httpx2.AsyncBaseTransport):
    """Sends requests from memory and streams the responses; keeps up to `keep` connections for further requests.

    If a kept connection turns out to be dead, a `repeatable` request is sent again; others are an error.
    """

    def __init__(
        self,
        tls: ssl.SSLContext | None,
        *,
        keep: int = 0,
        kept_for: Seconds = _KEPT_FOR,
        repeatable: Callable[[httpx2.Request], bool] = lambda _: True,
    ) -> None:
        """Without a TLS context, only http is supported. By default, all requests are expected to only read.

        A connection that nobody needed for `kept_for` is closed.
        """
        if tls:
            tls.set_alpn_protocols(["http/1.1"])
        self._tls, self._keep, self._repeatable = tls, keep, repeatable
        self._kept_for = kept_for
        self._idle: list[_Idle] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        message = _head(request) + await request.aread()
        if answer := await self._answer_on_kept(request, message):
            return answer
        stream = _Stream(request, self._kept)
        await self._connect(stream, request)
        return await stream.answer(message)

    async def aclose(self) -> None:
        self._keep = 0  # a response that is still being read must not keep its connection
        await asyncio.gather(*(idle.aclose() for idle in self._idle))

    async def _answer_on_kept(self, request: httpx2.Request, message: bytes) -> httpx2.Response | None:
        """The response on a kept connection; None if there is no kept connection or it is dead."""
        idle = next((idle for idle in self._idle if idle.origin == _origin(request.url) and idle.alive), None)
        if idle is None:
            return None
        self._idle.remove(idle)
        stream = _Stream(request, self._kept)
        idle.pass_on(stream)
        try:
            return await stream.answer(message)
        except httpx2.RemoteProtocolError:
            if stream.heard or not self._repeatable(request):
                raise
            return None

    async def _connect(self, stream: "_Stream", request: httpx2.Request) -> None:
        scheme, host, port = _origin(request.url)
        if scheme == "https" and not self._tls:
            raise httpx2.UnsupportedProtocol("https without TLS", request=request)
        tls = self._tls if scheme == "https" else None
        try:
            # without happy_eyeballs_delay: Python 3.11 would leak the sockets of cancelled attempts
            await asyncio.get_running_loop().create_connection(lambda: stream, host, port, ssl=tls)
        except asyncio.CancelledError:  # the event loop would close gracefully and wait for the peer
            if stream.connected:
                await stream.aclose()
            raise
        except OSError as e:  # includes TLS errors
            raise httpx2.ConnectError(str(e), request=request) from e

    def _kept(self, transport: asyncio.Transport, url: httpx2.URL) -> bool:
        """Keep the connection if possible; if True, it no longer belongs to its stream."""
        unsent = transport.get_write_buffer_size()  # not 0: the response came before the request was fully sent
        if unsent or transport.is_closing() or len(self._idle) >= self._keep:
            return False
        self._idle.append(_Idle(transport, _origin(url), self._idle.remove, kept_for=self._kept_for))
        return True


class _Stream(asyncio.Protocol, httpx2.AsyncByteStream):
    """One response as it arrives: its head, then pieces until its end or until the reader closes it."""

    def __init__(self, request: httpx2.Request, kept: Callable[[asyncio.Transport, httpx2.URL], bool]) -> None:
        self._request, self._kept = request, kept
        self._silence: float | None = request.extensions["timeout"]["read"]
        self._parser = httptools.HttpResponseParser(self)
        self._status, self._headers = 0, list[tuple[bytes, bytes]]()
        self._begun = self._over = self._read = self._reusable = self.connected = False
        self._error: httpx2.HTTPError | None = None
        self._pieces: list[bytes] = []
        self._waiting = 0  # bytes
        self.heard = 0  # bytes
        self._news, self._gone = asyncio.Event(), asyncio.Event()

    async def answer(self, message: bytes) -> httpx2.Response:
        """Send the request, and return the response once its head has arrived."""
        self._transport.write(message)  # the transport buffers what the kernel does not accept; it is in memory anyway
        try:
            while not self._begun and not self._over:
                await self._wait()
        except BaseException:
            await self.aclose()
            raise
        if not self._begun:
            await self.aclose()
            raise self._error or self._cut()
        return httpx2.Response(self._status, headers=self._headers, stream=self)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            if self._pieces:
                pieces, self._pieces, self._waiting = self._pieces, [], 0
                self._transport.resume_reading()
                yield b"".join(pieces)
            elif self._error:
                raise self._error
            elif self._over:
                self._read = True
                return
            else:
                await self._wait()

    async def aclose(self) -> None:
        """Returns when the connection is kept for other requests or closed."""
        if not (self._read and self._reusable and self._kept(self._transport, self._request.url)):
            await _closed(self._transport, self._gone)

    async def _wait(self) -> None:
        self._news.clear()
        try:
            async with asyncio.timeout(self._silence):
                await self._news.wait()
        except TimeoutError as e:
            raise httpx2.ReadTimeout(f"nothing came for {self._silence:g} s", request=self._request) from e

    def _end(self, error: httpx2.HTTPError | None = None) -> None:
        if not self._over:
            self._over, self._error = True, error
        self._news.set()

    def _refuse(self, why: str) -> None:
        self._end(httpx2.RemoteProtocolError(why, request=self._request))
        self._transport.abort()

    def _cut(self) -> httpx2.HTTPError:
        return httpx2.RemoteProtocolError("the answer was cut off", request=self._request)

    # ── callbacks of the event loop ──────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self.connected = transport, True

    def data_received(self, data: bytes) -> None:
        self.heard += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as e:
            self._refuse(str(e))
        if self.heard > _LONGEST_HEAD and not self._begun:
            self._refuse("the head of the answer is too long")
        if self._waiting > _MOST:
            self._transport.pause_reading()
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        sized = {b"content-length", b"transfer-encoding"} & {name.lower() for name, _ in self._headers}
        whole = self._begun and not sized and exc is None  # such a body ends with the connection
        self._end(None if whole else self._cut())
        self._gone.set()

    # ── callbacks of the parser ──────────────────────────────────────────────────────────────────────────────────

    def on_message_begin(self) -> None:
        if self._over:
            raise ValueError("an unexpected answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._begun:  # trailers are ignored
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        if self._status < 200:  # informational: the response follows
            self._headers.clear()
        else:
            self._begun = True

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._waiting += len(piece)

    def on_message_complete(self) -> None:
        if self._begun:
            self._reusable = self._parser.should_keep_alive()
            self._end()


class _Idle(asyncio.Protocol):
    """A connection between two requests; it is closed if any data arrives."""

    def __init__(
        self,
        transport: asyncio.Transport,
        origin: "_Origin",
        forget: Callable[["_Idle"], None],
        *,
        kept_for: Seconds,
    ) -> None:
        self._transport, self.origin, self._forget = transport, origin, forget
        self._gone = asyncio.Event()
        self._expiry = asyncio.get_running_loop().call_later(kept_for, transport.abort)
        transport.set_protocol(self)

    @property
    def alive(self) -> bool:
        return not self._transport.is_closing()

    def pass_on(self, stream: _Stream) -> None:
        """Hand the connection over to the stream."""
        self._expiry.cancel()
        self._transport.set_protocol(stream)
        stream.connection_made(self._transport)

    async def aclose(self) -> None:
        await _closed(self._transport, self._gone)

    def data_received(self, data: bytes) -> None:  # noqa: ARG002
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._expiry.cancel()
        self._forget(self)
        self._gone.set()


async def _closed(transport: asyncio.Transport, gone: asyncio.Event) -> None:
    """Closes the connection and waits for that: an event loop that ends earlier would leave it open."""
    transport.abort()
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSED_WITHIN):
            await gone.wait()


def _reads(request: httpx2.Request) -> bool:
    return request.method == "GET"


def _origin(url: httpx2.URL) -> "_Origin":
    return url.scheme, url.raw_host.decode(), url.port or (443 if url.scheme == "https" else 80)


def _head(request: httpx2.Request) -> bytes:
    lines = [b"%b %b HTTP/1.1" % (request.method.encode(), request.url.raw_path)]
    for name, value in request.headers.raw:
        if not _TOKEN.fullmatch(name):
            raise httpx2.LocalProtocolError(f"{name!r} is not a valid header name", request=request)
        if b"\r" in value or b"\n" in value:
            raise httpx2.LocalProtocolError(f"the header {name.decode()} has more than one line", request=request)
        lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join([*lines, b"", b""])
