"""Whoever may create a lease in a namespace gives it the name of the extender's lease."""

import asyncio
import json
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.http.serving import until
from tests.services.cluster.badapi import _kubeconfig
from vgpuscope.config import ClusterConfig
from vgpuscope.model.errors import ScopeError
from vgpuscope.services.cluster.process import ClusterExporter

pytestmark = pytest.mark.attack
GROUP = {
    "kind": "APIGroup",
    "name": "coordination.k8s.io",
    "versions": [{"groupVersion": "coordination.k8s.io/v1", "version": "v1"}],
}


def lease(namespace: str) -> dict[str, Any]:
    meta = {"name": "vgpuscope-extender", "namespace": namespace, "uid": f"u-{namespace}", "resourceVersion": "1"}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"metadata": meta, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": now}}


class Handler(BaseHTTPRequestHandler):
    """Leases by the rule of the API server: a path with a namespace has those of this namespace only."""

    leases: tuple[dict[str, Any], ...] = ()

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        parts = path.split("/")
        if path == "/apis/coordination.k8s.io":
            self._answer(200, GROUP)
        elif parts[-1] != "leases":
            self._answer(404, {"kind": "Status", "code": 404})
        elif "watch=1" in query:
            self._answer(200, None)
        else:
            wanted = parts[parts.index("namespaces") + 1] if "namespaces" in parts else None
            items = [one for one in self.leases if wanted in {None, one["metadata"]["namespace"]}]
            self._answer(
                200,
                {
                    "kind": "LeaseList",
                    "apiVersion": "coordination.k8s.io/v1",
                    "metadata": {"resourceVersion": "1"},
                    "items": items,
                },
            )

    def _answer(self, status: int, body: object) -> None:
        content = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(("namespace", "runs"), [("team-a", False), ("vgpuscope", True)])
async def test_a_lease_of_another_namespace_silences_no_metric(tmp_path, namespace, runs):
    handler = type("OneLease", (Handler,), {"leases": (lease(namespace),)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    exporter = ClusterExporter(ClusterConfig(lease_namespace="vgpuscope"))
    errors: list[ScopeError] = []
    task = asyncio.create_task(
        exporter._extender.follow(_kubeconfig(tmp_path, server.server_address[1]), errors.append)
    )
    try:
        await until(lambda: exporter._extender.kind.listed)
        assert (exporter._extender.running, exporter._estimates) == (runs, not runs)
        assert errors == []
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(server.shutdown)
        server.server_close()
        thread.join()
