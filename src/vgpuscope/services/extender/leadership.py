"""Leader election by a lease: one replica decides at a time.

The rules are client-go's. A record of another replica is valid for its duration after this replica saw it change, so
the replicas' clocks need not agree. The leader counts from before its request was sent, and stops deciding after two
thirds of the duration: a third before another replica may begin.

A kube-scheduler in the pod of a replica asks only that replica, and has a lease of its own, which our lease follows:
a leader without the kube-scheduler that schedules finishes what it has begun and releases the lease, and the replica
beside that kube-scheduler takes it.

If the holder does not do so, or the lease of the kube-schedulers is not known, the replica that is asked though it does
not lead (`want`) takes the lease from its holder. It begins to decide when the holder has stopped at the latest: the
holder's next renewal is a conflict, and without one it stops after two thirds of the duration.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from msgspec.structs import replace

from vgpuscope.formats.kube.lease import LeaseRecord
from vgpuscope.model.errors import KubeConflict, KubeUnreadable, KubeUnwritten, ScopeError
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.runtime.log import OnChange, error_fields, fields
from vgpuscope.services.extender.scheduler_lease import SchedulerLease

log = logging.getLogger(__name__)

_STOP_AFTER = 2 / 3  # of the duration, without a renewal
_RENEW_AFTER = 1 / 7  # of the duration
_RELEASE_WITHIN: Seconds = 3.0
_LEAST_TERM = 2.0  # durations that a holder keeps the lease before another replica takes it because it is asked
_LEFT_FOR = 1.5  # durations: also a lease that could not be released has expired for the other replica by then
_PATIENCE = 3 / 7  # durations: the holder's time to release the lease to the replica beside the kube-scheduler


class LeaseRecordStore(Protocol):
    """Where the record is kept."""

    async def read(self) -> LeaseRecord | None: ...
    async def write(self, record: LeaseRecord) -> LeaseRecord: ...


async def _nothing_begun() -> None:
    """There is nothing to finish."""


class KubeLeadership:
    """Takes and renews the lease. `leads` becomes false by time alone, whatever else happens."""

    def __init__(
        self,
        lease: LeaseRecordStore,
        *,
        identity: str,
        duration: Seconds,
        elect: bool = True,
        scheduler: SchedulerLease | None = None,
        finished: Callable[[], Awaitable[None]] = _nothing_begun,
        failed: Callable[[ScopeError], None] = lambda _: None,
        clock: Callable[[], Seconds] = time.monotonic,
        wall: Callable[[], UnixTime] = time.time,
    ) -> None:
        """`elect` False: this replica always leads; the lease only shows others that an extender runs.

        `scheduler`: the lease of the kube-schedulers beside the replicas; None: they have none. `finished` returns when
        nothing that this replica has decided is still being written.
        """
        self._scheduler, self._finished = scheduler if elect else None, finished
        self._lease, self.identity, self._duration, self._elect = lease, identity, duration, elect
        self._failed, self._clock, self._wall = failed, clock, wall
        self._record: LeaseRecord | None = None
        self._changed = 0.0  # when the record was last seen to change, by our clock
        self._until: Seconds | None = None  # None: this replica does not hold the lease
        self._from: Seconds = 0.0  # when the holder from whom it was taken has stopped at the latest
        self._wanted: Seconds | None = None  # when a scheduler last asked this replica though it does not lead
        self._held = 0.0  # when the holder was last seen to change
        self._free_since: Seconds | None = None  # since when this replica has left a free lease to another one
        self._handed = ""  # the kube-scheduler to whose replica this one has released the lease last
        self._unsure = False  # whether it is not known if the last write took place
        self._led, self._last_term = False, 0
        self.reached: Seconds | None = None  # when the API server last answered, by our clock
        self.asked: Seconds | None = None  # when the last round began, by our clock
        self.term = 0  # counts how often this replica took the lease from another holder, or found it free
        self.takes_over = False  # the last holder did not release the lease: it may still be at work
        self.on_turn: list[Callable[[], None]] = []  # called when this replica begins or stops to lead
        self._told = OnChange(log)

    @property
    def leads(self) -> bool:
        """Whether this replica may decide and write now."""
        return not self._elect or (self._until is not None and self._from <= self._clock() < self._until)

    def want(self) -> None:
        """A scheduler asks this replica, which does not lead: it should, because that scheduler asks no other."""
        self._wanted = self._clock()

    @property
    def holder(self) -> str:
        """The replica that holds the lease, as last seen; "": none."""
        return self._record.holder if self._record else ""

    @property
    def transitions(self) -> int:
        return self._record.transitions if self._record else 0

    @property
    def age(self) -> Seconds | None:
        """Seconds since the lease was last seen to be renewed; None: never."""
        return self._clock() - self._changed if self._record else None

    async def run(self, pause: Callable[[Seconds], Awaitable[None]] = asyncio.sleep) -> None:
        """Take or renew the lease for ever."""
        while True:
            await self.ask()
            await pause(self._duration * _RENEW_AFTER)

    async def ask(self) -> None:
        """One round: take the lease if it is free, renew it if it is ours."""
        self.asked = began = self._clock()
        try:
            async with asyncio.timeout(self._duration * _STOP_AFTER):
                if self._scheduler is not None and not self.leads:
                    await self._scheduler.look()
                await self._ask(began)
        except KubeConflict:  # another replica was faster
            self._until = None
        except (KubeUnreadable, KubeUnwritten, TimeoutError) as e:
            error = e if isinstance(e, ScopeError) else KubeUnwritten("the lease was not renewed in time")
            self._failed(error)
            self._told.tell("lease", error.code, level=logging.WARNING, message="lease failed", **error_fields(error))
        else:
            self.reached = self._clock()
            self._told.tell("lease", "ok", level=logging.INFO, message="lease works")
        self._turn()
        if self._scheduler is not None and self.leads:
            await self._follow(self._scheduler)
        if self.leads:
            self._told.forget("holder")
        elif self.holder not in {"", self.identity}:
            values = {"holder": self.holder, "identity": self.identity}
            self._told.tell("holder", self.holder, level=logging.INFO, message="following", **values)

    async def _follow(self, scheduler: SchedulerLease) -> None:
        """Release the lease if the kube-scheduler that schedules asks another replica; once for each of its terms.

        The other replica may be down, so this one leads again if nobody takes the lease.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(self._duration * _RENEW_AFTER):
                await scheduler.look()
        holder, record = scheduler.holder or "", self._record
        if not scheduler.elsewhere or holder == self._handed or record is None:
            return
        self._until, self._handed = None, holder
        self._turn()
        log.info("handing over", extra=fields(scheduler=holder, identity=self.identity))
        with suppress(ScopeError, TimeoutError):
            async with asyncio.timeout(self._duration * _STOP_AFTER):
                await self._finished()
                self._see(await self._lease.write(_released(record, self._wall())))

    async def release(self) -> None:
        """Give the lease back, so that another replica can take it at once."""
        record, self._until = self._record, None
        self._turn()
        if record is None or record.holder != self.identity:
            return
        with suppress(ScopeError, TimeoutError):
            async with asyncio.timeout(_RELEASE_WITHIN):
                await self._lease.write(_released(record, self._wall()))

    async def _ask(self, began: Seconds) -> None:
        mine = self._record is not None and self._record.holder == self.identity and self._until is not None
        if not mine or self._unsure:
            self._see(await self._lease.read())
            self._unsure = False
        record = self._record
        if record is None or not self._elect or self._free(record):
            if mine or not self._leaves(began):
                self._free_since = None
                await self._take(record, began)
            return
        self._free_since = None
        if self._wants():
            stops = record.seconds * _STOP_AFTER  # after its last renewal, which is not later than our write
            self._from = began + self._duration * _STOP_AFTER + stops  # if no answer says when the write took place
            await self._take(record, began)
            self._from = self._clock() + stops
        else:
            self._until = None

    def _wants(self) -> bool:
        """Whether a scheduler waits for this replica, and the holder has had its time: two must not toss the lease."""
        now, here = self._clock(), self._scheduler.here_for if self._scheduler else None
        if self._wanted is None or now - self._wanted >= self._duration:
            return False
        if here is not None:  # only one kube-scheduler schedules, so nobody tosses it back
            return here > _PATIENCE * self._duration
        return now - self._held > _LEAST_TERM * self._duration

    def _leaves(self, now: Seconds) -> bool:
        """Whether a free lease is left to the replica beside the kube-scheduler that schedules, for a while."""
        if self._scheduler is None or not self._scheduler.elsewhere:
            return False
        if self._free_since is None:
            self._free_since = now
        return now - self._free_since < _LEFT_FOR * self._duration

    def _free(self, record: LeaseRecord) -> bool:
        """Whether this replica may write the record: it is ours, was released, or has expired."""
        if record.holder in {"", self.identity}:
            return True
        return self._clock() - self._changed > record.seconds

    async def _take(self, record: LeaseRecord | None, began: Seconds) -> None:
        now, before = self._wall(), record or LeaseRecord()
        same = before.holder == self.identity
        wanted = LeaseRecord(
            holder=self.identity,
            seconds=self._duration,
            acquired=before.acquired if same else now,
            renewed=now,
            transitions=before.transitions if same or record is None else before.transitions + 1,
            version=before.version,
        )
        self._unsure = True  # until the answer is here
        written = await self._lease.write(wanted)
        self._unsure = False
        self._turn()  # a lease that lapsed before it was renewed has ended what this replica had begun as its leader
        if not same:
            self.takes_over, self.term = bool(before.holder), self.term + int(self._elect)
        self._record, self._changed, self._until = written, self._clock(), began + self._duration * _STOP_AFTER

    def _see(self, record: LeaseRecord | None) -> None:
        if (record.holder if record else "") != self.holder:
            self._held = self._clock()
        if record != self._record:
            self._record, self._changed = record, self._clock()

    def _turn(self) -> None:
        if (self.leads, self.term) == (self._led, self._last_term):
            return
        self._led, self._last_term = self.leads, self.term
        if self._led:
            log.info("leading", extra=fields(identity=self.identity))
        else:
            log.info("no longer leading", extra=fields(identity=self.identity))
        for call in self.on_turn:
            call()


def _released(record: LeaseRecord, now: UnixTime) -> LeaseRecord:
    """The record after its holder gave the lease back: the next one need not wait."""
    return replace(record, holder="", seconds=1.0, renewed=now)
