"""A proxy that refuses, and tells what it was asked."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def refusing_proxy(status: int) -> AsyncIterator[tuple[str, asyncio.Future[str]]]:
    """Its URL, and the first line of the first request."""
    asked: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set_result((await reader.readline()).decode())
        writer.write(b"HTTP/1.1 %d no\r\nContent-Length: 0\r\n\r\n" % status)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
