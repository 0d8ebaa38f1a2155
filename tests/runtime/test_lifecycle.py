"""A process starts together and stops together, in time."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap

import httpx2
import pytest

from tests.http.serving import SOON, Numbers, until
from tests.loopclock import forward
from vgpuscope.http import address
from vgpuscope.http.app import App, Readiness
from vgpuscope.http.server import HttpServer
from vgpuscope.model.errors import DriverHung
from vgpuscope.runtime import lifecycle
from vgpuscope.runtime.lifecycle import Lifecycle, Loops, Restartable

FOREVER = 3600


async def forever():
    await asyncio.sleep(FOREVER)  # a loop that only a cancellation ends


def make_server():
    app = App(title="t", metrics=Numbers, ready=Readiness)
    return HttpServer(app, sock=address.bind("127.0.0.1:0"))


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_without_an_error(sig):
    life, began = Lifecycle(), asyncio.Event()

    async def loop():
        began.set()
        await forever()

    running = asyncio.create_task(life.run({"loop": loop}, server=make_server()))
    await began.wait()
    os.kill(os.getpid(), sig)
    async with asyncio.timeout(SOON):
        await running
    assert life.stopping
    life.close()


async def test_not_ready_is_told_before_the_door_closes():
    life, server = Lifecycle(drain=FOREVER), make_server()
    running = asyncio.create_task(life.run({}, server=server))
    await server.started()
    life.stop()
    async with httpx2.AsyncClient(timeout=SOON) as client:

        async def said_no():
            no = (await client.get(f"{server.url}/readyz")).status_code == 503
            assert not server._inner.should_exit  # the door is still open
            return no

        await until(said_no)
    forward(FOREVER)
    async with asyncio.timeout(SOON):
        await running


async def test_a_loop_that_fails_takes_the_others_down_and_its_error_comes_out():
    ended = asyncio.Event()

    async def other():
        try:
            await forever()
        finally:
            ended.set()

    async def failing():
        await asyncio.sleep(0)
        raise DriverHung("stuck")

    with pytest.raises(DriverHung, match="stuck"):
        await Lifecycle().run({"other": other, "failing": failing}, server=make_server())
    assert ended.is_set()


async def test_a_loop_that_returns_is_a_failure_with_its_name():
    async def returning():
        return

    with pytest.raises(RuntimeError, match="sampler came to an end"):
        await Lifecycle().run({"sampler": returning})


class Ended(BaseException):
    """What `except Exception` does not catch."""


async def cancels_itself():
    asyncio.current_task().cancel()
    await forever()


async def cancels_itself_and_returns():
    asyncio.current_task().cancel()


async def waits_for_what_is_cancelled():
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def raises_what_is_no_exception():
    raise Ended("no Exception")


STRANGE = [cancels_itself, cancels_itself_and_returns, waits_for_what_is_cancelled, raises_what_is_no_exception]


@pytest.mark.parametrize("strange", STRANGE)
async def test_a_loop_never_vanishes_silently(strange, caplog):
    died: list = []
    with pytest.raises((RuntimeError, Ended)):
        async with asyncio.timeout(SOON):
            await Lifecycle().run(
                {"good": forever, "strange": strange}, died=lambda name, error: died.append((name, error.code))
            )
    assert died == [("strange", "INTERNAL")]
    assert [r.fields["loop"] for r in caplog.records if r.message == "loop died"] == ["strange"]


@pytest.mark.parametrize("strange", STRANGE[:3])
async def test_a_restartable_loop_that_is_cancelled_from_inside_is_started_again(strange):
    died: list = []
    paused = asyncio.Event()

    async def pause(seconds):
        paused.set()
        await forever()

    life = Lifecycle(sleep=pause)
    loops: Loops = {"good": forever, "strange": Restartable(strange)}
    running = asyncio.create_task(life.run(loops, died=lambda name, _: died.append(name)))
    async with asyncio.timeout(SOON):
        await paused.wait()
    assert (died, life.waiting) == (["strange"], ("strange",))
    life.stop()
    async with asyncio.timeout(SOON):
        await running


async def test_an_error_while_a_loop_ends_is_seen():
    life, began = Lifecycle(), asyncio.Event()

    async def loop():
        began.set()
        try:
            await forever()
        finally:
            raise DriverHung("while closing")

    running = asyncio.create_task(life.run({"loop": loop}))
    await began.wait()
    life.stop()
    with pytest.raises(DriverHung, match="while closing"):
        async with asyncio.timeout(SOON):
            await running


async def test_every_task_has_a_name():
    life, names = Lifecycle(), []

    async def loop():
        names.append(asyncio.current_task().get_name())
        await forever()

    running = asyncio.create_task(life.run({"sampler": loop}))
    await until(lambda: names)
    life.stop()
    await running
    assert names == ["sampler"]


async def test_told_twice_it_leaves_at_once():
    left: list = []
    life = Lifecycle(leave=left.append)
    life._told(signal.SIGINT)
    assert left == []
    life._told(signal.SIGINT)
    assert left == [0]
    life.close()


def process(body):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(body)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_the_grace_that_is_asked_for_is_the_deadline_of_the_process():
    async def work(life):
        assert life._grace == 0.25

    assert lifecycle.main(work, grace=0.25) == 0


HUNG = """
    import asyncio, threading
    from vgpuscope.runtime import lifecycle
    from vgpuscope.runtime.probe import Probe

    async def work(life):
        {hang}
        async def loop():
            print("up", flush=True)
            await asyncio.sleep(3600)
        await life.run({{"loop": loop}})

    raise SystemExit(lifecycle.main(work, grace=0.5))
"""


DIED = """
    import asyncio, threading
    from vgpuscope.runtime import lifecycle

    async def work(life):
        async def loop():
            raise OSError("died")
        try:
            await life.run({{"loop": loop}})
        finally:
            {hang}

    raise SystemExit(lifecycle.main(work, grace=0.5))
"""


@pytest.mark.parametrize(
    "hang",
    [
        "await asyncio.sleep(3600)",  # closing waits for ever
        "asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)",
    ],
)
def test_what_hangs_cannot_keep_the_process_after_a_loop_died(hang):
    with process(DIED.format(hang=hang)) as child:
        assert child.wait(SOON) == 1


@pytest.mark.parametrize(
    "hang",
    [
        "Probe('nvml', threading.Event().wait).read",  # nothing hangs
        "threading.Thread(target=Probe('nvml', threading.Event().wait).read, args=(3600,), daemon=True).start()",
        "asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)",  # joined at exit by Python itself
    ],
)
def test_a_stuck_thread_cannot_keep_the_process_after_a_signal(hang):
    with process(HUNG.format(hang=hang)) as child:
        assert child.stdout.readline() == "up\n"
        child.send_signal(signal.SIGTERM)
        try:
            _, err = child.communicate(timeout=SOON)
        finally:
            child.kill()
    assert child.returncode == 0, err
    assert "Traceback" not in err
