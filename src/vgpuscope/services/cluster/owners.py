"""Reads the unknown controllers of pods' controllers from the API server."""

import asyncio
import logging
import time
from collections.abc import Callable

from vgpuscope.formats.kube.paths import plural
from vgpuscope.logic.cluster.owners import OwnerIndex, OwnerStep
from vgpuscope.model.errors import KubeForbidden, ScopeError, SourceDown
from vgpuscope.model.quantity import Seconds
from vgpuscope.runtime.log import OnChange, error_fields
from vgpuscope.runtime.units import Units
from vgpuscope.sources.cluster.controllers import controller_of
from vgpuscope.sources.kube import KubeClient, open_client

log = logging.getLogger(__name__)

_EVERY = 1.0  # seconds between two searches for unknown controllers
_AGAIN = 600.0  # seconds until a forbidden kind is requested again
_RETRY = 15.0
_LATER = 60.0  # seconds until a controller that could not be read is requested again
_MOST_ERRORS = 20  # of one search; then the API server is down
_TIMEOUT = 10.0  # seconds
_AT_ONCE = 4  # requests


class OwnerSearch:
    """Fills the OwnerIndex; a chain of controllers ends at a kind that may not be read, others are not affected."""

    def __init__(
        self,
        index: OwnerIndex,
        kubeconfig: str | None,
        *,
        failed: Callable[[ScopeError], None],
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        self._index, self._kubeconfig, self._failed, self._clock = index, kubeconfig, failed, clock
        self._refused: dict[tuple[str, str, str], float] = {}  # by namespace, API version, kind: until when
        self._later: dict[str, float] = {}  # by UID of a controller that could not be read: until when
        self._errors = 0  # of the current search
        self._tell, self._units = OnChange(log), Units(log, failed)

    async def run(self) -> None:
        """Search for ever."""
        while True:
            pause = _EVERY
            if wanted := self._wanted():
                pause = await self._ask_all(wanted)
            await asyncio.sleep(pause)

    def _wanted(self) -> list[OwnerStep]:
        now = self._clock()
        self._refused = {kind: until for kind, until in self._refused.items() if until > now}
        self._later = {uid: until for uid, until in self._later.items() if until > now}
        unknown = (one for one in self._index.unknown() if one.controller.uid not in self._later)
        return [one for one in unknown if _kind(one) not in self._refused]

    async def _ask_all(self, wanted: list[OwnerStep]) -> Seconds:
        """Read these controllers, and return the pause until the next search."""
        self._errors = 0
        try:
            async with open_client(self._kubeconfig) as client:
                api, turn = KubeClient(client, timeout=_TIMEOUT), asyncio.Semaphore(_AT_ONCE)
                async with asyncio.TaskGroup() as group:
                    for one in wanted:
                        group.create_task(self._ask(api, turn, one), name="controller")
        except SourceDown as error:  # no client can be made
            self._failed(error)
            return _RETRY
        return _RETRY if self._errors >= _MOST_ERRORS else _EVERY

    async def _ask(self, api: KubeClient, turn: asyncio.Semaphore, one: OwnerStep) -> None:
        """Read one controller; if that fails, it is the only one that stays unknown."""
        async with turn:
            if _kind(one) in self._refused or self._errors >= _MOST_ERRORS:
                return
            try:
                self._index.learn(one, await controller_of(api, one.namespace, one.controller))
            except KubeForbidden as e:
                self._not_allowed(one, e)
            except SourceDown as e:
                self._not_now(one)
                self._failed(e)
            except Exception as e:
                self._not_now(one)
                self._units.failed(f"{one.controller.kind} {one.namespace}/{one.controller.name}", e)

    def _not_now(self, one: OwnerStep) -> None:
        self._errors += 1
        self._later[one.controller.uid] = self._clock() + _LATER

    def _not_allowed(self, one: OwnerStep, error: KubeForbidden) -> None:
        """Not an error: the name of the topmost owner is known without reading it, and no role can list all kinds."""
        self._refused[_kind(one)] = self._clock() + _AGAIN
        resource = f"{plural(one.controller.kind)} ({one.controller.api_version})"
        values = {"resource": resource, **error_fields(error)}
        self._tell.tell(resource, error.code, level=logging.INFO, message="owner not followed", **values)


def _kind(one: OwnerStep) -> tuple[str, str, str]:
    return one.namespace, one.controller.api_version, one.controller.kind
