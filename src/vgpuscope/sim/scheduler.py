"""What stands around the extender in a cluster: a kube-scheduler that asks it, and the nodes' device plugins.

KubeScheduler   takes pods without a node, asks the extender /filter and then /bind, and reports as kube-scheduler does
allocate        what HAMi's device plugin does with a bound pod: the phase of the allocation, and the node's lock

Both see the cluster only through its API. The extender's answers are the decisions; nothing is decided here.
"""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from vgpuscope.sim.jobs import Life
from vgpuscope.sim.kubeapi import Json, ObjectKey, Objects, Refusal
from vgpuscope.sim.pods import SCHEDULER, stamp
from vgpuscope.sim.posts import Answer, ask
from vgpuscope.sim.world import World

_LOCK = "hami.io/mutex.lock"
_PHASE = "hami.io/bind-phase"
_ALLOCATED, _TO_ALLOCATE = "hami.io/vgpu-devices-allocated", "hami.io/vgpu-devices-to-allocate"
_TURN = 0.5  # seconds
_RETRY = (1.0, 2.0, 4.0, 8.0, 15.0)  # seconds after the first, second, … failed attempt
_REMEMBERED = 1000  # pods whose attempts are known


class _Tried(NamedTuple):
    attempts: int
    again: float  # Unix time
    message: str


class KubeScheduler:
    """A kube-scheduler with one extender, as far as the demo needs it: no priorities, no preemption."""

    def __init__(self, objects: Objects, port: int, clock: Callable[[], float] = time.time) -> None:
        """`port`: where the extender listens on this machine."""
        self._objects, self._port, self._clock = objects, port, clock
        self._tried: dict[str, _Tried] = {}  # by the uid of the pod

    async def run(self) -> None:
        """Schedules for ever; an extender that does not answer is asked again."""
        while True:
            await self.turn()
            await asyncio.sleep(_TURN)

    async def turn(self) -> None:
        """One look at all pods that wait, the oldest first."""
        waiting = [pod for pod in self._objects.contents("pods") if _is_mine(pod)]
        for pod in sorted(waiting, key=lambda pod: pod["metadata"]["creationTimestamp"]):
            tried = self._tried.get(pod["metadata"]["uid"])
            if tried is None or tried.again <= self._clock():
                await self._schedule(pod)

    async def _schedule(self, pod: Json) -> None:
        names = [node["metadata"]["name"] for node in self._objects.contents("nodes") if _allows(node, pod)]
        try:
            whole = msgspec.json.decode(self._objects.get("pods", _key(pod)))  # with its resourceVersion
        except Refusal:  # deleted meanwhile
            return
        found = await self._ask("/filter", {"Pod": whole, "Nodes": None, "NodeNames": names})
        if found.status != 200 or found.content.get("Error"):
            self._failed(pod, f"error from the extender: {_error(found)}")
            return
        if not (chosen := found.content.get("NodeNames") or ()):
            self._failed(pod, self._refusal(found.content, len(names)))
            return
        await self._bind(pod, chosen[0])

    async def _bind(self, pod: Json, node: str) -> None:
        meta = pod["metadata"]
        asked = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}
        bound = await self._ask("/bind", asked)
        if bound.status != 200 or bound.content.get("Error"):
            self._failed(pod, f"binding rejected: {_error(bound)}")
            return
        self._tried.pop(meta["uid"], None)
        self._condition(pod, "True", "", "")

    async def _ask(self, path: str, content: Json) -> Answer:
        try:
            return await ask(self._port, path, content)
        except (OSError, TimeoutError, ValueError) as e:
            return Answer(503, {"Error": str(e) or "no answer in time"})

    def _refusal(self, answer: Json, asked: int) -> str:
        """kube-scheduler's summary: how many nodes failed for which reason, those that it excluded itself included."""
        reasons = [*(answer.get("FailedNodes") or {}).values()]
        reasons += (answer.get("FailedAndUnresolvableNodes") or {}).values()
        total = len(self._objects.contents("nodes"))
        counted = [f"{reasons.count(reason)} {reason}" for reason in sorted(set(reasons))]
        if total > asked:
            counted.append(f"{total - asked} node(s) didn't match Pod's node affinity/selector")
        return f"0/{total} nodes are available: {', '.join(counted)}."

    def _failed(self, pod: Json, message: str) -> None:
        """The pod waits, with a condition and an event; the same message again raises the count of its event."""
        uid = pod["metadata"]["uid"]
        before = self._tried.get(uid, _Tried(0, 0.0, ""))
        pause = _RETRY[min(before.attempts, len(_RETRY) - 1)]
        self._tried[uid] = _Tried(before.attempts + 1, self._clock() + pause, message)
        while len(self._tried) > _REMEMBERED:
            self._tried.pop(next(iter(self._tried)))
        if message != before.message:
            self._condition(pod, "False", "Unschedulable", message)
        self._event(pod, message)

    def _condition(self, pod: Json, status: str, reason: str, message: str) -> None:
        condition = {"type": "PodScheduled", "status": status, "lastTransitionTime": stamp(self._clock())}
        condition |= {"reason": reason, "message": message} if reason else {}
        self._patch("pods", pod, {"status": {"conditions": [condition]}})

    def _patch(self, plural: str, one: Json, change: Json) -> None:
        with contextlib.suppress(Refusal):  # deleted meanwhile
            self._objects.patch(plural, _key(one), change)

    def _event(self, pod: Json, message: str) -> None:
        meta, now = pod["metadata"], stamp(self._clock())
        name = f"{meta['name']}.{uuid.uuid5(uuid.NAMESPACE_DNS, meta['uid'] + message).hex[:16]}"
        known = [one for one in self._objects.contents("events") if one["metadata"]["name"] == name]
        if known:
            self._patch("events", known[0], {"count": known[0]["count"] + 1, "lastTimestamp": now})
            return
        about = {"kind": "Pod", "namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
        self._objects.create(
            "events",
            {
                "metadata": {"name": name, "namespace": meta["namespace"]},
                "involvedObject": about,
                "type": "Warning",
                "reason": "FailedScheduling",
                "message": message[:1024],
                "source": {"component": pod["spec"]["schedulerName"]},
                "count": 1,
                "firstTimestamp": now,
                "lastTimestamp": now,
            },
        )


def _key(one: Json) -> ObjectKey:
    return one["metadata"].get("namespace", ""), one["metadata"]["name"]


def _is_mine(pod: Json) -> bool:
    waits = pod["status"].get("phase") == "Pending" and not pod["spec"].get("nodeName")
    return waits and pod["spec"].get("schedulerName") == SCHEDULER and "deletionTimestamp" not in pod["metadata"]


def _allows(node: Json, pod: Json) -> bool:
    """kube-scheduler's own filters: the node is ready, and has the labels of the pod's selector."""
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])
    wanted = pod["spec"].get("nodeSelector") or {}
    return ready and wanted.items() <= node["metadata"]["labels"].items()


def _error(answer: Answer) -> str:
    content: Any = answer.content
    said = content.get("Error") or content.get("error") if isinstance(content, dict) else ""
    return str(said.get("message", said) if isinstance(said, dict) else said) or f"status {answer.status}"


# --- the device plugin -----------------------------------------------------------------------------------------------


def allocate(objects: Objects, worlds: Sequence[World]) -> None:
    """Completes the allocation of every pod that is bound and not yet allocated, and starts it on its node."""
    waiting = {life.uid: (world, life) for world in worlds for life in world.waiting()}
    for pod in objects.contents("pods"):
        notes = pod["metadata"].get("annotations") or {}
        if pod["spec"].get("nodeName") and notes.get(_PHASE) == "allocating":
            _allocate(objects, pod, notes, waiting.get(pod["metadata"]["uid"]))


def _allocate(objects: Objects, pod: Json, notes: dict[str, str], place: tuple[World, Life] | None) -> None:
    """`place`: where the pod runs; None for a pod that exists in the API only."""
    key = _key(pod)
    done = {_PHASE: "success", _TO_ALLOCATE: ";" * notes[_ALLOCATED].count(";")}
    if place:
        world, life = place
        world.place(life, _uuids(notes[_ALLOCATED]), {**notes, **done})
    objects.patch("pods", key, {"metadata": {"annotations": done}})
    node = next(one for one in objects.contents("nodes") if one["metadata"]["name"] == pod["spec"]["nodeName"])
    lock = (node["metadata"].get("annotations") or {}).get(_LOCK, "")
    if lock.endswith(f",{key[0]},{key[1]}"):
        objects.patch("nodes", ("", node["metadata"]["name"]), {"metadata": {"annotations": {_LOCK: None}}})


def _uuids(assigned: str) -> list[str]:
    """The GPUs of an assignment: UUID,NVIDIA,MEMORY,CORES: for each, and ; after each container."""
    return [one.partition(",")[0] for part in assigned.split(";") for one in part.split(":") if one]
