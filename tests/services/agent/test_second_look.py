"""Without the driver's word, a region that shows 0 is read again at other moments of its watcher's cycle.

The watcher is simulated here, on the test's own clock: it sleeps 120 ms, sets every sm_util and monitorused to 0, asks
the driver, and writes what the driver says. The agent has no driver in these tests.
"""

import random

import pytest

from tests.services.agent.sampling import bare_sampler
from vgpuscope.services.agent import sampler as agent_sampler
from vgpuscope.sim.regions import DeviceUse, RegionFile

A = "GPU-aaaaaaaa-0000-0000-0000-000000000000"
GIB = 1 << 30
SLEEP, PID, HOST_PID = 0.120, 7, 4242


class Container:
    """A region whose watcher writes it, and the clock that both live by."""

    def __init__(self, root, *, phase, calls, end=1e9):
        folder = root / "uid-a_main"
        folder.mkdir(parents=True)
        self.now, self.slept = 0.0, []
        self._phase, self._calls, self._end = phase, calls, end
        self._file = RegionFile(folder / "a.cache", layout="v1.2", uuids=[A], memory_limits=[8 * GIB], now=0)
        self._file.attach(PID, now=0, alive={PID})
        self.advance(0)

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.advance(seconds)

    def advance(self, seconds):
        self.now += seconds
        into = (self.now - self._phase) % (SLEEP + self._calls)
        busy = self.now - into < self._end + 1
        sm, used = (60 * busy, GIB) if into >= self._calls else (0, 0)
        self._file.update(PID, host_pid=HOST_PID, devices=[DeviceUse(context=GIB, data=0, driver_used=used, sm=sm)])


@pytest.fixture
def follow(tmp_path):
    """What a container's vGPU shows, sample by sample, each on a full second."""
    uniform = random.Random(9).uniform

    def run(container, seconds):
        (tmp_path / "proc").mkdir()
        sampler = bare_sampler(tmp_path, sleep=container.sleep, uniform=uniform)
        shown = []
        for second in range(seconds):
            container.advance(second - container.now)
            sample, _ = sampler.cycle()
            shown.append(sample.complete().vgpus[0].sm)
        return shown

    return run


@pytest.mark.parametrize(("phase", "calls"), [(0.0, 0.005), (0.124, 0.005), (0.0, 0.030), (0.1, 0.080)])
def test_without_a_driver_a_busy_container_is_not_shown_at_zero(tmp_path, follow, phase, calls):
    assert follow(Container(tmp_path / "containers", phase=phase, calls=calls), 60) == [0.6] * 60


def test_without_a_driver_a_container_whose_work_has_ended_is_soon_shown_at_zero(tmp_path, follow):
    shown = follow(Container(tmp_path / "containers", phase=0.0, calls=0.005, end=10.5), 30)
    assert (shown[:11], shown[15:]) == ([0.6] * 11, [0.0] * 15)


def test_a_container_that_stays_idle_is_hardly_ever_read_twice(tmp_path, follow):
    container = Container(tmp_path / "containers", phase=0.0, calls=0.005, end=-9.0)
    follow(container, 100)
    assert 0 < len(container.slept) < 100 * agent_sampler.LOOKS // 4
