"""The annotations that the plugin keeps on its node, at a small API server."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.services.plugin.pluginrun import REGISTER
from tests.standins.smallapi import small_api
from tests.waiting import until
from vgpuscope.config import PluginConfig
from vgpuscope.logic.plugin.health import HealthTracker
from vgpuscope.model.device import DeviceReading, Gpu, Memory, XidCount
from vgpuscope.model.errors import KubeAbsent
from vgpuscope.runtime.counters import Counters
from vgpuscope.services.plugin.cluster import ClusterSide
from vgpuscope.services.plugin.node import NodeAnnotations

A, FAULTS, HANDSHAKE = "GPU-a", "vgpuscope.io/gpu-faults", "hami.io/node-handshake"
MEMORY = Memory(total=15360 << 20, used=0, free=15360 << 20)


@pytest.fixture
async def world(tmp_path):
    with small_api(tmp_path) as api:
        api.node("n1")
        made = SimpleNamespace(api=api, cluster=ClusterSide("n1", api.kubeconfig), counters=Counters(), cleared=0)
        yield made
        await made.cluster.close()


def plugin(world, *, node="n1", undo=None, retry=5.0, **settings):
    """The annotations of a plugin that has just started, and its book of GPUs."""
    tracker = HealthTracker()

    def cleared():
        world.cleared += 1

    made = NodeAnnotations(
        PluginConfig(node_name=node, **settings),
        world.cluster,
        tracker,
        cleared=cleared,
        count=world.counters.count,
        clock=lambda: 1705984204.0,
        undo=undo,
        retry=retry,
    )
    return made, tracker


def see(tracker, *, at=1794900000.0, health="ok", **xids):
    gpu = Gpu(uuid=A, index=0, model="Tesla T4", health=health, memory=MEMORY)
    counts = tuple(XidCount(gpu=A, xid=int(name[1:]), count=count) for name, count in xids.items())
    tracker.see(DeviceReading(at=at, gpus=(gpu,), xids=counts), {A: 1})


async def test_the_node_is_patched_only_when_something_changed(world):
    node, tracker = plugin(world, split_count=5, memory_scaling=2.0)
    see(tracker)
    await node.update()
    assert json.loads(world.api.annotations("nodes", "n1")[REGISTER]) == [
        {
            "id": A,
            "count": 5,
            "devmem": 30720,
            "devcore": 100,
            "type": "NVIDIA-Tesla T4",
            "numa": 1,
            "mode": "hami-core",
            "health": True,
        }
    ]
    await node.update()
    await node.update()
    assert (len(world.api.patches), node.patches) == (1, 1)
    see(tracker, health="lost")
    await node.update()
    assert "health" not in json.loads(world.api.annotations("nodes", "n1")[REGISTER])[0]
    assert len(world.api.patches) == 2


async def test_what_another_program_wrote_over_it_is_written_again(world):
    node, tracker = plugin(world)
    see(tracker)
    await node.update()
    ours = world.api.annotations("nodes", "n1")[REGISTER]
    world.api.annotate("nodes", "n1", **{REGISTER: "[]"})
    await node.update()
    assert world.api.annotations("nodes", "n1")[REGISTER] == ours


async def test_before_the_driver_answered_nothing_is_registered(world):
    node, _ = plugin(world)
    await node.update()
    assert world.api.patches == []


async def test_the_handshake_is_written_only_if_it_is_switched_on(world):
    node, tracker = plugin(world)
    see(tracker)
    await node.update()
    assert HANDSHAKE not in world.api.annotations("nodes", "n1")
    node, tracker = plugin(world, handshake=True)
    see(tracker)
    await node.update()
    said = world.api.annotations("nodes", "n1")[HANDSHAKE]
    assert said == "Reported 2024-01-23 04:30:04.000000 +0000 UTC"
    assert world.api.annotations("nodes", "n1")[REGISTER].startswith("[")  # which HAMi up to v2.7.1 cannot read


def test_the_handshake_promises_nothing_to_schedulers_that_cannot_read_the_registration():
    fields: Any = msgspec.inspect.type_info(PluginConfig)
    (text,) = [of.type.extra_json_schema["description"] for of in fields.fields if of.name == "handshake"]
    assert "v2.8 and v2.9" in text


@pytest.mark.parametrize("scaling", [1.0, 0.7, 1.9])
async def test_a_gpu_that_was_lost_before_the_start_is_registered_as_unhealthy(world, scaling):
    node, tracker = plugin(world, memory_scaling=scaling)
    other = Gpu(uuid="GPU-b", index=1, model="Tesla T4", memory=MEMORY)
    this = Gpu(uuid=A, index=0, model="Tesla T4", memory=MEMORY)
    tracker.see(DeviceReading(at=0.0, gpus=(this, other)), {A: 1, "GPU-b": 1})
    await node.update()
    before = json.loads(world.api.annotations("nodes", "n1")[REGISTER])
    node, tracker = plugin(world, memory_scaling=scaling)  # a new process
    see(tracker)
    await node.update()
    assert [(state.gpu.uuid, state.reason) for state in tracker.states] == [(A, ""), ("GPU-b", "lost")]
    assert world.cleared == 1
    del before[1]["health"]
    assert json.loads(world.api.annotations("nodes", "n1")[REGISTER]) == before


async def test_a_registration_that_cannot_be_read_is_counted_and_written_again(world):
    world.api.annotate("nodes", "n1", **{REGISTER: "[{"})
    node, tracker = plugin(world)
    see(tracker)
    await node.update()
    await node.update()
    assert world.counters.errors == {"ANNOTATION_MALFORMED": 1}
    assert json.loads(world.api.annotations("nodes", "n1")[REGISTER])[0]["id"] == A


async def test_a_fault_survives_a_restart_until_an_operator_removes_it(world):
    node, tracker = plugin(world)
    see(tracker, x48=1)
    await node.update()
    assert json.loads(world.api.annotations("nodes", "n1")[FAULTS]) == [
        {"gpu": A, "xid": 48, "since": "2026-11-17T07:20:00Z"}
    ]
    node, tracker = plugin(world)  # a new process
    see(tracker)
    await node.update()
    assert (tracker.states[0].reason, world.cleared) == ("xid-48", 1)
    world.api.annotate("nodes", "n1", **{FAULTS: None})
    await node.update()
    assert (tracker.states[0].reason, world.cleared) == ("", 2)
    assert json.loads(world.api.annotations("nodes", "n1")[REGISTER])[0]["health"]


async def test_a_newer_xid_is_not_cleared_with_the_one_before(world):
    node, tracker = plugin(world)
    see(tracker, x48=1)
    await node.update()
    world.api.annotate("nodes", "n1", **{FAULTS: None})
    see(tracker, at=1794900060.0, x48=2)
    await node.update()
    assert tracker.states[0].reason == "xid-48"
    assert FAULTS in world.api.annotations("nodes", "n1")


async def test_a_typing_error_clears_nothing(world):
    node, tracker = plugin(world)
    see(tracker, x48=1)
    await node.update()
    before = world.api.annotations("nodes", "n1")[FAULTS]
    world.api.annotate("nodes", "n1", **{FAULTS: "[{"})
    await node.update()
    assert (tracker.states[0].reason, world.api.annotations("nodes", "n1")[FAULTS]) == ("xid-48", before)
    assert world.counters.errors == {"ANNOTATION_MALFORMED": 1}


async def test_a_fault_that_time_cleared_leaves_the_annotation(world):
    node, tracker = plugin(world)
    see(tracker, x48=1)
    await node.update()
    tracker.clear([A])
    await node.update()
    assert FAULTS not in world.api.annotations("nodes", "n1")


async def test_a_node_that_does_not_exist_is_an_error_with_a_code(world):
    world.api.objects.clear()
    node, tracker = plugin(world)
    see(tracker)
    with pytest.raises(KubeAbsent, match="n1"):
        await node.update()


async def test_the_loop_writes_at_once_when_health_changes_and_outlives_an_api_server(world):
    node, tracker = plugin(world)
    see(tracker)
    world.api.fail["GET", "/nodes"] = 500
    running = asyncio.create_task(node.run())
    await until(lambda: world.counters.errors)
    world.api.fail.clear()
    node.changed()
    await until(lambda: node.patches >= 1)
    see(tracker, health="lost")
    node.changed()
    await until(lambda: node.patches >= 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert world.counters.errors == {"KUBE_UNREADABLE": 1}


async def test_the_loop_undoes_failed_allocations_until_none_is_left(world):
    answers = [True, False, False]
    done = asyncio.Event()

    async def undo():
        if not answers:
            done.set()
        return answers.pop() if answers else True

    world.api.fail["GET", "/nodes"] = 500
    node, _ = plugin(world, undo=undo, retry=0.01)
    running = asyncio.create_task(node.run())
    async with asyncio.timeout(60):
        await done.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
