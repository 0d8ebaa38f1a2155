"""Watches one kind of object for as long as the process runs, and passes every change to callbacks."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from vgpuscope.formats.kube.lists import ObjectPage, WatchEvent
from vgpuscope.model.errors import AnnotationMalformed, KubeForbidden, ScopeError, SourceDown
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.watch import WatchState
from vgpuscope.runtime.backoff import BackOff
from vgpuscope.runtime.log import OnChange, error_fields
from vgpuscope.runtime.units import Units
from vgpuscope.sources.kube import KubeClient, Watch, open_client, served_version

T = TypeVar("T")
log = logging.getLogger(__name__)

RETRY = (1.0, 30.0)  # seconds: first and longest pause before a retry
_TIMEOUT = 10.0  # seconds for the API server to begin an answer


class WatchGroup(msgspec.Struct, frozen=True):
    """An API group that not every cluster serves, and its versions that we can read, best first."""

    name: str
    versions: tuple[str, ...]


class WatchedKind(Generic[T]):
    """One kind of object, in all namespaces or in one."""

    def __init__(
        self,
        name: str,
        *,
        namespace: str = "",
        group: WatchGroup | None = None,
        fields: str = "",
        resync: float,
        decoders: tuple[Callable[[bytes], ObjectPage[T]], Callable[[bytes], WatchEvent[T]]],
        key: Callable[[T], str],
        keep: Callable[[T], None],
        drop: Callable[[str], None],
        begin: Callable[[Iterable[T]], None] = lambda _: None,
        kept: Callable[[T], bool] = lambda _: False,
        retry: tuple[Seconds, Seconds] = RETRY,
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        """`begin` gets the first list, before any `keep`; `fields` is a field selector; `retry` is the first and the
        longest pause before a retry.

        `drop` gets an object's key. `kept` tells whether `keep` has stored the object exactly so: of a fresh list only
        changes are passed on. Without it every object of the list is. Here only keys are stored.
        """
        self.name = name
        self._keep, self._drop, self._begin, self._kept = keep, drop, begin, kept
        self._group, self._resync, self._retry, self._clock = group, resync, retry, clock
        self._place = f"{f'namespaces/{namespace}/' if namespace else ''}{name}"
        self._keys: set[str] = set()
        self._error: ScopeError | None = None
        self._failure: ScopeError | None = None  # the last one, until somebody takes it
        self._heard: float | None = None
        self.told = 0
        self.listed = False
        self.served = True  # whether the API server serves the kind, as far as it is known
        self.fresh = False  # whether it was listed since relist() was called
        self._units = Units(log)  # one for each object
        self._watch: Watch[T] = Watch(
            path=f"/api/v1/{self._place}",
            params={"fieldSelector": fields} if fields else {},
            decode_page=decoders[0],
            decode_event=decoders[1],
            key=key,
            resync=resync,
            paged=True,  # a cluster's pods in one answer can be a gigabyte
            keep=False,
            on_list=self._take_list,
            on_change=self._take,
        )

    @property
    def settled(self) -> bool:
        """Whether there is nothing to wait for: the kind was listed, is not served, or is forbidden."""
        return self.listed or self.forbidden

    @property
    def forbidden(self) -> bool:
        """Whether the API server refuses to list or watch the kind, for lack of rights."""
        return isinstance(self._error, KubeForbidden)

    async def follow(self, kubeconfig: str | None, failed: Callable[[ScopeError], None]) -> None:
        """Watch for ever; failures are passed to `failed` and retried after growing pauses."""
        self._units.count = failed
        back_off = BackOff(self._retry, self._clock)
        while True:
            back_off.begin()
            try:
                await self._once(kubeconfig)
            except SourceDown as error:
                self._error = self._failure = error
                failed(error)
            except Exception as error:
                self._error = self._failure = self._units.failed(f"watch of {self.name}", error)
                self._watch.restart()
            await asyncio.sleep(back_off.pause() * random.uniform(0.5, 1.5))  # many must not reconnect at once

    def relist(self) -> None:
        """List again when `follow` is called next; `fresh` shows when that is done."""
        self.fresh = False
        self._watch.restart()

    def take_failure(self) -> ScopeError | None:
        """The last failure since this was called before, also if the watch is back already."""
        taken, self._failure = self._failure, None
        return taken

    def faults(self) -> Mapping[str, str]:
        """The parts of the current objects that could not be read, by object."""
        found: dict[str, str] = {}
        for fault in self._watch.faults:
            known = found.get(fault.uid)
            found[fault.uid] = f"{known}; {fault.reason}" if known else f"{fault.object}: {fault.reason}"
        return found

    def state(self) -> WatchState:
        """The state of the watch."""
        error = self._error
        return WatchState(
            kind=self.name,
            up=self.listed and error is None,
            objects=len(self._keys) if self.listed else None,
            events=self.told,
            faults=len({fault.uid for fault in self._watch.faults}),
            age_seconds=None if self._heard is None else self._clock() - self._heard,
            awaited=self.served,
            code=error.code if error else None,
            message=str(error) if error else None,
        )

    async def _once(self, kubeconfig: str | None) -> None:
        async with open_client(kubeconfig) as client:
            api = KubeClient(client, timeout=_TIMEOUT)
            if self._group is not None:
                version = await served_version(api, self._group.name, self._group.versions)
                self.served = version is not None
                if version is None:
                    await self._not_served()
                    return
                self._watch.move(f"/apis/{self._group.name}/{version}/{self._place}")
            await self._watch.run(api, self._alive)

    async def _not_served(self) -> None:
        """The cluster does not serve this kind now; an upgrade may add it."""
        self._take_list({})
        self._alive()
        await asyncio.sleep(self._resync)

    def _alive(self) -> None:
        self._heard, self._error = self._clock(), None

    def _take_list(self, found: Mapping[str, T]) -> None:
        if not self.listed:
            with self._units.isolated(f"first list of {self.name}"):
                self._begin(found.values())
        for uid in [uid for uid in self._keys if uid not in found]:
            self._gone(uid)
        for uid, item in found.items():
            if uid not in self._keys or not self._kept(item):
                self._there(uid, item)
        self.listed = self.fresh = True

    def _take(self, uid: str, item: T | None) -> None:
        self.told += 1
        if item is not None:
            self._there(uid, item)
        elif uid in self._keys:
            self._gone(uid)

    def _there(self, uid: str, item: T) -> None:
        self._keys.add(uid)
        try:
            self._keep(item)
        except Exception as e:
            self._units.failed(f"{self.name} {uid}", e)

    def _gone(self, uid: str) -> None:
        self._keys.discard(uid)
        with self._units.isolated(f"{self.name} {uid}"):
            self._drop(uid)


def report_watch(kind: WatchedKind[Any], tell: OnChange, count: Callable[[ScopeError], None]) -> None:
    """Log a change of the watch's state, and each new fault of an object, once."""
    key = (kind, "state")
    failure = kind.take_failure()
    if failure is not None:
        values = {"kind": kind.name, **error_fields(failure)}
        tell.tell(key, failure.code, level=logging.WARNING, message="watch down", **values)
    if kind.state().up:
        tell.tell(key, "up", level=logging.INFO, message="watch up", kind=kind.name)
    for uid, fault in kind.faults().items():
        values = {"kind": kind.name, "object": fault, "error_code": AnnotationMalformed.code}
        if tell.tell((kind, uid), fault, level=logging.WARNING, message="malformed", **values):
            count(AnnotationMalformed(fault))


def watch_keys(kinds: Iterable[WatchedKind[Any]]) -> set[tuple[WatchedKind[Any], str]]:
    """The keys of what report_watch logs, as long as it can be logged again."""
    return {(kind, of) for kind in kinds for of in ("state", *kind.faults())}


def merged(states: Sequence[WatchState]) -> list[WatchState]:
    """One state for each kind: if several namespaces are watched, the worst."""
    found: dict[str, WatchState] = {}
    for state in states:
        known = found.get(state.kind)
        if known is None:
            found[state.kind] = state
            continue
        found[state.kind] = msgspec.structs.replace(
            state if not state.up else known,
            up=known.up and state.up,
            objects=(known.objects or 0) + (state.objects or 0),
            events=known.events + state.events,
            faults=known.faults + state.faults,
        )
    return list(found.values())
