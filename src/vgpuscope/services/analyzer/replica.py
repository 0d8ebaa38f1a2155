"""This process among its replicas: whether it leads, whether it analyses, and whether the store answers."""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Iterable

from vgpuscope.model.errors import HistoryDown, NotLeader, ScopeError
from vgpuscope.model.quantity import Seconds
from vgpuscope.runtime.log import SUMMARY, OnChange, error_fields, fields
from vgpuscope.store.lease import Leadership, Lease, Use

log = logging.getLogger(__name__)

LEASE = 15.0  # seconds; the leader renews it three times in that time


class Replica:
    """The lease of one replica, and the state of the store behind it."""

    def __init__(
        self,
        lease: Lease,
        *,
        failed: Callable[[ScopeError], None],
        keeps: bool = True,
        seconds: Seconds = LEASE,
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        """`failed` counts the errors of the store; `seconds` is how long the lease lasts.

        `keeps`: whether there is a store of results; without one, the log says nothing about it.
        """
        self.on_turn: list[Callable[[], None]] = []  # called when this replica begins to lead, or to follow
        self.on_work: list[Callable[[], None]] = []  # called when this replica begins or stops to analyse
        self.leadership = Leadership(lease, f"{socket.gethostname()}-{os.getpid()}", seconds, clock=clock)
        self._failed, self._keeps, self._told = failed, keeps, OnChange(log)
        self._led: bool | None = None  # whether this replica led when it last asked; None: it has not asked yet

    @property
    def leads(self) -> bool:
        return self.leadership.leads

    @property
    def stored(self) -> bool | None:
        """Whether the store of results answers; None: not asked yet."""
        return self.leadership.reachable

    @property
    def analyses(self) -> bool:
        """Whether this replica should analyse."""
        return self.leadership.may_read()

    async def should_analyse(self) -> bool:
        """Whether this replica should analyse now. A lease that ended since it last asked is requested again first."""
        if self._lapsed:
            await self.ask()
        return self.analyses

    @property
    def _lapsed(self) -> bool:
        """Whether the lease ended by time since this replica last asked, as after a long pause of the process."""
        return bool(self._led) and not self.leads

    def check_analyses(self) -> None:
        """NotLeader if another replica analyses."""
        if not self.analyses:
            raise NotLeader("another replica analyses")

    def may_act(self, *, lasting: Seconds = 0.0) -> bool:
        """Whether this replica may change the cluster now."""
        return self.leadership.may_act(lasting=lasting)

    async def lasts(self, seconds: Seconds) -> bool:
        """Whether the lease lasts so long from now. It is renewed if it would not."""
        if self._led and not self.may_act(lasting=seconds):
            await self.ask()
        return self.may_act(lasting=seconds)

    async def lead_forever(self) -> None:
        """Take or renew the lease."""
        try:
            while True:
                await self.ask()
                await asyncio.sleep(self.leadership.seconds / 3)
        finally:
            self.leadership.store_failed("lease")  # the lease is no longer renewed

    async def ask(self) -> None:
        """One round of lead_forever."""
        lapsed = self._lapsed
        before = self.analyses or lapsed
        try:
            leads = await self.leadership.renew()
        except HistoryDown as e:
            self._led = False
            self.store_failed(e, "lease")
        else:
            changed, self._led = lapsed or leads != self._led, leads
            if changed:
                if leads:
                    log.info("leading", extra=fields(holder=self.leadership.holder))
                    self._told.forget("leader")
                _call(self.on_turn)
            if not leads:
                leader = await self.leadership.leader()
                self._told.tell("leader", leader, level=logging.INFO, message="following", holder=leader or None)
            self.store_works("lease")
        if self.analyses != before:
            _call(self.on_work)

    def store_works(self, *uses: Use) -> None:
        self.leadership.store_works(*uses)
        if self.stored and self._keeps:
            self._told.tell("history", "up", level=SUMMARY, message="history store is up")

    def store_failed(self, error: HistoryDown, use: Use) -> None:
        """Without a store of results, every replica analyses independently."""
        self.leadership.store_failed(use)
        self._failed(error)
        self._told.tell(
            "history", error.code, level=logging.ERROR, message="history store is down", **error_fields(error)
        )


def _call(all_of: Iterable[Callable[[], None]]) -> None:
    for one in all_of:
        one()
