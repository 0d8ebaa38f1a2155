"""What a filter measures, and what becomes of decisions that cannot be made."""

import json
from typing import Any

import pytest

from tests.logic.scheduler import worlds
from tests.logic.scheduler.clusters import node
from tests.services.extender.test_binding import ARGS, Server
from vgpuscope.formats.kube.extender import decode_args, decode_pod_head
from vgpuscope.logic.scheduler import place
from vgpuscope.logic.scheduler.overfull import overfull
from vgpuscope.logic.scheduler.place import CheckedCandidates
from vgpuscope.model.cluster_event import NodeSet
from vgpuscope.model.placement import Policies
from vgpuscope.services.extender import deciding
from vgpuscope.services.extender.binding import Binder
from vgpuscope.services.extender.cache import Cache
from vgpuscope.services.extender.counters import ExtenderCounters
from vgpuscope.services.extender.deciding import Decider
from vgpuscope.services.extender.node_lock import NodeLocks
from vgpuscope.services.extender.pods import PodWriter
from vgpuscope.sinks.kube.writer import KubeWriter

REGISTERED = [{"id": "GPU-n1-0", "count": 10, "devmem": 16000, "devcore": 100, "type": "NVIDIA A100", "health": True}]
NODE = {"metadata": {"name": "n1", "annotations": {"hami.io/node-nvidia-register": json.dumps(REGISTERED)}}}


class World:
    """A decider beside a server with one pod and one node."""

    def __init__(self):
        self.server, self.cache = Server(), Cache(resync=1800.0)
        self.decided: list[Any] = []
        self.now = 0.0
        self.not_now: Exception | None = None
        self.cache.state.apply(NodeSet(node("n1")))
        api: Any = self.server
        self.decider = Decider(
            self.cache,
            PodWriter(api, KubeWriter(api, component="c", instance="i")),
            policies=Policies(),
            tally=ExtenderCounters(),
            check=self._check,
            decided=self.decided.append,
            clock=lambda: self.now,
        )

    def _check(self):
        if self.not_now is not None:
            raise self.not_now

    async def filter(self, **args):
        body = {"Pod": self.server.pod, **(args or {"NodeNames": ["n1"]})}
        return await self.decider.filter(decode_args(json.dumps(body).encode()))


@pytest.mark.parametrize("args", [{"NodeNames": ["n1"]}, {"Nodes": {"items": [NODE]}}], ids=["names", "nodes"])
async def test_only_the_ranking_counts_as_the_time_of_the_score(monkeypatch, args):
    world, checks, ranks = World(), place.check_nodes, CheckedCandidates.best

    def slow_check(*told, **more):
        world.now += 5.0
        return checks(*told, **more)

    def slow_rank(checked):
        world.now += 0.25
        return ranks(checked)

    monkeypatch.setattr(deciding, "check_nodes", slow_check)
    monkeypatch.setattr(CheckedCandidates, "best", slow_rank)
    answer = await world.filter(**args)
    assert (answer.outcome, answer.ranked) == ("ok", 0.25)


async def test_a_take_over_while_an_assignment_is_cleared_does_no_harm(monkeypatch):
    world = World()
    head = decode_pod_head(json.dumps(world.server.pod).encode())
    world.decider.unsettled["u1"] = head
    find = world.server.find

    async def taken_over(path, **more):
        world.decider.unsettled.clear()
        return await find(path, **more)

    monkeypatch.setattr(world.server, "find", taken_over)
    await world.decider.settle()
    assert not world.decider.unsettled


async def test_a_pod_that_another_scheduler_has_bound_is_an_error_that_kube_scheduler_can_read():
    world = World()
    spec: Any = world.server.pod["spec"]
    spec["nodeName"] = "n9"
    answer = await world.filter()
    assert (answer.outcome, answer.error) == ("error", None)
    assert json.loads(answer.body)["Error"].startswith("KUBE_CONFLICT: pod ml/train is already bound to n9")
    (found,) = world.decided
    assert (found.decision.outcome, found.decision.nodes[0].code) == ("failed", "SCHED_NO_EXTENDER")
    assert found.request is not None


async def test_a_request_that_became_invalid_meanwhile_is_refused():
    world = World()
    pod = json.dumps(world.server.pod)
    world.server.change(world.server.pod, **{"hami.io/device-scoring-weights": "none"})
    answer = await world.decider.filter(decode_args(b'{"Pod": %s, "NodeNames": ["n1"]}' % pod.encode()))
    assert answer.outcome == "refused"
    assert world.decided[0].decision.nodes[0].code == "SCHED_REQUEST_INVALID"


async def test_a_pod_whose_init_and_app_container_ask_for_a_gpu_is_filtered_and_bound_on_a_mig_gpu():
    """Project-HAMi/HAMi v2.10.0 pkg/scheduler/scheduler.go binds it: filter gives both containers one placement."""
    world = World()
    world.cache.state.apply(NodeSet(worlds.node("n1", worlds.mig("G"))))
    limits = {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8000"}}
    containers = {kind: [{"name": kind, "resources": limits}] for kind in ("initContainers", "containers")}
    world.server.pod["spec"] = containers
    assert (await world.filter()).outcome == "ok"
    api: Any = world.server
    writer = KubeWriter(api, component="c", instance="i")
    binder = Binder(
        PodWriter(api, writer),
        NodeLocks(api, writer, expires=300.0, changed=world.cache.node_changed),
        written=world.decider.written,
        overfull=lambda uid, node: overfull(world.cache.state, uid, node),
        cleared=world.cache.forget,
        check=lambda: None,
        leads=lambda: True,
        timeout=20.0,
        patience=5.0,
    )
    await binder.bind(ARGS)
    spec: Any = world.server.pod["spec"]
    assert spec["nodeName"] == "n1"
    placed = json.loads(world.server.notes(world.server.pod)["hami.io/vgpu-mig-allocations"])
    assert [one["placement"] for one in placed] == [{"start": 6, "size": 1}] * 2
