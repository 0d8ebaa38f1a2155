"""The HTTP server of every service: uvicorn on our own socket, with the limits of each connection."""

import asyncio
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

import uvicorn

from vgpuscope.http import address
from vgpuscope.http.app import App
from vgpuscope.http.connection import ConnectionLimits, LimitedConnection

if TYPE_CHECKING:  # an agent without a web configuration does not need it
    from vgpuscope.http.guard import Guard


class HttpServer:
    """Serves an application on a bound socket until stop(); reloads TLS certificates and users while it runs."""

    def __init__(
        self,
        app: App,
        *,
        sock: socket.socket,
        guard: "Guard | None" = None,
        limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008 - frozen
    ) -> None:
        self._app = app
        app.only_local = address.is_loopback(sock.getsockname()[0])
        self._sock = sock
        self._guard = guard
        self._inner = _Uvicorn(app, sock=sock, guard=guard, limits=limits)

    @property
    def url(self) -> str:
        """Its address as a URL for a browser on this machine."""
        place = address.shown(self._sock).replace("0.0.0.0:", "127.0.0.1:").replace("[::]:", "[::1]:")
        return f"http{'s' if self._guard and self._guard.web.tls else ''}://{place}"

    async def run(self) -> None:
        """Serve; returns after stop(), once the answers in progress are sent."""
        try:
            await self._inner.serve()
        finally:
            self._inner.close()
            self._sock.close()
            if self._guard:
                self._guard.close()

    def close(self) -> None:
        """Stop listening; run() does this too."""
        self._sock.close()

    async def started(self) -> None:
        """Wait until requests are answered."""
        await self._inner.listening.wait()

    def not_ready(self) -> None:
        """Answer /readyz with "not ready" from now on."""
        self._app.stopping = True

    def stop(self) -> None:
        """Let run() finish."""
        self.not_ready()
        self._app.streams.stopped.set()
        self._inner.should_exit = True
        self._inner.leaving.set()


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers, on a socket that we bound, with checks once a second."""

    def __init__(self, app: App, *, sock: socket.socket, guard: "Guard | None", limits: ConnectionLimits) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=LimitedConnection,
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=limits.keep_alive,
                timeout_graceful_shutdown=2,
                headers=[(k.decode(), v.decode()) for k, v in guard.web.headers] if guard else [],
            )
        )
        self._app, self._sock = app, sock
        self._guard, self._limits = guard, limits
        self.listening = asyncio.Event()
        self.leaving = asyncio.Event()
        self.servers: list[asyncio.base_events.Server] = []

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        await self._serve(sockets)  # serve() of the base class would take over SIGTERM and SIGINT

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 - ours is bound
        await self._listen()
        self.started = True
        self.listening.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            try:
                async with asyncio.timeout(1.0):
                    await self.leaving.wait()
            except TimeoutError:
                await self._look_around()

    def close(self) -> None:
        for server in self.servers:
            server.close()

    async def _look_around(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in list(self.server_state.connections):
            if isinstance(connection, LimitedConnection):
                connection.judge(now)
        if self._guard and self._guard.refresh():
            self.config.encoded_headers = list(self._guard.web.headers)
            await self._listen()

    async def _listen(self) -> None:
        """Listen with the current TLS settings; the kernel's queue stays, so no connection is refused meanwhile."""
        before = self.servers
        tls = self._guard.web.tls if self._guard else None
        server = await asyncio.get_running_loop().create_server(
            self._connection,
            sock=self._sock.dup(),
            ssl=tls,
            backlog=address.BACKLOG,
            ssl_handshake_timeout=self._limits.handshake_within if tls else None,
            ssl_shutdown_timeout=2.0 if tls else None,
        )
        self.servers = [server]
        await _closed(before)

    def _connection(self) -> LimitedConnection:
        connection = LimitedConnection(config=self.config, server_state=self.server_state, app_state={})
        connection.guard, connection.limits, connection.longer = self._guard, self._limits, self._app.longest
        connection.name = self._app.name
        return connection


async def _closed(servers: Sequence[asyncio.base_events.Server]) -> None:
    """Close listeners, but not before the connections that they have accepted in this turn of the loop have begun.

    asyncio drops a connection whose server is closed in between, and its client waits for an answer until it gives up.
    """
    loop = asyncio.get_running_loop()
    for server in servers:
        for listening in server.sockets:
            loop.remove_reader(listening.fileno())
    await asyncio.sleep(0)
    for server in servers:
        server.close()
