"""Whether a vgpuscope extender runs in the cluster: then it measures what this exporter can only estimate.

The extender renews its lease every few seconds, also without leader election. The lease shows a running extender; pods
with its label would not show whether they work, and its assignments stay after it is gone.
"""

import logging
import time
from collections.abc import Callable

from vgpuscope.formats.kube.lease import SeenLease, decode_lease_event, decode_leases
from vgpuscope.model.errors import KubeForbidden, ScopeError
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.model.service import EXTENDER_LEASE
from vgpuscope.runtime.log import OnChange
from vgpuscope.services.watch import WatchedKind, WatchGroup

log = logging.getLogger(__name__)

_GROUP = WatchGroup("coordination.k8s.io", ("v1",))
_FRESH: Seconds = 60.0  # since the last renewal; an extender that restarts is back sooner


class ExtenderSighting:
    """The lease of the extender, and when it was last seen to be renewed, by our own clock.

    Only the one in the extender's own namespace counts: in theirs, tenants may create a lease of this name.
    """

    def __init__(
        self,
        *,
        namespace: str,
        resync: Seconds,
        clock: Callable[[], Seconds] = time.monotonic,
        wall: Callable[[], UnixTime] = time.time,
    ) -> None:
        self._clock, self._wall = clock, wall
        self._renewed: dict[str, Seconds] = {}
        self._leases: dict[str, SeenLease] = {}  # a fresh list repeats leases, which does not renew them
        self._told = OnChange(log)
        self.kind = WatchedKind(
            "leases",
            namespace=namespace,
            group=_GROUP,
            fields=f"metadata.name={EXTENDER_LEASE}",
            resync=resync,
            decoders=(decode_leases, decode_lease_event),
            key=lambda lease: lease.key,
            keep=self.see,
            drop=self._gone,
            kept=lambda lease: self._leases.get(lease.key) == lease,
            clock=clock,
        )

    @property
    def running(self) -> bool:
        """Whether an extender has renewed its lease in the last minute."""
        now = self._clock()
        return any(now - at <= _FRESH for at in self._renewed.values())

    def see(self, lease: SeenLease) -> None:
        """A lease that is new or was renewed."""
        self._leases[lease.key] = lease
        if not lease.record.holder:
            self._gone(lease.key)
            return
        if lease.key in self._renewed:
            self._renewed[lease.key] = self._clock()
            return
        # at first sight only the writer's clock tells the age
        age = max(0.0, self._wall() - (lease.record.renewed or 0.0))
        self._renewed[lease.key] = self._clock() - age

    def _gone(self, key: str) -> None:
        self._renewed.pop(key, None)
        self._leases.pop(key, None)

    async def follow(self, kubeconfig: str | None, failed: Callable[[ScopeError], None]) -> None:
        """Watch for ever."""
        await self.kind.follow(kubeconfig, lambda error: self._failed(error, failed))

    def _failed(self, error: ScopeError, count: Callable[[ScopeError], None]) -> None:
        if not isinstance(error, KubeForbidden):
            count(error)
            return
        self._told.tell(
            "leases",
            error.code,
            level=logging.INFO,
            message="leases may not be watched: an extender would not be noticed, and hami_scheduler_* are published",
        )
