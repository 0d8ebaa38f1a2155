"""Twenty thousand samples of a node on which nothing lasts: what the agent holds does not grow."""

import json
import os
import statistics
import subprocess
import sys

import pytest

from tests.native import build
from tests.services.soak import LEAVE_IN_A_WINDOW

pytestmark = pytest.mark.soak

CYCLES = 20_000
WITHIN = 900.0  # seconds, on a machine that does other things too
MOST_SLOPE = 60.0  # bytes of resident memory per cycle, with a change on the node in every fifth; pages are coarse
MOST_GROWTH = 1_500_000  # bytes of resident memory in the last three quarters
MOST_BLOCKS = 0.07  # of Python's memory per cycle: about two for each container that came and went


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    root = tmp_path_factory.mktemp("soak")
    library = build.library_or_skip()
    command = [sys.executable, "-m", "tests.services.soak", str(root), str(CYCLES)]
    environment = os.environ | build.environment(library, root / "nvml")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WITHIN, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def history(seen):
    assert seen[-1]["wrong"] is None
    return [look for look in seen if "cycle" in look]


@pytest.fixture(scope="module")
def calm(seen):
    assert seen[-1]["wrong"] is None
    looks = [look for look in seen if "calm" in look]
    return looks[len(looks) // 4 :]


def test_every_page_has_as_many_series_as_the_docs_promise(seen):
    assert seen[-1]["wrong"] is None


def test_much_came_and_went(seen, history):
    assert history[-1]["cycle"] >= CYCLES - 50
    assert seen[-1]["ended"] > 500
    assert seen[-1]["corrections"]["dead-process"] > 0


def slope(looks, what):
    return statistics.linear_regression([look["calm"] for look in looks], [look[what] for look in looks]).slope


def test_no_object_outlives_what_it_is_about(calm):
    print(f"\nPython's memory at rest: {calm[-1]['blocks']} blocks, {slope(calm, 'blocks'):+.3f} per cycle")
    assert slope(calm, "blocks") < MOST_BLOCKS


def test_resident_memory_is_flat(calm):
    resident = [look["resident"] for look in calm]
    print(f"\nresident at rest: {resident[-1] / 1e6:.1f} MB, {slope(calm, 'resident'):+.1f} bytes per cycle")
    assert slope(calm, "resident") < MOST_SLOPE
    assert max(resident) - resident[0] < MOST_GROWTH


@pytest.mark.parametrize("what", ["fds", "threads"])
def test_descriptors_and_threads_are_as_many_as_at_the_beginning(history, what):
    assert {look[what] for look in history[2:]} == {history[2][what]}


def test_nothing_is_remembered_of_what_is_gone(history):
    may = {"windows": LEAVE_IN_A_WINDOW}  # until the window has passed
    kinds = history[0].keys() - {"cycle", "resident", "fds", "threads"}
    most = {kind: max(look[kind] for look in history) for kind in kinds}
    assert {kind: count for kind, count in most.items() if count > may.get(kind, 0)} == {}
