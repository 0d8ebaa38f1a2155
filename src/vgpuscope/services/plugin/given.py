"""Which GPUs the containers of this node were given: what is known first of a container counts while it runs."""

import time
from collections.abc import Callable, Collection

from vgpuscope.model.errors import ScopeError
from vgpuscope.model.quantity import DeviceUUID, PodUID, Seconds
from vgpuscope.services.plugin.cluster import ClusterSide

_LOOK_EVERY: Seconds = 30.0  # for containers that are still not known: directories of pods that are gone


class GivenGpus:
    """The containers that have regions; read by one thread while another one adds to them."""

    def __init__(
        self,
        cluster: ClusterSide,
        *,
        count: Callable[[ScopeError], None],
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        self._cluster, self._count, self._clock = cluster, count, clock
        self._known: dict[tuple[PodUID, str], frozenset[DeviceUUID]] = {}
        self._sought: dict[tuple[PodUID, str], Seconds] = {}  # in vain, and when

    def of(self, pod: PodUID, container: str) -> frozenset[DeviceUUID]:
        """The container's GPUs; none if they are not known."""
        return self._known.get((pod, container), frozenset())

    async def look(self, containers: Collection[tuple[PodUID, str]]) -> None:
        """Ask the API server about containers that are not known; forget those that have no region any more."""
        now = self._clock()
        self._sought = {one: at for one, at in self._sought.items() if one in containers and now - at < _LOOK_EVERY}
        self._known = {one: gpus for one, gpus in self._known.items() if one in containers}
        unknown = [one for one in containers if one not in self._known and one not in self._sought]
        if not unknown:
            return
        self._sought.update(dict.fromkeys(unknown, now))
        try:
            given = await self._cluster.given()
        except ScopeError as e:
            self._count(e)
            return
        self._known = {**self._known, **{one: given[one] for one in unknown if one in given}}
