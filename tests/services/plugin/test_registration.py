"""The registration loop: what it does when the kubelet forgets the plugin."""

import asyncio
import logging
from types import SimpleNamespace

import pytest

from tests.standins.kubelet import Kubelet, plugin_directory
from tests.waiting import until
from vgpuscope.runtime.counters import Counters
from vgpuscope.services.plugin import registration
from vgpuscope.services.plugin.registration import Registration
from vgpuscope.sources.plugin.kubelet import KubeletSide


@pytest.fixture
async def world():
    now = SimpleNamespace(seconds=0.0)
    ready = asyncio.Event()
    with plugin_directory() as path, Kubelet(path) as kubelet:
        side = KubeletSide(str(path), SimpleNamespace())
        made = Registration(side, str(path), ready=ready, count=Counters().count, clock=lambda: now.seconds)
        yield SimpleNamespace(registration=made, side=side, kubelet=kubelet, now=now, ready=ready)
        await side.close()


async def test_nothing_is_registered_before_the_devices_are_known(world):
    running = asyncio.create_task(world.registration.run())
    await asyncio.sleep(0)
    assert world.side.kubelet() is not None
    assert world.kubelet.registered == []
    world.ready.set()
    await until(lambda: world.registration.up)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_kubelet_that_forgot_the_plugin_is_told_again_but_ever_less_often(world):
    step = world.registration._step
    await step()
    await until(lambda: world.side.followers)
    await step()
    assert len(world.kubelet.registered) == 1
    world.kubelet.forget()  # another plugin has registered the same resource
    await until(lambda: not world.side.followers)
    assert not world.registration.up
    await step()
    assert len(world.kubelet.registered) == 1  # it may come back by itself
    world.now.seconds = 11.0
    await step()
    assert len(world.kubelet.registered) == 2
    await until(lambda: world.side.followers)
    world.kubelet.forget()
    await until(lambda: not world.side.followers)
    world.now.seconds = 22.0
    await step()
    assert len(world.kubelet.registered) == 2  # twice as long
    world.now.seconds = 32.0
    await step()
    assert len(world.kubelet.registered) == 3
    await until(lambda: world.side.followers)


async def test_only_a_kubelet_that_answers_can_have_forgotten_the_plugin(world, caplog):
    caplog.set_level(logging.WARNING, logger="vgpuscope")  # whatever level an earlier test has set
    await world.registration._step()
    await until(lambda: world.registration.up)
    world.kubelet.stop()
    await until(lambda: not world.side.followers)
    world.now.seconds = 11.0
    await world.registration._step()
    assert [record.message for record in caplog.records] == ["kubelet down"]
    world.kubelet.start()
    await world.registration._step()
    await until(lambda: world.side.followers)
    world.kubelet.forget()
    await until(lambda: not world.side.followers)
    world.now.seconds = 100.0
    caplog.clear()
    await world.registration._step()
    assert "another device plugin" in caplog.records[-1].message


async def test_a_lost_socket_is_logged_and_replaced_although_the_kubelet_keeps_its_connection(world, caplog):
    caplog.set_level(logging.INFO)
    await world.registration._step()
    await until(lambda: world.registration.up)
    (world.kubelet.directory / world.kubelet.registered[0].endpoint).unlink()
    async with asyncio.timeout(60):
        await world.registration._step()
    await until(lambda: world.registration.up)
    assert len(world.kubelet.registered) == 2
    await until(lambda: world.kubelet.ends == ["OK"])
    told = [record.message for record in caplog.records if record.name == registration.__name__]
    again = "registered with the kubelet"
    assert told == [again, "the socket of the device plugin was removed; it is made again", again]


async def test_without_a_kubelet_it_waits_and_then_registers(world):
    world.kubelet.stop()
    (world.kubelet.directory / "kubelet.sock").unlink(missing_ok=True)
    await world.registration._step()
    assert not world.registration.up
    assert world.registration.results == {"success": 0, "failure": 0}
    world.kubelet.start()
    await world.registration._step()
    await until(lambda: world.registration.up)


async def test_each_new_reason_of_a_refusal_is_logged_once(world, caplog):
    for reason in ("not now", "not now", "no such resource"):
        world.kubelet.refuse = reason
        await world.registration._step()
    told = [record.fields["err"] for record in caplog.records if record.message == "kubelet down"]
    assert [("not now" in text, "no such resource" in text) for text in told] == [(True, False), (False, True)]
