"""Devices of ResourceClaims: asks the API server about claims that the kubelet lists, and resolves them.

A node without claims asks for nothing, and the modules for it are not imported.
"""

import asyncio
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol

from vgpuscope.model.dra import AllocatedClaim, SliceState
from vgpuscope.model.errors import KubeUnreadable, ScopeError, SourceDown
from vgpuscope.model.pod import Grant
from vgpuscope.model.quantity import Seconds

if TYPE_CHECKING:
    from vgpuscope.logic.node.claims import ClaimCache

_WITHIN: Seconds = 10.0  # the kubelet's list waits for the API server no longer than this
_AGAIN: Seconds = 60.0  # between two requests for something that the API server does not have, or does not give
_SELDOM: Seconds = 300.0  # between two requests for the slices of all nodes together


class ClaimSource(Protocol):
    """The API server, or a stand-in."""

    async def slices(self) -> tuple[SliceState, ...]:
        """The slices of the node that have GPUs."""

    async def slices_without_node(self) -> tuple[SliceState, ...]:
        """The slices of the cluster that have GPUs and name no node."""

    async def claim(self, whole_name: str) -> AllocatedClaim | None:
        """The claim by namespace/name."""

    async def close(self) -> None: ...


class ClaimHealth(Protocol):
    """Where the state of the source is kept."""

    def good(self, seconds: float | None = None) -> None: ...

    def none(self, why: str) -> None: ...


class Claims:
    """Resolves the devices of claims each time the kubelet's list was read."""

    def __init__(
        self,
        open_source: Callable[[], ClaimSource] | None,
        *,
        node: str,
        resync: Seconds,
        health: ClaimHealth,
        failed: Callable[[ScopeError], None],
        within: Seconds = _WITHIN,
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        """`open_source` is called when the first claim is seen; None: there is no access to an API server.

        `within` is the time that the API server has for an answer.
        """
        self._open_source = open_source
        self._node, self._resync, self._within, self._clock = node, resync, within, clock
        self._health, self._failed = health, failed
        self._source: ClaimSource | None = None
        self._cache: ClaimCache | None = None
        self._nodeless: tuple[SliceState, ...] = ()  # slices that name no node, with the devices of this node only
        self._searched: Seconds | None = None  # when they were last asked for; also after a failure, and after _forget
        self._missed: frozenset[object] = frozenset()  # what the last request did not answer
        self._asked: Seconds | None = None
        self._renewed: Seconds | None = None  # when all was read; None: never, or the last request failed
        health.none(_NO_CLAIMS)

    async def resolve(self, grants: tuple[Grant, ...]) -> tuple[Grant, ...]:
        """The grants that hold a device; those of claims with what is known about their devices."""
        if all(grant.claim is None for grant in grants):
            self._health.none(_NO_CLAIMS)
            self._forget()
            return grants
        if self._open_source is None:
            self._health.none(_NO_ACCESS)
            return grants
        cache = self._cache = self._cache or _new_cache(self._node)
        if self._due(cache, grants):
            await self._ask(cache, grants)
        return cache.resolve(grants)

    async def close(self) -> None:
        if self._source is not None:
            await self._source.close()

    def _forget(self) -> None:
        self._cache = self._asked = self._renewed = None
        self._missed = frozenset()

    def _due(self, cache: "ClaimCache", grants: Collection[Grant]) -> bool:
        """At once for a claim that is new; after a pause for what was not answered, and to read all again."""
        missing = _missing(cache, grants)
        if self._asked is None or missing - self._missed:
            return True
        rested = self._clock() - self._asked >= min(_AGAIN, self._resync)
        return rested and (bool(missing) or self._stale())

    def _stale(self) -> bool:
        return self._renewed is None or self._clock() - self._renewed >= self._resync

    async def _ask(self, cache: "ClaimCache", grants: Collection[Grant]) -> None:
        began, renew = self._clock(), self._stale()
        try:
            async with asyncio.timeout(self._within):
                error = await self._read(cache, grants, renew=renew)
        except TimeoutError:
            error = KubeUnreadable(f"no answer about claims within {self._within:g} s")
        self._asked, self._missed = self._clock(), _missing(cache, grants)
        if error is not None:
            self._renewed = None
            self._failed(error)
            return
        self._renewed = self._asked if renew else self._renewed
        self._health.good(self._asked - began)

    async def _read(self, cache: "ClaimCache", grants: Collection[Grant], *, renew: bool) -> SourceDown | None:
        """Reads slices and claims, each as far as possible; the first error."""
        assert self._open_source is not None
        source = self._source = self._source or self._open_source()
        first: SourceDown | None = None
        if renew or cache.unknown_devices(grants):
            try:
                await self._read_slices(source, cache, grants)
            except SourceDown as error:
                first = error
        for name in sorted(cache.gpu_claims(grants) if renew else cache.unknown_claims(grants)):
            try:
                found = await source.claim(name)
            except SourceDown as error:
                first = first or error
            else:
                cache.take_claims({name: found} if found is not None else {})
        return first

    async def _read_slices(self, source: ClaimSource, cache: "ClaimCache", grants: Collection[Grant]) -> None:
        """Reads the slices of the node; if a device is in none of them, those that name a node for each device."""
        of_node = await source.slices()
        cache.take_slices((*of_node, *self._nodeless))
        now, wanted = self._clock(), bool(self._nodeless or cache.unknown_devices(grants))
        if not wanted or (self._searched is not None and now - self._searched < _SELDOM):
            return
        self._searched = now
        self._nodeless = _on_node(await source.slices_without_node(), self._node)
        cache.take_slices((*of_node, *self._nodeless))


_NO_CLAIMS = "no container of this node has a ResourceClaim"
_NO_ACCESS = "without --pods kube, devices of ResourceClaims are identified by their names only"


def _missing(cache: "ClaimCache", grants: Collection[Grant]) -> frozenset[object]:
    return frozenset((*cache.unknown_devices(grants), *cache.unknown_claims(grants)))


def _on_node(slices: tuple[SliceState, ...], node: str) -> tuple[SliceState, ...]:
    from vgpuscope.logic.node.claims import on_node

    return on_node(slices, node=node)


def _new_cache(node: str) -> "ClaimCache":
    from vgpuscope.logic.node.claims import ClaimCache  # most nodes have no claims

    return ClaimCache(node)
