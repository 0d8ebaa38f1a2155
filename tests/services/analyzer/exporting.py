"""A cluster exporter in the test's own loop, which does as it is told."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.http.serving import served
from vgpuscope.model.cluster import NodeLedger
from vgpuscope.model.pending import PendingList, PendingPod
from vgpuscope.model.service import HEADER
from vgpuscope.views.cluster.pending.api import pending_list


class Exporter:
    """What it answers, and how."""

    def __init__(self) -> None:
        self.url = ""
        self.nodes: tuple[NodeLedger, ...] = ()
        self.pods: tuple[PendingPod, ...] = ()
        self.page = ""
        self.status = 200
        self.name = "cluster exporter"
        self.asked = 0
        self.let_go = asyncio.Event()
        self.let_go.set()

    async def answer_nodes(self, request: Request) -> Response:
        self.asked += 1
        return await self._json(self.nodes)

    async def answer_pending(self, request: Request) -> Response:
        chosen = request.query_params.get("pod")
        found: PendingList = pending_list((pod for pod in self.pods if chosen in (None, pod.pod)), 1000.0)
        return await self._json(found)

    async def answer_page(self, request: Request) -> Response:
        return Response(self.page, media_type="text/plain")

    async def _json(self, value: object) -> Response:
        await self.let_go.wait()
        return Response(msgspec.json.encode(value), self.status, {HEADER: self.name}, "application/json")


@asynccontextmanager
async def exporting():
    exporter = Exporter()
    routes = [
        Route("/api/v1/nodes", exporter.answer_nodes),
        Route("/api/v1/pending", exporter.answer_pending),
        Route("/readyz", lambda _: Response("{}")),
    ]

    class Page:
        def text(self) -> bytes:
            return exporter.page.encode()

        openmetrics = text

        def gzipped(self, openmetrics: bool) -> bytes:
            raise AssertionError("the console reads the page uncompressed: it can have several gzip members")

    async with served(routes=routes, metrics=Page) as server:
        exporter.url = server.url
        try:
            yield exporter
        finally:
            exporter.let_go.set()
