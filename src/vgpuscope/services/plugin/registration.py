"""Keeps the plugin registered with the kubelet: after each start of the kubelet, and when our socket was lost."""

import asyncio
import logging
import time
from collections.abc import Callable

from vgpuscope.model.errors import ScopeError, SourceDown
from vgpuscope.model.quantity import Seconds
from vgpuscope.runtime.log import OnChange, error_fields, fields
from vgpuscope.sources.plugin.dirwatch import DirectoryWatch
from vgpuscope.sources.plugin.kubelet import KubeletSide

log = logging.getLogger(__name__)

_LOOK_EVERY: Seconds = 5.0  # inotify tells changes at once; this is for directories that it cannot watch
_RETRY: Seconds = 1.0
_UNFOLLOWED: tuple[Seconds, Seconds] = (10.0, 300.0)  # first and longest time without a follower before a new try


class Registration:
    """The loop that registers."""

    def __init__(
        self,
        side: KubeletSide,
        directory: str,
        *,
        ready: asyncio.Event,
        count: Callable[[ScopeError], None],
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        """`ready`: the devices are known; a registration without any would tell the kubelet that there are none."""
        self._side, self._directory = side, directory
        self._ready, self._count, self._clock = ready, count, clock
        self._with: tuple[int, int] | None = None  # the kubelet that we are registered with
        self._at = 0.0  # the last registration
        self._patience = _UNFOLLOWED[0]
        self._tell = OnChange(log)
        self.results = {"success": 0, "failure": 0}

    @property
    def up(self) -> bool:
        """Whether the kubelet that runs now knows our devices."""
        return self._with is not None and self._with == self._side.kubelet() and self._side.followers > 0

    async def run(self) -> None:
        """Look at the directory whenever it changes."""
        await self._ready.wait()
        watch = DirectoryWatch(self._directory)
        try:
            while True:
                pause = await self._step()
                await watch.wait(pause)
        finally:
            watch.close()

    async def _step(self) -> Seconds:
        """Do what is missing; the time until the next look."""
        kubelet = self._side.kubelet()
        if self._side.followers:
            self._patience = _UNFOLLOWED[0]
        try:
            if not self._side.listening:
                if self._with is not None:
                    log.warning(
                        "the socket of the device plugin was removed; it is made again",
                        extra=fields(directory=self._directory),
                    )
                self._with = None
                await self._side.listen()
            if kubelet is not None and kubelet != self._with:
                await self._register(kubelet)
            elif kubelet is not None and self._unfollowed():
                await self._register(kubelet)
                log.warning("the kubelet did not watch our devices; another device plugin may have registered them")
        except SourceDown as e:
            self._count(e)
            self.results["failure"] += 1
            self._tell.tell(
                "kubelet", (e.code, str(e)), level=logging.WARNING, message="kubelet down", **error_fields(e)
            )
            return _RETRY
        if kubelet is None:
            self._with = None
            self._tell.tell("kubelet", "absent", level=logging.WARNING, message="no kubelet", directory=self._directory)
        return _LOOK_EVERY

    def _unfollowed(self) -> bool:
        """Whether the kubelet has forgotten us, as it does when another plugin registers the same resource.

        Its socket stays when it ends, so it may also be gone: whether it answers shows that.
        """
        if self._side.followers or self._clock() - self._at < self._patience:
            return False
        self._patience = min(self._patience * 2, _UNFOLLOWED[1])
        return True

    async def _register(self, kubelet: tuple[int, int]) -> None:
        self._at = self._clock()
        await self._side.register()
        self._with = kubelet
        self.results["success"] += 1
        self._tell.forget("kubelet")
        log.info("registered with the kubelet", extra=fields(directory=self._directory))
