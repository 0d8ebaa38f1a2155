"""Removes directories of containers whose pods are gone, as HAMi's monitor does in the pod of HAMi's own plugin."""

import asyncio
import logging
import time
from collections.abc import Callable

from vgpuscope.model.errors import AllocateDirectory, ScopeError
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.runtime.log import OnChange, error_fields, fields
from vgpuscope.services.plugin.cluster import ClusterSide
from vgpuscope.sinks.container_dirs import ContainerDirs

log = logging.getLogger(__name__)

_EVERY: Seconds = 60.0
_OLD: Seconds = 300.0  # as HAMi's monitor: the pod of a younger directory may be too new for a list


class Leftovers:
    """The loop that removes, and how many it has removed."""

    def __init__(
        self,
        cluster: ClusterSide,
        dirs: ContainerDirs,
        *,
        count: Callable[[ScopeError], None],
        clock: Callable[[], UnixTime] = time.time,
    ) -> None:
        self._cluster, self._dirs, self._count, self._clock = cluster, dirs, count, clock
        self._tell = OnChange(log)
        self.removed = 0

    async def run(self) -> None:
        """Look from time to time."""
        while True:
            await self.round()
            await asyncio.sleep(_EVERY)

    async def round(self) -> None:
        """Remove what is left over. Without a complete list of the node's pods nothing is removed."""
        try:
            removed = await self._remove()
        except ScopeError as e:
            self._count(e)
            self._tell.tell(
                "round", e.code, level=logging.WARNING, message="directories not removed", **error_fields(e)
            )
            return
        self._tell.forget("round")
        for name in removed:
            log.info("directory of a pod that is gone removed", extra=fields(directory=name))

    async def _remove(self) -> tuple[str, ...]:
        before = self._clock() - _OLD
        if not await asyncio.to_thread(self._dirs.old, before):
            return ()
        pods = await self._cluster.all_pods()
        removed, failures = await asyncio.to_thread(self._dirs.remove_others, pods, before)
        self.removed += len(removed)
        if failures:
            raise AllocateDirectory("; ".join(failures[:3]))
        return removed
