"""The frame of every process: logging, guard, listener, loops, server, shutdown. A service adds only its own parts.

settings ─► log ─► Service() ─► guard ─► App ─► bind ─► loops + server ─► signal, or a loop that died ─► close

Another ASGI server can take the place of our own (`hosted.py`); everything else stays the same.
"""

import asyncio
import contextlib
import logging
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from vgpuscope.config import Config, SettingsFile, tell_file
from vgpuscope.http import address
from vgpuscope.http.app import App, Readiness
from vgpuscope.http.server import HttpServer
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.service import ServiceName
from vgpuscope.runtime import lifecycle
from vgpuscope.runtime.counters import Counters
from vgpuscope.runtime.lifecycle import Lifecycle, Loops, Restartable
from vgpuscope.runtime.log import fields, setup

if TYPE_CHECKING:  # services take the type from here: only the frame makes a guard
    from vgpuscope.http.guard import Guard as Guard  # noqa: PLC0414 - an alias of itself is exported

__all__ = ["Frame", "Listening", "Loops", "Plan", "Restartable", "Service", "Serving", "begin", "run"]

log = logging.getLogger(__name__)


class Listening(Protocol):
    """The settings that every service has in its own section."""

    @property
    def listen(self) -> str: ...
    @property
    def web_config_file(self) -> str | None: ...
    @property
    def hosts(self) -> tuple[str, ...]: ...


class Serving(lifecycle.RunningServer, Protocol):
    """What answers the requests for an application: our own server, or a stand-in for the one that hosts us."""

    @property
    def url(self) -> str | None: ...
    async def started(self) -> None:
        """Wait until requests are answered."""

    def close(self) -> None:
        """Release the address, even if run() was never called."""


Serve = Callable[[App, "Guard | None"], Serving]


class Service(ABC):
    """The part of a process that is specific to one service. It is created inside the event loop."""

    name: ClassVar[ServiceName]

    def __init__(self) -> None:
        self.counters = Counters()

    @abstractmethod
    def loops(self) -> Loops:
        """The loops that run as long as the process. A loop that is not restartable ends the process if it dies."""

    @abstractmethod
    def app(self, guard: "Guard | None") -> App:
        """The service's HTTP application."""

    @abstractmethod
    def readiness(self) -> Readiness:
        """What is still missing; the frame adds the loops that died and wait for their restart."""

    def about(self) -> Mapping[str, object]:
        """The fields that the log has when the service starts."""
        return {}

    def warn(self) -> None:  # noqa: B027 - most have nothing to warn of
        """Log warnings about these settings."""

    def signals(self) -> Mapping[signal.Signals, Callable[[], None]]:
        """The service's handlers for signals other than those that end the process."""
        return {}

    async def close(self) -> None:  # noqa: B027 - most hold nothing that others want
        """Release resources that other processes may need."""


class Plan(NamedTuple):
    """What the frame needs for a service."""

    make: Callable[[], Service]  # inside the event loop
    config: Config
    listening: Listening
    file: SettingsFile | None


def begin(config: Config, file: SettingsFile | None) -> None:
    """The first steps of every process: set up its log, and log which settings were read."""
    setup(v=config.log.v, format=config.log.format, level=config.logging.level)
    tell_file(file)


def run(
    make: Callable[[], Service],
    config: Config,
    listening: Listening,
    file: SettingsFile | None,
    *,
    grace: Seconds = lifecycle.GRACE,
) -> int:
    """Run a service until a signal ends it; returns the exit code. The error of a non-restartable loop is raised.

    `grace` is the time from the signal to the end, even if something hangs.
    """
    begin(config, file)

    async def work(life: Lifecycle) -> None:
        await Frame(make(), life, listening).run()

    return lifecycle.main(work, grace=grace)


class Frame:
    """A running service, from its start to its end."""

    def __init__(self, service: Service, life: Lifecycle, listening: Listening, serve: Serve | None = None) -> None:
        """Raises ConfigInvalid or PortBusy if the service cannot be served with these settings.

        `serve` returns the server, if not our own on `listening.listen`.
        """
        self._service, self._life = service, life
        guard = _guard(listening.web_config_file, service.counters)
        app = service.app(guard)
        app.hosts = listening.hosts
        app.failing = lambda: [f"loop {name}" for name in life.waiting]
        self.server: Serving = (
            serve(app, guard) if serve else HttpServer(app, sock=address.bind(listening.listen), guard=guard)
        )

    async def run(self) -> None:
        """Run until the end of the process; the service is closed in every case."""
        service = self._service
        log.info("%s starts", service.name, extra=fields(url=self.server.url, **service.about()))
        service.warn()
        try:
            with _on_signals(service.signals()):
                await self._life.run(service.loops(), server=self.server, died=service.counters.died)
        finally:
            self.server.close()  # a loop may have died before the server began to run
            await service.close()


def _guard(path: str | None, counters: Counters) -> "Guard | None":
    """The guard of a web configuration file. Its module is imported only if configured: bcrypt costs memory."""
    if path is None:
        return None
    from vgpuscope.http.guard import Guard

    return Guard(path, on_error=counters.count)


@contextlib.contextmanager
def _on_signals(actions: Mapping[signal.Signals, Callable[[], None]]) -> Iterator[None]:
    loop, handled = asyncio.get_running_loop(), []
    try:
        for sig, action in actions.items():
            with contextlib.suppress(RuntimeError, ValueError):  # not in the main thread
                loop.add_signal_handler(sig, action)
                handled.append(sig)
        yield
    finally:
        for sig in handled:
            loop.remove_signal_handler(sig)
