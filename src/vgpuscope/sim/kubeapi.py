"""The part of a Kubernetes API server that clients need to watch, schedule and lead in a simulation.

Objects   all objects, with versions and the latest changes; the simulation's own, and what clients changed in them
KubeApi   the HTTP server: discovery, lists in pages, watches with bookmarks, both also as tables, patches, bindings,
          evictions, leases and events; 401 without the token, 409 for a version that is not the current one, 410 for
          old versions

The token is the first part of the path, and so part of the server's address in the kubeconfig: without TLS, kubectl and
client-go send no token in a header, and a certificate would need a library that nothing else needs.
"""

import asyncio
import contextlib
import secrets
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from vgpuscope.sim.kubekinds import DOCUMENTS, EVENTS, KINDS, REVIEW_PATH, review
from vgpuscope.sim.kubeproto import MAGIC, access_review
from vgpuscope.sim.kubeselectors import BadSelector, Selector, selector
from vgpuscope.sim.kubetables import table

Json = dict[str, Any]
ObjectKey = tuple[str, str]  # namespace and name

_REMEMBERED = 1000  # changes; a client that needs older ones must list again
_EVENTS_KEPT = 500  # of clients; a real server deletes an event after an hour
_BOOKMARK_EVERY = 5.0  # seconds
_LONGEST_WATCH = 300.0
_LONGEST_REQUEST = 16 * 1024  # bytes of its head
_LARGEST_BODY = 4 * 1024 * 1024
_TABLE = "as=Table"  # in the media type that kubectl accepts
_INITIAL_END = {"k8s.io/initial-events-end": "true"}  # annotation of the bookmark after all objects of the beginning


class Change(NamedTuple):
    """One change of one object."""

    version: int
    plural: str
    namespace: str
    before: Json | None  # None: the object is new
    after: Json | None  # None: the object was deleted
    encoded: bytes  # as the API shows it now


class _Kept(NamedTuple):
    content: Json  # without a resourceVersion
    encoded: bytes
    version: int


class Gone(Exception):
    """The version is older than the oldest change that is kept."""


class Refusal(Exception):
    """A request that is answered with a Status error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Objects:
    """Objects by kind; every change has its own version.

    The simulation sets its objects with `replace`. What clients change in them (annotations, a node's name) stays until
    the object is deleted; objects that clients create are their own.
    """

    def __init__(self) -> None:
        self.version = 1
        self.changed = asyncio.Event()  # replaced at each change, so that every waiting watch sees it
        self._kept: dict[str, dict[ObjectKey, _Kept]] = {plural: {} for plural in KINDS}
        self._given: dict[str, set[ObjectKey]] = {plural: set() for plural in KINDS}
        self._overlays: dict[tuple[str, ObjectKey], tuple[str, Json]] = {}  # uid, and what clients changed
        self._changes: deque[Change] = deque(maxlen=_REMEMBERED)
        self.evicted: set[ObjectKey] = set()  # pods without a controller: nobody makes them again

    def replace(self, plural: str, objects: Iterable[Json]) -> None:
        """Sets all objects of the simulation of a kind, and records the differences as changes."""
        fresh = {_key(one): one for one in objects}
        for key in self._given[plural] - fresh.keys():
            self.delete(plural, key)
        self._given[plural] = set(fresh)
        for key, one in fresh.items():
            self._set(plural, key, self._with_overlay(plural, key, one))

    def create(self, plural: str, one: Json) -> bytes:
        """A client's object; refused if there is one of its name."""
        key = _key(one)
        if key in self._kept[plural]:
            raise Refusal(409, f"{plural} {key[1]!r} already exists")
        one["metadata"].setdefault("uid", str(uuid.uuid4()))
        if plural == "events" and len(self._kept[plural]) >= _EVENTS_KEPT:
            self.delete(plural, next(iter(self._kept[plural])))
        return self._set(plural, key, one)

    def patch(self, plural: str, key: ObjectKey, change: Json, *, replaced: bool = False) -> bytes:
        """Merges a client's change, or replaces the content; refused if it names another version than the current."""
        known = self._found(plural, key)
        metadata = dict(change.get("metadata") or {})
        version = metadata.pop("resourceVersion", None)
        if version not in {None, "", str(known.version)}:
            raise Refusal(409, f"{plural} {key[1]!r}: the object has been modified; please apply your changes to it")
        change = {**change, "metadata": metadata}
        if key in self._given[plural]:
            uid, before = self._overlays.get((plural, key), (_uid_of(known.content), {}))
            self._overlays[plural, key] = uid, _composed(before, change)
        return self._set(plural, key, change if replaced else merged(known.content, change))

    def delete(self, plural: str, key: ObjectKey) -> None:
        """Deletes an object, with all that clients changed in it."""
        known = self._kept[plural].pop(key)
        self._overlays.pop((plural, key), None)
        self._record(plural, key, before=known.content, after=None)

    def get(self, plural: str, key: ObjectKey) -> bytes:
        """One object, as the API shows it."""
        return self._found(plural, key).encoded

    def contents(self, plural: str) -> list[Json]:
        """All objects of a kind; not to be changed."""
        return [one.content for one in self._kept[plural].values()]

    def listed(self, plural: str, namespace: str, chosen: Selector | None = None) -> list[tuple[ObjectKey, bytes]]:
        """Keys and objects in order, of one namespace, or of all namespaces if it is ""."""
        kept = self._kept[plural]
        return [
            (key, kept[key].encoded)
            for key in sorted(kept)
            if namespace in {"", key[0]} and (chosen is None or chosen.selects(kept[key].content))
        ]

    def since(self, version: int) -> list[Change]:
        """The changes after a version; Gone if some of them are no longer kept."""
        forgotten = self._changes[0].version - 1 if len(self._changes) == _REMEMBERED else 1
        if version < forgotten:
            raise Gone
        return [change for change in self._changes if change.version > version]

    def evict(self, key: ObjectKey, *, uid: str) -> None:
        """Has the simulation end this pod."""
        found = _uid_of(self._found("pods", key).content)
        if uid not in {"", found}:
            raise Refusal(409, f"pods {key[1]!r}: the UID in the precondition does not match: {found}")
        self.evicted.add(key)

    def _found(self, plural: str, key: ObjectKey) -> _Kept:
        known = self._kept[plural].get(key)
        if known is None:
            group = KINDS[plural].version.rpartition("/")[0]
            raise Refusal(404, f'{plural}{"." if group else ""}{group} "{key[1]}" not found')
        return known

    def _with_overlay(self, plural: str, key: ObjectKey, one: Json) -> Json:
        uid, change = self._overlays.get((plural, key), ("", None))
        if change is None:
            return one
        if uid != _uid_of(one):  # another object of the same name
            del self._overlays[plural, key]
            return one
        return merged(one, change)

    def _set(self, plural: str, key: ObjectKey, one: Json) -> bytes:
        known = self._kept[plural].get(key)
        if known and known.content == one:
            return known.encoded
        encoded = self._record(plural, key, before=known.content if known else None, after=one)
        self._kept[plural][key] = _Kept(one, encoded, self.version)
        return encoded

    def _record(self, plural: str, key: ObjectKey, *, before: Json | None, after: Json | None) -> bytes:
        self.version += 1
        encoded = b"" if after is None else _encoded(plural, after, self.version)
        self._changes.append(Change(self.version, plural, key[0], before, after, encoded))
        self.changed.set()
        self.changed = asyncio.Event()
        return encoded


def merged(one: Json, change: Json) -> Json:
    """The object after a JSON merge patch: null removes a field."""
    found = dict(one)
    for name, value in change.items():
        if value is None:
            found.pop(name, None)
        elif isinstance(value, dict):
            before = found.get(name)
            found[name] = merged(before if isinstance(before, dict) else {}, value)
        else:
            found[name] = value
    return found


def _composed(first: Json, second: Json) -> Json:
    """One merge patch for two, one after the other."""
    found = dict(first)
    for name, value in second.items():
        before = found.get(name)
        both = isinstance(value, dict) and isinstance(before, dict)
        found[name] = _composed(before, value) if both and before is not None else value
    return found


def _key(one: Json) -> ObjectKey:
    return one["metadata"].get("namespace", ""), one["metadata"]["name"]


def _uid_of(one: Json) -> str:
    return str(one["metadata"].get("uid", ""))


def event_line(word: str, encoded: bytes) -> bytes:
    """An event as a watch sends it."""
    return b'{"type":"%s","object":%s}\n' % (word.encode(), encoded)


class _Place(NamedTuple):
    """What a path names; all empty: it is not served."""

    plural: str = ""
    namespace: str = ""
    name: str = ""
    part: str = ""  # a subresource
    group: str = "v1"


class _Request(NamedTuple):
    method: str
    path: str  # without the token
    place: _Place
    query: dict[str, str]
    token: str
    length: int  # bytes of the body
    tabular: bool  # whether a Table is wanted
    chosen: Selector = Selector()

    @property
    def plural(self) -> str:
        return self.place.plural

    @property
    def namespace(self) -> str:
        return self.place.namespace


class KubeApi:
    """The server; `serve` runs it, and `write_kubeconfig` writes how to reach it."""

    def __init__(
        self,
        objects: Objects,
        *,
        bookmark_every: float = _BOOKMARK_EVERY,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock`: the time by which tables show ages."""
        self._objects, self._bookmark_every, self._clock = objects, bookmark_every, clock
        self._token = secrets.token_hex(16)
        self._connections: set[asyncio.Task[None]] = set()
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/{self._token}"

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
        """Writes a kubeconfig with the address, of which the token is a part, readable only by its owner."""
        path.touch(mode=0o600)
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "demo",
            "clusters": [{"name": "demo", "cluster": {"server": self.url}}],
            "users": [{"name": "demo", "user": {}}],
            "contexts": [{"name": "demo", "context": {"cluster": "demo", "user": "demo"}}],
        }
        path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")  # JSON is valid YAML

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._connections.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                await self._answer(await reader.readuntil(b"\r\n\r\n"), reader, writer)
        except asyncio.CancelledError:
            pass  # only serve() cancels; asyncio would log it as an error of the server
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers one request; each connection has one."""
        try:
            request = self._accepted(_parsed(head))
            if request.plural and request.query.get("watch") in {"1", "true"}:
                await self._watch(request, writer)
                return
            sent = await reader.readexactly(request.length)
            status, body = self._changed(request, sent) if request.method != "GET" else (200, self._read(request))
        except Refusal as e:
            status, body = e.code, _status(e.code, e.message)
        writer.write(_head(status, f"Content-Length: {len(body)}") + body)
        await writer.drain()

    def _accepted(self, request: _Request) -> _Request:
        if not secrets.compare_digest(request.token, self._token):
            raise Refusal(401, "Unauthorized")
        document = DOCUMENTS.get(request.path) if request.method == "GET" else None
        if not request.plural and document is None and (request.method, request.path) != ("POST", REVIEW_PATH):
            raise Refusal(404, "the server could not find the requested resource")
        if request.method not in {"GET", "POST", "PUT", "PATCH"}:
            raise Refusal(405, "objects cannot be deleted here")
        if request.length > _LARGEST_BODY:
            raise Refusal(413, "the body is too large")
        if not request.plural:
            return request
        try:
            return request._replace(chosen=selector(request.plural, request.query))
        except BadSelector as e:
            raise Refusal(400, str(e)) from None

    def _read(self, request: _Request) -> bytes:
        place = request.place
        if not place.plural:
            return DOCUMENTS[request.path]
        if not place.name:
            return self._list(request)
        if place.part not in {"", "status"}:  # no logs, for example
            raise Refusal(404, "the server could not find the requested resource")
        encoded = self._objects.get(place.plural, (place.namespace, place.name))
        return self._table(request, [encoded], {}) if request.tabular else encoded

    def _table(self, request: _Request, objects: Iterable[bytes], metadata: Json) -> bytes:
        """The objects as rows, as `kubectl get` asks for them."""
        included = request.query.get("includeObject", "Metadata")
        rows = (msgspec.json.decode(one) for one in objects)
        return msgspec.json.encode(table(request.plural, rows, metadata, included=included, now=self._clock()))

    def _changed(self, request: _Request, body: bytes) -> tuple[int, bytes]:
        """The answer to a request that changes something."""
        place = request.place
        if not place.plural:
            return 201, msgspec.json.encode(review(_review(body)))
        key = (place.namespace, place.name)
        if request.method == "PATCH" and body[:1] == b"[":
            sent = _applied(_operations(body), self._objects.get(place.plural, key))
        else:
            sent = _object(body)
        match request.method, place.part:
            case "POST", "binding" if place.plural == "pods":
                self._bind(key, sent)
                return 201, _success()
            case "POST", "eviction" if place.plural == "pods":
                options = sent.get("deleteOptions") or {}
                self._objects.evict(key, uid=str((options.get("preconditions") or {}).get("uid") or ""))
                return 201, _success()
            case "POST", "" if not place.name and place.plural in {"events", "leases"}:
                return 201, self._objects.create(place.plural, _new_object(place, sent))
            case "PATCH", ("" | "status") if place.name:
                return 200, self._objects.patch(place.plural, key, sent)
            case "PUT", "" if place.name and place.plural == "leases":
                return 200, self._objects.patch(place.plural, key, sent, replaced=True)
            case _:
                raise Refusal(405, f"{request.method} is not supported here")

    def _bind(self, key: ObjectKey, sent: Json) -> None:
        pod = msgspec.json.decode(self._objects.get("pods", key))
        meta, node = sent.get("metadata") or {}, (sent.get("target") or {}).get("name")
        if meta.get("uid") and meta["uid"] != pod["metadata"].get("uid"):
            raise Refusal(409, f"pods {key[1]!r}: the uid in the precondition does not match")
        if bound := pod["spec"].get("nodeName"):
            raise Refusal(409, f"pod {key[1]} is already assigned to node {bound!r}")
        changed = {name: meta[name] for name in ("resourceVersion", "annotations") if name in meta}
        self._objects.patch("pods", key, {"metadata": changed, "spec": {"nodeName": node}})

    def _list(self, request: _Request) -> bytes:
        """A page of a list.

        Later pages contain the current objects, under the version of the first page. A watch from that version reports
        the differences.
        """
        found = self._objects.listed(request.plural, request.namespace, request.chosen)
        version, after = self._objects.version, ("", "")
        if "continue" in request.query:
            version, after = self._continued(request.query["continue"])
            found = [one for one in found if one[0] > after]
        limit = _number(request.query.get("limit", "0"), "limit") or len(found)
        page, rest = found[:limit], found[limit:]
        metadata = {"resourceVersion": str(version)}
        if rest:
            metadata |= {"continue": "/".join((str(version), *page[-1][0]))}
        if request.tabular:
            return self._table(request, [encoded for _, encoded in page], metadata)
        kind = KINDS[request.plural]
        return b'{"kind":"%sList","apiVersion":"%s","metadata":%s,"items":[%s]}' % (
            kind.kind.encode(),
            kind.version.encode(),
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
            raise Refusal(410, "the continue token has expired") from None
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
            everything = self._objects.listed(request.plural, request.namespace, request.chosen)
            yield b"".join(self._line(request, "ADDED", encoded) for _, encoded in everything)
            if request.query.get("sendInitialEvents") == "true":
                yield _bookmark(request.plural, version, _INITIAL_END)
        clock, bookmarks = asyncio.get_running_loop().time, request.query.get("allowWatchBookmarks") == "true"
        told = clock()
        while True:
            changed = self._objects.changed
            try:
                changes = self._objects.since(version)
            except Gone:
                yield event_line("ERROR", _status(410, f"too old resource version: {version}"))
                return
            lines = b"".join(self._line(request, word, encoded) for word, encoded in _seen(request, changes))
            version = max(version, self._objects.version)
            if not lines and bookmarks and clock() - told >= self._bookmark_every:
                lines = _bookmark(request.plural, version)
            told = clock() if lines else told
            yield lines
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._bookmark_every):
                    await changed.wait()

    def _line(self, request: _Request, word: str, encoded: bytes) -> bytes:
        return event_line(word, self._table(request, [encoded], {}) if request.tabular else encoded)


def _seen(request: _Request, changes: Iterable[Change]) -> Iterator[tuple[str, bytes]]:
    """What a watch says of changes. An object that is no longer selected is deleted for it, as it was before."""
    for change in changes:
        if change.plural != request.plural or request.namespace not in {"", change.namespace}:
            continue
        before = change.before is not None and request.chosen.selects(change.before)
        after = change.after is not None and request.chosen.selects(change.after)
        if after:
            yield ("MODIFIED" if before else "ADDED"), change.encoded
        elif before and change.before is not None:
            yield "DELETED", _encoded(change.plural, change.before, change.version)


def _encoded(plural: str, one: Json, version: int) -> bytes:
    """An object as the API shows it."""
    metadata = {**one["metadata"], "resourceVersion": str(version)}
    named = {"apiVersion": KINDS[plural].version, "kind": KINDS[plural].kind, "metadata": metadata}
    return msgspec.json.encode({**one, **named})


def _bookmark(plural: str, version: int, annotations: dict[str, str] | None = None) -> bytes:
    metadata = {"resourceVersion": str(version)} | ({"annotations": annotations} if annotations else {})
    content = {"kind": KINDS[plural].kind, "apiVersion": KINDS[plural].version, "metadata": metadata}
    return event_line("BOOKMARK", msgspec.json.encode(content))


def _status(code: int, message: str) -> bytes:
    reason = "Expired" if code == 410 else HTTPStatus(code).phrase.replace(" ", "")
    content = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    return msgspec.json.encode({**content, "reason": reason, "code": code})


def _head(status: int, length: str) -> bytes:
    lines = (f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", "Content-Type: application/json", length)
    return ("\r\n".join((*lines, "Connection: close")) + "\r\n\r\n").encode()


def _success() -> bytes:
    return msgspec.json.encode({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})


def _object(sent: bytes) -> Json:
    if sent.startswith(MAGIC):
        raise Refusal(415, "only JSON is understood here")
    try:
        return msgspec.json.decode(sent or b"{}", type=Json)
    except msgspec.DecodeError as e:
        raise Refusal(400, f"the body is not an object: {e}") from None


def _review(sent: bytes) -> Json:
    """An access review; kubectl sends it in Kubernetes' own encoding, and takes no other status for an answer."""
    if not sent.startswith(MAGIC):
        return _object(sent)
    try:
        return access_review(sent)
    except ValueError as e:
        raise Refusal(400, f"the body is not an access review: {e}") from None


def _operations(sent: bytes) -> list[Json]:
    try:
        return msgspec.json.decode(sent, type=list[Json])
    except msgspec.DecodeError as e:
        raise Refusal(400, f"the body is not a list of operations: {e}") from None


def _applied(operations: list[Json], encoded: bytes) -> Json:
    """Operations on annotations (test, add) as a merge patch; 422 if one of them does not apply."""
    notes, change = msgspec.json.decode(encoded)["metadata"].get("annotations"), Json()
    for one in operations:
        name = str(one.get("path", "")).removeprefix("/metadata/annotations/").replace("~1", "/").replace("~0", "~")
        if notes is None or (one.get("op") == "test" and notes.get(name) != one.get("value")):
            raise Refusal(422, "the server rejected our request due to an error in our request")
        if one.get("op") == "add":
            change[name] = one.get("value")
    return {"metadata": {"annotations": change}}


def _new_object(place: _Place, sent: Json) -> Json:
    """A created object in the form in which it is kept: of events there is one form only, the older."""
    sent = {**sent, "metadata": {**(sent.get("metadata") or {}), "namespace": place.namespace}}
    if place.group != EVENTS:
        return sent
    return {
        "metadata": sent["metadata"],
        "involvedObject": sent.get("regarding") or {},
        "message": sent.get("note", ""),
        "reportingComponent": sent.get("reportingController", ""),
        "source": {},
        **{name: sent[name] for name in ("reason", "type", "action", "eventTime", "reportingInstance") if name in sent},
    }


def _parsed(head: bytes) -> _Request:
    first, *headers = head.decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    target = urlsplit(rest.partition(" ")[0])
    _, token, *parts = [unquote(part) for part in target.path.split("/")] if target.path.startswith("/") else ("", "")
    query = {name: values[-1] for name, values in parse_qs(target.query, keep_blank_values=True).items()}
    return _Request(
        method,
        path="/".join(("", *parts)),
        place=_place(["", *parts]),
        query=query,
        token=token.encode("ascii", "replace").decode(),
        length=_number(_header(headers, "content-length") or "0", "Content-Length"),
        tabular=_TABLE in _header(headers, "accept"),
    )


def _place(parts: list[str]) -> _Place:
    """/api/v1/… or /apis/GROUP/VERSION/…, then KIND or namespaces/NAMESPACE/KIND, then NAME and a subresource."""
    match parts:
        case ["", "api", "v1", *rest]:
            group = "v1"
        case ["", "apis", name, version, *rest]:
            group = f"{name}/{version}"
        case _:
            return _Place()
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces" and rest[1]:
        namespace, rest = rest[1], rest[2:]
    plural, name, part, *more = (*rest, "", "", "")[: max(3, len(rest))]
    kind = KINDS.get(plural)
    if kind is None or any(more) or not (group == kind.version or (plural, group) == ("events", EVENTS)):
        return _Place()
    if bool(namespace) > kind.namespaced or (kind.namespaced and name and not namespace):
        return _Place()
    return _Place(plural, namespace, name, part, group)


def _header(headers: Iterable[str], name: str) -> str:
    found: Iterator[str] = (line.partition(":")[2].strip() for line in headers if line.lower().startswith(f"{name}:"))
    return next(found, "")


def _number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise Refusal(400, f"{name}: {text[:80]!r} is not a number")
    return int(text)
