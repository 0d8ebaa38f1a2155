"""Which replica the kube-scheduler asks that schedules now: the one in whose pod that kube-scheduler runs.

Replicas of kube-scheduler have a lease of their own. Its holder is `<host name>_<uuid>`, and the containers of a pod
have one host name.
"""

import logging
import time
from collections.abc import Callable
from typing import Protocol

from vgpuscope.formats.kube.lease import LeaseRecord
from vgpuscope.model.errors import KubeUnreadable, ScopeError
from vgpuscope.model.quantity import Seconds
from vgpuscope.runtime.log import OnChange, error_fields

log = logging.getLogger(__name__)


class ReadableLease(Protocol):
    """Where the record is kept."""

    async def read(self) -> LeaseRecord | None: ...


class SchedulerLease:
    """The lease of the kube-schedulers, as last seen. A record is valid for its duration after it changed."""

    def __init__(
        self,
        lease: ReadableLease,
        *,
        host: str,
        failed: Callable[[ScopeError], None] = lambda _: None,
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        """`host`: the host name of this replica's pod."""
        self._lease, self._host, self._failed, self._clock = lease, host, failed, clock
        self._record: LeaseRecord | None = None
        self._changed: Seconds = 0.0
        self._here_since: Seconds | None = None
        self._told = OnChange(log)

    async def look(self) -> None:
        """Read the lease; never raises for an API server that does not answer."""
        try:
            record = await self._lease.read()
        except KubeUnreadable as e:
            self._failed(e)
            message = "the lease of kube-scheduler cannot be read"
            self._told.tell("lease", e.code, level=logging.WARNING, message=message, **error_fields(e))
            return
        self._told.forget("lease")
        if record != self._record:
            self._record, self._changed = record, self._clock()
        if self.holder is None or self.elsewhere:
            self._here_since = None
        elif self._here_since is None:
            self._here_since = self._clock()

    @property
    def holder(self) -> str | None:
        """The kube-scheduler that schedules now; None: none does, or it is not known."""
        record = self._record
        if record is None or not record.holder or self._clock() - self._changed > record.seconds:
            return None
        return record.holder

    @property
    def elsewhere(self) -> bool:
        """Whether it runs in another replica's pod."""
        holder = self.holder
        return holder is not None and holder.rpartition("_")[0] != self._host

    @property
    def here_for(self) -> Seconds | None:
        """For how long it has been seen in this replica's pod; None: it is not there."""
        if self._here_since is None or self.holder is None or self.elsewhere:
            return None
        return self._clock() - self._here_since
