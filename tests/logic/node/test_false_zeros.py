"""A busy container is never shown at 0 because HAMi's watcher was refilling its region, and an idle one soon is.

The watcher is simulated here, on the test's own clock: it sleeps 120 ms, sets every sm_util and monitorused to 0, asks
the driver, and writes what the driver says. The agent samples once a second, so it can meet the same moment of this
cycle again and again.
"""

from typing import NamedTuple

import pytest

from tests.logic.node.builders import GIB, make_gpu, owner, pod, process, region, sample, share, slot
from vgpuscope.logic.node.snapshot import NodeTracker

SLEEP = 0.120
FEW = 3  # samples after which an ended work must be shown as 0


class Watcher(NamedTuple):
    """The watcher of one process that works until it ends; times are seconds since the first sample."""

    phase: float  # when a cycle begins
    calls: float  # seconds that the driver's answers take, in which the region shows 0
    end: float = 1e9  # of the work

    def driver(self, at: float) -> float:
        """The process's use of the SMs over the last second, as the driver tells everybody."""
        return 0.6 if at < self.end + 1 else 0.0

    def region(self, at: float) -> float:
        """What stands in the region."""
        cycle = SLEEP + self.calls
        into = (at - self.phase) % cycle
        return 0.0 if into < self.calls else self.driver(at - into + self.calls)


def follow(watcher, seconds, *, tells=True):
    """What a container's vGPU shows, sample by sample."""
    mind, shown = NodeTracker(node="n1", window=60.0), []
    for at in range(seconds):
        sm = watcher.driver(at)
        gpu = make_gpu(used=GIB, utilization=sm, processes=(process(5, GIB, sm=sm if tells else None),))
        seen = watcher.region(at)
        snapshot = sample(
            gpu,
            mind=mind,
            at=1000.0 + at,
            regions=[region("a", slot(5, GIB, seen, driver_used=GIB if seen else 0), limit=8 * GIB)],
            owners=[owner(5, "a")],
            pods=[pod("a", shares=[share()])],
        )
        (vgpu,), (container,) = snapshot.vgpus, snapshot.containers
        shown.append((vgpu.sm, container.sm, container.state))
    return shown


# 5 ms: the cycle is an eighth of a second, so each sample meets the same moment of it. 4.99 ms: it drifts slowly.
CALLS = (0.005, 0.00499, 0.030, 0.080, 0.130)
PHASES = tuple(i / 40 for i in range(10))


@pytest.mark.parametrize("calls", CALLS)
@pytest.mark.parametrize("phase", PHASES)
def test_a_container_that_the_driver_sees_working_is_never_shown_at_zero(phase, calls):
    shown = follow(Watcher(phase=phase, calls=calls), 60)
    assert shown == [(0.6, 0.6, "active")] * 60


@pytest.mark.parametrize("calls", CALLS)
@pytest.mark.parametrize("phase", PHASES)
def test_a_container_whose_work_has_ended_is_soon_shown_at_zero(phase, calls):
    watcher = Watcher(phase=phase, calls=calls, end=10.5)
    shown = follow(watcher, 30)
    ended = next(at for at in range(30) if watcher.driver(at) == 0)
    assert [vgpu for vgpu, _, _ in shown[:ended]] == [0.6] * ended
    assert [vgpu for vgpu, _, _ in shown[ended + FEW :]] == [0.0] * (30 - ended - FEW)
