"""Changes Kubernetes objects: patches, bindings of pods to nodes, evictions, and events.

An idempotent request is retried if the server does not answer or is overloaded. A binding, and a patch that requires a
resourceVersion, are retried only if the server reports that it did not process them (429). An eviction is sent once.
"""

import asyncio
import random
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from vgpuscope.formats.kube.events import EventText, event_body, events_path
from vgpuscope.formats.kube.lists import decode_status
from vgpuscope.formats.kube.paths import ObjectRef
from vgpuscope.formats.times import micro_time
from vgpuscope.model.errors import KubeAbsent, KubeConflict, KubeForbidden, KubeUnreadable, KubeUnwritten
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.sinks.kube.api import KubeRequests

_TRIES = 3
_FIRST_PAUSE = 0.2  # seconds; doubles with each try
_REMEMBERED = 4096  # events whose repeats are counted in one object
_JSON = "application/json"
_MERGE, _STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
_OPERATIONS = "application/json-patch+json"
_NOT_LOOKED_AT = 429
_OVERLOADED = {_NOT_LOOKED_AT, 500, 502, 503, 504}


class _NotAllowed(KubeUnwritten):
    """The server understands the request, and rejects it however often it is sent."""

    retryable = False


class _Unprocessable(_NotAllowed):
    """The server understands the change, but it does not apply to the object."""


_ERRORS = {
    401: KubeForbidden,
    403: KubeForbidden,
    404: KubeAbsent,
    405: _NotAllowed,
    409: KubeConflict,
    422: _Unprocessable,
}


class KubeWriter:
    """Changes objects as one component. Every call ends within `deadline`."""

    def __init__(
        self,
        api: KubeRequests,
        *,
        component: str,
        instance: str,
        deadline: Seconds = 15.0,
        remembered: int = _REMEMBERED,
        pause: Callable[[Seconds], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`component` and `instance` are the reporter of events: hami-scheduler, and the name of its pod.

        `remembered`: the number of events whose repeats are counted in one object.
        """
        self._api, self._deadline, self._pause = api, deadline, pause
        self._component, self._instance = component, instance
        self._remembered = remembered
        self._events: OrderedDict[tuple[ObjectRef, EventText], tuple[str, int]] = OrderedDict()  # name, how often
        self._reporting = asyncio.Lock()

    async def patch(
        self, path: str, change: Mapping[str, Any], *, version: str | None = None, strategic: bool = False
    ) -> str:
        """Change the object at a path, and return its new resourceVersion.

        Raises KubeConflict if `version` is given and the object has another one; also KubeAbsent, KubeForbidden,
        KubeUnwritten. A merge patch removes fields that are null; a strategic one merges lists by their keys.
        """
        body = dict(change)
        if version is not None:
            body["metadata"] = {**body.get("metadata", {}), "resourceVersion": version}
        media = _STRATEGIC if strategic else _MERGE
        answer = await self._send("PATCH", path, body, media=media, repeatable=version is None)
        return msgspec.json.decode(answer, type=_Answer).metadata.resource_version

    async def annotate(self, path: str, annotations: Mapping[str, str | None], *, version: str | None = None) -> str:
        """Set annotations, and remove those that are None."""
        return await self.patch(path, {"metadata": {"annotations": dict(annotations)}}, version=version)

    async def annotate_new(self, path: str, key: str, value: str) -> str | None:
        """Set an annotation that the object does not have yet, whatever its version.

        None: it was not set, because the object has that annotation, or has no annotations at all.
        """
        at = f"/metadata/annotations/{key.replace('~', '~0').replace('/', '~1')}"
        change = [{"op": "test", "path": at, "value": None}, {"op": "add", "path": at, "value": value}]
        try:
            answer = await self._send("PATCH", path, change, media=_OPERATIONS, repeatable=False)
        except _Unprocessable:
            return None
        return msgspec.json.decode(answer, type=_Answer).metadata.resource_version

    async def create(self, path: str, body: Mapping[str, Any]) -> str:
        """Create an object in the list at a path, and return its resourceVersion; KubeConflict if it exists."""
        answer = await self._send("POST", path, body, media=_JSON, repeatable=False)
        return msgspec.json.decode(answer, type=_Answer).metadata.resource_version

    async def bind(
        self,
        pod: ObjectRef,
        node: str,
        *,
        version: str | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Bind a pod to a node, and set annotations of the pod with the same write.

        Raises KubeConflict if the pod is already bound, another pod has its name, or `version` is given and the pod
        has another resourceVersion.
        """
        wanted = {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
            "resourceVersion": version,
            "annotations": annotations,
        }
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {key: value for key, value in wanted.items() if value},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._send("POST", f"{pod.path}/binding", body, media=_JSON, repeatable=False)

    async def evict(self, pod: ObjectRef) -> None:
        """Evict the pod that has this name and UID.

        Raises KubeConflict if another pod has its name, KubeAbsent if no pod has it, and KubeUnwritten if a disruption
        budget forbids the eviction (429): that answer lasts, so the request is not retried here.
        """
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        await self._send("POST", f"{pod.path}/eviction", body, media=_JSON, repeatable=False, tries=1)

    async def report_once(self, about: ObjectRef, text: EventText, *, name: str, now: UnixTime) -> None:
        """Post an event under a name; an event that has this name already is not changed."""
        await self._first(about, text, name, now)

    async def report(self, about: ObjectRef, text: EventText, *, now: UnixTime, times: int = 1) -> None:
        """Post an event that happened several times. A repeated event raises the count of the first one."""
        async with self._reporting:  # two concurrent calls would both create the event
            key = (about, text)
            name, count = self._events.get(key, ("", 0))
            if not count or not await self._repeated(about, name, count + times, now):
                name, count = f"{about.name[:200]}.{uuid.uuid4().hex[:16]}", 0
                await self._first(about, text, name, now)
            self._events[key] = (name, count + times)
            self._events.move_to_end(key)
            if len(self._events) > self._remembered:
                self._events.popitem(last=False)

    async def _first(self, about: ObjectRef, text: EventText, name: str, now: UnixTime) -> None:
        body = event_body(about, text, name=name, component=self._component, instance=self._instance, now=now)
        with suppress(KubeConflict):  # the name is unique, so an earlier request without a response had succeeded
            await self._send("POST", events_path(about), body, media=_JSON, repeatable=True)

    async def _repeated(self, about: ObjectRef, name: str, count: int, now: UnixTime) -> bool:
        """Raise the count of an event; False if the event no longer exists."""
        series = {"count": count, "lastObservedTime": micro_time(now)}
        try:
            await self.patch(f"{events_path(about)}/{name}", {"series": series})
        except KubeAbsent:  # the API server deletes an event after an hour
            return False
        return True

    async def _send(
        self, method: str, path: str, body: object, *, media: str, repeatable: bool, tries: int = _TRIES
    ) -> bytes:
        data = msgspec.json.encode(body)
        try:
            async with asyncio.timeout(self._deadline):
                for number in range(tries - 1):
                    answer = await self._try(method, path, data, media=media, repeatable=repeatable)
                    if answer is not None:
                        return answer
                    await self._pause(_FIRST_PAUSE * 2**number * random.uniform(0.5, 1.5))
                return _checked(*await self._api.send(method, path, data, media=media))
        except TimeoutError as e:
            raise KubeUnwritten(f"{method} {path}: not done within {self._deadline:g} s") from e
        except KubeForbidden:
            raise
        except KubeUnreadable as e:
            raise KubeUnwritten(f"{method} {path}: {e}") from e

    async def _try(self, method: str, path: str, data: bytes, *, media: str, repeatable: bool) -> bytes | None:
        """The response; None: to be retried."""
        try:
            status, answer = await self._api.send(method, path, data, media=media)
        except KubeForbidden:
            raise
        except KubeUnreadable:
            if not repeatable:
                raise
            return None
        if status == _NOT_LOOKED_AT or (repeatable and status in _OVERLOADED):
            return None
        return _checked(status, answer)


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Answer(msgspec.Struct):
    metadata: _Meta


def _checked(status: int, answer: bytes) -> bytes:
    if 200 <= status < 300:
        return answer
    raise _ERRORS.get(status, KubeUnwritten)(f"the API server answered {status} {decode_status(answer)}")
