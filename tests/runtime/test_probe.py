"""A probe: a call that hangs costs one thread, once."""

import threading
import time

import pytest

from tests.waiting import wait_until
from vgpuscope.model.errors import DriverHung, SourceDown
from vgpuscope.runtime.probe import Probe

SOON = 60.0


class Hanging:
    """A driver call that hangs until it is let go."""

    def __init__(self):
        self.calls = 0
        self.let_go = threading.Event()

    def __call__(self):
        self.calls += 1
        assert self.let_go.wait(SOON)
        return self.calls


@pytest.fixture
def hanging():
    call = Hanging()
    yield call
    call.let_go.set()


def test_a_read_gives_what_the_function_returns():
    assert Probe("nvml", lambda: 7).read(SOON) == 7


def test_a_function_may_return_nothing():
    assert Probe("nvml", lambda: None).read(SOON) is None


def test_a_read_raises_what_the_function_raises():
    def fail():
        raise SourceDown("gone")

    probe = Probe("nvml", fail)
    for _ in range(2):
        with pytest.raises(SourceDown, match="gone"):
            probe.read(SOON)


def test_a_call_that_is_not_back_in_time_is_named(hanging):
    probe = Probe("nvml", hanging, doing=lambda: "nvmlDeviceGetUtilizationRates on GPU-1", error=DriverHung)
    with pytest.raises(DriverHung, match=r"nvml: nvmlDeviceGetUtilizationRates on GPU-1 has not come back"):
        probe.read(0.01)


def test_a_call_that_is_out_is_never_started_twice_and_nobody_waits_for_it_again(hanging):
    probe = Probe("nvml", hanging)
    with pytest.raises(SourceDown):
        probe.read(0.01)
    began = time.monotonic()
    for _ in range(100):
        with pytest.raises(SourceDown):
            probe.read(SOON)
    assert time.monotonic() - began < SOON / 2
    wait_until(lambda: hanging.calls)  # its thread may begin after the deadline
    assert hanging.calls == 1
    assert probe.stuck_seconds > 0


def test_when_the_call_returns_reading_goes_on_with_a_fresh_call(hanging):
    probe = Probe("nvml", hanging)
    with pytest.raises(SourceDown):
        probe.read(0.01)
    hanging.let_go.set()
    wait_until(lambda: probe.stuck_seconds is None)
    assert probe.read(SOON) == 2  # the late answer of the first call is stale


def test_an_error_that_comes_late_is_not_taken_for_the_next_answer():
    gate, calls = threading.Event(), []

    def once_late():
        calls.append(1)
        if len(calls) == 1:
            assert gate.wait(SOON)
            raise SourceDown("stale")
        return "fresh"

    probe = Probe("nvml", once_late)
    with pytest.raises(SourceDown, match="not come back"):
        probe.read(0.01)
    gate.set()
    wait_until(lambda: probe.stuck_seconds is None)
    assert probe.read(SOON) == "fresh"


def test_all_reads_happen_on_one_daemon_thread():
    probe = Probe("nvml", threading.current_thread)
    threads = {probe.read(SOON) for _ in range(20)}
    assert len(threads) == 1
    assert threads.pop().daemon


def test_a_closed_probe_leaves_no_thread():
    probe = Probe("nvml", threading.current_thread)
    thread = probe.read(SOON)
    probe.close()
    thread.join(SOON)
    assert not thread.is_alive()


def test_a_reading_is_not_kept_alive_by_the_probe():
    import gc
    import weakref

    class Reading:
        pass

    probe = Probe("nvml", Reading)
    last = weakref.ref(probe.read(SOON))
    wait_until(lambda: (gc.collect(), last() is None)[1])
