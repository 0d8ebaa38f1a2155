"""Answers as ASGI messages: whole, in chunks, and errors in one format."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence

from starlette.types import Message, Scope, Send

from vgpuscope.http.error_body import error_body
from vgpuscope.model.wording import nearest, sentences

JSON = b"application/json"
HTTP_ERRORS = {  # status → code, message, hint
    400: ("REQUEST_MALFORMED", "the request is not valid HTTP/1.1", "Check the method, the path and the headers."),
    401: (
        "UNAUTHORIZED",
        "credentials are missing or wrong",
        "Send a token, or a user and password, that this service knows; docs/security.md lists all ways.",
    ),
    404: ("NOT_FOUND", "nothing is served under this path", "/docs or /openapi.json lists all paths."),
    405: ("METHOD_NOT_ALLOWED", "this method is not allowed for this path", "The allow header lists those that are."),
    421: (
        "MISDIRECTED",
        "this listener is for this machine, and the request names another host",
        "Use localhost or an address, or list the name in the setting `hosts` of this service.",
    ),
    429: ("TOO_MANY_REQUESTS", "too many requests at once, or within a short time", "Retry-After says when to retry."),
    431: ("HEADERS_TOO_LARGE", "path and headers are larger than 64 KiB", "Send fewer or shorter headers and cookies."),
    500: ("INTERNAL", "a promise of our own code was broken", "Please report it with the log."),
    503: ("BUSY", "all connections are in use; only health checks are answered", "Retry-After says when to retry."),
}
NO_STORE = (b"cache-control", b"no-store")


def raw(headers: Mapping[str, str] | None) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()]


async def send_whole(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def with_header(send: Send, name: tuple[bytes, bytes]) -> Send:
    """A `send` that adds one header to the answer."""

    async def named(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), name]
        await send(message)

    return named


async def send_chunks(
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


async def send_error(
    send: Send,
    status: int,
    *,
    code: str,
    message: str,
    hint: str,
    headers: Sequence[tuple[bytes, bytes]] = (),
) -> None:
    await send_whole(send, status, [(b"content-type", JSON), *headers], error_body(code, message, hint))


async def send_http_error(
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
        listing = next((one for one in ("/docs", "/openapi.json") if one in paths), "/")
        hint = sentences(nearest(at["path"], paths), f"{listing} lists all paths.")
    elif at is not None and status == 401:
        sent = any(name == b"authorization" for name, _ in at["headers"])
        usual = "the credentials are wrong" if sent else "credentials are missing"
    elif at is not None and status == 405:
        usual = f"{at['method'][:20]} is not allowed for {at['path'][:80]!r}"
        allowed = b", ".join(sorted(dict(headers).get(b"allow", b"").split(b", ")))  # the router has no order
        headers = [(b"allow", allowed), *(one for one in headers if one[0] != b"allow")]
        hint = f"Allowed: {allowed.decode()}."
    elif (seconds := dict(headers).get(b"retry-after")) is not None:
        hint = f"Retry after {seconds.decode()} s."
    await send_error(send, status, code=code, message=usual or message, hint=hint, headers=headers)
