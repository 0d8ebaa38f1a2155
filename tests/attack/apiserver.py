"""A stand-in of the API server for what taking GPUs back reads and writes, by the rules of the real one.

A name with a % or a slash is answered with 400, a list that is longer than its limit goes on, a patch that names an old
version is answered with 409. Whatever a tenant may write is stored as it is.
"""

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx2

from tests.sinks.kube.test_conflicts import merged

Object = dict[str, Any]
PLURALS = {
    "Pod": "pods",
    "Deployment": "deployments",
    "ReplicaSet": "replicasets",
    "StatefulSet": "statefulsets",
    "Notebook": "notebooks",
    "InferenceService": "inferenceservices",
}
LONGEST_URL = 8192  # of many proxies


class Cluster:
    """Objects of the namespace ml."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.paths: list[str] = []
        self.events: list[Object] = []
        self.version = 100
        self.silent = False

    def add(
        self, kind: str, name: str, *, by: Object | None = None, api_version: str = "apps/v1", **more: Any
    ) -> Object:
        """An object; `by` is its controller, as its creator writes it."""
        self.version += 1
        meta: Object = {
            "name": name,
            "namespace": "ml",
            "uid": f"uid-{kind}-{name}",
            "resourceVersion": str(self.version),
        }
        meta |= more.pop("metadata", {})
        if by is not None:
            meta["ownerReferences"] = [reference(by)]
        item = {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": {}, **more}
        self.objects[f"{_root(api_version)}/namespaces/ml/{PLURALS[kind]}/{name}"] = item
        return item

    def pod(self, name: str, *, by: Object | None = None, gpus: int = 1, **meta: Any) -> Object:
        limits = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
        spec = {"nodeName": "a", "containers": [{"name": "c", "resources": limits}]}
        return self.add("Pod", name, by=by, api_version="v1", spec=spec, status={"phase": "Running"}, metadata=meta)

    def client(self, _: str | None = None) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=httpx2.MockTransport(self.answer), base_url="http://api")

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        if self.silent:
            raise httpx2.ConnectError("refused")
        raw = request.url.raw_path.decode()
        if len(raw) > LONGEST_URL:
            return _status(414, "URI too long")
        parts = [unquote(part) for part in urlsplit(raw).path.split("/")]
        path = "/".join(parts)
        self.paths.append(path)
        if any("%" in part or "/" in part for part in parts):
            return _status(400, "Name parameter invalid")
        if parts[1:3] == ["apis", "broken.example"]:
            return _status(503, "the server is currently unable to handle the request")
        if request.method == "POST":
            self.events.append(json.loads(request.content))
            return _json(201, {"metadata": {}})
        if request.method == "PATCH":
            return self._patch(path, json.loads(request.content))
        if path == "/api/v1/namespaces/ml":
            return _json(200, {"metadata": {"name": "ml", "uid": "uid-ml"}})
        if path.endswith("/horizontalpodautoscalers"):
            return _json(200, {"items": []})
        if path == "/api/v1/namespaces/ml/pods":
            return self._pods(dict(request.url.params))
        found = self.objects.get(path)
        return _status(404, "not found") if found is None else _json(200, found)

    def _pods(self, asked: dict[str, str]) -> httpx2.Response:
        wanted = dict(part.split("=") for part in asked["labelSelector"].split(","))
        found = [item for item in self.objects.values() if item["kind"] == "Pod"]
        items = [one for one in found if wanted.items() <= one["metadata"].get("labels", {}).items()]
        limit = int(asked["limit"])
        more = {"continue": "more"} if len(items) > limit else {}
        return _json(200, {"metadata": more, "items": items[:limit]})

    def _patch(self, path: str, change: Object) -> httpx2.Response:
        item = self.objects[path]
        if change["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]:
            return _status(409, "the object has been modified")
        self.version += 1
        change["metadata"]["resourceVersion"] = str(self.version)
        self.objects[path] = merged(item, change)
        return _json(200, self.objects[path])


def reference(owner: Object) -> Object:
    meta = owner["metadata"]
    named = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {**named, "controller": True}


def _root(api_version: str) -> str:
    return f"{'/apis' if '/' in api_version else '/api'}/{api_version}"


def _status(code: int, message: str) -> httpx2.Response:
    return _json(code, {"kind": "Status", "code": code, "message": message})


def _json(code: int, body: Object) -> httpx2.Response:
    async def chunks() -> AsyncIterator[bytes]:
        yield json.dumps(body).encode()

    return httpx2.Response(code, content=chunks())
