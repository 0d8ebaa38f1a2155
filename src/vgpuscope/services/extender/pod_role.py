"""The label on the extender's own pod that says whether it leads: the chart's Service has only the leader."""

import asyncio
from collections.abc import Callable

from vgpuscope.formats.kube.paths import ObjectRef
from vgpuscope.model.errors import KubeAbsent, ScopeError
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.service import LEADER_LABEL
from vgpuscope.sinks.kube.writer import KubeWriter

_AGAIN: Seconds = 2.0


class PodRole:
    """Writes the label whenever the role changes; outside of a pod it does nothing."""

    def __init__(
        self,
        writer: KubeWriter,
        *,
        namespace: str,
        pod: str,
        leads: Callable[[], bool],
        failed: Callable[[ScopeError], None],
        again: Seconds = _AGAIN,
    ) -> None:
        """`pod`: the name of this process' own pod; "": it is in none. `again`: the pause after a failed write."""
        self._writer, self._leads, self._failed = writer, leads, failed
        self._again = again
        self._path = ObjectRef("Pod", pod, namespace).path if pod and namespace else ""
        self._turned = asyncio.Event()
        self._turned.set()  # a container that was restarted may find the label of its former life

    def turn(self) -> None:
        """The role may have changed."""
        self._turned.set()

    async def run(self) -> None:
        """Write it for ever."""
        while True:
            await self._turned.wait()
            self._turned.clear()
            if not await self._written():
                await asyncio.sleep(self._again)
                self._turned.set()

    async def _written(self) -> bool:
        if not self._path:
            return True
        label = {LEADER_LABEL: "leader" if self._leads() else None}
        try:
            await self._writer.patch(self._path, {"metadata": {"labels": label}})
        except KubeAbsent:  # the name is not that of a pod
            return True
        except ScopeError as e:
            self._failed(e)
            return False
        return True
