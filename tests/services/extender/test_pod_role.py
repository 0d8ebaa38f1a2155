"""The label by which the Service of the chart finds the leader."""

import asyncio

from vgpuscope.model.errors import KubeAbsent, KubeUnwritten
from vgpuscope.services.extender.pod_role import PodRole

PATH = "/api/v1/namespaces/gpu/pods/extender-1"


class Patches:
    """A writer that remembers, and fails as often as it is told."""

    def __init__(self, *errors):
        self.sent, self.errors, self.done = [], list(errors), asyncio.Event()

    async def patch(self, path, change):
        if self.errors:
            raise self.errors.pop(0)
        self.sent.append((path, change["metadata"]["labels"]["vgpuscope.io/role"]))
        self.done.set()
        return "1"


async def role_of(writer, leads, pod="extender-1", counted=None, **more):
    failed = (counted if counted is not None else []).append
    role = PodRole(writer, namespace="gpu", pod=pod, leads=lambda: leads[0], failed=failed, **more)
    task = asyncio.create_task(role.run())
    return role, task


async def ended(task):
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_follower_removes_the_label_of_its_former_life_and_a_leader_sets_it():
    writer, leads = Patches(), [False]
    role, task = await role_of(writer, leads)
    async with asyncio.timeout(30):
        await writer.done.wait()
        writer.done.clear()
        leads[0] = True
        role.turn()
        await writer.done.wait()
    await ended(task)
    assert writer.sent == [(PATH, None), (PATH, "leader")]


async def test_a_failed_write_is_counted_and_tried_again():
    counted: list = []
    writer = Patches(KubeUnwritten("down"))
    _, task = await role_of(writer, [True], counted=counted, again=0.001)
    async with asyncio.timeout(30):
        await writer.done.wait()
    await ended(task)
    assert (len(counted), writer.sent) == (1, [(PATH, "leader")])


async def test_outside_of_a_pod_nothing_is_written():
    writer, counted = Patches(KubeAbsent("no such pod")), list[Exception]()
    role, task = await role_of(writer, [True], counted=counted)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await ended(task)
    _, other = await role_of(writer, [True], pod="")
    await asyncio.sleep(0)
    await ended(other)
    assert (writer.sent, counted) == ([], [])
    assert role is not None
