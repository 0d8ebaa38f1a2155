"""A stranger has a page that Prometheus scrapes, and writes on it what it likes of GPUs and pods of others."""

import pytest
from msgspec.structs import replace

from tests.attack.apiserver import Cluster, Object
from tests.attack.test_reclaim import CONFIG, deployment
from vgpuscope.model.reclaim import Share, Workload
from vgpuscope.services.analyzer.reclaim.kube import ReclaimKube

pytestmark = pytest.mark.attack
MINE, OTHERS = "GPU-11111111-aaaa", "GPU-22222222-bbbb"
ASSIGNED = "hami.io/vgpu-devices-allocated"


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def kube(cluster):
    reads = ReclaimKube(lambda: CONFIG, connect=cluster.client, clock=lambda: 1000.0)
    yield reads
    await reads.close()


def on(pod: Object, gpu_id: str = MINE, hostname: str = "a") -> Workload:
    meta = pod["metadata"]
    return Workload(
        uid=meta["uid"], namespace="ml", pod=meta["name"], shares=(Share(gpu_id=gpu_id, hostname=hostname),)
    )


async def may_act(kube: ReclaimKube, workload: Workload) -> bool:
    await kube.learn([workload], fresh=True, seen=[workload.uid])
    facts = kube.known(workload).pod
    assert facts.read is (facts.target is not None)
    return facts.read


async def test_what_the_api_shows_a_pod_to_hold_may_be_taken(cluster, kube):
    [pod] = deployment(cluster, "web")
    assert await may_act(kube, on(pod))
    assert await may_act(kube, on(pod, hostname="A.example.internal"))
    pod["metadata"]["annotations"] = {ASSIGNED: f"{MINE},NVIDIA,1000,10:;"}
    assert await may_act(kube, on(pod))


PAGES = {
    "a GPU of another node": {"hostname": "b"},
    "a node that begins with the name of its node": {"hostname": "a2"},
    "no node": {"hostname": ""},
    "control characters for a node": {"hostname": "\x1b[2Ja"},
}


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
@pytest.mark.parametrize("owned", [True, False])
async def test_a_page_that_names_a_pod_on_another_node_takes_nothing_from_it(cluster, kube, page, owned):
    pod = deployment(cluster, "web")[0] if owned else cluster.pod("bare")
    assert not await may_act(kube, on(pod, **page))
    [signal] = kube.known(on(pod)).signals
    assert signal.detail.isprintable()


@pytest.mark.parametrize("assigned", [f"{OTHERS},NVIDIA,1000,10:;", ",,0,0:;", "", "nonsense", f"{OTHERS},NVIDIA,x,10:;"])
async def test_a_page_that_names_a_pod_on_a_gpu_that_it_was_not_assigned_takes_nothing_from_it(cluster, kube, assigned):
    [pod] = deployment(cluster, "web")
    pod["metadata"]["annotations"] = {ASSIGNED: assigned}
    assert not await may_act(kube, on(pod))


@pytest.mark.parametrize("node", ["a", ""])
async def test_a_bare_pod_that_has_no_gpu_or_no_node_is_not_evicted(cluster, kube, node):
    pod = cluster.pod("bare", gpus=0 if node else 1)
    pod["spec"]["nodeName"] = node
    assert not await may_act(kube, on(pod))


async def test_one_share_that_is_not_the_pods_keeps_it_from_all(cluster, kube):
    [pod] = deployment(cluster, "web")
    both = replace(on(pod), shares=(Share(gpu_id=MINE, hostname="a"), Share(gpu_id=OTHERS, hostname="b")))
    assert not await may_act(kube, both)
