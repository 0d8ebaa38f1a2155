"""The page that shows an API and lets a browser try it: Swagger UI 5.34.1 from the package, no external files."""

import html
from collections.abc import Callable
from importlib.resources import files
from typing import Any

from vgpuscope.http.answers import Content, HttpAnswer
from vgpuscope.http.openapi import described
from vgpuscope.http.operations import HttpCall, Operation
from vgpuscope.http.parameters import NoQuery

_SCRIPT, _STYLE = "application/javascript", "text/css"
_ASSETS = {"swagger-ui-bundle.js": _SCRIPT, "docs.js": _SCRIPT, "swagger-ui.css": _STYLE}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {"content-security-policy": _POLICY, "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}: API</title>
<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="docs/swagger-ui.css">
<link rel="icon" href="data:,"><body data-document="openapi.json">
<div id="docs"><h1>{title}</h1><p>The same as a <a href="openapi.json">document</a> for programs.</p></div>
<script src="docs/swagger-ui-bundle.js"></script><script src="docs/docs.js"></script></body></html>
"""


def operations(*, title: str, document: Callable[[], bytes]) -> tuple[Operation, ...]:
    """`/openapi.json`, `/docs` and the files of that page. They need no role: they show no data."""
    page = Content(body=_PAGE.format(title=html.escape(title)).encode(), media="text/html", headers=_HEADERS)
    assets = [_row(f"/docs/{name}", name, _asset(name), media, hidden=True) for name, media in _ASSETS.items()]
    return (
        described(document),
        _row("/docs", "this API for people: read it and try it", lambda: page, "text/html"),
        *assets,
    )


def _row(path: str, summary: str, make: Callable[[], Content], media: str, **more: Any) -> Operation:
    async def handler(call: HttpCall[NoQuery, None]) -> HttpAnswer:  # noqa: ARG001 - the same for every caller
        return HttpAnswer(make=make)

    return Operation(
        method="GET", path=path, summary=summary, handler=handler, media=(media,), access="guarded", **more
    )


def _asset(name: str) -> Callable[[], Content]:
    """A file of the package, read for each request: requests are rare, and browsers cache it."""
    file = files("vgpuscope.http").joinpath("assets", name)
    return lambda: Content(body=file.read_bytes(), media=_ASSETS[name], headers={"x-content-type-options": "nosniff"})
