"""One frame for every process: a loop that dies is seen, and nothing lives on half dead."""

import asyncio
import importlib.util
import inspect
import pkgutil
import signal
from types import SimpleNamespace

import httpx2
import pytest

from tests.http.serving import SOON, Numbers, until
from vgpuscope import services
from vgpuscope.http.app import App, Readiness
from vgpuscope.model.errors import DriverHung, PortBusy
from vgpuscope.runtime.lifecycle import Lifecycle
from vgpuscope.services import frame
from vgpuscope.services.frame import Frame, Restartable, Service

BROKEN = ValueError("broken")
HERE = SimpleNamespace(listen="127.0.0.1:0", web_config_file=None, hosts=())


async def forever():
    await asyncio.Event().wait()


class Pauses:
    """A clock in the hands of the test: a pause lasts until the test ends it, and the time is what the test says."""

    def __init__(self):
        self.now = 0.0
        self.asked = []
        self._over = asyncio.Event()

    def clock(self):
        return self.now

    async def sleep(self, seconds):
        self.asked.append(seconds)
        await self._over.wait()
        self._over.clear()
        self.now += seconds

    def end(self):
        self._over.set()


class Sick(Service):
    """A service with one loop that dies whenever it is told to."""

    name = "agent"

    def __init__(self, error=BROKEN):
        super().__init__()
        self.error, self.starts, self.closed = error, 0, False
        self.die = asyncio.Event()

    def loops(self):
        return {"good": forever, "sick": Restartable(self._sick)}

    def app(self, guard):
        return App(title="t", metrics=Numbers, ready=self.readiness, guard=guard)

    def readiness(self):
        return Readiness()

    async def close(self):
        self.closed = True

    async def _sick(self):
        self.starts += 1
        await self.die.wait()
        self.die.clear()
        raise self.error


class Running:
    def __init__(self, service, **more):
        self.pauses = Pauses()
        self.life = Lifecycle(sleep=self.pauses.sleep, clock=self.pauses.clock)
        self.frame = Frame(service, self.life, HERE)

    async def __aenter__(self):
        self.task = asyncio.create_task(self.frame.run())
        await self.frame.server.started()
        return self

    async def __aexit__(self, *_):
        self.life.stop()
        async with asyncio.timeout(SOON):
            await self.task

    async def missing(self):
        async with httpx2.AsyncClient(timeout=SOON) as client:
            return (await client.get(f"{self.frame.server.url}/readyz")).json()["missing"]


async def test_a_restartable_loop_that_dies_is_logged_counted_shown_and_started_again(caplog):
    service = Sick(DriverHung("stuck"))
    async with Running(service) as running:
        assert await running.missing() == []
        service.die.set()
        await until(lambda: running.pauses.asked)
        assert await running.missing() == ["loop sick"]
        assert service.counters.restarts == {"sick": 1}
        assert service.counters.errors == {"DRIVER_HUNG": 1}
        died = next(record for record in caplog.records if record.message == "loop died")
        assert (died.fields["loop"], died.fields["error_code"]) == ("sick", "DRIVER_HUNG")
        running.pauses.end()
        await until(lambda: service.starts == 2)
        assert await running.missing() == []


async def test_the_pause_doubles_up_to_a_minute_and_begins_anew_after_a_minute_of_work():
    service = Sick()
    async with Running(service) as running:
        for times in range(1, 9):
            service.die.set()
            await until(lambda times=times: len(running.pauses.asked) == times)
            running.pauses.end()
            await until(lambda times=times: service.starts == times + 1)
        assert running.pauses.asked == [1, 2, 4, 8, 16, 32, 60, 60]
        running.pauses.now += 61
        service.die.set()
        await until(lambda: len(running.pauses.asked) == 9)
        assert running.pauses.asked[-1] == 1


@pytest.mark.parametrize("way", ["returns", "cancelled"])
async def test_a_loop_that_ends_without_an_error_has_died_too(way):
    service = Sick()

    async def ends():
        if way == "cancelled":
            raise asyncio.CancelledError  # as a task that it waits for may do
        service.starts += 1

    vars(service)["loops"] = lambda: {"sick": Restartable(ends)}
    async with Running(service) as running:
        await until(lambda: running.pauses.asked)
        assert service.counters.restarts == {"sick": 1}


@pytest.mark.parametrize("way", [BROKEN, asyncio.CancelledError(), None])
async def test_any_other_loop_that_dies_ends_the_process(way, caplog):
    async def dies():
        await framed.server.started()
        if way is not None:
            raise way

    service = Sick()
    vars(service)["loops"] = lambda: {"good": forever, "sampler": dies}
    framed = Frame(service, Lifecycle(), HERE)
    with pytest.raises((ValueError, RuntimeError)):
        async with asyncio.timeout(SOON):
            await framed.run()
    assert service.closed
    assert [record.fields["loop"] for record in caplog.records if record.message == "loop died"] == ["sampler"]


async def test_a_server_that_ends_by_itself_ends_the_process():
    service = Sick()
    framed = Frame(service, Lifecycle(), HERE)
    running = asyncio.create_task(framed.run())
    await framed.server.started()
    framed.server.stop()  # nobody told the process
    with pytest.raises(RuntimeError, match="http came to an end"):
        async with asyncio.timeout(SOON):
            await running
    assert service.closed


def test_a_loop_that_must_not_die_gives_an_exit_code_that_is_not_0():
    import subprocess
    import sys

    code = (
        "import asyncio\n"
        "from types import SimpleNamespace\n"
        "from vgpuscope import config\n"
        "from vgpuscope.services import frame\n"
        "from tests.services.test_frame import HERE, Sick\n"
        "class Dying(Sick):\n"
        "    def loops(self):\n"
        "        async def dies(): raise ValueError('broken')\n"
        "        return {'sampler': dies}\n"
        "raise SystemExit(frame.run(Dying, config=config.load(flags={}, environ={}, file='none').config,"
        " listening=HERE, file=None))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SOON)
    assert done.returncode == 1
    assert "loop died loop=sampler error_code=INTERNAL" in done.stderr


async def test_a_service_is_closed_when_its_end_is_wanted_and_its_signals_are_its_own():
    service, told = Sick(), []
    vars(service)["signals"] = lambda: {signal.SIGHUP: lambda: told.append("hang up")}
    async with Running(service):
        signal.raise_signal(signal.SIGHUP)
        await until(lambda: told)
    assert service.closed


async def test_a_port_that_is_taken_is_known_before_anything_runs():
    service = Sick()
    async with Running(Sick()) as running:
        taken = SimpleNamespace(listen=running.frame.server.url.removeprefix("http://"), web_config_file=None, hosts=())
        with pytest.raises(PortBusy):
            Frame(service, Lifecycle(), taken)
    assert service.starts == 0


def processes():
    return [name for name in folders() if importlib.util.find_spec(f"vgpuscope.services.{name}.process")]


def folders():
    return [name for _, name, folder in pkgutil.iter_modules(services.__path__) if folder]


def test_there_are_five_processes_and_what_doctor_and_its_audit_collect():
    assert set(processes()) == {"agent", "analyzer", "cluster", "extender", "plugin"}
    assert set(folders()) - set(processes()) == {"audit", "doctor"}


@pytest.mark.parametrize("name", processes())
def test_every_process_is_a_service_in_the_frame(name, monkeypatch):
    """That none of them starts loops or a server by itself is an import contract."""
    module = importlib.import_module(f"vgpuscope.services.{name}.process")
    own = [
        found
        for _, found in inspect.getmembers(module, inspect.isclass)
        if issubclass(found, Service) and found is not Service
    ]
    assert len(own) == 1
    assert not inspect.isabstract(own[0])
    used = {module.__dict__.get("run"), getattr(module.__dict__.get("frame"), "run", None)}
    assert frame.run in used
