"""Watches off the wire: everything that is there, in one go.

An API server tells every change in an HTTP chunk and a TLS record of its own. To httpx each of them is a read with a
time limit and a way through many layers, which takes longer than what we do with the change. Here the event loop
decrypts and a parser in C unwraps all that has come since the reader last asked.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress

import httptools
import httpx2

WATCH = "watch"  # the extension of a request that marks it as one

_CLOSED_WITHIN = 1.0  # seconds; it takes a turn or two of the event loop
_MOST = 4 * 1024 * 1024  # bytes that may wait for their reader before the server has to


class KubeTransport(httpx2.AsyncBaseTransport):
    """Requests as httpx sends them, and watches by a connection of their own."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls
        self._usual = httpx2.AsyncHTTPTransport(verify=tls)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if not request.extensions.get(WATCH):
            return await self._usual.handle_async_request(request)
        url, tls = request.url, self._tls if request.url.scheme == "https" else None
        head, stream = _head(request), _Stream(request)
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: stream, url.host, url.port or (443 if tls else 80), ssl=tls
            )
        except asyncio.CancelledError:  # the event loop itself would part politely, and wait for an answer
            if stream.connected:
                await stream.aclose()
            raise
        except OSError as e:  # TLS has its errors among these
            raise httpx2.ConnectError(str(e), request=request) from e
        return await stream.answer(head)

    async def aclose(self) -> None:
        await self._usual.aclose()


class _Stream(asyncio.Protocol, httpx2.AsyncByteStream):
    """One answer as it comes: its head, then pieces until its end, or until the reader has had enough."""

    def __init__(self, request: httpx2.Request) -> None:
        self._request = request
        self._silence: float | None = request.extensions["timeout"]["read"]
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._begun = self._over = self.connected = False
        self._error: httpx2.HTTPError | None = None
        self._pieces: list[bytes] = []
        self._waiting = 0  # bytes
        self._news, self._gone = asyncio.Event(), asyncio.Event()

    async def answer(self, head: bytes) -> httpx2.Response:
        """The answer to a request, once its head is there."""
        self._transport.write(head)
        try:
            while not self._begun and not self._over:
                await self._wait()
        except BaseException:
            await self.aclose()
            raise
        if not self._begun:
            raise self._error or self._cut()
        return httpx2.Response(self._parser.get_status_code(), headers=self._headers, stream=self)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            if self._pieces:
                pieces, self._pieces, self._waiting = self._pieces, [], 0
                self._transport.resume_reading()
                yield b"".join(pieces)
            elif self._error:
                raise self._error
            elif self._over:
                return
            else:
                await self._wait()

    async def aclose(self) -> None:
        """Returns when the connection is closed: an event loop that ended before would leave it open."""
        self._transport.abort()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSED_WITHIN):
                await self._gone.wait()

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

    def _cut(self) -> httpx2.HTTPError:
        return httpx2.RemoteProtocolError("the answer was cut off", request=self._request)

    # ── told by the event loop ───────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self.connected = transport, True

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as e:
            self._end(httpx2.RemoteProtocolError(str(e), request=self._request))
            self._transport.abort()
        if self._waiting > _MOST:
            self._transport.pause_reading()
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        sized = {b"content-length", b"transfer-encoding"} & {name.lower() for name, _ in self._headers}
        whole = self._begun and not sized and exc is None  # it goes on until the connection ends
        self._end(None if whole else self._cut())
        self._gone.set()

    # ── told by the parser ───────────────────────────────────────────────────────────────────────────────────────

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._begun = True

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._waiting += len(piece)

    def on_message_complete(self) -> None:
        self._end()


def _head(request: httpx2.Request) -> bytes:
    lines = [b"%b %b HTTP/1.1" % (request.method.encode(), request.url.raw_path)]
    for name, value in request.headers.raw:
        if b"\r" in value or b"\n" in value:
            raise httpx2.LocalProtocolError(f"the header {name.decode()} has more than one line", request=request)
        lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join([*lines, b"", b""])
