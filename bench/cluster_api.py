"""`python -m bench.cluster_api NODES`: the slice of a Kubernetes API that the cluster exporter reads, at any size.

It stands in for a real server where one would take minutes to fill. Prints its port; then takes one JSON list of
[node, slot, MiB] per line, lets those pods have so much memory, and answers each line when the watches were told. Like
a real server it ignores `limit` in a list of version 0.
"""

import asyncio
import gc
import json
import sys
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import msgspec

from bench import cluster_objects as objects
from bench.cluster_objects import GIVEN, PODS, Object, Place

_KINDS = {"nodes": "Node", "pods": "Pod", "resourcequotas": "ResourceQuota", "events": "Event"}
_CHUNK = 1 << 20
_BOOKMARK_EVERY = 20.0  # seconds: a client takes a silent watch for a server that hangs
_OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
_NOT_SERVED = b"HTTP/1.1 404 Not Found\r\ncontent-type: text/plain\r\ncontent-length: 0\r\n\r\n"


class Api:
    """All objects, made when they are asked for; kept is only what differs from the start."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._version = 1
        self._memory: dict[Place, int] = {}
        self._watches: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                url = urlsplit(head.split(b" ", 2)[1].decode())
                plural, query = url.path.rpartition("/")[2], parse_qs(url.query)
                if plural not in _KINDS:
                    writer.write(_NOT_SERVED)
                elif "watch" in query:
                    await self._watch(plural, reader, writer)
                    return
                else:
                    await self._list(plural, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has left
        finally:
            self._watches.discard(writer)
            writer.close()

    async def change(self, changes: list[tuple[int, int, int]]) -> None:
        """Tell every watch of pods."""
        for node, slot, memory in changes:
            self._memory[Place(node, slot)] = memory
            self._version += 1
            line = b'{"type":"MODIFIED","object":%s}\n' % self._encoded(objects.pod(Place(node, slot), memory=memory))
            for watch in self._watches:
                await _write(watch, line)

    async def _list(self, plural: str, writer: asyncio.StreamWriter) -> None:
        writer.write(_OK)
        for chunk in _gathered(self._pieces(plural)):
            await _write(writer, chunk)
        await _write(writer, b"")

    async def _watch(self, plural: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(_OK)
        if plural == "pods":
            self._watches.add(writer)
        leaves = asyncio.ensure_future(reader.read())
        while not (await asyncio.wait({leaves}, timeout=_BOOKMARK_EVERY))[0]:
            bookmark = {"kind": _KINDS[plural], "metadata": {"resourceVersion": str(self._version)}}
            await _write(writer, msgspec.json.encode({"type": "BOOKMARK", "object": bookmark}) + b"\n")

    def _pieces(self, plural: str) -> Iterator[bytes]:
        kind = _KINDS[plural].encode()
        meta = b'"metadata":{"resourceVersion":"%d"}' % self._version
        yield b'{"kind":"%sList","apiVersion":"v1",%s,"items":[' % (kind, meta)
        comma = b""
        for one in self._objects(plural):
            yield comma + self._encoded(one)
            comma = b","
        yield b"]}"

    def _objects(self, plural: str) -> Iterator[Object]:
        if plural == "nodes":
            yield from objects.nodes(self._nodes)
        elif plural == "pods":
            for node in range(self._nodes):
                for slot in range(PODS):
                    place = Place(node, slot)
                    yield objects.pod(place, memory=self._memory.get(place, GIVEN))

    def _encoded(self, one: Object) -> bytes:
        one["metadata"]["resourceVersion"] = str(self._version)
        return msgspec.json.encode(one)


async def _write(writer: asyncio.StreamWriter, chunk: bytes) -> None:
    """One chunk of HTTP; an empty one is the last."""
    writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
    await writer.drain()


def _gathered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    buffer, size = [], 0
    for piece in pieces:
        buffer.append(piece)
        size += len(piece)
        if size > _CHUNK:
            yield b"".join(buffer)
            buffer, size = [], 0
    yield b"".join(buffer)


async def main() -> None:
    """Serve until the input ends."""
    gc.disable()  # nothing here is in cycles, and the objects are many
    api = Api(int(sys.argv[1]))
    server = await asyncio.start_server(api.serve, "127.0.0.1", 0, limit=1 << 20)
    print(server.sockets[0].getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        await api.change(json.loads(line))
        print("told", flush=True)


asyncio.run(main())
