"""A small HTTP server and client for what the demo simulates: one request for each connection, JSON both ways."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec

_LONGEST_HEAD = 16 * 1024
_LONGEST_BODY = 4 * 1024 * 1024
_WITHIN = 10.0  # seconds


class Asked(NamedTuple):
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]  # names in lower case
    body: bytes


class Answer(NamedTuple):
    """A status, and what is sent as JSON."""

    status: int
    content: Any


@contextlib.asynccontextmanager
async def serve(answer: Callable[[Asked], Answer], port: int = 0) -> AsyncIterator[str]:
    """Serves while the block runs; yields the address."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _connected(answer, reader, writer)

    server = await asyncio.start_server(connected, "127.0.0.1", port, limit=_LONGEST_HEAD)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


async def ask(port: int, path: str, content: Any, *, within: float = _WITHIN) -> Answer:
    """Posts to a service on this machine; OSError or TimeoutError without an answer, ValueError if it is not JSON."""
    async with asyncio.timeout(within):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            body = msgspec.json.encode(content)
            head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
            head_bytes, _, answer = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
    status = head_bytes.split(b" ", 2)[1:2]
    if not status:
        raise OSError("the connection was closed without an answer")
    return Answer(int(status[0]), msgspec.json.decode(answer))


async def _connected(
    answer: Callable[[Asked], Answer], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        async with asyncio.timeout(_WITHIN):
            asked = await _read(reader)
            found = Answer(400, {"error": "not an HTTP request"}) if asked is None else answer(asked)
            body = msgspec.json.encode(found.content)
            head = f"HTTP/1.1 {found.status} {HTTPStatus(found.status).phrase}\r\nContent-Type: application/json\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
            await writer.drain()
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass  # the client has gone, or sent too much
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
    words = first.split(" ")
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    length = headers.get("content-length", "0")
    if len(words) != 3 or not length.isdigit() or int(length) > _LONGEST_BODY:
        return None
    return Asked(words[0], words[1].partition("?")[0], headers, await reader.readexactly(int(length)))
