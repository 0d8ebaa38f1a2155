"""The demo's kube-scheduler and device plugins: they ask an extender as the real ones do, and decide nothing."""

import asyncio
import time
from contextlib import asynccontextmanager

import msgspec
import pytest

from tests.paths import TESTS
from vgpuscope.sim import cluster, posts
from vgpuscope.sim.kinds import HAMI
from vgpuscope.sim.kubeapi import Objects
from vgpuscope.sim.scheduler import KubeScheduler, allocate
from vgpuscope.sim.world import World

NOW = 1_800_000_000.0
RECORDED = TESTS / "fixtures" / "extender"


def pod(name, **spec):
    meta = {"namespace": "ml", "name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-11-17T08:00:00Z"}
    return {"metadata": meta, "spec": {"schedulerName": "hami-scheduler", **spec}, "status": {"phase": "Pending"}}


def node(name, ready="True", **labels):
    conditions = [{"type": "Ready", "status": ready}]
    return {"metadata": {"name": name, "uid": name, "labels": labels}, "status": {"conditions": conditions}}


@asynccontextmanager
async def extender(answers):
    """An extender that gives these answers, by path; it remembers what it was asked."""
    asked = []

    def answer(request):
        asked.append((request.path, msgspec.json.decode(request.body)))
        found = answers[request.path]
        return posts.Answer(200, found(asked[-1][1]) if callable(found) else found)

    async with posts.serve(answer) as url:
        yield int(url.rpartition(":")[2]), asked


def cluster_of(*pods, nodes=()):
    objects = Objects()
    objects.replace("nodes", nodes or [node("a"), node("b", pool="x"), node("dead", ready="Unknown")])
    objects.replace("pods", pods)
    return objects


def kept(objects, plural="pods"):
    return {one["metadata"]["name"]: one for one in objects.contents(plural)}


async def test_it_asks_as_a_real_kube_scheduler_does():
    recorded = {
        path: msgspec.json.decode((RECORDED / f"extender-{name}-request.json").read_bytes())
        for path, name in (("/filter", "filter"), ("/bind", "bind"))
    }
    answers = {"/filter": lambda asked: {"NodeNames": asked["NodeNames"][:1]}, "/bind": {"Error": ""}}
    async with extender(answers) as (port, asked):
        await KubeScheduler(cluster_of(pod("one")), port, lambda: NOW).turn()
    for path, body in asked:
        assert set(body) == set(recorded[path])
        assert {name: type(value) for name, value in body.items()} == {
            name: type(value) for name, value in recorded[path].items()
        }
    assert asked[0][1]["Pod"]["metadata"]["resourceVersion"]
    assert asked[1][1] == {"PodName": "one", "PodNamespace": "ml", "PodUID": "uid-one", "Node": "a"}


async def test_nodes_that_are_not_ready_or_not_selected_are_not_candidates():
    answers = {"/filter": {"NodeNames": [], "FailedNodes": {"b": "1/1 CardInsufficientMemory"}}}
    objects = cluster_of(pod("one", nodeSelector={"pool": "x"}), pod("bound", nodeName="a"), pod("other") | {})
    objects.patch("pods", ("ml", "other"), {"spec": {"schedulerName": "default-scheduler"}})
    async with extender(answers) as (port, asked):
        await KubeScheduler(objects, port, lambda: NOW).turn()
    assert [(path, body["NodeNames"]) for path, body in asked] == [("/filter", ["b"])]
    (condition,) = kept(objects)["one"]["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert condition["message"].startswith("0/3 nodes are available: 1 1/1 CardInsufficientMemory, 2 node(s) didn't")


async def test_a_pod_that_does_not_fit_is_tried_again_later_and_its_event_is_counted():
    answers = {"/filter": {"NodeNames": None, "FailedNodes": {"a": "NodeInsufficientDevice"}}}
    objects, now = cluster_of(pod("one")), [NOW]
    async with extender(answers) as (port, asked):
        scheduler = KubeScheduler(objects, port, lambda: now[0])
        for pause in (0.0, 0.5, 1.0, 2.0):
            now[0] += pause
            await scheduler.turn()
    assert len(asked) == 3
    (event,) = objects.contents("events")
    assert (event["count"], event["reason"], event["involvedObject"]["name"]) == (3, "FailedScheduling", "one")


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"/filter": {"Error": "not synced"}}, "error from the extender: not synced"),
        ({"/filter": {"NodeNames": ["a"]}, "/bind": {"Error": "node locked"}}, "binding rejected: node locked"),
    ],
)
async def test_an_error_of_the_extender_is_told_and_does_not_end_the_scheduler(answers, words):
    objects = cluster_of(pod("one"))
    async with extender(answers) as (port, _):
        await KubeScheduler(objects, port, lambda: NOW).turn()
    assert objects.contents("events")[0]["message"] == words
    assert "nodeName" not in kept(objects)["one"]["spec"]


async def test_an_extender_that_does_not_answer_is_no_reason_to_end():
    async with extender({}) as (port, _):
        pass
    objects = cluster_of(pod("one"))
    await KubeScheduler(objects, port, lambda: NOW).turn()
    assert "error from the extender" in objects.contents("events")[0]["message"]


# --- device plugins ---------------------------------------------------------------------------------------------------


def scheduled_world():
    """A node whose next pods are scheduled, some seconds after one of them was created."""
    world = World(HAMI, seed=1, now=time.time())
    world.scheduled = True
    for second in range(18):
        world.advance(world.began + second)
    objects = Objects()
    cluster.publish(objects, [world])
    return world, objects


def test_a_pod_waits_without_a_node_until_it_is_allocated_and_then_runs_where_the_scheduler_said():
    world, objects = scheduled_world()
    (life,) = world.waiting()
    key = ("serving", life.name)
    created = kept(objects)[life.name]
    assert "nodeName" not in created["spec"]
    assert created["metadata"]["annotations"] == {"nvidia.com/use-gpuuuid": world.gpus[3].uuid}
    assert life.phase(world.elapsed) == "Pending"
    allocate(objects, [world])
    assert life.waits
    chosen = world.gpus[2].uuid  # not the planned one: the scheduler decides
    notes = {
        "hami.io/vgpu-node": "hami-a",
        "hami.io/bind-phase": "allocating",
        "hami.io/vgpu-devices-allocated": f"{chosen},NVIDIA,12288,70:;",
        "hami.io/vgpu-devices-to-allocate": f"{chosen},NVIDIA,12288,70:;",
    }
    lock = {"metadata": {"annotations": {"hami.io/mutex.lock": f"2026-11-17T08:00:00Z,{key[0]},{key[1]}"}}}
    objects.patch("nodes", ("", "hami-a"), lock)
    objects.patch("pods", key, {"metadata": {"annotations": notes}, "spec": {"nodeName": "hami-a"}})
    allocate(objects, [world])
    cluster.publish(objects, [world])
    found = kept(objects)[life.name]
    assert found["metadata"]["annotations"]["hami.io/bind-phase"] == "success"
    assert found["metadata"]["annotations"]["hami.io/vgpu-devices-to-allocate"] == ";"
    assert "hami.io/mutex.lock" not in kept(objects, "nodes")["hami-a"]["metadata"]["annotations"]
    for second in range(18, 26):
        world.advance(world.began + second)
    assert [gpu.index for gpu in world.gpus if life in [one for one, _ in world.on_gpu(gpu)]] == [2]


def test_another_pods_lock_is_left_alone():
    world, objects = scheduled_world()
    (life,) = world.waiting()
    notes = {
        "hami.io/bind-phase": "allocating",
        "hami.io/vgpu-devices-allocated": f"{world.gpus[0].uuid},NVIDIA,1,1:;",
    }
    lock = {"metadata": {"annotations": {"hami.io/mutex.lock": "2026-11-17T08:00:00Z,ml,another"}}}
    objects.patch("nodes", ("", "hami-a"), lock)
    change = {"metadata": {"annotations": notes}, "spec": {"nodeName": "hami-a"}}
    objects.patch("pods", ("serving", life.name), change)
    allocate(objects, [world])
    assert kept(objects, "nodes")["hami-a"]["metadata"]["annotations"]["hami.io/mutex.lock"].endswith("ml,another")


def test_pods_from_before_the_demo_are_where_they_were():
    world = World(HAMI, seed=1, now=time.time())
    world.scheduled = True
    world.advance(world.began + 1)
    assert {life.job.name for life in world.lives.values()} >= {"train-bert-0", "finetune", "etl-leaky-0"}
    assert not world.waiting()


def test_the_scheduler_ends_when_it_is_cancelled():
    async def cancelled():
        task = asyncio.create_task(KubeScheduler(Objects(), 1, lambda: NOW).run())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
