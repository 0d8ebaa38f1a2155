"""The ASGI application of every service: /metrics, /healthz, /readyz, its own routes, one format of errors.

A scrape sends bytes that are ready: nothing is computed, and no middleware runs.
"""

import asyncio
import html
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.routing import BaseRoute, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vgpuscope.http.browser import under_a_name_of, under_foreign_name
from vgpuscope.http.events import Streams
from vgpuscope.http.negotiation import wants_gzip, wants_openmetrics
from vgpuscope.http.openapi import COMMON, METRICS, ReadyBody
from vgpuscope.http.operations import check_scope
from vgpuscope.http.scrapes import ScrapeTally
from vgpuscope.http.sending import (
    JSON,
    NO_STORE,
    raw,
    send_chunks,
    send_error,
    send_http_error,
    send_whole,
    with_header,
)
from vgpuscope.model.caller import ANYONE, NOBODY
from vgpuscope.model.errors import ScopeError
from vgpuscope.model.service import CREDENTIALS_HEADER, HEADER, UNCHECKED, ServiceName
from vgpuscope.runtime.log import fields
from vgpuscope.version import __version__

if TYPE_CHECKING:  # an agent without a web configuration needs neither
    from vgpuscope.http.guard import Guard
    from vgpuscope.http.identity import Identity

log = logging.getLogger(__name__)

TEXT = b"text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = b"application/openmetrics-text; version=1.0.0; charset=utf-8"

_OPEN_PATHS = frozenset(one.path for one in COMMON if one.access == "open")


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


class App:
    """Dispatches requests: common paths by a table, others by the service's routes. Every error has the same format."""

    def __init__(
        self,
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
    ) -> None:
        """The common paths, and a service's own routes with their links on the index page.

        `admit` raises for callers that may not read /metrics; routes check callers themselves. `identity` returns the
        current ways of identification, if there are more than the guard's. `public` says which requests show no data
        and need no credentials. `service` is the name that the process reports, for clients that connected to the
        wrong service. `health` returns why this process should be restarted, if it can tell. `longest` has the bytes
        of a request for paths that accept more than others.
        """
        self.name = (HEADER.encode(), service.encode()) if service else None
        self._metrics, self._ready, self._guard, self._admit = metrics, ready, guard, admit
        self._identity, self._public = identity or (guard.identity if guard else None), public
        self._index = _index(title, links)
        self._own = Router(routes, redirect_slashes=False)
        self._health, self.longest = health, longest or {}
        self._common = {
            "/metrics": self._serve_metrics,
            "/healthz": self._serve_health,
            "/readyz": self._serve_readiness,
        }
        if not any(getattr(route, "path", None) == "/" for route in routes):
            self._common["/"] = self._serve_index
        own = [getattr(route, "path", "") for route in routes]
        self._paths = [path for path in (*own, *self._common) if len(path) > 1 and "{" not in path]
        self.only_local = False  # whether the listener can be reached from this machine only
        self.hosts: Sequence[str] = ()  # names under which requests without credentials are answered; (): see above
        self.stopping = False
        self.failing: Callable[[], Sequence[str]] = tuple  # what the process itself knows to be down
        self.streams = Streams()
        self.scrapes = ScrapeTally()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if self.name is not None and path != "/metrics":
            send = with_header(send, self.name)
        if path not in _OPEN_PATHS and not await self._identified(scope, send):
            return
        if path != "/metrics" and self._unchecked(scope):
            send = with_header(send, (CREDENTIALS_HEADER.encode(), UNCHECKED.encode()))
        common = self._common.get(path)
        if common is None:
            await self._serve_own(scope, receive, send)
        elif scope["method"] in {"GET", "HEAD"}:
            await self._guarded(common(scope, send), send)
        else:
            await send_http_error(send, 405, headers=[(b"allow", b"GET, HEAD")], at=scope)

    async def _identified(self, scope: Scope, send: Send) -> bool:
        """Note the caller of the request, for all that follows; False if the request was rejected."""
        guard = self._guard
        try:
            if guard is not None:
                guard.limit()
            request = Request(scope)
            identity = self._identity() if self._identity else None
            caller = await identity.caller(request) if identity else ANYONE
        except HTTPException as e:
            await send_http_error(send, e.status_code, headers=raw(e.headers))
            return False
        except Exception:
            log.exception("a caller could not be identified", extra=fields(error_code=ScopeError.code))
            await send_http_error(send, 500)
            return False
        named_only = caller == ANYONE or (identity is not None and identity.named_only(request))
        if named_only and self._misdirected(request):
            await send_http_error(send, 421)
            return False
        if caller.role is None and guard is not None and guard.guarded and not self._public(request):
            to_script = request.headers.get("sec-fetch-dest") == "empty"
            await send_http_error(send, 401, headers=guard.challenges(to_script=to_script), at=scope)
            return False
        unknown = caller in (ANYONE, NOBODY) and not self._public(request)
        if (
            unknown and scope["path"] != "/metrics" and identity and identity.refuses(request)
        ):  # Prometheus sends one to all targets
            await send_http_error(send, 401, headers=[(b"www-authenticate", b'Bearer realm="vgpuscope"')], at=scope)
            return False
        scope["caller"] = caller
        return True

    def _misdirected(self, request: Request) -> bool:
        """Whether a request may come from a page that has given its own name the address of this listener."""
        checked = self.only_local or bool(self.hosts)
        return checked and under_foreign_name(request) and not under_a_name_of(request, self.hosts)

    def _unchecked(self, scope: Scope) -> bool:
        """Whether the request sends credentials of a kind that nothing here is compared with."""
        request = Request(scope)
        return "authorization" in request.headers and not (self._identity and self._identity().checks(request))

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
        began, page = time.perf_counter(), self._metrics()
        openmetrics, gzipped = bool(accept) and wants_openmetrics(accept), bool(encoding) and wants_gzip(encoding)
        headers = [(b"content-type", OPENMETRICS if openmetrics else TEXT), (b"vary", b"accept, accept-encoding")]
        if gzipped:
            headers.append((b"content-encoding", b"gzip"))
        if isinstance(page, LargePage):
            await send_chunks(send, headers, *page.chunks(openmetrics=openmetrics, gzipped=gzipped))
            return
        body = page.gzipped(openmetrics) if gzipped else page.openmetrics() if openmetrics else page.text()
        await send_whole(send, 200, headers, body)
        self.scrapes.add(len(body), time.perf_counter() - began)

    async def _serve_health(self, scope: Scope, send: Send) -> None:  # noqa: ARG002 - one shape for all endpoints
        state = self._health() if self._health else Readiness()
        lines = ["ok" if state.ready else f"unhealthy: {', '.join(state.missing)}"]
        lines += [f"{name}: {word}" for name, word in state.facts]
        body = "".join(f"{line}\n" for line in lines).encode()
        headers = [(b"content-type", b"text/plain; charset=utf-8"), NO_STORE]
        await send_whole(send, 200 if state.ready else 503, headers, body)

    async def _serve_readiness(self, scope: Scope, send: Send) -> None:  # noqa: ARG002 - one shape for all endpoints
        state = Readiness(missing=("stopping",) if self.stopping else (*self._ready().missing, *self.failing()))
        body = msgspec.json.encode(ReadyBody(state.ready, state.missing))
        await send_whole(send, 200 if state.ready else 503, [(b"content-type", JSON), NO_STORE], body)

    async def _serve_index(self, scope: Scope, send: Send) -> None:  # noqa: ARG002
        await send_whole(send, 200, [(b"content-type", b"text/html; charset=utf-8")], self._index)

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
            await send_error(send, e.status, code=e.code, message=str(e), hint=e.advice)
        except HTTPException as e:
            headers, detail = raw(e.headers), e.detail
            await send_http_error(send, e.status_code, headers=headers, message=detail, at=at, paths=self._paths)
        except ClientDisconnect:
            log.debug("the client disconnected before its request was complete")
        except (Exception, asyncio.CancelledError) as e:
            if begun() or _ends_the_request(e):
                raise
            log.exception("request failed", extra=fields(error_code=ScopeError.code))
            await send_http_error(send, 500)


def _ends_the_request(error: BaseException) -> bool:
    """Whether this is the cancellation of the request itself, and not of something that its handler waits for."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling() > 0)


def only_health(app: ASGIApp) -> ASGIApp:
    """The application for a reserved place: it answers one health check, and asks others to come again."""

    async def health(scope: Scope, receive: Receive, send: Send) -> None:
        send = with_header(send, (b"connection", b"close"))
        if scope["path"] in _OPEN_PATHS:
            await app(scope, receive, send)
        else:
            await send_http_error(send, 503, headers=[(b"retry-after", b"1")])

    return health


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
