"""The extender's operations about decisions, served by the real API frame on a thread of its own."""

import asyncio
import threading
from collections.abc import Callable, Sequence

from tests.http.serving import SOON, Numbers
from vgpuscope.http import address
from vgpuscope.http.app import App, Readiness
from vgpuscope.http.operations import Operation, routes
from vgpuscope.http.server import HttpServer


class Served:
    """Operations behind an address, until stop(). They are made within the loop that serves them."""

    def __init__(self, operations: Callable[[], Sequence[Operation]]) -> None:
        self._operations, self._ready = operations, threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="served extender", daemon=True)
        self._thread.start()
        assert self._ready.wait(SOON)

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._server.stop)
            self._thread.join(SOON)

    async def _serve(self) -> None:
        table = routes(self._operations())
        app = App(title="extender", metrics=Numbers, ready=Readiness, routes=table, service="extender")
        self._loop, self._server = asyncio.get_running_loop(), HttpServer(app, sock=address.bind("127.0.0.1:0"))
        self.url = self._server.url
        task = asyncio.create_task(self._server.run())
        await self._server.started()
        self._ready.set()
        await task
