"""A server in the test's own loop."""

import asyncio
import gzip
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from tests.waiting import (
    WITHIN,
    until,  # noqa: F401 - tests of servers wait by it
)
from vgpuscope.http import address
from vgpuscope.http.app import App, Readiness
from vgpuscope.http.connection import ConnectionLimits
from vgpuscope.http.server import HttpServer

SOON = WITHIN


class Numbers:
    """A page whose four forms can be told apart."""

    def text(self):
        return b"text 1\n"

    def openmetrics(self):
        return b"openmetrics 1\n# EOF\n"

    def gzipped(self, openmetrics):
        return gzip.compress(self.openmetrics() if openmetrics else self.text())


@asynccontextmanager
async def served(
    *, app=None, metrics=Numbers, ready=Readiness, guard=None, routes=(), listen="127.0.0.1:0", **limits: Any
):
    app = app or App(title="a <test>", metrics=metrics, ready=ready, guard=guard, routes=routes)
    server = HttpServer(app, sock=address.bind(listen), guard=guard, limits=ConnectionLimits(**limits))
    task = asyncio.create_task(server.run())
    try:
        async with asyncio.timeout(SOON):
            await server.started()
            yield server
    finally:
        server.stop()
        async with asyncio.timeout(SOON):
            await task


@asynccontextmanager
async def client_of(app, guard=None):
    """A client of an application that is served."""
    async with served(app=app, guard=guard) as server, httpx2.AsyncClient(base_url=server.url, timeout=SOON) as client:
        yield client
