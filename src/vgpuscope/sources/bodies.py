"""Bodies of answers that other parties send: bounded in size, in a requested encoding, and unpacked in short steps.

A few kilobytes of gzip can become gigabytes. So the client of the HTTP library never unpacks: the bodies are read as
they were sent, and unpacked here, with time for other tasks in between.
"""

import asyncio
import zlib
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx2

_STEP = 16 * 1024  # bytes unpacked at a time: the data after a gzip member is copied for each member
_PIECE = 256 * 1024  # bytes that one step may give


class BodyRefused(Exception):
    """The body is too large, has an encoding that was not requested, or does not match its encoding."""


def encoding_of(answer: "httpx2.Response", *requested: str) -> str:
    """The content encoding of an answer, empty if it has none; BodyRefused if it was not requested."""
    encoding: str = answer.headers.get("content-encoding", "").strip().lower()
    if encoding in {"", "identity"}:
        return ""
    if encoding not in requested:
        raise BodyRefused(f"the answer has the content encoding {encoding[:80]}, which was not requested")
    return encoding


async def sent_body(answer: "httpx2.Response", *, most: int, took: Callable[[int], None] = lambda _: None) -> bytes:
    """The whole body as it was sent; BodyRefused if it is larger than `most`. `took` is called for each chunk."""
    read = BytesIO()  # takes half the memory of joining a list of chunks
    async for chunk in answer.aiter_raw():
        took(len(chunk))
        read.write(chunk)
        if read.tell() > most:
            raise too_large(most)
    return read.getvalue()


async def plain_body(answer: "httpx2.Response", *, most: int) -> bytes:
    """The whole body of an answer to a request that accepts gzip; BodyRefused if it is larger than `most`."""
    encoding = encoding_of(answer, "gzip")
    body = await sent_body(answer, most=most)
    return await unpacked(body, most=most) if encoding else body


async def unpacked(body: bytes, *, most: int) -> bytes:
    """The body without gzip; BodyRefused if it is larger than `most`, cut off or not gzip."""
    read = BytesIO()
    for piece in _pieces(body):
        read.write(piece)
        if read.tell() > most:
            raise too_large(most)
        await asyncio.sleep(0)
    return read.getvalue()


def unpacked_at_once(body: bytes, *, most: int) -> bytes:
    """The same without giving other tasks a turn, for a thread."""
    read = BytesIO()
    for piece in _pieces(body):
        read.write(piece)
        if read.tell() > most:
            raise too_large(most)
    return read.getvalue()


def too_large(most: int) -> BodyRefused:
    return BodyRefused(f"the answer is larger than {most / 2**20:g} MiB")


def _pieces(body: bytes) -> Iterator[bytes]:
    """Unpacks member by member: our own large pages have several members. A piece may be empty."""
    member = zlib.decompressobj(zlib.MAX_WBITS | 16)
    for at in range(0, len(body), _STEP):
        chunk = body[at : at + _STEP]
        while chunk:
            if member.eof:
                member = zlib.decompressobj(zlib.MAX_WBITS | 16)
            try:
                piece = member.decompress(chunk, _PIECE)
            except zlib.error as e:
                raise BodyRefused(f"the answer does not match its content encoding: {e}") from e
            chunk = member.unused_data or member.unconsumed_tail
            yield piece
    if not member.eof:
        raise BodyRefused("the answer was cut off")
