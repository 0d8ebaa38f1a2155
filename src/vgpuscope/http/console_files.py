"""The web console under /ui/: files that `make console` built into the package. They hold no data, so they are public.

Every page of the console is index.html: the browser decides by the path what to show. Its <base> is written for the
depth of the path, relative, so that the console works behind any path prefix of a proxy.
"""

import gzip
import html
import mimetypes
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TypeAlias

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from vgpuscope.http.answers import JSON, Content, HttpAnswer, respond
from vgpuscope.http.negotiation import prefers
from vgpuscope.model.caller import ANYONE
from vgpuscope.model.errors import Unknown

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'self'; form-action 'self'; frame-ancestors 'self'"
)
_SAFE = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
_FOREVER = "public, max-age=31536000, immutable"  # names of built files hold a hash of their content
_BASE = b'<base href="./" />'
_EARLY = re.compile(rb'\s*<link rel="preload" as="fetch"[^>]*>')
_HASHED = "assets/"
_NOT_BUILT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>vgpuscope: console not built</title>
<h1>The console was not built into this installation</h1>
<p>{why}</p>
<p>Build it in a clone of the repository, then restart the analyzer:</p><pre>make console</pre>
<p>The API works without it: <a href="{up}docs">API</a>, <a href="{up}results">results</a>.</p></html>
"""
_WHY = "When vgpuscope was installed, no Node.js of version 20.19 or newer was found to build it with."


def with_console(routes: Iterable[Route]) -> list[Route]:
    """The routes of an API and those of the console. A browser that asks for / is sent to the console."""
    own = [Route("/", _for_browsers(one), methods=["GET"]) if one.path == "/" else one for one in routes]
    console = [Route("/ui", _to_console, methods=["GET"]), Route("/ui/{path:path}", _file_or_page, methods=["GET"])]
    return [*own, *console]


def wants_page(request: Request) -> bool:
    """Whether a browser asks, and not a program."""
    return prefers(request.headers.get("accept", ""), "text/html", over=JSON)


def is_console(request: Request) -> bool:
    """Whether a request is for the console's files."""
    path = request.url.path
    return path == "/ui" or path.startswith("/ui/") or (path == "/" and wants_page(request))


def _for_browsers(route: Route) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        if wants_page(request):
            return await _to_console(request)
        response: Response = await route.endpoint(request)
        response.headers["vary"] = "accept, accept-encoding"
        return response

    return endpoint


async def _to_console(request: Request) -> Response:  # noqa: ARG001
    """Relative, so that a path prefix stays."""
    return RedirectResponse("ui/", status_code=302, headers={"cache-control": "no-cache", "vary": "accept"})


async def _file_or_page(request: Request) -> Response:
    path = request.path_params["path"]
    found = _files().get(path)
    if found is None and path.startswith(_HASHED):
        raise Unknown(f"the console has no file {path[:80]!r}", hint="Reload the page: the console was updated.")
    early = not request.url.query and request.scope.get("caller", ANYONE).may("read")
    made = HttpAnswer(make=lambda: page(path, early=early) if found is None else _file(path, found))
    return await respond(request, made, asked=path, status=200, headers={})


def page(path: str, *, early: bool = False) -> Content:
    """index.html for a path below /ui/, or the reason why there is none.

    `early`: the browser may ask for the data of the first page while it still loads the program. Nobody is made to ask
    for what would be refused.
    """
    up = "../" * path.count("/")
    index = _files().get("index.html")
    if index is None:
        body = _NOT_BUILT.format(why=html.escape(_WHY), up=f"{up}../").encode()
    else:
        body = index.read_bytes().replace(_BASE, f'<base href="{up or "./"}" />'.encode(), 1)
        if path or not early:
            body = _EARLY.sub(b"", body)
    return Content(body=body, media="text/html", headers=_SAFE)


@cache
def _files() -> Mapping[str, Traversable]:
    """Every built file by its path; empty: the console was not built."""
    root = files("vgpuscope.http").joinpath("assets", "console")
    return dict(_walk(root, "")) if root.is_dir() else {}


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, Traversable]]:
    found: list[tuple[str, Traversable]] = []
    for one in folder.iterdir():
        path = f"{prefix}{one.name}"
        found += _walk(one, f"{path}/") if one.is_dir() else [(path, one)]
    return found


def _file(path: str, found: Traversable) -> Content:
    media = {".js": "application/javascript"}.get(path[path.rfind(".") :]) or mimetypes.guess_type(path)[0]
    headers = {"x-content-type-options": "nosniff"}
    if path.startswith(_HASHED):
        headers["cache-control"] = _FOREVER
    body = found.read_bytes()
    return Content(body=body, media=media or "application/octet-stream", headers=headers, gzipped=_gzipped(body))


@cache
def _gzipped(body: bytes) -> bytes:
    """A built file is compressed once, as small as can be."""
    return gzip.compress(body, mtime=0)
