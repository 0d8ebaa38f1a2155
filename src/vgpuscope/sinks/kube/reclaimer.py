"""Frees GPUs by changing objects of the Kubernetes API, and puts back what was there.

One patch does both: it changes the fields, and writes on the object what was there before. So a crash leaves nothing
half done, and a call that is repeated finds its own mark and changes nothing. Each patch names the UID and the version
of the object that was looked at: if anything has changed since, the server refuses it.

Who may change an object may write a mark on it. So a mark counts only if it has the signature of a call, and what is
put back comes from our store, or from a signed mark if the call's answer was lost.
"""

import hashlib
import logging
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import msgspec

from vgpuscope.formats.kube.changes import (
    RECLAIMED,
    RESTORED,
    ChangeAnnotation,
    Fields,
    annotation,
    at_rest,
    is_ours,
    iso,
    mark_of,
    patch,
    present,
    restorable,
    signed,
    stopped,
    told,
)
from vgpuscope.formats.kube.events import EventText
from vgpuscope.formats.kube.paths import ObjectRef
from vgpuscope.model.errors import (
    CallFailed,
    CallRefused,
    KubeAbsent,
    KubeConflict,
    KubeForbidden,
    KubeUnreadable,
    KubeUnwritten,
    ScopeError,
)
from vgpuscope.model.quantity import UnixTime
from vgpuscope.model.reclaim import EarlierChange, ReclaimTarget
from vgpuscope.sinks.kube.api import KubeRequests
from vgpuscope.sinks.kube.writer import KubeWriter

log = logging.getLogger(__name__)

_LOOKS = 5  # at an object that changes all the time; after that, the call is repeated later
_RIGHTS = "The analyzer's service account lacks the right. The chart grants it if config.reclaim.action is scale."
_KUBE_ERRORS = (KubeUnreadable, KubeUnwritten)


class ChangeReason(NamedTuple):
    """What a change is made for, and the key and the secret of its call."""

    key: str
    namespace: str
    pod: str
    pod_uid: str
    secret: str = ""


class KubeReclaimer:
    """Changes objects, and says so on them and by an event. CallFailed: try again. CallRefused: do not."""

    def __init__(self, api: KubeRequests, writer: KubeWriter) -> None:
        self._api, self._writer = api, writer

    async def stop(self, target: ReclaimTarget, why: ChangeReason, *, now: UnixTime) -> ChangeAnnotation:
        """Free the GPUs of the target; what was there before is in the mark that is returned."""
        if target.kind == "Pod":
            return await self._evict(target, why, now)
        item = await self._read(target, why.namespace)
        mark = mark_of(item, RECLAIMED)
        if mark is None or mark.key != why.key or not is_ours(mark, target, why.secret):
            if mark is not None and mark.key == why.key:
                await self._warn_of_foreign(target, why, now)
            mark = await self._stop(target, item, why, now)
        note = f"GPUs of {why.pod} are idle. Was: {told(mark.before)}. Now: {told(mark.after)}."
        await self._report(target, why.namespace, "GpuReclaimed", note, key=why.key, now=now)
        return mark

    async def restore(
        self, target: ReclaimTarget, why: ChangeReason, *, earlier: Collection[EarlierChange], now: UnixTime
    ) -> ChangeAnnotation:
        """Put back what was there when one of the `earlier` calls changed the target.

        A controller may write the status at the same moment, so a conflict is looked at again at once.
        """
        for _ in range(_LOOKS):
            done = await self._restored(target, why, earlier, now)
            if done is not None:
                break
        else:
            raise CallFailed(f"{target} keeps changing; the call is retried")
        note = f"What was there is put back: {told(done.after)}."
        await self._report(target, why.namespace, "GpuRestored", note, key=why.key, now=now)
        return done

    async def _restored(
        self, target: ReclaimTarget, why: ChangeReason, earlier: Collection[EarlierChange], now: UnixTime
    ) -> ChangeAnnotation | None:
        """None: the object was changed after it was read."""
        item = await self._read(target, why.namespace)
        done = mark_of(item, RESTORED)
        if done is not None and done.key == why.key and is_ours(done, target, why.secret):
            return done
        return await self._restore(target, item, why, earlier, now)

    async def _stop(
        self, target: ReclaimTarget, item: Mapping[str, Any], why: ChangeReason, now: UnixTime
    ) -> ChangeAnnotation:
        after = stopped(target, now)
        before = present(item, after)
        mark = signed(
            ChangeAnnotation(key=why.key, at=iso(now), before=before, after=after, pod=why.pod), target, why.secret
        )
        if at_rest(before, after):  # somebody did it already, and we have nothing to put back
            return msgspec.structs.replace(mark, after=before)
        marks = {annotation(RECLAIMED): _text(mark), annotation(RESTORED): None}
        if not await self._patch(target, why.namespace, after | marks, version=target.version or _version(item)):
            raise CallFailed(f"{target} was changed since it was looked at (409)")
        return mark

    async def _restore(
        self,
        target: ReclaimTarget,
        item: Mapping[str, Any],
        why: ChangeReason,
        earlier: Collection[EarlierChange],
        now: UnixTime,
    ) -> ChangeAnnotation | None:
        mark = mark_of(item, RECLAIMED)
        if mark is None:
            raise CallRefused(f"{target} has no mark {RECLAIMED}: nothing was taken, or the mark was removed")
        call = next((one for one in earlier if one.key == mark.key), None)
        if call is None:
            raise CallRefused(f"{target} was changed again since, or its mark {RECLAIMED} is not ours")
        taken = _trusted(mark, target, call)
        if taken is None:
            await self._warn_of_foreign(target, why, now)
            raise CallRefused(f"the mark {RECLAIMED} of {target} is not ours, so it does not show what was there")
        if not (restorable(target, taken.before) and restorable(target, taken.after)):
            raise CallRefused(f"{target} had values that are not put back: {told(taken.before)[:200]}")
        if (found := present(item, taken.after)) != taken.after:
            raise CallRefused(f"{target} was changed since: {told(found)}, not {told(taken.after)}")
        done = signed(
            ChangeAnnotation(key=why.key, at=iso(now), before=taken.after, after=taken.before, pod=why.pod),
            target,
            why.secret,
        )
        marks = {annotation(RECLAIMED): None, annotation(RESTORED): _text(done)}
        changed = await self._patch(target, why.namespace, taken.before | marks, version=_version(item))
        return done if changed else None

    async def _evict(self, target: ReclaimTarget, why: ChangeReason, now: UnixTime) -> ChangeAnnotation:
        """Evict the pod with this UID. A disruption budget that forbids it answers 429, and is asked again later."""
        done = ChangeAnnotation(key=why.key, at=iso(now), pod=why.pod)
        try:
            await self._writer.evict(_ref(target, why.namespace))
        except KubeAbsent:  # it was evicted before, or it ended
            return done
        except KubeConflict as e:
            raise CallRefused(f"another pod is called {target.name}: {e}") from e
        except _KUBE_ERRORS as e:
            raise _call_error(f"the eviction of {target}", e) from e
        note = "GPUs are idle. The pod is evicted."
        await self._report(target, why.namespace, "GpuReclaimed", note, key=why.key, now=now)
        return done

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _read(self, target: ReclaimTarget, namespace: str) -> dict[str, Any]:
        try:
            data = await self._api.find(_ref(target, namespace).path)
        except KubeUnreadable as e:
            raise _call_error(f"the reading of {target}", e) from e
        item: dict[str, Any] | None = None if data is None else msgspec.json.decode(data)
        if item is None or item["metadata"]["uid"] != target.uid:
            raise CallRefused(f"{target} is gone")
        return item

    async def _patch(self, target: ReclaimTarget, namespace: str, fields: Fields, *, version: str) -> bool:
        """False: the object has another version by now."""
        change = patch(fields | {"metadata uid": target.uid})
        try:
            await self._writer.patch(_ref(target, namespace).path, change, version=version)
        except KubeConflict:
            return False
        except _KUBE_ERRORS as e:
            raise _call_error(f"the change of {target}", e) from e
        return True

    async def _warn_of_foreign(self, target: ReclaimTarget, why: ChangeReason, now: UnixTime) -> None:
        """Somebody else wrote a mark under the key of a call: it is ignored, and people can see that it was there."""
        named = {"object": str(target), "namespace": why.namespace, "annotation": RECLAIMED}
        log.warning("ignored a mark that this analyzer did not write", extra={"fields": named})
        note = f"The annotation {RECLAIMED} was not written by vgpuscope. It is ignored."
        await self._report(target, why.namespace, "ReclaimMarkIgnored", note, key=why.key, now=now)

    async def _report(
        self, target: ReclaimTarget, namespace: str, reason: str, note: str, *, key: str, now: UnixTime
    ) -> None:
        """Post an event about the target. Its name comes from the call, so that a repeated call posts no second one."""
        number = hashlib.sha256(f"{key} {reason}".encode()).hexdigest()[:16]
        name, text = f"{target.name[:200]}.{number}", EventText(reason, note, action="Reclaim")
        try:
            await self._writer.report_once(_ref(target, namespace), text, name=name, now=now)
        except _KUBE_ERRORS as e:  # the change is made all the same
            log.warning("event not posted", extra={"fields": {"object": str(target), "error": str(e)}})


def _call_error(what: str, error: ScopeError) -> CallFailed:
    """What an error of the Kubernetes API means for a call: whether it is worth another attempt."""
    text = f"{what}: {error}"
    if isinstance(error, KubeForbidden):
        return CallRefused(text, hint=_RIGHTS)
    return CallFailed(text) if error.retryable else CallRefused(text)


def _ref(target: ReclaimTarget, namespace: str) -> ObjectRef:
    return ObjectRef(target.kind, target.name, namespace, target.uid, target.api_version)


def _trusted(mark: ChangeAnnotation, target: ReclaimTarget, call: EarlierChange) -> ChangeAnnotation | None:
    """What a call changed: as it was stored, or as the signed mark says; None: neither shows it."""
    if call.result:
        return msgspec.json.decode(call.result, type=ChangeAnnotation)
    return mark if is_ours(mark, target, call.secret) else None


def _version(item: Mapping[str, Any]) -> str:
    version: str = item["metadata"]["resourceVersion"]
    return version


def _text(mark: ChangeAnnotation) -> str:
    return msgspec.json.encode(mark).decode()
