"""An API server that says whatever a test wants: bytes that no real one would let pass, and answers of its bad days."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

KINDS = {"nodes": "Node", "pods": "Pod", "resourcequotas": "ResourceQuota", "events": "Event"}
_CHUNK = 1 << 20


class BadApi:
    """Objects by kind; a change is told to every watch. `instead` of a list a kind may have any body."""

    def __init__(self) -> None:
        self.instead: dict[str, bytes] = {}
        self.answers = threading.Event()  # while it is clear, new requests wait
        self.answers.set()
        self.kubeconfig, self.port = "", 0
        self._version = 1
        self._objects: dict[str, dict[str, dict]] = {kind: {} for kind in KINDS}
        self._lines: list[tuple[int, str, bytes]] = []
        self._moved = threading.Condition()
        self._ended = False

    def put(self, item: dict) -> None:
        """An object comes, or changes."""
        kind = _plural(item)
        known = self._objects[kind].get(_key(item))
        uid = f"uid-{_key(item)[:200]}"
        item = {**item, "metadata": {"uid": uid, **item["metadata"], "resourceVersion": str(self._version + 1)}}
        self._objects[kind][_key(item)] = item
        self.say(kind, line("MODIFIED" if known else "ADDED", item))

    def drop(self, item: dict) -> None:
        """An object goes."""
        kind = _plural(item)
        self.say(kind, line("DELETED", self._objects[kind].pop(_key(item))))

    def drop_all_but(self, *keys: str) -> None:
        """Only these are left."""
        for of_kind in self._objects.values():
            for key in of_kind.keys() - set(keys):
                self.drop(of_kind[key])

    def say(self, kind: str, line: bytes) -> None:
        """These bytes come from the watches of a kind."""
        with self._moved:
            self._version += 1
            self._lines.append((self._version, kind, line))
            self._moved.notify_all()

    def end(self) -> None:
        self.answers.set()
        with self._moved:
            self._ended = True
            self._moved.notify_all()

    def listed(self, kind: str) -> bytes:
        if kind in self.instead:
            return self.instead[kind]
        meta = {"resourceVersion": str(self._version)}
        items = list(self._objects[kind].values())
        return json.dumps({"kind": f"{KINDS[kind]}List", "metadata": meta, "items": items}).encode()

    def watched(self, kind: str, since: int) -> Iterator[bytes]:
        """Lines from a version on, for as long as the server runs."""
        while not self._ended:
            with self._moved:
                new = [one for one in self._lines if one[0] > since]
                if not new and not self._ended:
                    self._moved.wait(5)
                    continue
            for version, of, line in new:
                since = version
                if of == kind:
                    yield line


@contextmanager
def bad_api(path: Path) -> Iterator[BadApi]:
    """The server on a port of its own, and a kubeconfig for it."""
    api = BadApi()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            api.answers.wait()
            url = urlsplit(self.path)
            query, kind = parse_qs(url.query), url.path.rpartition("/")[2]
            if kind not in KINDS:
                self._answer(404, b'{"kind":"Status","message":"not found","code":404}')
            elif "watch" in query:
                self._watch(kind, int(query["resourceVersion"][0]))
            else:
                self._answer(200, api.listed(kind))

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self._write(body)

        def _watch(self, kind: str, since: int) -> None:
            self.send_response(200)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            self.close_connection = True
            for line in api.watched(kind, since):
                for at in range(0, len(line), _CHUNK):
                    piece = line[at : at + _CHUNK]
                    self._write(b"%x\r\n%s\r\n" % (len(piece), piece))

        def _write(self, data: bytes) -> None:
            try:
                self.wfile.write(data)
            except OSError:  # the other side has heard enough
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    api.port = server.server_address[1]
    api.kubeconfig = _kubeconfig(path, api.port)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield api
    finally:
        api.end()
        server.shutdown()
        server.server_close()
        thread.join()


def _kubeconfig(path: Path, port: int) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bad",
        "contexts": [{"name": "bad", "context": {"cluster": "bad", "user": "bad"}}],
        "clusters": [{"name": "bad", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "bad", "user": {"token": "none"}}],
    }
    file = path / "bad.kubeconfig"
    file.write_text(json.dumps(config))
    return str(file)


def _plural(item: dict) -> str:
    return next(plural for plural, kind in KINDS.items() if kind == item["kind"])


def _key(item: dict) -> str:
    return f"{item['metadata'].get('namespace', '')}/{item['metadata']['name']}"


def line(word: str, item: dict) -> bytes:
    """An event as a watch sends it."""
    return json.dumps({"type": word, "object": item}).encode() + b"\n"
