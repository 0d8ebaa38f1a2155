"""Leader election: a lease that one replica holds at a time, and what it allows a replica to do.

The lease is kept in the store. In PostgreSQL it is a row measured by the database's clock, so the replicas' clocks do
not matter. With a SQLite file it is a kernel lock on a file beside it, which ends with the process. Without a store the
lease exists in this process only.

If the store is down, no replica is leader. Every replica may then still read and analyse, because that changes nothing.
No replica may act. A store that can be read but not written is down: every renewal writes a row.
"""

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from vgpuscope.model.errors import HistoryDown
from vgpuscope.model.quantity import Seconds
from vgpuscope.store.engine.database import Transaction
from vgpuscope.store.engine.engine import Engine
from vgpuscope.store.engine.files import file_identity
from vgpuscope.store.engine.migrations import Migration, TableSet

# Migration 1 of the history tables created this table before the lease had its own set. Hence the table's name, and IF
# NOT EXISTS for databases that already have it.
TABLES = TableSet(
    "lease",
    (
        Migration(
            1,
            (
                """
CREATE TABLE IF NOT EXISTS history_lease (
    id integer PRIMARY KEY CHECK (id = 1),
    holder text NOT NULL,
    until {moment} NOT NULL
)
""",
            ),
        ),
    ),
)
_TAKE = (
    "INSERT INTO history_lease AS l (id, holder, until) "
    "VALUES (1, :holder, clock_timestamp() + make_interval(secs => :seconds)) "
    "ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, "
    "until = clock_timestamp() + make_interval(secs => :seconds) "
    "WHERE l.holder = excluded.holder OR l.until <= clock_timestamp() RETURNING holder"
)
_RELEASE = "DELETE FROM history_lease WHERE holder = :holder"
_RELEASE_WITHIN = 5.0  # seconds; a process that ends does not wait longer for a frozen database
_LOOK = "SELECT holder FROM history_lease"
# The lock decides who the holder is. The row proves that the database can be written, and names the holder to people.
# SQLite writes nothing if the values are the same, so the time has milliseconds.
_RECORD = (
    "INSERT INTO history_lease (id, holder, until) "
    "VALUES (1, :holder, (julianday('now') - 2440587.5) * 86400 + :seconds) "
    "ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, until = excluded.until"
)

Use: TypeAlias = Literal["lease", "read", "write"]  # of the store


class Lease(Protocol):
    """One holder at a time; the lease expires unless it is renewed. Every call may raise HistoryDown."""

    shared: bool  # whether other processes see it

    async def take(self, holder: str, seconds: Seconds) -> bool:
        """Take or renew the lease; True: no other holder has it until it expires."""

    async def leader(self) -> str:
        """The holder as the lease names it; "": nobody, or not known."""

    async def release(self, holder: str) -> None:
        """Give the lease back, if this holder has it."""

    async def close(self) -> None:
        """Free the resources of the lease."""


def lease_in(engine: Engine, *, clock: Callable[[], float] = time.monotonic) -> Lease:
    """The lease of this store."""
    engine.register(TABLES)
    if engine.file is None:
        return TableLease(engine)
    return FileLease(engine, Path(f"{engine.file}.leader"), clock=clock)


class LocalLease:
    """A lease within one process, by a monotonic clock."""

    shared = False

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._holder: str | None = None
        self._until = 0.0

    async def take(self, holder: str, seconds: Seconds) -> bool:
        return self.take_now(holder, seconds)

    async def leader(self) -> str:
        return self._holder or ""

    async def release(self, holder: str) -> None:
        self.release_now(holder)

    async def close(self) -> None:
        pass

    def take_now(self, holder: str, seconds: Seconds) -> bool:
        now = self._clock()
        if self._holder not in {None, holder} and now < self._until:
            return False
        self._holder, self._until = holder, now + seconds
        return True

    def release_now(self, holder: str) -> bool:
        """Give the lease back if it is the holder's; True if it is free now."""
        if self._holder == holder:
            self._holder = None
        return self._holder is None


class TableLease:
    """A row of a database that several replicas share."""

    shared = True

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def take(self, holder: str, seconds: Seconds) -> bool:
        """Take or renew the lease; its length is also the deadline, because a later answer would be useless."""

        def take(tx: Transaction) -> bool:
            return bool(tx.all(_TAKE, holder=holder, seconds=float(seconds)))

        return await self._engine.write_row(take, deadline=seconds)

    async def leader(self) -> str:
        return await self._engine.read(_holder, deadline=_RELEASE_WITHIN)

    async def release(self, holder: str) -> None:
        await self._engine.write_row(lambda tx: tx.all(_RELEASE, holder=holder), deadline=_RELEASE_WITHIN)

    async def close(self) -> None:
        """Nothing to close; a lease that was not released expires."""


class FileLease:
    """A lock on a file beside the database; it ends with the process, even if that is killed."""

    shared = True

    def __init__(self, engine: Engine, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._path = path
        self._lock: int | None = None
        self._here = LocalLease(clock=clock)  # two holders in one process share the file lock

    async def take(self, holder: str, seconds: Seconds) -> bool:
        """Take or renew the lease; the database is written too: without the store, a replica is not leader."""
        return await self._engine.do(lambda: self._take(holder, seconds), deadline=seconds, purpose="brief")

    async def leader(self) -> str:
        return await self._engine.read(_holder, deadline=_RELEASE_WITHIN)

    async def release(self, holder: str) -> None:
        await self._engine.do(lambda: self._release(holder), deadline=_RELEASE_WITHIN, purpose="brief")

    async def close(self) -> None:
        await self._engine.do(self._unlock, deadline=_RELEASE_WITHIN, purpose="brief")

    def _take(self, holder: str, seconds: Seconds) -> bool:
        try:
            with self._engine.transaction("read") as tx:
                tx.all(_LOOK)
            if not self._locked() or not self._here.take_now(holder, seconds):
                return False
            self._record(holder, seconds)
        except HistoryDown:
            self._release(holder)  # another process may be able to use the store
            raise
        return True

    def _record(self, holder: str, seconds: Seconds) -> None:
        """Write the holder, unless a write of this process is under way: SQLite has one writer, who may take long.

        The outcome of that write shows as well whether the store can be written.
        """
        if not self._engine.writing:
            with self._engine.transaction("brief") as tx:
                tx.all(_RECORD, holder=holder, seconds=float(seconds))

    def _release(self, holder: str) -> None:
        if self._here.release_now(holder):
            self._unlock()

    def _locked(self) -> bool:
        """Whether this process has the lock; HistoryDown if its file was removed or replaced, and the lock is lost."""
        if self._lock is None:
            self._lock = self._new_lock()
        if self._lock is None:
            return False
        if file_identity(self._path) != file_identity(self._lock):
            self._unlock()
            raise HistoryDown(f"the lease {self._path} was removed or replaced while it was held")
        return True

    def _new_lock(self) -> int | None:
        """The locked file; None if another process has locked it."""
        try:
            lock = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as e:
            raise HistoryDown(f"the lease {self._path} cannot be used: {e.strerror or e}") from e
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return None
        return lock

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _holder(tx: Transaction) -> str:
    found = tx.all(_LOOK)
    return str(found[0][0]) if found else ""


class Leadership:
    """The state of the lease as one replica knows it, and what the replica may do.

    `leads` becomes false by time alone, whatever else happens.
    """

    def __init__(
        self, lease: Lease, holder: str, seconds: Seconds, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lease, self._clock = lease, clock
        self.holder, self.seconds = holder, seconds
        self._works: dict[Use, bool] = {}  # whether the last use of each kind succeeded
        self._until: Seconds | None = None  # by this process' monotonic clock; None: it does not hold the lease

    @property
    def leads(self) -> bool:
        """Whether this replica holds the lease now."""
        return self._lasts(0.0)

    @property
    def reachable(self) -> bool | None:
        """Whether the store works; None: not known yet.

        A use that failed counts until a use of the same kind succeeds. So a lease that can be renewed does not hide
        that results cannot be saved.
        """
        if not all(self._works.values()):
            return False
        return True if "lease" in self._works else None

    async def renew(self) -> bool:
        """Request the lease; whether this replica leads. HistoryDown if the store does not answer.

        After an exception of any kind this replica is not leader.
        """
        asked = self._clock()  # before the request, so that the lease never ends later here than by the store's clock
        until = None
        try:
            if await self._lease.take(self.holder, self.seconds):
                until = asked + self.seconds
        except Exception:
            self.store_failed("lease")
            raise
        finally:
            self._until = until
        self.store_works("lease")
        return self.leads

    async def leader(self) -> str:
        """The replica that leads, as the lease names it; "": another one, not known which."""
        with suppress(HistoryDown):
            found = await self._lease.leader()
            return "" if found == self.holder and not self.leads else found
        return ""

    async def resign(self) -> None:
        """Give the lease back."""
        self._until = None
        await self._lease.release(self.holder)

    def store_failed(self, use: Use) -> None:
        """Record that this process could not use the store: no acting until the same use succeeds."""
        self._works[use] = False

    def store_works(self, *uses: Use) -> None:
        """Record that these uses of the store succeeded."""
        self._works |= dict.fromkeys(uses, True)

    def nothing_to_write(self) -> None:
        """Forget a failed write: nothing is left to write, so no later one can succeed."""
        self._works.pop("write", None)

    def may_read(self) -> bool:
        """Whether this replica may analyse: it leads, or the store is down. Two replicas that analyse do no harm."""
        return self.leads or self.reachable is False

    def may_act(self, *, lasting: Seconds = 0.0) -> bool:
        """Whether this replica may change the cluster, with an action that takes this long.

        This needs a lease that other processes see, a store that can be read and written, and a lease that does not
        expire during the action.
        """
        return self._lease.shared and self.reachable is True and self._lasts(lasting)

    def _lasts(self, seconds: Seconds) -> bool:
        return self._until is not None and self._clock() + seconds < self._until
