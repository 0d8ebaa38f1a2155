"""The part of a Kubernetes API server that clients need to list and watch the objects of a simulation.

Objects   all objects, with versions and the latest changes
KubeApi   the HTTP server: lists in pages, watches with bookmarks, 401 without the token, 410 for old versions
"""

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

Json = dict[str, Any]

KINDS = {
    "nodes": "Node",
    "pods": "Pod",
    "resourcequotas": "ResourceQuota",
    "events": "Event",
}  # by the plural in the path
_REMEMBERED = 1000  # changes; a client that needs older ones must list again
_BOOKMARK_EVERY = 5.0  # seconds
_LONGEST_WATCH = 300.0
_LONGEST_REQUEST = 16 * 1024
_ALL_EVENTS = ("events", {"fieldSelector": "involvedObject.kind=Pod"})  # all events are about pods here


class Change(NamedTuple):
    """One change of one object; `line` is what a watch sends for it."""

    version: int
    plural: str
    namespace: str
    line: bytes


class _Kept(NamedTuple):
    content: Json  # as given, without a resourceVersion
    encoded: bytes


class Gone(Exception):
    """The version is older than the oldest change that is kept."""


class Objects:
    """Objects by kind; every change has its own version."""

    def __init__(self) -> None:
        self.version = 1
        self.changed = asyncio.Event()  # replaced at each change, so that every waiting watch sees it
        self._kept: dict[str, dict[tuple[str, str], _Kept]] = {plural: {} for plural in KINDS}
        self._changes: deque[Change] = deque(maxlen=_REMEMBERED)

    def replace(self, plural: str, objects: Iterable[Json]) -> None:
        """Sets all objects of the kind, and records the differences as changes."""
        kept, fresh = self._kept[plural], {_key(one): one for one in objects}
        for key in [key for key in kept if key not in fresh]:
            self._record(plural, key, "DELETED", kept.pop(key).content)
        for key, one in fresh.items():
            known = kept.get(key)
            if known is None or known.content != one:
                encoded = self._record(plural, key, "MODIFIED" if known else "ADDED", one)
                kept[key] = _Kept(one, encoded)

    def listed(self, plural: str, namespace: str) -> list[tuple[tuple[str, str], bytes]]:
        """Keys and objects in order, of one namespace, or of all namespaces if it is ""."""
        kept = self._kept[plural]
        return [(key, kept[key].encoded) for key in sorted(kept) if namespace in {"", key[0]}]

    def since(self, version: int) -> list[Change]:
        """The changes after a version; Gone if some of them are no longer kept."""
        forgotten = self._changes[0].version - 1 if len(self._changes) == _REMEMBERED else 1
        if version < forgotten:
            raise Gone
        return [change for change in self._changes if change.version > version]

    def _record(self, plural: str, key: tuple[str, str], word: str, one: Json) -> bytes:
        self.version += 1
        metadata = {**one["metadata"], "resourceVersion": str(self.version)}
        encoded = msgspec.json.encode({"apiVersion": "v1", "kind": KINDS[plural], **one, "metadata": metadata})
        self._changes.append(Change(self.version, plural, key[0], event_line(word, encoded)))
        self.changed.set()
        self.changed = asyncio.Event()
        return encoded


def _key(one: Json) -> tuple[str, str]:
    return one["metadata"].get("namespace", ""), one["metadata"]["name"]


def event_line(word: str, encoded: bytes) -> bytes:
    """An event as a watch sends it."""
    return b'{"type":"%s","object":%s}\n' % (word.encode(), encoded)


class _Request(NamedTuple):
    method: str
    plural: str  # "": the path is not served
    namespace: str
    query: dict[str, str]
    token: str


class _Refused(Exception):
    """The request is answered with a Status error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class KubeApi:
    """The server; `serve` runs it, and `write_kubeconfig` writes how to reach it."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._token = secrets.token_hex(16)
        self._connections: set[asyncio.Task[None]] = set()
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Serves on a free local port; at the end every connection is closed."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=_LONGEST_REQUEST)
        self._port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
            await server.wait_closed()

    def write_kubeconfig(self, path: Path) -> None:
        """Writes a kubeconfig with the address and the token, readable only by its owner."""
        path.touch(mode=0o600)
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "demo",
            "clusters": [{"name": "demo", "cluster": {"server": self.url}}],
            "users": [{"name": "demo", "user": {"token": self._token}}],
            "contexts": [{"name": "demo", "context": {"cluster": "demo", "user": "demo"}}],
        }
        path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")  # JSON is valid YAML

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._connections.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                await self._answer(await reader.readuntil(b"\r\n\r\n"), writer)
        except asyncio.CancelledError:
            pass  # only serve() cancels; asyncio would log it as an error of the server
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        """Answers one request; each connection has one."""
        try:
            request = self._accepted(_parsed(head))
            if request.query.get("watch") in {"1", "true"}:
                await self._watch(request, writer)
                return
            status, body = 200, self._list(request)
        except _Refused as e:
            status, body = e.code, _status(e.code, e.message)
        writer.write(_head(status, f"Content-Length: {len(body)}") + body)
        await writer.drain()

    def _accepted(self, request: _Request) -> _Request:
        if not secrets.compare_digest(request.token, self._token):
            raise _Refused(401, "Unauthorized")
        if not request.plural:
            raise _Refused(404, "the server could not find the requested resource")
        if request.method != "GET":
            raise _Refused(405, "nothing can be changed here")
        selectors = {name: request.query[name] for name in ("fieldSelector", "labelSelector") if name in request.query}
        if selectors and (request.plural, selectors) != _ALL_EVENTS:
            raise _Refused(400, "selectors are not supported here")
        return request

    def _list(self, request: _Request) -> bytes:
        """A page of a list.

        Later pages contain the current objects, under the version of the first page. A watch from that version reports
        the differences.
        """
        found = self._objects.listed(request.plural, request.namespace)
        version, after = self._objects.version, ("", "")
        if "continue" in request.query:
            version, after = self._continued(request.query["continue"])
            found = [one for one in found if one[0] > after]
        limit = _number(request.query.get("limit", "0"), "limit") or len(found)
        page, rest = found[:limit], found[limit:]
        metadata = {"resourceVersion": str(version)}
        if rest:
            metadata |= {"continue": "/".join((str(version), *page[-1][0]))}
        return b'{"kind":"%sList","apiVersion":"v1","metadata":%s,"items":[%s]}' % (
            KINDS[request.plural].encode(),
            msgspec.json.encode(metadata),
            b",".join(encoded for _, encoded in page),
        )

    def _continued(self, token: str) -> tuple[int, tuple[str, str]]:
        version, _, key = token.partition("/")
        namespace, _, name = key.partition("/")
        number = _number(version, "continue")
        try:
            self._objects.since(number)
        except Gone:
            raise _Refused(410, "the continue token has expired") from None
        return number, (namespace, name)

    async def _watch(self, request: _Request, writer: asyncio.StreamWriter) -> None:
        seconds = _number(request.query.get("timeoutSeconds", "0"), "timeoutSeconds") or _LONGEST_WATCH
        version = _number(request.query.get("resourceVersion") or "0", "resourceVersion")
        writer.write(_head(200, "Transfer-Encoding: chunked"))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, _LONGEST_WATCH)):
                async for lines in self._events(request, version):
                    if lines:
                        writer.write(b"%x\r\n%s\r\n" % (len(lines), lines))
                    await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _events(self, request: _Request, version: int) -> AsyncIterator[bytes]:
        """Changes as they happen, and a bookmark whenever there was no change for a while."""
        if not version:  # without a version, a watch begins with all objects
            version = self._objects.version
            everything = self._objects.listed(request.plural, request.namespace)
            yield b"".join(event_line("ADDED", encoded) for _, encoded in everything)
        while True:
            changed = self._objects.changed
            try:
                changes = self._objects.since(version)
            except Gone:
                yield event_line("ERROR", _status(410, f"too old resource version: {version}"))
                return
            yield b"".join(change.line for change in changes if _concerns(request, change))
            version = max(version, self._objects.version)
            try:
                await asyncio.wait_for(changed.wait(), _BOOKMARK_EVERY)
            except TimeoutError:
                if request.query.get("allowWatchBookmarks") == "true":
                    yield _bookmark(request.plural, version)


def _concerns(request: _Request, change: Change) -> bool:
    return change.plural == request.plural and request.namespace in {"", change.namespace}


def _bookmark(plural: str, version: int) -> bytes:
    content = {"kind": KINDS[plural], "apiVersion": "v1", "metadata": {"resourceVersion": str(version)}}
    return event_line("BOOKMARK", msgspec.json.encode(content))


def _status(code: int, message: str) -> bytes:
    reason = "Expired" if code == 410 else HTTPStatus(code).phrase.replace(" ", "")
    content = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    return msgspec.json.encode({**content, "reason": reason, "code": code})


def _head(status: int, length: str) -> bytes:
    lines = (f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", "Content-Type: application/json", length)
    return ("\r\n".join((*lines, "Connection: close")) + "\r\n\r\n").encode()


def _parsed(head: bytes) -> _Request:
    first, *headers = head.decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    target = urlsplit(rest.partition(" ")[0])
    namespace, plural = _place([unquote(part) for part in target.path.split("/")])
    query = {name: values[-1] for name, values in parse_qs(target.query, keep_blank_values=True).items()}
    return _Request(method, plural, namespace, query, _token(headers))


def _place(parts: list[str]) -> tuple[str, str]:
    """Namespace and kind of /api/v1/<kind> or /api/v1/namespaces/<namespace>/<kind>."""
    match parts:
        case ["", "api", "v1", plural] if plural in KINDS:
            return "", plural
        case ["", "api", "v1", "namespaces", namespace, plural] if namespace and plural in KINDS and plural != "nodes":
            return namespace, plural
        case _:
            return "", ""


def _token(headers: Iterable[str]) -> str:
    found: Iterator[str] = (line.partition(":")[2].strip() for line in headers if line.lower().startswith("authoriz"))
    return next(found, "").removeprefix("Bearer ").encode("ascii", "replace").decode()


def _number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise _Refused(400, f"{name}: {text[:80]!r} is no number")
    return int(text)
