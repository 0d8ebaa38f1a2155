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
from starlette.types import Receive, Scope, Send

from vgpuscope.http.answer_limits import COMPRESS_FROM, GZIP_LEVEL, KEPT_BYTES, OFF_LOOP_FROM, PIECE
from vgpuscope.http.negotiation import wants_gzip

JSON = "application/json"
CSV = "text/csv"
_TEXT_KINDS = ("text/", JSON, "application/javascript")


class Content(Struct, frozen=True, kw_only=True):
    """A body as bytes, with the values for its headers."""

    body: bytes
    media: str = JSON
    headers: Mapping[str, str] = {}
    gzipped: bytes = b""  # the body compressed, if this was done in advance


class HttpAnswer(Struct, frozen=True, kw_only=True):
    """The answer of a handler that does more than return a value to be sent as JSON.

    `make` returns the content. It runs in a thread, and only if the client does not have the answer already. With
    `version`, this is known before `make` runs: the same version and the same request give the same answer.
    """

    make: Callable[[], Content]
    version: object = None  # None: the content itself is hashed
    headers: Mapping[str, str] = {}
    kept: "KeptAnswers | None" = None  # with a version: the answer is made once, however many clients ask for it
    ended: Callable[[], None] | None = None  # called once, when the answer is sent or cannot be


class KeptAnswers:
    """Finished answers of one process, compressed where asked: the newest ones, up to a number of bytes."""

    def __init__(self, most: int = KEPT_BYTES) -> None:
        self._most, self._size = most, 0
        self._found: dict[tuple[str, str], asyncio.Task[Content]] = {}

    async def content(self, path: str, tag: str, make: Callable[[], Content]) -> Content:
        """The answer under an ETag; callers who ask for it at once wait for the same one."""
        key = (path, tag)
        task = self._found.pop(key, None)
        if task is None:
            task = asyncio.create_task(self._made(key, make), name=f"answer {path}")
        self._found[key] = task  # the last one that was asked for is the last one to be dropped
        return await asyncio.shield(task)

    async def _made(self, key: tuple[str, str], make: Callable[[], Content]) -> Content:
        try:
            content = await asyncio.to_thread(make)
        except BaseException:
            self._found.pop(key, None)
            raise
        self._size += len(content.body)
        self._drop()
        return content

    def _drop(self) -> None:
        for key, task in tuple(self._found.items()):
            if self._size <= self._most:
                return
            if task.done():
                del self._found[key]
                self._size -= len(task.result().body)


def json_content(value: Any, **headers: str) -> Content:
    """A value as JSON."""
    return Content(body=msgspec.json.encode(value), headers=headers)


async def respond(request: Request, answer: Any, *, asked: object, status: int, headers: Mapping[str, str]) -> Response:
    """The response to a request. `asked` is everything besides the version that the answer depends on."""
    ended = answer.ended if isinstance(answer, HttpAnswer) else None
    try:
        made = await _made(request, answer, asked=asked, status=status, headers=headers)
    except BaseException:
        if ended is not None:
            ended()
        raise
    return made if ended is None else _Piecewise(made, ended)


class _Piecewise(Response):
    """Sends a body piece by piece, each when the client has received the one before, and tells when it is sent."""

    def __init__(self, made: Response, ended: Callable[[], None]) -> None:
        self.status_code, self.background, self.body = made.status_code, None, made.body
        self.raw_headers, self._ended = made.raw_headers, ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for at in range(0, len(self.body), PIECE):
                piece = self.body[at : at + PIECE]
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._ended()


async def _made(request: Request, answer: Any, *, asked: object, status: int, headers: Mapping[str, str]) -> Response:
    gzip = wants_gzip(request.headers.get("accept-encoding", "").encode("latin-1"))
    known = _Known(request, status)
    common = {"vary": "accept, accept-encoding", "cache-control": "no-cache", **headers}
    if not isinstance(answer, HttpAnswer):
        content = answer if isinstance(answer, Content) else json_content(answer)
        return await _off_loop(len(content.body), lambda: _response(content, known, gzip=gzip, headers=common))
    common |= answer.headers
    may_be_tagged = known.may_be_tagged and common["cache-control"] != "no-store"
    versioned = may_be_tagged and answer.version is not None
    tag = _tag(repr((answer.version, asked)).encode(), gzip=gzip) if versioned else ""
    if tag and known.has(tag):
        return Response(status_code=304, headers={**common, "etag": tag})
    if tag and answer.kept is not None:
        content = await answer.kept.content(request.url.path, tag, lambda: _packed(answer.make(), gzip=gzip))
        return Response(
            content.body,
            status_code=status,
            media_type=content.media,
            headers={**common, **content.headers, "etag": tag},
        )
    return await asyncio.to_thread(lambda: _response(answer.make(), known, gzip=gzip, headers=common, tag=tag))


class _Known(Struct, frozen=True):
    """The ETags that the client already has."""

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
        body = content.gzipped or compressed(body)
        found["content-encoding"] = "gzip"
    return Response(body, status_code=known.status, media_type=content.media, headers=found)


def _packed(content: Content, *, gzip: bool) -> Content:
    """The content as it is sent."""
    if not gzip or len(content.body) < COMPRESS_FROM or not content.media.startswith(_TEXT_KINDS):
        return content
    headers = {**content.headers, "content-encoding": "gzip"}
    return Content(body=compressed(content.body), media=content.media, headers=headers)


def compressed(body: bytes) -> bytes:
    """The body as gzip, without a time in the header, so that equal bodies stay equal."""
    packer = zlib.compressobj(GZIP_LEVEL, wbits=31)
    return packer.compress(body) + packer.flush()


def _tag(content: bytes, *, gzip: bool) -> str:
    """A strong ETag. The compressed form is a different sequence of bytes, so it has a different ETag."""
    return f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}{"-gzip" if gzip else ""}"'
