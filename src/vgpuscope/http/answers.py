"""Answers of operations: a value → JSON or a table, with an ETag, compressed on request, or 304 without a body."""

import asyncio
import hashlib
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from vgpuscope.http.answer_limits import COMPRESS_FROM, GZIP_LEVEL, OFF_LOOP_FROM
from vgpuscope.http.negotiation import wants_gzip

JSON = "application/json"
CSV = "text/csv"
_TEXT_KINDS = ("text/", JSON, "application/javascript")


class Content(Struct, frozen=True, kw_only=True):
    """A body as bytes, with what the headers say of it."""

    body: bytes
    media: str = JSON
    headers: Mapping[str, str] = {}


class Answer(Struct, frozen=True, kw_only=True):
    """What a handler answers, if not just a value that is sent as JSON.

    `make` gives the content; it runs in a thread, and only when the client does not have the answer already. That is
    known before if `version` is given: the same version and the same question make the same answer.
    """

    make: Callable[[], Content]
    version: object = None  # None: the content itself is hashed
    headers: Mapping[str, str] = {}


def json_content(value: Any, **headers: str) -> Content:
    """A value as JSON."""
    return Content(body=msgspec.json.encode(value), headers=headers)


async def respond(request: Request, answer: Any, *, asked: object, status: int, headers: Mapping[str, str]) -> Response:
    """The response to a request. `asked` is all that the answer depends on besides its version."""
    gzip = wants_gzip(request.headers.get("accept-encoding", "").encode("latin-1"))
    known = _Known(request, status)
    common = {"vary": "accept, accept-encoding", "cache-control": "no-cache", **headers}
    if not isinstance(answer, Answer):
        content = answer if isinstance(answer, Content) else json_content(answer)
        return await _off_loop(len(content.body), lambda: _response(content, known, gzip=gzip, headers=common))
    common |= answer.headers
    tag = _tag(repr((answer.version, asked)).encode(), gzip=gzip) if answer.version is not None else ""
    if tag and known.has(tag):
        return Response(status_code=304, headers={**common, "etag": tag})
    return await asyncio.to_thread(lambda: _response(answer.make(), known, gzip=gzip, headers=common, tag=tag))


class _Known(Struct, frozen=True):
    """What the client has already."""

    request: Request
    status: int

    @property
    def may_be_tagged(self) -> bool:
        return self.request.method in {"GET", "HEAD"}

    def has(self, tag: str) -> bool:
        given = self.request.headers.get("if-none-match", "")
        return any(one.strip().removeprefix("W/") in {tag, "*"} for one in given.split(","))


async def _off_loop(size: int, make: Callable[[], Response]) -> Response:
    return make() if size < OFF_LOOP_FROM else await asyncio.to_thread(make)


def _response(content: Content, known: _Known, *, gzip: bool, headers: Mapping[str, str], tag: str = "") -> Response:
    found = {**headers, **content.headers}
    if known.may_be_tagged and found["cache-control"] != "no-store":
        found["etag"] = tag = tag or _tag(content.body, gzip=gzip)
        if known.has(tag):
            return Response(status_code=304, headers=found)
    body = content.body
    if gzip and len(body) >= COMPRESS_FROM and content.media.startswith(_TEXT_KINDS):
        body = compressed(body)
        found["content-encoding"] = "gzip"
    return Response(body, status_code=known.status, media_type=content.media, headers=found)


def compressed(body: bytes) -> bytes:
    """The same as gzip, without a time in its header: equal bodies stay equal."""
    packer = zlib.compressobj(GZIP_LEVEL, wbits=31)
    return packer.compress(body) + packer.flush()


def _tag(content: bytes, *, gzip: bool) -> str:
    """A strong tag: the compressed form of an answer is another sequence of bytes, and so has another tag."""
    return f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}{"-gzip" if gzip else ""}"'
