"""A PromQL engine for measurements: it runs in its own process, answers prepared bodies, and its speed is not measured.

The process prints its port, and ends when its input ends.
"""

import asyncio
import gc
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

Form = dict[str, list[str]]
Body = Callable[[str, Form], Awaitable[bytes]]  # of a path and a form; empty: the request is not supported


@contextmanager
def stand_in(module: str, gpus: int) -> Iterator[str]:
    """The address of a stand-in for so many GPUs, in its own process."""
    command = [sys.executable, "-m", module, str(gpus)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.stdin.close()


async def serve(body: Body) -> None:
    """Serve the bodies until the input ends. All that exists by now is kept from the garbage collector."""
    gc.collect()
    gc.freeze()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _connection(body, reader, writer)

    server = await asyncio.start_server(connection, "127.0.0.1", 0, limit=1 << 20)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await asyncio.to_thread(sys.stdin.read)


async def _connection(body: Body, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            target, length = head.split(b" ", 2)[1].decode(), head.lower().partition(b"content-length:")[2]
            form = (await reader.readexactly(int(length.split(b"\r\n", 1)[0]))).decode() if length else ""
            asked = urlsplit(target)
            answer = await body(asked.path, parse_qs(form or asked.query))
            status = b"200 OK" if answer else b"422 Unprocessable Entity"
            lead = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            writer.write(lead % (status, len(answer)))
            writer.write(answer)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        pass  # the client disconnected, or the program ends
    finally:
        writer.close()
