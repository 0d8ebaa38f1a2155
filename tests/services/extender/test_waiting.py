"""Refused pods are looked at again without keeping kube-scheduler's requests waiting."""

import asyncio
from typing import Any

import pytest

from tests.logic.scheduler.clusters import cluster, node, request
from vgpuscope.formats.kube.extender import PodHead
from vgpuscope.model.allocation import PodState
from vgpuscope.model.cluster_event import PodSet
from vgpuscope.model.placement import Placement, Policies
from vgpuscope.services.extender import waiting
from vgpuscope.services.extender.waiting import RefusedPods


class World:
    """Pods that were refused and fit by now; a decision about one takes so many seconds of the clock."""

    def __init__(self, monkeypatch, *, pods, seconds=0.0):
        self.now, self.looked, self.touched = 0.0, [], []
        self.state, self.changes = cluster(node("n1")), 1
        self._seconds, self.began = seconds, asyncio.Event()
        monkeypatch.setattr(waiting, "place", self._place)
        made: Any = self
        self.refused = RefusedPods(made, made, policies=Policies(), clock=lambda: self.now, wall=lambda: 1e9)
        for at in range(pods):
            one = request(f"p{at}")
            self.state.apply(PodSet(PodState(uid=one.uid, namespace="ml", name=one.name)))
            self.refused.refused(PodHead(name=one.name, namespace="ml", uid=one.uid), one, ["n1"])

    def _place(self, _, one, *__, **___):
        self.looked.append(one.name)
        self.now += self._seconds
        self.began.set()
        return Placement(node="n1")

    async def touch(self, pod, _):
        self.touched.append(pod.name)


async def test_others_get_their_turn_after_each_pod(monkeypatch):
    world, seen = World(monkeypatch, pods=5), []

    async def other():
        while True:
            seen.append(len(world.looked))
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await world.refused.look()
    task.cancel()
    assert set(range(1, 5)) <= set(seen)
    assert world.touched == [f"p{at}" for at in range(5)]


async def test_a_round_ends_in_time_and_the_next_one_goes_on(monkeypatch):
    world = World(monkeypatch, pods=10, seconds=0.04)
    await world.refused.look()
    assert 1 <= len(world.looked) <= 4
    for _ in range(9):
        await world.refused.look()
    assert world.looked == [f"p{at}" for at in range(10)]


@pytest.mark.parametrize("again", ["placed", "refused"])
async def test_a_pod_that_was_decided_about_meanwhile_is_not_told(monkeypatch, again):
    world = World(monkeypatch, pods=1)
    looking = asyncio.create_task(world.refused.look())
    await world.began.wait()
    one = request("p0")
    if again == "placed":
        world.refused.placed(one.uid)
    else:
        world.refused.refused(PodHead(name="p0", namespace="ml", uid=one.uid), one, ["n1"])
    await looking
    assert not world.touched
