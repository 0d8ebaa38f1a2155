"""The agent's watch of pods against a real kube-apiserver: whatever happens, it ends in what a fresh list says."""

import asyncio
import json
import random
from contextlib import aclosing, asynccontextmanager

import pytest

from tests.controlplane import node, pod
from tests.native.scenario import GIB
from tests.services.agent.noderoot import NodeRoot, container_id
from tests.waiting import until
from vgpuscope.catalog import agent as m
from vgpuscope.formats.kube.pods import decode_pods
from vgpuscope.model.errors import KubeForbidden, KubeUnreadable
from vgpuscope.model.pod import Pod
from vgpuscope.sources import kube
from vgpuscope.sources.kube import KubePods

pytestmark = pytest.mark.real

NODE, OTHER = "node-a", "node-b"
MAY = {"pods": ["list", "watch"]}  # what deploy/agent.yaml grants, and no more
DEADLINE = 180.0


@pytest.fixture
def cluster(empty_cluster):
    empty_cluster.agent = empty_cluster.user("agent", MAY)
    return empty_cluster


@pytest.fixture
def uncached(cluster):
    """The same with a server that asks etcd for pods each time, so that it forgets when etcd does."""
    cluster.restart_apiserver("--watch-cache-sizes=pods#0")
    return cluster


@pytest.fixture
def lists(monkeypatch):
    """The parameters of every list request that is made."""
    made, get = [], kube.KubeClient.get

    async def recorded(self, path, params):
        made.append(dict(params))
        return await get(self, path, params)

    monkeypatch.setattr(kube.KubeClient, "get", recorded)
    return made


def watch_of(cluster, **settings):
    return KubePods(node=NODE, kubeconfig=cluster.agent, **settings)


@asynccontextmanager
async def following(source):
    async with asyncio.timeout(DEADLINE), aclosing(source.follow()) as pods:
        yield pods


def fresh(cluster):
    """What a list says at this moment."""
    answer = cluster.call("GET", "/api/v1/pods", params={"fieldSelector": f"spec.nodeName={NODE}"})
    return set(decode_pods(json.dumps(answer).encode()).items)


async def settled(pods, cluster):
    """Follow until what is known is what a fresh list says, and return the names with their phases."""
    async for found in pods:
        if set(found) == fresh(cluster):
            return {pod.name: pod.phase for pod in found}
    raise AssertionError("the pods ended")


def say(cluster, name, **status):
    cluster.patch("pods", name, {"status": status}, namespace="ml", subresource="status")


def version(cluster):
    return int(cluster.call("GET", "/api/v1/pods", params={"limit": "1"})["metadata"]["resourceVersion"])


# --- list and watch ---------------------------------------------------------------------------------------------------


async def test_pods_of_the_node_come_and_change_and_go_and_no_others_are_seen(cluster, lists):
    cluster.create(pod("first", node=NODE))
    cluster.create(pod("elsewhere", node=OTHER))
    cluster.create(pod("waiting"))
    async with following(watch_of(cluster)) as pods:
        assert await settled(pods, cluster) == {"first": "Pending"}
        cluster.create(pod("second", node=NODE, namespace="other"))
        cluster.create(pod("another", node=OTHER))
        assert await settled(pods, cluster) == {"first": "Pending", "second": "Pending"}
        say(cluster, "first", phase="Running")
        assert await settled(pods, cluster) == {"first": "Running", "second": "Pending"}
        cluster.delete("pods", "second", namespace="other")
        assert await settled(pods, cluster) == {"first": "Running"}
    assert len(lists) == 1


async def test_a_pod_is_seen_from_the_moment_a_scheduler_binds_it(cluster):
    cluster.create(pod("waiting"))
    async with following(watch_of(cluster)) as pods:
        assert await settled(pods, cluster) == {}
        cluster.create(node(NODE))
        with cluster.scheduler():
            await until(lambda: fresh(cluster))
        assert await settled(pods, cluster) == {"waiting": "Pending"}


async def test_a_pod_that_comes_again_under_its_name_is_another(cluster):
    first = cluster.create(pod("p", node=NODE))["metadata"]["uid"]
    async with following(watch_of(cluster)) as pods:
        await settled(pods, cluster)
        cluster.delete("pods", "p", namespace="ml")
        second = cluster.create(pod("p", node=NODE))["metadata"]["uid"]
        await settled(pods, cluster)
    assert {p.uid for p in fresh(cluster)} == {second} != {first}


async def test_a_storm_ends_in_what_is_there(cluster):
    dice = random.Random(7)

    def storm():
        alive: list = []
        for number in range(150):
            if len(alive) > 5 and dice.random() < 0.4:
                cluster.delete("pods", alive.pop(dice.randrange(len(alive))), namespace="ml")
            elif alive and dice.random() < 0.5:
                say(cluster, dice.choice(alive), phase=dice.choice(["Running", "Succeeded", "Failed"]))
            else:
                cluster.create(pod(f"p{number}", node=dice.choice([NODE, OTHER])))
                alive.append(f"p{number}")

    source = watch_of(cluster, hold=1.0)  # watches end and are resumed in the middle of it
    async with following(source) as pods:
        await anext(pods)
        storming = asyncio.create_task(asyncio.to_thread(storm))
        async for _ in pods:
            if storming.done():
                break
        await storming
        await settled(pods, cluster)


async def test_a_watch_whose_time_is_over_is_resumed_where_it_was(cluster, lists):
    cluster.create(pod("p", node=NODE))
    async with following(watch_of(cluster, hold=1.0)) as pods:
        for name in ("q", "r"):
            await settled(pods, cluster)
            await silence(pods, seconds=1.5)
            cluster.create(pod(name, node=NODE))
        await settled(pods, cluster)
    assert len(lists) == 1


async def silence(pods, *, seconds):
    """Listen for so long while nothing happens: longer than the server holds a watch."""
    end = asyncio.get_running_loop().time() + seconds
    async for _ in pods:
        if asyncio.get_running_loop().time() > end:
            return


async def test_bookmarks_tell_a_quiet_node_how_far_the_cluster_is(cluster, lists):
    cluster.create(pod("p", node=NODE))
    source = watch_of(cluster, hold=4.0)
    async with following(source) as pods:
        await settled(pods, cluster)
        for number in range(5):
            cluster.create(pod(f"elsewhere-{number}", node=OTHER))
        now = version(cluster)
        await until(lambda: int(source._watch._version) >= now)  # though nothing happened on our node
    cluster.create(pod("q", node=NODE))
    async with following(source) as pods:
        assert await settled(pods, cluster) == {"p": "Pending", "q": "Pending"}
    assert len(lists) == 1


# --- a server that forgets, and one that goes away --------------------------------------------------------------------


async def test_after_a_compaction_the_pods_are_listed_anew_page_by_page(uncached, lists, monkeypatch):
    monkeypatch.setattr(kube, "_PAGE", "3")
    for number in range(8):
        uncached.create(pod(f"p{number}", node=NODE))
    source = watch_of(uncached)
    async with following(source) as pods:
        await settled(pods, uncached)
    known = len(lists)
    uncached.delete("pods", "p0", namespace="ml")
    uncached.create(pod("q", node=NODE))
    uncached.compact()
    assert gone(uncached, source._watch._version)
    async with following(source) as pods:
        assert set(await settled(pods, uncached)) == {"q", *(f"p{number}" for number in range(1, 8))}
    assert len(lists) == known + 3, "eight pods are three pages of three"


def gone(cluster, since):
    """Whether the server itself says that it does not remember this version any more."""
    params = {"watch": "1", "resourceVersion": since, "timeoutSeconds": "1"}
    event = json.loads(cluster.call("GET", "/api/v1/pods", params=params).splitlines()[0])
    return (event["type"], event["object"]["code"]) == ("ERROR", 410)


async def test_a_list_whose_pages_are_compacted_away_is_begun_anew(uncached, monkeypatch):
    monkeypatch.setattr(kube, "_PAGE", "3")
    for number in range(8):
        uncached.create(pod(f"p{number}", node=NODE))
    answers, get = [], kube.KubeClient.get

    async def compacted_after_the_first(self, path, params):
        try:
            answers.append(await get(self, path, params))
        except kube.VersionForgotten:
            answers.append(None)
            raise
        if len(answers) == 1:
            uncached.delete("pods", "p7", namespace="ml")
            uncached.compact()
        return answers[-1]

    monkeypatch.setattr(kube.KubeClient, "get", compacted_after_the_first)
    async with following(watch_of(uncached)) as pods:
        assert set(await settled(pods, uncached)) == {f"p{number}" for number in range(7)}
    assert answers[1] is None, "the server gave the second page all the same"


async def test_a_restart_of_the_api_server_is_survived(cluster):
    source, failures = watch_of(cluster), []
    known: list[tuple[Pod, ...]] = [()]

    async def follow_for_ever():
        while True:
            try:
                async for pods in source.follow():
                    known.append(pods)
            except KubeUnreadable as e:
                failures.append(str(e))
                await asyncio.sleep(0.1)  # between two tries: the API server is down

    cluster.create(pod("p", node=NODE))
    follower = asyncio.create_task(follow_for_ever())
    try:
        await until(lambda: set(known[-1]) == fresh(cluster))
        await asyncio.to_thread(cluster.stop_apiserver)
        await until(lambda: failures)
        assert {p.name for p in known[-1]} == {"p"}
        await asyncio.to_thread(cluster.start_apiserver)
        cluster.create(pod("q", node=NODE))
        cluster.delete("pods", "p", namespace="ml")
        await until(lambda: set(known[-1]) == fresh(cluster))
    finally:
        follower.cancel()
        await asyncio.gather(follower, return_exceptions=True)
    assert cluster.url in failures[0]


async def test_what_changed_before_a_restart_and_a_compaction_is_not_missed(cluster, lists):
    for name in ("p", "q"):
        cluster.create(pod(name, node=NODE))
    source = watch_of(cluster)
    async with following(source) as pods:
        await settled(pods, cluster)
    cluster.delete("pods", "p", namespace="ml")
    cluster.create(pod("r", node=NODE))
    cluster.compact()
    await asyncio.to_thread(cluster.restart_apiserver)
    assert gone(cluster, source._watch._version)
    async with following(source) as pods:
        assert set(await settled(pods, cluster)) == {"q", "r"}
    assert [("resourceVersion" in params) for params in lists] == [True, False], "the newest, not the remembered"


# --- who may not ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rights", "reason"),
    [
        ({}, 'User "system:serviceaccount:default:limited" cannot list resource "pods"'),
        ({"nodes": ["list", "watch"]}, 'cannot list resource "pods"'),
        ({"pods": ["list"]}, 'cannot watch resource "pods"'),
    ],
)
async def test_missing_rights_are_named(empty_cluster, rights, reason):
    kubeconfig = empty_cluster.user("limited", rights)
    with pytest.raises(KubeForbidden, match=f"403 .*{reason}"):
        await refused(KubePods(node=NODE, kubeconfig=kubeconfig))


async def refused(source):
    async with following(source) as pods:
        async for _ in pods:
            pass


async def test_a_token_that_nobody_issued_is_refused(empty_cluster):
    kubeconfig = empty_cluster.kubeconfig_of("stranger", "not-a-token")
    with pytest.raises(KubeForbidden, match="401 Unauthorized"):
        await refused(KubePods(node=NODE, kubeconfig=kubeconfig))


async def test_rights_that_are_taken_end_the_watch_and_rights_that_are_given_begin_it(cluster):
    cluster.create(pod("p", node=NODE))
    source = watch_of(cluster, hold=1.0)
    async with following(source) as pods:
        await settled(pods, cluster)
        cluster.delete("clusterrolebindings", "agent")
        with pytest.raises(KubeForbidden, match="cannot"):
            async for _ in pods:
                pass
    cluster.create(pod("q", node=NODE))
    cluster.agent = cluster.user("agent", MAY)
    async with following(source) as pods:
        assert set(await settled(pods, cluster)) == {"p", "q"}


# --- the whole agent --------------------------------------------------------------------------------------------------


@pytest.fixture
def gpu_node(tmp_path):
    made = NodeRoot(tmp_path, NODE)
    made.nvml.gpu(0, memory_used=4 * GIB).process(0, 11, memory=3 * GIB)
    return made


def run_on(gpu_node, cluster, name, pid):
    """A pod of the cluster whose container runs on this node."""
    uid = cluster.create(pod(name, node=NODE))["metadata"]["uid"]
    state = {"name": "main", "image": "none", "imageID": "", "ready": True, "restartCount": 0}
    state |= {"containerID": f"containerd://{container_id(uid, 'main')}", "state": {"running": {}}}
    say(cluster, name, phase="Running", containerStatuses=[state])
    gpu_node.process(pid, uid)


def test_the_agent_names_pods_as_the_api_server_does(cluster, gpu_node):
    run_on(gpu_node, cluster, "train", 11)
    with gpu_node.agent("--pods", "kube", "--kubeconfig", cluster.agent) as agent:
        used = {"namespace": "ml", "pod": "train", "container": "main"}
        page = agent.until(lambda page: page.has(m.CONTAINER_MEMORY_USED.name, **used))
        assert page.one(m.CONTAINER_MEMORY_USED.name, **used) == 3 * GIB
        cluster.stop_apiserver()
        page = agent.until(lambda page: page.one(m.SOURCE_UP.name, source="pods") == 0)
        assert page.has(m.CONTAINER_MEMORY_USED.name, **used), "what was known is still the best that is known"
        cluster.start_apiserver()
        gpu_node.nvml.process(0, 12, memory=GIB)
        run_on(gpu_node, cluster, "late", 12)
        gpu_node.write()
        agent.until(lambda page: page.has(m.CONTAINER_MEMORY_USED.name, pod="late"))
        agent.until(lambda page: page.one(m.SOURCE_UP.name, source="pods") == 1)


def test_an_agent_without_rights_says_which_and_measures_the_rest(empty_cluster, gpu_node):
    kubeconfig = empty_cluster.user("limited")
    with gpu_node.agent("--pods", "kube", "--kubeconfig", kubeconfig) as agent:
        page = agent.until(lambda page: page.has(m.SOURCE_UP.name, source="pods"))
        assert page.one(m.SOURCE_UP.name, source="pods") == 0
        assert page.has(m.GPU_INFO.name)
        said = 'cannot list resource \\"pods\\"'
        agent.wait(lambda: "KUBE_FORBIDDEN" in (log := agent.log.read_text()) and said in log)
