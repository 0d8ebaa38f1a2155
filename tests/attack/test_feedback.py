"""A region is its container's to write. It must not make containers on GPUs of others wait."""

import pytest

from tests.services.plugin.test_feedback import REAL, Container, counters, root  # noqa: F401 - fixtures
from tests.standins.smallapi import small_api
from vgpuscope.formats.hami.seal import SEAL, SealKey, Seals
from vgpuscope.services.plugin.cluster import ClusterSide
from vgpuscope.services.plugin.feedback import Feedback
from vgpuscope.services.plugin.given import GivenGpus
from vgpuscope.sources.node.regions import Regions

pytestmark = pytest.mark.attack
KEYS = Seals([SealKey("k", b"x" * 32, 0.0)])


def gpus_of(root):  # noqa: F811
    """The GPUs that the recorded regions name."""
    return {one.uuid for found in Regions(str(root)).read().containers for one in found.region.devices}


@pytest.mark.parametrize("recorded", REAL)
@pytest.mark.parametrize(("given", "waits"), [("GPU-other", False), ("", False), (None, True)])
def test_a_region_blocks_nobody_on_a_gpu_that_its_container_was_not_given(root, counters, recorded, given, waits):  # noqa: F811
    stranger = Container(root, "stranger", recorded, priority=0, recent=3)
    victim = Container(root, "victim", recorded, priority=1, recent=2, switch=0)
    own = gpus_of(root)
    gpus = {"uid-victim": own, "uid-stranger": own if given is None else {given} - {""}}
    feedback = Feedback(str(root), gpus=lambda pod, _: gpus[pod], count=counters.count)
    for _ in range(2):
        feedback.round()
        assert (victim.fields[1] < 0, victim.fields[0]) == (waits, int(waits))
    assert stranger.fields[0] == 0


async def test_the_gpus_of_a_container_are_those_that_the_scheduler_gave_it_first(tmp_path, counters):  # noqa: F811
    notes = {
        "hami.io/vgpu-node": "n1",
        "hami.io/vgpu-time": "1",
        "hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,1,0:;",
    }
    wanted = {("uid-p", "main"), ("uid-forged", "main"), ("uid-gone", "main")}
    with small_api(tmp_path) as api:
        api.node("n1")
        api.pod("p", notes | {SEAL: KEYS.seal("uid-p", notes, bound=True)}, phase="Running")
        api.pod("forged", notes, phase="Running")
        cluster = ClusterSide("n1", api.kubeconfig, seals=KEYS)
        now = [0.0]
        given = GivenGpus(cluster, count=counters.count, clock=lambda: now[0])
        await given.look(wanted)
        assert [sorted(given.of(*one)) for one in sorted(wanted)] == [[], [], ["GPU-a"]]
        api.annotate("pods", "p", **{"hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,1,0:GPU-b,NVIDIA,1,0:;"})
        now[0] = 1000.0
        await given.look(wanted)
        assert given.of("uid-p", "main") == {"GPU-a"}
        await given.look(set())
        assert given.of("uid-p", "main") == frozenset()
        await cluster.close()
    assert counters.errors == {}


async def test_without_seals_the_gpus_of_a_container_are_those_that_it_had_first_on_this_node(tmp_path, counters):  # noqa: F811
    notes = {"hami.io/vgpu-node": "n1", "hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,1,0:;"}
    wanted = {("uid-p", "main"), ("uid-elsewhere", "main")}
    with small_api(tmp_path) as api:
        api.node("n1")
        api.pod("p", notes, phase="Running")
        api.pod("elsewhere", notes | {"hami.io/vgpu-node": "n2"}, phase="Running")
        cluster = ClusterSide("n1", api.kubeconfig)
        now = [0.0]
        given = GivenGpus(cluster, count=counters.count, clock=lambda: now[0])
        await given.look(wanted)
        assert given.of("uid-elsewhere", "main") == frozenset()
        api.annotate("pods", "p", **{"hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,1,0:GPU-b,NVIDIA,1,0:;"})
        now[0] = 1000.0
        await given.look(wanted)
        assert given.of("uid-p", "main") == {"GPU-a"}
        await cluster.close()
