"""A service inside an ASGI server that is not ours (uvicorn, gunicorn): the same frame, as long as the lifespan lasts.

The host has the listener, TLS, the signals and the limits for slow clients. The frame keeps the rest.
"""

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from vgpuscope.http.answers import JSON
from vgpuscope.http.app import App
from vgpuscope.http.error_body import error_body
from vgpuscope.model.errors import ConfigInvalid, ScopeError
from vgpuscope.runtime.lifecycle import GRACE, Lifecycle
from vgpuscope.runtime.log import fields
from vgpuscope.services.frame import Frame, Plan, begin

if TYPE_CHECKING:
    from vgpuscope.services.frame import Guard

log = logging.getLogger(__name__)

_LOOK_EVERY = 1.0  # seconds between two checks of the web configuration file
_NOT_STARTED = error_body(
    "NOT_STARTED",
    "the server did not start the application",
    "Run the server with its lifespan on; for uvicorn that is --lifespan on, or no such flag.",
)


class Hosted:
    """The ASGI application of one service. Settings are read when the server starts it, and not at import."""

    def __init__(self, prepare: Callable[[], Plan]) -> None:
        self._prepare = prepare
        self._server: HostServer | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close"})
        elif self._server is None:
            await Response(_NOT_STARTED, 503, media_type=JSON)(scope, receive, send)
        else:
            await self._server.answer(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()  # lifespan.startup
        life = Lifecycle(signals=())
        try:
            frame, server = self._start(life)
        except ScopeError as e:
            await send({"type": "lifespan.startup.failed", "message": e.lines})
            return
        except Exception as e:
            log.exception("the application cannot start", extra=fields(error_code=ScopeError.code))
            await send({"type": "lifespan.startup.failed", "message": f"{type(e).__name__}: {e}"})
            return
        self._server = server
        with _on_end(server.not_ready):
            running = asyncio.create_task(frame.run(), name="frame")
            running.add_done_callback(lambda _: None if life.stopping else signal.raise_signal(signal.SIGTERM))
            await send({"type": "lifespan.startup.complete"})
            await receive()  # lifespan.shutdown
        life.stop()
        await _ended(running)
        await send({"type": "lifespan.shutdown.complete"})

    def _start(self, life: Lifecycle) -> "tuple[Frame, HostServer]":
        plan = self._prepare()
        begin(plan.config, plan.file)
        made: list[HostServer] = []

        def serve(app: App, guard: "Guard | None") -> HostServer:
            made.append(HostServer(app, guard))
            return made[0]

        return Frame(plan.make(), life, plan.listening, serve), made[0]


class HostServer:
    """Stands where our own server does: requests come from the host, and the host decides when they end."""

    url = None  # only the host knows it

    def __init__(self, app: App, guard: "Guard | None") -> None:
        """ConfigInvalid if the web configuration asks for what only our own server has."""
        if guard is not None and guard.web.tls is not None:
            raise ConfigInvalid(
                "analyzer.web_config_file: TLS is configured, but the connections belong to another server",
                hint="Configure TLS there (uvicorn: --ssl-keyfile, --ssl-certfile), or run `vgpuscope analyzer`.",
            )
        self._app, self._guard = app, guard
        self._stopped = asyncio.Event()

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, with the headers of the web configuration."""
        extra = self._guard.web.headers if self._guard else ()

        async def with_headers(message: Message) -> None:
            if extra and message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *extra]
            await send(message)

        await self._app(scope, receive, with_headers)

    async def run(self) -> None:
        """Reload users and tokens that changed, until stop()."""
        while not self._stopped.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY):
                    await self._stopped.wait()
            if self._guard:
                self._guard.refresh()

    async def started(self) -> None:
        """Requests come as soon as the lifespan has begun."""

    def not_ready(self) -> None:
        """Report not ready, and end the streams of events: a host waits for every answer before it ends."""
        self._app.stopping = True
        self._app.streams.stopped.set()

    def stop(self) -> None:
        self.not_ready()
        self._stopped.set()

    def close(self) -> None:
        if self._guard:
            self._guard.close()


async def _ended(running: "asyncio.Task[None]") -> None:
    """Wait for the end of the frame, but not forever; its error is already logged."""
    done, _ = await asyncio.wait({running}, timeout=GRACE)
    if not done:
        running.cancel()
        log.warning("not everything ended in time")
    elif not running.cancelled() and (error := running.exception()):
        log.error("ended with an error", exc_info=error)


@contextlib.contextmanager
def _on_end(act: Callable[[], None]) -> Iterator[None]:
    """Act at once when a signal ends the host, whose own handler follows: the lifespan's end comes too late."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {sig: signal.getsignal(sig) for sig in (signal.SIGTERM, signal.SIGINT)}

    def handle(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(act)
        hosts = before[signal.Signals(number)]
        if callable(hosts):
            hosts(number, frame)

    for sig in before:
        signal.signal(sig, handle)
    try:
        yield
    finally:
        for sig, handler in before.items():
            if signal.getsignal(sig) is handle:
                signal.signal(sig, handler)
