"""A server on loopback that answers each connection once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

Answer = tuple[int, str, bytes]  # status, further header lines, body


@asynccontextmanager
async def answering(answer: Callable[[str], Answer]) -> AsyncIterator[str]:
    """The address of a server that answers the head of each request as the function says."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        status, headers, body = answer((await reader.readuntil(b"\r\n\r\n")).decode())
        head = f"HTTP/1.1 {status} X\r\n{headers}content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
