"""`python -m bench.console_clients`: open consoles, without their browsers.

Input: one JSON line, {"port", "paths", "consoles", "every"}. Each console holds a stream of events, and asks for the
paths every so many seconds and after each analysis, as the page does: with the ETag of the last answer, compressed.
Each has an address of its own. It ends when its input ends, and prints what it received.
"""

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

_MOST_LOST = 5  # connections of one console that may be lost: a busy machine lets clients be slow


class Console:
    """One open console."""

    def __init__(self, number: int, order: dict[str, Any], counts: Counter[str]) -> None:
        self._from = (f"127.0.0.{number + 2}", 0)
        self._port, self._paths, self._every = order["port"], order["paths"], order["every"]
        self._counts = counts
        self._tags: dict[str, str] = {}
        self._due = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._again(self._listen))
            group.create_task(self._again(self._ask))

    async def _again(self, work: Callable[[], Awaitable[None]]) -> None:
        """As a browser does: a connection that the analyzer closed is opened again. These are counted."""
        for _ in range(_MOST_LOST):
            try:
                await work()
            except (ConnectionError, asyncio.IncompleteReadError):
                self._counts["lost"] += 1
        raise ConnectionError(f"{_MOST_LOST} connections were lost")

    async def _listen(self) -> None:
        """The stream of events; the first one says what is known already."""
        reader, writer = await self._connected()
        writer.write(self._request("/api/v1/events", "text/event-stream"))
        first = True
        while line := await reader.readline():
            if line.strip() == b"event: analysis":
                self._counts["events"] += 1
                if not first:
                    self._due.set()
                first = False
        raise ConnectionError("a stream of events ended")

    async def _ask(self) -> None:
        reader, writer = await self._connected()
        await asyncio.sleep(random.uniform(0, self._every))
        while True:
            if reader.at_eof():  # the analyzer closes connections that are quiet
                writer.close()
                reader, writer = await self._connected()
            for path in self._paths:
                writer.write(self._request(path, "application/json"))
                await self._answer(reader, path)
            self._due.clear()
            try:
                async with asyncio.timeout(self._every):
                    await self._due.wait()
            except TimeoutError:
                continue

    async def _answer(self, reader: asyncio.StreamReader, path: str) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        status, size = head.split(" ", 2)[1], int(lines.get("content-length", "0"))
        await reader.readexactly(size)
        self._counts[status] += 1
        self._counts["bytes"] += size
        if "etag" in lines:
            self._tags[path] = lines["etag"]

    def _request(self, path: str, accept: str) -> bytes:
        known = f"If-None-Match: {self._tags[path]}\r\n" if path in self._tags else ""
        head = f"Host: 127.0.0.1:{self._port}\r\nAccept: {accept}\r\nAccept-Encoding: gzip, deflate, br\r\n{known}"
        return f"GET {path} HTTP/1.1\r\n{head}\r\n".encode()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port, local_addr=self._from, limit=1 << 20)


async def _main() -> None:
    order = json.loads(sys.stdin.readline())
    counts: Counter[str] = Counter()
    consoles = [asyncio.create_task(Console(n, order, counts).run()) for n in range(order["consoles"])]
    ends = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    await asyncio.wait([ends, *consoles], return_when=asyncio.FIRST_COMPLETED)
    failed = [repr(one.exception()) for one in consoles if one.done()]
    print(json.dumps({"counts": counts, "failed": failed}), flush=True)
    for one in consoles:
        one.cancel()


if __name__ == "__main__":
    asyncio.run(_main())
