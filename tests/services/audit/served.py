"""An analyzer that answers with a small fleet whose numbers a test can change, also between two requests."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from tests.contract.doctorworld import serving
from tests.logic.audit.fleets import GIB, GpuOf, TenantOf, bodies, page
from tools.writers.operations import service_operations
from vgpuscope.http.openapi import document
from vgpuscope.views.definitions import field_notes

FLEET = (
    GpuOf("GPU-1", "", "node-a", "busy", 70.0, (TenantOf("ml", "train-0", "busy", 20 * GIB),)),
    GpuOf("GPU-2", "", "node-a", "idle-held", 4.0, (TenantOf("batch", "job-0", "idle-held", 5 * GIB),)),
    GpuOf("GPU-3", "MIG-3-0", "node-b", "unknown", 0.0, ()),
)


class Served:
    """What the analyzer answers now, and what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = bodies(FLEET) | {"/api/v1/session": {"namespaces": None}}
        self.metrics = page(FLEET)
        self.asked: Counter[str] = Counter()
        self.refused: dict[str, int] = {}  # path → status
        self.before: Callable[[str], None] = lambda _: None
        self.largest = 10**9  # rows of one page

    def route(self, _: str, path: str, query: dict[str, str], __: bytes) -> tuple[int, bytes, dict[str, str]]:
        self.asked[path] += 1
        self.before(path)
        if path in self.refused:
            return self.refused[path], b"{}", {}
        if path == "/openapi.json":
            return 200, described("analyzer"), {}
        if path == "/metrics":
            return 200, self.metrics, {}
        if path not in self.answers or set(query) - {"offset", "limit", "group_by"}:
            return 404, b"{}", {}
        body = self.answers[path]
        if isinstance(body, dict) and "rows" in body:
            begin = int(query.get("offset", 0))
            most = min(self.largest, int(query.get("limit", self.largest)))
            body = body | {"rows": body["rows"][begin : begin + most]}
        return 200, json.dumps(body).encode(), {"content-type": "application/json"}


@cache
def described(service: str) -> bytes:
    """The OpenAPI document of a service."""
    return document(service_operations()[service], title=service, description="", notes=field_notes)


@contextmanager
def analyzer(served: Served) -> Iterator[str]:
    """Its address."""
    with serving(served.route) as url:
        yield url
