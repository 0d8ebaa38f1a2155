"""A small API server for what a device plugin does: nodes, pods, events; merge patches that check the version.

The real one has the last word in tests/contract; this one is quick, and can be told to fail.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


class SmallApi:
    """Objects by path: /api/v1/nodes/n1, /api/v1/namespaces/ml/pods/p1."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self.patches: list[tuple[str, dict[str, Any]]] = []
        self.fail: dict[tuple[str, str], int] = {}  # method and what the path contains → status
        self.before_patch: list[Any] = []  # called once each, with the path
        self.kubeconfig = ""
        self._version = 1
        self._lock = threading.RLock()

    def node(self, name: str, **annotations: str) -> None:
        self._put(f"/api/v1/nodes/{name}", "Node", {"name": name}, annotations)

    def pod(
        self,
        name: str,
        annotations: dict[str, str],
        *,
        node: str = "n1",
        spec: Any = None,
        phase: str = "Pending",
        started: bool = False,
    ) -> None:
        """`started`: the kubelet has admitted the pod, so it has asked for its devices."""
        asking = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        path = f"/api/v1/namespaces/ml/pods/{name}"
        self._put(path, "Pod", {"name": name, "namespace": "ml"}, annotations)
        self.objects[path]["spec"] = {"containers": [asking], **(spec or {}), "nodeName": node}
        self.objects[path]["status"] = {"phase": phase} | ({"startTime": "2026-11-17T08:00:00Z"} if started else {})

    def drop(self, name: str) -> None:
        del self.objects[f"/api/v1/namespaces/ml/pods/{name}"]

    def annotations(self, kind: str, name: str) -> dict[str, str]:
        place = "namespaces/ml/" if kind == "pods" else ""
        return self.objects[f"/api/v1/{place}{kind}/{name}"]["metadata"]["annotations"]

    def annotate(self, kind: str, name: str, **annotations: str | None) -> None:
        place = "namespaces/ml/" if kind == "pods" else ""
        self._merge(f"/api/v1/{place}{kind}/{name}", {"metadata": {"annotations": annotations}})

    def _put(self, path: str, kind: str, meta: dict[str, Any], annotations: dict[str, str]) -> None:
        self._version += 1
        meta = {**meta, "uid": f"uid-{meta['name']}", "resourceVersion": str(self._version)}
        self.objects[path] = {"kind": kind, "metadata": {**meta, "annotations": dict(annotations)}}

    # --- requests -----------------------------------------------------------------------------------------------------

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: bytes) -> tuple[int, Any]:
        for (of, part), status in self.fail.items():
            if of == method and part in path:
                return status, {"kind": "Status", "message": "told to fail"}
        if method == "GET" and path == "/api/v1/pods":
            return 200, self._pods(query.get("fieldSelector", [""])[0])
        if method == "GET" and path.endswith("/pods"):
            name = query["fieldSelector"][0].removeprefix("metadata.name=")
            found = [self.objects[f"{path}/{name}"]] if f"{path}/{name}" in self.objects else []
            return 200, {"kind": "PodList", "metadata": {"resourceVersion": str(self._version)}, "items": found}
        if method == "POST" and path.endswith("/events"):
            event = json.loads(body)
            if event["metadata"]["name"] in {one["metadata"]["name"] for one in self.events}:
                return 409, {"kind": "Status", "message": "already exists"}
            self.events.append(event)
            return 201, {"metadata": {"resourceVersion": "1"}}
        if path not in self.objects:
            return (200, {"metadata": {}}) if "/events/" in path else (404, {"kind": "Status", "message": "not found"})
        if method == "PATCH":
            return self._patch(path, json.loads(body))
        return 200, self.objects[path]

    def _pods(self, selector: str) -> Any:
        wanted = dict(part.split("=") for part in selector.split(",") if part)
        pods = [one for one in self.objects.values() if one["kind"] == "Pod"]
        fits = [
            pod
            for pod in pods
            if pod["spec"]["nodeName"] == wanted.get("spec.nodeName")
            and wanted.get("status.phase") in {None, pod["status"]["phase"]}
        ]
        return {"kind": "PodList", "metadata": {"resourceVersion": str(self._version)}, "items": fits}

    def _patch(self, path: str, change: dict[str, Any]) -> tuple[int, Any]:
        if self.before_patch:
            self.before_patch.pop(0)(path)
        wanted = change.get("metadata", {}).pop("resourceVersion", None)
        meta = self.objects[path]["metadata"]
        if wanted is not None and wanted != meta["resourceVersion"]:
            return 409, {"kind": "Status", "message": "the object has been modified"}
        self.patches.append((path, change))
        self._merge(path, change)
        return 200, self.objects[path]

    def _merge(self, path: str, change: dict[str, Any]) -> None:
        with self._lock:
            self._version += 1
            meta = self.objects[path]["metadata"]
            merged = {**meta["annotations"], **change.get("metadata", {}).get("annotations", {})}
            meta["annotations"] = {key: text for key, text in merged.items() if text is not None}
            meta["resourceVersion"] = str(self._version)


@contextmanager
def small_api(directory: Path) -> Iterator[SmallApi]:
    """A running server; its kubeconfig is in the directory."""
    api = SmallApi()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            url = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            with api._lock:
                status, answer = api.answer(self.command, unquote(url.path), parse_qs(url.query), body)
                data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PATCH = do_POST = _serve  # noqa: N815 - http.server's names

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": address}}],
        "users": [{"name": "u", "user": {}}],
    }
    api.kubeconfig = str(directory / "kubeconfig")
    Path(api.kubeconfig).write_text(json.dumps(config))
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
