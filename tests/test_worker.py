"""A worker: blocking jobs in their order, on one thread that nobody has to wait for."""

import asyncio
import gc
import threading
import weakref

import pytest

from tests.loopclock import forward
from vgpuscope.worker import Closed, Worker

SOON = 60.0


@pytest.fixture
def worker():
    made = Worker("a worker")
    yield made
    made.close()


def test_jobs_run_in_their_order_on_one_daemon_thread(worker):
    ran = []
    futures = [worker.submit(lambda n=n: ran.append(n) or threading.current_thread()) for n in range(50)]
    threads = {future.result(SOON) for future in futures}
    assert ran == list(range(50))
    assert [(thread.name, thread.daemon) for thread in threads] == [("a worker", True)]


async def test_what_a_job_returns_or_raises_comes_back(worker):
    def fail():
        raise ValueError("no")

    assert await worker.do(lambda: 7) == 7
    with pytest.raises(ValueError, match="no"):
        await worker.do(fail)
    assert await worker.do(lambda: None) is None  # an error does not end the thread


async def test_a_late_job_is_left_and_one_that_has_not_begun_never_does(worker):
    forward(0)
    gate, begun, ran = threading.Event(), threading.Event(), []
    hung = asyncio.create_task(worker.do(lambda: begun.set() or gate.wait(SOON), deadline=3600))
    behind = asyncio.create_task(worker.do(lambda: ran.append(1), deadline=3600))
    await asyncio.sleep(0)
    assert await asyncio.to_thread(begun.wait, SOON)
    forward(3600)
    for task in (hung, behind):
        with pytest.raises(TimeoutError):
            await task
    gate.set()
    assert await worker.do(lambda: "next") == "next"
    assert ran == []


async def test_a_cancellation_that_meets_the_result_is_not_lost(worker):
    doing = asyncio.create_task(worker.do(lambda: 7, deadline=SOON))
    await asyncio.sleep(0)
    worker.submit(lambda: None).result(SOON)  # the result is on its way to the loop, which is held here
    doing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await doing


def test_a_closed_worker_finishes_what_is_queued_and_takes_nothing_more(worker):
    gate = threading.Event()
    thread = worker.submit(lambda: gate.wait(SOON) and threading.current_thread())
    queued = worker.submit(lambda: "done")
    worker.close()
    with pytest.raises(Closed):
        worker.submit(lambda: None)
    gate.set()
    assert queued.result(SOON) == "done"
    thread.result(SOON).join(SOON)
    assert not thread.result().is_alive()


def test_an_abandoned_worker_drops_what_has_not_begun(worker):
    gate, begun = threading.Event(), threading.Event()
    running = worker.submit(lambda: begun.set() or gate.wait(SOON))
    queued = worker.submit(lambda: "never")
    assert begun.wait(SOON)
    worker.abandon()
    gate.set()
    with pytest.raises(Closed):  # a cancellation would end the caller, too
        queued.result(SOON)
    assert running.result(SOON)


def test_no_thread_is_started_before_there_is_work():
    before = set(threading.enumerate())
    worker = Worker("idle")
    assert set(threading.enumerate()) - before == set()  # threads of other tests may end meanwhile
    worker.close()


def test_the_last_result_is_not_kept_alive_by_the_thread(worker):
    class Result:
        pass

    last = weakref.ref(worker.submit(Result).result(SOON))
    worker.submit(lambda: None).result(SOON)
    gc.collect()
    assert last() is None
