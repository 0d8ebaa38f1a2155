"""`python -m bench.cluster_api NODES`: the part of a Kubernetes API that the cluster exporter reads, at any size.

It replaces a real server that would take minutes to fill. It prints its port. Then it reads one JSON list of [node,
slot, MiB] per line, sets the memory of those pods, and answers each line when the watches were notified. Like a real
server it ignores `limit` in a list of version 0. Its speed must not be measured, so all objects are ready before it
prints its port.
"""

import asyncio
import gc
import json
import sys
from urllib.parse import parse_qs, urlsplit

import msgspec

from bench import cluster_objects as objects
from bench.cluster_objects import PODS, Object, Place

_KINDS = {"nodes": "Node", "pods": "Pod", "resourcequotas": "ResourceQuota", "events": "Event"}
_AT_ONCE = 200  # objects per chunk
_BOOKMARK_EVERY = 20.0  # seconds; without bookmarks, a client would assume that a silent server hangs
_OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
_FORGOTTEN = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n'
_NOT_SERVED = b"HTTP/1.1 404 Not Found\r\ncontent-type: text/plain\r\ncontent-length: 0\r\n\r\n"


class Api:
    """All objects as JSON, in the order in which they are listed."""

    def __init__(self, nodes: int) -> None:
        self._version = 1
        self._listed: dict[str, list[bytes]] = {kind: [] for kind in _KINDS}
        self._listed["nodes"] = [self._encoded(one) for one in objects.nodes(nodes)]
        self._listed["pods"] = [self._encoded(one) for one in objects.pods(nodes)]
        self._watches: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                url = urlsplit(head.split(b" ", 2)[1].decode())
                plural, query = url.path.rpartition("/")[2], parse_qs(url.query)
                if plural not in _KINDS:
                    writer.write(_NOT_SERVED)
                elif "watch" in query:
                    await self._watch(plural, query, reader, writer)
                    return
                else:
                    await self._list(plural, query, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client disconnected
        finally:
            self._watches.discard(writer)
            writer.close()

    async def change(self, changes: list[tuple[int, int, int]]) -> None:
        """Sends the changes to every watch of pods."""
        for node, slot, memory in changes:
            self._version += 1
            encoded = self._encoded(objects.pod(Place(node, slot), memory=memory))
            self._listed["pods"][node * PODS + slot] = encoded
            line = b'{"type":"MODIFIED","object":%s}\n' % encoded
            for watch in self._watches:
                await _write(watch, line)

    async def _list(self, plural: str, query: dict[str, list[str]], writer: asyncio.StreamWriter) -> None:
        """All objects of a kind, or one page of them; the continue token is the position where the next page begins."""
        every, begin = self._listed[plural], int(query.get("continue", ["0"])[0])
        paged = "limit" in query and query.get("resourceVersion") != ["0"]
        end = begin + int(query["limit"][0]) if paged else len(every)
        meta = {"resourceVersion": str(self._version), "continue": str(end) if end < len(every) else ""}
        writer.write(_OK)
        head = {"kind": f"{_KINDS[plural]}List", "apiVersion": "v1", "metadata": meta}
        await _write(writer, msgspec.json.encode(head)[:-1] + b',"items":[')
        for at in range(begin, min(end, len(every)), _AT_ONCE):
            last = min(at + _AT_ONCE, end, len(every))
            await _write(writer, b",".join(every[at:last]) + (b"," if last < min(end, len(every)) else b""))
        await _write(writer, b"]}")
        await _write(writer, b"")

    async def _watch(
        self,
        plural: str,
        query: dict[str, list[str]],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        writer.write(_OK)
        if plural == "pods" and query["resourceVersion"] != [str(self._version)]:
            await _write(writer, _FORGOTTEN)  # no history is kept: a client that missed a change must list again
            return
        if plural == "pods":
            self._watches.add(writer)
        leaves = asyncio.ensure_future(reader.read())
        while not (await asyncio.wait({leaves}, timeout=_BOOKMARK_EVERY))[0]:
            bookmark = {"kind": _KINDS[plural], "metadata": {"resourceVersion": str(self._version)}}
            await _write(writer, msgspec.json.encode({"type": "BOOKMARK", "object": bookmark}) + b"\n")

    def _encoded(self, one: Object) -> bytes:
        one["metadata"]["resourceVersion"] = str(self._version)
        return msgspec.json.encode(one)


async def _write(writer: asyncio.StreamWriter, chunk: bytes) -> None:
    """Writes one HTTP chunk; an empty chunk is the last."""
    writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
    await writer.drain()


async def main() -> None:
    """Serves until the input ends."""
    gc.disable()  # there are no reference cycles here, and many objects
    api = Api(int(sys.argv[1]))
    server = await asyncio.start_server(api.serve, "127.0.0.1", 0, limit=1 << 20)
    print(server.sockets[0].getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        await api.change(json.loads(line))
        print("told", flush=True)


asyncio.run(main())
