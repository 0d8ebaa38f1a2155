"""The HTTP layer of every service: /metrics, /healthz, /readyz, one format of errors, limits for slow clients.

A scrape sends bytes that are ready: nothing is computed, and no middleware runs.
"""

import asyncio
import html
import logging
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec
import uvicorn
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.routing import BaseRoute, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from vgpuscope.http import address, places
from vgpuscope.http.error_body import error_body
from vgpuscope.http.events import Streams
from vgpuscope.http.negotiation import wants_gzip, wants_openmetrics
from vgpuscope.http.openapi import METRICS
from vgpuscope.http.operations import check_scope
from vgpuscope.model.caller import ANYONE
from vgpuscope.model.errors import BodyTooLarge, ScopeError
from vgpuscope.model.service import HEADER, ServiceName
from vgpuscope.model.wording import nearest, sentences
from vgpuscope.runtime.log import fields
from vgpuscope.version import __version__

if TYPE_CHECKING:  # an agent without a web configuration needs neither
    from vgpuscope.http.guard import Guard
    from vgpuscope.http.identity import Identity

log = logging.getLogger(__name__)

TEXT = b"text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = b"application/openmetrics-text; version=1.0.0; charset=utf-8"

KEEP_ALIVE = 75  # seconds; longer than the usual scrape interval, so that TLS is not set up for each scrape
REQUEST_WITHIN = 10.0  # seconds from the first byte of a request to the last, and from connecting to the first byte
RESPONSE_WITHIN = 30.0  # seconds for a client to receive an answer
HANDSHAKE_WITHIN = 10.0
MOST_CONNECTIONS = 256
PER_PEER = 128  # connections of one host; a proxy may be one
RESERVED = 8  # more connections, for health checks while all others are busy
LONGEST_HEAD = 64 * 1024
LONGEST_REQUEST = 2 * 1024 * 1024
_SLICE = 16 * 1024  # bytes that are parsed between two checks of these lengths

_OPEN_PATHS = frozenset({"/healthz", "/readyz"})  # public, because the kubelet has no credentials
_JSON = b"application/json"
HTTP_ERRORS = {  # status → code, message, hint
    401: ("UNAUTHORIZED", "credentials are missing or wrong", "See docs/security.md; the web configuration decides."),
    404: ("NOT_FOUND", "nothing is served under this path", "/ lists all paths."),
    405: ("METHOD_NOT_ALLOWED", "this method is not allowed for this path", "The allow header lists those that are."),
    429: ("TOO_MANY_REQUESTS", "too many requests at once, or within a short time", "Retry after 1 s."),
    500: ("INTERNAL", "a promise of our own code was broken", "Please report it with the log."),
    503: ("BUSY", "all connections are in use; only health checks are answered", "Retry after 1 s."),
}


class ServedPage(Protocol):
    """One state of /metrics as bytes that are ready to send."""

    def text(self) -> bytes: ...
    def openmetrics(self) -> bytes: ...
    def gzipped(self, openmetrics: bool) -> bytes: ...


@runtime_checkable
class LargePage(Protocol):
    """One state of /metrics that is rendered in chunks while it is sent."""

    def chunks(self, *, openmetrics: bool, gzipped: bool) -> tuple[int | None, Iterator[bytes]]:
        """The total number of bytes, if known in advance, and the chunks."""


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """What is missing before this process is ready; empty when it is ready."""

    missing: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()  # that /healthz shows: a name, and a word for its state

    @property
    def ready(self) -> bool:
        return not self.missing


def make_app(
    *,
    title: str,
    metrics: Callable[[], ServedPage],
    ready: Callable[[], Readiness],
    guard: "Guard | None" = None,
    routes: Sequence[BaseRoute] = (),
    links: Sequence[tuple[str, str]] = (),
    admit: Callable[[Request], object] | None = None,
    identity: "Callable[[], Identity] | None" = None,
    public: Callable[[Request], bool] = lambda _: False,
    service: ServiceName | None = None,
    health: Callable[[], Readiness] | None = None,
    longest: Mapping[str, int] | None = None,
) -> "App":
    """The ASGI application of a service: the common paths, and its own routes with their links on the index page.

    `admit` raises for callers that may not read /metrics; routes check callers themselves. `identity` returns the
    current ways of identification, if there are more than the guard's. `public` says which requests show no data
    and need no credentials. `service` is the name that the process reports,
    for clients that connected to the wrong service. `health` returns why this process should be restarted, if it
    can tell. `longest` has the bytes of a request for paths that accept more than LONGEST_REQUEST.
    """
    return App(
        title=title,
        metrics=metrics,
        ready=ready,
        guard=guard,
        routes=routes,
        links=links,
        admit=admit,
        identity=identity,
        public=public,
        service=service,
        health=health,
        longest=longest or {},
    )


class App:
    """Dispatches requests: common paths by a table, others by the service's routes. Every error has the same format."""

    def __init__(
        self,
        *,
        title: str,
        metrics: Callable[[], ServedPage],
        ready: Callable[[], Readiness],
        guard: "Guard | None",
        routes: Sequence[BaseRoute],
        links: Sequence[tuple[str, str]],
        admit: Callable[[Request], object] | None,
        identity: "Callable[[], Identity] | None",
        public: Callable[[Request], bool],
        service: ServiceName | None,
        health: Callable[[], Readiness] | None,
        longest: Mapping[str, int],
    ) -> None:
        self._name = (HEADER.encode(), service.encode()) if service else None
        self._metrics, self._ready, self._guard, self._admit = metrics, ready, guard, admit
        self._identity, self._public = identity or (guard.identity if guard else None), public
        self._index = _index(title, links)
        self._own = Router(routes, redirect_slashes=False)
        self._health, self.longest = health, longest
        self._common = {
            "/metrics": self._serve_metrics,
            "/healthz": self._serve_health,
            "/readyz": self._serve_readiness,
        }
        if not any(getattr(route, "path", None) == "/" for route in routes):
            self._common["/"] = self._serve_index
        own = [getattr(route, "path", "") for route in routes]
        self._paths = [path for path in (*own, *self._common) if len(path) > 1 and "{" not in path]
        self.stopping = False
        self.failing: Callable[[], Sequence[str]] = tuple  # what the process itself knows to be down
        self.streams = Streams()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if self._name is not None and path != "/metrics":
            send = _named(send, self._name)
        if path not in _OPEN_PATHS and not await self._identified(scope, send):
            return
        common = self._common.get(path)
        if common is None:
            await self._serve_own(scope, receive, send)
        elif scope["method"] in {"GET", "HEAD"}:
            await self._guarded(common(scope, send), send)
        else:
            await _send_http_error(send, 405, headers=[(b"allow", b"GET, HEAD")], at=scope)

    async def _identified(self, scope: Scope, send: Send) -> bool:
        """Note the caller of the request, for all that follows; False if the request was rejected."""
        guard = self._guard
        try:
            if guard is not None:
                guard.limit()
            request = Request(scope)
            caller = await self._identity().caller(request) if self._identity else ANYONE
        except HTTPException as e:
            await _send_http_error(send, e.status_code, headers=_raw(e.headers))
            return False
        if caller.role is None and guard is not None and guard.guarded and not self._public(request):
            to_script = request.headers.get("sec-fetch-dest") == "empty"
            await _send_http_error(send, 401, headers=guard.challenges(to_script=to_script))
            return False
        scope["caller"] = caller
        return True

    async def _serve_metrics(self, scope: Scope, send: Send) -> None:
        if self._admit is not None:
            self._admit(Request(scope))
        check_scope(scope["caller"], METRICS)
        accept = encoding = b""
        for name, value in scope["headers"]:
            if name == b"accept":
                accept = accept + b"," + value if accept else value
            elif name == b"accept-encoding":
                encoding = encoding + b"," + value if encoding else value
        page = self._metrics()
        openmetrics, gzipped = bool(accept) and wants_openmetrics(accept), bool(encoding) and wants_gzip(encoding)
        headers = [(b"content-type", OPENMETRICS if openmetrics else TEXT), (b"vary", b"accept, accept-encoding")]
        if gzipped:
            headers.append((b"content-encoding", b"gzip"))
        if isinstance(page, LargePage):
            await _send_chunks(send, headers, *page.chunks(openmetrics=openmetrics, gzipped=gzipped))
        elif gzipped:
            await _send(send, 200, headers, page.gzipped(openmetrics))
        else:
            await _send(send, 200, headers, page.openmetrics() if openmetrics else page.text())

    async def _serve_health(self, scope: Scope, send: Send) -> None:  # noqa: ARG002 - one shape for all endpoints
        state = self._health() if self._health else Readiness()
        lines = ["ok" if state.ready else f"unhealthy: {', '.join(state.missing)}"]
        lines += [f"{name}: {word}" for name, word in state.facts]
        body = "".join(f"{line}\n" for line in lines).encode()
        headers = [(b"content-type", b"text/plain; charset=utf-8"), _NO_STORE]
        await _send(send, 200 if state.ready else 503, headers, body)

    async def _serve_readiness(self, scope: Scope, send: Send) -> None:  # noqa: ARG002 - one shape for all endpoints
        state = Readiness(missing=("stopping",) if self.stopping else (*self._ready().missing, *self.failing()))
        body = msgspec.json.encode({"ready": state.ready, "missing": state.missing})
        await _send(send, 200 if state.ready else 503, [(b"content-type", _JSON), _NO_STORE], body)

    async def _serve_index(self, scope: Scope, send: Send) -> None:  # noqa: ARG002
        await _send(send, 200, [(b"content-type", b"text/html; charset=utf-8")], self._index)

    async def _serve_own(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        scope["app"] = self  # makes the router raise for 404 and 405 instead of answering in its own way
        await self._guarded(self._own(scope, receive, watched), send, begun=lambda: begun, at=scope)

    async def _guarded(
        self, work: Any, send: Send, begun: Callable[[], bool] = lambda: False, at: Scope | None = None
    ) -> None:
        """Turn every error into one format; once an answer has begun, the server can only close the connection."""
        try:
            await work
        except ScopeError as e:
            if begun():
                raise
            await _send_error(send, e.status, code=e.code, message=str(e), hint=e.advice)
        except HTTPException as e:
            headers, detail = _raw(e.headers), e.detail
            await _send_http_error(send, e.status_code, headers=headers, message=detail, at=at, paths=self._paths)
        except ClientDisconnect:
            log.debug("the client disconnected before its request was complete")
        except Exception:
            if begun():
                raise
            log.exception("request failed", extra=fields(error_code=ScopeError.code))
            await _send_http_error(send, 500)


class HttpServer:
    """Serves an application on a bound socket until stop(); reloads TLS certificates and users while it runs."""

    def __init__(self, app: App, *, sock: socket.socket, guard: "Guard | None" = None) -> None:
        self._app = app
        self._sock = sock
        self._guard = guard
        self._inner = _Uvicorn(app, sock=sock, guard=guard)

    @property
    def url(self) -> str:
        """Its address as a URL for a browser on this machine."""
        place = address.shown(self._sock).replace("0.0.0.0:", "127.0.0.1:").replace("[::]:", "[::1]:")
        return f"http{'s' if self._guard and self._guard.web.tls else ''}://{place}"

    async def run(self) -> None:
        """Serve; returns after stop(), once the answers in progress are sent."""
        try:
            await self._inner.serve()
        finally:
            self._inner.close()
            self._sock.close()
            if self._guard:
                self._guard.close()

    def close(self) -> None:
        """Stop listening; run() does this too."""
        self._sock.close()

    async def started(self) -> None:
        """Wait until requests are answered."""
        await self._inner.listening.wait()

    def not_ready(self) -> None:
        """Answer /readyz with "not ready" from now on."""
        self._app.stopping = True

    def stop(self) -> None:
        """Let run() finish."""
        self.not_ready()
        self._app.streams.stopped.set()
        self._inner.should_exit = True
        self._inner.leaving.set()


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers, on a socket that we bound, with checks once a second."""

    def __init__(self, app: App, *, sock: socket.socket, guard: "Guard | None") -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=_Connection,
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=2,
                headers=[(k.decode(), v.decode()) for k, v in guard.web.headers] if guard else [],
            )
        )
        self._app, self._sock = app, sock
        self._guard = guard
        self.listening = asyncio.Event()
        self.leaving = asyncio.Event()
        self.servers: list[asyncio.base_events.Server] = []

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        await self._serve(sockets)  # serve() of the base class would take over SIGTERM and SIGINT

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 - ours is bound
        await self._listen()
        self.started = True
        self.listening.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            try:
                async with asyncio.timeout(1.0):
                    await self.leaving.wait()
            except TimeoutError:
                await self._look_around()

    def close(self) -> None:
        for server in self.servers:
            server.close()

    async def _look_around(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in list(self.server_state.connections):
            if isinstance(connection, _Connection):
                connection.judge(now)
        if self._guard and self._guard.refresh():
            self.config.encoded_headers = list(self._guard.web.headers)
            await self._listen()

    async def _listen(self) -> None:
        """Listen with the current TLS settings; the kernel's queue stays, so no connection is refused meanwhile."""
        before = self.servers
        tls = self._guard.web.tls if self._guard else None
        server = await asyncio.get_running_loop().create_server(
            self._connection,
            sock=self._sock.dup(),
            ssl=tls,
            backlog=address.BACKLOG,
            ssl_handshake_timeout=HANDSHAKE_WITHIN if tls else None,
            ssl_shutdown_timeout=2.0 if tls else None,
        )
        self.servers = [server]
        await _closed(before)

    def _connection(self) -> "_Connection":
        connection = _Connection(config=self.config, server_state=self.server_state, app_state={})
        connection.guard, connection.limits = self._guard, self._app.longest
        return connection


async def _closed(servers: Sequence[asyncio.base_events.Server]) -> None:
    """Close listeners, but not before the connections that they have accepted in this turn of the loop have begun.

    asyncio drops a connection whose server is closed in between, and its client waits for an answer until it gives up.
    """
    loop = asyncio.get_running_loop()
    for server in servers:
        for listening in server.sockets:
            loop.remove_reader(listening.fileno())
    await asyncio.sleep(0)
    for server in servers:
        server.close()


class _Connection(HttpToolsProtocol):
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
    _longest = LONGEST_REQUEST
    limits: Mapping[str, int] = {}  # of paths that accept more

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        others = [one for one in self.connections if isinstance(one, _Connection) and not one.transport.is_closing()]
        super().connection_made(transport)
        self._waiting_since = self._quiet_since = self.loop.time()
        self.peer = places.peer_of(self.client)
        if self._client_allowed():
            self._take_place(others)
        else:
            transport.abort()

    def _take_place(self, others: "Sequence[_Connection]") -> None:
        found = places.room(others, self.peer, most=MOST_CONNECTIONS, per_peer=PER_PEER, reserved=RESERVED)
        if found.close is not None:
            found.close.transport.abort()
        if found.reserved:
            self.reserved, self.app = True, _only_health(self.app)
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
        for begin in range(0, len(data), _SLICE):  # one packet can hold several requests, and up to 256 KiB
            part = data[begin : begin + _SLICE]
            self._received += len(part)
            super().data_received(part)
            if self._in_head and self._received > LONGEST_HEAD:
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
        if self._longest <= LONGEST_REQUEST:
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
        self._in_head, self._head, self._longest, self._announced = True, 0, LONGEST_REQUEST, 0

    def on_url(self, url: bytes) -> None:
        self._head += len(url)
        super().on_url(url)
        self._longest = self.limits.get(self.url.partition(b"?")[0].decode("latin-1"), LONGEST_REQUEST)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head += len(name) + len(value) + 4  # with ": " and the end of the line
        super().on_header(name, value)
        if name.lower() == b"content-length" and value.isdigit():  # the parser rejects other values
            self._announced = int(value[:20])

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._head > LONGEST_HEAD:
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
        late_request = self._waiting_since is not None and now - self._waiting_since > REQUEST_WITHIN
        late_answer = self._sending_since is not None and now - self._sending_since > RESPONSE_WITHIN
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


def _only_health(app: ASGIApp) -> ASGIApp:
    """The application for a reserved place: it answers one health check, and asks others to come again."""

    async def health(scope: Scope, receive: Receive, send: Send) -> None:
        send = _named(send, (b"connection", b"close"))
        if scope["path"] in _OPEN_PATHS:
            await app(scope, receive, send)
        else:
            await _send_http_error(send, 503, headers=[(b"retry-after", b"1")])

    return health


_NO_STORE = (b"cache-control", b"no-store")


def _raw(headers: Mapping[str, str] | None) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()]


async def _send(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _named(send: Send, name: tuple[bytes, bytes]) -> Send:
    """A `send` that adds one header to the answer."""

    async def named(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), name]
        await send(message)

    return named


async def _send_chunks(
    send: Send, headers: list[tuple[bytes, bytes]], length: int | None, chunks: Iterator[bytes]
) -> None:
    """Send chunks while they are rendered: other requests run between two chunks, and at most one chunk waits.

    With a known length, chunks need no framing, which would copy each of them once more.
    """
    if length is not None:
        headers = [*headers, (b"content-length", b"%d" % length)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for chunk in chunks:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_error(
    send: Send,
    status: int,
    *,
    code: str,
    message: str,
    hint: str,
    headers: Sequence[tuple[bytes, bytes]] = (),
) -> None:
    await _send(send, status, [(b"content-type", _JSON), *headers], error_body(code, message, hint))


async def _send_http_error(
    send: Send,
    status: int,
    *,
    headers: Sequence[tuple[bytes, bytes]] = (),
    message: str = "",
    at: Scope | None = None,
    paths: Sequence[str] = (),
) -> None:
    """`at` is the request, for errors that depend on it; `paths` are the served paths."""
    code, usual, hint = HTTP_ERRORS.get(status, (f"HTTP_{status}", message, ""))
    if at is not None and status == 404:
        usual = f"nothing is served under {at['path'][:80]!r}"
        hint = sentences(nearest(at["path"], paths), hint)
    elif at is not None and status == 405:
        usual = f"{at['method'][:20]} is not allowed for {at['path'][:80]!r}"
        allowed = dict(headers).get(b"allow", b"").decode().split(", ")  # in any order
        hint = f"Allowed: {', '.join(sorted(allowed))}."
    await _send_error(send, status, code=code, message=usual or message, hint=hint, headers=headers)


def _index(title: str, links: Sequence[tuple[str, str]]) -> bytes:
    known = [
        ("metrics", "what Prometheus scrapes"),
        ("healthz", "this process is alive"),
        ("readyz", "this process does its work"),
    ]
    rows = "".join(
        f'<li><a href="{html.escape(path.lstrip("/"))}">/{html.escape(path.lstrip("/"))}</a> {html.escape(what)}</li>'
        for path, what in (*links, *known)
    )
    name = html.escape(title)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{name}</title>'
        '<meta name="viewport" content="width=device-width"><style>body{font:16px/1.6 system-ui,sans-serif;'
        "max-width:40rem;margin:3rem auto;padding:0 1rem;color-scheme:light dark}a{font-family:monospace}</style>"
        f"<h1>{name}</h1><p>vgpuscope {__version__}</p><ul>{rows}</ul></html>\n"
    ).encode()
