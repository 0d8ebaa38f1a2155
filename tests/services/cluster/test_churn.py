"""More than a day of a cluster on which nothing lasts: what the exporter holds does not grow."""

import json
import os
import statistics
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.contract.clusterrun import exporter, holder, registered
from tests.environment import uncovered
from tests.services.cluster.badapi import KINDS, bad_api
from tests.services.cluster.soak import LOOKS
from vgpuscope.catalog import cluster as m

WITHIN = 3600.0  # seconds, on a machine that does other things too
FULL = 26  # looks, an hour apart: after a day nothing is remembered that was not forgotten too
LATE = 32
MOST_BLOCKS = 0.08  # of Python's memory for each pod that came and went; a string that is never forgotten is one
MOST_THINGS = 0.01  # of what there is: parts of the page that are equal are sometimes one, and sometimes two
_LISTENING = "0A"  # in /proc/net/tcp
MOST_GROWTH = 1_500_000  # bytes of resident memory; pages are coarse


def test_what_the_exporter_holds_does_not_grow_while_pods_nodes_and_namespaces_come_and_go():
    does_not_grow(soaked(4000))


@pytest.mark.soak
@pytest.mark.long
def test_what_the_exporter_holds_does_not_grow_over_a_day_with_a_pod_each_second():
    does_not_grow(soaked(86_400))


def soaked(pods):
    """What tests.services.cluster.soak printed, in a process of its own."""
    command = [sys.executable, "-m", "tests.services.cluster.soak", str(pods)]
    done = subprocess.run(command, env=uncovered(), capture_output=True, text=True, timeout=WITHIN, check=False)
    assert done.returncode == 0, done.stderr
    looks = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(looks) >= LOOKS
    return looks


def does_not_grow(looks):
    middle, late = looks[FULL:LATE], looks[LATE:]
    print(f"\nat rest: {looks[-1]['resident'] / 1e6:.1f} MB resident, {slope(looks[FULL:]):+.3f} blocks per pod")
    counts = [what for what in looks[0] if what == "series" or what.startswith("held.")]
    growth = {what: grew(what, middle, late) for what in counts}
    assert {what: by for what, by in growth.items() if by > MOST_THINGS * middle[0][what]} == {}
    assert slope(looks[FULL:]) < MOST_BLOCKS
    assert grew("resident", middle, late) < MOST_GROWTH


def grew(what, middle, late):
    return max(look[what] for look in late) - max(look[what] for look in middle)


def slope(looks):
    """By least squares."""
    pods, blocks = zip(*((look["pods"], look["blocks"]) for look in looks), strict=True)
    return statistics.linear_regression(pods, blocks).slope


@pytest.mark.real
def test_descriptors_and_threads_are_as_many_as_before_after_watches_that_broke_and_many_scrapes(tmp_path):
    with bad_api(tmp_path) as api:
        api.put(registered("gpu-1", "GPU-a"))
        with exporter(api.kubeconfig, tmp_path) as running:
            churn(api, running, 0)
            before = resources_at_rest(running, api)
            for number in range(1, 4):
                churn(api, running, number)
            assert resources_at_rest(running, api) == before


def churn(api, running, number):
    """Pods come and go, the server forgets where we were and talks nonsense, and many look at the page."""
    pods = [holder(f"job-{number}-{i}", "gpu-1", "GPU-a", memory=10) for i in range(50)]
    for one in pods:
        api.put(one)
    api.say("pods", b'{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}\n')
    api.say("nodes", b"nonsense\n")
    running.until(lambda page: page.one(m.DEVICE_SLOTS_USED.name, gpu_uuid="GPU-a") == len(pods))
    for one in pods:
        api.drop(one)
    for _ in range(30):
        running.get(Accept="application/openmetrics-text", Connection="close")
    running.until(lambda page: not page.has(m.HOLDER_MEMORY.name) and all_up(page))


def all_up(page):
    return all(value == 1 for _, value in page.named(m.WATCH_UP.name))


def resources_at_rest(running, api):
    """Descriptors and threads once each kind that the server has is watched, and no other connection is left."""
    pid = running.process.pid
    running.wait(lambda: connections_of(pid) == [api.port] * len(KINDS))
    return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))


def connections_of(pid):
    """The remote ports of the process's TCP connections, as the kernel lists them; also of those that it must close."""
    files = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # closed meanwhile
            files.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    own = {file[len("socket:[") : -1] for file in files if file.startswith("socket:")}
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return [int(row[2].partition(":")[2], 16) for row in rows if row[9] in own and row[3] != _LISTENING]
