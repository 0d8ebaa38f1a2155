"""Many thousand samples of a node on which nothing lasts: what the agent holds does not grow."""

import json
import statistics
import subprocess
import sys

import pytest

from tests.environment import uncovered
from tests.native import build
from tests.services.agent.soak import LEAVE_IN_A_WINDOW

pytestmark = pytest.mark.soak

CYCLES = [5_000, pytest.param(20_000, marks=pytest.mark.long)]
WITHIN = 3600.0  # seconds, on a machine that does other things too
MOST_GROWTH = 1_500_000  # bytes of resident memory in the last three quarters
# By cycles: bytes of resident memory per cycle, with a change on the node in every fifth, and blocks of Python's memory
# per cycle. 0.07 blocks are about two for each container that came and went. A short run only finds a large leak.
MOST = {5_000: (200.0, 1.0), 20_000: (60.0, 0.07)}
RESOURCES = {"cycle", "resident", "fds", "threads"}


@pytest.mark.parametrize("cycles", CYCLES)
def test_what_the_agent_holds_does_not_grow_while_pods_processes_regions_and_instances_come_and_go(tmp_path, cycles):
    *looks, end = soaked(tmp_path, cycles)
    assert end["wrong"] is None  # every page had as many series as the docs promise
    history = [look for look in looks if "cycle" in look]
    calm = [look for look in looks if "calm" in look]  # the node is as it was at the beginning
    much_came_and_went(history, end, cycles)
    nothing_is_remembered_of_what_is_gone(history)
    descriptors_and_threads_are_as_many_as_at_the_beginning(history)
    memory_is_flat(calm[len(calm) // 4 :], *MOST[cycles])


def soaked(root, cycles):
    """What tests.services.agent.soak printed, in a process of its own."""
    command = [sys.executable, "-m", "tests.services.agent.soak", str(root), str(cycles)]
    environment = uncovered() | build.environment(build.library_or_skip(), root / "nvml")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WITHIN, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def much_came_and_went(history, end, cycles):
    assert history[-1]["cycle"] >= cycles - 50
    assert end["ended"] > cycles / 40
    assert end["corrections"]["dead-process"] > 0


def nothing_is_remembered_of_what_is_gone(history):
    may = {"windows": LEAVE_IN_A_WINDOW}  # until the window has passed
    most = {kind: max(look[kind] for look in history) for kind in history[0].keys() - RESOURCES}
    assert {kind: count for kind, count in most.items() if count > may.get(kind, 0)} == {}


def descriptors_and_threads_are_as_many_as_at_the_beginning(history):
    for what in ("fds", "threads"):
        assert {look[what] for look in history} == {history[0][what]}


def memory_is_flat(calm, most_bytes, most_blocks):
    resident = [look["resident"] for look in calm]
    bytes_per_cycle, blocks_per_cycle = slope(calm, "resident"), slope(calm, "blocks")
    print(f"\nat rest: {resident[-1] / 1e6:.1f} MB resident, {bytes_per_cycle:+.1f} bytes per cycle;", end=" ")
    print(f"{calm[-1]['blocks']} blocks of Python's memory, {blocks_per_cycle:+.3f} per cycle")
    assert blocks_per_cycle < most_blocks
    assert bytes_per_cycle < most_bytes
    assert max(resident) - resident[0] < MOST_GROWTH


def slope(looks, what):
    """By least squares."""
    return statistics.linear_regression([look["calm"] for look in looks], [look[what] for look in looks]).slope
