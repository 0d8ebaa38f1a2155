"""How a pod is bound: what is asked of the API server, and what happens if others are faster.

The API server here keeps one pod and one node, with versions, as the real one does; tests/contract has the real one.
"""

import asyncio
import json
from typing import Any

import pytest

from tests.http.serving import until
from tests.loopclock import forward
from vgpuscope.formats.hami.annotation import BIND_PHASE, FILTERED, LOCK, NODE
from vgpuscope.formats.kube.extender import BindingArgs, PodHead, decode_pod_head
from vgpuscope.model.allocation import NodeState
from vgpuscope.model.errors import ExtenderNotSynced, ExtenderStandby, KubeUnreadable
from vgpuscope.model.placement import ChosenGpu, ContainerAsk, NodeVerdict, Placement, PlacementRequest
from vgpuscope.services.extender.binding import Binder, BindFailed
from vgpuscope.services.extender.cache import Cache, SeenNode
from vgpuscope.services.extender.node_lock import NodeLocks
from vgpuscope.services.extender.pods import PodWriter
from vgpuscope.sinks.kube.writer import KubeWriter

ALLOCATED = "hami.io/vgpu-devices-allocated"
ARGS = BindingArgs(name="train", namespace="ml", uid="u1", node="n1")
REQUEST = PlacementRequest(
    uid="u1", namespace="ml", name="train", containers=1, asks=(ContainerAsk(index=0, name="main", count=1),)
)
PLACEMENT = Placement(node="n1", gpus=(ChosenGpu(container=0, position=0, uuid="GPU-0", memory=1000, cores=10),))
GPU = {"resources": {"limits": {"nvidia.com/gpu": "1"}}, "name": "main"}


class Server:
    """An API server with a pod and a node: the requests it got, and their objects."""

    def __init__(self):
        self.asked, self._version = [], 1
        self.pod = {"metadata": {"name": "train", "namespace": "ml", "uid": "u1"}, "spec": {"containers": [GPU]}}
        self.node = {"metadata": {"name": "n1", "annotations": {}}}
        for one in (self.pod, self.node):
            self.change(one)

    def change(self, one, **annotations):
        """Somebody changes an object."""
        self._version += 1
        notes = {**one["metadata"].get("annotations", {}), **annotations}
        one["metadata"] |= {
            "annotations": {key: text for key, text in notes.items() if text is not None},
            "resourceVersion": str(self._version),
        }

    def notes(self, one):
        return one["metadata"]["annotations"]

    async def find(self, path, **_):
        self.asked.append(f"GET {self._kind(path)}")
        return json.dumps(self._one(path)).encode()

    async def send(self, method, path, body, *, media):
        self.asked.append(f"{method} {self._kind(path)}")
        one, sent = self._one(path), json.loads(body)
        if media == "application/json-patch+json":
            if LOCK in self.notes(one):
                return 422, b""
            self.change(one, **{LOCK: sent[1]["value"]})
        else:
            meta = sent["metadata"]
            if meta.get("resourceVersion", one["metadata"]["resourceVersion"]) != one["metadata"]["resourceVersion"]:
                return 409, b""
            self.change(one, **meta.get("annotations", {}))
            if path.endswith("/binding"):
                one["spec"]["nodeName"] = sent["target"]["name"]
        return 200, json.dumps(one).encode()

    def _kind(self, path):
        return "binding" if path.endswith("/binding") else "node" if "/nodes/" in path else "pod"

    def _one(self, path):
        return self.node if "/nodes/" in path else self.pod


class Bound:
    """A binder of that server, and the pod as the filter left it."""

    def __init__(self, *, timeout=20.0, patience=5.0):
        self.server, self.cache = Server(), Cache(resync=1800.0)
        self.cleared: list[Any] = []
        self.written: dict[str, PodHead] = {}
        self.over = self.not_now = None
        self.leads = self.sealed = True
        api: Any = self.server
        writer = KubeWriter(api, component="c", instance="i")
        self.pods = PodWriter(api, writer)
        self.binder = Binder(
            self.pods,
            NodeLocks(api, writer, expires=300.0, changed=self.cache.node_changed),
            written=lambda uid: self.written.pop(uid, None),
            overfull=lambda *_: self.over,
            cleared=lambda *told: self.cleared.append(told),
            check=self._check,
            leads=lambda: self.leads,
            sealed=lambda _: self.sealed,
            timeout=timeout,
            patience=patience,
        )

    def _check(self):
        if self.not_now is not None:
            raise self.not_now

    async def filtered(self):
        """The filter has assigned GPUs to the pod."""
        head = decode_pod_head(json.dumps(self.server.pod).encode())
        self.written["u1"] = await self.pods.assign(head, REQUEST, PLACEMENT, 1000.0)
        self.server.asked.clear()

    async def bind(self):
        return await self.binder.bind(ARGS)


@pytest.fixture
async def world():
    made = Bound()
    await made.filtered()
    return made


async def test_what_the_filter_wrote_is_what_the_api_server_would_answer(world):
    assert world.written["u1"] == decode_pod_head(json.dumps(world.server.pod).encode())


async def test_a_pod_that_was_just_filtered_is_bound_with_two_writes_and_nothing_is_read(world):
    await world.bind()
    assert world.server.asked == ["PATCH node", "POST binding"]
    assert world.server.pod["spec"]["nodeName"] == "n1"
    assert world.server.notes(world.server.pod)[BIND_PHASE] == "allocating"
    assert world.server.notes(world.server.node)[LOCK].endswith(",ml,train")


async def test_a_pod_of_another_process_is_read_once(world):
    world.written.clear()
    await world.bind()
    assert world.server.asked == ["GET pod", "PATCH node", "POST binding"]
    assert world.server.pod["spec"]["nodeName"] == "n1"


async def test_a_pod_that_was_changed_in_passing_is_read_again_and_bound(world):
    world.server.change(world.server.pod, colour="blue")
    await world.bind()
    assert world.server.asked == ["PATCH node", "POST binding", "GET pod", "POST binding"]
    assert world.server.pod["spec"]["nodeName"] == "n1"


async def test_a_pod_that_got_another_node_meanwhile_is_not_bound(world):
    world.server.change(world.server.pod, **{ALLOCATED: "GPU-9,NVIDIA,1,0:;", NODE: "n9", FILTERED: "2000"})
    with pytest.raises(BindFailed, match="it has one on n9"):
        await world.bind()
    assert "nodeName" not in world.server.pod["spec"]
    assert world.server.notes(world.server.pod)[BIND_PHASE] == "failed"
    assert LOCK not in world.server.notes(world.server.node)


async def test_a_pod_that_is_bound_by_now_is_no_failure(world):
    world.server.pod["spec"]["nodeName"] = "n1"
    world.server.change(world.server.pod)
    assert (await world.bind()).node == "n1"


async def test_a_pod_that_was_bound_elsewhere_is_a_failure_and_the_lock_is_released(world):
    world.server.pod["spec"]["nodeName"] = "n9"
    world.server.change(world.server.pod)
    with pytest.raises(BindFailed, match="already bound to n9"):
        await world.bind()
    assert LOCK not in world.server.notes(world.server.node)


async def test_who_waits_for_a_lock_gets_it_when_the_watch_reports_the_node(world):
    """The clock stands: nothing but the report of the watch can wake it."""
    world.server.change(world.server.node, **{LOCK: "2099-01-01T00:00:00Z,ml,other"})
    others = {"metadata": {"name": "other", "resourceVersion": "1", "annotations": {NODE: "n1"}}}
    world.server._one = lambda path: {"other": others, "n1": world.server.node}.get(
        path.rpartition("/")[2], world.server.pod
    )
    waits = asyncio.Event()
    usual = world.cache.node_changed

    async def changed(name, version, _):
        waits.set()
        await usual(name, version, 1e6)

    world.binder._locks._changed = changed
    binding = asyncio.create_task(world.bind())
    await waits.wait()
    world.server.change(world.server.node, **{LOCK: None})
    version = int(world.server.node["metadata"]["resourceVersion"])
    world.cache.see_node(seen("n1", version - 1))
    await asyncio.sleep(0)
    assert not binding.done()  # that is the version that was locked
    world.cache.see_node(seen("n1", version))
    async with asyncio.timeout(60):
        await binding
    assert world.server.pod["spec"]["nodeName"] == "n1"


def seen(name, version):
    return SeenNode(NodeState(name=name), version)


async def test_a_lock_that_was_taken_here_is_not_tried_before_the_node_has_changed(world):
    await world.bind()
    waited = []

    async def changed(*told):
        waited.append(told)
        world.server.change(world.server.node, **{LOCK: None})  # the device plugin is done

    world.binder._locks._changed = changed
    locked = world.server.node["metadata"]["resourceVersion"]
    world.server.pod["spec"].pop("nodeName")
    await world.filtered()
    await world.bind()
    assert [told[:2] for told in waited] == [("n1", locked)]
    assert world.server.asked == ["PATCH node", "POST binding"]


async def test_pods_that_wait_in_line_are_told_before_the_time_of_the_binding_is_over():
    forward(0.0)
    world = Bound(timeout=60.0)
    await world.filtered()
    async with world.binder._turn("n1") as turn:
        binding = asyncio.create_task(world.bind())
        await until(lambda: turn.users == 2)
        forward(37.0)  # more than it waits for others, and less than a binding may take
        with pytest.raises(BindFailed, match="other pods are being bound to it"):
            await binding
    assert world.server.notes(world.server.pod)[BIND_PHASE] == "failed"
    assert ALLOCATED not in world.server.notes(world.server.pod)
    assert world.cleared


async def test_a_pod_that_is_asked_for_again_while_it_waits_is_bound_once(world):
    async with world.binder._turn("n1"):
        asked = [asyncio.create_task(world.bind()) for _ in range(2)]
        await asyncio.sleep(0)
        await world.filtered()
    heads = await asyncio.gather(*asked)
    assert [head.uid for head in heads] == ["u1", "u1"]
    assert world.server.asked.count("PATCH node") == 1


async def test_a_lock_for_a_pod_that_was_bound_before_keeps_nobody_waiting(world):
    world.server.pod["spec"]["nodeName"] = "n1"
    world.server.change(world.server.pod, **{BIND_PHASE: "success"})
    await world.bind()
    waited = []
    world.binder._locks._changed = lambda *told: waited.append(told)
    world.server.pod["spec"].pop("nodeName")
    await world.filtered()
    await world.bind()
    assert not waited


async def test_a_gpu_that_is_over_its_capacity_by_now_is_not_bound(world):
    world.over = NodeVerdict(node="n1", code="SCHED_SLOTS_EXHAUSTED", message="11 slots")
    with pytest.raises(BindFailed, match="11 slots"):
        await world.bind()
    assert "nodeName" not in world.server.pod["spec"]
    assert "PATCH node" not in world.server.asked
    assert world.server.notes(world.server.pod) == {BIND_PHASE: "failed"}


async def test_an_assignment_that_we_did_not_make_is_not_bound(world):
    world.sealed = False
    with pytest.raises(BindFailed, match="not one that this scheduler made"):
        await world.bind()
    assert "nodeName" not in world.server.pod["spec"]
    assert "PATCH node" not in world.server.asked


async def test_a_request_that_names_another_pod_than_its_uid_binds_neither(world):
    """Project-HAMi/HAMi v2.10.0 pkg/scheduler/scheduler.go Bind finds the pod by namespace and name."""
    other = {"metadata": {"name": "other", "namespace": "ml", "uid": "u2", "resourceVersion": "1", "annotations": {}}}
    world.server._one = lambda path: (
        other if path.rpartition("/")[2] == "other" else world.server.node if "/nodes/" in path else world.server.pod
    )
    with pytest.raises(BindFailed, match="another pod has this name now"):
        await world.binder.bind(BindingArgs(name="other", namespace="ml", uid="u1", node="n1"))
    assert world.server.asked == ["GET pod", "GET pod"]
    assert ALLOCATED in world.server.notes(world.server.pod)
    await world.bind()
    assert world.server.pod["spec"]["nodeName"] == "n1"


async def test_a_lock_that_names_no_pod_is_refused_in_words_without_one(world):
    """HAMi's locks were a time alone until v2.3."""
    world.server.change(world.server.node, **{LOCK: "2099-01-01T00:00:00Z"})
    world.binder._patience = 0.0
    with pytest.raises(BindFailed, match="node n1 has been locked by a pod that the lock does not name") as failed:
        await world.bind()
    assert failed.value.code == "SCHED_NODE_LOCKED"


# --- what a failed binding leaves behind ------------------------------------------------------------------------------


def down(world):
    """The API server does not answer any more; call the result to end that."""
    find = world.server.find

    async def unreadable(path, **_):
        raise KubeUnreadable("connection refused")

    world.server.find = unreadable
    return lambda: setattr(world.server, "find", find)


async def unread(world):
    """A binding of a pod of another process, which could not be read; the API server works again afterwards."""
    world.written.clear()
    back = down(world)
    with pytest.raises(BindFailed, match="connection refused"):
        await world.bind()
    back()


async def test_a_pod_that_could_not_be_read_is_cleared_once_it_can(world):
    await unread(world)
    assert ALLOCATED in world.server.notes(world.server.pod)
    await world.binder.settle()
    assert world.server.notes(world.server.pod) == {BIND_PHASE: "failed"}
    assert [told[0] for told in world.cleared] == ["u1"]
    assert not world.binder.undone


async def test_a_pod_without_gpus_that_could_not_be_read_stays_as_it_is(world):
    for key in (ALLOCATED, NODE, FILTERED):
        world.server.pod["metadata"]["annotations"].pop(key)
    world.server.pod["spec"]["containers"] = [{"name": "main"}]
    await unread(world)
    before = world.server.pod["metadata"]["resourceVersion"]
    await world.binder.settle()
    assert world.server.pod["metadata"]["resourceVersion"] == before


@pytest.mark.parametrize("newer", [{FILTERED: "99999999999"}, {NODE: "n9"}])
async def test_a_later_decision_about_a_pod_that_could_not_be_read_stays(world, newer):
    await unread(world)
    world.server.change(world.server.pod, **newer)
    await world.binder.settle()
    assert ALLOCATED in world.server.notes(world.server.pod)
    assert not world.binder.undone


async def test_a_leader_that_may_not_bind_yet_takes_the_assignment_back(world):
    world.not_now = ExtenderNotSynced("not listed since this replica leads: pods")
    with pytest.raises(BindFailed, match="EXTENDER_NOT_SYNCED: not listed") as failed:
        await world.bind()
    assert failed.value.code == "SCHED_BIND_FAILED"
    assert world.server.notes(world.server.pod) == {BIND_PHASE: "failed"}


async def test_a_replica_that_does_not_lead_fails_and_writes_nothing(world):
    world.not_now, world.leads = ExtenderStandby("the lease is held by another"), False
    with pytest.raises(BindFailed, match="EXTENDER_STANDBY") as failed:
        await world.bind()
    assert failed.value.code == "SCHED_BIND_FAILED"
    assert not world.server.asked
    assert not world.binder.undone
